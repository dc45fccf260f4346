/* SPDX-License-Identifier: MIT */
/*
 * Error texts of failing public calls: gn_error() returns the thread's last one. A text names the
 * call or the object, and says what to do. Not for successful paths.
 */
#ifndef GN_BASE_FAIL_H
#define GN_BASE_FAIL_H

#include "gannet/base.h"

#define FAIL_TEXT_MAX 512u /* including the NUL */
#define NO_MEMORY     "there is no memory"

/* Per thread, for gn_error(). */
struct fail_state {
	unsigned count; /* texts so far */
	char text[FAIL_TEXT_MAX];
};

/* Stores the reason, and returns rc. */
int gn_fail(int rc, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/* gn_fail() for a text without arguments, at the cost of a copy: for frequent failures. */
int gn_fail_text(int rc, const char *text) __attribute__((cold));

/* gn_fail(), and also logs the text: for readers of the log. */
int gn_fail_log(int rc, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/*
 * For a failure that a lower layer may have explained: stores "what: <errno text>" if this thread
 * has stored no text since count was taken. Returns rc.
 */
unsigned gn_fail_count(void);
int gn_fail_since(unsigned count, int rc, const char *what) __attribute__((cold));

#endif
