/* SPDX-License-Identifier: MIT */
/* Timers against a plain list: the same fire, in order of their times, whatever is set and moved. */
#include "base/bits.h"
#include "link/timer.h"
#include "unit.h"

#define TIMERS 200u
#define STEPS  200000u

struct item {
	struct link_timer timer;
	uint64_t due_ns; /* as the list has it */
	unsigned fired;
};

static struct item items[TIMERS];
static struct link_timers timers;
static uint64_t last_ns, fired;

static void fire(struct link_timer *timer, uint64_t now_ns)
{
	struct item *item = container_of(timer, struct item, timer);

	assert_true(item->due_ns <= now_ns);
	assert_true(item->due_ns >= last_ns); /* in order */
	last_ns = item->due_ns;
	item->due_ns = GN_FOREVER;
	item->fired++;
	fired++;
}

static uint64_t first_due(void)
{
	uint64_t first = GN_FOREVER;

	for (unsigned i = 0; i < TIMERS; i++)
		first = items[i].due_ns < first ? items[i].due_ns : first;
	return first;
}

static void test_against_list(void **state)
{
	uint64_t seed = unit_seed(), now_ns = 1;

	(void)state;
	for (unsigned i = 0; i < TIMERS; i++) {
		link_timer_init(&items[i].timer, fire);
		items[i].due_ns = GN_FOREVER;
	}
	for (unsigned step = 0; step < STEPS; step++) {
		struct item *item = &items[unit_next(&seed) % TIMERS];
		const uint64_t what = unit_next(&seed) % 8;

		if (what < 5)
			item->due_ns = now_ns + 1 + unit_next(&seed) % 1000;
		else if (what == 5)
			item->due_ns = GN_FOREVER;
		if (what <= 5)
			link_timer_set(&timers, &item->timer, item->due_ns);
		assert_int_equal(link_timers_due(&timers), first_due());
		if (what < 7)
			continue;
		now_ns += unit_next(&seed) % 100;
		last_ns = 0;
		link_timers_run(&timers, now_ns);
		assert_true(first_due() > now_ns); /* none was forgotten */
	}
	assert_true(fired > STEPS / 100);
}

/* One that fires may end others that are due, itself be set again, and all that in one run. */
static void cancel_second(struct link_timer *timer, uint64_t now_ns)
{
	(void)timer;
	link_timer_set(&timers, &items[1].timer, GN_FOREVER);
	link_timer_set(&timers, &items[0].timer, now_ns + 10);
	items[0].fired++;
}

static void test_change_while_firing(void **state)
{
	(void)state;
	timers.root = NULL;
	for (unsigned i = 0; i < 3; i++) {
		items[i] = (struct item){.due_ns = 5};
		link_timer_init(&items[i].timer, i ? fire : cancel_second);
	}
	link_timer_set(&timers, &items[0].timer, 4);
	link_timer_set(&timers, &items[1].timer, 5);
	link_timer_set(&timers, &items[2].timer, 5);
	last_ns = 0;
	link_timers_run(&timers, 6);
	assert_int_equal(items[0].fired, 1);
	assert_int_equal(items[1].fired, 0);
	assert_int_equal(items[2].fired, 1);
	assert_int_equal(link_timers_due(&timers), 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_list),
		cmocka_unit_test(test_change_while_firing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
