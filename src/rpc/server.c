/* SPDX-License-Identifier: MIT */
/* A server: its methods, its threads, and what they do all day. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "rpc/server.h"

#define THREADS_MAX 256u
#define QUEUE	    1024u
#define CQ_DEPTH    4096u
#define COMPLETIONS 16
#define CHAN_EVERY  64u /* turns after which connections are looked at */
#define EAGER_US    20u /* of waiting for requests and nothing else */
#define MANY_NAP_US 50u /* with more clients than a wait has room for */

/* ---- methods ---- */

const struct rpc_method *rpc_method_find(const struct gn_rpc_server *server, unsigned method)
{
	const struct rpc_method *page = server->methods[method / RPC_PAGE_METHODS];

	if (!page || !page[method % RPC_PAGE_METHODS].fn)
		return NULL;
	return &page[method % RPC_PAGE_METHODS];
}

int gn_rpc_server_handle(struct gn_rpc_server *server, unsigned method, gn_rpc_handler *fn,
			 void *arg)
{
	struct rpc_method **page;

	if (!server || !fn || method >= GN_RPC_METHODS_MAX)
		return -EINVAL;
	if (server->started)
		return -EBUSY;
	if (rpc_method_find(server, method))
		return -EEXIST;
	page = &server->methods[method / RPC_PAGE_METHODS];
	if (!*page)
		*page = gn_alloc(RPC_PAGE_METHODS * sizeof(**page), 0);
	if (!*page)
		return -ENOMEM;
	(*page)[method % RPC_PAGE_METHODS] = (struct rpc_method){fn, arg};
	return 0;
}

/* ---- newcomers ---- */

static bool hello_ok(const struct gn_event *event, struct rpc_hello *hello)
{
	memcpy(hello, event->private_data, sizeof(*hello));
	return event->private_len >= sizeof(*hello) && hello->magic == RPC_MAGIC &&
	       hello->version == RPC_VERSION && hello->slots && hello->slots <= GN_RPC_SLOTS_MAX &&
	       hello->max_request <= GN_RPC_BYTES_MAX && hello->max_result <= GN_RPC_BYTES_MAX;
}

static void take_newcomer(struct rpc_thread *t, const struct gn_event *event)
{
	struct gn_rpc_server *server = t->server;
	struct rpc_newcomer *newcomer = gn_alloc(sizeof(*newcomer), 0);
	unsigned to;

	if (!newcomer || !hello_ok(event, &newcomer->hello)) {
		gn_log(GN_LOG_WARN, "rpc: %s",
		       newcomer ? "somebody connects who is no RPC client" :
				  "no memory for a client");
		gn_free(newcomer);
		gn_reject(event->req, NULL, 0);
		return;
	}
	to = newcomer->hello.thread < server->opts.threads ? newcomer->hello.thread :
							     server->next++ % server->opts.threads;
	newcomer->work.ask = RPC_ASK_ACCEPT;
	newcomer->req = event->req;
	if (to == t->index)
		rpc_conn_accept(t, newcomer);
	else
		rpc_thread_ask(&server->threads[to], &newcomer->work);
}

/* ---- a thread ---- */

void rpc_thread_ask(struct rpc_thread *t, struct rpc_work *work)
{
	__atomic_fetch_add(&t->asking, 1, __ATOMIC_ACQUIRE);
	while (gn_queue_push(t->queue, work) == -EAGAIN)
		gn_yield();
	__atomic_fetch_sub(&t->asking, 1, __ATOMIC_RELEASE);
}

static int take_events(struct rpc_thread *t)
{
	struct gn_event event;
	int n = 0;

	for (; !gn_chan_next(t->chan, &event); n++) {
		struct rpc_conn *c = event.qp ? gn_qp_user(event.qp) : NULL;

		if (event.type == GN_EVENT_CONNECT_REQUEST)
			take_newcomer(t, &event);
		else if (event.type == GN_EVENT_ESTABLISHED)
			rpc_conn_established(c);
		else if (c)
			rpc_conn_end(c);
	}
	return n;
}

/* Who comes when it is over is refused. */
static void take_in(struct rpc_thread *t, struct rpc_newcomer *newcomer)
{
	if (!t->stop) {
		rpc_conn_accept(t, newcomer);
		return;
	}
	gn_reject(newcomer->req, NULL, 0);
	gn_free(newcomer);
}

static int take_work(struct rpc_thread *t)
{
	struct rpc_work *work;
	int n = 0;

	for (; (work = gn_queue_pop(t->queue)); n++) {
		struct gn_rpc_request *r = container_of(work, struct gn_rpc_request, work);

		switch (work->ask) {
		case RPC_ASK_STOP:
			t->stop = true;
			break;
		case RPC_ASK_ACCEPT:
			take_in(t, container_of(work, struct rpc_newcomer, work));
			break;
		case RPC_ASK_POST:
			rpc_conn_post(r->conn, r);
			__atomic_fetch_sub(&r->conn->pending, 1, __ATOMIC_RELEASE);
			break;
		}
	}
	return n;
}

void rpc_thread_completions(struct rpc_thread *t)
{
	struct gn_wc wc[COMPLETIONS];
	int n;

	do {
		n = gn_cq_poll(t->cq, wc, COMPLETIONS);
		for (int i = 0; i < n; i++)
			if (wc[i].status != GN_WC_OK)
				rpc_conn_fail(gn_qp_user(wc[i].qp));
	} while (n == COMPLETIONS);
}

static void end_failed(struct rpc_thread *t)
{
	t->failed = false;
	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->failed)
			rpc_conn_end(c);
	}
}

static int serve_all(struct rpc_thread *t)
{
	int served = 0;

	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		served += rpc_conn_serve(c);
	}
	return served;
}

/* With nobody there, nobody is asked. */
static uint64_t probe_at(const struct rpc_thread *t)
{
	return t->conns ? t->probe_ns : GN_FOREVER;
}

static void probe_all(struct rpc_thread *t)
{
	const uint64_t now_ns = gn_now_ns();

	if (now_ns < t->probe_ns)
		return;
	t->probe_ns = now_ns + RPC_PROBE_NS;
	for (struct rpc_conn *c = t->conns; c; c = c->next)
		rpc_conn_probe(c);
}

/*
 * Nothing to do: until a client writes, an event, or another thread's word. To look at channel and
 * cq costs a system call, so they are left out at first: who calls now and then does not pay for
 * them each time.
 */
static void idle(struct rpc_thread *t)
{
	struct gn_wait_item items[GN_WAIT_MAX];
	bool torn = false;
	uint64_t until;
	struct rpc_conn *c;
	unsigned n = 1;
	int rc = -ETIMEDOUT;

	items[0] = gn_wait_on(gn_queue_source(t->queue));
	for (c = t->conns; c && n < GN_WAIT_MAX - 2; c = c->next) {
		const uint64_t *word = rpc_conn_word(c);
		const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (!c->established)
			continue;
		if (seen == rpc_seq(c->epoch, c->number))
			torn = true; /* or here since just now */
		else
			items[n++] = gn_wait_word(word, seen);
	}
	if (n > 1)
		rc = gn_wait(items, n, gn_deadline_us(torn ? RPC_TORN_NAP_US : EAGER_US),
			     "requests of clients");
	if (rc != -ETIMEDOUT)
		return;
	if (torn)
		until = gn_deadline_us(RPC_TORN_NAP_US);
	else if (c || t->dying)
		until = gn_deadline_us(MANY_NAP_US);
	else
		until = probe_at(t);
	items[n++] = gn_wait_on(gn_chan_source(t->chan));
	items[n++] = gn_wait_on(gn_cq_source(t->cq));
	gn_wait(items, n, until, "requests of clients");
	t->turns = CHAN_EVERY;
}

static void thread_main(void *arg)
{
	struct rpc_thread *t = arg;

	__atomic_store_n(&t->id, gn_thread_id(), __ATOMIC_RELEASE);
	while (!t->stop) {
		int busy = take_work(t) + serve_all(t);

		if (++t->turns >= CHAN_EVERY) {
			t->turns = 0;
			rpc_thread_completions(t);
			busy += take_events(t);
			rpc_conn_bury(t);
			probe_all(t);
		}
		if (t->failed)
			end_failed(t);
		if (!busy && !t->stop)
			idle(t);
	}
	while (t->conns)
		rpc_conn_end(t->conns);
	for (rpc_conn_bury(t); t->dying || __atomic_load_n(&t->asking, __ATOMIC_ACQUIRE);
	     rpc_conn_bury(t)) {
		take_work(t);
		gn_yield();
	}
}

/* ---- beginning and end ---- */

static int make_thread(struct gn_rpc_server *server, struct rpc_thread *t, unsigned index)
{
	int rc;

	t->server = server;
	t->index = index;
	t->stop_work.ask = RPC_ASK_STOP;
	rc = gn_queue_create(QUEUE, &t->queue);
	if (rc)
		return rc;
	rc = gn_ctx_create(server->fabric, &t->ctx);
	if (rc)
		return rc;
	rc = gn_chan_create(t->ctx, &t->chan);
	if (rc)
		return rc;
	return gn_cq_create(t->ctx, &(struct gn_cq_opts){.depth = CQ_DEPTH, .chan = t->chan},
			    &t->cq);
}

static void destroy_thread(struct rpc_thread *t)
{
	gn_cq_destroy(t->cq);
	gn_chan_destroy(t->chan);
	gn_ctx_destroy(t->ctx);
	if (t->queue)
		gn_queue_destroy(t->queue);
}

static int check_opts(struct gn_rpc_server_opts *o)
{
	if (!o->threads)
		o->threads = 1;
	if (!o->max_slots)
		o->max_slots = GN_RPC_SLOTS_DEFAULT;
	if (!o->max_request)
		o->max_request = GN_RPC_BYTES_DEFAULT;
	if (!o->max_result)
		o->max_result = GN_RPC_BYTES_DEFAULT;
	if (o->threads <= THREADS_MAX && o->max_slots <= GN_RPC_SLOTS_MAX &&
	    o->max_request <= GN_RPC_BYTES_MAX && o->max_result <= GN_RPC_BYTES_MAX)
		return 0;
	gn_log(GN_LOG_ERROR,
	       "rpc: threads %u, max_slots %u, max_request %u, max_result %u: at most %u threads, "
	       "%u slots and %u bytes",
	       o->threads, o->max_slots, o->max_request, o->max_result, THREADS_MAX,
	       GN_RPC_SLOTS_MAX, GN_RPC_BYTES_MAX);
	return -EINVAL;
}

int gn_rpc_server_create(struct gn_fabric *fabric, const char *addr,
			 const struct gn_rpc_server_opts *opts, struct gn_rpc_server **out)
{
	struct gn_rpc_server *server;
	int rc;

	if (!fabric || !addr || !out)
		return -EINVAL;
	server = gn_alloc(sizeof(*server), 0);
	if (!server)
		return -ENOMEM;
	if (opts)
		server->opts = *opts;
	server->fabric = fabric;
	rc = check_opts(&server->opts);
	if (rc)
		goto destroy;
	rc = -ENOMEM;
	server->addr = gn_alloc(strlen(addr) + 1, 0);
	server->threads = gn_alloc(server->opts.threads * sizeof(*server->threads), 0);
	if (!server->addr || !server->threads)
		goto destroy;
	memcpy(server->addr, addr, strlen(addr));
	for (unsigned i = 0; i < server->opts.threads; i++) {
		rc = make_thread(server, &server->threads[i], i);
		if (rc)
			goto destroy;
	}
	*out = server;
	return 0;

destroy:
	gn_rpc_server_destroy(server);
	return rc;
}

static void stop_threads(struct gn_rpc_server *server)
{
	for (unsigned i = 0; i < server->started; i++)
		rpc_thread_ask(&server->threads[i], &server->threads[i].stop_work);
	for (unsigned i = 0; i < server->started; i++)
		gn_thread_join(server->threads[i].thread);
	/* One that ended late may have sent newcomers to one that ended early. */
	for (unsigned i = 0; i < server->started; i++)
		take_work(&server->threads[i]);
	server->started = 0;
}

int gn_rpc_server_start(struct gn_rpc_server *server)
{
	int rc = 0;

	if (!server || server->started)
		return -EINVAL;
	for (; !rc && server->started < server->opts.threads; server->started += !rc) {
		struct rpc_thread *t = &server->threads[server->started];

		t->stop = false;
		rc = gn_thread_start("rpc", thread_main, t, &t->thread);
	}
	/* Nobody comes before there is a thread for everybody. */
	if (!rc)
		rc = gn_listen(server->threads[0].ctx, server->addr, server->threads[0].chan,
			       server->opts.listener_flags, &server->listener);
	if (rc)
		stop_threads(server);
	return rc;
}

void gn_rpc_server_destroy(struct gn_rpc_server *server)
{
	if (!server)
		return;
	stop_threads(server);
	gn_listener_close(server->listener);
	for (unsigned i = 0; server->threads && i < server->opts.threads; i++)
		destroy_thread(&server->threads[i]);
	for (unsigned i = 0; i < GN_RPC_METHODS_MAX / RPC_PAGE_METHODS; i++)
		gn_free(server->methods[i]);
	gn_free(server->threads);
	gn_free(server->addr);
	gn_free(server);
}

int gn_rpc_server_counters(struct gn_rpc_server *server, struct gn_rpc_counters *out)
{
	if (!server || !out)
		return -EINVAL;
	*out = (struct gn_rpc_counters){0};
	for (unsigned i = 0; i < server->opts.threads; i++) {
		const struct rpc_thread *t = &server->threads[i];

		out->calls += __atomic_load_n(&t->count.calls, __ATOMIC_RELAXED);
		out->torn += __atomic_load_n(&t->count.torn, __ATOMIC_RELAXED);
		out->probes += __atomic_load_n(&t->count.probes, __ATOMIC_RELAXED);
		out->clients += __atomic_load_n(&t->n_conns, __ATOMIC_RELAXED);
	}
	return 0;
}
