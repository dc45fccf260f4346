/* SPDX-License-Identifier: MIT */
/* The layer "rpc" of the list of figures: calls of the library, with nothing behind them. */
#include <string.h>

#include "rpc.h"
#include "calls.h"

static const char *const keys[] = {CALL_KEYS, "req", "resp", "work_us", "route"};

int lab_rpc_run(const struct lab_setup *setup, const struct config *c, struct lab_metrics *out,
		struct lab_error *error)
{
	uint64_t req, resp, work_us;
	const struct config_number numbers[] = {
		{"req", 0, 0, GN_RPC_BYTES_MAX, &req},
		{"resp", 0, 0, GN_RPC_BYTES_MAX, &resp},
		{"work_us", 0, 0, (uint64_t)BENCH_RPC_WORK_US_MAX, &work_us},
	};
	const char *route = config_get(c, "route");
	struct bench_rpc_opts o = {0};
	struct load_result result;
	unsigned mode = 0;
	int rc = config_known(c, keys, sizeof(keys) / sizeof(keys[0]), "rpc", error);

	if (!rc)
		rc = calls_mode(c, bench_rpc_modes, BENCH_RPC_LIMIT, &mode, error);
	if (!rc)
		rc = calls_read(setup, c, &o.load, error);
	if (!rc && route && strcmp(route, "fixed") && strcmp(route, "hash"))
		rc = lab_error(error, "route=%s is neither fixed nor hash", route);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (rc)
		return rc;
	o.mode = (enum bench_rpc_mode)mode;
	o.hashed = route && !strcmp(route, "hash");
	o.request_bytes = (uint32_t)req;
	o.result_bytes = (uint32_t)resp;
	o.work_us = (double)work_us;
	rc = bench_rpc_run(&o, NULL, &result);
	if (rc)
		lab_error(error, "%s", result.error);
	else
		calls_metrics(&result, o.result_bytes, out);
	return rc;
}
