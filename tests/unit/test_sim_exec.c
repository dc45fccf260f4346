/* SPDX-License-Identifier: MIT */
/*
 * Threads, locks, slots, waiting and fibers in a simulation: the same calls as in a process, between
 * simulated threads and at exact virtual times.
 */
#include <errno.h>

#include "unit_sim.h"

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

PROGRAM(locks_twice)
{
	struct gn_mutex mutex;

	(void)env;
	gn_mutex_init(&mutex);
	gn_mutex_lock(&mutex);
	gn_mutex_lock(&mutex);
	return 0;
}

static void test_mutex_twice(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);

	sim_spawn(sim, 0, locks_twice, NULL);
	assert_int_equal(gn_sim_run(sim), -EDEADLK);
	sim_assert_logged(state, "waits for a mutex (thread 1)");
	gn_sim_destroy(sim);
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

static void only_once(void *arg)
{
	struct shared *s = arg;

	gn_sleep_us(100);
	s->runs++;
}

static void want_once(void *arg)
{
	struct shared *s = arg;

	gn_once_run(&s->once, only_once, s);
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
	EXPECT(gn_wait(items, 2, GN_NO_WAIT, "now") == 1);
	EXPECT(gn_thread_join(thread) == 0);
	gn_free(words);
	return 0;
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
	sim_run_alone(waits_for_fd, NULL);
	sim_assert_logged(state, "fd 0");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST_ALONE(test_mutex, counts),
		SIM_TEST(test_mutex_twice),
		SIM_TEST_ALONE(test_cond, opens_gate),
		SIM_TEST_ALONE(test_once, does_once),
		SIM_TEST_ALONE(test_slots, uses_slots),
		SIM_TEST_ALONE(test_wait_queue, waits_for_queue),
		SIM_TEST_ALONE(test_wait_words, waits_for_words),
		SIM_TEST(test_wait_fd),
		SIM_TEST_ALONE(test_inner_fibers, runs_fibers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
