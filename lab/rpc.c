/* SPDX-License-Identifier: MIT */
/*
 * The layer "rpc" of the list of figures: calls of the library, with nothing behind them. A
 * configuration becomes a load, a run becomes metrics.
 */
#include <stdlib.h>
#include <string.h>

#include "rpc_load.h"

#define WORK_US_MAX 100000u
#define MIN_OPS	    4000u

static const char *const keys[] = {CALL_KEYS, "req", "resp", "work_us", "route"};

/* A key of our own. fixed: a client has one server thread; hash: a call goes to that of its key. */
static int read_route(const struct config *c, bool *hashed, struct lab_error *error)
{
	const char *route = config_get(c, "route");

	if (route && strcmp(route, "fixed") && strcmp(route, "hash"))
		return lab_error(error, "route=%s is neither fixed nor hash", route);
	*hashed = route && !strcmp(route, "hash");
	return 0;
}

static int read_load(const struct config *c, const char *preset, struct rpc_load *o,
		     struct lab_error *error)
{
	uint64_t req, resp, work_us;
	const struct config_number numbers[] = {
		{"req", 0, 0, GN_RPC_BYTES_MAX, &req},
		{"resp", 0, 0, GN_RPC_BYTES_MAX, &resp},
		{"work_us", 0, 0, WORK_US_MAX, &work_us},
	};
	int rc = call_load_read(c, preset, &o->call, error);

	if (!rc && o->call.bypass)
		rc = lab_error(error, "mode=bypass: nothing of a call can be bypassed");
	if (!rc)
		rc = read_route(c, &o->hashed, error);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (rc)
		return rc;
	o->req = (uint32_t)req;
	o->resp = (uint32_t)resp;
	o->work_ns = 1000 * work_us;
	return 0;
}

static int spawn_server(struct gn_sim *sim, struct call_run *run)
{
	return gn_sim_spawn(sim, 0, rpc_server_program, 0, NULL, run, NULL);
}

int lab_rpc_run(const struct lab_setup *setup, const struct config *config, struct lab_metrics *out,
		struct lab_error *error)
{
	struct rpc_load load = {0};
	struct rpc_run run = {.call = {.method = RPC_METHOD, .call = rpc_call, .opts = &load.call}};
	struct call_result result;
	int rc = config_known(config, keys, sizeof(keys) / sizeof(keys[0]), "rpc", error);

	if (!rc)
		rc = read_load(config, setup->preset, &load, error);
	if (rc)
		return rc;
	run.opts = &load;
	run.call.min_ops = MIN_OPS;
	run.call.load.n_listeners = 1;
	run.result = calloc(1, load.resp + 1u);
	if (!run.result)
		rc = lab_error(error, "no memory for a result of %u bytes", load.resp);
	else
		rc = calls_run(&run.call, setup, spawn_server, &result, error);
	if (!rc) {
		call_metrics(&load.call, &result, out);
		lab_metric_add(out, "gbps", 8e-3 * *lab_metric_get(out, "mops") * load.resp);
		trial_result_free(&result.trial);
	}
	free(run.result);
	return rc;
}
