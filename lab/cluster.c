/* SPDX-License-Identifier: MIT */
/* Builds a simulated cluster for a load, runs it, and takes the measured part of what happened. */
#include "cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_PORT  7000u
#define STACK_BYTES (64u * 1024u) /* load programs need little, and clusters have many threads */
#define LIMIT_NS    (100ull * 1000 * 1000 * 1000) /* of virtual time: something hangs */

/* A run's length; effort 1. */
#define WARM_OPS_PER_THREAD 10u
#define WARM_OPS_PER_QP	    4u /* so that a card's cache holds what it would after hours */
#define WARM_ROUNDS	    3u /* times everything under way */
#define WARM_NS		    20000u
#define MIN_OPS		    50000u
#define MIN_ROUNDS	    6u
#define MIN_NS		    200000u
#define MAX_NS		    20000000u
#define OPS_ENOUGH	    50u /* times MIN_OPS, however little time that took */

/* ---- who and where ---- */

/* Sets of connections that a process's threads make: one each, or one for those that share. */
static unsigned ends_of(const struct cluster *c, const struct load_proc *p)
{
	return (p->n_threads + c->load.shared_by - 1) / c->load.shared_by;
}

struct load_proc *cluster_add(struct cluster *c, unsigned node, unsigned n_threads)
{
	struct load_proc *procs = reallocarray(c->procs, c->n_procs + 1, sizeof(*procs));
	unsigned port = FIRST_PORT;

	if (!procs)
		return NULL;
	c->procs = procs;
	for (unsigned i = 0; i < c->n_procs; i++)
		port += procs[i].node == node;
	procs[c->n_procs] = (struct load_proc){.node = node, .n_threads = n_threads};
	snprintf(procs[c->n_procs].addr, LOAD_ADDR_MAX, "sim:n%u:%u", node, port);
	return &procs[c->n_procs++];
}

int cluster_connect(struct cluster *c, unsigned from, unsigned to, unsigned n)
{
	struct load_proc *p = &c->procs[from];
	unsigned *targets = reallocarray(p->targets, p->n_targets + n, sizeof(*targets));

	if (!targets)
		return -ENOMEM;
	p->targets = targets;
	for (unsigned i = 0; i < n; i++)
		targets[p->n_targets++] = to;
	c->procs[to].expected += n * ends_of(c, p);
	return 0;
}

int cluster_spread(struct cluster *c, unsigned first, unsigned n, unsigned window)
{
	unsigned threads = 0, t = 0;

	for (unsigned i = first; i < first + n; i++)
		threads += c->procs[i].n_threads;
	for (unsigned i = first; i < first + n; i++) {
		struct load_proc *p = &c->procs[i];

		p->windows = calloc(p->n_threads, sizeof(p->windows[0]));
		if (!p->windows)
			return -ENOMEM;
		for (unsigned k = 0; k < p->n_threads; k++, t++)
			p->windows[k] = window / threads + (t < window % threads);
	}
	return 0;
}

void cluster_free(struct cluster *c)
{
	for (unsigned i = 0; i < c->n_procs; i++) {
		free(c->procs[i].targets);
		free(c->procs[i].windows);
	}
	free(c->procs);
	*c = (struct cluster){0};
}

/* ---- the run ---- */

struct measurement {
	struct gn_sim *sim;
	const struct cluster *cluster;
	struct cluster_result *out;
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

static void mark(struct load_run *run, enum load_phase phase)
{
	struct measurement *m = run->mark_arg;
	struct cluster_result *out = m->out;
	const double now = wall_now();

	for (unsigned i = 0; i < m->cluster->n_nodes; i++) {
		struct gn_sim_stats stats;

		gn_sim_stats(m->sim, i, &stats);
		if (phase == LOAD_OVER)
			subtract(&stats, &out->stats[i]);
		out->stats[i] = stats;
	}
	if (phase == LOAD_MEASURED) {
		out->events = gn_sim_events(m->sim);
		out->wall_seconds = wall_now();
	} else {
		out->events = gn_sim_events(m->sim) - out->events;
		out->wall_seconds = now - out->wall_seconds;
	}
}

static uint64_t scaled(uint64_t n, double by)
{
	return (uint64_t)((double)n * by);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Operations that all threads together can have under way. */
static uint64_t under_way(const struct cluster *c)
{
	const struct load_opts *o = &c->load;
	uint64_t n = 0;

	for (unsigned i = 0; i < c->n_procs; i++) {
		const struct load_proc *p = &c->procs[i];

		if (o->stream)
			n += (uint64_t)p->n_threads * o->signal_every;
		else if (o->per_qp)
			n += (uint64_t)p->n_threads * o->window * p->n_targets;
		else
			for (unsigned t = 0; t < p->n_threads; t++)
				n += p->windows ? p->windows[t] : o->window;
	}
	return n;
}

static void set_length(const struct cluster *c, const struct cluster_opts *opts,
		       struct load_run *run)
{
	struct load_length *l = &run->length;
	const uint64_t rounds = under_way(c);
	uint64_t qps = 0;

	for (unsigned i = 0; i < c->n_procs; i++) {
		struct load_proc *p = &c->procs[i];

		p->run = run;
		run->n_threads += p->n_threads;
		run->n_listeners += p->expected > 0;
		qps += (uint64_t)ends_of(c, p) * p->n_targets;
	}
	l->warm_ops = max_u64(WARM_OPS_PER_THREAD * run->n_threads, WARM_OPS_PER_QP * qps);
	l->warm_ops = max_u64(l->warm_ops, WARM_ROUNDS * rounds);
	l->warm_ns = WARM_NS;
	l->min_ops = scaled(max_u64(MIN_OPS, MIN_ROUNDS * rounds), opts->effort);
	l->min_ns = scaled(MIN_NS, opts->effort);
	l->max_ns = scaled(MAX_NS, opts->effort);
	l->max_ops = OPS_ENOUGH * l->min_ops;
	if (opts->ops) {
		l->min_ops = l->max_ops = opts->ops;
		l->max_ns = UINT64_MAX;
	}
	run->opts = c->load;
	run->procs = c->procs;
	run->n_procs = c->n_procs;
	run->mark = mark;
	run->interrupted = opts->interrupted;
}

static int spawn_all(struct cluster *c, struct gn_sim *sim)
{
	int rc = 0;

	for (unsigned i = 0; i < c->n_procs && !rc; i++)
		rc = gn_sim_spawn(sim, c->procs[i].node, load_main, 0, NULL, &c->procs[i], NULL);
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

static int measure(struct cluster *c, const struct cluster_opts *opts, struct load_run *run,
		   struct cluster_result *out, struct lab_error *error)
{
	const struct gn_sim_opts sim_opts = {
		.profile = opts->card,
		.seed = opts->seed,
		.nodes = c->n_nodes,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
	};
	struct measurement m = {.cluster = c, .out = out};
	int rc = gn_sim_create(&sim_opts, &m.sim);

	if (rc) {
		lab_error(error, "no cluster of %u nodes with profile %s: %s", c->n_nodes,
			  opts->card, gn_strerror(rc));
		return rc;
	}
	run->mark_arg = &m;
	rc = spawn_all(c, m.sim);
	if (!rc)
		rc = gn_sim_run(m.sim);
	out->trace_hash = gn_sim_trace_hash(m.sim);
	rc = check(m.sim, run, rc, error);
	gn_sim_destroy(m.sim);
	return rc;
}

int cluster_run(struct cluster *c, const struct cluster_opts *opts, struct cluster_result *out,
		struct lab_error *error)
{
	struct load_run run = {0};
	struct gn_hist *hist = malloc(sizeof(*hist));
	int rc;

	*out = (struct cluster_result){.stats = calloc(c->n_nodes, sizeof(*out->stats))};
	if (!hist || !out->stats) {
		lab_error(error, "no memory for the results");
		rc = -ENOMEM;
		goto done;
	}
	gn_hist_init(hist);
	run.latency_ns = hist;
	set_length(c, opts, &run);
	rc = measure(c, opts, &run, out, error);
	if (rc)
		goto done;
	out->ops = run.end_ops - run.begin_ops;
	out->ns = run.end_ns - run.begin_ns;
	if (hist->count) {
		out->latency_ns_mean = gn_hist_mean(hist);
		out->p15_ns = (double)gn_hist_percentile(hist, 15);
		out->p50_ns = (double)gn_hist_percentile(hist, 50);
		out->p99_ns = (double)gn_hist_percentile(hist, 99);
	}
done:
	free(hist);
	if (rc)
		cluster_result_free(out);
	return rc;
}

void cluster_result_free(struct cluster_result *result)
{
	free(result->stats);
	*result = (struct cluster_result){0};
}
