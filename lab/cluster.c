/* SPDX-License-Identifier: MIT */
/* Who stands where in a simulated cluster for a load, and how long it runs. */
#include "cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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
static unsigned ends_of(const struct cluster *c, const struct fab_proc *p)
{
	return (p->n_threads + c->load.shared_by - 1) / c->load.shared_by;
}

struct fab_proc *cluster_add(struct cluster *c, unsigned node, unsigned n_threads)
{
	struct fab_proc *procs = reallocarray(c->procs, c->n_procs + 1, sizeof(*procs));
	unsigned port = FIRST_PORT;

	if (!procs)
		return NULL;
	c->procs = procs;
	for (unsigned i = 0; i < c->n_procs; i++)
		port += procs[i].node == node;
	procs[c->n_procs] = (struct fab_proc){.node = node, .n_threads = n_threads};
	snprintf(procs[c->n_procs].addr, FAB_ADDR_MAX, "sim:n%u:%u", node, port);
	return &procs[c->n_procs++];
}

int cluster_connect(struct cluster *c, unsigned from, unsigned to, unsigned n)
{
	struct fab_proc *p = &c->procs[from];
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
		struct fab_proc *p = &c->procs[i];

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
	const struct fab_opts *o = &c->load;
	uint64_t n = 0;

	for (unsigned i = 0; i < c->n_procs; i++) {
		const struct fab_proc *p = &c->procs[i];

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
		       struct fab_run *run)
{
	struct fab_length *l = &run->length;
	const uint64_t rounds = under_way(c);
	uint64_t qps = 0;

	for (unsigned i = 0; i < c->n_procs; i++) {
		struct fab_proc *p = &c->procs[i];

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
	run->interrupted = opts->interrupted;
}

static int spawn_all(struct gn_sim *sim, void *arg)
{
	const struct cluster *c = arg;
	int rc = 0;

	for (unsigned i = 0; i < c->n_procs && !rc; i++)
		rc = gn_sim_spawn(sim, c->procs[i].node, fab_main, 0, NULL, &c->procs[i], NULL);
	return rc;
}

int cluster_run(struct cluster *c, const struct cluster_opts *opts, struct trial_result *out,
		struct lab_error *error)
{
	const struct trial trial = {
		.card = opts->card,
		.seed = opts->seed,
		.nodes = c->n_nodes,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.spawn = spawn_all,
		.arg = c,
	};
	struct fab_run run = {0};

	set_length(c, opts, &run);
	return trial_run(&trial, &run, out, error);
}
