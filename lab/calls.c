/* SPDX-License-Identifier: MIT */
/* From a line's configuration to the options of a load, and from its result to metrics. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define RETRIES_MAX  1000u
#define LIMIT_US_MAX 1000000u

static int read_batch(const struct config *c, struct load_opts *o, struct lab_error *error)
{
	const char *limit = config_get(c, "limit_us");
	uint64_t batch = LOAD_AUTO_MAX, alpha = 0;
	char *end = NULL;
	const double us = limit ? strtod(limit, &end) : 0;
	int rc = config_uint(c, "alpha_pct", 0, 1, 100, &alpha, error);

	if (!rc && limit && (end == limit || *end || !(us >= 1 && us <= LIMIT_US_MAX)))
		rc = lab_error(error, "limit_us=%s is not a number of 1 to %u", limit,
			       LIMIT_US_MAX);
	o->batch_auto = config_is(c, "batch", "auto");
	if (!rc && o->batch_auto && !limit)
		rc = lab_error(error, "batch=auto needs limit_us");
	if (!rc && !o->batch_auto)
		rc = config_uint(c, "batch", 1, 1, GN_RPC_BATCH_MAX, &batch, error);
	o->batch = o->inflight = (uint32_t)batch;
	o->limit_us = us;
	o->alpha_pct = (uint32_t)alpha;
	return rc;
}

/* What the papers fix by hand the library finds by itself: the preset gannet leaves it out. */
int calls_read(const struct lab_setup *setup, const struct config *c, struct load_opts *o,
	       struct lab_error *error)
{
	uint64_t threads, machines, clients, fetch, retries;
	const struct config_number numbers[] = {
		{"server_threads", 1, 1, LOAD_THREADS_MAX, &threads},
		{"client_machines", 1, 1, LOAD_MACHINES_MAX, &machines},
		{"clients_per_machine", 1, 1, LOAD_THREADS_MAX, &clients},
		{"fetch_size", 0, 1, GN_RPC_BYTES_MAX, &fetch},
		{"retries", 0, 1, RETRIES_MAX, &retries},
	};
	int rc;

	*o = (struct load_opts){.provider = "sim",
				.profile = setup->card,
				.effort = setup->effort,
				.seed = setup->seed,
				.paper = !strcmp(setup->preset, "paper")};
	if (!o->paper && strcmp(setup->preset, "gannet"))
		return lab_error(error, "preset '%s' is neither paper nor gannet", setup->preset);
	rc = read_batch(c, o, error);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (rc)
		return rc;
	o->threads = (uint32_t)threads;
	o->machines = (uint32_t)machines;
	o->clients = (uint32_t)clients;
	o->fetch_bytes = o->paper ? (uint32_t)fetch : 0;
	o->retries = o->paper ? (uint32_t)retries : 0;
	return 0;
}

int calls_mode(const struct config *c, const char *const *names, unsigned n, unsigned *out,
	       struct lab_error *error)
{
	const char *mode = config_get(c, "mode");

	for (unsigned i = 0; mode && i < n; i++)
		if (!strcmp(mode, names[i])) {
			*out = i;
			return 0;
		}
	return lab_error(error, "mode=%s is not fetch, reply, hybrid or bypass", mode ? mode : "");
}

static double per(uint64_t n, uint64_t calls)
{
	return calls ? (double)n / (double)calls : 0;
}

void calls_metrics(const struct load_result *r, uint32_t bytes, struct lab_metrics *out)
{
	const struct load_sums *s = &r->sums;

	out->n = 0;
	lab_metric_add(out, "mops", r->mops);
	lab_metric_add(out, "latency_us_mean", 1e-3 * r->latency_ns_mean);
	lab_metric_add(out, "p15_us", 1e-3 * r->p15_ns);
	lab_metric_add(out, "p50_us", 1e-3 * r->run.p50_ns);
	lab_metric_add(out, "p99_us", 1e-3 * r->run.p99_ns);
	lab_metric_add(out, "pct_below_7us", 100 * per(s->below_7us, s->ops));
	lab_metric_add(out, "pct_above_limit", 100 * per(s->late, s->ops));
	lab_metric_add(out, "fetches", per(s->fetches, s->calls));
	lab_metric_add(out, "failed_fetches", per(s->failed_fetches, s->calls));
	lab_metric_add(out, "second_reads", per(s->second_reads, s->calls));
	lab_metric_add(out, "switches", (double)s->switches);
	lab_metric_add(out, "batch", r->batch);
	lab_metric_add(out, "round_trips", r->round_trips);
	lab_metric_add(out, "gbps", 8e-3 * r->mops * bytes);
}
