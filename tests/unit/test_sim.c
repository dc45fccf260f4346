/* SPDX-License-Identifier: MIT */
/*
 * The simulator: options, processes, virtual time, determinism by seed, and how bad runs end. The
 * programs here write what they saw into the test's own memory, which a real program of a node must
 * not do.
 */
#include <errno.h>

#include "unit_sim.h"

#define HOUR_US 3600000000u
#define HOUR_NS (HOUR_US * 1000ull)

/* ---- options ---- */

static void test_bad_options(void **state)
{
	struct gn_sim_opts opts = {.size = sizeof(opts), .profile = "cx9", .nodes = 1};
	struct gn_sim *sim = NULL;

	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	sim_assert_logged(state, "profile 'cx9'");
	opts = (struct gn_sim_opts){.size = sizeof(struct gn_sim_opts), .nodes = 0};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	sim_assert_logged(state, "nodes 0");
	opts = (struct gn_sim_opts){.size = sizeof(struct gn_sim_opts), .nodes = 123456};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	sim_assert_logged(state, "nodes 123456");
	opts = (struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .nodes = 1, .stack_bytes = 100};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	sim_assert_logged(state, "stack_bytes 100");
	opts = (struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .nodes = 1, .limit_ns = UINT64_MAX};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	sim_assert_logged(state, "limit_ns 18446744073709551615");
	assert_int_equal(gn_sim_create(NULL, &sim), -EINVAL);
	assert_null(sim);
	gn_sim_destroy(NULL);
}

PROGRAM(nothing)
{
	(void)env;
	return 0;
}

static void test_bad_spawn(void **state)
{
	struct gn_sim *sim = sim_make(2, 1);
	int status;

	assert_int_equal(gn_sim_spawn(sim, 2, nothing, 0, NULL, NULL, NULL), -EINVAL);
	sim_assert_logged(state, "node 2");
	assert_int_equal(gn_sim_spawn(sim, 0, nothing, -1, NULL, NULL, NULL), -EINVAL);
	sim_assert_logged(state, "argc -1");
	assert_int_equal(gn_sim_spawn(sim, 0, NULL, 0, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(gn_sim_status(sim, 0, &status), -EINVAL);
	sim_assert_logged(state, "process 0");
	assert_int_equal(gn_sim_kill(sim, 7), -EINVAL);
	assert_int_equal(gn_sim_run(sim), 0);
	gn_sim_destroy(sim);
}

static void test_stack_too_large(void **state)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts), .nodes = 1, .stack_bytes = (size_t)1 << 62};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, nothing, 0, NULL, NULL, NULL), -ENOMEM);
	sim_assert_logged(state, "stack_bytes 4611686018427387904");
	gn_sim_destroy(sim);
}

/* ---- processes ---- */

static int says_who(struct gn_env *env, int argc, char **argv)
{
	EXPECT(argc == 2 && !strcmp(argv[0], "prog") && !strcmp(argv[1], "x") && !argv[2]);
	EXPECT(!strcmp(env->node, "n1") && !strcmp(env->fabric, "sim:n1"));
	EXPECT(!strcmp(gn_node_name(), "n1"));
	EXPECT(gn_thread_id() != 0);
	argv[1][0] = 'y';
	return *(int *)env->arg;
}

static void test_environment(void **state)
{
	char prog[] = "prog", x[] = "x";
	char *args[] = {prog, x};
	int given = 42, status = 0;
	struct gn_sim *sim = sim_make(2, 1);
	unsigned number = 99;

	(void)state;
	assert_int_equal(gn_sim_spawn(sim, 1, says_who, 2, args, &given, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(gn_sim_status(sim, 0, &status), -EAGAIN);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_status(sim, 0, &status), 0);
	assert_int_equal(status, 42);
	assert_string_equal(x, "x");
	gn_sim_destroy(sim);
}

static void spin_forever(void *arg)
{
	for (;;) {
		gn_sleep_us(10);
		++*(int *)arg;
	}
}

PROGRAM(leaves_threads)
{
	struct gn_thread *thread;

	EXPECT(gn_thread_start("left", spin_forever, env->arg, &thread) == 0);
	gn_sleep_us(105);
	return 0;
}

static void test_end_takes_threads(void **state)
{
	int rounds = 0;

	(void)state;
	sim_run_alone(leaves_threads, &rounds);
	assert_int_equal(rounds, 10);
}

struct killing {
	struct gn_sim *sim;
	unsigned victim;
	bool survived;
};

PROGRAM(victim)
{
	struct killing *k = env->arg;
	void *memory = gn_alloc(100, 0);

	gn_sleep_us(1000);
	k->survived = true;
	gn_free(memory);
	return 0;
}

PROGRAM(killer)
{
	struct killing *k = env->arg;
	int status = 0;

	gn_sleep_us(500);
	EXPECT(gn_sim_kill(k->sim, k->victim) == 0);
	EXPECT(gn_sim_status(k->sim, k->victim, &status) == 0);
	EXPECT(status == GN_SIM_KILLED);
	EXPECT(gn_sim_kill(k->sim, k->victim) == -ESRCH);
	return 0;
}

PROGRAM(kills_itself)
{
	struct killing *k = env->arg;

	gn_sim_kill(k->sim, k->victim);
	k->survived = true;
	return 0;
}

static void test_kill(void **state)
{
	struct killing k = {.sim = sim_make(2, 3)};
	int status = 0;

	(void)state;
	assert_int_equal(gn_sim_spawn(k.sim, 1, victim, 0, NULL, &k, &k.victim), 0);
	sim_spawn(k.sim, 0, killer, &k);
	assert_int_equal(gn_sim_run(k.sim), 0);
	assert_int_equal(gn_sim_now_ns(k.sim), 500 * US);
	assert_false(k.survived);
	assert_int_equal(gn_sim_leaks(k.sim), 0); /* its memory went with it, which is no leak */

	/* Run on, with a process that ends itself, and with one killed before it begins. */
	assert_int_equal(gn_sim_spawn(k.sim, 1, kills_itself, 0, NULL, &k, &k.victim), 0);
	assert_int_equal(gn_sim_run(k.sim), 0);
	assert_int_equal(gn_sim_status(k.sim, k.victim, &status), 0);
	assert_int_equal(status, GN_SIM_KILLED);
	assert_int_equal(gn_sim_spawn(k.sim, 1, victim, 0, NULL, &k, &k.victim), 0);
	assert_int_equal(gn_sim_kill(k.sim, k.victim), 0);
	assert_int_equal(gn_sim_run(k.sim), 0);
	assert_false(k.survived);
	gn_sim_destroy(k.sim);
}

PROGRAM(forgets)
{
	void *kept;

	(void)env;
	gn_free(gn_alloc(10, 0));
	EXPECT(gn_alloc(1000, 0));
	kept = gn_alloc(24, 4096);
	EXPECT((uintptr_t)kept % 4096 == 0);
	return 0;
}

static void test_leaks(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);

	sim_spawn(sim, 0, forgets, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_leaks(sim), 2);
	sim_assert_logged(state, "process 0 on n0 left 2 allocations, 1024 bytes");
	gn_sim_destroy(sim);
}

PROGRAM(runs_inside)
{
	return gn_sim_run(env->arg) == -EBUSY ? 0 : 1;
}

static void test_run_inside(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);
	int status = 1;

	sim_spawn(sim, 0, runs_inside, sim);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_status(sim, 0, &status), 0);
	assert_int_equal(status, 0);
	sim_assert_logged(state, "a run inside of a run");
	gn_sim_destroy(sim);
}

/* ---- time ---- */

PROGRAM(sleeps)
{
	uint64_t start = gn_now_ns();

	(void)env;
	gn_sleep_us(HOUR_US);
	EXPECT(gn_now_ns() == start + HOUR_NS);
	EXPECT(gn_wait(NULL, 0, gn_deadline_us(7), "nothing") == -ETIMEDOUT);
	EXPECT(gn_now_ns() == start + HOUR_NS + 7 * US);
	EXPECT(gn_wait(NULL, 0, GN_NO_WAIT, "nothing") ==
	       -ETIMEDOUT); /* looking in vain takes time */
	EXPECT(gn_now_ns() > start + HOUR_NS + 7 * US);
	gn_charge(GN_WORK_NS, 300);
	gn_charge(GN_WORK_COPY, 1 << 20); /* free in this profile */
	return 0;
}

static void test_limit(void **state)
{
	struct gn_sim_opts opts = {.size = sizeof(opts), .nodes = 1, .limit_ns = 1 * MS};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	sim_spawn(sim, 0, sleeps, NULL);
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
	assert_int_equal(gn_sim_now_ns(sim), 1 * MS);
	sim_assert_logged(state, "limit_ns 1000000");
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
	gn_sim_destroy(sim);
}

/* The flag of a signal handler ends a run; the run goes on when the flag is clear again. */
static volatile sig_atomic_t interrupted;

static int interrupts(struct gn_env *env, int argc, char **argv)
{
	(void)env, (void)argc, (void)argv;
	gn_sleep_us(10);
	interrupted = 1;
	gn_sleep_us(10);
	return 0;
}

static void test_interrupt(void **state)
{
	struct gn_sim_opts opts = {.size = sizeof(opts), .nodes = 1, .interrupted = &interrupted};
	struct gn_sim *sim;

	(void)state;
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	sim_spawn(sim, 0, interrupts, NULL);
	assert_int_equal(gn_sim_run(sim), -EINTR);
	assert_string_equal(gn_error(), "sim: interrupted");
	assert_in_range(gn_sim_now_ns(sim), 10 * US, 10 * US + 999);
	assert_int_equal(gn_sim_run(sim), -EINTR);
	interrupted = 0;
	assert_int_equal(gn_sim_run(sim), 0);
	assert_in_range(gn_sim_now_ns(sim), 20 * US, 20 * US + 999);
	gn_sim_destroy(sim);
}

/* ---- determinism ---- */

#define STEPS 64

struct story {
	unsigned n;
	char who[STEPS];
	uint64_t drawn;
};

struct teller {
	struct story *story;
	char name;
};

static void tell(void *arg)
{
	struct teller *teller = arg;

	for (int i = 0; i < STEPS / 4; i++) {
		teller->story->who[teller->story->n++] = teller->name;
		if (gn_random() % 2)
			gn_yield();
		else
			gn_sleep_us(0);
	}
}

PROGRAM(tells)
{
	struct teller tellers[4];
	struct gn_thread *threads[4];

	for (int i = 0; i < 4; i++) {
		tellers[i] = (struct teller){env->arg, (char)('a' + i)};
		EXPECT(gn_thread_start("teller", tell, &tellers[i], &threads[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		EXPECT(gn_thread_join(threads[i]) == 0);
	((struct story *)env->arg)->drawn = gn_random();
	return 0;
}

static uint64_t tell_story(uint64_t seed, struct story *story)
{
	struct gn_sim *sim = sim_make(1, seed);
	uint64_t hash;

	memset(story, 0, sizeof(*story));
	sim_spawn(sim, 0, tells, story);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(story->n, STEPS);
	hash = gn_sim_trace_hash(sim);
	assert_true(gn_sim_events(sim) > STEPS);
	gn_sim_destroy(sim);
	return hash;
}

static void test_determinism(void **state)
{
	struct story first, second, other;
	const uint64_t seed = unit_seed();

	(void)state;
	assert_int_equal(tell_story(seed, &first), tell_story(seed, &second));
	assert_memory_equal(&first, &second, sizeof(first));
	assert_int_not_equal(tell_story(seed, &first), tell_story(seed + 1, &other));
	assert_memory_not_equal(first.who, other.who, sizeof(first.who));
	assert_int_not_equal(first.drawn, other.drawn);
}

PROGRAM(draws)
{
	uint64_t *counts = env->arg;

	for (int i = 0; i < 65536; i++)
		counts[gn_random() >> 60]++;
	return 0;
}

static void test_random(void **state)
{
	uint64_t counts[16] = {0};

	(void)state;
	sim_run_alone(draws, counts);
	for (int i = 0; i < 16; i++)
		assert_in_range(counts[i], 4096 - 400, 4096 + 400); /* six standard deviations */
}

/* ---- bad ends ---- */

struct shared {
	struct gn_mutex mutex;
	struct gn_cond cond;
};

static void hold_and_wait(void *arg)
{
	struct shared *s = arg;

	gn_mutex_lock(&s->mutex);
	gn_cond_wait(&s->cond, &s->mutex, GN_FOREVER, "a signal that never comes");
}

static void want_lock(void *arg)
{
	struct shared *s = arg;

	gn_sleep_us(2);
	gn_mutex_lock(&s->mutex);
	gn_wait(NULL, 0, GN_FOREVER, "the end of days");
}

static void want_lock_too(void *arg)
{
	struct shared *s = arg;

	gn_sleep_us(3);
	gn_mutex_lock(&s->mutex);
}

PROGRAM(deadlocks)
{
	struct shared *s = gn_alloc(sizeof(*s), 0);
	struct gn_thread *thread;

	(void)env;
	gn_mutex_init(&s->mutex);
	gn_cond_init(&s->cond);
	EXPECT(gn_thread_start("signalled", hold_and_wait, s, &thread) == 0);
	EXPECT(gn_thread_start("holder", want_lock, s, &thread) == 0);
	EXPECT(gn_thread_start("locker", want_lock_too, s, &thread) == 0);
	return gn_thread_join(thread);
}

static void test_deadlock(void **state)
{
	struct gn_sim *sim = sim_make(2, 5);
	int status;

	sim_spawn(sim, 1, deadlocks, NULL);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	sim_assert_logged(state, "deadlock at 3000 ns");
	sim_assert_logged(state,
			  "n1 process 0 thread 1 'main' waits for the end of a thread (thread 4)");
	sim_assert_logged(state, "thread 2 'signalled' waits for a signal that never comes");
	sim_assert_logged(state, "thread 3 'holder' waits for the end of days");
	sim_assert_logged(state, "thread 4 'locker' waits for a mutex (thread 3)");
	assert_int_equal(gn_sim_status(sim, 0, &status), -EAGAIN);
	gn_sim_destroy(sim); /* with its threads parked, memory taken and locks held */
}

PROGRAM(yields_for_ever)
{
	struct gn_wait_item nothing_there = gn_wait_word(env->arg, 0);

	for (;;) {
		gn_yield();
		gn_wait(&nothing_there, 1, GN_NO_WAIT, "nothing");
	}
	return 0;
}

static void test_empty_polls(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);
	uint64_t word = 0;

	sim_spawn(sim, 0, yields_for_ever, &word);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	sim_assert_logged(
		state,
		"thread 1 'main' of process 0 on n0 made empty polls or yields 1000000 times");
	assert_int_equal(gn_sim_now_ns(sim), 50u * (1000000 - 1));
	assert_int_equal(gn_sim_kill(sim, 0), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	gn_sim_destroy(sim);
}

/* ---- many ---- */

static void busy(void *arg)
{
	for (int i = 0; i < 10; i++)
		gn_sleep_us(1 + gn_random() % 100);
	++*(int *)arg;
}

PROGRAM(four_threads)
{
	struct gn_thread *threads[4];
	int done = 0;

	for (int i = 0; i < 4; i++)
		EXPECT(gn_thread_start("busy", busy, &done, &threads[i]) == 0);
	for (int i = 0; i < 4; i++)
		EXPECT(gn_thread_join(threads[i]) == 0);
	*(int *)env->arg += done;
	return 0;
}

static void test_many(void **state)
{
	struct gn_sim *sim = sim_make(100, 9);
	int done = 0, status;

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		sim_spawn(sim, i, four_threads, &done);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(done, 400);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		assert_int_equal(status, 0);
	}
	gn_sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_bad_options),
		SIM_TEST(test_bad_spawn),
		SIM_TEST(test_stack_too_large),
		SIM_TEST(test_environment),
		SIM_TEST(test_end_takes_threads),
		SIM_TEST(test_kill),
		SIM_TEST(test_leaks),
		SIM_TEST(test_run_inside),
		SIM_TEST_ALONE(test_virtual_time, sleeps),
		SIM_TEST(test_limit),
		SIM_TEST(test_interrupt),
		SIM_TEST(test_determinism),
		SIM_TEST(test_random),
		SIM_TEST(test_deadlock),
		SIM_TEST(test_empty_polls),
		SIM_TEST(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
