/* SPDX-License-Identifier: MIT */
/* Replaces the verbs provider in builds without libibverbs and librdmacm. */
#include "base/fail.h"
#include "fabric/fabric.h"

#include <errno.h>

static int open_absent(struct gn_fabric *fabric, const char *device)
{
	(void)fabric;
	(void)device;
	return gn_fail_log(
		-EOPNOTSUPP,
		"verbs: not built in; install libibverbs-dev and librdmacm-dev and build "
		"again with -Dverbs=enabled");
}

const struct provider provider_verbs = {.name = "verbs", .open = open_absent};
