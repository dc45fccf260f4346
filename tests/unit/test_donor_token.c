/* SPDX-License-Identifier: MIT */
/*
 * Tokens of a donor are compared in constant time: a comparison executes as many instructions
 * whichever bytes differ. The instructions are counted, since times would vary.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "donor/wire.h"
#include "unit.h"

#define STEPS_MAX 20000

static void random_token(uint64_t *rng, uint8_t token[IO_TOKEN_BYTES])
{
	for (unsigned i = 0; i < IO_TOKEN_BYTES; i++)
		token[i] = (uint8_t)unit_next(rng);
}

static void test_every_bit_counts(void **state)
{
	uint64_t rng = unit_seed();
	uint8_t a[IO_TOKEN_BYTES], b[IO_TOKEN_BYTES];

	(void)state;
	for (int i = 0; i < 100; i++) {
		random_token(&rng, a);
		memcpy(b, a, sizeof(b));
		assert_true(donor_token_equal(a, b));
		for (unsigned bit = 0; bit < 8 * IO_TOKEN_BYTES; bit++) {
			b[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_false(donor_token_equal(a, b));
			b[bit / 8] = a[bit / 8];
		}
		random_token(&rng, b);
		assert_false(donor_token_equal(a, b));
	}
}

/* The comparison is between two stops. */
static _Noreturn void compare_traced(const uint8_t *a, const uint8_t *b)
{
	volatile bool equal;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(77);
	raise(SIGSTOP);
	equal = donor_token_equal(a, b);
	(void)equal;
	raise(SIGSTOP);
	_exit(0);
}

/* -EPERM: programs may not be traced here. */
static int count_instructions(const uint8_t *a, const uint8_t *b)
{
	const pid_t pid = fork();
	int status, steps = 0;

	assert_true(pid >= 0);
	if (!pid)
		compare_traced(a, b);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return -EPERM;
	for (; WIFSTOPPED(status) && steps < STEPS_MAX; steps++) {
		if (steps && WSTOPSIG(status) == SIGSTOP)
			break;
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return steps;
}

static void test_constant_time(void **state)
{
	uint64_t rng = unit_seed();
	uint8_t a[IO_TOKEN_BYTES], b[IO_TOKEN_BYTES];
	int equal;

	(void)state;
	random_token(&rng, a);
	memcpy(b, a, sizeof(b));
	equal = count_instructions(a, b);
	if (equal < 0)
		skip();
	assert_in_range(equal, IO_TOKEN_BYTES, STEPS_MAX - 1);
	for (unsigned i = 0; i < IO_TOKEN_BYTES; i++) {
		b[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(count_instructions(a, b), equal);
		b[i] = a[i];
	}
	for (unsigned i = 0; i < IO_TOKEN_BYTES; i++)
		b[i] = (uint8_t)~a[i];
	assert_int_equal(count_instructions(a, b), equal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_bit_counts),
		cmocka_unit_test(test_constant_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
