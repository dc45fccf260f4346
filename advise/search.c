/* SPDX-License-Identifier: MIT */
/*
 * The search: the query with each thread count, longer runs of its leaders, its variants. Each of
 * these steps is a batch of independent tasks for the worker processes.
 */
#include "advise.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers.h"

#define EFFORT_SWEEP	    0.1 /* of the query's */
#define EFFORT_VARIANT	    0.05
#define EFFORT_RPC	    0.05
#define LEADER_MIN	    0.9 /* of the best throughput: a leader is run for longer */
#define LEADERS_MAX	    4u
#define LONG_RUN_EFFORT	    0.2 /* of the query's effort: such a run is not repeated */
#define COUNTS_WITHOUT_GAIN 2u	/* thread counts in a row */

/* RPC calls are simulated for comparison where that is quick. */
#define RPC_SERVER_THREADS 16u
#define RPC_CLIENTS_MAX	   256u
#define RPC_VALUE_MAX	   16384u
#define RPC_BATCH_MAX	   64u
#define RPC_STEP	   4u
#define RPC_HEAD	   40u /* bytes of a response header; a response fills whole cache lines */
#define CACHE_LINE	   64u

enum task_kind { TASK_SWEEP, TASK_POINT, TASK_RPC };

struct task {
	enum task_kind kind;
	unsigned sweep;	  /* TASK_SWEEP, TASK_POINT */
	unsigned pending; /* TASK_POINT; TASK_RPC: the batch */
	double effort;
	uint64_t cost; /* expensive tasks first, so that the processes end together */
};

union outcome {
	struct advise_sweep sweep;
	struct advise_point point;
};

static_assert(sizeof(union outcome) <= WORKER_RESULT_MAX, "a worker sends it at once");

#define TASKS_MAX ADVISE_SWEEPS_MAX

struct search {
	const struct advise_env *env;
	struct advise_answer *answer;
	struct task task[TASKS_MAX];
	unsigned n_tasks;
	unsigned done, of;			     /* tasks of all batches so far */
	struct advise_point call[RPC_BATCH_MAX + 1]; /* by batch */
};

/* ---- tasks ---- */

/* Leaves mops 0 if the run fails. */
static int task_run_rpc(const struct search *s, const struct task *task, struct advise_point *out)
{
	const struct advise_query *q = &s->answer->query;
	const struct bench_rpc_opts opts = {
		.load = {.provider = "sim",
			 .profile = q->profile,
			 .effort = task->effort,
			 .seed = q->seed,
			 .threads = RPC_SERVER_THREADS,
			 .machines = q->nodes,
			 .clients = q->threads_min,
			 .batch = task->pending,
			 .inflight = task->pending},
		.mode = BENCH_RPC_HYBRID,
		.request_bytes = q->request,
		.result_bytes = q->value,
	};
	struct load_result result;
	const int rc = s->env->rpc(&opts, NULL, &result);

	*out = (struct advise_point){.pending = task->pending};
	if (!rc) {
		out->mops = result.mops;
		out->p99_us = 1e-3 * result.run.p99_ns;
	}
	return rc && *s->env->interrupted ? -EINTR : 0;
}

static int task_run(void *arg, unsigned i, void *result)
{
	const struct search *s = arg;
	const struct task *task = &s->task[i];
	const struct advise_query *q = &s->answer->query;
	union outcome *out = result;
	char why[BENCH_WHY_MAX];
	int rc;

	memset(out, 0, sizeof(*out));
	switch (task->kind) {
	case TASK_SWEEP:
		out->sweep = s->answer->sweeps[task->sweep];
		return advise_sweep_run(s->env, q, task->effort, &out->sweep);
	case TASK_POINT:
		rc = advise_point_run(s->env, q, &s->answer->sweeps[task->sweep], task->pending,
				      task->effort, &out->point, why);
		return rc == -EINTR ? rc : 0;
	default:
		return task_run_rpc(s, task, &out->point);
	}
}

static void sweep_replace_point(struct advise_sweep *sweep, const struct advise_point *point)
{
	for (unsigned i = 0; i < sweep->n; i++) {
		if (sweep->point[i].pending != point->pending)
			continue;
		sweep->point[i] = *point;
		sweep->point[i].long_run = true;
	}
}

static void task_done(void *arg, unsigned i, const void *result)
{
	struct search *s = arg;
	const struct task *task = &s->task[i];
	const union outcome *out = result;

	if (task->kind == TASK_SWEEP) {
		s->answer->sweeps[task->sweep] = out->sweep;
		s->answer->runs += out->sweep.n;
	} else if (task->kind == TASK_POINT && out->point.pending) {
		sweep_replace_point(&s->answer->sweeps[task->sweep], &out->point);
		s->answer->runs++;
	} else if (task->kind == TASK_RPC) {
		s->call[task->pending] = out->point;
		s->answer->runs++;
	}
	s->done++;
	if (s->env->progress)
		s->env->progress(s->env->arg, s->done, s->of);
}

static int by_cost(const void *a, const void *b)
{
	const struct task *x = a, *y = b;

	if (x->cost != y->cost)
		return x->cost < y->cost ? 1 : -1;
	return x->sweep < y->sweep ? -1 : x->sweep > y->sweep;
}

static void search_add_task(struct search *s, struct task task)
{
	assert(s->n_tasks < TASKS_MAX);
	s->task[s->n_tasks++] = task;
	s->of++;
}

static void search_add_sweeps(struct search *s, unsigned first, double effort)
{
	for (unsigned i = first; i < s->answer->n_sweeps; i++) {
		const struct advise_sweep *l = &s->answer->sweeps[i];
		const uint64_t nodes = s->answer->query.topology == BENCH_MSG_MM ? l->nodes : 1;

		search_add_task(
			s, (struct task){.kind = TASK_SWEEP,
					 .sweep = i,
					 .effort = effort * s->answer->query.effort,
					 .cost = nodes * l->nodes * l->threads * (100 + l->value)});
	}
}

static int search_run_tasks(struct search *s)
{
	unsigned groups[TASKS_MAX];
	const struct workers_job job = {
		.n = s->n_tasks,
		.groups = groups,
		.result_bytes = sizeof(union outcome),
		.run = task_run,
		.done = task_done,
		.arg = s,
		.interrupted = s->env->interrupted,
	};
	int rc;

	for (unsigned i = 0; i < s->n_tasks; i++)
		groups[i] = i;
	qsort(s->task, s->n_tasks, sizeof(s->task[0]), by_cost);
	rc = workers_run(&job, s->answer->query.jobs);
	s->n_tasks = 0;
	return rc;
}

/* ---- the query ---- */

static void search_rank(struct search *s)
{
	struct advise_answer *a = s->answer;
	struct advise_query closest = a->query;
	struct advise_result result;

	advise_rank(&a->query, a->sweeps, a->n_sweeps, &a->result);
	/* With a limit that none keeps, the lowest latency comes first. */
	closest.latency_us = 1e-9;
	advise_rank(&closest, a->sweeps, a->n_sweeps, &result);
	if (result.n)
		a->quickest = result.candidate[0];
}

/* Tries more threads until the best candidate does not gain. */
static int search_thread_counts(struct search *s)
{
	struct advise_answer *a = s->answer;
	unsigned counts[ADVISE_COUNTS_MAX], without_gain = 0;
	const unsigned n = advise_threads(&a->query, counts);
	double most = 0;
	int rc = 0;

	for (unsigned i = 0; i < n && without_gain < COUNTS_WITHOUT_GAIN && !rc; i++) {
		const unsigned first = a->n_sweeps;

		a->n_sweeps = advise_sweeps(&a->query, counts[i], a->sweeps, first);
		search_add_sweeps(s, first, EFFORT_SWEEP);
		rc = search_run_tasks(s);
		search_rank(s);
		if (!a->result.n || a->result.candidate[0].impossible)
			continue;
		without_gain = a->result.candidate[0].mops > (1 + ADVISE_TIE) * most ?
				       0 :
				       without_gain + 1;
		most = a->result.candidate[0].mops > most ? a->result.candidate[0].mops : most;
	}
	return rc;
}

static void search_add_point(struct search *s, const struct advise_candidate *c, bool writes)
{
	struct advise_answer *a = s->answer;
	const struct advise_point *point =
		advise_point_of(&a->query, a->sweeps, a->n_sweeps, c, writes);
	unsigned i = 0;

	while (point &&
	       !(point >= a->sweeps[i].point && point < a->sweeps[i].point + ADVISE_POINTS_MAX))
		i++;
	if (!point || point->effort >= LONG_RUN_EFFORT * a->query.effort)
		return;
	for (unsigned k = 0; k < s->n_tasks; k++)
		if (s->task[k].sweep == i && s->task[k].pending == point->pending)
			return; /* READ alone and READ with another share a point */
	search_add_task(s, (struct task){.kind = TASK_POINT,
					 .sweep = i,
					 .pending = point->pending,
					 .effort = a->query.effort,
					 .cost = point->pending});
}

static int search_rerun_leaders(struct search *s)
{
	const struct advise_result *r = &s->answer->result;
	int rc;

	for (unsigned i = 0; i < r->n && i < LEADERS_MAX; i++) {
		const struct advise_candidate *c = &r->candidate[i];

		if (c->impossible || c->unranked || c->mops < LEADER_MIN * r->candidate[0].mops ||
		    (i && c->late != r->candidate[0].late))
			continue;
		search_add_point(s, c, false);
		search_add_point(s, c, true);
	}
	rc = search_run_tasks(s);
	search_rank(s);
	return rc;
}

/* ---- rpc ---- */

static bool rpc_is_quick(const struct search *s)
{
	const struct advise_query *q = &s->answer->query;

	return s->env->rpc && q->topology == BENCH_MSG_M1 && q->threads_min == q->threads_max &&
	       q->nodes * q->threads_min <= RPC_CLIENTS_MAX && q->value <= RPC_VALUE_MAX;
}

static void search_add_rpc(struct search *s)
{
	for (unsigned b = 1; b <= RPC_BATCH_MAX && rpc_is_quick(s); b *= RPC_STEP)
		search_add_task(s, (struct task){.kind = TASK_RPC,
						 .pending = b,
						 .effort = EFFORT_RPC * s->answer->query.effort});
}

/* The smallest batch that is equal to the best and keeps the latency limit. */
static void search_choose_batch(struct search *s)
{
	const struct advise_query *q = &s->answer->query;
	struct advise_rpc *rpc = &s->answer->rpc;
	const struct advise_candidate *c = &s->answer->result.candidate[0];
	double most = 0;

	rpc->fetch_bytes =
		(q->value + RPC_HEAD + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE - RPC_HEAD;
	rpc->batch = s->answer->result.n && !c->impossible ? c->pending : 1;
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned b = 1; b <= RPC_BATCH_MAX; b *= RPC_STEP) {
			const struct advise_point *p = &s->call[b];

			if (q->latency_us > 0 && p->p99_us > q->latency_us)
				continue;
			if (pass == 0 && p->mops > most)
				most = p->mops;
			if (pass == 1 && most > 0 && !(rpc->mops > 0) &&
			    p->mops >= (1 - ADVISE_TIE) * most) {
				rpc->batch = b;
				rpc->mops = p->mops;
			}
		}
	}
}

/* ---- variants ---- */

static bool is_among_best(const struct advise_result *r, const struct advise_candidate *c)
{
	for (unsigned i = 0; i < r->n && i <= r->n_equal; i++)
		if (advise_same(&r->candidate[i], c))
			return true;
	return false;
}

static void search_add_variants(struct search *s)
{
	struct advise_answer *a = s->answer;
	struct advise_query q = a->query;

	/* The variants have the thread count that was found. */
	if (a->result.n && !a->result.candidate[0].impossible)
		q.threads_min = q.threads_max = a->result.candidate[0].threads;
	q.latency_us = 0;
	a->n_variants = advise_variants(&q, &a->result.candidate[0], a->variant);
	for (unsigned i = 0; i < a->n_variants; i++) {
		const struct advise_query *n = &a->variant[i].query;

		a->n_sweeps = advise_sweeps(n, n->threads_min, a->sweeps, a->n_sweeps);
	}
}

/* Drops variants without a result. */
static void search_rank_variants(struct search *s)
{
	struct advise_answer *a = s->answer;
	const struct advise_candidate *now = &a->result.candidate[0];
	unsigned n = 0;

	for (unsigned i = 0; i < a->n_variants; i++) {
		struct advise_variant *variant = &a->variant[i];
		const struct advise_candidate *there = &variant->result.candidate[0];

		advise_rank(&variant->query, a->sweeps, a->n_sweeps, &variant->result);
		if (!variant->result.n || there->impossible)
			continue;
		variant->changes = !is_among_best(&variant->result, now);
		variant->better = there->threads != now->threads &&
				  there->mops > (1 + ADVISE_TIE) * now->mops;
		a->variant[n++] = *variant;
	}
	a->n_variants = n;
}

/* ---- run ---- */

static int search_run(struct search *s)
{
	struct advise_answer *a = s->answer;
	int rc = search_thread_counts(s);

	if (!rc)
		rc = search_rerun_leaders(s);
	if (!rc && !a->query.brief && a->result.n && !a->result.candidate[0].impossible) {
		const unsigned first = a->n_sweeps;

		search_add_rpc(s);
		search_add_variants(s);
		search_add_sweeps(s, first, EFFORT_VARIANT);
		rc = search_run_tasks(s);
		if (!rc)
			search_rank_variants(s);
		else
			a->n_variants = 0;
	}
	search_choose_batch(s);
	return rc;
}

int advise_run(const struct advise_env *env, const struct advise_query *query,
	       struct advise_answer *out, char why[BENCH_WHY_MAX])
{
	struct search *s;
	int rc;

	*out = (struct advise_answer){.query = *query};
	rc = advise_check(query, why);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	out->sweeps = calloc(ADVISE_SWEEPS_MAX, sizeof(out->sweeps[0]));
	if (!s || !out->sweeps) {
		free(s);
		bench_refuse(why, "no memory for the simulations' results");
		return -ENOMEM;
	}
	s->env = env;
	s->answer = out;
	rc = search_run(s);
	free(s);
	out->unfinished = rc == -EINTR;
	if (rc && rc != -EINTR)
		bench_refuse(why, "the worker processes: %s", strerror(-rc));
	if (!rc && (!out->result.n || out->result.candidate[0].impossible)) {
		bench_refuse(why, "no protocol can be simulated there: %.120s",
			     out->result.n ? out->result.candidate[0].impossible : "none fits");
		rc = -EIO;
	}
	return rc;
}

void advise_free(struct advise_answer *answer)
{
	free(answer->sweeps);
	answer->sweeps = NULL;
}
