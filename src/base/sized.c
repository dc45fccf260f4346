/* SPDX-License-Identifier: MIT */
/* Public structs that begin with their size: reading options, writing results. */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"

#define NEWER_MAX 4096u /* bytes that later versions may append; a larger size is an error */

static size_t sized_size(const void *given)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	return size;
}

static int sized_check(size_t size, size_t known, const char *name)
{
	if (size >= known && size <= known + NEWER_MAX)
		return 0;
	if (size > known)
		return gn_fail(-E2BIG,
			       "struct %s: its size is %zu, but %zu in this library: is it set at "
			       "all? "
			       "Set .size = sizeof(struct %s)",
			       name, size, known, name);
	return gn_fail(-EINVAL,
		       "struct %s: its size is %zu, but %zu in this library: set .size = "
		       "sizeof(struct "
		       "%s) and compile against its headers",
		       name, size, known, name);
}

int sized_read(void *own, size_t known, const void *given, const char *name)
{
	const unsigned char *bytes = given;
	size_t size;
	int rc;

	if (!given) {
		memset(own, 0, known);
		memcpy(own, &known, sizeof(known));
		return 0;
	}
	size = sized_size(given);
	rc = sized_check(size, known, name);
	if (rc)
		return rc;
	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return gn_fail(-E2BIG,
				       "struct %s: its size is %zu, but %zu in this library, which "
				       "does not know what is set at byte %zu",
				       name, size, known, i);
	memcpy(own, given, known);
	memcpy(own, &known, sizeof(known));
	return 0;
}

int sized_write(void *out, const void *full, size_t known, const char *name)
{
	size_t size;
	int rc;

	if (!out)
		return gn_fail(-EINVAL, "the struct %s to be filled is NULL", name);
	size = sized_size(out);
	rc = sized_check(size, known, name);
	if (rc)
		return rc;
	memcpy(out, full, known);
	memset((unsigned char *)out + known, 0, size - known);
	memcpy(out, &size, sizeof(size));
	return 0;
}
