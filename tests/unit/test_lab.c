/* SPDX-License-Identifier: MIT */
/* Configurations of loads, and the worker processes that run several of them. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lab_config.h"
#include "workers.h"

/* ---- configurations ---- */

static void configurations(void **state)
{
	struct config c = make("size=32;op=READ;over=op:WRITE,dir:out");
	struct lab_error error;
	uint64_t n;

	(void)state;
	assert_string_equal(config_get(&c, "op"), "READ");
	assert_null(config_get(&c, "dir"));
	assert_true(config_is(&c, "size", "32"));
	assert_int_equal(config_uint(&c, "size", 1, 1, 64, &n, &error), 0);
	assert_int_equal(n, 32);
	assert_int_equal(config_uint(&c, "absent", 7, 1, 64, &n, &error), 0);
	assert_int_equal(n, 7);
	assert_int_equal(config_uint(&c, "size", 1, 1, 31, &n, &error), -EINVAL);
	assert_string_equal(error.text, "size=32 is not a number of 1 to 31");
	c = make("-");
	assert_int_equal(c.n, 0);
}

static void bad_configurations(void **state)
{
	static const char *const bad[][2] = {
		{"op", "'op' is not key=value"},    {"op=", "op has a value of 0 characters"},
		{"=x", "a key of 0 characters"},    {"op=a;", "'' is not key=value"},
		{"op=a;op=b", "op is there twice"}, {"", "'' is not key=value"},
	};
	struct lab_error error;
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(config_parse(&c, bad[i][0], strlen(bad[i][0]), &error), -EINVAL);
		if (strncmp(error.text, bad[i][1], strlen(bad[i][1])))
			fail_msg("'%s' instead of '%s'", error.text, bad[i][1]);
	}
}

/* ---- workers ---- */

static volatile sig_atomic_t stop_workers;

/* The first is done at once; the others wait until they are ended. */
static int first_returns(void *arg, unsigned job, void *result)
{
	(void)arg;
	(void)result;
	while (job)
		pause();
	return 0;
}

static void stop_at_first(void *arg, unsigned job, const void *result)
{
	(void)arg;
	(void)job;
	(void)result;
	stop_workers = 1;
}

/* An interrupt that comes while a result is taken ends the others' wait, too. */
static void interrupted_workers(void **state)
{
	static const unsigned each[2] = {0, 1};
	const struct workers_job job = {
		.n = 2,
		.groups = each,
		.result_bytes = 1,
		.run = first_returns,
		.done = stop_at_first,
		.interrupted = &stop_workers,
	};

	(void)state;
	alarm(20); /* it waits for ever without */
	assert_int_equal(workers_run(&job, 2), -EINTR);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configurations),
		cmocka_unit_test(bad_configurations),
		cmocka_unit_test(interrupted_workers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
