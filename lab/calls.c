/* SPDX-License-Identifier: MIT */
/* Loads of calls: from the configuration to the cluster, and from its counters to metrics. */
#include "calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX  256u
#define MACHINES_MAX 256u
#define RETRIES_MAX  1000u
#define LIMIT_US_MAX 1000000u
#define AUTO_MAX     128u /* S000 4.2: the range of the best batch is 1 to 128 */

#define STACK_BYTES (128u * 1024u)
#define LIMIT_NS    (2ull * 1000 * 1000 * 1000)

/*
 * A run's length; effort 1. A hybrid client has settled long before the end of the warm-up: it
 * takes two calls. A batch grows by one at a time, and takes many calls to make up its mind.
 */
#define WARM_NS	   500000u
#define WARM_OPS   10u /* of each client */
#define FEW	   8u  /* operations of a batch, so that those of a larger one count less */
#define CHOSEN_OPS 60000u
#define MIN_NS	   2000000u
#define MAX_NS	   40000000u
#define MAX_OPS	   10000000u

/* ---- the configuration ---- */

static int read_mode(const struct config *c, struct call_load *o, struct lab_error *error)
{
	static const char *const names[GN_RPC_MODES] = {
		[GN_RPC_HYBRID] = "hybrid",
		[GN_RPC_FETCH] = "fetch",
		[GN_RPC_REPLY] = "reply",
	};
	const char *mode = config_get(c, "mode");

	/* What does not bypass the server is answered by it, as in Pilaf. */
	o->bypass = mode && !strcmp(mode, "bypass");
	if (o->bypass)
		mode = o->paper ? "reply" : "hybrid";
	for (unsigned i = 0; mode && i < GN_RPC_MODES; i++) {
		if (!strcmp(mode, names[i])) {
			o->mode = (enum gn_rpc_mode)i;
			return 0;
		}
	}
	return lab_error(error, "mode=%s is not fetch, reply, hybrid or bypass", mode ? mode : "");
}

/* batch=N|auto; limit_us and alpha_pct are what auto goes by, and what is counted in any case. */
static int read_batch(const struct config *c, struct call_load *o, struct lab_error *error)
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
int call_load_read(const struct config *c, const char *preset, struct call_load *o,
		   struct lab_error *error)
{
	uint64_t threads, machines, clients, fetch, retries;
	const struct config_number numbers[] = {
		{"server_threads", 1, 1, THREADS_MAX, &threads},
		{"client_machines", 1, 1, MACHINES_MAX, &machines},
		{"clients_per_machine", 1, 1, THREADS_MAX, &clients},
		{"fetch_size", 0, 1, GN_RPC_BYTES_MAX, &fetch},
		{"retries", 0, 1, RETRIES_MAX, &retries},
	};
	int rc;

	o->paper = !strcmp(preset, "paper");
	if (!o->paper && strcmp(preset, "gannet"))
		return lab_error(error, "preset '%s' is neither paper nor gannet", preset);
	rc = read_mode(c, o, error);
	if (!rc)
		rc = read_batch(c, o, error);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (rc)
		return rc;
	o->server_threads = (unsigned)threads;
	o->machines = (unsigned)machines;
	o->clients = (unsigned)clients;
	o->fetch_bytes = o->paper ? (uint32_t)fetch : 0;
	o->retries = o->paper ? (uint32_t)retries : 0;
	return 0;
}

/* ---- the run ---- */

static uint64_t scaled(uint64_t n, double by)
{
	return (uint64_t)((double)n * by);
}

static void set_length(struct call_run *run, const struct lab_setup *setup)
{
	const struct call_load *o = run->opts;
	const uint64_t warm_ops = o->chosen ? scaled(CHOSEN_OPS, setup->effort) : WARM_OPS;
	const uint64_t min_ops = run->min_ops * (1 + o->batch / FEW);
	struct load_run *load = &run->load;

	load->n_threads = o->machines * o->clients;
	load->interrupted = setup->interrupted;
	load->length = (struct load_length){
		.warm_ops = warm_ops * load->n_threads,
		.warm_ns = setup->effort < 1 ? scaled(WARM_NS, setup->effort) : WARM_NS,
		.min_ops = scaled(min_ops, setup->effort),
		.min_ns = scaled(MIN_NS, setup->effort),
		.max_ops = scaled(MAX_OPS, setup->effort),
		.max_ns = scaled(MAX_NS, setup->effort),
	};
}

struct spawning {
	struct call_run *run;
	struct call_site *sites;
	int (*servers)(struct gn_sim *sim, struct call_run *run);
};

static int spawn_all(struct gn_sim *sim, void *arg)
{
	struct spawning *s = arg;
	struct call_run *run = s->run;
	const unsigned n = run->each ? 1 : run->opts->clients;
	int rc = s->servers(sim, run);

	for (unsigned i = 0; i < run->client_procs && !rc; i++) {
		s->sites[i] = (struct call_site){.run = run, .first = i * n, .n = n};
		rc = gn_sim_spawn(sim, 1 + i * n / run->opts->clients, call_client_program, 0, NULL,
				  &s->sites[i], NULL);
	}
	return rc;
}

int calls_run(struct call_run *run, const struct lab_setup *setup,
	      int (*servers)(struct gn_sim *sim, struct call_run *run), struct call_result *out,
	      struct lab_error *error)
{
	const struct call_load *o = run->opts;
	struct spawning spawning = {.run = run, .servers = servers};
	const struct trial trial = {
		.card = setup->card,
		.seed = setup->seed,
		.nodes = 1 + o->machines,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.spawn = spawn_all,
		.arg = &spawning,
	};
	int rc;

	run->client_procs = o->machines * (run->each ? o->clients : 1);
	spawning.sites = calloc(run->client_procs, sizeof(spawning.sites[0]));
	if (!spawning.sites) {
		lab_error(error, "no memory for %u client processes", run->client_procs);
		return -ENOMEM;
	}
	set_length(run, setup);
	rc = trial_run(&trial, &run->load, &out->trial, error);
	out->sums = run->sums;
	free(spawning.sites);
	return rc;
}

/* ---- metrics ---- */

static double per(uint64_t n, uint64_t calls)
{
	return calls ? (double)n / (double)calls : 0;
}

void call_metrics(const struct call_load *o, const struct call_result *r, struct lab_metrics *out)
{
	const struct trial_result *t = &r->trial;
	const struct call_sums *sums = &r->sums;
	uint64_t requests = 0;

	for (unsigned i = 0; i <= o->machines; i++)
		requests += t->stats[i].requests;
	out->n = 0;
	lab_metric_add(out, "mops", 1e3 * (double)t->ops / (double)t->ns);
	lab_metric_add(out, "latency_us_mean", 1e-3 * t->latency_ns_mean);
	lab_metric_add(out, "p15_us", 1e-3 * t->p15_ns);
	lab_metric_add(out, "p50_us", 1e-3 * t->p50_ns);
	lab_metric_add(out, "p99_us", 1e-3 * t->p99_ns);
	lab_metric_add(out, "pct_below_7us", 100 * per(sums->quick, sums->ops));
	lab_metric_add(out, "pct_above_limit", 100 * per(sums->late, sums->ops));
	lab_metric_add(out, "fetches", per(sums->fetches, sums->calls));
	lab_metric_add(out, "failed_fetches", per(sums->failed_fetches, sums->calls));
	lab_metric_add(out, "second_reads", per(sums->second_reads, sums->calls));
	lab_metric_add(out, "switches", (double)sums->switches);
	lab_metric_add(out, "batch", per(sums->batches, sums->connections));
	lab_metric_add(out, "round_trips", per(requests, t->ops));
}
