/* SPDX-License-Identifier: MIT */
/* A server: methods, threads, start and shutdown. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/counter.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/owner.h"
#include "base/sized.h"
#include "rpc/server.h"

#define THREADS_MAX	256u
#define CQ_DEPTH	(1u << 16) /* at most; a thread whose clients need more refuses the next */
#define WAIT_SPIN_US	20u	   /* of spinning, before a thread looks at events */
#define MAINTAIN_EVERY	256u	   /* turns: polling the channel costs a system call */
#define PARK_US		1000u
#define NO_THREAD	UINT64_MAX /* not a thread id */
#define PIECE_MAX_BYTES (1u << 20)
#define DRAIN_POLL_US	1000u /* between two checks whether all clients have their results */

/* ---- methods ---- */

const struct rpc_method *rpc_method_find(const struct gn_rpc_server *server, unsigned method)
{
	const struct rpc_method *page = server->methods[method / RPC_PAGE_METHODS];

	if (!page ||
	    (!page[method % RPC_PAGE_METHODS].fn && !page[method % RPC_PAGE_METHODS].group))
		return NULL;
	return &page[method % RPC_PAGE_METHODS];
}

void rpc_thread_cache_method(struct rpc_thread *t, unsigned method)
{
	const struct rpc_method *def = rpc_method_find(t->server, method);

	t->cached = (struct rpc_method_cache){.method = method, .def = def};
	if (!def)
		return;
	t->cached.times = rpc_method_times(t, method);
	t->cached.arg = def->arg;
	if (!t->cached.times)
		t->cached.method = UINT_MAX; /* no memory now: try again with the next call */
	else if (!t->draining)
		t->cached.fn = def->fn;
}

static int server_add_method(struct gn_rpc_server *server, unsigned method, struct rpc_method def)
{
	struct rpc_method **page;

	if (rpc_method_find(server, method))
		return gn_fail(-EEXIST, "rpc: method %u has a handler already", method);
	page = &server->methods[method / RPC_PAGE_METHODS];
	if (!*page)
		*page = gn_alloc(RPC_PAGE_METHODS * sizeof(**page), 0);
	if (!*page)
		return -ENOMEM;
	(*page)[method % RPC_PAGE_METHODS] = def;
	return 0;
}

static int server_add_handler(struct gn_rpc_server *server, unsigned method, struct rpc_method def,
			      const char *call)
{
	if (!server || (!def.fn && !def.group))
		return gn_fail(-EINVAL, "%s: %s is NULL", call, server ? "fn" : "server");
	if (method >= GN_RPC_METHODS_MAX)
		return gn_fail(-EINVAL, "%s: method %u is not below GN_RPC_METHODS_MAX (%u)", call,
			       method, GN_RPC_METHODS_MAX);
	if (def.flags & ~(unsigned)GN_RPC_ORDERED)
		return gn_fail(-EINVAL, "%s: flags 0x%x: only GN_RPC_ORDERED is allowed", call,
			       def.flags);
	if (server->started)
		return gn_fail(-EBUSY, "%s: the server has started", call);
	return server_add_method(server, method, def);
}

int gn_rpc_server_handle(struct gn_rpc_server *server, unsigned method, gn_rpc_handler *fn,
			 void *arg)
{
	return server_add_handler(server, method, (struct rpc_method){.fn = fn, .arg = arg},
				  "gn_rpc_server_handle()");
}

int gn_rpc_server_handle_group(struct gn_rpc_server *server, unsigned method,
			       gn_rpc_group_handler *fn, void *arg, unsigned flags)
{
	return server_add_handler(server, method,
				  (struct rpc_method){.group = fn, .arg = arg, .flags = flags},
				  "gn_rpc_server_handle_group()");
}

/* ---- create and destroy ---- */

static int thread_create(struct gn_rpc_server *server, struct rpc_thread *t, unsigned index)
{
	/* Clients may choose their thread: all of them may be on this one. */
	const uint64_t need =
		(uint64_t)server->opts.max_clients * rpc_completions(server->opts.max_slots);
	const struct link_loop_opts loop = {
		.fabric = server->fabric,
		.ctx = server->ctx,
		.completions = need < CQ_DEPTH ? (uint32_t)need : CQ_DEPTH,
		.maintain_every = MAINTAIN_EVERY,
		.policy = {.spin_us = WAIT_SPIN_US},
	};

	t->server = server;
	t->index = index;
	t->cached.method = UINT_MAX;
	t->stop_task.run = rpc_thread_stop;
	t->drain_task.run = rpc_thread_drain;
	link_timer_init(&t->park, rpc_thread_park_due);
	link_timer_init(&t->watch, rpc_abandon_due);
	return link_loop_open(&t->loop, &rpc_thread_ops, &loop);
}

static void thread_destroy(struct rpc_thread *t)
{
	link_loop_close(&t->loop);
	rpc_method_times_free(t);
}

static int server_check_opts(struct gn_rpc_server_opts *o)
{
	if (!o->threads)
		o->threads = 1;
	if (!o->max_slots)
		o->max_slots = GN_RPC_SLOTS_DEFAULT;
	if (!o->max_request)
		o->max_request = GN_RPC_BYTES_DEFAULT;
	if (!o->max_result)
		o->max_result = GN_RPC_BYTES_DEFAULT;
	if (!o->max_large)
		o->max_large = GN_RPC_LARGE_MAX;
	if (!o->park_us)
		o->park_us = PARK_US;
	if (o->flags & GN_RPC_POLLED && o->threads > 1)
		return gn_fail_log(-EINVAL, "rpc: threads %u: a polled server has exactly one",
				   o->threads);
	if (o->threads <= THREADS_MAX && o->max_large <= GN_RPC_LARGE_MAX &&
	    o->max_slots <= GN_RPC_SLOTS_MAX && o->max_request <= GN_RPC_BYTES_MAX &&
	    o->max_result <= GN_RPC_BYTES_MAX)
		return 0;
	return gn_fail_log(
		-EINVAL,
		"rpc: threads %u, max_slots %u, max_request %u, max_result %u, max_large %u: at "
		"most %u threads, %u slots, %u bytes in a slot and %u in a large message",
		o->threads, o->max_slots, o->max_request, o->max_result, o->max_large, THREADS_MAX,
		GN_RPC_SLOTS_MAX, GN_RPC_BYTES_MAX, GN_RPC_LARGE_MAX);
}

/* Set-up that all threads share. */
static int server_init_shared(struct gn_rpc_server *server)
{
	struct gn_attr attr = {.size = sizeof(attr)};
	int rc = gn_fabric_query(server->fabric, &attr);

	if (rc)
		return rc;
	server->piece = attr.max_msg < PIECE_MAX_BYTES ? (uint32_t)attr.max_msg : PIECE_MAX_BYTES;
	server->max_inline = attr.max_inline < RPC_INLINE ? attr.max_inline : RPC_INLINE;
	for (unsigned m = GN_RPC_PING; m < GN_RPC_BUILTIN_END && !rc; m++)
		rc = server_add_method(
			server, m, (struct rpc_method){.fn = rpc_metrics_handler, .arg = server});
	if (!rc && server->opts.flags & GN_RPC_ONE_CTX)
		rc = gn_ctx_create(server->fabric, &server->ctx);
	return rc;
}

int gn_rpc_server_create(struct gn_fabric *fabric, const char *addr,
			 const struct gn_rpc_server_opts *opts, struct gn_rpc_server **out)
{
	struct gn_rpc_server *server;
	int rc;

	if (!fabric || !addr || !out)
		return gn_fail(
			-EINVAL,
			"gn_rpc_server_create(): fabric is NULL, or addr is NULL, or out is NULL");
	server = gn_alloc(sizeof(*server), 0);
	if (!server)
		return -ENOMEM;
	gn_mutex_init(&server->histograms_lock);
	server->fabric = fabric;
	server->creator = gn_thread_id();
	server->poller = NO_THREAD;
	rc = SIZED_READ(&server->opts, opts, "gn_rpc_server_opts");
	if (!rc)
		rc = server_check_opts(&server->opts);
	if (rc)
		goto destroy;
	rpc_limits_default(&server->opts);
	rc = -ENOMEM;
	server->addr = gn_alloc(strlen(addr) + 1, 0);
	server->threads = gn_alloc(server->opts.threads * sizeof(*server->threads), 0);
	if (!server->addr || !server->threads)
		goto destroy;
	memcpy(server->addr, addr, strlen(addr));
	rc = server_init_shared(server);
	if (rc)
		goto destroy;
	for (unsigned i = 0; i < server->opts.threads; i++) {
		rc = thread_create(server, &server->threads[i], i);
		if (rc)
			goto destroy;
	}
	*out = server;
	return 0;

destroy:
	gn_rpc_server_destroy(server);
	return rc;
}

static bool server_is_polled(const struct gn_rpc_server *server)
{
	return server->opts.flags & GN_RPC_POLLED;
}

/* Stop accepting first; then process what is queued for the threads. */
static void server_stop_threads(struct gn_rpc_server *server)
{
	link_acceptor_stop(&server->acceptor);
	for (unsigned i = 0; i < server->started && !server_is_polled(server); i++)
		link_loop_post(&server->threads[i].loop, &server->threads[i].stop_task);
	for (unsigned i = 0; i < server->started && !server_is_polled(server); i++)
		gn_thread_join(server->threads[i].thread);
	for (unsigned i = 0; i < server->started; i++) {
		server->threads[i].stop = true;
		rpc_thread_end(&server->threads[i]);
	}
	/* tasks that were passed on to a thread that had ended before */
	for (unsigned i = 0; i < server->started; i++)
		rpc_thread_end(&server->threads[i]);
	server->started = 0;
	server->poller = NO_THREAD;
}

static int server_start_thread(struct gn_rpc_server *server, struct rpc_thread *t)
{
	t->stop = t->draining = server->draining = false;
	t->undrained = 0;
	if (!server_is_polled(server))
		return gn_thread_start("rpc", rpc_thread_main, t, &t->thread);
	server->poller = t->id = gn_thread_id();
	return 0;
}

static void acceptor_request(void *server, struct gn_event *event)
{
	rpc_conn_request(server, event);
}

static int server_listen(struct gn_rpc_server *server)
{
	const struct link_loop *loop = &server->threads[0].loop;
	const unsigned flags = server->opts.listener_flags;

	if (server_is_polled(server))
		return gn_listener_create(loop->ctx, server->addr, loop->chan, flags,
					  &server->listener);
	return link_acceptor_start(&server->acceptor, loop->ctx, server->addr, flags,
				   acceptor_request, server);
}

int gn_rpc_server_start(struct gn_rpc_server *server)
{
	int rc = 0;

	if (!server || server->started)
		return gn_fail(-EINVAL,
			       "gn_rpc_server_start(): server is NULL, or was started before");
	for (; !rc && server->started < server->opts.threads; server->started += !rc)
		rc = server_start_thread(server, &server->threads[server->started]);
	/* Accept clients only after all threads run. */
	if (!rc)
		rc = server_listen(server);
	if (rc)
		server_stop_threads(server);
	return rc;
}

/* ---- polled servers ---- */

/* A server inherited by a forked child cannot be used either. */
static int server_not_owner(const struct gn_rpc_server *server)
{
	return exec_not_owner(server->creator, "rpc server");
}

static bool server_polled_here(const struct gn_rpc_server *server)
{
	return server && exec_is_owner(server->poller);
}

static no_inline int server_refuse_poll(const struct gn_rpc_server *server)
{
	if (!server || !server_is_polled(server) || !server->started)
		return gn_fail(-EINVAL, "rpc: server is NULL, not GN_RPC_POLLED, or not started");
	return server_not_owner(server);
}

int gn_rpc_server_poll(struct gn_rpc_server *server)
{
	return likely(server_polled_here(server)) ? rpc_thread_turn(&server->threads[0]) :
						    server_refuse_poll(server);
}

int gn_rpc_server_wait(struct gn_rpc_server *server, uint64_t deadline_ns)
{
	if (!server_polled_here(server))
		return server_refuse_poll(server);
	return rpc_thread_idle(&server->threads[0], deadline_given(deadline_ns));
}

/* ---- shutdown ---- */

/* A draining thread publishes the number of its undrained clients, plus one. */
static bool server_is_drained(struct gn_rpc_server *server)
{
	bool all = true;

	for (unsigned i = 0; i < server->started; i++)
		all &= __atomic_load_n(&server->threads[i].undrained, __ATOMIC_ACQUIRE) == 1;
	return all;
}

int gn_rpc_server_drain(struct gn_rpc_server *server, uint64_t deadline_ns)
{
	if (!server || !server->started)
		return gn_fail(-EINVAL,
			       "gn_rpc_server_drain(): server is NULL, or was not started");
	if ((server_is_polled(server) && server->threads[0].id != gn_thread_id()) ||
	    exec_inherited(server->creator))
		return server_not_owner(server);
	deadline_ns = deadline_given(deadline_ns);
	__atomic_store_n(&server->draining, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < server->started; i++) {
		struct rpc_thread *t = &server->threads[i];

		if (!__atomic_exchange_n(&t->drain_asked, true, __ATOMIC_ACQ_REL))
			link_loop_post(&t->loop, &t->drain_task);
	}
	while (!server_is_drained(server)) {
		if (gn_now_ns() >= deadline_ns)
			return gn_fail_text(
				-ETIMEDOUT,
				"gn_rpc_server_drain(): requests are still outstanding");
		if (!server_is_polled(server))
			gn_sleep_us(DRAIN_POLL_US);
		else if (!rpc_thread_turn(&server->threads[0]))
			rpc_thread_idle(&server->threads[0], deadline_ns);
	}
	return 0;
}

void gn_rpc_server_destroy(struct gn_rpc_server *server)
{
	if (!server)
		return;
	if (exec_inherited(server->creator)) {
		server_not_owner(server);
		return;
	}
	server_stop_threads(server);
	gn_listener_destroy(server->listener);
	for (unsigned i = 0; server->threads && i < server->opts.threads; i++)
		if (server->threads[i].server)
			thread_destroy(&server->threads[i]);
	gn_ctx_destroy(server->ctx);
	for (unsigned i = 0; i < sizeof(server->methods) / sizeof(server->methods[0]); i++)
		gn_free(server->methods[i]);
	rpc_histogram_free(server->histograms);
	gn_mutex_fini(&server->histograms_lock);
	gn_free(server->threads);
	gn_free(server->addr);
	gn_free(server);
}

static void server_add_counters(struct gn_rpc_counters *to, const struct rpc_thread *t)
{
	to->calls += counter_read(&t->count.calls);
	to->torn += counter_read(&t->count.torn);
	to->probes += counter_read(&t->loop.probes);
	to->parks += counter_read(&t->count.parks);
	to->wakes += counter_read(&t->count.wakes);
	to->notifies += counter_read(&t->count.notifies);
	to->large += counter_read(&t->count.large);
	to->batches += counter_read(&t->count.batches);
	to->results += counter_read(&t->count.results);
	to->clients += __atomic_load_n(&t->n_conns, __ATOMIC_RELAXED);
}

int gn_rpc_server_counters(struct gn_rpc_server *server, struct gn_rpc_counters *out)
{
	struct gn_rpc_counters sum = {.size = sizeof(sum)};

	if (!server)
		return gn_fail(-EINVAL, "gn_rpc_server_counters(): server is NULL");
	for (unsigned i = 0; i < server->opts.threads; i++)
		server_add_counters(&sum, &server->threads[i]);
	sum.bytes = __atomic_load_n(&server->bytes, __ATOMIC_RELAXED);
	sum.refused = __atomic_load_n(&server->refused, __ATOMIC_RELAXED);
	sum.dropped = __atomic_load_n(&server->dropped, __ATOMIC_RELAXED);
	return SIZED_WRITE(out, &sum, "gn_rpc_counters");
}
