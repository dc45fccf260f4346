/* SPDX-License-Identifier: MIT */
/*
 * Fibers: the order of switches, what survives them, nesting as the simulator nests them, the guard
 * page, and what a switch costs.
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (64 * 1024)

static struct gn_fiber *home, *child;
static char trace[64];

static void note(char c)
{
	size_t n = strlen(trace);

	assert_true(n + 1 < sizeof(trace));
	trace[n] = c;
}

static int set_up(void **state)
{
	(void)state;
	memset(trace, 0, sizeof(trace));
	return gn_fiber_adopt(&home);
}

static int tear_down(void **state)
{
	(void)state;
	gn_fiber_destroy(home);
	return 0;
}

static void ping(void *arg)
{
	assert_ptr_equal(arg, trace);
	note('b');
	gn_fiber_switch(child, home);
	note('d');
	gn_fiber_switch(child, home);
}

static void test_takes_turns(void **state)
{
	(void)state;
	assert_int_equal(gn_fiber_create(ping, trace, STACK, &child), 0);
	note('a');
	gn_fiber_switch(home, child);
	note('c');
	gn_fiber_switch(home, child);
	note('e');
	gn_fiber_destroy(child);
	assert_string_equal(trace, "abcde");
}

static void test_refuses(void **state)
{
	struct gn_fiber *fiber = NULL;

	(void)state;
	assert_int_equal(gn_fiber_create(ping, NULL, GN_FIBER_STACK_MIN - 1, &fiber), -EINVAL);
	assert_int_equal(gn_fiber_create(ping, NULL, SIZE_MAX, &fiber), -ENOMEM);
	assert_int_equal(gn_fiber_create(ping, NULL, SIZE_MAX / 4, &fiber), -ENOMEM);
	assert_null(fiber);
	gn_fiber_destroy(NULL);
}

/* A fiber that was never run can be destroyed, and the smallest stack holds a printf. */
static void say(void *arg)
{
	char line[256];

	snprintf(line, sizeof(line), "%s %d %.3f", (const char *)arg, 42, 1.5);
	note(line[0]);
	gn_fiber_switch(child, home);
}

static void test_smallest(void **state)
{
	(void)state;
	assert_int_equal(gn_fiber_create(say, "x", GN_FIBER_STACK_MIN, &child), 0);
	gn_fiber_destroy(child);
	assert_int_equal(gn_fiber_create(say, "y", GN_FIBER_STACK_MIN, &child), 0);
	gn_fiber_switch(home, child);
	gn_fiber_destroy(child);
	assert_string_equal(trace, "y");
}

static void align(void *arg)
{
	_Alignas(16) volatile char local[16];

	*(uintptr_t *)arg = (uintptr_t)local | ((uintptr_t)__builtin_frame_address(0) & 15);
	gn_fiber_switch(child, home);
}

static void test_stack_is_aligned(void **state)
{
	uintptr_t bits = 1;

	(void)state;
	assert_int_equal(gn_fiber_create(align, &bits, STACK + 8, &child), 0);
	gn_fiber_switch(home, child);
	assert_int_equal(bits & 15, 0);
	gn_fiber_destroy(child);
}

#ifdef __x86_64__
/* The rounding mode is part of a context: callee-saved by the ABI, in both floating-point units. */
enum { NEAREST, DOWN, UP };

static void set_rounding(unsigned mode)
{
	uint16_t x87;

	__builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x6000u) | mode << 13);
	__asm__ volatile("fnstcw %0" : "=m"(x87));
	x87 = (uint16_t)((x87 & ~0xc00u) | mode << 10);
	__asm__ volatile("fldcw %0" : : "m"(x87));
}

static void note_rounding(void)
{
	unsigned mode = __builtin_ia32_stmxcsr() >> 13 & 3;
	uint16_t x87;

	__asm__ volatile("fnstcw %0" : "=m"(x87));
	note((x87 >> 10 & 3) == mode ? "ndu0"[mode] : '?');
}

static void rounds_up(void *arg)
{
	(void)arg;
	set_rounding(UP);
	gn_fiber_switch(child, home);
	note_rounding();
	gn_fiber_switch(child, home);
}

static void test_rounding_mode(void **state)
{
	(void)state;
	assert_int_equal(gn_fiber_create(rounds_up, NULL, STACK, &child), 0);
	set_rounding(DOWN);
	gn_fiber_switch(home, child);
	note_rounding();
	gn_fiber_switch(home, child);
	note_rounding();
	set_rounding(NEAREST);
	gn_fiber_destroy(child);
	assert_string_equal(trace, "dud");
}
#endif

/*
 * The simulator's case. A "thread" (struct thread) runs two inner fibers, and each of them parks
 * the whole thread in the scheduler: the context saved in thread is then on an inner stack.
 */
static struct gn_fiber *scheduler, *thread, *inner_home, *inner[2];

static void park(void)
{
	volatile char frame[512]; /* red zones for the address sanitizer to trip over */

	memset((char *)frame, 1, sizeof(frame));
	gn_fiber_switch(thread, scheduler);
	assert_int_equal(frame[511], 1);
}

static void inner_main(void *arg)
{
	intptr_t me = (intptr_t)arg;

	for (int i = 0; i < 2; i++) {
		note((char)('A' + me));
		park();
		note((char)('a' + me));
		gn_fiber_switch(inner[me], inner_home);
	}
	gn_fiber_switch(inner[me], inner_home);
}

static void thread_main(void *arg)
{
	(void)arg;
	assert_int_equal(gn_fiber_adopt(&inner_home), 0);
	for (intptr_t i = 0; i < 2; i++)
		assert_int_equal(gn_fiber_create(inner_main, (void *)i, STACK, &inner[i]), 0);
	for (int turn = 0; turn < 3; turn++) {
		gn_fiber_switch(inner_home, inner[0]);
		gn_fiber_switch(inner_home, inner[1]);
		note('.');
		park();
	}
	for (int i = 0; i < 2; i++)
		gn_fiber_destroy(inner[i]);
	gn_fiber_destroy(inner_home);
	note('!');
	park();
}

static void test_nested(void **state)
{
	(void)state;
	scheduler = home;
	assert_int_equal(gn_fiber_create(thread_main, NULL, STACK, &thread), 0);
	while (!strchr(trace, '!')) {
		note('s');
		gn_fiber_switch(scheduler, thread);
	}
	gn_fiber_destroy(thread);
	assert_string_equal(trace, "sAsaBsb.sAsaBsb.s.s!");
}

/* Many fibers, switched in random order, each keeping its own stack and its own count. */
#define CROWD 100

static struct gn_fiber *crowd[CROWD];
static unsigned counts[CROWD];

static void crowd_main(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;
	volatile unsigned mine = 0;

	for (;;) {
		counts[me] = ++mine;
		gn_fiber_switch(crowd[me], home);
	}
}

static void test_crowd(void **state)
{
	uint64_t seed = unit_seed();
	unsigned expect[CROWD] = {0};

	(void)state;
	for (uintptr_t i = 0; i < CROWD; i++)
		assert_int_equal(gn_fiber_create(crowd_main, (void *)i, STACK, &crowd[i]), 0);
	for (int i = 0; i < 20000; i++) {
		uint32_t next = unit_next(&seed) % CROWD;

		gn_fiber_switch(home, crowd[next]);
		assert_int_equal(counts[next], ++expect[next]);
	}
	for (int i = 0; i < CROWD; i++)
		gn_fiber_destroy(crowd[i]);
}

/* An overflowing stack must hit the guard page, and not the neighbour's stack. */
static void overflow(void *arg)
{
	volatile char *low = arg ? arg : (volatile char *)__builtin_frame_address(0);

	for (;;)
		*(low -= 1024) = 1;
}

static void test_guard_page(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0) {
		struct rlimit no_core = {0, 0};

		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGSEGV, SIG_DFL); /* neither cmocka's nor a sanitizer's handler */
		if (gn_fiber_create(overflow, NULL, STACK, &child) == 0)
			gn_fiber_switch(home, child);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void bounce(void *arg)
{
	(void)arg;
	for (;;)
		gn_fiber_switch(child, home);
}

#define BLOCKS	 20
#define SWITCHES 100000u /* half of them here, half in the fiber */
#define BOUND_NS 60.0	 /* three times the goal: a loaded machine, not a wrong one */

/* The best of many short blocks: another process's time slice spoils some of them, not all. */
static void test_cost(void **state)
{
	double best = 1e9;

	(void)state;
	assert_int_equal(gn_fiber_create(bounce, NULL, STACK, &child), 0);
	for (int block = 0; block < BLOCKS; block++) {
		uint64_t start_ns = gn_now_ns();
		double each;

		for (unsigned i = 0; i < SWITCHES / 2; i++)
			gn_fiber_switch(home, child);
		each = (double)(gn_now_ns() - start_ns) / SWITCHES;
		if (each < best)
			best = each;
	}
	gn_fiber_destroy(child);
	printf("# a switch takes %.1f ns\n", best);
#if defined(__x86_64__) && !defined(GN_FIBER_UCONTEXT)
	if (!unit_slow())
		assert_true(best < BOUND_NS);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_takes_turns, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_refuses, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_smallest, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stack_is_aligned, set_up, tear_down),
#ifdef __x86_64__
		cmocka_unit_test_setup_teardown(test_rounding_mode, set_up, tear_down),
#endif
		cmocka_unit_test_setup_teardown(test_nested, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_crowd, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_guard_page, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cost, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("fiber", tests, NULL, NULL);
}
