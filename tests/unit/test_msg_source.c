/* SPDX-License-Identifier: MIT */
/*
 * Requesters and responders in somebody else's event loop: both sleep, with every protocol, no
 * wake-up is lost, and while nothing happens they cost next to nothing.
 */
#include "event_loop.h"
#include "msg_world.h"

#define ROUNDS	    60u
#define ROUNDS_SIM  30u
#define PENDING	    8u
#define IDLE_US	    500000u
#define IDLE_CPU_NS 5000000u /* of a second */
#define LOST_NS	    80000000u
#define LOST_SHARE  30u
#define WOKEN_NS    500000u /* where time is simulated: within this, both sides are woken */
#define PATIENCE    gn_deadline_us(UNIT_PATIENCE_US)

static uint64_t responder_cpu_ns;

static int respond_in_loop(struct world *w, struct gn_msg_responder *r)
{
	uint64_t begin_ns = 0;
	unsigned step = 0;
	struct nap n;

	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_msg_responder_source(r)) == 0);
	while (LOAD(w->wanted)) {
		while (gn_msg_respond(r, GN_NO_WAIT) > 0)
			;
		EXPECT(nap(&n, gn_deadline_us(300000)) >= 0);
		/* The requester is idle in step 1, and not any more in step 2. */
		if (LOAD(w->step) != step) {
			step = LOAD(w->step);
			if (step == 1)
				begin_ns = nap_cpu_ns();
			else
				responder_cpu_ns = nap_cpu_ns() - begin_ns;
		}
	}
	nap_close(&n);
	return 0;
}

static int wave(const struct world *w, struct gn_msg_requester *r, struct gn_msg_conn *conn,
		struct nap *n, uint64_t *state)
{
	const unsigned count = 1 + unit_next(state) % PENDING;
	struct gn_msg_result results[2];
	unsigned taken = 0;
	uint8_t room[64];

	for (unsigned i = 0; i < count; i++) {
		const struct want want = {
			.seed = i, .len = w->protocol == GN_MSG_READ ? 0 : 16, .value_len = 32};

		EXPECT(begin(w, conn, &want, i, room) == 0);
	}
	for (;;) {
		/* Fewer than there are: the rest must be reported as well. */
		const int got = gn_msg_take(r, results, 2, GN_NO_WAIT);

		EXPECT(got >= 0);
		for (int i = 0; i < got; i++)
			EXPECT(results[i].status == GN_MSG_OK && results[i].len == 32);
		taken += (unsigned)got;
		if (taken == count)
			return 0;
		if (got < 2 || unit_next(state) % 2)
			EXPECT(nap(n, PATIENCE) > 0);
	}
}

static int waves(const struct world *w, struct gn_msg_requester *r, struct gn_msg_conn *conn,
		 struct nap *n, uint64_t *state)
{
	const unsigned rounds = w->simulated ? ROUNDS_SIM : ROUNDS;
	uint64_t most_ns = 0;
	unsigned lost = 0;

	for (unsigned i = 0; i < rounds; i++) {
		const uint64_t begin_ns = gn_now_ns();
		uint64_t took_ns;

		EXPECT(wave(w, r, conn, n, state) == 0);
		took_ns = gn_now_ns() - begin_ns;
		most_ns = took_ns > most_ns ? took_ns : most_ns;
		lost += took_ns > LOST_NS;
		if (unit_next(state) % 2)
			gn_sleep_us(unit_next(state) % (i % 10 ? 100 : 3000));
	}
	print_message("# %s, %s: %llu us at most; %u lost\n", w->profile,
		      gn_msg_protocol_str(w->protocol), (unsigned long long)most_ns / 1000, lost);
	EXPECT(lost <= (w->simulated ? 0 : rounds / LOST_SHARE));
	EXPECT(!w->simulated || most_ns < WOKEN_NS);
	return 0;
}

static int idle(struct world *w, struct gn_msg_requester *r, struct nap *n)
{
	const uint64_t end_ns = gn_deadline_us(IDLE_US);
	uint64_t spent_ns = nap_cpu_ns();
	struct gn_msg_result result;

	STORE(w->step, 1);
	while (gn_now_ns() < end_ns) {
		EXPECT(gn_msg_take(r, &result, 1, GN_NO_WAIT) == 0);
		EXPECT(nap(n, end_ns) >= 0);
	}
	spent_ns = nap_cpu_ns() - spent_ns;
	STORE(w->step, 2);
	if (w->simulated)
		return 0;
	print_message("# %s: idle: %llu us of the processor in half a second\n",
		      gn_msg_protocol_str(w->protocol), (unsigned long long)spent_ns / 1000);
	EXPECT(unit_slow() || spent_ns < IDLE_CPU_NS / 2);
	return 0;
}

/* The responder disconnects with and without a request in flight. */
static int peer_goes(struct world *w, struct gn_msg_requester *r, struct gn_msg_conn *conn,
		     struct nap *n)
{
	const struct want want = {.len = w->protocol == GN_MSG_READ ? 0 : 16, .value_len = 32};
	struct gn_msg_result result;
	uint8_t room[64];
	int rc;

	EXPECT(gn_msg_take(r, &result, 1, GN_NO_WAIT) == 0);
	world_down(w);
	while ((rc = begin(w, conn, &want, 0, room)) == 0 && gn_msg_pending(conn) < PENDING)
		EXPECT(gn_msg_flush(r) == 0);
	while (gn_msg_pending(conn)) {
		EXPECT(nap(n, PATIENCE) > 0);
		rc = gn_msg_take(r, &result, 1, GN_NO_WAIT);
		EXPECT(rc >= 0 && (!rc || result.status == GN_MSG_GONE));
	}
	gn_msg_conn_close(conn);
	return 0;
}

/* Another thread goes on with it, and this one again. */
struct turn {
	const struct world *w;
	struct gn_msg_requester *r;
	struct gn_msg_conn *conn;
	struct nap *n;
	uint64_t state;
	int rc;
};

static void turn_thread(void *arg)
{
	struct turn *t = arg;

	t->rc = waves(t->w, t->r, t->conn, t->n, &t->state);
}

static int another_thread(struct turn *t)
{
	struct gn_thread *thread;

	EXPECT(gn_thread_start("another", turn_thread, t, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(t->rc == 0);
	return 0;
}

static int in_loop(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	uint64_t state = gn_random();
	struct gn_msg_requester *r;
	struct gn_msg_conn *conn;
	struct nap n;

	(void)client;
	opts.pending = PENDING;
	EXPECT(gn_msg_requester_create(fabric, &opts, &r) == 0);
	EXPECT(gn_msg_conn_open(r, w->addr, NULL, &conn) == 0);
	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_msg_requester_source(r)) == 0);
	EXPECT(waves(w, r, conn, &n, &state) == 0);
	EXPECT(another_thread(
		       &(struct turn){.w = w, .r = r, .conn = conn, .n = &n, .state = state}) == 0);
	EXPECT(idle(w, r, &n) == 0);
	EXPECT(waves(w, r, conn, &n, &state) == 0);
	EXPECT(peer_goes(w, r, conn, &n) == 0);
	nap_close(&n);
	gn_msg_requester_destroy(r);
	if (!w->simulated) {
		print_message("# %s: an idle responder: %llu us of the processor\n",
			      gn_msg_protocol_str(w->protocol),
			      (unsigned long long)responder_cpu_ns / 1000);
		EXPECT(unit_slow() || responder_cpu_ns < IDLE_CPU_NS);
	}
	return 0;
}

static void test_in_loop(void **state)
{
	struct world w = {.program = in_loop,
			  .clients = 1,
			  .data_bytes = MSG_DATA_BYTES,
			  .respond = respond_in_loop};

	(void)state;
	print_message("# seed of the simulations: 7\n");
	assert_null(gn_msg_requester_source(NULL));
	assert_null(gn_msg_responder_source(NULL));
	for (unsigned p = 0; p < GN_MSG_PROTOCOLS; p++) {
		w.protocol = (enum gn_msg_protocol)p;
		run_where(&w, EVERYWHERE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
