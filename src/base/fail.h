/* SPDX-License-Identifier: MIT */
/*
 * How a failing public call says why: gn_error() returns what was said last on this thread. The
 * text names the call or the thing, and what to do. Nothing here is for ways that succeed.
 */
#ifndef GN_BASE_FAIL_H
#define GN_BASE_FAIL_H

#include "gannet/base.h"

#define FAIL_TEXT_MAX 512u /* bytes of a text, with its NUL */
#define NO_MEMORY     "there is no memory"

/* What a thread keeps for gn_error(). */
struct fail_state {
	unsigned count; /* of texts so far */
	char text[FAIL_TEXT_MAX];
};

/* Remember why, and return rc. */
int gn_fail(int rc, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/* The same for a text without arguments, at the cost of a copy: for what may fail often. */
int gn_fail_text(int rc, const char *text) __attribute__((cold));

/* gn_fail(), and a line of the log too: for what somebody who reads only the log must know. */
int gn_fail_log(int rc, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/*
 * For what fails below in ways that may have been told there: says "what: the errno's words" if
 * this thread has said nothing since count was taken. Returns rc.
 */
unsigned gn_fail_count(void);
int gn_fail_since(unsigned count, int rc, const char *what) __attribute__((cold));

#endif
