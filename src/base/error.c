/* SPDX-License-Identifier: MIT */
/*
 * Words for the errors Gannet returns, and its version. The texts are the C library's untranslated
 * ones: static, safe on any thread, and complete for every errno the kernel has.
 */
#define _GNU_SOURCE 1
#include <string.h>

#include "gannet/base.h"

#ifndef GN_VERSION /* the build passes the project's */
#define GN_VERSION "0.1.0"
#endif

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
	return GN_VERSION;
}
