/* SPDX-License-Identifier: MIT */
/*
 * A client of the test: begins calls, waits, cancels, closes, connects again; and knows of each
 * call what its end may be.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rpc.h"

#define ATTEMPTS 12u
#define UNTIL_NS 60000000ull   /* no new calls from here on */
#define DRAIN_NS 2000000000ull /* a call without a deadline ends when the server's end is noticed */
/*
 * How late a call may end after its deadline: a poll is never far while its client waits, so this
 * is what the program itself does between polls; and what stops or slows its node.
 */
#define LATE_NS		1000000ull
#define LATE_STALLED_NS 100000000ull
#define EARLY_NS	5000000ull /* an answer so long before the deadline must arrive */
#define UNTOUCHED	0x5a
#define GUARD		64u

struct lane {
	struct gn_rpc_op op;
	struct session *session;
	uint32_t call;
	bool busy, ended_badly; /* then its result is nobody's to write */
	uint8_t *request, *result;
};

struct session {
	struct world *w;
	const struct plan_client *plan;
	struct gn_rpc_client *client;
	struct gn_rpc_limits limits;
	struct lane *lane; /* plan->window, and one for calls that wait */
	uint8_t *memory;
	unsigned *left, busy, life, in_done;
	bool closing;
};

/* ---- a call's beginning and end ---- */

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

static uint32_t new_call(struct session *s)
{
	struct world *w = s->w;
	struct call *call;
	uint32_t number;
	const uint32_t most = s->limits.max_request - (uint32_t)sizeof(struct ask);

	if (w->n_calls == w->calls_room) {
		world_fail(w, "more calls than were planned");
		return 0;
	}
	/* First of all: another may run while this one reads the clock. */
	number = w->n_calls++;
	call = &w->call[number];
	*call = (struct call){.life = s->life};
	call->method = (unsigned)(gn_random() % 8 ? NOW + gn_random() % 3 : NOW + gn_random() % 6);
	call->request_len = (uint32_t)sizeof(struct ask) + draw_len(most);
	call->result_len = call->method == TOO_MUCH ? s->limits.max_result + 1 :
						      draw_len(s->limits.max_result);
	call->result_room = gn_random() % 16 ? s->limits.max_result : draw_len(call->result_len);
	call->deadline_ns = draw_deadline(s);
	return number;
}

static unsigned right_status(const struct call *call)
{
	if (call->method == NOBODY)
		return GN_RPC_NO_METHOD;
	if (call->method == TOO_MUCH || call->result_len > call->result_room)
		return GN_RPC_TOO_BIG;
	return call->method == OWN ? OWN_STATUS : GN_RPC_OK;
}

/* What is looked at of a lane's result: more than any of this session may have. */
static uint32_t room(const struct session *s)
{
	return s->limits.max_result + GUARD;
}

/* The server's status and bytes: those of this call, all of them, and no more. */
static void check_result(struct session *s, const struct lane *lane, const struct call *call)
{
	const unsigned status = lane->op.status, right = right_status(call);
	uint32_t bad, len = lane->op.result_len;

	if (status != right)
		world_fail(s->w, "call %u ends with %u instead of %u", lane->call, status, right);
	else if (call->method != NOBODY && call->executed != 1)
		world_fail(s->w, "call %u ends with %u and was executed %u times", lane->call,
			   status, call->executed);
	if (status != GN_RPC_OK && status != OWN_STATUS)
		return;
	if (len != call->result_len)
		world_fail(s->w, "call %u: %u bytes instead of %u", lane->call, len,
			   call->result_len);
	else if (!pattern_is(lane->result, len, lane->call, true, &bad))
		world_fail(s->w, "call %u: byte %u of its result's %u is wrong", lane->call, bad,
			   len);
	for (uint32_t i = len; i < room(s); i++)
		if (lane->result[i] != UNTOUCHED) {
			world_fail(s->w, "call %u: byte %u beyond its result is written",
				   lane->call, i);
			break;
		}
}

static void check_status(struct session *s, const struct lane *lane, const struct call *call)
{
	const struct plan *plan = &s->w->plan;
	const uint64_t now_ns = gn_now_ns(), world_ns = gn_sim_now_ns(s->w->sim);

	switch (lane->op.status) {
	case GN_RPC_TIMEOUT:
		if (now_ns < call->deadline_ns)
			world_fail(s->w, "call %u ends %llu ns before its deadline", lane->call,
				   (unsigned long long)(call->deadline_ns - now_ns));
		if (plan->strict && call->answered_ns && call->answered_ns + EARLY_NS < world_ns)
			world_fail(s->w, "call %u times out %llu ns after its answer", lane->call,
				   (unsigned long long)(world_ns - call->answered_ns));
		break;
	case GN_RPC_CANCELED:
		break; /* the canceling side knows whether it did */
	case GN_RPC_PEER_GONE:
		if (plan->strict && !plan->stop_us)
			world_fail(s->w, "call %u: the peer is not gone", lane->call);
		break;
	default:
		check_result(s, lane, call);
	}
}

static void begin(struct session *s, struct lane *lane);

static void done(struct gn_rpc_op *op)
{
	struct lane *lane = op->arg;
	struct session *s = lane->session;
	struct call *call = &s->w->call[lane->call];
	const uint64_t late = s->w->plan.stalls ? LATE_STALLED_NS : LATE_NS;
	const unsigned status = op->status;

	if (call->ended++ || !lane->busy)
		world_fail(s->w, "call %u ends twice", lane->call);
	world_say(s->w, "call %u ends: %s", lane->call, gn_rpc_status_str(status));
	if (call->deadline_ns < GN_FOREVER && gn_now_ns() > call->deadline_ns + late)
		world_fail(s->w, "call %u ends %llu ns after its deadline: %s", lane->call,
			   (unsigned long long)(gn_now_ns() - call->deadline_ns),
			   gn_rpc_status_str(status));
	call->status = status;
	check_status(s, lane, call);
	s->w->statuses[status < GN_RPC_FAILED ? status : GN_RPC_FAILED]++;
	lane->busy = false;
	lane->ended_badly = true;
	memset(lane->result, UNTOUCHED, room(s));
	s->busy--;
	s->in_done++;
	if (gn_random() % 2)
		begin(s, lane);
	s->in_done--;
}

/* After a call has ended nobody has touched what it lent. */
static void check_untouched(struct session *s, const struct lane *lane)
{
	for (uint32_t i = 0; i < room(s) && lane->ended_badly; i++)
		if (lane->result[i] != UNTOUCHED) {
			world_fail(s->w, "call %u has ended, and byte %u of its result is written",
				   lane->call, i);
			break;
		}
}

static void make_request(struct session *s, struct lane *lane)
{
	const uint32_t number = new_call(s);
	const struct call *call = &s->w->call[number];
	const struct ask ask = {.call = number, .len = call->request_len - (uint32_t)sizeof(ask)};

	check_untouched(s, lane);
	lane->call = number;
	lane->ended_badly = false;
	memcpy(lane->request, &ask, sizeof(ask));
	pattern_fill(lane->request + sizeof(ask), ask.len, number, false);
	memset(lane->result, UNTOUCHED, room(s));
	lane->op = (struct gn_rpc_op){
		.method = call->method,
		.request = lane->request,
		.request_len = call->request_len,
		.result = lane->result,
		.result_room = call->result_room,
		.deadline_ns = call->deadline_ns,
		.done = done,
		.arg = lane,
	};
	s->w->active_ns = gn_sim_now_ns(s->w->sim);
}

/* It has not begun: as if it had never been. */
static void forget(struct session *s, const struct lane *lane)
{
	struct world *w = s->w;

	w->call[lane->call].life = UINT32_MAX;
	if (lane->call == w->n_calls - 1)
		w->n_calls--;
}

static void begin(struct session *s, struct lane *lane)
{
	int rc;

	if (lane->busy || !*s->left || s->w->n_calls == s->w->calls_room)
		return;
	make_request(s, lane);
	lane->busy = true;
	s->busy++;
	rc = gn_rpc_submit(s->client, &lane->op);
	world_say(s->w, "call %u begins: %s", lane->call, gn_strerror(rc));
	if (!rc) {
		if (s->closing)
			world_fail(s->w, "call %u begins while its client closes", lane->call);
		--*s->left;
		return;
	}
	lane->busy = false;
	s->busy--;
	forget(s, lane);
	if (rc == -ENOTCONN)
		s->closing = true;
	else if (rc != -EAGAIN)
		world_fail(s->w, "a call cannot begin: %s", gn_strerror(rc));
	else if (!s->in_done)
		gn_sleep_us(1);
}

/* ---- what a session does ---- */

static void call_and_wait(struct session *s)
{
	struct lane *lane = &s->lane[s->plan->window];
	struct gn_rpc_op *op = &lane->op;
	int rc;

	if (lane->busy || s->w->n_calls == s->w->calls_room)
		return;
	make_request(s, lane);
	rc = gn_rpc_call(s->client, op->method, op->request, op->request_len, op->result,
			 op->result_room, &op->result_len, op->deadline_ns, &op->status);
	if (rc) {
		forget(s, lane);
		s->closing = rc == -ENOTCONN;
		if (rc != -EAGAIN && rc != -ENOTCONN)
			world_fail(s->w, "a call cannot begin: %s", gn_strerror(rc));
		return;
	}
	--*s->left;
	lane->busy = true;
	s->busy++;
	done(op);
}

static void cancel_one(struct session *s)
{
	struct lane *lane = &s->lane[gn_random() % s->plan->window];
	const uint32_t call = lane->call;
	const bool busy = lane->busy;
	int rc;

	if (!busy)
		return;
	rc = gn_rpc_cancel(&lane->op);
	if (rc || s->w->call[call].status != GN_RPC_CANCELED)
		world_fail(s->w, "call %u cannot be canceled: %s", call, gn_strerror(rc));
}

static void step(struct session *s)
{
	const unsigned dice = (unsigned)(gn_random() % 1000);
	const struct plan_client *plan = s->plan;
	int rc = 0;

	if (dice < plan->closes)
		s->closing = true;
	else if (dice < plan->closes + plan->cancels)
		cancel_one(s);
	else if (dice < plan->closes + plan->cancels + plan->sleeps)
		gn_sleep_us(gn_random() % 100);
	else if (dice < 400)
		rc = gn_rpc_poll(s->client);
	else if (dice < 500)
		rc = gn_rpc_wait(s->client, gn_deadline_us(gn_random() % 50));
	else if (dice < 530)
		call_and_wait(s);
	else
		begin(s, &s->lane[gn_random() % plan->window]);
	if (rc < 0 && rc != -ETIMEDOUT)
		world_fail(s->w, "waiting: %s", gn_strerror(rc));
	if (!s->busy)
		gn_sleep_us(1);
}

/* All that is under way ends by itself. */
static void drain(struct session *s)
{
	const uint64_t until_ns = gn_sim_now_ns(s->w->sim) + DRAIN_NS;

	while (s->busy && gn_sim_now_ns(s->w->sim) < until_ns) {
		s->w->active_ns = gn_sim_now_ns(s->w->sim);
		gn_rpc_wait(s->client, gn_deadline_us(10000));
	}
	for (unsigned i = 0; i <= s->plan->window && s->busy; i++)
		if (s->lane[i].busy)
			world_fail(s->w, "call %u has not ended", s->lane[i].call);
}

static bool make_lanes(struct session *s)
{
	const unsigned n = s->plan->window + 1;

	s->lane = gn_alloc(n * sizeof(*s->lane), 0);
	s->memory = gn_alloc((size_t)n * (BYTES_MAX + ROOM_MAX), 0);
	if (!s->lane || !s->memory)
		return false;
	for (unsigned i = 0; i < n; i++) {
		s->lane[i].session = s;
		s->lane[i].request = s->memory + (size_t)i * (BYTES_MAX + ROOM_MAX);
		s->lane[i].result = s->lane[i].request + BYTES_MAX;
	}
	return true;
}

static void session(struct session *s)
{
	struct gn_rpc_counters count;

	gn_rpc_limits(s->client, &s->limits);
	if (make_lanes(s)) {
		while (!s->closing && *s->left && gn_sim_now_ns(s->w->sim) < UNTIL_NS)
			step(s);
		if (!s->closing)
			drain(s);
	}
	gn_rpc_client_counters(s->client, &count);
	s->w->torn += count.torn;
	s->w->twice_read += count.second_reads;
	s->closing = true;
	gn_rpc_close(s->client);
	if (s->busy)
		world_fail(s->w, "%u calls have not ended with their client", s->busy);
	for (unsigned i = 0; s->lane && s->memory && i <= s->plan->window; i++)
		check_untouched(s, &s->lane[i]);
	gn_free(s->memory);
	gn_free(s->lane);
}

/* ---- a client's life ---- */

static void check_refusal(struct world *w, int rc)
{
	const bool memory = rc == -ENOMEM && w->plan.no_memory;
	const bool refused = rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -ECONNRESET;

	if (!memory && !refused)
		world_fail(w, "no connection: %s", gn_strerror(rc));
}

static bool try_once(struct world *w, const struct plan_client *plan, struct gn_fabric *fabric,
		     unsigned *left, unsigned life)
{
	struct session s = {.w = w, .plan = plan, .left = left, .life = life};
	const uint64_t bound_ns = plan->opts.timeout_us * 1000 + LATE_STALLED_NS;
	const uint64_t begin_ns = gn_now_ns();
	int rc = gn_rpc_connect(fabric, ADDR, &plan->opts, &s.client);

	world_say(w, "connected: %s", gn_strerror(rc));
	if (gn_now_ns() > begin_ns + bound_ns)
		world_fail(w, "connecting takes %llu ns",
			   (unsigned long long)(gn_now_ns() - begin_ns));
	w->active_ns = gn_sim_now_ns(w->sim);
	if (rc)
		check_refusal(w, rc);
	else
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
	int rc = -ENOMEM;

	(void)argc;
	(void)argv;
	for (unsigned i = 0; rc && i < ATTEMPTS; i++) {
		rc = gn_fabric_open(env->fabric, &fabric);
		if (rc)
			gn_sleep_us(10);
	}
	for (unsigned i = 0; !rc && i < ATTEMPTS && left; i++) {
		if (gn_sim_now_ns(w->sim) > UNTIL_NS)
			break;
		if (!try_once(w, plan, fabric, &left, life))
			gn_sleep_us(100);
	}
	if (rc && !w->plan.no_memory)
		world_fail(w, "no fabric: %s", gn_strerror(rc));
	else if (!rc && (rc = gn_fabric_close(fabric)))
		world_fail(w, "a client's fabric cannot be closed: %s", gn_strerror(rc));
	w->life[life].over = true;
	w->clients_over++;
	return 0;
}
