/* SPDX-License-Identifier: MIT */
/*
 * The cross-thread queue: order, bounds, many producers at once, and above all that a sleeping
 * consumer is woken.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/exec.h"

static struct gn_queue *queue;

static void *item(uintptr_t value)
{
	return (void *)value;
}

static void test_order_and_bound(void **state)
{
	(void)state;
	assert_int_equal(gn_queue_create(5, &queue), 0);
	assert_null(gn_queue_pop(queue));
	for (uintptr_t lap = 0; lap < 10; lap++) {
		for (uintptr_t i = 1; i <= 8; i++)
			assert_int_equal(gn_queue_push(queue, item(i)), 0);
		assert_int_equal(gn_queue_push(queue, item(9)), -EAGAIN);
		for (uintptr_t i = 1; i <= 8; i++)
			assert_ptr_equal(gn_queue_pop(queue), item(i));
		assert_null(gn_queue_pop(queue));
	}
	gn_queue_destroy(queue);
}

static void test_refuses(void **state)
{
	(void)state;
	queue = NULL;
	assert_int_equal(gn_queue_create(0, &queue), -EINVAL);
	assert_int_equal(gn_queue_create(UINT32_MAX, &queue), -EINVAL);
	assert_null(queue);
	gn_queue_destroy(NULL);
	assert_int_equal(gn_queue_create(1, &queue), 0);
	assert_int_equal(gn_queue_push(queue, NULL), -EINVAL);
	assert_int_equal(gn_queue_push(queue, item(1)), 0);
	gn_queue_destroy(queue); /* with an item in it */
}

static void test_out_of_fds(void **state)
{
	struct rlimit old, none;
	int err, next = dup(0);

	(void)state;
	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	queue = NULL;
	err = gn_queue_create(8, &queue);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(err, -EMFILE);
	assert_null(queue);
}

/* ---- many producers ---- */

#define PRODUCERS 4
#define EACH	  50000u

static atomic_bool give_up;

static void produce(void *arg)
{
	uintptr_t me = (uintptr_t)arg;

	for (uintptr_t i = 1; i <= EACH; i++) {
		while (gn_queue_push(queue, item(me << 32 | i)) == -EAGAIN) {
			if (atomic_load(&give_up))
				return;
			gn_yield();
		}
	}
}

/* Nothing is lost, nothing comes twice, and one producer's items come in its order. */
static void test_many_producers(void **state)
{
	struct gn_thread *threads[PRODUCERS];
	struct gn_wait_item wait;
	uintptr_t last[PRODUCERS] = {0};
	unsigned got = 0, wrong = 0;
	uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);

	(void)state;
	assert_int_equal(gn_queue_create(64, &queue), 0);
	wait = gn_wait_on(gn_queue_source(queue));
	for (uintptr_t i = 0; i < PRODUCERS; i++)
		assert_int_equal(gn_thread_start("producer", produce, item(i), &threads[i]), 0);
	while (got < PRODUCERS * EACH) {
		uintptr_t value = (uintptr_t)gn_queue_pop(queue);

		if (value) {
			got++;
			wrong += (value & UINT32_MAX) != ++last[value >> 32];
		} else if (gn_wait(&wait, 1, deadline_ns, "items") == -ETIMEDOUT) {
			break;
		}
	}
	atomic_store(&give_up, true);
	for (int i = 0; i < PRODUCERS; i++)
		gn_thread_join(threads[i]);
	assert_int_equal(got, PRODUCERS * EACH);
	assert_int_equal(wrong, 0);
	assert_null(gn_queue_pop(queue));
	gn_queue_destroy(queue);
}

/* ---- wake-ups ---- */

#define WAKEUPS 100000u

static atomic_uint taken;

static void pause_randomly(uint64_t *seed)
{
	for (volatile uint32_t spin = unit_next(seed) % 512; spin > 0; spin--)
		;
}

/*
 * Pushes one item when the last was taken, and so before, while or after the consumer arms. It
 * spins for that, or the two would end up taking turns on one core and never meet.
 */
static void push_each(void *arg)
{
	uint64_t seed = *(uint64_t *)arg;

	for (unsigned i = 0; i < WAKEUPS && !atomic_load(&give_up); i++) {
		for (unsigned spin = 0; atomic_load(&taken) < i && !atomic_load(&give_up); spin++) {
			if (spin > 10000)
				gn_yield();
		}
		pause_randomly(&seed);
		gn_queue_push(queue, item(i + 1));
	}
}

/* The consumer arms without the long spinning that would hide a lost wake-up. */
static void test_no_wakeup_is_lost(void **state)
{
	uint64_t seed = unit_seed(), pusher_seed = seed + 1;
	struct gn_source *source;
	struct gn_thread *thread;
	unsigned sleeps = 0, late = 0, lost = 0;

	(void)state;
	atomic_store(&give_up, false);
	atomic_store(&taken, 0);
	assert_int_equal(gn_queue_create(2, &queue), 0);
	source = gn_queue_source(queue);
	assert_int_equal(gn_thread_start("pusher", push_each, &pusher_seed, &thread), 0);
	for (unsigned i = 0; i < WAKEUPS && !lost;) {
		struct pollfd fd = {.events = POLLIN};

		if (gn_queue_pop(queue)) {
			atomic_store(&taken, ++i);
			continue;
		}
		pause_randomly(&seed);
		fd.fd = source->ops->arm(source);
		if (fd.fd < 0) {
			late++;
			continue;
		}
		sleeps++;
		lost = poll(&fd, 1, (int)(UNIT_PATIENCE_US / 1000)) == 0;
		source->ops->disarm(source);
	}
	atomic_store(&give_up, true);
	gn_thread_join(thread);
	gn_queue_destroy(queue);
	printf("# slept %u times, saw an item while arming %u times\n", sleeps, late);
	assert_int_equal(lost, 0);
}

static void push_late(void *arg)
{
	gn_sleep_us(*(uint64_t *)arg);
	gn_queue_push(queue, item(1));
}

/* Through gn_wait(), in its spin, its yielding and its sleep. */
static void test_wait_is_woken(void **state)
{
	static uint64_t delays_us[] = {0, 10, 50, 110, 120, 130, 500, 5000, 20000};
	struct gn_wait_item wait;
	struct gn_thread *thread;

	(void)state;
	assert_int_equal(gn_queue_create(2, &queue), 0);
	for (size_t i = 0; i < sizeof(delays_us) / sizeof(delays_us[0]); i++) {
		uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
		int rc;

		wait = gn_wait_on(gn_queue_source(queue));
		assert_int_equal(gn_wait(&wait, 1, GN_NO_WAIT, "nothing yet"), -ETIMEDOUT);
		assert_int_equal(gn_thread_start("late", push_late, &delays_us[i], &thread), 0);
		do
			rc = gn_wait(&wait, 1, deadline_ns, "a late push");
		while (rc == 0);
		gn_thread_join(thread);
		assert_int_equal(rc, 1);
		assert_true(wait.ready);
		assert_ptr_equal(gn_queue_pop(queue), item(1));
	}
	gn_queue_destroy(queue);
}

/* ---- in a simulation ---- */

static struct gn_wait_item *woken;

static void fake_wake(struct gn_wait_item *waiters)
{
	woken = waiters;
}

static int fds_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_simulated(void **state)
{
	struct exec_ops fake = exec_real;
	const struct exec_ops *old;
	struct gn_source *source;
	struct gn_wait_item parked;
	int before = fds_open();

	(void)state;
	fake.name = "fake";
	old = exec_install(&fake);
	assert_ptr_equal(old, &exec_real);
	assert_int_equal(gn_queue_create(4, &queue), 0);
	assert_int_equal(fds_open(), before);
	source = gn_queue_source(queue);
	parked = gn_wait_on(source);
	assert_int_equal(gn_queue_push(queue, item(1)), 0); /* nobody waits */
	assert_null(woken);
	assert_ptr_equal(gn_queue_pop(queue), item(1));
	source->waiters = &parked;
	source->wake = fake_wake;
	assert_false(source->ops->ready(source));
	assert_int_equal(gn_queue_push(queue, item(2)), 0);
	assert_ptr_equal(woken, &parked);
	assert_true(source->ops->ready(source));
	source->waiters = NULL;
	gn_queue_destroy(queue);
	assert_int_equal(fds_open(), before);
	assert_ptr_equal(exec_install(old), &fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_bound),	  cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_out_of_fds),	  cmocka_unit_test(test_many_producers),
		cmocka_unit_test(test_no_wakeup_is_lost), cmocka_unit_test(test_wait_is_woken),
		cmocka_unit_test(test_simulated),
	};

	return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
