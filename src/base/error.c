/* SPDX-License-Identifier: MIT */
/*
 * Error texts, gn_error(), and the version. The texts are the C library's untranslated ones:
 * static, thread-safe, and complete for every errno of the kernel.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/exec.h"
#include "base/fail.h"

#define TEXT_OF(n) #n
#define TEXT(n)	   TEXT_OF(n)

#define ERRNO_MAX 4095 /* the kernel's limit */

const char *gn_strerror(int err)
{
	const char *text = NULL;

	if (err <= 0 && err >= -ERRNO_MAX)
		text = strerrordesc_np(-err);
	return text ? text : "Unknown error";
}

const char *gn_version(void)
{
	return TEXT(GN_VERSION_MAJOR) "." TEXT(GN_VERSION_MINOR) "." TEXT(GN_VERSION_PATCH);
}

const char *gn_error(void)
{
	return exec_current()->error()->text;
}

unsigned gn_fail_count(void)
{
	return exec_current()->error()->count;
}

int gn_fail_since(unsigned count, int rc, const char *what)
{
	return gn_fail_count() == count ? gn_fail(rc, "%s: %s", what, gn_strerror(rc)) : rc;
}

static void fail_remember(const char *fmt, va_list ap)
{
	const int saved_errno = errno;
	struct fail_state *state = exec_current()->error();
	char text[FAIL_TEXT_MAX]; /* the arguments may include the current text */

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
	}
	memcpy(state->text, text, sizeof(text));
	state->count++;
	errno = saved_errno;
}

int gn_fail(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail_remember(fmt, ap);
	va_end(ap);
	return rc;
}

int gn_fail_text(int rc, const char *text)
{
	struct fail_state *state = exec_current()->error();
	const size_t len = strnlen(text, FAIL_TEXT_MAX - 1);

	memcpy(state->text, text, len);
	state->text[len] = '\0';
	state->count++;
	return rc;
}

int gn_fail_log(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail_remember(fmt, ap);
	va_end(ap);
	gn_log(GN_LOG_ERROR, "%s", gn_error());
	return rc;
}
