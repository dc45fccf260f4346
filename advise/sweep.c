/* SPDX-License-Identifier: MIT */
/*
 * A sweep: one protocol with more and more outstanding requests. The steps are large until the
 * throughput stops growing; then the neighbours of the best point are run. That takes about five
 * runs instead of nine, and leaves out the expensive ones with many requests if they gain nothing.
 */
#include "advise.h"

#include <errno.h>
#include <math.h>

#define WRITE_REPLY_BYTES  8u
#define STEP		   4u
#define GAIN_MIN	   1.02
#define LOSS_MAX	   0.95
#define STEPS_WITHOUT_GAIN 2u	   /* large steps in a row */
#define ROUNDS		   2	   /* of all outstanding requests, in a short run */
#define RUN_OPS		   60000.0 /* of a run with effort 1, … */
#define RUN_BYTES	   6.4e7   /* … or fewer: with so many bytes of values */

int advise_point_run(const struct advise_env *env, const struct advise_query *q,
		     const struct advise_sweep *l, unsigned pending, double effort,
		     struct advise_point *out, char why[BENCH_WHY_MAX])
{
	const struct bench_msg_opts opts = {
		.load = {.provider = "sim",
			 .profile = q->profile,
			 .effort = effort,
			 .paper = q->paper,
			 .seed = q->seed},
		.protocol = l->protocol,
		.topology = q->topology,
		.nodes = l->nodes,
		.threads = l->threads,
		.pending = pending,
		.request_bytes = l->writes ? q->request + l->value : q->request,
		.value_bytes = l->writes ? WRITE_REPLY_BYTES : l->value,
	};
	struct bench_msg_result result;
	int rc = bench_msg_check(&opts, why);

	if (rc)
		return rc;
	rc = env->msg(&opts, NULL, &result);
	if (*env->interrupted && rc)
		return -EINTR;
	if (rc || !(result.mops > 0))
		return bench_refuse(why, "%s", rc ? result.error : "no requests were answered");
	*out = (struct advise_point){
		.pending = pending,
		.mops = result.mops,
		.mean_us = result.latency_us_mean,
		.p99_us = result.p99_us,
		.effort = effort,
	};
	return 0;
}

/* ---- steps ---- */

static const struct advise_point *sweep_point_at(const struct advise_sweep *l, unsigned pending)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->point[i].pending == pending)
			return &l->point[i];
	return NULL;
}

static const struct advise_point *sweep_best(const struct advise_sweep *l)
{
	const struct advise_point *most = &l->point[0];

	for (unsigned i = 1; i < l->n; i++)
		if (l->point[i].mops > most->mops)
			most = &l->point[i];
	return most;
}

static void sweep_insert(struct advise_sweep *l, const struct advise_point *point)
{
	unsigned at = l->n++;

	for (; at && l->point[at - 1].pending > point->pending; at--)
		l->point[at] = l->point[at - 1];
	l->point[at] = *point;
}

struct sweep_run {
	const struct advise_env *env;
	const struct advise_query *query;
	double effort;
	struct advise_sweep *sweep;
};

/* A short run must still be long enough for ROUNDS of all outstanding requests. */
static double sweep_effort_at(const struct sweep_run *c, unsigned pending)
{
	const double ops = fmin(RUN_OPS, RUN_BYTES / c->sweep->value);
	struct advise_query q = *c->query;
	double needed;

	q.nodes = c->sweep->nodes;
	needed = ROUNDS * (double)pending * advise_conns(&q, c->sweep->threads) / ops;
	return fmax(c->effort, fmin(needed, 1) * c->query->effort);
}

/* 0; 1: no point, and the sweep has the reason; or -EINTR. */
static int sweep_run_at(const struct sweep_run *c, unsigned pending)
{
	struct advise_point point;
	char why[BENCH_WHY_MAX] = "";
	int rc = advise_point_run(c->env, c->query, c->sweep, pending, sweep_effort_at(c, pending),
				  &point, why);

	if (rc == -EINTR)
		return rc;
	if (rc) {
		snprintf(c->sweep->reason, sizeof(c->sweep->reason), "%.*s",
			 (int)sizeof(c->sweep->reason) - 1, why);
		return 1;
	}
	sweep_insert(c->sweep, &point);
	return 0;
}

static int sweep_large_steps(const struct sweep_run *c)
{
	struct advise_sweep *l = c->sweep;
	unsigned without_gain = 0;
	double most = 0;
	int rc = 0;

	for (unsigned r = 1; r <= l->pending_max && !rc; r *= STEP) {
		rc = sweep_run_at(c, r);
		if (rc || l->whole)
			continue;
		without_gain = l->point[l->n - 1].mops > GAIN_MIN * most ? 0 : without_gain + 1;
		if (without_gain == STEPS_WITHOUT_GAIN || l->point[l->n - 1].mops < LOSS_MAX * most)
			break;
		most = sweep_best(l)->mops;
	}
	return rc;
}

/* The points between the best one and its neighbours. */
static int sweep_small_steps(const struct sweep_run *c)
{
	struct advise_sweep *l = c->sweep;
	const unsigned top = sweep_best(l)->pending;
	int rc = 0;

	if (top * 2 <= l->pending_max && !sweep_point_at(l, top * 2))
		rc = sweep_run_at(c, top * 2);
	if (!rc && top > 1 && !sweep_point_at(l, top / 2))
		rc = sweep_run_at(c, top / 2);
	return rc;
}

int advise_sweep_run(const struct advise_env *env, const struct advise_query *query, double effort,
		     struct advise_sweep *sweep)
{
	const struct sweep_run c = {env, query, effort, sweep};
	int rc;

	sweep->n = 0;
	sweep->reason[0] = '\0';
	rc = sweep_large_steps(&c);
	if (!rc)
		rc = sweep_small_steps(&c);
	return rc < 0 ? rc : 0;
}
