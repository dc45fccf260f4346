/* SPDX-License-Identifier: MIT */
/*
 * How a failing public call says why: gn_error() returns what was said last on this thread. The
 * text names the call or the thing, and what to do. Nothing here is for ways that succeed.
 */
#ifndef GN_BASE_FAIL_H
#define GN_BASE_FAIL_H

#include "gannet/base.h"

#define FAIL_TEXT_MAX 512u /* bytes of a text, with its NUL */

/* Remember why, and return rc. */
int gn_fail(int rc, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/* The same, and a line of the log too: for what somebody who reads only the log must know. */
int gn_fail_log(int rc, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

#endif
