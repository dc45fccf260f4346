/* SPDX-License-Identifier: MIT */
/*
 * Deferred answers beside fast calls: a lock wait and heartbeats on one client. A deferred request
 * blocks no other call, keeps its bytes, and costs the server nothing after it is answered.
 */
#include "rpc_world.h"

#define SLOTS_MOST 16u

static const struct gn_rpc_server_opts roomy = {.size = sizeof(roomy), .max_slots = SLOTS_MOST};

static int connect_with(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
			uint32_t slots, uint32_t entries, struct gn_rpc_client **out)
{
	struct gn_rpc_client_opts opts = in_mode(mode);

	opts.slots = slots;
	opts.batch.entries = entries;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, out) == 0);
	return 0;
}

/* Fast calls, more than there are slots: each succeeds with its own bytes. */
static int heartbeats(struct gn_rpc_client *client, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		EXPECT(call_echo(client, ECHO, i * 37 % 3000, i) == 0);
	return 0;
}

/*
 * The client is polled meanwhile: on a busy machine the server may have parked it, and only a poll
 * detects this.
 */
static int wait_aside(struct world *w, struct gn_rpc_client *client, unsigned n)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (aside(&w->service) != n) {
		EXPECT(gn_now_ns() < until_ns);
		EXPECT(gn_rpc_poll(client) >= 0);
		gn_sleep_us(50);
	}
	return 0;
}

/* Requests wait for their answers, and enough indexes are left for the others. */
static int defer_and_beat(struct world *w, struct gn_rpc_client *client, unsigned waiting,
			   uint32_t beats)
{
	struct async_call f[SLOTS_MOST];

	shut(&w->service, true);
	for (unsigned i = 0; i < waiting; i++) {
		EXPECT(submit_echo(client, &f[i], i % 2 ? ROOM_LATER : LATER, 0) == 0);
		EXPECT(gn_rpc_flush(client) == 0);
		EXPECT(heartbeats(client, 3) == 0);
	}
	EXPECT(wait_aside(w, client, waiting) == 0);
	EXPECT(heartbeats(client, beats) == 0);
	shut(&w->service, false);
	EXPECT(wait_all(client, f, waiting) == 0);
	for (unsigned i = 0; i < waiting; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	return 0;
}

/* A canceled or late call keeps its index, and nothing else. */
static int cancel_and_beat(struct world *w, struct gn_rpc_client *client, uint32_t beats)
{
	struct async_call gone, late;

	shut(&w->service, true);
	EXPECT(submit_echo(client, &gone, LATER, 0) == 0);
	EXPECT(submit_echo(client, &late, LATER, gn_deadline_us(200)) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(gn_rpc_cancel(&gone.op) == 0);
	EXPECT(wait_all(client, &late, 1) == 0);
	EXPECT(late.op.status == GN_RPC_TIMEOUT);
	EXPECT(heartbeats(client, beats) == 0);
	shut(&w->service, false);
	EXPECT(heartbeats(client, beats) == 0);
	EXPECT(gone.ended == 1 && late.ended == 1);
	return 0;
}

/* A large request: its bytes are in the server's memory already. */
static int large_and_beat(struct world *w, struct gn_rpc_client *client, uint32_t beats)
{
	const uint32_t len = 3 * MAX;
	uint8_t *request = gn_alloc(2 * len, 0), *result = request + len;
	struct gn_rpc_op op = {.method = LATER,
			       .request = request,
			       .request_len = len,
			       .result = result,
			       .result_room = len};
	int rc;

	EXPECT(request);
	fill(request, len, 99);
	shut(&w->service, true);
	EXPECT(gn_rpc_submit(client, &op) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	rc = heartbeats(client, beats);
	shut(&w->service, false);
	while (!rc && op.client)
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	EXPECT(rc ||
	       (op.status == GN_RPC_OK && op.result_len == len && is_filled(result, len, 99)));
	gn_free(request);
	return rc;
}

static int beside_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		     uint32_t slots, uint32_t entries)
{
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	uint64_t bytes;

	EXPECT(connect_with(w, fabric, mode, slots, entries, &client) == 0);
	EXPECT(heartbeats(client, 2) == 0);
	gn_rpc_server_counters(w->service.server, &count);
	bytes = count.bytes;
	EXPECT(defer_and_beat(w, client, 1, 3 * slots) == 0);
	EXPECT(defer_and_beat(w, client, slots - 1, 3 * slots) == 0);
	EXPECT(cancel_and_beat(w, client, 2 * slots) == 0);
	EXPECT(large_and_beat(w, client, 2 * slots) == 0);
	EXPECT(wait_aside(w, client, 0) == 0);
	EXPECT(heartbeats(client, 2) == 0);
	gn_rpc_server_counters(w->service.server, &count);
	EXPECT(count.bytes == bytes); /* nothing is kept for them any more */
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int beside(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		EXPECT(beside_in(w, fabric, mode, 4, 1) == 0);
		EXPECT(beside_in(w, fabric, mode, 16, 1) == 0);
		EXPECT(beside_in(w, fabric, mode, 4, 4) == 0);
	}
	return 0;
}

/*
 * Messages without any answered request: the client learns that their slots are free although no
 * result says so.
 */
static int all_deferred_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client *client;
	struct async_call f[12];

	EXPECT(connect_with(w, fabric, mode, 4, 4, &client) == 0);
	shut(&w->service, true);
	for (unsigned i = 0; i < 12; i++) {
		const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
		int rc = submit_echo(client, &f[i], LATER, 0);

		while (rc == -EAGAIN && gn_now_ns() < until_ns) {
			EXPECT(gn_rpc_poll(client) == 0);
			gn_yield();
			rc = gn_rpc_submit(client, &f[i].op);
		}
		EXPECT(rc == 0);
		EXPECT(gn_rpc_flush(client) == 0);
	}
	EXPECT(wait_aside(w, client, 12) == 0);
	shut(&w->service, false);
	EXPECT(wait_all(client, f, 12) == 0);
	for (unsigned i = 0; i < 12; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int all_wait(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(all_deferred_in(w, fabric, mode) == 0);
	return 0;
}

static void test_all_deferred(void **state)
{
	(void)state;
	if (THREADS_WATCHED)
		skip(); /* correct because of a fence, which the thread sanitizer does not know */
	run_everywhere(all_wait, &roomy, 1);
}

/* ---- waiting for a slot ---- */

#define OPEN_US 20000u

struct opener {
	struct service *service;
	uint64_t opened_ns;
};

static void open_later(void *arg)
{
	struct opener *o = arg;

	gn_sleep_us(OPEN_US);
	o->opened_ns = gn_now_ns();
	shut(o->service, false);
}

/* All calls of the window are outstanding and canceled. */
static int fill_and_cancel(struct world *w, struct gn_rpc_client *client, struct async_call *f,
			   unsigned n)
{
	EXPECT(wait_aside(w, client, 0) == 0);
	shut(&w->service, true);
	for (unsigned i = 0; i < n; i++) {
		int rc = submit_echo(client, &f[i], LATER, 0);

		while (rc == -EAGAIN) { /* results of earlier calls are not all seen yet */
			EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
			rc = gn_rpc_submit(client, &f[i].op);
		}
		EXPECT(rc == 0);
	}
	EXPECT(gn_rpc_flush(client) == 0);
	for (unsigned i = 0; i < n; i++)
		EXPECT(gn_rpc_cancel(&f[i].op) == 0);
	return 0;
}

static int call_waits(struct world *w, struct gn_rpc_client *client)
{
	struct opener o = {.service = &w->service};
	struct gn_thread *thread;
	struct async_call f[4];
	uint64_t from_ns;

	EXPECT(fill_and_cancel(w, client, f, 4) == 0);
	from_ns = gn_now_ns();
	EXPECT(gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, gn_deadline_us(3000), NULL) ==
	       -EAGAIN);
	EXPECT(gn_now_ns() - from_ns >= 3000000);
	EXPECT(gn_thread_start("opener", open_later, &o, &thread) == 0);
	EXPECT(call_echo(client, ECHO, 100, 5) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(gn_now_ns() >= o.opened_ns);
	return 0;
}

/* More calls than fit the window, part of which slow calls occupy. */
static int call_all_waits(struct world *w, struct gn_rpc_client *client)
{
	struct opener o = {.service = &w->service};
	struct gn_thread *thread;
	struct async_call f[4], more[9];
	struct gn_rpc_op ops[9];

	EXPECT(fill_and_cancel(w, client, f, 4) == 0);
	for (unsigned i = 0; i < 9; i++) {
		flight_make(&more[i], ECHO, 100, i, gn_deadline_us(UNIT_PATIENCE_US));
		ops[i] = more[i].op;
	}
	EXPECT(gn_thread_start("opener", open_later, &o, &thread) == 0);
	EXPECT(gn_rpc_call_all(client, ops, 9) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	for (unsigned i = 0; i < 9; i++) {
		more[i].op = ops[i];
		EXPECT(async_call_check(&more[i]) == 0);
	}
	return 0;
}

/* After -EAGAIN a wait returns when a slot is free, even if no call completes. */
static int wait_waits(struct world *w, struct gn_rpc_client *client, bool live)
{
	struct opener o = {.service = &w->service};
	struct gn_thread *thread;
	struct async_call f[4], next;
	unsigned turns = 0;
	int rc;

	EXPECT(fill_and_cancel(w, client, f, live ? 3 : 4) == 0);
	if (live) {
		do { /* the fourth slot may hold a result that was not seen yet */
			EXPECT(gn_rpc_poll(client) >= 0);
			rc = submit_echo(client, &f[3], LATER, 0);
		} while (rc == -EAGAIN);
		EXPECT(rc == 0);
	}
	EXPECT(gn_rpc_wait(client, gn_deadline_us(live ? 100 : UNIT_PATIENCE_US)) ==
	       (live ? -ETIMEDOUT : 0)); /* no submission has failed yet */
	EXPECT(submit_echo(client, &next, ECHO, 0) == -EAGAIN);
	EXPECT(gn_rpc_wait(client, gn_deadline_us(1000)) == -ETIMEDOUT);
	EXPECT(gn_thread_start("opener", open_later, &o, &thread) == 0);
	do {
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
		rc = gn_rpc_submit(client, &next.op);
		turns++;
	} while (rc == -EAGAIN);
	EXPECT(rc == 0 && turns <= 4);
	EXPECT(wait_all(client, &next, 1) == 0 && async_call_check(&next) == 0);
	if (live)
		EXPECT(wait_all(client, &f[3], 1) == 0 && async_call_check(&f[3]) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	return 0;
}

static int slots_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client *client;

	EXPECT(connect_with(w, fabric, mode, 4, 1, &client) == 0);
	EXPECT(call_waits(w, client) == 0);
	EXPECT(call_all_waits(w, client) == 0);
	EXPECT(wait_waits(w, client, false) == 0);
	EXPECT(wait_waits(w, client, true) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int slots(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(slots_in(w, fabric, mode) == 0);
	return 0;
}

/* ---- limits ---- */

#define COPY_BYTES 300u

/* A server with memory for the copy of one request, but not of two. */
static int no_memory(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_rpc_op more = {.method = ECHO}, refused = more;
	struct async_call f[2];
	uint64_t fixed;

	EXPECT(connect_with(w, fabric, GN_RPC_FETCH, 4, 1, &client) == 0);
	EXPECT(heartbeats(client, 1) == 0);
	gn_rpc_server_counters(w->service.server, &count);
	fixed = count.bytes;
	if (!w->opts.max_client_bytes) { /* now the cost of a client is known */
		w->opts.max_client_bytes = fixed + 3 * COPY_BYTES;
		EXPECT(gn_rpc_client_close(client) == 0);
		EXPECT(world_restart(w) == 0);
		return no_memory(w, fabric);
	}
	shut(&w->service, true);
	for (unsigned i = 0; i < 2; i++) {
		flight_make(&f[i], LATER, COPY_BYTES, i, 0);
		EXPECT(gn_rpc_submit(client, &f[i].op) == 0);
	}
	EXPECT(wait_aside(w, client, 2) == 0);
	EXPECT(heartbeats(client, 2) == 0);
	gn_rpc_server_counters(w->service.server, &count);
	EXPECT(count.bytes == fixed + COPY_BYTES && !count.dropped);
	/* The slot of the request that was not copied is the next one. */
	EXPECT(gn_rpc_submit(client, &more) == 0);
	EXPECT(gn_rpc_submit(client, &refused) == -EAGAIN);
	shut(&w->service, false);
	EXPECT(wait_all(client, f, 2) == 0);
	EXPECT(async_call_check(&f[0]) == 0 && async_call_check(&f[1]) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static void test_no_memory(void **state)
{
	struct gn_rpc_server_opts opts = roomy;

	(void)state;
	opts.max_slots = 4;
	run_everywhere(no_memory, &opts, 1);
}

/* ---- no memory for a method's state ---- */

#define CALL_NS 10000000u

static int nothing_known_server(struct gn_env *env, int argc, char **argv)
{
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	EXPECT(gn_rpc_server_create(fabric, SIM_ADDR, NULL, &server) == 0);
	EXPECT(gn_rpc_server_handle(server, 1, echo, NULL) == 0);
	EXPECT(gn_rpc_server_handle(server, 2, echo, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	gn_sleep_us(2 * CALL_NS / 1000);
	gn_rpc_server_destroy(server);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static int nothing_known_client(struct gn_env *env, int argc, char **argv)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	unsigned status = GN_RPC_FAILED;
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(1000);
	EXPECT(gn_rpc_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	EXPECT(call_echo(client, 1, 8, 1) == 0);
	gn_sleep_us(CALL_NS / 1000);
	EXPECT(gn_rpc_call(client, 2, NULL, 0, NULL, 0, NULL, gn_deadline_us(1000000), &status) ==
	       0);
	EXPECT(status == GN_RPC_OK || status == GN_RPC_BUSY);
	EXPECT(call_echo(client, 2, 8, 2) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

/* The first call of a method, with one or more failing allocations: it completes. */
static void test_no_method_memory(void **state)
{
	const char *faults[] = {"alloc@10ms:n0", "alloc@10ms:n0 alloc@10ms:n0:#2",
				"alloc@10ms:n0 alloc@10ms:n0:#2 alloc@10ms:n0:#3"};

	(void)state;
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const struct gn_sim_opts opts = {.size = sizeof(opts),
						 .profile = "ideal",
						 .seed = unit_seed(),
						 .nodes = 2,
						 .limit_ns = 60000000000u};
		struct gn_sim *sim;
		int status;

		assert_int_equal(gn_sim_create(&opts, &sim), 0);
		assert_int_equal(gn_sim_inject(sim, faults[i]), 0);
		assert_int_equal(gn_sim_spawn(sim, 0, nothing_known_server, 0, NULL, NULL, NULL),
				 0);
		assert_int_equal(gn_sim_spawn(sim, 1, nothing_known_client, 0, NULL, NULL, NULL),
				 0);
		assert_int_equal(gn_sim_run(sim), 0);
		for (unsigned p = 0; p < 2; p++) {
			assert_int_equal(gn_sim_status(sim, p, &status), 0);
			assert_int_equal(status, 0);
		}
		gn_sim_destroy(sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST(test_other_calls, beside, &roomy, 1), cmocka_unit_test(test_all_deferred),
		RPC_TEST(test_slots, slots, &roomy, 1),	       cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_method_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
