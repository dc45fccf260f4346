/* SPDX-License-Identifier: MIT */
/*
 * One protocol with more and more requests under way. Steps are large until it does not help any
 * more, and then the gaps beside the best are looked at: five runs or so in place of nine, and the
 * expensive ones, with many under way, are left out where they are of no use.
 */
#include "advise.h"

#include <errno.h>
#include <math.h>

#define WRITE_ANSWER_BYTES 8u
#define STEP		   4u
#define HELPS		   1.02
#define HURTS		   0.95
#define VAIN_MAX	   2u	   /* large steps that did not help */
#define ROUNDS		   2	   /* that all that is under way comes round */
#define RUN_OPS		   60000.0 /* of effort 1, … */
#define RUN_BYTES	   6.4e7   /* … or as many as these are values */

static const char *const topologies[ADVISE_TOPOLOGIES] = {"m1", "1m", "mm"};

static int set_number(struct config *config, const char *key, unsigned value,
		      struct lab_error *error)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	return config_set(config, key, text, error);
}

static int make_config(const struct advise_query *q, const struct advise_ladder *l,
		       unsigned pending, struct config *config, struct lab_error *error)
{
	const struct {
		const char *key;
		unsigned value;
	} numbers[] = {
		{"nodes", l->nodes},
		{"threads", l->threads},
		{"pending", pending},
		{"key", l->writes ? q->request + l->value : q->request},
		{"value", l->writes ? WRITE_ANSWER_BYTES : l->value},
	};
	int rc = config_set(config, "topology", topologies[q->topology], error);

	if (!rc)
		rc = config_set(config, "protocol", gn_msg_protocol_str(l->protocol), error);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && !rc; i++)
		rc = set_number(config, numbers[i].key, numbers[i].value, error);
	return rc;
}

int advise_again(const struct advise_env *env, const struct advise_query *q,
		 const struct advise_ladder *l, unsigned pending, double effort,
		 struct advise_point *out, struct lab_error *error)
{
	const struct lab_setup setup = {
		.profile = q->profile,
		.card = q->profile,
		.preset = q->preset,
		.seed = q->seed,
		.effort = effort,
		.interrupted = env->interrupted,
	};
	const double *mops, *mean, *p99;
	struct config config = {0};
	struct lab_metrics metrics = {0};
	int rc = make_config(q, l, pending, &config, error);

	if (!rc)
		rc = env->msg(&setup, &config, &metrics, error);
	if (rc)
		return *env->interrupted ? -EINTR : rc;
	mops = lab_metric_get(&metrics, "mops");
	mean = lab_metric_get(&metrics, "latency_us_mean");
	p99 = lab_metric_get(&metrics, "p99_us");
	if (!mops || !mean || !p99 || !(*mops > 0))
		return lab_error(error, "the run has ended without a figure");
	*out = (struct advise_point){
		.pending = pending,
		.mops = *mops,
		.mean_us = *mean,
		.p99_us = *p99,
		.effort = effort,
	};
	return 0;
}

/* ---- the ladder ---- */

static const struct advise_point *point_at(const struct advise_ladder *l, unsigned pending)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->point[i].pending == pending)
			return &l->point[i];
	return NULL;
}

static const struct advise_point *best(const struct advise_ladder *l)
{
	const struct advise_point *most = &l->point[0];

	for (unsigned i = 1; i < l->n; i++)
		if (l->point[i].mops > most->mops)
			most = &l->point[i];
	return most;
}

static void insert(struct advise_ladder *l, const struct advise_point *point)
{
	unsigned at = l->n++;

	for (; at && l->point[at - 1].pending > point->pending; at--)
		l->point[at] = l->point[at - 1];
	l->point[at] = *point;
}

struct climb {
	const struct advise_env *env;
	const struct advise_query *query;
	double effort;
	struct advise_ladder *ladder;
};

/* A short run must still be long enough for all that is under way to come round. */
static double effort_at(const struct climb *c, unsigned pending)
{
	const double ops = fmin(RUN_OPS, RUN_BYTES / c->ladder->value);
	struct advise_query q = *c->query;
	double needed;

	q.nodes = c->ladder->nodes;
	needed = ROUNDS * (double)pending * advise_conns(&q, c->ladder->threads) / ops;
	return fmax(c->effort, fmin(needed, 1) * c->query->effort);
}

/* -EINTR, 1: there is no point there, and the reason is kept; or 0. */
static int run_at(const struct climb *c, unsigned pending)
{
	struct advise_point point;
	struct lab_error error = {""};
	int rc = advise_again(c->env, c->query, c->ladder, pending, effort_at(c, pending), &point,
			      &error);

	if (rc == -EINTR)
		return rc;
	if (rc) {
		snprintf(c->ladder->reason, sizeof(c->ladder->reason), "%.*s",
			 (int)sizeof(c->ladder->reason) - 1, error.text);
		return 1;
	}
	insert(c->ladder, &point);
	return 0;
}

static int large_steps(const struct climb *c)
{
	struct advise_ladder *l = c->ladder;
	unsigned vain = 0;
	double most = 0;
	int rc = 0;

	for (unsigned r = 1; r <= l->pending_max && !rc; r *= STEP) {
		rc = run_at(c, r);
		if (rc || l->whole)
			continue;
		vain = l->point[l->n - 1].mops > HELPS * most ? 0 : vain + 1;
		if (vain == VAIN_MAX || l->point[l->n - 1].mops < HURTS * most)
			break;
		most = best(l)->mops;
	}
	return rc;
}

/* What is between the best and those next to it. */
static int small_steps(const struct climb *c)
{
	struct advise_ladder *l = c->ladder;
	const unsigned top = best(l)->pending;
	int rc = 0;

	if (top * 2 <= l->pending_max && !point_at(l, top * 2))
		rc = run_at(c, top * 2);
	if (!rc && top > 1 && !point_at(l, top / 2))
		rc = run_at(c, top / 2);
	return rc;
}

int advise_climb(const struct advise_env *env, const struct advise_query *query, double effort,
		 struct advise_ladder *ladder)
{
	const struct climb c = {env, query, effort, ladder};
	int rc;

	ladder->n = 0;
	ladder->reason[0] = '\0';
	rc = large_steps(&c);
	if (!rc)
		rc = small_steps(&c);
	return rc < 0 ? rc : 0;
}
