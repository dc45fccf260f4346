/* SPDX-License-Identifier: MIT */
/* The server of the test: executes, records the execution, answers now or later. */
#include <errno.h>
#include <stdio.h>

#include "scribble.h"
#include "sim_rpc.h"

#define ASIDE_MAX 512u
#define QUIET_NS  1000000000ull /* no client has done anything: they have ended */
#define FORGET_NS 3000000000ull /* then the server must know; an accept takes up to 2 s */
#define TICK_US	  100u
#define MEMORY_US 50u
#define SLOW_NS	  20000u
#define ATTEMPTS  200u
#define DOWN_US	  2000u /* between one server and the next, at most */
#define LEASES	  4u

/* A handler's own memory while a result is in it. */
struct lease {
	struct service *service;
	struct gn_mem *mem;
	bool taken;
	size_t offset;
	uint32_t len;
};

/* A deferred request, answered in another order by another thread. */
struct aside {
	struct gn_rpc_request *request;
	uint64_t call;
};

struct service {
	struct world *w;
	struct gn_rpc_server *server;
	struct gn_thread *answerer;
	struct gn_mutex lock;
	struct aside aside[ASIDE_MAX];
	unsigned n_aside;
	struct lease lease[LEASES];
	bool stop;
	uint32_t peers;
};

/* ---- a handler's own memory ---- */

static void make_leases(struct service *s, struct gn_fabric *fabric)
{
	uint32_t most = BYTES_MAX;

	for (unsigned i = 0; i < s->w->plan.n_clients; i++)
		if (s->w->plan.client[i].fars && most < s->w->plan.client[i].large_bytes)
			most = s->w->plan.client[i].large_bytes;
	/* Memory that is not readable works as well: it is copied. */
	for (unsigned i = 0; i < LEASES; i++) {
		s->lease[i].service = s;
		if (gn_mem_alloc(fabric, most + GN_PAGE, i ? GN_REMOTE_READ : 0, &s->lease[i].mem))
			s->lease[i].mem = NULL;
	}
}

static void free_leases(struct service *s)
{
	for (unsigned i = 0; i < LEASES; i++) {
		if (s->lease[i].taken)
			world_fail(s->w, "exported memory is not released");
		gn_mem_free(s->lease[i].mem);
	}
}

static struct lease *take_lease(struct service *s, uint32_t len)
{
	struct lease *lease = NULL;

	gn_mutex_lock(&s->lock);
	for (unsigned i = 0; i < LEASES && !lease; i++)
		if (s->lease[i].mem && !s->lease[i].taken && gn_mem_size(s->lease[i].mem) >= len)
			lease = &s->lease[i];
	if (lease) {
		lease->taken = true;
		lease->len = len;
		lease->offset = gn_random() % (gn_mem_size(lease->mem) - len + 1);
	}
	gn_mutex_unlock(&s->lock);
	return lease;
}

static uint8_t *lease_bytes(const struct lease *lease)
{
	return (uint8_t *)gn_mem_addr(lease->mem) + lease->offset;
}

/* A client that reads it now reads garbage. */
static void release(void *arg)
{
	struct lease *lease = arg;

	if (!lease->taken)
		world_fail(lease->service->w, "exported memory is released twice");
	memset(lease_bytes(lease), 0xee, lease->len);
	lease->taken = false;
}

/* ---- a call, single or in a group ---- */

struct work {
	struct gn_rpc_request *request; /* NULL: */
	struct gn_rpc_group *group;
	unsigned i;
};

static const uint8_t *work_data(const struct work *work, uint32_t *len)
{
	return work->request ? gn_rpc_request_data(work->request, len) :
			       gn_rpc_group_data(work->group, work->i, len);
}

static unsigned work_method(const struct work *work)
{
	return work->request ? gn_rpc_request_method(work->request) :
			       gn_rpc_group_method(work->group, work->i);
}

static void work_end(const struct work *work, unsigned status, const void *data, uint32_t len)
{
	if (work->request)
		gn_rpc_answer(work->request, status, data, len);
	else
		gn_rpc_group_answer(work->group, work->i, status, data, len);
}

/* ---- execution ---- */

/* Checks whose request it is, that it is complete, and that it is executed for the first time. */
static bool take(struct service *s, const struct work *work, uint64_t *number)
{
	struct world *w = s->w;
	uint32_t len, bad;
	const uint8_t *data = work_data(work, &len);
	struct call *call;
	struct request_head head;

	if (len < sizeof(head)) {
		world_fail(w, "a request of %u bytes", len);
		return false;
	}
	memcpy(&head, data, sizeof(head));
	if (head.call >= w->n_calls || head.len != len - sizeof(head)) {
		world_fail(w, "a request that nobody made: call %llu, %u of %u bytes",
			   (unsigned long long)head.call, head.len, len);
		return false;
	}
	call = &w->call[head.call];
	if (len != call->request_len || work_method(work) != call->method)
		world_fail(w, "call %llu: %u bytes for method %u instead of %u for %u",
			   (unsigned long long)head.call, len, work_method(work), call->request_len,
			   call->method);
	if (!pattern_is(data + sizeof(head), head.len, head.call, false, &bad))
		world_fail(w, "call %llu: its request's %u bytes are wrong from %u on",
			   (unsigned long long)head.call, head.len, bad);
	if (call->forbidden)
		world_fail(w, "call %llu is of another time", (unsigned long long)head.call);
	if (call->executed++)
		world_fail(w, "call %llu is executed twice", (unsigned long long)head.call);
	world_log(w, "call %llu came", (unsigned long long)head.call);
	call->received_ns = gn_sim_now_ns(w->run.sim);
	w->sums.executed++;
	*number = head.call;
	return true;
}

static void answer_lent(struct service *s, const struct work *work, uint64_t number,
			struct lease *lease)
{
	const struct call *call = &s->w->call[number];

	pattern_fill(lease_bytes(lease), call->result_len, number, true);
	s->w->sums.exported++;
	if (work->request)
		gn_rpc_answer_mem(work->request, GN_RPC_OK, lease->mem, lease->offset,
				  call->result_len, release, lease);
	else
		gn_rpc_group_answer_mem(work->group, work->i, GN_RPC_OK, lease->mem, lease->offset,
					call->result_len, release, lease);
}

/* NULL: none, or the call of a group is answered already. */
static uint8_t *find_room(const struct work *work, uint32_t len)
{
	uint32_t room;
	uint8_t *to;

	if (work->group)
		return gn_rpc_group_room(work->group, work->i, len);
	to = gn_rpc_request_room(work->request, &room);
	return len <= room ? to : NULL;
}

/*
 * From the slot itself, if a buffer is available, or from memory that is reused after the answer.
 */
static void answer_plain(const struct work *work, const struct call *call, uint64_t number)
{
	const uint32_t len = call->result_len;
	uint8_t *to = find_room(work, len), *mine = NULL;

	if (!to && work->group)
		return;
	if (!to || gn_random() % 2)
		to = mine = gn_alloc(len + 1, 0);
	if (!to) {
		work_end(work, GN_RPC_BUSY, NULL, 0);
		return;
	}
	pattern_fill(to, len, number, true);
	work_end(work, call->method == OWN ? own_status(number) : GN_RPC_OK, to, len);
	if (mine)
		memset(mine, 0xee, len);
	gn_free(mine);
}

static void answer(struct service *s, const struct work *work, uint64_t number)
{
	struct call *call = &s->w->call[number];
	struct lease *lease = NULL;

	if (call->method == SLOW)
		gn_charge(GN_WORK_NS, gn_random() % SLOW_NS);
	if (call->method == LENT)
		lease = take_lease(s, call->result_len);
	call->answered_ns = gn_sim_now_ns(s->w->run.sim);
	if (lease)
		answer_lent(s, work, number, lease);
	else
		answer_plain(work, call, number);
}

static void execute(struct service *s, const struct work *work)
{
	uint64_t number;

	if (take(s, work, &number))
		answer(s, work, number);
	else
		work_end(work, GN_RPC_DENIED, NULL, 0);
}

static void handle(struct gn_rpc_request *request, void *arg)
{
	execute(arg, &(struct work){.request = request});
}

static void handle_group(struct gn_rpc_group *group, void *arg)
{
	struct service *s = arg;
	const unsigned n = gn_rpc_group_size(group);

	s->w->sums.grouped += n > 1 ? n : 0;
	for (unsigned i = 0; i < n; i++)
		execute(s, &(struct work){.group = group, .i = i});
}

/* Its length was checked, whatever its client has written since. */
static void take_scribbled(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	uint32_t len;
	const uint8_t *data = gn_rpc_request_data(request, &len);

	if (len > SCRIBBLE_BYTES)
		world_fail(s->w, "a request of %u bytes in a slot of %u", len, SCRIBBLE_BYTES);
	else
		gn_rpc_answer(request, GN_RPC_OK, data, len);
	s->w->sums.taken++;
}

static void put_aside(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	uint64_t number;
	uint32_t room;
	bool full;

	if (!take(s, &(struct work){.request = request}, &number)) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return;
	}
	if (gn_random() % 4 == 0)
		gn_rpc_request_room(request, &room); /* and does not use it */
	gn_mutex_lock(&s->lock);
	full = s->n_aside == ASIDE_MAX;
	if (!full)
		s->aside[s->n_aside++] = (struct aside){request, number};
	gn_mutex_unlock(&s->lock);
	if (full)
		answer(s, &(struct work){.request = request}, number);
}

/* The bytes of a deferred request must not change, whatever arrives later. */
static void check_kept(struct service *s, struct gn_rpc_request *request, uint64_t number)
{
	const struct call *call = &s->w->call[number];
	uint32_t len, bad;
	const uint8_t *data = gn_rpc_request_data(request, &len);

	if (len != call->request_len ||
	    !pattern_is(data + sizeof(struct request_head),
			len - (uint32_t)sizeof(struct request_head), number, false, &bad))
		world_fail(s->w, "call %llu: its request is another one when it is answered",
			   (unsigned long long)number);
}

static void answer_later(void *arg)
{
	struct service *s = arg;
	const uint32_t most = s->w->plan.defer_us;

	while (!s->stop) {
		struct aside aside = {NULL, 0};

		gn_mutex_lock(&s->lock);
		if (s->n_aside) {
			const unsigned i = (unsigned)(gn_random() % s->n_aside);

			aside = s->aside[i];
			s->aside[i] = s->aside[--s->n_aside];
		}
		gn_mutex_unlock(&s->lock);
		if (aside.request) {
			check_kept(s, aside.request, aside.call);
			answer(s, &(struct work){.request = aside.request}, aside.call);
		}
		gn_sleep_us(s->n_aside ? gn_random() % most / (s->n_aside + 1) : 5);
	}
}

static void peer(void *arg, uint64_t client, bool came)
{
	struct service *s = arg;

	(void)client;
	if (!came && !s->peers)
		world_fail(s->w, "a client left that never came");
	s->peers += came ? 1 : -1u;
}

/* ---- a server process ---- */

static int begin(struct service *s, struct gn_fabric *fabric)
{
	struct gn_rpc_server_opts opts = s->w->plan.server;
	int rc;

	opts.size = sizeof(opts);
	opts.peer = peer;
	opts.peer_arg = s;
	rc = gn_rpc_server_create(fabric, ADDR, &opts, &s->server);
	for (unsigned method = NOW; !rc && method < NOBODY; method++)
		if (s->w->plan.groups && method != LATER)
			rc = gn_rpc_server_handle_group(s->server, method, handle_group, s,
							method == OWN ? 0 : GN_RPC_ORDERED);
		else
			rc = gn_rpc_server_handle(s->server, method,
						  method == LATER ? put_aside : handle, s);
	if (!rc)
		rc = gn_rpc_server_handle(s->server, SCRIBBLED, take_scribbled, s);
	if (!rc)
		rc = gn_thread_start("answerer", answer_later, s, &s->answerer);
	if (!rc)
		rc = gn_rpc_server_start(s->server);
	return rc;
}

static uint64_t clients_now(const struct service *s)
{
	struct gn_rpc_counters count = {.size = sizeof(count)};

	gn_rpc_server_counters(s->server, &count);
	return count.clients;
}

static bool all_over(const struct seeds *run)
{
	const struct world *w = (const struct world *)run;
	return seeds_over(&w->run, w->plan.n_clients + w->plan.raw + w->plan.scribblers, QUIET_NS);
}

/* Time passes; a server without threads polls meanwhile. */
static void pass(struct service *s, uint32_t us)
{
	const uint64_t until_ns = gn_deadline_us(us);
	int rc = 0;

	if (!(s->w->plan.server.flags & GN_RPC_POLLED)) {
		gn_sleep_us(us);
		return;
	}
	while (gn_now_ns() < until_ns && rc >= 0) {
		rc = gn_rpc_server_poll(s->server);
		if (!rc && gn_rpc_server_wait(s->server, until_ns))
			break;
	}
	if (rc < 0)
		world_fail(s->w, "the server cannot be polled: %s", gn_strerror(rc));
}

/* Until it must end, or all clients have ended: then it must know this. */
static void serve(struct service *s, uint32_t stop_us)
{
	struct world *w = s->w;
	uint64_t until;

	while (!all_over(&w->run) && (!stop_us || gn_sim_now_ns(w->run.sim) < stop_us * 1000ull))
		pass(s, TICK_US);
	if (!all_over(&w->run))
		return;
	until = gn_sim_now_ns(w->run.sim) + FORGET_NS;
	while (clients_now(s) && gn_sim_now_ns(w->run.sim) < until)
		pass(s, 1000);
	if (clients_now(s))
		world_fail(w, "the server still has %llu clients, %llu ms after the last has gone",
			   (unsigned long long)clients_now(s), FORGET_NS / 1000000);
}

static void drain(struct service *s)
{
	struct world *w = s->w;
	const uint64_t until_ns = gn_deadline_us(w->plan.drain_us);
	const int rc = gn_rpc_server_drain(s->server, until_ns);

	if (w->plan.strict && gn_now_ns() > until_ns + PROMPT_NS)
		world_fail(w, "draining takes %llu ns longer than it may",
			   (unsigned long long)(gn_now_ns() - until_ns));
	world_log(w, "drained: %s", gn_strerror(rc));
	w->drained = !rc;
	w->sums.drained += !rc;
	w->sums.undrained += rc == -ETIMEDOUT;
	if (rc && rc != -ETIMEDOUT)
		world_fail(w, "the server cannot be drained: %s", gn_strerror(rc));
}

static void end(struct service *s)
{
	const uint64_t begin_ns = gn_now_ns();
	struct gn_rpc_counters count = {.size = sizeof(count)};

	if (!gn_rpc_server_counters(s->server, &count)) {
		s->w->sums.parks += count.parks;
		s->w->sums.torn += count.torn;
	}
	gn_rpc_server_destroy(s->server);
	if (s->w->plan.strict && gn_now_ns() > begin_ns + 2 * PROMPT_NS)
		world_fail(s->w, "a server needs %llu ns to end",
			   (unsigned long long)(gn_now_ns() - begin_ns));
	s->stop = true;
	if (s->answerer)
		gn_thread_join(s->answerer);
	if (s->peers)
		world_fail(s->w, "%u clients came and never left", s->peers);
	free_leases(s);
	gn_mutex_fini(&s->lock);
}

static int serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	struct service s = {.w = w};
	int rc;

	gn_mutex_init(&s.lock);
	make_leases(&s, fabric);
	rc = begin(&s, fabric);
	if (!rc) {
		serve(&s, stop_us);
		if (stop_us && w->plan.drain_us && !all_over(&w->run))
			drain(&s);
		world_log(w, "the server ends");
	} else if (rc != -ENOMEM || !w->plan.cluster.no_memory) {
		world_fail(w, "no server: %s", gn_strerror(rc));
	}
	end(&s);
	return rc;
}

int server_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const struct seeds_server server = {
		.serve_once = serve_once,
		.all_over = all_over,
		.stop_us = w->plan.stop_us,
		.attempts = ATTEMPTS,
		.pause_us = MEMORY_US,
		.max_down_us = DOWN_US,
		.no_memory = w->plan.cluster.no_memory,
	};

	(void)argc;
	(void)argv;
	return seeds_serve(&w->run, env, &server);
}
