/* SPDX-License-Identifier: MIT */
/* Builds a simulated cluster for calls, runs it, and takes the measured part of what happened. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc_load.h"

#define STACK_BYTES (128u * 1024u)
#define LIMIT_NS    (2ull * 1000 * 1000 * 1000) /* of virtual time: something hangs */

/*
 * A run's length; effort 1. A hybrid client has settled long before the end of the warm-up: it
 * takes two calls.
 */
#define WARM_NS	   500000u
#define WARM_OPS   10u /* of each client */
#define CHOSEN_OPS 40000u
#define MIN_NS	   2000000u
#define MAX_NS	   20000000u
#define MIN_OPS	   4000u
#define MAX_OPS	   10000000u

struct measurement {
	struct gn_sim *sim;
	const struct rpc_load *load;
	struct rpc_result *out;
};

/* Struct gn_sim_stats is nothing but counters. */
static void add_stats(struct gn_sim_stats *to, const struct gn_sim_stats *what, bool minus)
{
	uint64_t a[sizeof(*to) / sizeof(uint64_t)], b[sizeof(*to) / sizeof(uint64_t)];

	memcpy(a, to, sizeof(a));
	memcpy(b, what, sizeof(b));
	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)
		a[i] = minus ? a[i] - b[i] : a[i] + b[i];
	memcpy(to, a, sizeof(a));
}

/* What there was at the beginning is taken from what there is at the end. */
static void mark(struct load_run *run, enum load_phase phase)
{
	struct measurement *m = run->mark_arg;

	for (unsigned i = 0; i <= m->load->machines; i++) {
		struct gn_sim_stats stats;

		if (!gn_sim_stats(m->sim, i, &stats))
			add_stats(i ? &m->out->clients : &m->out->server, &stats,
				  phase == LOAD_MEASURED);
	}
}

static uint64_t scaled(uint64_t n, double by)
{
	return (uint64_t)((double)n * by);
}

static void set_length(struct rpc_run *run, const struct lab_setup *setup)
{
	const struct rpc_load *o = run->opts;
	struct load_run *load = &run->load;

	/* A batch grows by one at a time, and takes many calls to make up its mind. */
	const uint64_t warm_ops = o->chosen ? CHOSEN_OPS : WARM_OPS;

	load->n_threads = o->machines * o->clients;
	load->interrupted = setup->interrupted;
	load->length = (struct load_length){
		.warm_ops = warm_ops * load->n_threads,
		.warm_ns = WARM_NS,
		.min_ops = scaled(MIN_OPS, setup->effort),
		.min_ns = scaled(MIN_NS, setup->effort),
		.max_ops = scaled(MAX_OPS, setup->effort),
		.max_ns = scaled(MAX_NS, setup->effort),
	};
}

static int spawn_all(struct gn_sim *sim, struct rpc_run *run, struct rpc_site *sites)
{
	int rc = gn_sim_spawn(sim, 0, rpc_server_program, 0, NULL, run, NULL);

	for (unsigned i = 0; i < run->opts->machines && !rc; i++) {
		sites[i] = (struct rpc_site){run, i};
		rc = gn_sim_spawn(sim, i + 1, rpc_client_program, 0, NULL, &sites[i], NULL);
	}
	return rc;
}

static int check(const struct gn_sim *sim, const struct load_run *run, int rc,
		 struct lab_error *error)
{
	if (run->failed)
		*error = run->error;
	else if (rc)
		lab_error(error, "the simulation: %s", gn_strerror(rc));
	else if (run->phase != LOAD_OVER)
		lab_error(error, "the programs ended before anything was measured");
	else if (gn_sim_leaks(sim))
		lab_error(error, "the programs left %llu allocations behind",
			  (unsigned long long)gn_sim_leaks(sim));
	else
		return 0;
	if (run->interrupted && *run->interrupted)
		return -EINTR;
	return rc ? rc : -EIO;
}

static int simulate(struct rpc_run *run, const struct lab_setup *setup, struct measurement *m,
		    struct lab_error *error)
{
	const struct gn_sim_opts opts = {
		.profile = setup->card,
		.seed = setup->seed,
		.nodes = 1 + run->opts->machines,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
	};
	struct rpc_site *sites = calloc(run->opts->machines, sizeof(*sites));
	int rc = sites ? gn_sim_create(&opts, &m->sim) : -ENOMEM;

	if (rc) {
		lab_error(error, "no cluster of %u nodes with profile %s: %s", opts.nodes,
			  opts.profile, gn_strerror(rc));
		free(sites);
		return rc;
	}
	run->load.mark = mark;
	run->load.mark_arg = m;
	rc = spawn_all(m->sim, run, sites);
	if (!rc)
		rc = gn_sim_run(m->sim);
	rc = check(m->sim, &run->load, rc, error);
	gn_sim_destroy(m->sim);
	free(sites);
	return rc;
}

int rpc_load_run(const struct rpc_load *load, const struct lab_setup *setup, struct rpc_result *out,
		 struct lab_error *error)
{
	struct rpc_run run = {.opts = load};
	struct measurement m = {.load = load, .out = out};
	struct gn_hist *hist = malloc(sizeof(*hist));
	uint8_t *result = calloc(1, load->resp + 1u);
	int rc;

	*out = (struct rpc_result){0};
	if (!hist || !result) {
		lab_error(error, "no memory for the results");
		rc = -ENOMEM;
		goto done;
	}
	gn_hist_init(hist);
	run.load.latency_ns = hist;
	run.result = result;
	set_length(&run, setup);
	rc = simulate(&run, setup, &m, error);
	if (!rc) {
		out->calls = run.load.end_ops - run.load.begin_ops;
		out->ns = run.load.end_ns - run.load.begin_ns;
		out->sums = run.sums;
		out->latency_ns_mean = gn_hist_mean(hist);
		out->p15_ns = (double)gn_hist_percentile(hist, 15);
		out->p50_ns = (double)gn_hist_percentile(hist, 50);
		out->p99_ns = (double)gn_hist_percentile(hist, 99);
	}
done:
	free(hist);
	free(result);
	return rc;
}
