/* SPDX-License-Identifier: MIT */
/*
 * A client of the test: starts calls, waits, idles, cancels, closes, reconnects; and checks the
 * outcome of each call and the memory that it passed.
 */
#include <errno.h>
#include <stdio.h>

#include "sim_rpc.h"

#define ATTEMPTS 60u
#define TRIES	 3u	       /* of reconnecting */
#define UNTIL_NS 60000000ull   /* no new calls from here on */
/* a call without a deadline completes when the server's end is noticed */
#define DRAIN_NS 2000000000ull
#define PAUSE_NS 5000000ull    /* for calls to complete before the client is idle */
/*
 * How late a call may complete after its deadline: a client that waits polls often, so this is the
 * time of the program itself between polls; and of faults that stop or slow its node.
 */
#define LATE_NS		1000000ull
#define LATE_STALLED_NS 100000000ull
#define UNTOUCHED	0x5a
#define BUSY_NS		3000u
#define GUARD		64u
#define AT_ONCE		4u /* calls of gn_rpc_call_all() */

struct inflight {
	struct gn_rpc_op op;
	struct session *session;
	uint32_t call;
	uint32_t room;	  /* bytes of the result that are checked */
	uint64_t idle_ns; /* the session's when it began */
	bool busy, canceling;
	bool ended; /* then its result must not be written */
	uint8_t *request, *result;
};

struct session {
	struct world *w;
	const struct plan_client *plan;
	struct gn_rpc_client *client;
	struct gn_rpc_limits limits;
	struct inflight *inflight; /* plan->window, and one for calls that wait */
	uint8_t *memory;
	unsigned *left, busy, life, in_done;
	uint64_t idle_ns; /* without a poll */
	bool present;	  /* reported by the callback */
	bool hold;	  /* do not start new calls from done */
	bool lost, breaking, quit, closing;
};

/* ---- start of a call ---- */

static uint32_t draw_len(uint32_t most)
{
	return (uint32_t)(gn_random() % 4 ? gn_random() % (most + 1) : most);
}

static uint64_t draw_deadline(const struct session *s)
{
	if (gn_random() % 8 == 0)
		return GN_FOREVER;
	if (gn_random() % 4 == 0)
		return gn_deadline_us(50000);
	return gn_deadline_us(1 + gn_random() % s->plan->max_timeout_us);
}

static uint32_t draw_far(const struct session *s, uint32_t slot)
{
	return slot + 1 + (uint32_t)(gn_random() % s->plan->large_bytes);
}

/* All requests of a batch must fit one slot. */
static uint32_t most(const struct session *s, uint32_t slot)
{
	return s->plan->opts.batch.entries > 1 && gn_random() % 8 ? slot / 8 : slot;
}

static bool is_far(const struct session *s)
{
	return gn_random() % 1000 < s->plan->fars;
}

static uint32_t new_call(struct session *s)
{
	const uint32_t head = (uint32_t)sizeof(struct request_head);
	const struct gn_rpc_limits *l = &s->limits;
	uint32_t number;
	/* First of all: another thread may run while this one reads the clock. */
	struct call *call = world_call(s->w, s->life, &number);

	if (!call)
		return 0;
	call->method = (unsigned)(gn_random() % 8 ? NOW + gn_random() % 4 : NOW + gn_random() % 6);
	if (s->plan->steady)
		call->method = gn_random() % 64 ? NOW : LATER;
	call->large_request = is_far(s);
	call->large_result = is_far(s);
	call->request_len = call->large_request ? draw_far(s, l->max_request) :
						  head + draw_len(most(s, l->max_request - head));
	call->result_len = call->large_result ? draw_far(s, l->max_result) :
					      draw_len(most(s, l->max_result));
	call->result_room = gn_random() % 16 ? call->result_len :
			    gn_random() % 2  ? draw_len(call->result_len) :
					       BYTES_MAX + s->plan->large_bytes;
	call->deadline_ns = draw_deadline(s);
	return number;
}

/* After a call has completed, its memory must not be touched. */
static void check_untouched(struct session *s, const struct inflight *inflight, uint32_t from)
{
	for (uint32_t i = from; i < inflight->room; i++)
		if (inflight->result[i] != UNTOUCHED) {
			world_fail(s->w, "call %u: byte %u of its result is written%s", inflight->call,
				   i, inflight->ended ? " after its end" : "");
			break;
		}
}

static void done(struct gn_rpc_op *op);

static void make_request(struct session *s, struct inflight *inflight)
{
	const uint32_t number = new_call(s);
	const struct call *call = &s->w->call[number];
	const struct request_head head = {.call = number,
					  .len = call->request_len - (uint32_t)sizeof(head)};

	if (inflight->ended)
		check_untouched(s, inflight, 0);
	inflight->call = number;
	inflight->room = call->result_room + GUARD;
	inflight->idle_ns = s->idle_ns;
	inflight->ended = inflight->canceling = false;
	memcpy(inflight->request, &head, sizeof(head));
	pattern_fill(inflight->request + sizeof(head), head.len, number, false);
	memset(inflight->result, UNTOUCHED, inflight->room);
	inflight->op = (struct gn_rpc_op){
		.method = call->method,
		.request = inflight->request,
		.request_len = call->request_len,
		.result = inflight->result,
		.result_room = call->result_room,
		.deadline_ns = call->deadline_ns,
		.done = done,
		.arg = inflight,
	};
	inflight->busy = true;
	s->busy++;
	s->w->run.active_ns = gn_sim_now_ns(s->w->run.sim);
}

/* As if it had never been. */
static void forget(struct session *s, struct inflight *inflight)
{
	inflight->busy = false;
	s->busy--;
	s->w->call[inflight->call].life = UINT32_MAX;
	if (inflight->call == s->w->n_calls - 1)
		s->w->n_calls--;
}

/* Was it started? If not, it is forgotten. */
static bool has_begun(struct session *s, struct inflight *inflight, uint32_t number, int rc)
{
	const struct call *call = &s->w->call[number];
	const bool big = call->request_len > s->limits.max_request &&
			 call->request_len > s->limits.max_large;

	world_log(s->w, "call %u begins: %s", number, gn_strerror(rc));
	if (big != (rc == -EMSGSIZE))
		world_fail(s->w, "call %u of %u bytes begins: %s", number, call->request_len,
			   gn_strerror(rc));
	if (!rc) {
		if (s->closing)
			world_fail(s->w, "call %u begins while its client closes", number);
		*s->left -= *s->left > 0;
		return true;
	}
	s->lost |= rc == -ENOTCONN;
	s->w->sums.emsgsize += rc == -EMSGSIZE;
	if (rc != -ENOTCONN && rc != -EAGAIN && rc != -EMSGSIZE &&
	    !(rc == -ENOMEM && s->w->plan.cluster.no_memory))
		world_fail(s->w, "a call cannot begin: %s", gn_strerror(rc));
	forget(s, inflight);
	return false;
}

static bool may_begin(const struct session *s, const struct inflight *inflight)
{
	return !inflight->busy && *s->left && s->w->n_calls < s->w->calls_room;
}

static void begin(struct session *s, struct inflight *inflight)
{
	uint32_t number;

	if (!may_begin(s, inflight))
		return;
	make_request(s, inflight);
	number = inflight->call; /* another call may have its record if it completed at once */
	has_begun(s, inflight, number, gn_rpc_submit(s->client, &inflight->op));
}

/* ---- completion ---- */

/* How long its request may wait for others. */
static uint32_t wait_us(const struct gn_rpc_batch *batch)
{
	if (!batch->limit_us && batch->entries <= 1)
		return 0;
	return batch->wait_us ? batch->wait_us : 5000;
}

static void check_late(struct session *s, const struct inflight *inflight, const char *how)
{
	const uint64_t deadline_ns = s->w->call[inflight->call].deadline_ns, now_ns = gn_now_ns();
	const uint64_t late_ns = s->idle_ns - inflight->idle_ns +
				 (s->w->plan.cluster.stalls ? LATE_STALLED_NS : LATE_NS);

	if (deadline_ns < GN_FOREVER && now_ns > deadline_ns + late_ns)
		world_fail(s->w, "call %u ends %llu ns after its deadline: %s", inflight->call,
			   (unsigned long long)(now_ns - deadline_ns), how);
}

static void check_done(struct session *s, const struct inflight *inflight, const struct gn_rpc_op *op)
{
	const struct call *call = &s->w->call[inflight->call];
	const bool waits = inflight == &s->inflight[s->plan->window];
	const struct check check = {
		.w = s->w,
		.limits = &s->limits,
		.number = inflight->call,
		.max_large = s->plan->opts.max_large ? s->plan->opts.max_large : GN_RPC_LARGE_MAX,
		.wait_us = wait_us(&s->plan->opts.batch),
		.idle_ns = s->idle_ns - inflight->idle_ns,
		.canceled = inflight->canceling || s->closing,
		.broken = s->breaking || (waits && s->plan->opts.flags & GN_RPC_RECONNECT),
	};

	check_late(s, inflight, gn_rpc_status_str(op->status));
	check_ended(&check, op);
	check_untouched(s, inflight, op->status == GN_RPC_OK ? op->result_len : call->result_room);
}

static void done(struct gn_rpc_op *op)
{
	struct inflight *inflight = op->arg;
	struct session *s = inflight->session;
	struct call *call = &s->w->call[inflight->call];
	const unsigned status = op->status;

	if (call->ended++ || !inflight->busy)
		world_fail(s->w, "call %u ends twice", inflight->call);
	world_log(s->w, "call %u ends: %s", inflight->call, gn_rpc_status_str(status));
	call->status = status;
	check_done(s, inflight, op);
	s->w->sums.statuses[status < GN_RPC_FAILED ? status : GN_RPC_FAILED]++;
	memset(inflight->result, UNTOUCHED, inflight->room);
	inflight->busy = false;
	inflight->ended = true;
	s->busy--;
	/* Some clients leave a server that drains. */
	s->quit |= status == GN_RPC_BUSY && s->w->plan.drain_us && gn_random() % 8 == 0;
	s->in_done++;
	if (s->plan->steady)
		gn_charge(GN_WORK_NS, BUSY_NS); /* so that another call has always completed */
	if ((s->plan->steady || gn_random() % 2) && !s->hold)
		begin(s, inflight);
	s->in_done--;
}

/* ---- steps of a session ---- */

static void sleep_us(struct session *s, uint64_t us)
{
	const uint64_t from_ns = gn_sim_now_ns(s->w->run.sim);

	gn_sleep_us(us);
	s->idle_ns += gn_sim_now_ns(s->w->run.sim) - from_ns;
}

/* Idles up to the time after which it may be parked, and often exactly that. */
static void think(struct session *s)
{
	const uint64_t most = s->plan->think_us + 1;

	sleep_us(s, gn_random() % 2 ? most - 1 + gn_random() % 4 : gn_random() % most);
}

static void wait_a_little(struct session *s, uint64_t us)
{
	const int rc = gn_rpc_wait(s->client, gn_deadline_us(us));

	if (rc < 0 && rc != -ETIMEDOUT)
		world_fail(s->w, "waiting: %s", gn_strerror(rc));
}

/* Nothing is outstanding for a while, and then something is. */
static void pause_then_call(struct session *s)
{
	const uint64_t until_ns = gn_sim_now_ns(s->w->run.sim) + PAUSE_NS;

	s->hold = true;
	while (s->busy && gn_sim_now_ns(s->w->run.sim) < until_ns)
		wait_a_little(s, 100);
	s->hold = false;
	think(s);
	begin(s, &s->inflight[0]);
	wait_a_little(s, gn_random() % 20);
}

static void call_and_wait(struct session *s)
{
	struct inflight *inflight = &s->inflight[s->plan->window];
	struct gn_rpc_op *op = &inflight->op;
	struct call *call;
	int rc;

	if (!may_begin(s, inflight))
		return;
	make_request(s, inflight);
	call = &s->w->call[inflight->call];
	if (s->plan->opts.flags & GN_RPC_RECONNECT && call->deadline_ns == GN_FOREVER)
		call->deadline_ns = op->deadline_ns = gn_deadline_us(50000);
	rc = gn_rpc_call(s->client, op->method, op->request, op->request_len, op->result,
			 op->result_room, &op->result_len, op->deadline_ns, &op->status);
	check_late(s, inflight, gn_strerror(rc));
	if (has_begun(s, inflight, inflight->call, rc))
		done(op);
}

static void call_several(struct session *s)
{
	struct gn_rpc_op ops[AT_ONCE];
	struct inflight *inflights[AT_ONCE];
	unsigned n = 0;
	int rc;

	for (unsigned i = 0; i < s->plan->window && n<AT_ONCE && * s->left> n; i++)
		if (may_begin(s, &s->inflight[i])) {
			make_request(s, &s->inflight[i]);
			ops[n] = s->inflight[i].op;
			/* A call may wait for another to complete before it starts. */
			ops[n].deadline_ns = ops[0].deadline_ns;
			s->w->call[s->inflight[i].call].deadline_ns = ops[0].deadline_ns;
			inflights[n++] = &s->inflight[i];
		}
	s->hold = true;
	rc = gn_rpc_call_all(s->client, ops, n);
	s->hold = false;
	for (unsigned i = 0; i < n; i++) {
		if (s->w->call[inflights[i]->call].ended) {
			has_begun(s, inflights[i], inflights[i]->call, 0);
		} else {
			if (rc >= 0 || ops[i].status != GN_RPC_CANCELED)
				world_fail(s->w, "call %u has not ended with the others: %s",
					   inflights[i]->call, gn_strerror(rc));
			for (; i < n; i++)
				forget(s, inflights[i]);
		}
	}
	s->lost |= rc == -ENOTCONN;
}

static void cancel_one(struct session *s)
{
	struct inflight *inflight = &s->inflight[gn_random() % s->plan->window];
	const uint32_t call = inflight->call;
	int rc;

	if (!inflight->busy)
		return;
	inflight->canceling = true;
	rc = gn_rpc_cancel(&inflight->op);
	if (rc || s->w->call[call].status != GN_RPC_CANCELED)
		world_fail(s->w, "call %u cannot be canceled: %s", call, gn_strerror(rc));
}

static void check_refusal(struct world *w, int rc)
{
	const bool memory = rc == -ENOMEM && w->plan.cluster.no_memory;
	const bool refused = rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -ECONNRESET;

	if (!memory && !refused)
		world_fail(w, "no connection: %s", gn_strerror(rc));
}

/* It takes no longer than allowed, and without faults hardly any time. */
static void check_connected(struct world *w, const struct plan_client *plan, uint64_t begin_ns,
			    int rc)
{
	const uint64_t took_ns = gn_now_ns() - begin_ns;
	const uint64_t bound_ns = plan->opts.timeout_us * 1000 + LATE_STALLED_NS;

	world_log(w, "connected: %s", gn_strerror(rc));
	if (took_ns > bound_ns || (w->plan.strict && took_ns > PROMPT_NS))
		world_fail(w, "connecting takes %llu ns", (unsigned long long)took_ns);
	if (rc)
		check_refusal(w, rc);
	w->run.active_ns = gn_sim_now_ns(w->run.sim);
}

static void reconnect(struct session *s)
{
	int rc = -ENOTCONN;

	s->breaking = true;
	for (unsigned i = 0; i < TRIES && rc; i++) {
		const uint64_t begin_ns = gn_now_ns();

		rc = gn_rpc_reconnect(s->client);
		check_connected(s->w, s->plan, begin_ns, rc);
		if (s->busy)
			world_fail(s->w, "%u calls have not ended with their connection", s->busy);
		if (rc)
			gn_sleep_us(gn_random() % 1000);
	}
	s->breaking = s->lost = false;
	s->quit |= rc < 0;
	s->limits.size = sizeof(s->limits);
	gn_rpc_client_limits(s->client, &s->limits);
}

static void begin_all(struct session *s)
{
	for (unsigned i = 0; i < s->plan->window; i++)
		begin(s, &s->inflight[i]);
}

/* One of many actions. */
static void do_something(struct session *s, unsigned dice)
{
	if (dice < 300)
		gn_rpc_poll(s->client);
	else if (dice < 400)
		wait_a_little(s, gn_random() % 50);
	else if (dice < 430)
		call_and_wait(s);
	else if (dice < 440)
		call_several(s);
	else if (dice < 460)
		gn_rpc_flush(s->client);
	else if (dice < 480)
		begin_all(s);
	else
		begin(s, &s->inflight[gn_random() % s->plan->window]);
}

static void steady_step(struct session *s)
{
	begin_all(s);
	if (gn_random() % 8)
		wait_a_little(s, 100);
	else
		gn_rpc_poll(s->client);
	s->quit |= s->lost;
	if (!s->busy)
		gn_sleep_us(1);
}

static void step(struct session *s)
{
	const struct plan_client *plan = s->plan;
	const unsigned to[] = {plan->closes, plan->reconnects, plan->cancels, plan->sleeps,
			       plan->pauses};

	switch (seeds_draw_action(to, 5)) {
	case 0:
		s->quit = true;
		break;
	case 1:
		reconnect(s);
		break;
	case 2:
		cancel_one(s);
		break;
	case 3:
		think(s);
		break;
	case 4:
		pause_then_call(s);
		break;
	default:
		do_something(s, (unsigned)(gn_random() % 1000));
	}
	if (s->lost && gn_random() % 2)
		reconnect(s);
	s->quit |= s->lost;
	if (!s->busy)
		gn_sleep_us(1);
}

/* All outstanding calls complete. */
static void drain(struct session *s)
{
	const uint64_t until_ns = gn_sim_now_ns(s->w->run.sim) + DRAIN_NS;

	s->hold = true;
	while (s->busy && gn_sim_now_ns(s->w->run.sim) < until_ns) {
		s->w->run.active_ns = gn_sim_now_ns(s->w->run.sim);
		gn_rpc_wait(s->client, gn_deadline_us(10000));
	}
	for (unsigned i = 0; i <= s->plan->window && s->busy; i++)
		if (s->inflight[i].busy)
			world_fail(s->w, "call %u has not ended", s->inflight[i].call);
}

static bool make_lanes(struct session *s)
{
	const unsigned n = s->plan->window + 1;
	const size_t each = (BYTES_MAX + s->plan->large_bytes + GUARD) / 8 * 8 + 8;

	s->inflight = gn_alloc(n * sizeof(*s->inflight), 0);
	s->memory = gn_alloc(n * each * 2, 0);
	if (!s->inflight || !s->memory)
		return false;
	for (unsigned i = 0; i < n; i++) {
		s->inflight[i].session = s;
		s->inflight[i].request = s->memory + i * each * 2;
		s->inflight[i].result = s->inflight[i].request + each;
	}
	return true;
}

static void add_counters(struct session *s)
{
	struct sums *sums = &s->w->sums;
	struct gn_rpc_counters count = {.size = sizeof(count)};

	gn_rpc_client_counters(s->client, &count);
	sums->torn += count.torn;
	sums->twice_read += count.second_reads;
	sums->batched += count.calls > count.batches ? count.calls - count.batches : 0;
	sums->switches += count.switches;
	sums->reconnects += count.reconnects;
	sums->large += count.large;
	sums->wakes += count.wakes;
}

static void session(struct session *s)
{
	s->limits.size = sizeof(s->limits);
	gn_rpc_client_limits(s->client, &s->limits);
	if (make_lanes(s)) {
		while (!s->quit && *s->left && gn_sim_now_ns(s->w->run.sim) < UNTIL_NS)
			s->plan->steady ? steady_step(s) : step(s);
		if (!s->quit)
			drain(s);
	}
	add_counters(s);
	s->closing = true;
	gn_rpc_client_close(s->client);
	if (s->busy)
		world_fail(s->w, "%u calls have not ended with their client", s->busy);
	for (unsigned i = 0; s->inflight && s->memory && i <= s->plan->window; i++)
		check_untouched(s, &s->inflight[i], 0);
	gn_free(s->memory);
	gn_free(s->inflight);
}

/* ---- a client process ---- */

static void peer(void *arg, uint64_t server, bool came)
{
	struct session *s = arg;

	(void)server;
	if (s->present == came)
		world_fail(s->w, "the server %s twice", came ? "came" : "went");
	s->present = came;
}

static bool try_once(struct world *w, const struct plan_client *plan, struct gn_fabric *fabric,
		     unsigned *left, unsigned life)
{
	struct session s = {.w = w, .plan = plan, .left = left, .life = life};
	struct gn_rpc_client_opts opts = plan->opts;
	const uint64_t begin_ns = gn_now_ns();
	int rc;

	opts.size = sizeof(opts);
	opts.peer = peer;
	opts.peer_arg = &s;
	rc = gn_rpc_client_open(fabric, ADDR, &opts, &s.client);
	check_connected(w, plan, begin_ns, rc);
	if (!rc)
		session(&s);
	return !rc;
}

int client_main(struct gn_env *env, int argc, char **argv)
{
	const struct client_arg *arg = env->arg;
	struct world *w = arg->w;
	const struct plan_client *plan = &w->plan.client[arg->index];
	const unsigned life = w->n_lives++;
	unsigned left = plan->calls;
	struct gn_fabric *fabric;
	int rc;

	(void)argc;
	(void)argv;
	rc = seeds_fabric_open(env, ATTEMPTS, 10, &fabric);
	for (unsigned i = 0; !rc && i < ATTEMPTS && left; i++) {
		if (gn_sim_now_ns(w->run.sim) > UNTIL_NS)
			break;
		if (!try_once(w, plan, fabric, &left, life))
			gn_sleep_us(100 + i * 50);
	}
	if (rc && !w->plan.cluster.no_memory)
		world_fail(w, "no fabric: %s", gn_strerror(rc));
	else if (!rc)
		seeds_fabric_close(&w->run, fabric, "a client");
	w->life[life].over = true;
	w->run.clients_over++;
	return 0;
}
