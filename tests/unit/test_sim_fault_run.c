/* SPDX-License-Identifier: MIT */
/*
 * Runs with faults: at random, the same for the same seed; ended or found to be stuck although
 * faults are still to come; and clusters that are too large for this machine.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/nodes.h"
#include "unit_sim.h"

/* ---- at random ---- */

PROGRAM(lives)
{
	for (int i = 0; i < 200; i++) {
		gn_sleep_us(gn_random() % 2000);
		gn_charge(GN_WORK_NS, gn_random() % 1000);
	}
	++*(int *)env->arg;
	return 0;
}

#define RANDOM_NODES 10u

static struct gn_sim *run_random(uint64_t seed, const char *faults, int *done)
{
	struct gn_sim *sim = sim_make(RANDOM_NODES, seed);

	*done = 0;
	assert_int_equal(gn_sim_inject(sim, faults), 0);
	for (unsigned i = 0; i < RANDOM_NODES; i++)
		sim_spawn(sim, i, lives, done);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(*done, RANDOM_NODES);
	return sim;
}

static const char everything[] =
	"crash=0.3% kill=0.3% pause=1% slow-node=1% slow-link=1% partition=1% "
	"drift=1% alloc=1% low-memory=1%";

static void test_random(void **state)
{
	struct gn_sim *sim = run_random(3, "pause=0.5% slow-node=2% slow-link=0.01%", &(int){0});
	const uint64_t ms = gn_sim_now_ns(sim) / MS;

	(void)state;
	assert_in_range(ms, 200, 2000);
	/* A rate is of every node's milliseconds. */
	assert_in_range(gn_sim_fault_count(sim, SIM_PAUSE), ms * RANDOM_NODES / 400,
			ms * RANDOM_NODES / 100);
	assert_in_range(gn_sim_fault_count(sim, SIM_SLOW_NODE), ms * RANDOM_NODES / 75,
			ms * RANDOM_NODES / 35);
	assert_in_range(gn_sim_fault_count(sim, SIM_SLOW_LINK), 0, 10);
	assert_int_equal(gn_sim_fault_count(sim, SIM_CRASH), 0);
	gn_sim_destroy(sim);
}

static void test_replay(void **state)
{
	uint64_t hashes[4];
	int done;

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct gn_sim *sim = run_random(i < 2 ? 5 : 6, i < 3 ? everything : "", &done);

		hashes[i] = gn_sim_trace_hash(sim);
		for (unsigned kind = 0; i < 3 && kind < SIM_FAULTS; kind++)
			assert_true(!sim_fault_is_of_node(kind) ||
				    gn_sim_fault_count(sim, kind) > 0);
		gn_sim_destroy(sim);
	}
	assert_int_equal(hashes[0], hashes[1]);
	assert_int_not_equal(hashes[0], hashes[2]);
	assert_int_not_equal(hashes[2], hashes[3]);
}

/* A rate that is taken back, from inside. */
PROGRAM(calms)
{
	struct gn_sim *sim = env->arg;
	uint64_t count;

	EXPECT(gn_sim_inject(sim, "drift=100% nothing=1%") == -EINVAL);
	EXPECT(gn_sim_inject(sim, "drift=100%") == 0);
	gn_sleep_us(10000);
	count = gn_sim_fault_count(sim, SIM_DRIFT);
	EXPECT(count >= 9 && count <= 11);
	EXPECT(gn_sim_inject(sim, "drift=0% pause@1ms+3ms") == 0); /* past is now */
	gn_sleep_us(10);
	EXPECT(gn_sim_now_ns(sim) >= 12900 * US);
	gn_sleep_us(10000);
	EXPECT(gn_sim_fault_count(sim, SIM_DRIFT) == count);
	return 0;
}

static void test_rate_changes(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);

	(void)state;
	sim_spawn(sim, 0, calms, sim);
	assert_int_equal(gn_sim_run(sim), 0);
	sim_assert_status(sim, 0, 0);
	assert_int_equal(sim->faults.n_idle, 0);
	gn_sim_destroy(sim);
}

/* ---- how runs end ---- */

PROGRAM(returns_7)
{
	(void)env;
	return 7;
}

PROGRAM(waits_in_vain)
{
	(void)env;
	gn_sleep_us(700);
	gn_wait(NULL, 0, GN_FOREVER, "godot");
	return 0;
}

/* Faults that go on for ever let nobody run. */
static void test_deadlock(void **state)
{
	struct gn_sim *sim =
		sim_make_faulty(3, "crash=1ppm pause=1% slow-node=1% slow-link=1% partition=1% "
				   "drift=1% partition@1s:n0 pause@1s+1s rnr@1s");

	sim_spawn(sim, 1, waits_in_vain, NULL);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	assert_in_range(gn_sim_now_ns(sim), 699 * US, 20 * MS); /* a clock may be fast */
	sim_assert_logged(state, "deadlock at");
	sim_assert_logged(state, "n1 process 0 thread 1 'main' waits for godot");
	assert_int_equal(gn_sim_kill(sim, 0), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	gn_sim_destroy(sim);
}

/* A crash on schedule ends a wait, if only that of the dead. */
static void test_crash_ends_wait(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "crash@5ms:n1 pause@6ms+1ms");

	(void)state;
	sim_spawn(sim, 1, waits_in_vain, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_now_ns(sim), 5 * MS);
	sim_assert_status(sim, 0, GN_SIM_KILLED);
	gn_sim_destroy(sim);
	/* … and if it only starts again, in vain, the run is stuck then. */
	sim = sim_make_faulty(2, "crash@5ms+1ms:n1 crash@5ms+100ms:n0");
	sim_spawn(sim, 1, waits_in_vain, NULL);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	assert_int_equal(gn_sim_now_ns(sim), 6700 * US);
	gn_sim_destroy(sim);
}

static void test_ends_with_faults(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "pause=100% crash@1s+1s drift@2s:n0:1ppm");

	(void)state;
	sim_spawn(sim, 1, returns_7, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_in_range(gn_sim_now_ns(sim), 0, 100 * MS);
	sim_assert_status(sim, 0, 7);
	gn_sim_destroy(sim);
}

PROGRAM(naps)
{
	(void)env;
	gn_sleep_us(100);
	return 7;
}

PROGRAM(spawns)
{
	return gn_sim_spawn(env->arg, 1, naps, 0, NULL, NULL, NULL);
}

/* A process outlives the one that started it: its stack is its own. */
static void test_outlives(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "");

	(void)state;
	sim_spawn(sim, 0, spawns, sim);
	assert_int_equal(gn_sim_run(sim), 0);
	sim_assert_status(sim, 0, 0);
	sim_assert_status(sim, 1, 7);
	gn_sim_destroy(sim);
}

/* ---- too large ---- */

static unsigned long map_limit(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	unsigned long limit = 0;

	if (file && fscanf(file, "%lu", &limit) != 1)
		limit = 0;
	if (file)
		fclose(file);
	return limit;
}

#define SPARE_MAPS 3000u

/* Take mappings until few are left: every other page is another one. */
static char *take_maps(unsigned long n, size_t page)
{
	char *at =
		mmap(NULL, n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	for (unsigned long i = 0; i < n; i += 2)
		assert_int_equal(mprotect(at + i * page, page, PROT_READ), 0);
	return at;
}

/* More threads than the kernel has mappings for: one line says so, and the others are well. */
static void test_too_many_threads(void **state)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts), .nodes = 4, .stack_bytes = GN_FIBER_STACK_MIN};
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const unsigned long limit = map_limit(), taken = limit - SPARE_MAPS;
	struct gn_sim *sim;
	unsigned n = 0;
	char line[128], *maps;
	int rc;

	if (limit < 2 * SPARE_MAPS || limit > 1000000) {
		print_message("vm.max_map_count is %lu, which cannot be used up\n", limit);
		skip();
	}
	maps = take_maps(taken, page);
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	do
		rc = gn_sim_spawn(sim, n % 4, returns_7, 0, NULL, NULL, NULL);
	while (!rc && ++n < SPARE_MAPS);
	assert_int_equal(rc, -ENOMEM);
	assert_in_range(n, SPARE_MAPS / 4, SPARE_MAPS / 2);
	snprintf(line, sizeof(line),
		 "no room on n%u for a thread with stack_bytes %u, after %u: ", n % 4,
		 GN_FIBER_STACK_MIN, n);
	sim_assert_logged(state, line);
	snprintf(line, sizeof(line), "of vm.max_map_count %lu mappings are taken", limit);
	sim_assert_logged(state, line);
	assert_int_equal(gn_sim_run(sim), 0); /* as many as there are */
	for (unsigned i = 0; i < n; i++)
		sim_assert_status(sim, i, 7);
	gn_sim_destroy(sim);
	munmap(maps, taken * page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_random),		SIM_TEST(test_replay),
		SIM_TEST(test_rate_changes),	SIM_TEST(test_deadlock),
		SIM_TEST(test_crash_ends_wait), SIM_TEST(test_ends_with_faults),
		SIM_TEST(test_outlives),	SIM_TEST(test_too_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
