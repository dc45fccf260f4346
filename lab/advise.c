/* SPDX-License-Identifier: MIT */
/*
 * The search: the question with its threads, its leaders for longer, its neighbours. Each of these
 * is a batch of tasks that do not depend on each other, for as many processes as there may be.
 */
#include "advise.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers.h"

#define EFFORT_LADDER	 0.1 /* of the query's */
#define EFFORT_NEIGHBOUR 0.05
#define EFFORT_RPC	 0.05
#define LEADS		 0.9 /* of the best: then it is run for longer */
#define LEADERS_MAX	 4u
#define LONG_ENOUGH	 0.2 /* of the effort: such a run is not made again */
#define MORE_THREADS	 2u  /* numbers of threads that may be tried without a gain */

/* Calls, for what they are next to messages: simulated where that is quick. */
#define RPC_SERVER_THREADS 16u
#define RPC_CLIENTS_MAX	   256u
#define RPC_VALUE_MAX	   16384u
#define RPC_BATCH_MAX	   64u
#define RPC_STEP	   4u
#define RPC_HEAD	   40u /* of a message with a result: it fills whole cache lines */
#define LINE		   64u

enum task_kind { CLIMB, AGAIN, CALL };

struct task {
	enum task_kind kind;
	unsigned ladder;  /* CLIMB, AGAIN */
	unsigned pending; /* AGAIN; CALL: the batch */
	double effort;
	uint64_t cost; /* large ones first, so that no process waits long for the last */
};

union outcome {
	struct advise_ladder ladder;
	struct advise_point point;
};

static_assert(sizeof(union outcome) <= WORKER_RESULT_MAX, "a worker sends it at once");

#define TASKS_MAX ADVISE_LADDERS_MAX

struct search {
	const struct advise_env *env;
	struct advise_answer *answer;
	struct task task[TASKS_MAX];
	unsigned n_tasks;
	unsigned done, of; /* tasks of all batches, as far as they are known */
	struct advise_point call[RPC_BATCH_MAX + 1]; /* by the batch */
};

/* ---- tasks ---- */

static int set(struct config *config, const char *key, unsigned value, struct lab_error *error)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	return config_set(config, key, text, error);
}

/* Leaves a point without a figure where there is none. */
static int run_call(const struct search *s, const struct task *task, struct advise_point *out)
{
	const struct advise_query *q = &s->answer->query;
	const struct lab_setup setup = {
		.profile = q->profile,
		.card = q->profile,
		.preset = "gannet",
		.seed = q->seed,
		.effort = task->effort,
		.interrupted = s->env->interrupted,
	};
	struct config config = {0};
	struct lab_metrics metrics = {0};
	struct lab_error error;
	int rc = config_set(&config, "mode", "hybrid", &error);

	*out = (struct advise_point){.pending = task->pending};
	if (!rc)
		rc = set(&config, "server_threads", RPC_SERVER_THREADS, &error);
	if (!rc)
		rc = set(&config, "client_machines", q->nodes, &error);
	if (!rc)
		rc = set(&config, "clients_per_machine", q->threads_min, &error);
	if (!rc)
		rc = set(&config, "req", q->request, &error);
	if (!rc)
		rc = set(&config, "resp", q->value, &error);
	if (!rc)
		rc = set(&config, "batch", task->pending, &error);
	if (!rc)
		rc = s->env->rpc(&setup, &config, &metrics, &error);
	if (!rc && lab_metric_get(&metrics, "mops") && lab_metric_get(&metrics, "p99_us")) {
		out->mops = *lab_metric_get(&metrics, "mops");
		out->p99_us = *lab_metric_get(&metrics, "p99_us");
	}
	return rc && *s->env->interrupted ? -EINTR : 0;
}

static int run_task(void *arg, unsigned i, void *result)
{
	const struct search *s = arg;
	const struct task *task = &s->task[i];
	const struct advise_query *q = &s->answer->query;
	union outcome *out = result;
	struct lab_error error;
	int rc;

	memset(out, 0, sizeof(*out));
	switch (task->kind) {
	case CLIMB:
		out->ladder = s->answer->ladders[task->ladder];
		return advise_climb(s->env, q, task->effort, &out->ladder);
	case AGAIN:
		rc = advise_again(s->env, q, &s->answer->ladders[task->ladder], task->pending,
				  task->effort, &out->point, &error);
		return rc == -EINTR ? rc : 0;
	default:
		return run_call(s, task, &out->point);
	}
}

static void take_point(struct advise_ladder *ladder, const struct advise_point *point)
{
	for (unsigned i = 0; i < ladder->n; i++) {
		if (ladder->point[i].pending != point->pending)
			continue;
		ladder->point[i] = *point;
		ladder->point[i].longer = true;
	}
}

static void task_done(void *arg, unsigned i, const void *result)
{
	struct search *s = arg;
	const struct task *task = &s->task[i];
	const union outcome *out = result;

	if (task->kind == CLIMB) {
		s->answer->ladders[task->ladder] = out->ladder;
		s->answer->runs += out->ladder.n;
	} else if (task->kind == AGAIN && out->point.pending) {
		take_point(&s->answer->ladders[task->ladder], &out->point);
		s->answer->runs++;
	} else if (task->kind == CALL) {
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
	return x->ladder < y->ladder ? -1 : x->ladder > y->ladder;
}

static void add_task(struct search *s, struct task task)
{
	assert(s->n_tasks < TASKS_MAX);
	s->task[s->n_tasks++] = task;
	s->of++;
}

static void add_climbs(struct search *s, unsigned first, double effort)
{
	for (unsigned i = first; i < s->answer->n_ladders; i++) {
		const struct advise_ladder *l = &s->answer->ladders[i];
		const uint64_t nodes = s->answer->query.topology == ADVISE_MM ? l->nodes : 1;

		add_task(s,
			 (struct task){.kind = CLIMB,
				       .ladder = i,
				       .effort = effort * s->answer->query.effort,
				       .cost = nodes * l->nodes * l->threads * (100 + l->value)});
	}
}

static int run_tasks(struct search *s)
{
	unsigned groups[TASKS_MAX];
	const struct workers_job job = {
		.n = s->n_tasks,
		.groups = groups,
		.result_bytes = sizeof(union outcome),
		.run = run_task,
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

/* ---- the question ---- */

static void rank(struct search *s)
{
	struct advise_answer *a = s->answer;
	struct advise_query closest = a->query;
	struct advise_result result;

	advise_rank(&a->query, a->ladders, a->n_ladders, &a->result);
	/* A limit that nobody keeps puts the quickest first. */
	closest.latency_us = 1e-9;
	advise_rank(&closest, a->ladders, a->n_ladders, &result);
	if (result.n)
		a->quickest = result.candidate[0];
}

/* More threads, until they are of no use to the best. */
static int try_threads(struct search *s)
{
	struct advise_answer *a = s->answer;
	unsigned counts[ADVISE_COUNTS_MAX], vain = 0;
	const unsigned n = advise_threads(&a->query, counts);
	double most = 0;
	int rc = 0;

	for (unsigned i = 0; i < n && vain < MORE_THREADS && !rc; i++) {
		const unsigned first = a->n_ladders;

		a->n_ladders = advise_ladders(&a->query, counts[i], a->ladders, first);
		add_climbs(s, first, EFFORT_LADDER);
		rc = run_tasks(s);
		rank(s);
		if (!a->result.n || a->result.candidate[0].impossible)
			continue;
		vain = a->result.candidate[0].mops > (1 + ADVISE_TIE) * most ? 0 : vain + 1;
		most = a->result.candidate[0].mops > most ? a->result.candidate[0].mops : most;
	}
	return rc;
}

static void add_again(struct search *s, const struct advise_candidate *c, bool writes)
{
	struct advise_answer *a = s->answer;
	const struct advise_point *point =
		advise_point_of(&a->query, a->ladders, a->n_ladders, c, writes);
	unsigned i = 0;

	while (point &&
	       !(point >= a->ladders[i].point && point < a->ladders[i].point + ADVISE_POINTS_MAX))
		i++;
	if (!point || point->effort >= LONG_ENOUGH * a->query.effort)
		return;
	for (unsigned k = 0; k < s->n_tasks; k++)
		if (s->task[k].ladder == i && s->task[k].pending == point->pending)
			return; /* READ beside another shares it with one that is alone */
	add_task(s, (struct task){.kind = AGAIN,
				  .ladder = i,
				  .pending = point->pending,
				  .effort = a->query.effort,
				  .cost = point->pending});
}

static int run_leaders(struct search *s)
{
	const struct advise_result *r = &s->answer->result;
	int rc;

	for (unsigned i = 0; i < r->n && i < LEADERS_MAX; i++) {
		const struct advise_candidate *c = &r->candidate[i];

		if (c->impossible || c->apart || c->mops < LEADS * r->candidate[0].mops ||
		    (i && c->late != r->candidate[0].late))
			continue;
		add_again(s, c, false);
		add_again(s, c, true);
	}
	rc = run_tasks(s);
	rank(s);
	return rc;
}

/* ---- calls ---- */

static bool calls_are_cheap(const struct search *s)
{
	const struct advise_query *q = &s->answer->query;

	return s->env->rpc && q->topology == ADVISE_M1 && q->threads_min == q->threads_max &&
	       q->nodes * q->threads_min <= RPC_CLIENTS_MAX && q->value <= RPC_VALUE_MAX;
}

static void add_calls(struct search *s)
{
	for (unsigned b = 1; b <= RPC_BATCH_MAX && calls_are_cheap(s); b *= RPC_STEP)
		add_task(s, (struct task){.kind = CALL,
					  .pending = b,
					  .effort = EFFORT_RPC * s->answer->query.effort});
}

/* The smallest batch that is as good as the best and keeps the limit; without runs, a rule. */
static void choose_call(struct search *s)
{
	const struct advise_query *q = &s->answer->query;
	struct advise_rpc *rpc = &s->answer->rpc;
	const struct advise_candidate *c = &s->answer->result.candidate[0];
	double most = 0;

	rpc->fetch_bytes = (q->value + RPC_HEAD + LINE - 1) / LINE * LINE - RPC_HEAD;
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

/* ---- neighbours ---- */

static bool is_among_best(const struct advise_result *r, const struct advise_candidate *c)
{
	for (unsigned i = 0; i < r->n && i <= r->n_equal; i++)
		if (advise_same(&r->candidate[i], c))
			return true;
	return false;
}

static void plan_neighbours(struct search *s)
{
	struct advise_answer *a = s->answer;
	struct advise_query q = a->query;

	/* A choice of threads is made once. */
	if (a->result.n && !a->result.candidate[0].impossible)
		q.threads_min = q.threads_max = a->result.candidate[0].threads;
	q.latency_us = 0;
	a->n_neighbours = advise_neighbours(&q, &a->result.candidate[0], a->neighbour);
	for (unsigned i = 0; i < a->n_neighbours; i++) {
		const struct advise_query *n = &a->neighbour[i].query;

		a->n_ladders = advise_ladders(n, n->threads_min, a->ladders, a->n_ladders);
	}
}

/* Those that are not finished are forgotten. */
static void judge_neighbours(struct search *s)
{
	struct advise_answer *a = s->answer;
	const struct advise_candidate *now = &a->result.candidate[0];
	unsigned n = 0;

	for (unsigned i = 0; i < a->n_neighbours; i++) {
		struct advise_neighbour *neighbour = &a->neighbour[i];
		const struct advise_candidate *there = &neighbour->result.candidate[0];

		advise_rank(&neighbour->query, a->ladders, a->n_ladders, &neighbour->result);
		if (!neighbour->result.n || there->impossible)
			continue;
		neighbour->changes = !is_among_best(&neighbour->result, now);
		neighbour->better = there->threads != now->threads &&
				    there->mops > (1 + ADVISE_TIE) * now->mops;
		a->neighbour[n++] = *neighbour;
	}
	a->n_neighbours = n;
}

/* ---- all of it ---- */

static int search(struct search *s)
{
	struct advise_answer *a = s->answer;
	int rc = try_threads(s);

	if (!rc)
		rc = run_leaders(s);
	if (!rc && !a->query.brief && a->result.n && !a->result.candidate[0].impossible) {
		const unsigned first = a->n_ladders;

		add_calls(s);
		plan_neighbours(s);
		add_climbs(s, first, EFFORT_NEIGHBOUR);
		rc = run_tasks(s);
		if (!rc)
			judge_neighbours(s);
		else
			a->n_neighbours = 0;
	}
	choose_call(s);
	return rc;
}

int advise_run(const struct advise_env *env, const struct advise_query *query,
	       struct advise_answer *out, struct lab_error *error)
{
	struct search *s;
	int rc;

	*out = (struct advise_answer){.query = *query};
	rc = advise_check(query, error);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	out->ladders = calloc(ADVISE_LADDERS_MAX, sizeof(out->ladders[0]));
	if (!s || !out->ladders) {
		free(s);
		lab_error(error, "no memory for the simulations' results");
		return -ENOMEM;
	}
	s->env = env;
	s->answer = out;
	rc = search(s);
	free(s);
	out->unfinished = rc == -EINTR;
	if (rc && rc != -EINTR)
		lab_error(error, "the workers: %s", strerror(-rc));
	if (!rc && (!out->result.n || out->result.candidate[0].impossible)) {
		lab_error(error, "no protocol can be simulated there: %.120s",
			  out->result.n ? out->result.candidate[0].impossible : "none fits");
		rc = -EIO;
	}
	return rc;
}

void advise_free(struct advise_answer *answer)
{
	free(answer->ladders);
	answer->ladders = NULL;
}
