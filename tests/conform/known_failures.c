/* SPDX-License-Identifier: MIT */
/*
 * Cases that a device is known to fail, with the cause. They count as skipped; if one passes, that
 * is reported, too. An entry needs a cause outside this repository.
 */
#include <string.h>

#include "harness.h"

struct expected {
	const char *device; /* what its name starts with */
	unsigned number;
	const char *cause;
};

static const struct expected expected[] = {
	{NULL, 0, NULL},
};

const char *cf_expected_failure(const struct gn_attr *attr, unsigned number)
{
	for (const struct expected *e = expected; e->device; e++)
		if (e->number == number && !strncmp(attr->device, e->device, strlen(e->device)))
			return e->cause;
	return NULL;
}
