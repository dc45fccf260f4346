/* SPDX-License-Identifier: MIT */
/*
 * gn_wait() in a process: words, descriptors and sources, deadlines, signals, sources that cannot
 * wake or change their mind while being armed, and that a sleep is one.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/exec.h"

#define SHORT_US 2000u

/* Waits as a caller should: 0 means look again. */
static int wait_for(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns)
{
	int rc;

	do
		rc = gn_wait(items, n, deadline_ns, "test");
	while (rc == 0);
	return rc;
}

static uint64_t cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* ---- words ---- */

static uint64_t word;

static void set_word(void *arg)
{
	gn_sleep_us(*(uint64_t *)arg);
	__atomic_store_n(&word, 2, __ATOMIC_RELEASE);
}

static void test_word(void **state)
{
	static uint64_t delays_us[] = {0, 50, 15000};
	struct gn_wait_item item = gn_wait_word(&word, 1);
	struct gn_thread *thread;

	(void)state;
	word = 1;
	assert_int_equal(gn_wait(&item, 1, GN_NO_WAIT, "test"), -ETIMEDOUT);
	assert_false(item.ready);
	for (size_t i = 0; i < sizeof(delays_us) / sizeof(delays_us[0]); i++) {
		int rc;

		word = 1;
		assert_int_equal(gn_thread_start("setter", set_word, &delays_us[i], &thread), 0);
		rc = wait_for(&item, 1, gn_deadline_us(UNIT_PATIENCE_US));
		gn_thread_join(thread);
		assert_int_equal(rc, 1);
		assert_true(item.ready);
	}
	assert_int_equal(gn_wait(&item, 1, GN_NO_WAIT, "test"), 1);
}

/* ---- deadlines ---- */

static void test_deadline(void **state)
{
	struct gn_wait_item item;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	word = 1;
	for (int kind = 0; kind < 3; kind++) {
		uint64_t deadline_ns = gn_deadline_us(SHORT_US);

		item = kind == 1 ? gn_wait_word(&word, 1) : gn_wait_fd(fds[0]);
		assert_int_equal(wait_for(&item, kind == 2 ? 0 : 1, deadline_ns), -ETIMEDOUT);
		assert_true(gn_now_ns() >= deadline_ns);
		assert_int_equal(gn_wait(&item, 1, 1, "test"), -ETIMEDOUT); /* long past */
	}
	close(fds[0]);
	close(fds[1]);
}

static void test_too_many(void **state)
{
	static struct gn_wait_item items[GN_WAIT_MAX + 1];

	(void)state;
	word = 1;
	for (int i = 0; i <= GN_WAIT_MAX; i++)
		items[i] = gn_wait_word(&word, 1);
	assert_int_equal(gn_wait(items, GN_WAIT_MAX + 1, GN_NO_WAIT, "test"), -EINVAL);
	assert_int_equal(gn_wait(items, GN_WAIT_MAX, GN_NO_WAIT, "test"), -ETIMEDOUT);
	items[3].seen = 0;
	assert_int_equal(gn_wait(items, GN_WAIT_MAX, GN_NO_WAIT, "test"), 1);
	assert_true(items[3].ready);
	assert_false(items[4].ready);
}

/* ---- descriptors ---- */

static int write_fd;

static void write_late(void *arg)
{
	gn_sleep_us(*(uint64_t *)arg);
	if (write(write_fd, "x", 1) != 1)
		perror("write");
}

static void test_fd(void **state)
{
	static uint64_t delay_us = 10000;
	struct gn_wait_item items[2];
	struct gn_thread *thread;
	int fds[2], quiet[2], rc;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(quiet), 0);
	items[0] = gn_wait_fd(quiet[0]);
	items[1] = gn_wait_fd(fds[0]);
	write_fd = fds[1];
	assert_int_equal(gn_thread_start("writer", write_late, &delay_us, &thread), 0);
	rc = wait_for(items, 2, gn_deadline_us(UNIT_PATIENCE_US));
	gn_thread_join(thread);
	assert_int_equal(rc, 1);
	assert_false(items[0].ready);
	assert_true(items[1].ready);
	close(quiet[1]); /* a hang-up is ready too */
	assert_int_equal(gn_wait(items, 2, GN_NO_WAIT, "test"), 2);
	close(fds[0]);
	close(fds[1]);
	close(quiet[0]);
}

/* 200 ms asleep must not cost 20 ms of processor time, whatever the machine's load. */
static void test_sleep_is_idle(void **state)
{
	struct gn_wait_item items[2];
	struct gn_queue *queue;
	uint64_t before_us;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(gn_queue_create(4, &queue), 0);
	items[0] = gn_wait_fd(fds[0]);
	items[1] = gn_wait_on(gn_queue_source(queue));
	before_us = cpu_us();
	assert_int_equal(wait_for(items, 2, gn_deadline_us(200000)), -ETIMEDOUT);
	assert_in_range(cpu_us() - before_us, 0, 20000);
	gn_queue_destroy(queue);
	close(fds[0]);
	close(fds[1]);
}

/* ---- signals ---- */

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

/* The timer goes on until a signal meets the sleep. */
static void test_signal(void **state)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {.it_interval = {0, 2000}, .it_value = {0, 2000}};
	struct itimerval never = {{0, 0}, {0, 0}};
	struct gn_wait_item item;
	int fds[2], on_fd, on_word;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	setitimer(ITIMER_REAL, &often, NULL);
	item = gn_wait_fd(fds[0]);
	on_fd = wait_for(&item, 1, GN_FOREVER);
	/* A set that cannot sleep has no sleep to be woken from, but it returns all the same. */
	word = 1;
	item = gn_wait_word(&word, 1);
	on_word = gn_wait(&item, 1, GN_FOREVER, "test");
	setitimer(ITIMER_REAL, &never, NULL);
	assert_int_equal(on_fd, -EINTR);
	assert_int_equal(on_word, 0);
	assert_true(alarms > 0);
	close(fds[0]);
	close(fds[1]);
}

/* ---- sources with a will of their own ---- */

struct fake {
	struct gn_source source;
	int fd;
	int arm_error;
	int ready_after; /* looks */
	int looks, arms, disarms;
};

static bool fake_ready(struct gn_source *source)
{
	struct fake *fake = (struct fake *)source;

	return ++fake->looks > fake->ready_after;
}

static int fake_arm(struct gn_source *source)
{
	struct fake *fake = (struct fake *)source;

	if (fake->arm_error) {
		if (fake->arm_error == -EAGAIN)
			fake->ready_after = 0;
		return fake->arm_error;
	}
	fake->arms++;
	return fake->fd;
}

static void fake_disarm(struct gn_source *source)
{
	struct fake *fake = (struct fake *)source;

	fake->disarms++;
}

static const struct source_ops fake_ops = {
	.ready = fake_ready, .arm = fake_arm, .disarm = fake_disarm};

static struct fake fake_source(int fd)
{
	struct fake fake = {.fd = fd, .ready_after = INT32_MAX};

	source_init(&fake.source, &fake_ops);
	return fake;
}

/* The second member refuses; the first, armed already, is disarmed, and nobody sleeps for ever. */
static void test_cannot_sleep(void **state)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct fake first = fake_source(fd), second = fake_source(fd);
	struct gn_wait_item items[] = {gn_wait_on(&first.source), gn_wait_on(&second.source)};

	(void)state;
	second.arm_error = -EOPNOTSUPP;
	assert_int_equal(wait_for(items, 2, gn_deadline_us(SHORT_US)), -ETIMEDOUT);
	assert_int_equal(first.arms, first.disarms);
	assert_int_equal(second.disarms, 0);
	second.arm_error = -EAGAIN;
	assert_int_equal(wait_for(items, 2, GN_FOREVER), 1);
	assert_false(items[0].ready);
	assert_true(items[1].ready);
	assert_int_equal(first.arms, first.disarms);
	close(fd);
}

/*
 * Ready between the last look and the arming: the look after the arming must see it, as no event
 * comes.
 */
static bool ready_once_armed(struct gn_source *source)
{
	return ((struct fake *)source)->arms > 0;
}

static void test_looks_after_arming(void **state)
{
	static const struct source_ops late_ops = {
		.ready = ready_once_armed, .arm = fake_arm, .disarm = fake_disarm};
	int fd = eventfd(0, EFD_NONBLOCK);
	struct fake fake = fake_source(fd);
	struct gn_wait_item item = gn_wait_on(&fake.source);

	(void)state;
	fake.source.ops = &late_ops;
	assert_int_equal(wait_for(&item, 1, gn_deadline_us(UNIT_PATIENCE_US)), 1);
	assert_int_equal(fake.arms, 1);
	assert_int_equal(fake.disarms, 1);
	close(fd);
}

/* One poll after arming, one after the sleep. */
static void test_sleeps_at_once(void **state)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct fake fake = fake_source(fd);
	struct gn_wait_item item = gn_wait_on(&fake.source);

	(void)state;
	assert_int_equal(gn_wait_sleep(&item, 1, GN_NO_WAIT, "test"), -ETIMEDOUT);
	assert_int_equal(fake.arms, 0);
	fake.looks = 0;
	assert_int_equal(gn_wait_sleep(&item, 1, gn_deadline_us(SHORT_US), "test"), -ETIMEDOUT);
	assert_int_equal(fake.looks, 2);
	assert_int_equal(fake.arms, 1);
	assert_int_equal(fake.disarms, 1);
	fake.ready_after = 2; /* seen by the poll after arming: no sleep */
	assert_int_equal(gn_wait_sleep(&item, 1, GN_FOREVER, "test"), 1);
	assert_int_equal(fake.looks, 3);
	assert_int_equal(fake.arms, 2);
	assert_int_equal(fake.disarms, 2);
	close(fd);
}

/* A wake-up without anything ready (a stale event) does not end the wait. */
static void test_stale_event(void **state)
{
	int fd = eventfd(1, EFD_NONBLOCK);
	struct fake fake = fake_source(fd);
	struct gn_wait_item item = gn_wait_on(&fake.source);

	(void)state;
	assert_int_equal(wait_for(&item, 1, gn_deadline_us(SHORT_US)), -ETIMEDOUT);
	assert_int_equal(fake.arms, fake.disarms);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word),	       cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_too_many),       cmocka_unit_test(test_fd),
		cmocka_unit_test(test_sleep_is_idle),  cmocka_unit_test(test_signal),
		cmocka_unit_test(test_cannot_sleep),   cmocka_unit_test(test_looks_after_arming),
		cmocka_unit_test(test_sleeps_at_once), cmocka_unit_test(test_stale_event),
	};

	return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
