/* SPDX-License-Identifier: MIT */
/*
 * The harness that measures a load in blocks: what is counted, and what is not. Loads on a simulated
 * cluster: what is measured of them goes together.
 */
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"
#include "procs.h"
#include "rpc.h"

#define GROUP_OPS 4u
#define CHOSEN	  5u

/* Operations end until the harness says so; as many are under way then as the test wants. */
static int fake_run(struct load_client *c)
{
	while (!load_stops(c))
		load_done(c, 1, 0);
	return 0;
}

/* A connection that has chosen batches of CHOSEN. */
static void fake_count(const struct load_client *c, struct load_sums *out)
{
	*out = (struct load_sums){.ops = c->ended, .switches = 3, .batches = CHOSEN, .batched = 1};
}

static uint64_t fake_group_ops(const struct load_client *c)
{
	(void)c;
	return GROUP_OPS;
}

static const struct load_kind fake = {
	.name = "fake", .run = fake_run, .count = fake_count, .group_ops = fake_group_ops};

struct world {
	struct load_run *run;
	struct load_proc proc;
	struct load_client client;
};

static int setup(void **state)
{
	const struct load_opts opts = {.provider = "shm"};
	struct world *w = calloc(1, sizeof(*w));

	w->run = load_run_create(sizeof(*w->run), &opts);
	assert_non_null(w->run);
	w->proc = (struct load_proc){.run = w->run, .kind = &fake};
	load_client_init(&w->client, &w->proc, 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	free(w->run);
	free(w);
	return 0;
}

static void run_block(struct world *w, struct block *block)
{
	*block = (struct block){.ops = 0};
	gn_hist_init(&block->group_ns);
	assert_int_equal(load_block(&w->client, 1000, block), 0);
}

/* The block may be gone, or another load's, when operations end that were under way. */
static void after_the_block(void **state)
{
	struct world *w = *state;
	struct block block, then;

	run_block(w, &block);
	assert_true(block.ops >= GROUP_OPS);
	then = block;
	for (unsigned i = 0; i < 10 * GROUP_OPS; i++)
		load_done(&w->client, 1, 0);
	assert_memory_equal(&block, &then, sizeof(block));
	run_block(w, &block);
	assert_true(block.ops >= GROUP_OPS && block.group_ns.count);
}

/* A choice is a state of the connection: its change during a block says nothing. */
static void choices(void **state)
{
	struct world *w = *state;
	const struct load_sums *sums = &w->run->tally[0].sums;
	struct block block;

	for (unsigned i = 0; i < 3; i++)
		run_block(w, &block);
	assert_int_equal(sums->switches, 3);
	assert_int_equal(sums->batched, 1);
	assert_int_equal(sums->batches, CHOSEN);
}

/* Operations share a group's time; each takes as long as those under way with it together. */
static void latencies(void **state)
{
	struct load_opts opts = {.batch = 128, .inflight = 128};
	struct load_result r = {.run = {.p50_ns = 10, .p99_ns = 20, .p999_ns = 30}, .batch = 4};

	(void)state;
	procs_scale_latency(&opts, &r);
	assert_true(r.run.p50_ns == 1280 && r.run.p99_ns == 2560 && r.run.p999_ns == 3840);
	opts.batch_auto = true; /* 128 is the most that there may be */
	r.run.p50_ns = 10;
	procs_scale_latency(&opts, &r);
	assert_true(r.run.p50_ns == 40);
}

/* ---- on a simulated cluster ---- */

static struct load_opts simulated(uint32_t paper, double effort)
{
	return (struct load_opts){.provider = "sim",
				  .profile = "cx3",
				  .effort = effort,
				  .paper = paper,
				  .seed = 1,
				  .threads = 1,
				  .machines = 1,
				  .clients = 1,
				  .batch = 1,
				  .inflight = 1};
}

/* Calls are made one by one, by each client, and what is reported of them goes together. */
static void simulated_calls(void **state)
{
	static const struct {
		enum bench_rpc_mode mode;
		uint32_t threads, batch, result_bytes;
		bool hashed;
	} cases[] = {
		{BENCH_RPC_FETCH, 1, 1, 0, false},     {BENCH_RPC_REPLY, 1, 1, 0, false},
		{BENCH_RPC_FETCH, 3, 1, 0, true},      {BENCH_RPC_FETCH, 1, 4, 0, false},
		{BENCH_RPC_REPLY, 1, 1, 20000, false},
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		const bool fetches = cases[i / 2].mode == BENCH_RPC_FETCH;
		const double batch = cases[i / 2].batch;
		struct bench_rpc_opts o = {.load = simulated(i % 2, 0.05),
					   .mode = cases[i / 2].mode,
					   .result_bytes = cases[i / 2].result_bytes,
					   .hashed = cases[i / 2].hashed};
		struct load_result r;
		double rate_by_time, per_call;

		o.load.threads = cases[i / 2].threads;
		o.load.batch = o.load.inflight = cases[i / 2].batch;
		if (bench_rpc_run(&o, NULL, &r))
			fail_msg("case %zu: %s", i, r.error);
		/* One client: a rate is a batch by its time. */
		rate_by_time = r.mops * 1e-3 * r.latency_ns_mean / batch;
		per_call = (double)r.sums.fetches / (double)r.sums.calls;
		assert_true(fabs(rate_by_time - 1) < 0.05);
		assert_true(per_call * batch >= (fetches ? 1 : 0));
		assert_true(fetches || !r.sums.fetches);
		assert_true(r.batch == batch || o.hashed);
		assert_true(r.round_trips * batch > 1.9);
	}
}

struct store_case {
	const char *what;
	enum bench_kv_mode mode;
	double get_percent, trips; /* trips: of an operation, the papers' way */
	uint32_t value_bytes, fetch_bytes, threads, machines, clients, batch;
	enum { ONE, EACH, FIXED } servers;
};

#define CASE(what, mode, get_percent, trips) what, BENCH_KV_##mode, get_percent, trips

static const struct store_case store_cases[] = {
	{CASE("fetch", FETCH, 50, 2), 32, 36, 1, 1, 1, 1, ONE},
	{CASE("a value in two READs", FETCH, 100, 3), 64, 36, 1, 1, 1, 1, ONE},
	{CASE("a value in one READ", FETCH, 100, 2), 64, 68, 1, 1, 1, 1, ONE},
	{CASE("reply", REPLY, 95, 2), 32, 0, 2, 1, 1, 1, ONE},
	{CASE("batches to several processes", FETCH, 95, 2.0 / 6), 32, 2048, 3, 1, 1, 6, EACH},
	{CASE("each client has its server", FETCH, 95, 2), 32, 36, 2, 2, 2, 1, FIXED},
	{CASE("bypass", BYPASS, 100, 3.1), 32, 0, 1, 1, 1, 1, ONE},
};

static struct bench_kv_opts store_opts(const struct store_case *c, bool paper)
{
	struct bench_kv_opts o = {.load = simulated(paper, 0.01),
				  .mode = c->mode,
				  .keys = 16384,
				  .key_bytes = 16,
				  .value_bytes = c->value_bytes,
				  .get_percent = c->get_percent,
				  .zipf = c->mode == BENCH_KV_REPLY ? 0.99 : 0,
				  .split = c->servers != ONE,
				  .fixed = c->servers == FIXED,
				  .procs_each = c->servers == EACH,
				  .fill_pct = c->mode == BENCH_KV_BYPASS ? 75 : 0};

	o.load.threads = c->threads;
	o.load.machines = c->machines;
	o.load.clients = c->clients;
	o.load.batch = o.load.inflight = c->batch;
	o.load.fetch_bytes = paper ? c->fetch_bytes : 0;
	return o;
}

/* What a client finds is what was stored, or the run fails. */
static void simulated_store(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * sizeof(store_cases) / sizeof(store_cases[0]); i++) {
		const struct store_case *c = &store_cases[i / 2];
		const bool paper = i % 2 == 0, bypass = c->mode == BENCH_KV_BYPASS;
		const struct bench_kv_opts o = store_opts(c, paper);
		struct bench_kv_result r;
		const struct load_sums *sums = &r.calls.sums;

		if (bench_kv_run(&o, NULL, &r))
			fail_msg("%s: %s", c->what, r.calls.error);
		if (paper && fabs(r.calls.round_trips / c->trips - 1) > (bypass ? 0.2 : 0.02))
			fail_msg("%s: %g round trips", c->what, r.calls.round_trips);
		assert_true(!bypass == !sums->bypass_gets);
		assert_true(!bypass || fabs((double)sums->bypass_reads / (double)sums->bypass_gets -
					    r.calls.round_trips) < 0.1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(after_the_block, setup, teardown),
		cmocka_unit_test_setup_teardown(choices, setup, teardown),
		cmocka_unit_test(latencies),
		cmocka_unit_test(simulated_calls),
		cmocka_unit_test(simulated_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
