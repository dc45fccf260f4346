/* SPDX-License-Identifier: MIT */
/*
 * What the tests of gn_error() share. Before each call the text says that nothing was said, so what
 * is found afterwards is that call's own.
 */
#ifndef GN_TESTS_ERROR_CHECK_H
#define GN_TESTS_ERROR_CHECK_H

#include <string.h>

#include "base/fail.h"
#include "unit.h"

#define OPTS(type, ...) (&(struct type){.size = sizeof(struct type), __VA_ARGS__})
#define UNSAID		"nothing was said"

static inline void error_check(int line, int rc, int want, const char *word)
{
	if (rc != want || !strstr(gn_error(), word))
		fail_msg("line %d: %d instead of %d, '%s' has no '%s'", line, rc, want, gn_error(),
			 word);
}

#define CHECK(call, want, word) (gn_fail(0, UNSAID), error_check(__LINE__, call, want, word))

static inline void error_ignore(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

/* What is logged beside is not printed. */
static inline void error_no_log(void)
{
	gn_log_to(error_ignore, NULL);
}

#endif
