/* SPDX-License-Identifier: MIT */
/*
 * Batches: when they are sent (N entries, L bytes, T microseconds, or their client waits), what
 * they contain, results that need several messages, and batch sizes chosen by the library.
 */
#include "rpc_world.h"

#define N 16u

static int count_batches(struct gn_rpc_client *client, uint64_t *out)
{
	struct gn_rpc_counters count = {.size = sizeof(count)};

	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	*out = count.batches;
	return 0;
}

static int polls_until(struct gn_rpc_client *client, const struct async_call *f, unsigned n)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);

	for (unsigned i = 0; i < n; i++)
		while (!f[i].ended) {
			EXPECT(gn_rpc_poll(client) >= 0);
			EXPECT(gn_now_ns() < deadline_ns);
			gn_sleep_us(2);
		}
	return 0;
}

static int connect_batch(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
			 struct gn_rpc_batch batch, struct gn_rpc_client **out)
{
	struct gn_rpc_client_opts opts = in_mode(mode);

	opts.batch = batch;
	return gn_rpc_client_open(fabric, w->addr, &opts, out);
}

/* ---- when a batch is sent ---- */

static int by_entries(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client *client;
	struct async_call f[3 * N];
	uint64_t before, after;

	EXPECT(connect_batch(w, fabric, mode, (struct gn_rpc_batch){N, 0, 1000000, 0, 0},
			     &client) == 0);
	EXPECT(count_batches(client, &before) == 0);
	for (unsigned i = 0; i < 3 * N; i++) {
		flight_make(&f[i], ECHO, i * 4, i, 0);
		EXPECT(gn_rpc_submit(client, &f[i].op) == 0);
		EXPECT(count_batches(client, &after) == 0);
		EXPECT(after - before == (i + 1) / N);
	}
	EXPECT(polls_until(client, f, 3 * N) == 0);
	for (unsigned i = 0; i < 3 * N; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	/* One request is not enough, until the client waits. */
	EXPECT(submit_echo(client, &f[0], ECHO, 0) == 0);
	EXPECT(gn_rpc_poll(client) == 0);
	EXPECT(count_batches(client, &before) == 0 && before == after);
	EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(async_call_check(&f[0]) == 0);
	/* … or flushes. */
	EXPECT(submit_echo(client, &f[0], ECHO, 0) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(count_batches(client, &before) == 0 && before == after + 2);
	EXPECT(polls_until(client, f, 1) == 0);
	EXPECT(async_call_check(&f[0]) == 0);
	/* gn_rpc_call() waits as well, and sends the open batch. */
	EXPECT(submit_echo(client, &f[0], ECHO, 0) == 0);
	EXPECT(call_echo(client, ECHO, 10, 10) == 0);
	EXPECT(wait_all(client, f, 1) == 0);
	EXPECT(count_batches(client, &before) == 0 && before == after + 3);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* L bytes: four entries of 100 bytes exceed 400. The size of a slot is a limit as well. */
static int by_bytes(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client *client;
	struct async_call f[N];
	uint64_t batches;

	EXPECT(connect_batch(w, fabric, mode, (struct gn_rpc_batch){1000, 400, 1000000, 0, 0},
			     &client) == 0);
	for (unsigned i = 0; i < N; i++) {
		flight_make(&f[i], ECHO, 100, i, 0);
		EXPECT(gn_rpc_submit(client, &f[i].op) == 0);
	}
	EXPECT(count_batches(client, &batches) == 0 && batches == N / 4);
	EXPECT(polls_until(client, f, N) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	EXPECT(connect_batch(w, fabric, mode, (struct gn_rpc_batch){1000, 0, 1000000, 0, 0},
			     &client) == 0);
	for (unsigned i = 0; i < N; i++) { /* eight entries of 500 bytes are just under 4096 */
		flight_make(&f[i], ECHO, 500, i, 0);
		EXPECT(gn_rpc_submit(client, &f[i].op) == 0);
	}
	EXPECT(count_batches(client, &batches) == 0 && batches == 1);
	EXPECT(wait_all(client, f, N) == 0);
	for (unsigned i = 0; i < N; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/*
 * T: a poll sends a batch of that age. The server has parked the client by then, in any mode, and
 * must be woken: the call takes T and not much longer.
 */
static int by_time(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client *client;
	uint64_t slowest_ns = 0, fastest_ns = UINT64_MAX;
	struct async_call f;

	EXPECT(connect_batch(w, fabric, mode, (struct gn_rpc_batch){N, 0, 5000, 0, 0}, &client) ==
	       0);
	for (unsigned i = 0; i < 8; i++) {
		const uint64_t begin_ns = gn_now_ns();
		uint64_t ns;

		flight_make(&f, ECHO, 100, i, 0);
		EXPECT(gn_rpc_submit(client, &f.op) == 0);
		EXPECT(polls_until(client, &f, 1) == 0);
		EXPECT(async_call_check(&f) == 0);
		ns = gn_now_ns() - begin_ns;
		slowest_ns = ns > slowest_ns ? ns : slowest_ns;
		fastest_ns = ns < fastest_ns ? ns : fastest_ns;
	}
	EXPECT(fastest_ns >= 5000000);
	EXPECT(w->simulated ? slowest_ns < 10000000 : fastest_ns < 50000000);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* A deadline also counts if an earlier, canceled call of the batch had the same. */
static int same_deadline(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client *client;
	struct async_call early, canceled, late;
	uint64_t deadline_ns;

	EXPECT(connect_batch(w, fabric, mode, (struct gn_rpc_batch){N, 0, 1000000, 0, 0},
			     &client) == 0);
	shut(&w->service, true);
	deadline_ns = gn_deadline_us(30000);
	EXPECT(submit_echo(client, &early, LATER, gn_deadline_us(1000)) == 0);
	EXPECT(submit_echo(client, &canceled, LATER, deadline_ns) == 0);
	EXPECT(gn_rpc_cancel(&canceled.op) == 0);
	EXPECT(polls_until(client, &early, 1) == 0 && early.op.status == GN_RPC_TIMEOUT);
	EXPECT(submit_echo(client, &late, LATER, deadline_ns) == 0);
	EXPECT(polls_until(client, &late, 1) == 0 && late.op.status == GN_RPC_TIMEOUT);
	shut(&w->service, false);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int send_conditions(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	EXPECT(by_entries(w, fabric, mode) == 0);
	EXPECT(by_bytes(w, fabric, mode) == 0);
	EXPECT(by_time(w, fabric, mode) == 0);
	EXPECT(same_deadline(w, fabric, mode) == 0);
	return 0;
}

/* ---- contents ---- */

/* Methods that answer at once, later from another thread, or do not exist, in one slot. */
static int mixed_with(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		      uint32_t entries)
{
	static const unsigned methods[] = {ECHO, LATER, NEVER, ROOM_LATER, ECHO, LATER};
	struct gn_rpc_client *client;
	struct async_call *f = gn_alloc(8 * N * sizeof(*f), 0);

	EXPECT(f);
	EXPECT(connect_batch(w, fabric, mode, (struct gn_rpc_batch){entries, 0, 0, 0, 0},
			     &client) == 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 8 * N; i++) {
			const unsigned method = methods[(i + round) % 6];
			int rc;

			flight_make(&f[i], method, (i * 37 + round) % 600, i + round, 0);
			while ((rc = gn_rpc_submit(client, &f[i].op)) == -EAGAIN)
				EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
			EXPECT(rc == 0);
		}
		EXPECT(wait_all(client, f, 8 * N) == 0);
		for (unsigned i = 0; i < 8 * N; i++) {
			if (f[i].op.method != NEVER)
				EXPECT(async_call_check(&f[i]) == 0);
			else
				EXPECT(f[i].ended == 1 && f[i].op.status == GN_RPC_NO_METHOD);
		}
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(f);
	return 0;
}

/* A result buffer that is not used: another thread answers later. */
static int unused_room(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < 40; i++)
		EXPECT(call_echo(client, i % 3 ? ROOM_LATER : ECHO, 100, i) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int mixed(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	EXPECT(unused_room(w, fabric, mode) == 0);
	EXPECT(mixed_with(w, fabric, mode, 1) == 0);
	EXPECT(mixed_with(w, fabric, mode, 5) == 0);
	EXPECT(mixed_with(w, fabric, mode, 64) == 0);
	return 0;
}

/* Results many times larger than the requests: the slots cannot hold all of them at once. */
static int split_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	enum { CALLS = 100, EACH = 1000 };
	struct gn_rpc_client_opts opts = in_mode(mode);
	static struct gn_rpc_op ops[CALLS];
	static uint8_t results[CALLS][EACH];
	struct two want[CALLS];
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};

	opts.slots = 2;
	opts.batch.entries = CALLS;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		want[i] = (struct two){EACH - i, i};
		ops[i] = (struct gn_rpc_op){.method = BLOB,
					    .request = &want[i],
					    .request_len = sizeof(want[i]),
					    .result = results[i],
					    .result_room = EACH};
	}
	EXPECT(gn_rpc_call_all(client, ops, CALLS) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		EXPECT(ops[i].status == GN_RPC_OK && ops[i].result_len == EACH - i);
		EXPECT(is_filled(results[i], EACH - i, i));
	}
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(count.batches == 1 && count.results >= CALLS * (EACH - CALLS) / 4096);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- gn_rpc_call_all() ---- */

static int all_of_them(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_op ops[500];
	uint32_t results[500], requests[500];
	struct gn_rpc_client *client;

	opts.slots = 4;
	opts.batch.entries = 8;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < 500; i++) {
		requests[i] = i * i;
		ops[i] = (struct gn_rpc_op){.method = i % 7 ? ECHO : LATER,
					    .request = &requests[i],
					    .request_len = 4,
					    .result = &results[i],
					    .result_room = 4};
	}
	EXPECT(gn_rpc_call_all(client, ops, 0) == 0);
	EXPECT(gn_rpc_call_all(client, NULL, 1) == -EINVAL);
	EXPECT(gn_rpc_call_all(client, ops, 500) == 0); /* far more than its window */
	for (unsigned i = 0; i < 500; i++)
		EXPECT(ops[i].status == GN_RPC_OK && results[i] == requests[i]);
	/* A call that cannot start ends it; calls before it were executed. */
	ops[20].method = GN_RPC_BUILTIN_END;
	memset(results, 0, sizeof(results));
	EXPECT(gn_rpc_call_all(client, ops, 40) == -EINVAL);
	for (unsigned i = 0; i < 20; i++)
		EXPECT(ops[i].status == GN_RPC_OK && results[i] == requests[i]);
	for (unsigned i = 20; i < 40; i++)
		EXPECT(ops[i].status == GN_RPC_CANCELED && results[i] == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- sizes chosen by the library ---- */

/* Keeps the window full as long as the batch size is on the wrong side of want. */
static int push(struct gn_rpc_client *client, unsigned method, uint32_t us, bool up, uint32_t want,
		uint32_t *batch)
{
	struct gn_rpc_choice choice = {.size = sizeof(choice)};
	struct gn_rpc_op ops[64];

	for (unsigned round = 0; round < 4000; round++) {
		for (unsigned i = 0; i < 64; i++)
			ops[i] = (struct gn_rpc_op){
				.method = method, .request = &us, .request_len = sizeof(us)};
		EXPECT(gn_rpc_call_all(client, ops, 64) == 0);
		EXPECT(gn_rpc_client_choice(client, method, &choice) == 0);
		*batch = choice.batch;
		if (up ? choice.batch >= want : choice.batch <= want)
			return 0;
	}
	print_error("# the size of a batch is %u and not %u\n", choice.batch, want);
	return __LINE__;
}

static int auto_batch(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(w->arg ? GN_RPC_REPLY : GN_RPC_FETCH);
	struct gn_rpc_client *client;
	struct gn_rpc_choice choice = {.size = sizeof(choice)};
	uint32_t batch;

	opts.batch.entries = 16;
	opts.batch.limit_us = w->simulated ? 1000 : 100000;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(gn_rpc_client_choice(client, SLOW, &choice) == 0 && choice.batch == 1);
	EXPECT(push(client, SLOW, 0, true, 16, &batch) == 0);
	EXPECT(batch == 16);
	/* Calls of 100 us: only some complete within 1 ms. Real ones would take too long. */
	if (w->simulated)
		EXPECT(push(client, SLOW, 100, false, 1, &batch) == 0);
	if (w->simulated)
		EXPECT(push(client, SLOW, 0, true, 16, &batch) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static void test_auto_batch(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->program = auto_batch;
	for (w->arg = 0; w->arg < 2; w->arg++) {
		run_shm(w);
		simulate(w, "cx3", SIM_CAPS, 1, 1);
	}
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST_MODES(test_send_conditions, send_conditions, NULL, 2),
		RPC_TEST_MODES(test_mixed, mixed, NULL, 2),
		RPC_TEST_MODES(test_split, split_in, NULL, 1),
		RPC_TEST(test_call_all, all_of_them, NULL, 2),
		cmocka_unit_test(test_auto_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
