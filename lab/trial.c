/* SPDX-License-Identifier: MIT */
/* Builds a simulated cluster, runs its programs, and takes the measured part of what happened. */
#include "trial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct measurement {
	struct gn_sim *sim;
	unsigned nodes;
	struct trial_result *out;
};

static double wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Struct gn_sim_stats is nothing but counters. */
static void subtract(struct gn_sim_stats *from, const struct gn_sim_stats *what)
{
	uint64_t a[sizeof(*from) / sizeof(uint64_t)], b[sizeof(*from) / sizeof(uint64_t)];

	memcpy(a, from, sizeof(a));
	memcpy(b, what, sizeof(b));
	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)
		a[i] -= b[i];
	memcpy(from, a, sizeof(a));
}

static void mark(struct fab_run *run, enum fab_phase phase)
{
	struct measurement *m = run->mark_arg;
	struct trial_result *out = m->out;
	const double now = wall_now();

	for (unsigned i = 0; i < m->nodes; i++) {
		struct gn_sim_stats stats = {.size = sizeof(stats)};

		gn_sim_node_stats(m->sim, i, &stats);
		if (phase == FAB_OVER)
			subtract(&stats, &out->stats[i]);
		out->stats[i] = stats;
	}
	if (phase == FAB_MEASURED) {
		out->events = gn_sim_events(m->sim);
		out->wall_seconds = wall_now();
	} else {
		out->events = gn_sim_events(m->sim) - out->events;
		out->wall_seconds = now - out->wall_seconds;
	}
}

static int check(const struct gn_sim *sim, const struct fab_run *run, int rc,
		 struct lab_error *error)
{
	if (run->failed)
		*error = run->error;
	else if (rc)
		lab_error(error, "the simulation: %s", gn_strerror(rc));
	else if (run->phase != FAB_OVER)
		lab_error(error, "the programs ended before anything was measured");
	else if (run->end_ns == run->begin_ns)
		lab_error(error, "no virtual time went by: this profile has no costs");
	else if (gn_sim_leaks(sim))
		lab_error(error, "the programs left %llu allocations behind",
			  (unsigned long long)gn_sim_leaks(sim));
	else
		return 0;
	if (run->interrupted && *run->interrupted)
		return -EINTR;
	return rc ? rc : -EIO;
}

static int simulate(const struct trial *trial, struct fab_run *run, struct trial_result *out,
		    struct lab_error *error)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = trial->card,
		.seed = trial->seed,
		.nodes = trial->nodes,
		.stack_bytes = trial->stack_bytes,
		.limit_ns = trial->limit_ns,
	};
	struct measurement m = {.nodes = trial->nodes, .out = out};
	int rc = gn_sim_create(&opts, &m.sim);

	if (rc) {
		lab_error(error, "no cluster of %u nodes with profile %s: %s", opts.nodes,
			  opts.profile, gn_strerror(rc));
		return rc;
	}
	run->mark = mark;
	run->mark_arg = &m;
	rc = trial->spawn(m.sim, trial->arg);
	if (!rc)
		rc = gn_sim_run(m.sim);
	out->trace_hash = gn_sim_trace_hash(m.sim);
	rc = check(m.sim, run, rc, error);
	gn_sim_destroy(m.sim);
	return rc;
}

int trial_run(const struct trial *trial, struct fab_run *run, struct trial_result *out,
	      struct lab_error *error)
{
	struct gn_hist *hist = malloc(sizeof(*hist));
	int rc;

	*out = (struct trial_result){.stats = calloc(trial->nodes, sizeof(*out->stats))};
	if (!hist || !out->stats) {
		lab_error(error, "no memory for the results");
		rc = -ENOMEM;
		goto done;
	}
	gn_hist_init(hist);
	run->latency_ns = hist;
	rc = simulate(trial, run, out, error);
	if (rc)
		goto done;
	out->ops = run->end_ops - run->begin_ops;
	out->ns = run->end_ns - run->begin_ns;
	if (hist->count) {
		out->latency_ns_mean = gn_hist_mean(hist);
		out->p15_ns = (double)gn_hist_percentile(hist, 15);
		out->p50_ns = (double)gn_hist_percentile(hist, 50);
		out->p99_ns = (double)gn_hist_percentile(hist, 99);
	}
done:
	run->latency_ns = NULL;
	free(hist);
	if (rc)
		trial_result_free(out);
	return rc;
}

void trial_result_free(struct trial_result *result)
{
	free(result->stats);
	*result = (struct trial_result){0};
}
