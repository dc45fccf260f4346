/* SPDX-License-Identifier: MIT */
/* Configurations of loads: reading them, and what is wrong with one. */
#include <errno.h>
#include <string.h>

#include "lab_config.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configurations),
		cmocka_unit_test(bad_configurations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
