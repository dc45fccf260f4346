/* SPDX-License-Identifier: MIT */
/*
 * The layer "rpc" of the list of figures: calls of the library, with nothing behind them. A
 * configuration becomes a load, a run becomes metrics.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc_load.h"

#define THREADS_MAX  256u
#define MACHINES_MAX 256u
#define WORK_US_MAX  100000u
#define RETRIES_MAX  1000u
#define LIMIT_US_MAX 1000000u
#define AUTO_MAX     128u /* S000 4.2: the range of the best batch is 1 to 128 */

static const char *const keys[] = {
	"server_threads",
	"client_machines",
	"clients_per_machine",
	"mode",
	"req",
	"resp",
	"batch",
	"limit_us",
	"alpha_pct",
	"fetch_size",
	"retries",
	"work_us",
	"route",
};

#define KEYS (sizeof(keys) / sizeof(keys[0]))

static int check_keys(const struct config *c, struct lab_error *error)
{
	for (unsigned i = 0; i < c->n; i++) {
		size_t k = 0;

		while (k < KEYS && strcmp(c->pair[i].key, keys[k]))
			k++;
		if (k == KEYS)
			return lab_error(error, "key '%s' is not known to the layer rpc",
					 c->pair[i].key);
	}
	return 0;
}

static int read_mode(const struct config *c, enum gn_rpc_mode *out, struct lab_error *error)
{
	static const char *const names[GN_RPC_MODES] = {
		[GN_RPC_HYBRID] = "hybrid",
		[GN_RPC_FETCH] = "fetch",
		[GN_RPC_REPLY] = "reply",
	};
	const char *mode = config_get(c, "mode");

	for (unsigned i = 0; mode && i < GN_RPC_MODES; i++) {
		if (!strcmp(mode, names[i])) {
			*out = (enum gn_rpc_mode)i;
			return 0;
		}
	}
	return lab_error(error, "mode=%s is not fetch, reply or hybrid", mode ? mode : "");
}

/* A key of our own. fixed: a client has one server thread; hash: a call goes to that of its key. */
static int read_route(const struct config *c, bool *hashed, struct lab_error *error)
{
	const char *route = config_get(c, "route");

	if (route && strcmp(route, "fixed") && strcmp(route, "hash"))
		return lab_error(error, "route=%s is neither fixed nor hash", route);
	*hashed = route && !strcmp(route, "hash");
	return 0;
}

/* batch=N|auto; limit_us and alpha_pct are what auto goes by, and what is counted in any case. */
static int read_batch(const struct config *c, struct rpc_load *o, struct lab_error *error)
{
	const char *limit = config_get(c, "limit_us");
	uint64_t batch = AUTO_MAX, alpha = 0;
	char *end = NULL;
	const double us = limit ? strtod(limit, &end) : 0;
	int rc = config_uint(c, "alpha_pct", 0, 1, 100, &alpha, error);

	if (!rc && limit && (end == limit || *end || !(us >= 1 && us <= LIMIT_US_MAX)))
		rc = lab_error(error, "limit_us=%s is not a number of 1 to %u", limit,
			       LIMIT_US_MAX);
	o->chosen = config_is(c, "batch", "auto");
	if (!rc && o->chosen && !limit)
		rc = lab_error(error, "batch=auto needs limit_us");
	if (!rc && !o->chosen)
		rc = config_uint(c, "batch", 0, 1, GN_RPC_BATCH_MAX, &batch, error);
	o->batch = (uint32_t)batch;
	o->limit_ns = (uint64_t)(us * 1000);
	o->alpha_pct = (uint32_t)alpha;
	return rc;
}

/* What the papers fix by hand the library finds by itself: the preset gannet leaves it out. */
static int read_load(const struct config *c, const char *preset, struct rpc_load *o,
		     struct lab_error *error)
{
	uint64_t threads, machines, clients, req, resp, fetch, retries, work_us;
	const struct {
		const char *key;
		uint64_t absent, min, max, *out;
	} numbers[] = {
		{"server_threads", 1, 1, THREADS_MAX, &threads},
		{"client_machines", 1, 1, MACHINES_MAX, &machines},
		{"clients_per_machine", 1, 1, THREADS_MAX, &clients},
		{"req", 0, 0, GN_RPC_BYTES_MAX, &req},
		{"resp", 0, 0, GN_RPC_BYTES_MAX, &resp},
		{"fetch_size", 0, 1, GN_RPC_BYTES_MAX, &fetch},
		{"retries", 0, 1, RETRIES_MAX, &retries},
		{"work_us", 0, 0, WORK_US_MAX, &work_us},
	};
	int rc = read_mode(c, &o->mode, error);

	if (!rc)
		rc = read_route(c, &o->hashed, error);
	if (!rc)
		rc = read_batch(c, o, error);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && !rc; i++)
		rc = config_uint(c, numbers[i].key, numbers[i].absent, numbers[i].min,
				 numbers[i].max, numbers[i].out, error);
	if (rc)
		return rc;
	o->paper = !strcmp(preset, "paper");
	if (!o->paper && strcmp(preset, "gannet"))
		return lab_error(error, "preset '%s' is neither paper nor gannet", preset);
	o->server_threads = (unsigned)threads;
	o->machines = (unsigned)machines;
	o->clients = (unsigned)clients;
	o->req = (uint32_t)req;
	o->resp = (uint32_t)resp;
	o->fetch_bytes = o->paper ? (uint32_t)fetch : 0;
	o->retries = o->paper ? (uint32_t)retries : 0;
	o->work_ns = 1000 * work_us;
	return 0;
}

static double per(uint64_t n, uint64_t calls)
{
	return calls ? (double)n / (double)calls : 0;
}

static void metrics(const struct rpc_load *o, const struct rpc_result *r, struct lab_metrics *out)
{
	const double mops = 1e3 * (double)r->calls / (double)r->ns;
	const uint64_t connections =
		(uint64_t)o->machines * o->clients * (o->hashed ? o->server_threads : 1);

	out->n = 0;
	lab_metric_add(out, "mops", mops);
	lab_metric_add(out, "gbps", 8e-3 * mops * o->resp);
	lab_metric_add(out, "latency_us_mean", 1e-3 * r->latency_ns_mean);
	lab_metric_add(out, "p15_us", 1e-3 * r->p15_ns);
	lab_metric_add(out, "p50_us", 1e-3 * r->p50_ns);
	lab_metric_add(out, "p99_us", 1e-3 * r->p99_ns);
	lab_metric_add(out, "fetches", per(r->sums.fetches, r->sums.calls));
	lab_metric_add(out, "failed_fetches", per(r->sums.failed_fetches, r->sums.calls));
	lab_metric_add(out, "second_reads", per(r->sums.second_reads, r->sums.calls));
	lab_metric_add(out, "switches", (double)r->sums.switches);
	lab_metric_add(out, "pct_above_limit", 100 * per(r->sums.late, r->sums.calls));
	lab_metric_add(out, "batch", per(r->sums.batches, connections));
	lab_metric_add(out, "round_trips", per(r->server.requests + r->clients.requests, r->calls));
}

int lab_rpc_run(const struct lab_setup *setup, const struct config *config, struct lab_metrics *out,
		struct lab_error *error)
{
	struct rpc_load load = {0};
	struct rpc_result result;
	int rc = check_keys(config, error);

	if (!rc)
		rc = read_load(config, setup->preset, &load, error);
	if (!rc)
		rc = rpc_load_run(&load, setup, &result, error);
	if (!rc)
		metrics(&load, &result, out);
	return rc;
}
