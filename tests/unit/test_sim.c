/* SPDX-License-Identifier: MIT */
/*
 * The simulator: virtual time, threads and locks in it, determinism by seed, and how bad runs end.
 * The programs here write what they saw into the test's own memory, which a real program of a node
 * must not do.
 */
#include <errno.h>
#include <string.h>

#include "gannet/sim.h"
#include "unit.h"

#define US	1000u
#define MS	1000000u
#define HOUR_US 3600000000u
#define HOUR_NS (HOUR_US * 1000ull)

/* ---- a run and its log ---- */

struct lines {
	char text[8192];
	size_t len;
};

static void keep_line(void *arg, enum gn_log_level level, const char *line)
{
	struct lines *lines = arg;

	(void)level;
	lines->len += (size_t)snprintf(lines->text + lines->len, sizeof(lines->text) - lines->len,
				       "%s\n", line);
	if (lines->len >= sizeof(lines->text))
		lines->len = sizeof(lines->text) - 1;
}

/* Every test gets an empty log; it is the test's initial state. */
static int setup(void **state)
{
	struct lines *lines = calloc(1, sizeof(*lines));

	gn_log_to(keep_line, lines);
	*state = lines;
	return lines ? 0 : -1;
}

static int teardown(void **state)
{
	gn_log_to(NULL, NULL);
	free(*state);
	return 0;
}

static void assert_logged(void **state, const char *text)
{
	const struct lines *lines = *state;

	if (!strstr(lines->text, text))
		fail_msg("'%s' is not in the log:\n%s", text, lines->text);
}

static struct gn_sim *make(unsigned nodes, uint64_t seed)
{
	struct gn_sim_opts opts = {.profile = "ideal", .nodes = nodes, .seed = seed};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	return sim;
}

static void spawn(struct gn_sim *sim, unsigned node, gn_node_main *program, void *arg)
{
	assert_int_equal(gn_sim_spawn(sim, node, program, 0, NULL, arg, NULL), 0);
}

/* One process on one node, which is to end well. */
static void run_alone(gn_node_main *program, void *arg)
{
	struct gn_sim *sim = make(1, 1);
	int status = -1;

	spawn(sim, 0, program, arg);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_status(sim, 0, &status), 0);
	assert_int_equal(status, 0);
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

/* For programs: what is not so becomes the exit status. */
#define EXPECT(cond)                                                                   \
	do {                                                                           \
		if (!(cond)) {                                                         \
			print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			return __LINE__;                                               \
		}                                                                      \
	} while (0)

#define PROGRAM(name)                                                         \
	static int name(struct gn_env *env, int argc __attribute__((unused)), \
			char **argv __attribute__((unused)))

/* ---- options ---- */

static void test_bad_options(void **state)
{
	struct gn_sim_opts opts = {.profile = "cx9", .nodes = 1};
	struct gn_sim *sim = NULL;

	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	assert_logged(state, "profile 'cx9'");
	opts = (struct gn_sim_opts){.nodes = 0};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	assert_logged(state, "nodes 0");
	opts = (struct gn_sim_opts){.nodes = 123456};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	assert_logged(state, "nodes 123456");
	opts = (struct gn_sim_opts){.nodes = 1, .stack_bytes = 100};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	assert_logged(state, "stack_bytes 100");
	opts = (struct gn_sim_opts){.nodes = 1, .limit_ns = UINT64_MAX};
	assert_int_equal(gn_sim_create(&opts, &sim), -EINVAL);
	assert_logged(state, "limit_ns 18446744073709551615");
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
	struct gn_sim *sim = make(2, 1);
	int status;

	assert_int_equal(gn_sim_spawn(sim, 2, nothing, 0, NULL, NULL, NULL), -EINVAL);
	assert_logged(state, "node 2");
	assert_int_equal(gn_sim_spawn(sim, 0, nothing, -1, NULL, NULL, NULL), -EINVAL);
	assert_logged(state, "argc -1");
	assert_int_equal(gn_sim_spawn(sim, 0, NULL, 0, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(gn_sim_status(sim, 0, &status), -EINVAL);
	assert_logged(state, "process 0");
	assert_int_equal(gn_sim_kill(sim, 7), -EINVAL);
	assert_int_equal(gn_sim_run(sim), 0);
	gn_sim_destroy(sim);
}

static void test_stack_too_large(void **state)
{
	struct gn_sim_opts opts = {.nodes = 1, .stack_bytes = (size_t)1 << 62};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, nothing, 0, NULL, NULL, NULL), -ENOMEM);
	assert_logged(state, "stack_bytes 4611686018427387904");
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
	struct gn_sim *sim = make(2, 1);
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
	run_alone(leaves_threads, &rounds);
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
	struct killing k = {.sim = make(2, 3)};
	int status = 0;

	(void)state;
	assert_int_equal(gn_sim_spawn(k.sim, 1, victim, 0, NULL, &k, &k.victim), 0);
	spawn(k.sim, 0, killer, &k);
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
	struct gn_sim *sim = make(1, 1);

	spawn(sim, 0, forgets, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_leaks(sim), 2);
	assert_logged(state, "process 0 on n0 left 2 allocations, 1024 bytes");
	gn_sim_destroy(sim);
}

PROGRAM(runs_inside)
{
	return gn_sim_run(env->arg) == -EBUSY ? 0 : 1;
}

static void test_run_inside(void **state)
{
	struct gn_sim *sim = make(1, 1);
	int status = 1;

	spawn(sim, 0, runs_inside, sim);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_status(sim, 0, &status), 0);
	assert_int_equal(status, 0);
	assert_logged(state, "a run inside of a run");
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
	EXPECT(gn_wait(NULL, 0, 0, "nothing") == -ETIMEDOUT); /* looking in vain takes time */
	EXPECT(gn_now_ns() > start + HOUR_NS + 7 * US);
	gn_charge(GN_WORK_NS, 300);
	gn_charge(GN_WORK_COPY, 1 << 20); /* free in this profile */
	return 0;
}

static void test_virtual_time(void **state)
{
	(void)state;
	run_alone(sleeps, NULL);
}

static void test_limit(void **state)
{
	struct gn_sim_opts opts = {.nodes = 1, .limit_ns = 1 * MS};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	spawn(sim, 0, sleeps, NULL);
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
	assert_int_equal(gn_sim_now_ns(sim), 1 * MS);
	assert_logged(state, "limit_ns 1000000");
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
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
	struct gn_sim *sim = make(1, seed);
	uint64_t hash;

	memset(story, 0, sizeof(*story));
	spawn(sim, 0, tells, story);
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
	run_alone(draws, counts);
	for (int i = 0; i < 16; i++)
		assert_in_range(counts[i], 4096 - 400, 4096 + 400); /* six standard deviations */
}

/* ---- locks ---- */

struct shared {
	struct gn_mutex mutex;
	struct gn_cond cond;
	struct gn_once once;
	int inside, total, runs;
	bool open;
};

static void count_up(void *arg)
{
	struct shared *s = arg;

	for (int i = 0; i < 50; i++) {
		int before;

		gn_mutex_lock(&s->mutex);
		before = s->total;
		s->inside++;
		gn_yield();
		if (s->inside == 1)
			s->total = before + 1;
		s->inside--;
		gn_mutex_unlock(&s->mutex);
	}
}

PROGRAM(counts)
{
	struct shared *s = gn_alloc(sizeof(*s), 0);
	struct gn_thread *threads[8];

	(void)env;
	gn_mutex_init(&s->mutex);
	for (int i = 0; i < 8; i++)
		EXPECT(gn_thread_start("counter", count_up, s, &threads[i]) == 0);
	for (int i = 0; i < 8; i++)
		EXPECT(gn_thread_join(threads[i]) == 0);
	EXPECT(s->total == 400);
	gn_mutex_fini(&s->mutex);
	gn_free(s);
	return 0;
}

static void test_mutex(void **state)
{
	(void)state;
	run_alone(counts, NULL);
}

static void pass_gate(void *arg)
{
	struct shared *s = arg;

	gn_mutex_lock(&s->mutex);
	while (!s->open)
		gn_cond_wait(&s->cond, &s->mutex, GN_FOREVER, "the gate");
	s->total++;
	gn_mutex_unlock(&s->mutex);
}

PROGRAM(opens_gate)
{
	struct shared *s = gn_alloc(sizeof(*s), 0);
	struct gn_thread *threads[5];
	uint64_t until = gn_now_ns() + 1 * MS;

	(void)env;
	gn_mutex_init(&s->mutex);
	gn_cond_init(&s->cond);
	for (int i = 0; i < 5; i++)
		EXPECT(gn_thread_start("passer", pass_gate, s, &threads[i]) == 0);
	gn_mutex_lock(&s->mutex);
	EXPECT(gn_cond_wait(&s->cond, &s->mutex, until, "nobody") == -ETIMEDOUT);
	EXPECT(gn_now_ns() == until);
	EXPECT(s->total == 0);
	gn_cond_signal(&s->cond); /* wakes one for no reason */
	gn_mutex_unlock(&s->mutex);
	gn_sleep_us(1);
	gn_mutex_lock(&s->mutex);
	s->open = true;
	gn_cond_broadcast(&s->cond);
	gn_mutex_unlock(&s->mutex);
	for (int i = 0; i < 5; i++)
		EXPECT(gn_thread_join(threads[i]) == 0);
	EXPECT(s->total == 5);
	gn_cond_fini(&s->cond);
	gn_mutex_fini(&s->mutex);
	gn_free(s);
	return 0;
}

static void test_cond(void **state)
{
	(void)state;
	run_alone(opens_gate, NULL);
}

static void only_once(void *arg)
{
	struct shared *s = arg;

	gn_sleep_us(100);
	s->runs++;
}

static void want_once(void *arg)
{
	struct shared *s = arg;

	gn_once(&s->once, only_once, s);
	s->total += s->runs;
}

PROGRAM(does_once)
{
	struct shared *s = gn_alloc(sizeof(*s), 0);
	struct gn_thread *threads[4];

	(void)env;
	for (int i = 0; i < 4; i++)
		EXPECT(gn_thread_start("once", want_once, s, &threads[i]) == 0);
	for (int i = 0; i < 4; i++)
		EXPECT(gn_thread_join(threads[i]) == 0);
	EXPECT(s->runs == 1 && s->total == 4);
	gn_free(s);
	return 0;
}

static void test_once(void **state)
{
	(void)state;
	run_alone(does_once, NULL);
}

struct slots {
	struct gn_slot *slot;
	int destroyed;
};

static void count_destroyed(void *value)
{
	++*(int *)value;
}

static void use_slot(void *arg)
{
	struct slots *s = arg;

	if (gn_slot_get(s->slot))
		s->destroyed += 1000;
	gn_slot_set(s->slot, &s->destroyed);
	gn_yield();
	if (gn_slot_get(s->slot) != &s->destroyed)
		s->destroyed += 1000;
}

PROGRAM(uses_slots)
{
	struct slots s = {.destroyed = 0};
	struct gn_thread *threads[3];

	(void)env;
	EXPECT(gn_slot_create(count_destroyed, &s.slot) == 0);
	for (int i = 0; i < 3; i++)
		EXPECT(gn_thread_start("slot", use_slot, &s, &threads[i]) == 0);
	for (int i = 0; i < 3; i++)
		EXPECT(gn_thread_join(threads[i]) == 0);
	EXPECT(s.destroyed == 3);
	EXPECT(!gn_slot_get(s.slot));
	gn_slot_destroy(s.slot);
	return 0;
}

static void test_slots(void **state)
{
	(void)state;
	run_alone(uses_slots, NULL);
}

/* ---- waiting ---- */

static void push_late(void *arg)
{
	for (uintptr_t i = 1; i <= 10; i++) {
		gn_sleep_us(i);
		while (gn_queue_push(arg, (void *)i))
			gn_yield();
	}
}

PROGRAM(waits_for_queue)
{
	struct gn_thread *thread;
	struct gn_queue *queue;
	struct gn_wait_item item;

	(void)env;
	EXPECT(gn_queue_create(4, &queue) == 0);
	EXPECT(gn_thread_start("pusher", push_late, queue, &thread) == 0);
	item = gn_wait_on(gn_queue_source(queue));
	for (uintptr_t i = 1; i <= 10; i++) {
		EXPECT(gn_wait(&item, 1, GN_FOREVER, "an item") == 1);
		EXPECT(item.ready);
		EXPECT(gn_queue_pop(queue) == (void *)i);
		EXPECT(gn_now_ns() == i * (i + 1) / 2 * US);
	}
	EXPECT(gn_wait(&item, 1, gn_deadline_us(5), "no item") == -ETIMEDOUT);
	EXPECT(!item.ready);
	EXPECT(gn_thread_join(thread) == 0);
	gn_queue_destroy(queue);
	return 0;
}

static void test_wait_queue(void **state)
{
	(void)state;
	run_alone(waits_for_queue, NULL);
}

static void store_late(void *arg)
{
	uint64_t *words = arg;

	gn_sleep_us(5);
	words[1] = 7; /* seen by others when this thread parks */
	gn_sleep_us(5);
	words[0] = 9; /* … or ends */
}

PROGRAM(waits_for_words)
{
	uint64_t *words = gn_alloc(2 * sizeof(*words), 0);
	struct gn_wait_item items[2] = {gn_wait_word(&words[0], 0), gn_wait_word(&words[1], 0)};
	struct gn_thread *thread;

	(void)env;
	EXPECT(gn_thread_start("storer", store_late, words, &thread) == 0);
	EXPECT(gn_wait(items, 2, GN_FOREVER, "a word") == 1);
	EXPECT(!items[0].ready && items[1].ready && words[1] == 7);
	EXPECT(gn_now_ns() == 5 * US);
	items[1] = gn_wait_word(&words[1], 7);
	EXPECT(gn_wait(items, 2, GN_FOREVER, "the other word") == 1);
	EXPECT(items[0].ready && gn_now_ns() == 10 * US);
	EXPECT(gn_wait(items, 2, 0, "now") == 1);
	EXPECT(gn_thread_join(thread) == 0);
	gn_free(words);
	return 0;
}

static void test_wait_words(void **state)
{
	(void)state;
	run_alone(waits_for_words, NULL);
}

PROGRAM(waits_for_fd)
{
	struct gn_wait_item item = gn_wait_fd(0);

	(void)env;
	EXPECT(gn_wait(&item, 1, GN_FOREVER, "input") == -EOPNOTSUPP);
	return 0;
}

static void test_wait_fd(void **state)
{
	run_alone(waits_for_fd, NULL);
	assert_logged(state, "fd 0");
}

/* ---- bad ends ---- */

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
	struct gn_sim *sim = make(2, 5);
	int status;

	spawn(sim, 1, deadlocks, NULL);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	assert_logged(state, "deadlock at 3000 ns");
	assert_logged(state,
		      "n1 process 0 thread 1 'main' waits for the end of a thread (thread 4)");
	assert_logged(state, "thread 2 'signalled' waits for a signal that never comes");
	assert_logged(state, "thread 3 'holder' waits for the end of days");
	assert_logged(state, "thread 4 'locker' waits for a mutex (thread 3)");
	assert_int_equal(gn_sim_status(sim, 0, &status), -EAGAIN);
	gn_sim_destroy(sim); /* with its threads parked, memory taken and locks held */
}

PROGRAM(yields_for_ever)
{
	struct gn_wait_item nothing_there = gn_wait_word(env->arg, 0);

	for (;;) {
		gn_yield();
		gn_wait(&nothing_there, 1, 0, "nothing");
	}
	return 0;
}

static void test_empty_polls(void **state)
{
	struct gn_sim *sim = make(1, 1);
	uint64_t word = 0;

	spawn(sim, 0, yields_for_ever, &word);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	assert_logged(state,
		      "thread 1 'main' of process 0 on n0 polled or yielded in vain 1000000 times");
	assert_int_equal(gn_sim_now_ns(sim), 50u * (1000000 - 1));
	assert_int_equal(gn_sim_kill(sim, 0), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	gn_sim_destroy(sim);
}

/* ---- fibers inside of simulated threads ---- */

struct inner {
	struct gn_fiber *home, *fiber[2];
	unsigned rounds[2], which;
	uint64_t slept_ns;
};

static void inner_main(void *arg)
{
	struct inner *inner = arg;
	const unsigned me = inner->which;

	for (;;) {
		uint64_t before = gn_now_ns();

		gn_sleep_us(me + 1); /* parks the simulated thread while it runs on this stack */
		inner->slept_ns += gn_now_ns() - before;
		inner->rounds[me]++;
		gn_fiber_switch(inner->fiber[me], inner->home);
	}
}

static void run_inner(void *arg)
{
	struct inner *inner = arg;

	if (gn_fiber_adopt(&inner->home))
		return;
	for (inner->which = 0; inner->which < 2; inner->which++) {
		if (gn_fiber_create(inner_main, inner, 65536, &inner->fiber[inner->which]))
			return;
		gn_fiber_switch(inner->home, inner->fiber[inner->which]);
	}
	for (int i = 0; i < 19; i++) {
		gn_fiber_switch(inner->home, inner->fiber[0]);
		gn_yield();
		gn_fiber_switch(inner->home, inner->fiber[1]);
	}
	gn_fiber_destroy(inner->fiber[0]);
	gn_fiber_destroy(inner->fiber[1]);
	gn_fiber_destroy(inner->home);
}

PROGRAM(runs_fibers)
{
	struct inner inner[4] = {{.which = 0}};
	struct gn_thread *threads[4];

	(void)env;
	for (int i = 0; i < 4; i++)
		EXPECT(gn_thread_start("fibers", run_inner, &inner[i], &threads[i]) == 0);
	for (int i = 0; i < 4; i++) {
		EXPECT(gn_thread_join(threads[i]) == 0);
		EXPECT(inner[i].rounds[0] == 20 && inner[i].rounds[1] == 20);
		EXPECT(inner[i].slept_ns == 20 * 3 * US);
	}
	return 0;
}

static void test_inner_fibers(void **state)
{
	(void)state;
	run_alone(runs_fibers, NULL);
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
	struct gn_sim *sim = make(100, 9);
	int done = 0, status;

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		spawn(sim, i, four_threads, &done);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(done, 400);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		assert_int_equal(status, 0);
	}
	gn_sim_destroy(sim);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bad_options),
		TEST(test_bad_spawn),
		TEST(test_stack_too_large),
		TEST(test_environment),
		TEST(test_end_takes_threads),
		TEST(test_kill),
		TEST(test_leaks),
		TEST(test_run_inside),
		TEST(test_virtual_time),
		TEST(test_limit),
		TEST(test_determinism),
		TEST(test_random),
		TEST(test_mutex),
		TEST(test_cond),
		TEST(test_once),
		TEST(test_slots),
		TEST(test_wait_queue),
		TEST(test_wait_words),
		TEST(test_wait_fd),
		TEST(test_deadlock),
		TEST(test_empty_polls),
		TEST(test_inner_fibers),
		TEST(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
