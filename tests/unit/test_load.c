/* SPDX-License-Identifier: MIT */
/* The harness that measures a load in blocks: what is counted, and what is not. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "procs.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(after_the_block, setup, teardown),
		cmocka_unit_test_setup_teardown(choices, setup, teardown),
		cmocka_unit_test(latencies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
