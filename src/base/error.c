/* SPDX-License-Identifier: MIT */
/*
 * Words for the errors Gannet returns, why the last call failed, and the version. The texts of
 * errors are the C library's untranslated ones: static, safe on any thread, and complete for every
 * errno the kernel has.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/exec.h"
#include "base/fail.h"

#define TEXT_OF(n) #n
#define TEXT(n)	   TEXT_OF(n)

#define ERRNO_MAX 4095 /* the kernel's own bound */

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
	return exec_current()->error();
}

static void remember(const char *fmt, va_list ap)
{
	const int saved_errno = errno;
	char text[FAIL_TEXT_MAX]; /* what was said before may be part of it */

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
	}
	memcpy(exec_current()->error(), text, sizeof(text));
	errno = saved_errno;
}

int gn_fail(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	remember(fmt, ap);
	va_end(ap);
	return rc;
}

int gn_fail_log(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	remember(fmt, ap);
	va_end(ap);
	gn_log(GN_LOG_ERROR, "%s", exec_current()->error());
	return rc;
}
