/* SPDX-License-Identifier: MIT */
/*
 * Faults: the text that asks for them, and those of single operations. What happens to whole nodes
 * is in test_sim_fault_node.c.
 */
#include <errno.h>

#include "gannet/fabric.h"
#include "raw_endpoint.h"
#include "sim/nodes.h"
#include "unit_sim.h"

#define NODES 3u

static uint64_t count(const struct gn_sim *sim, enum sim_fault kind)
{
	return gn_sim_fault_count(sim, kind);
}

/* ---- the text ---- */

static const struct {
	const char *text, *line;
} refused[] = {
	{"partition@1ms+1ms:n0|n9", "partition@1ms+1ms:n0|n9: there is no node n9; nodes is 3"},
	{"ud-lost=1%", "ud-lost=1%: there is no kind 'ud-lost'; there are ud-loss ud-dup"},
	{"=1%", "there is no kind ''"},
	{"ud-loss", "ud-loss: =RATE or @TIME is missing"},
	{"ud-loss=", "RATE is missing"},
	{"ud-loss=1", "RATE '1' is not a number with a unit (% ppm)"},
	{"ud-loss=%", "RATE '%' is not a number with a unit"},
	{"ud-loss=.%", "RATE '.%' is not a number with a unit"},
	{"ud-loss=1.2.3%", "RATE '1.2.3%' is not a number with a unit"},
	{"ud-loss=1e3ppm", "RATE '1e3ppm' is not a number with a unit"},
	{"ud-loss=-1%", "RATE -1% is negative"},
	{"ud-loss=100.0001%", "RATE 100.0001% is above 100%"},
	{"ud-loss=2000000ppm", "RATE 2000000ppm is above 100%"},
	{"ud-loss=0.00000001%", "RATE 0.00000001% has too many decimals"},
	{"ud-loss=99999999999999999999999ppm", "is too large"},
	{"crash=1%:n0", "RATE '1%:n0' is not a number with a unit"},
	{"crash@", "TIME is missing"},
	{"crash@5", "TIME '5' is not a number with a unit (ns us ms s)"},
	{"crash@5m", "TIME '5m' is not a number with a unit (ns us ms s)"},
	{"crash@-5ms", "TIME -5ms is negative"},
	{"crash@5ms+-1ms", "DURATION -1ms is negative"},
	{"crash@5ms+0ms", "DURATION 0ms is no time at all"},
	{"crash@5ms+", "DURATION is missing"},
	{"crash@0.1234ns", "TIME 0.1234ns has too many decimals"},
	{"crash@99999999s", "TIME 99999999s is too large"},
	{"crash@5ms:", "nothing stands after a ':'"},
	{"crash@5ms:n", "'n' is not a node"},
	{"crash@5ms:n01", "'n01' is not a node"},
	{"crash@5ms:n1x", "'n1x' is not a node"},
	{"crash@5ms:n3", "there is no node n3"},
	{"crash@5ms:n4294967296", "there is no node n4294967296"},
	{"crash@5ms:n0+n1", "'n0+n1' is not a node"},
	{"crash@5ms:n0|n1", "'n0|n1' is not a node"},
	{"crash@5ms:n0:2x", "'2x' is too much: crash has no AMOUNT"},
	{"low-memory@5ms:n0:2x", "'2x' is too much: low-memory has no AMOUNT"},
	{"pause@5ms:n0", "a pause needs a +DURATION"},
	{"partition@5ms:n0|n0", "n0 is on both sides"},
	{"partition@5ms:n0+n2>n1+n2", "n2 is on both sides"},
	{"partition@5ms:n0+|n1", "a node is missing after '+'"},
	{"partition@5ms:|", "WHERE '|' names no node"},
	{"partition@5ms:n0|n1|n2", "'n1|n2' is not a node"},
	{"slow-node@1ms:n0", "AMOUNT is missing: how much slower (20x)"},
	{"slow-node@1ms:n0:20", "AMOUNT '20' is not a number with a unit (x)"},
	{"slow-link@1ms:n0:0.5x", "AMOUNT 0.5x is not within 1x to 10000x"},
	{"slow-link@1ms:n0:10001x", "AMOUNT 10001x is not within 1x to 10000x"},
	{"drift@1ms:n0", "AMOUNT is missing: how much faster (200ppm, -200ppm)"},
	{"drift@1ms:n0:200", "AMOUNT '200' is not a number with a unit (ppm)"},
	{"drift@1ms:n0:100001ppm", "is not within -100000ppm to 100000ppm"},
	{"drift@1ms+1ms:n0:200ppm", "a drift has no DURATION"},
	{"alloc@1ms:n0:17", "AMOUNT '17' is not a #NUMBER"},
	{"alloc@1ms:n0:#0", "AMOUNT '#0' is not within #1 to"},
	{"alloc@1ms:n0:#x", "AMOUNT '#x' is not within #1 to"},
	{"alloc@1ms:n0:#1:#2", "'#2' is too much"},
	{"alloc@1ms:#1:n0", "'n0' is too much"},
	{"ud-dup=1%, rnr@1ms:n0 pause@1ms", "sim: faults: pause@1ms: a pause needs"},
};

static void test_refused(void **state)
{
	struct gn_sim *sim = sim_make(NODES, 1);
	struct sim_lines *lines = *state;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		lines->len = 0;
		lines->text[0] = 0;
		assert_int_equal(gn_sim_inject(sim, refused[i].text), -EINVAL);
		sim_assert_logged(state, "sim: faults: ");
		sim_assert_logged(state, refused[i].line);
		/* In one line. */
		assert_ptr_equal(strchr(lines->text, '\n'), lines->text + lines->len - 1);
	}
	/* All or nothing. */
	assert_int_equal(sim->faults.named, 0);
	assert_int_equal(sim->engine.n_now + sim->engine.later.n, 0);
	assert_int_equal(gn_sim_inject(sim, NULL), -EINVAL);
	sim_assert_logged(state, "faults is NULL");
	assert_int_equal(gn_sim_inject(NULL, "rnr=1%"), -EINVAL);
	gn_sim_destroy(sim);
}

static void test_refused_create(void **state)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts), .nodes = 2, .faults = "crash@1ms+1ms:n1, crash@1ms:n2"};
	struct gn_sim *sim = NULL;

	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	assert_null(sim);
	sim_assert_logged(state, "sim: faults: crash@1ms:n2: there is no node n2; nodes is 2");
	opts.faults = "crash@1ms+1ms:n1";
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	gn_sim_destroy(sim);
}

#define PS_PER_MS 1000000000ull

static void test_accepted(void **state)
{
	struct gn_sim *sim = sim_make(NODES, 1);
	const struct sim_faults *faults = &sim->faults;

	(void)state;
	assert_int_equal(gn_sim_inject(sim, ""), 0);
	assert_int_equal(gn_sim_inject(sim, " , \n"), 0);
	assert_int_equal(faults->named, 0);
	assert_int_equal(
		gn_sim_inject(sim, "ud-loss=1%,ud-dup=0.25% ud-delay=50ppm\nrnr=100% lines=.5ppm,"),
		0);
	assert_int_equal(faults->rate[SIM_UD_LOSS], 10000000);
	assert_int_equal(faults->rate[SIM_UD_DUP], 2500000);
	assert_int_equal(faults->rate[SIM_UD_DELAY], 50000);
	assert_int_equal(faults->rate[SIM_RNR], SIM_RATE_ONE);
	assert_int_equal(faults->rate[SIM_LINES], 500);
	assert_int_equal(gn_sim_inject(sim, "ud-loss=0%"), 0); /* a new rate takes its place */
	assert_int_equal(faults->rate[SIM_UD_LOSS], 0);

	assert_int_equal(gn_sim_inject(sim, "pause@0.1ms+1.000001s:n2 slow-node@7ns:1.5x "
					    "alloc@0s:n1:#17 drift@5us:n0:-200ppm"),
			 0);
	assert_int_equal(faults->plans[SIM_PAUSE]->at_ps, PS_PER_MS / 10);
	assert_int_equal(faults->plans[SIM_PAUSE]->span_ps, 1000 * PS_PER_MS + PS_PER_MS / 1000);
	assert_int_equal(faults->plans[SIM_PAUSE]->node, 2);
	assert_int_equal(faults->plans[SIM_SLOW_NODE]->at_ps, 7000);
	assert_int_equal(faults->plans[SIM_SLOW_NODE]->node, SIM_ANY_NODE);
	assert_int_equal(faults->plans[SIM_SLOW_NODE]->factor, 384);
	assert_int_equal(faults->plans[SIM_ALLOC]->skip, 16);
	assert_int_equal(faults->plans[SIM_DRIFT]->ppm, -200);
	gn_sim_destroy(sim); /* with all of it still to come */
}

static void test_names(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);
	unsigned n = 0;

	(void)state;
	for (; gn_sim_fault_name(n); n++) {
		char text[64];

		snprintf(text, sizeof(text), "%s=1%%", gn_sim_fault_name(n));
		assert_int_equal(gn_sim_inject(sim, text), 0);
		assert_int_equal(gn_sim_fault_count(sim, n), 0);
	}
	assert_int_equal(n, SIM_FAULTS);
	assert_int_equal(gn_sim_fault_count(sim, n), 0);
	gn_sim_destroy(sim);
}

/* ---- chances ---- */

/* Asks every 10 us for 1 ms; arg: the simulation. Returns a bit for each 100 us with a fault. */
static int ask(struct gn_sim *sim, enum sim_fault kind, unsigned node)
{
	int taken = 0;

	for (int i = 0; i < 100; i++, gn_sleep_us(10))
		taken |= sim_fault(sim, kind, node) << i / 10;
	return taken;
}

PROGRAM(asks_for_rnr)
{
	return ask(env->arg, SIM_RNR, (unsigned)atoi(env->node + 1));
}

static void run_asking(const char *faults, int status[2], uint64_t expected)
{
	struct gn_sim *sim = sim_make(2, 1);

	assert_int_equal(gn_sim_inject(sim, faults), 0);
	sim_spawn(sim, 0, asks_for_rnr, sim);
	sim_spawn(sim, 1, asks_for_rnr, sim);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(count(sim, SIM_RNR), expected);
	assert_int_equal(gn_sim_status(sim, 0, &status[0]), 0);
	assert_int_equal(gn_sim_status(sim, 1, &status[1]), 0);
	gn_sim_destroy(sim);
}

static void test_schedule(void **state)
{
	int status[2];

	(void)state;
	run_asking("rnr@250us:n1", status, 1); /* the first chance from then on */
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 1 << 2);
	run_asking("rnr@200us+100us:n0", status, 10); /* every one */
	assert_int_equal(status[0], 1 << 2);
	assert_int_equal(status[1], 0);
	run_asking("rnr@0s+200us", status, 40); /* anywhere */
	assert_int_equal(status[0], 3);
	assert_int_equal(status[1], 3);
	run_asking("rnr@100us:n1:#45", status, 1); /* the 45th */
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 1 << 5);
	run_asking("rnr@0s:n0:#11 rnr@0s:n0:#31 rnr@0s:n0:#31", status, 2); /* two at a time */
	assert_int_equal(status[0], 1 << 1 | 1 << 3);
	run_asking("rnr@2ms", status, 0);
	run_asking("rnr@0s ud-loss@0s", status, 1);
}

static void test_rates(void **state)
{
	struct gn_sim *sim = sim_make(1, 7);
	uint64_t before;

	(void)state;
	before = sim->engine.random.s[0];
	for (int i = 0; i < 1000; i++)
		assert_false(sim_fault(sim, SIM_UD_LOSS, 0));
	assert_int_equal(gn_sim_inject(sim, "ud-dup=100% rnr@1ms"), 0);
	assert_false(sim_fault(sim, SIM_UD_LOSS, 0));
	assert_false(sim_fault(sim, SIM_RNR, 0));
	assert_int_equal(sim->engine.random.s[0], before); /* draws nothing */
	assert_int_equal(gn_sim_inject(sim, "ud-loss=2%"), 0);
	for (int i = 0; i < 100000; i++) {
		sim_fault(sim, SIM_UD_LOSS, 0);
		assert_true(sim_fault(sim, SIM_UD_DUP, 0));
	}
	assert_in_range(count(sim, SIM_UD_LOSS), 1800, 2200);
	assert_int_equal(count(sim, SIM_UD_DUP), 100000);
	assert_int_equal(count(sim, SIM_RNR), 0);
	gn_sim_destroy(sim);
}

static void test_delays(void **state)
{
	struct gn_sim *sim = sim_make(1, 7);
	uint64_t longest = 0;
	unsigned brief = 0;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		const uint64_t ps = sim_fault_delay_ps(sim);

		assert_in_range(ps, 1000 * 1000, 1024ull * 1000 * 1000 - 1);
		brief += ps < 100ull * 1000 * 1000;
	}
	assert_in_range(brief, 6000, 7500);
	brief = 0;
	for (int i = 0; i < 10000; i++) {
		const uint64_t ps = sim_fault_long_delay_ps(sim);

		assert_in_range(ps, 1000 * 1000, 4096ull * 1000 * 1000 * 1000 - 1);
		brief += ps < 1024ull * 1000 * 1000;
		longest = ps > longest ? ps : longest;
	}
	assert_in_range(brief, 9200, 9600);
	assert_true(longest > 1000ull * 1000 * 1000 * 1000); /* a second */
	gn_sim_destroy(sim);
}

/* ---- allocations ---- */

#define OBJECTS 7

PROGRAM(opens_all)
{
	const struct raw_endpoint_opts opts = {
		.bytes = GN_PAGE, .remote = GN_REMOTE_READ | GN_REMOTE_WRITE, .cq_depth = 64};
	struct gn_qp_opts qp = {.size = sizeof(qp), .type = GN_QP_RC, .max_inline = 64};
	struct raw_endpoint e = {NULL};
	struct gn_fabric *fabric;
	int rc = gn_fabric_open(env->fabric, &fabric);

	if (rc)
		return rc;
	rc = raw_endpoint_make(&e, fabric, &opts, &qp);
	raw_endpoint_end(&e);
	gn_fabric_close(fabric);
	return rc;
}

/* Every single allocation of a program fails once; the one after the last ends the loop. */
static void test_alloc_nth(void **state)
{
	unsigned n = 1;

	(void)state;
	for (;; n++) {
		struct gn_sim *sim = sim_make(2, 1);
		char faults[64];
		int status[2];
		uint64_t failed;

		snprintf(faults, sizeof(faults), "alloc@0s:n1:#%u", n);
		assert_int_equal(gn_sim_inject(sim, faults), 0);
		sim_spawn(sim, 0, opens_all, NULL);
		sim_spawn(sim, 1, opens_all, NULL);
		assert_int_equal(gn_sim_run(sim), 0);
		failed = count(sim, SIM_ALLOC);
		assert_int_equal(gn_sim_status(sim, 0, &status[0]), 0);
		assert_int_equal(status[0], 0);
		assert_int_equal(gn_sim_status(sim, 1, &status[1]), 0);
		assert_int_equal(status[1], failed ? -ENOMEM : 0);
		assert_int_equal(gn_sim_leaks(sim), 0);
		gn_sim_destroy(sim);
		if (!failed)
			break;
		assert_int_equal(failed, 1);
	}
	assert_true(n > OBJECTS);
}

PROGRAM(allocates)
{
	int failed = 0;

	(void)env;
	for (int i = 0; i < 1000; i++) {
		void *memory = gn_alloc(10, 0);

		failed += !memory;
		gn_free(memory);
	}
	return failed;
}

static void test_alloc_rate(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);
	int status;

	(void)state;
	assert_int_equal(gn_sim_inject(sim, "alloc=10%"), 0);
	sim_spawn(sim, 0, allocates, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_status(sim, 0, &status), 0);
	assert_in_range(status, 70, 130);
	assert_int_equal(status, count(sim, SIM_ALLOC));
	gn_sim_destroy(sim);
}

/* What the engine needs for a process is not the program's, and does not fail. */
static void test_alloc_engine(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);
	struct sim_entry before;

	(void)state;
	assert_int_equal(gn_sim_inject(sim, "alloc=100%"), 0);
	sim_spawn(sim, 0, allocates, NULL);
	before = sim_enter(sim);
	sim_act_for(sim, sim->procs[0]);
	gn_free(gn_alloc(10, 0));
	assert_int_equal(count(sim, SIM_ALLOC), 0);
	sim_act_for(sim, NULL);
	sim_leave(before);
	gn_sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_refused),	   SIM_TEST(test_refused_create),
		SIM_TEST(test_accepted),   SIM_TEST(test_names),
		SIM_TEST(test_schedule),   SIM_TEST(test_rates),
		SIM_TEST(test_delays),	   SIM_TEST(test_alloc_nth),
		SIM_TEST(test_alloc_rate), SIM_TEST(test_alloc_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
