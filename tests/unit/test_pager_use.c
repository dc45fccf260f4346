/* SPDX-License-Identifier: MIT */
/*
 * What a program does with the memory of a pager beside touching it: system calls, madvise(),
 * mlockall(), signal handlers; and where the handler runs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <time.h>

#include "pager_world.h"

/* ---- the program's own system calls ---- */

static void test_system_calls(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	uint8_t *a;
	int fd[2];

	(void)state;
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 1);
	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	for (uint64_t page = 0; page < 2048; page++) {
		uint8_t bytes[PAGE];

		assert_int_equal(write(fd[1], a + page * PAGE, PAGE), PAGE);
		assert_int_equal(read(fd[0], bytes, PAGE), PAGE);
		assert_memory_equal(bytes, page < 1024 ? &page : &(uint64_t){2047 - page}, 8);
		assert_int_equal(write(fd[1], bytes, PAGE), PAGE);
		assert_int_equal(read(fd[0], a + (2047 - page) * PAGE, PAGE), PAGE);
	}
	for (uint64_t page = 0; page < 2048; page++) {
		const uint64_t from = page < 1024 ? page : 2047 - page;

		assert_memory_equal(a + page * PAGE, &from, sizeof(from));
	}
	close(fd[0]);
	close(fd[1]);
	pager_close(&w);
}

/* Nothing becomes zeros that the pager did not make zeros. */
static void own_dont_need(bool write_faults)
{
	const struct gn_pager_opts opts = pager_opts(write_faults);
	uint64_t seed = unit_seed();
	struct pager_world w;
	uint8_t *a;

	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 1);
	for (unsigned i = 0; i < 200; i++) {
		const uint64_t page = unit_next(&seed) % 2040;

		page_write(a, page, 1);
		assert_int_equal(madvise(a + page * PAGE, 8 * PAGE, MADV_DONTNEED), 0);
		assert_true(page_is(a, page, 1));
	}
	for (uint64_t page = 0; page < 2048; page++)
		assert_true(page_is(a, page, 1));
	/* This takes bytes away, and leaves zeros. */
	assert_int_equal(madvise(a + 2047 * PAGE, PAGE, MADV_REMOVE), 0);
	assert_int_equal(*(uint64_t *)(void *)(a + 2047 * PAGE), 0);
	pager_close(&w);
}

static void test_own_dont_need(void **state)
{
	(void)state;
	own_dont_need(false);
	own_dont_need(true);
}

static void test_mlockall(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	uint8_t *a, *b;

	(void)state;
	if (UNIT_SANITIZED)
		skip(); /* it would lock the shadow memory */
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, 8 * MIB);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 1);
	assert_int_equal(mlockall(MCL_CURRENT | MCL_FUTURE), 0);
	b = pager_map(&w, 8 * MIB);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(b, page, 2);
	for (uint64_t page = 0; page < 2048; page++) {
		assert_true(page_is(a, page, 1));
		assert_true(page_is(b, page, 2));
	}
	assert_true(pager_stats(&w).resident * PAGE <= LOCAL);
	assert_int_equal(munlockall(), 0);
	pager_close(&w);
}

/* ---- signals ---- */

static uint8_t *signal_memory;
static volatile sig_atomic_t signals_seen, signals_wrong;

static void signal_touch(int signo)
{
	static uint64_t page;
	const int err = errno;

	(void)signo;
	page = (page + 97) % 2048;
	signals_wrong += memcmp(signal_memory + page * PAGE, &page, sizeof(page)) != 0;
	signals_seen++;
	errno = err;
}

/* A handler touches paged memory while its thread is inside a call of the pager. */
static void test_signals(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	const struct sigaction act = {.sa_handler = signal_touch, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
	struct sigaction before;
	struct pager_world w;
	uint64_t until_ns;
	timer_t timer;

	(void)state;
	pager_open(&w, 1, 1, 16, &opts);
	signal_memory = pager_map(&w, 8 * MIB);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(signal_memory, page, 1);
	signals_seen = signals_wrong = 0;
	sigaction(SIGUSR1, &act, &before);
	event._sigev_un._tid = gettid(); /* this thread, which is inside calls of the pager */
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	for (unsigned calls = 0; calls < 300 || signals_seen < 100; calls++) {
		/* One at a time, at different moments of the calls. */
		const struct itimerspec soon = {.it_value = {0, 5000 + calls * 1237 % 200000}};
		uint8_t *more;

		assert_int_equal(timer_settime(timer, 0, &soon, NULL), 0);
		more = pager_map(&w, 64 * PAGE);
		more[PAGE] = 1;
		assert_int_equal(gn_pager_unmap(w.pager, more, 64 * PAGE), 0);
		assert_true(gn_now_ns() < until_ns);
	}
	timer_delete(timer);
	sigaction(SIGUSR1, &before, NULL);
	assert_int_equal(signals_wrong, 0);
	pager_close(&w);
}

/* ---- cores ---- */

static pid_t handler_thread(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	pid_t found = 0;

	while ((entry = readdir(dir))) {
		char path[300], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "gn-pager\n"))
			found = (pid_t)atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(dir);
	return found;
}

static cpu_set_t one_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return set;
}

#define FOLLOW_TOUCHES 256u /* more than enough faults: see LOOK_EVERY and VOTE_FAULTS */

/* The handler is where the thread is that faults, unless it stays. */
static void follow(bool stay)
{
	struct gn_pager_opts opts = pager_opts(false);
	cpu_set_t before, set, handler;
	int cpus[2], n = 0;
	struct pager_world w;
	uint8_t *a;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
		if (CPU_ISSET((size_t)cpu, &before))
			cpus[n++] = cpu;
	if (n < 2)
		skip();
	opts.stay = stay;
	opts.prefetch = GN_PAGER_NO_PREFETCH;
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 0);
	for (unsigned i = 0; i < 4; i++) {
		const uint64_t faults = pager_stats(&w).faults;

		set = one_cpu(cpus[i % 2]);
		assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
		for (uint64_t k = 0; k < FOLLOW_TOUCHES; k++)
			page_write(a, (i * FOLLOW_TOUCHES + k) * 389 % 2048, i);
		assert_true(pager_stats(&w).faults - faults > FOLLOW_TOUCHES / 4);
		assert_int_equal(sched_getaffinity(handler_thread(), sizeof(handler), &handler), 0);
		assert_true(CPU_EQUAL(&handler, stay ? &before : &set));
	}
	assert_true(stay ? pager_stats(&w).moves == 0 : pager_stats(&w).moves >= 3);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	pager_close(&w);
}

static void test_follow(void **state)
{
	(void)state;
	follow(false);
	follow(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_system_calls), cmocka_unit_test(test_own_dont_need),
		cmocka_unit_test(test_mlockall),     cmocka_unit_test(test_signals),
		cmocka_unit_test(test_follow),
	};

	pager_require();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
