/* SPDX-License-Identifier: MIT */
/*
 * The calls of gannet/base.h on exec_real: time, randomness, memory, threads, locks, slots, once;
 * errors' texts; and that an installed table gets every one of them.
 */
#include "unit.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/counter.h"
#include "base/exec.h"

/* ---- time, randomness, memory ---- */

static void test_time(void **state)
{
	uint64_t start_ns = gn_now_ns();

	(void)state;
	gn_sleep_us(1000);
	assert_true(gn_now_ns() - start_ns >= 1000000);
	assert_true(gn_deadline_us(1000000) > gn_now_ns());
	assert_int_equal(gn_deadline_us(UINT64_MAX), GN_FOREVER);
	assert_int_equal(gn_deadline_us(UINT64_MAX / 1000), GN_FOREVER);
	gn_charge(GN_WORK_COPY, 1 << 20);
	gn_yield();
}

#define DRAWS 1000

static void test_random(void **state)
{
	uint64_t ones = 0, zeros = 0, last = gn_random();
	unsigned same = 0;

	(void)state;
	for (int i = 0; i < DRAWS; i++) {
		uint64_t next = gn_random();

		same += next == last;
		ones |= next;
		zeros |= ~next;
		last = next;
	}
	assert_int_equal(same, 0);
	assert_int_equal(ones & zeros, UINT64_MAX);
}

/* A child must not repeat what its parent draws. Runs before any thread exists. */
static void test_random_after_fork(void **state)
{
	uint64_t theirs = 0;
	int fds[2], status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	gn_random(); /* the rest of the pool is what could be shared */
	pid = fork();
	if (pid == 0) {
		uint64_t mine = gn_random();

		_exit(write(fds[1], &mine, sizeof(mine)) != sizeof(mine));
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(read(fds[0], &theirs, sizeof(theirs)), sizeof(theirs));
	assert_true(theirs != gn_random());
	close(fds[0]);
	close(fds[1]);
}

static void test_memory(void **state)
{
	(void)state;
	for (size_t align = 0; align <= 65536; align = align ? align * 2 : 1) {
		size_t size = align + 100;
		unsigned char *ptr = gn_alloc(size, align);

		assert_non_null(ptr);
		if (align)
			assert_int_equal((uintptr_t)ptr % align, 0);
		for (size_t i = 0; i < size; i++)
			assert_int_equal(ptr[i], 0);
		memset(ptr, 0xff, size);
		gn_free(ptr);
	}
	gn_free(gn_alloc(0, 0));
	gn_free(NULL);
	assert_null(gn_alloc(100, 48));
	if (!UNIT_SANITIZED) /* they take it for a bug */
		assert_null(gn_alloc(SIZE_MAX / 2, 4096));
}

/* ---- threads ---- */

static atomic_uint started;
static uint64_t ids[8];
static char names[8][16];

static void thread_main(void *arg)
{
	uintptr_t me = (uintptr_t)arg;

	ids[me] = gn_thread_id();
	pthread_getname_np(pthread_self(), names[me], sizeof(names[me]));
	atomic_fetch_add(&started, 1);
}

static void test_threads(void **state)
{
	struct gn_thread *threads[8];

	(void)state;
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(gn_thread_start("a-name-longer-than-15", thread_main, (void *)i,
						 &threads[i]),
				 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gn_thread_join(threads[i]), 0);
	assert_int_equal(atomic_load(&started), 8);
	for (int i = 0; i < 8; i++) {
		assert_true(ids[i] != 0 && ids[i] != gn_thread_id());
		for (int j = 0; j < i; j++)
			assert_true(ids[i] != ids[j]);
		assert_string_equal(names[i], "a-name-longer-t");
	}
	assert_int_equal(gn_thread_id(), gn_thread_id());
	assert_int_equal(gn_thread_start(NULL, thread_main, (void *)0, &threads[0]), 0);
	assert_int_equal(gn_thread_join(threads[0]), 0);
	assert_int_equal(gn_thread_join(NULL), -EINVAL);
	assert_true(strlen(gn_node_name()) > 0);
}

/* ---- locks ---- */

static struct gn_mutex mutex;
static struct gn_cond cond;
static unsigned guarded, turn;

#define ADDS 20000u

static void add_guarded(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < ADDS; i++) {
		gn_mutex_lock(&mutex);
		guarded++;
		gn_mutex_unlock(&mutex);
	}
}

static void test_mutex(void **state)
{
	struct gn_thread *threads[4];

	(void)state;
	gn_mutex_init(&mutex);
	for (int i = 0; i < 4; i++)
		assert_int_equal(gn_thread_start("adder", add_guarded, NULL, &threads[i]), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(gn_thread_join(threads[i]), 0);
	assert_int_equal(guarded, 4 * ADDS);
	gn_mutex_fini(&mutex);
}

static void take_turns(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	gn_mutex_lock(&mutex);
	for (int i = 0; i < 1000; i++) {
		while (turn % 3 != me)
			gn_cond_wait(&cond, &mutex, GN_FOREVER, "my turn");
		turn++;
		gn_cond_broadcast(&cond);
	}
	gn_mutex_unlock(&mutex);
}

static void test_cond(void **state)
{
	struct gn_thread *threads[3];
	uint64_t deadline_ns;
	int rc;

	(void)state;
	gn_mutex_init(&mutex);
	gn_cond_init(&cond);
	for (uintptr_t i = 0; i < 3; i++)
		assert_int_equal(gn_thread_start("turn", take_turns, (void *)i, &threads[i]), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(gn_thread_join(threads[i]), 0);
	assert_int_equal(turn, 3000);

	gn_mutex_lock(&mutex);
	assert_int_equal(gn_cond_wait(&cond, &mutex, GN_NO_WAIT, "test"), -ETIMEDOUT);
	deadline_ns = gn_deadline_us(2000);
	do
		rc = gn_cond_wait(&cond, &mutex, deadline_ns, "test");
	while (rc == 0);
	assert_int_equal(rc, -ETIMEDOUT);
	assert_true(gn_now_ns() >= deadline_ns);
	gn_mutex_unlock(&mutex);
	gn_cond_signal(&cond); /* nobody waits */
	gn_cond_fini(&cond);
	gn_mutex_fini(&mutex);
}

/* ---- slots ---- */

static struct gn_slot *slot;
static atomic_uint destroyed;

static void count_destroyed(void *value)
{
	atomic_fetch_add(&destroyed, *(unsigned *)value);
}

static void use_slot(void *arg)
{
	bool empty = gn_slot_get(slot) == NULL;

	if (!empty || gn_slot_set(slot, arg) != 0 || gn_slot_get(slot) != arg)
		atomic_fetch_add(&destroyed, 1000);
}

static void test_slots(void **state)
{
	static unsigned weights[3] = {1, 10, 100}, mine;
	struct gn_thread *threads[3];

	(void)state;
	assert_int_equal(gn_slot_create(count_destroyed, &slot), 0);
	assert_null(gn_slot_get(slot));
	assert_int_equal(gn_slot_set(slot, &mine), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(gn_thread_start("slot", use_slot, &weights[i], &threads[i]), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(gn_thread_join(threads[i]), 0);
	assert_int_equal(atomic_load(&destroyed), 111);
	assert_ptr_equal(gn_slot_get(slot), &mine);
	gn_slot_destroy(slot);
	gn_slot_destroy(NULL);
}

static void test_slots_run_out(void **state)
{
	static struct gn_slot *slots[PTHREAD_KEYS_MAX + 1];
	int n = 0, err;

	(void)state;
	do
		err = gn_slot_create(NULL, &slots[n]);
	while (!err && ++n <= PTHREAD_KEYS_MAX);
	while (n > 0)
		gn_slot_destroy(slots[--n]);
	assert_int_equal(err, -EAGAIN);
}

/* ---- once ---- */

static struct gn_once once;
static unsigned once_runs;
static atomic_uint once_wrong;

/* Long enough for the others to go from yielding to sleeping. */
static void run_once(void *arg)
{
	gn_sleep_us(3000);
	once_runs += *(unsigned *)arg;
}

static void call_once(void *arg)
{
	gn_once_run(&once, run_once, arg);
	if (once_runs != 1)
		atomic_fetch_add(&once_wrong, 1);
}

static void test_once(void **state)
{
	struct gn_thread *threads[4];
	unsigned one = 1;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(gn_thread_start("once", call_once, &one, &threads[i]), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(gn_thread_join(threads[i]), 0);
	call_once(&one);
	assert_int_equal(once_runs, 1);
	assert_int_equal(atomic_load(&once_wrong), 0);
}

/* ---- another table ---- */

static struct gn_fiber *world, *first, *second;
static uint64_t virtual_ns, charged;

static uint64_t fake_now_ns(void)
{
	return virtual_ns;
}

static void fake_charge(enum gn_work kind, uint64_t n)
{
	charged += (uint64_t)kind * 1000 + n;
}

static struct gn_fiber *running;

/* A scheduler of two fibers, as small as can be. */
static void fake_yield(void)
{
	struct gn_fiber *me = running;

	running = me == first ? second : first;
	gn_fiber_switch(me, running);
}

static void fake_sleep_us(uint64_t us)
{
	virtual_ns += us * 1000;
	fake_yield();
}

static unsigned blocking_runs;

static void block_in_once(void *arg)
{
	(void)arg;
	for (int i = 0; i < 200; i++)
		gn_yield();
	blocking_runs++;
}

static unsigned finished;

static void once_on_fiber(void *arg)
{
	struct gn_once *shared = arg;

	gn_once_run(shared, block_in_once, NULL);
	finished += blocking_runs;
	if (finished == 2)
		gn_fiber_switch(running, world);
	for (;;)
		gn_yield();
}

static void test_other_table(void **state)
{
	struct gn_once shared = {{0}};
	struct exec_ops fake = exec_real;

	(void)state;
	fake.now_ns = fake_now_ns;
	fake.charge = fake_charge;
	fake.yield = fake_yield;
	fake.sleep_us = fake_sleep_us;
	assert_ptr_equal(exec_current(), &exec_real);
	assert_ptr_equal(exec_install(&fake), &exec_real);
	assert_ptr_equal(exec_current(), &fake);
	virtual_ns = 5;
	assert_int_equal(gn_now_ns(), 5);
	assert_int_equal(gn_deadline_us(1), 1005);
	gn_charge(GN_WORK_COPY, 7);
	assert_int_equal(charged, 1007);

	/* gn_once_run() where both callers share one OS thread and the first blocks in it. */
	assert_int_equal(gn_fiber_adopt(&world), 0);
	assert_int_equal(gn_fiber_create(once_on_fiber, &shared, 65536, &first), 0);
	assert_int_equal(gn_fiber_create(once_on_fiber, &shared, 65536, &second), 0);
	running = first;
	gn_fiber_switch(world, first);
	assert_int_equal(blocking_runs, 1);
	assert_int_equal(finished, 2);
	gn_fiber_destroy(first);
	gn_fiber_destroy(second);
	gn_fiber_destroy(world);

	assert_ptr_equal(exec_install(&exec_real), &fake);
	assert_ptr_equal(exec_current(), &exec_real);
}

/* ---- small things ---- */

static void test_counter(void **state)
{
	uint64_t counter = 40;

	(void)state;
	counter_add(&counter, 2);
	assert_int_equal(counter_read(&counter), 42);
}

static void test_errors(void **state)
{
	(void)state;
	assert_string_equal(gn_strerror(0), "Success");
	assert_string_equal(gn_strerror(-ETIMEDOUT), strerror(ETIMEDOUT));
	assert_string_equal(gn_strerror(-EREMOTEIO), strerror(EREMOTEIO));
	assert_string_equal(gn_strerror(-EHWPOISON), strerror(EHWPOISON));
	assert_string_equal(gn_strerror(-4000), "Unknown error");
	assert_string_equal(gn_strerror(EIO), "Unknown error");
	assert_string_equal(gn_strerror(INT32_MIN), "Unknown error");
	assert_true(strlen(gn_version()) >= strlen("0.0.0"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_after_fork),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_mutex),
		cmocka_unit_test(test_cond),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_slots_run_out),
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_other_table),
		cmocka_unit_test(test_counter),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
