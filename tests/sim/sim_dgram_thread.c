/* SPDX-License-Identifier: MIT */
/*
 * A thread: makes calls in workers, by gn_dgram_submit() and by blocking, until its time is over or its
 * process restarts; waits for the end of all calls; and checks, when the faults are over, that every
 * peer answers and that nothing is kept.
 */
#include <errno.h>
#include <stdio.h>

#include "sim_dgram.h"

#define ATTEMPTS  200u
#define MEMORY_US 1000u
#define WAIT_US	  200u
#define LOOK_US	  20000u
#define DRAIN_NS  3000000000ull /* after the faults: all calls end, all peers answer */
#define IDLE_US	  400000u	/* until answers are dropped: the longest timeout is 100 ms */
#define REPEAT_US 1000u
#define CHARGE_NS 3000u

/* ---- peers ---- */

struct gn_dgram_peer *thread_peer(struct thread *t, unsigned node, unsigned thread)
{
	struct world *w = t->node->w;
	struct gn_dgram_peer **peer = &t->peers[node * w->plan.n_threads + thread];
	char addr[32];
	int rc = 0;

	snprintf(addr, sizeof(addr), "sim:n%u:%u", node, DG_PORT);
	if (!*peer)
		rc = gn_dgram_peer_open(t->endpoint, addr, thread, peer);
	if (rc && !(rc == -ENOMEM && w->plan.cluster.no_memory))
		world_fail(w, "no peer %s thread %u: %s", addr, thread, gn_strerror(rc));
	return *peer;
}

static bool may_call(const struct thread *t, unsigned node, unsigned thread)
{
	const struct plan *plan = &t->node->w->plan;

	return node != t->node->index && !plan->silent[node] &&
	       (!(plan->opts[0].flags & GN_DGRAM_MAPPED) || thread == t->index);
}

/* As if membership had said so. */
static void say_gone(struct thread *t)
{
	struct world *w = t->node->w;
	const unsigned node = (unsigned)(gn_random() % w->plan.n_nodes);
	const unsigned thread = (unsigned)(gn_random() % w->plan.n_threads);
	int rc;

	if (!may_call(t, node, thread) || !thread_peer(t, node, thread))
		return;
	world_log(w, "n%u is gone, says n%u.%u", node, t->node->index, t->index);
	w->nodes[t->node->index].gones[node]++;
	w->sums.gones++;
	rc = gn_dgram_peer_gone(thread_peer(t, node, thread));
	if (rc)
		world_fail(w, "a peer cannot be gone: %s", gn_strerror(rc));
}

/* ---- steps ---- */

static bool of_1000(unsigned share)
{
	return gn_random() % 1000 < share;
}

static void look_at_restart(struct thread *t)
{
	struct world *w = t->node->w;
	struct node_world *nw = &w->nodes[t->node->index];
	const uint64_t at_ns = w->plan.restart_us[t->node->index] * 1000ull;

	if (!at_ns || nw->restarted || w->calm || gn_sim_now_ns(w->run.sim) < at_ns)
		return;
	nw->restarted = t->node->ending = true;
	w->sums.restarts++;
}

bool thread_goes_on(const struct thread *t)
{
	const struct world *w = t->node->w;

	return t->left && !t->node->ending && !*w->run.failure &&
	       gn_sim_now_ns(w->run.sim) < w->plan.until_us * 1000ull;
}

static struct job *next_job(struct thread *t, unsigned n)
{
	const struct wish any = {.node = -1, .thread = -1, .method = -1};

	n = n < t->left ? n : t->left;
	t->left -= n;
	return job_create(t, n, &any);
}

static void worker_main(void *arg)
{
	struct thread *t = arg;
	const struct plan *plan = &t->node->w->plan;

	while (thread_goes_on(t)) {
		const unsigned n =
			of_1000(plan->batches) ? 1 + (unsigned)(gn_random() % DG_BATCH_MAX) : 1;
		struct job *job = next_job(t, n);

		if (!job || job_run(job) || of_1000(plan->sleeps))
			gn_dgram_yield(t->endpoint);
		if (of_1000(plan->sleeps))
			gn_charge(GN_WORK_NS, gn_random() % CHARGE_NS);
		if (of_1000(plan->cancels))
			job_cancel_one(t);
	}
}

static void spawn(struct thread *t)
{
	struct world *w = t->node->w;

	for (unsigned i = 0; i < w->plan.workers; i++) {
		const int rc = gn_dgram_spawn(t->endpoint, worker_main, t);

		if (rc && !(rc == -ENOMEM && w->plan.cluster.no_memory))
			world_fail(w, "no worker: %s", gn_strerror(rc));
	}
}

/* Lets the endpoint work, in one of the ways that there are, for up to us. */
static void serve(struct thread *t, uint64_t us)
{
	struct world *w = t->node->w;
	const uint64_t until_ns = gn_deadline_us(us);
	struct gn_wait_item item = gn_wait_on(gn_dgram_source(t->endpoint));
	int rc;

	switch (gn_random() % 4) {
	case 0:
		rc = gn_dgram_poll(t->endpoint);
		if (!rc)
			gn_wait(&item, 1, until_ns, "something to do");
		break;
	case 1:
		rc = gn_dgram_run(t->endpoint, gn_random() % 2 ? until_ns : GN_NO_WAIT);
		break;
	default:
		rc = gn_dgram_wait(t->endpoint, until_ns);
	}
	if (rc < 0 && rc != -ETIMEDOUT)
		world_fail(w, "an endpoint cannot go on: %s", gn_strerror(rc));
}

static void step(struct thread *t)
{
	const struct plan *plan = &t->node->w->plan;
	struct job *job;

	look_at_restart(t);
	while (thread_goes_on(t) && t->under_way < plan->window) {
		job = next_job(t, 1);
		if (!job || job_submit(job))
			break;
	}
	if (of_1000(plan->sleeps))
		gn_dgram_flush(t->endpoint);
	if (of_1000(plan->cancels))
		job_cancel_one(t);
	if (of_1000(plan->gones))
		say_gone(t);
	if (of_1000(plan->thinks))
		gn_sleep_us(1 + gn_random() % plan->think_us);
	/* A thread that restarts must not wait for a call: its node has fewer endpoints then. */
	if (thread_goes_on(t) && !plan->restart_us[t->node->index] &&
	    (of_1000(plan->thinks) || !(plan->workers + plan->window))) {
		job = next_job(t, 1);
		if (job)
			job_run(job);
	}
	serve(t, gn_random() % WAIT_US);
}

/* ---- the end ---- */

static void serve_for(struct thread *t, uint64_t us)
{
	const uint64_t until_ns = gn_deadline_us(us);

	while (gn_now_ns() < until_ns && !t->node->ending && !*t->node->w->run.failure)
		serve(t, LOOK_US);
}

static void drain(struct thread *t)
{
	struct world *w = t->node->w;

	while ((t->under_way || gn_dgram_workers(t->endpoint) || t->handlers) && !t->node->ending &&
	       !*w->run.failure) {
		look_at_restart(t);
		if (of_1000(w->plan.cancels))
			job_cancel_one(t);
		serve(t, w->calm ? REPEAT_US : LOOK_US);
		if (w->calm && gn_sim_now_ns(w->run.sim) > w->calm_ns + DRAIN_NS)
			world_fail(w, "n%u.%u: call %u does not end", t->node->index, t->index,
				   t->jobs ? t->jobs->number[0] : 0);
	}
}

/* Makes calls until they are enough, and then none for some time. */
static void active(struct thread *t)
{
	const struct plan *plan = &t->node->w->plan;

	t->left = plan->calls;
	spawn(t);
	while (thread_goes_on(t))
		step(t);
	drain(t);
	if (plan->nap_us)
		serve_for(t, gn_random() % plan->nap_us);
}

static bool all_reached(const struct world *w, enum phase phase)
{
	for (unsigned i = 0; i < w->plan.n_nodes; i++)
		for (unsigned k = 0; k < w->plan.n_threads; k++)
			if (w->nodes[i].phase[k] < phase)
				return false;
	return true;
}

/* Serves until all threads are as far; false: the process ends before. */
static bool reach(struct thread *t, enum phase phase)
{
	struct world *w = t->node->w;

	w->nodes[t->node->index].phase[t->index] = phase;
	while (!*w->run.failure && !t->node->ending && !(w->calm && all_reached(w, phase))) {
		look_at_restart(t);
		serve(t, LOOK_US);
	}
	return !*w->run.failure && !t->node->ending;
}

/* A call that must succeed, soon; but perhaps not at once if the epoch is to end. */
static void call_surely(struct thread *t, unsigned node, unsigned thread, bool at_once)
{
	struct world *w = t->node->w;
	const struct wish wish = {.node = (int)node,
				  .thread = (int)thread,
				  .method = DG_INLINE,
				  .small = true,
				  .sure = true};
	const uint64_t until_ns = gn_deadline_us(DRAIN_NS / 1000);
	unsigned status = GN_RPC_TIMEOUT;

	while (status != GN_RPC_OK && !*w->run.failure) {
		struct job *job = job_create(t, 1, &wish);
		const uint32_t number = job ? job->number[0] : 0;

		if (job && !job_run(job))
			status = w->calls[number].status;
		if (at_once && status != GN_RPC_OK && status != GN_RPC_TIMEOUT &&
		    status != GN_RPC_PEER_GONE) /* checked elsewhere: epochs of siblings may end */
			world_fail(w, "n%u.%u calls n%u.%u when all is well: %s", t->node->index,
				   t->index, node, thread, gn_rpc_status_str(status));
		if (gn_now_ns() > until_ns)
			world_fail(w, "n%u.%u has no answer from n%u.%u: %s", t->node->index,
				   t->index, node, thread, gn_rpc_status_str(status));
		if (status != GN_RPC_OK)
			serve(t, REPEAT_US);
	}
	w->sums.healed++;
}

static void call_everybody(struct thread *t, bool at_once)
{
	struct world *w = t->node->w;

	for (unsigned i = 0; i < w->plan.n_nodes; i++)
		for (unsigned k = 0; k < w->plan.n_threads; k++)
			if (may_call(t, i, k) && !*w->run.failure)
				call_surely(t, i, k, at_once);
}

/*
 * Answers are kept for a caller that was lost without a word: a node without an address that
 * restarted, or one that said that this node is gone.
 */
static bool forgets(const struct world *w)
{
	for (unsigned i = 0; i < w->plan.n_nodes; i++) {
		if (w->plan.silent[i] && w->nodes[i].lives > 1)
			return false;
		for (unsigned k = 0; k < w->plan.n_nodes; k++)
			if (w->nodes[i].gones[k])
				return false;
	}
	return true;
}

static void check_gauges(struct thread *t)
{
	struct world *w = t->node->w;
	struct gn_dgram_stats s = {.size = sizeof(s)};
	uint64_t ended = 0;

	gn_dgram_endpoint_stats(t->endpoint, &s);
	for (unsigned i = 0; i < DG_STATUSES; i++)
		ended += s.ended[i];
	if (s.calls != ended || s.outstanding)
		world_fail(w, "n%u.%u: %llu calls, %llu ended, %llu outstanding", t->node->index,
			   t->index, (unsigned long long)s.calls, (unsigned long long)ended,
			   (unsigned long long)s.outstanding);
	if (forgets(w) && (s.reassembly_bytes || s.kept_bytes || s.active_peers))
		world_fail(w, "n%u.%u keeps %llu bytes of answers and %llu of requests, %llu peers",
			   t->node->index, t->index, (unsigned long long)s.kept_bytes,
			   (unsigned long long)s.reassembly_bytes,
			   (unsigned long long)s.active_peers);
}

static void count(struct thread *t)
{
	struct sums *sums = &t->node->w->sums;
	struct gn_dgram_stats s = {.size = sizeof(s)};

	gn_dgram_endpoint_stats(t->endpoint, &s);
	sums->repeats += s.repeats;
	sums->answers_repeated += s.answers_repeated;
	sums->duplicates += s.duplicates;
	sums->late += s.late;
	sums->pieces += s.pieces;
	sums->pieces_repeated += s.pieces_repeated;
	sums->credit_waits += s.credit_waits;
	sums->busy += s.busy;
	sums->wrong_epoch += s.wrong_epoch;
	sums->resets += s.resets;
	sums->epochs += s.epochs;
	sums->gone += s.gone;
	if (s.malformed || s.over_credit || s.over_limit)
		seeds_log(&t->node->w->run, "%llu malformed, %llu over credit, %llu over limit",
			  (unsigned long long)s.malformed, (unsigned long long)s.over_credit,
			  (unsigned long long)s.over_limit);
	if (s.malformed || s.over_credit)
		seeds_fail(&t->node->w->run, "%llu datagrams malformed, %llu over credit",
			   (unsigned long long)s.malformed, (unsigned long long)s.over_credit);
}

static void final(struct thread *t)
{
	if (!reach(t, PHASE_DRAINED))
		return;
	call_everybody(t, false);
	if (!reach(t, PHASE_HEALED))
		return;
	call_everybody(t, true);
	if (!reach(t, PHASE_STABLE))
		return;
	serve_for(t, IDLE_US);
	drain(t);
	check_gauges(t);
	reach(t, PHASE_IDLE);
}

/* ---- life ---- */

static int create(struct thread *t)
{
	struct world *w = t->node->w;
	int rc = -ENOMEM;

	for (unsigned i = 0; i < ATTEMPTS && rc && !t->node->ending; i++) {
		rc = gn_dgram_endpoint_create(t->node->node, t->index, &t->endpoint);
		if (rc && !(rc == -ENOMEM && w->plan.cluster.no_memory))
			world_fail(w, "no endpoint: %s", gn_strerror(rc));
		if (rc)
			gn_sleep_us(MEMORY_US);
	}
	return rc;
}

void dgram_thread_main(void *arg)
{
	struct thread *t = arg;
	struct world *w = t->node->w;
	int rc = create(t);

	if (rc) {
		t->rc = t->node->ending ? -EAGAIN : -ENOMEM;
		t->node->ending = true;
		return;
	}
	for (unsigned i = 0; i < w->plan.rounds; i++)
		active(t);
	if (!t->node->ending)
		final(t);
	count(t);
	rc = gn_dgram_endpoint_destroy(t->endpoint);
	if (rc)
		world_fail(w, "an endpoint cannot be destroyed: %s", gn_strerror(rc));
	t->endpoint = NULL;
	jobs_discard(t);
	t->rc = t->node->ending ? -EAGAIN : 0;
	if (!t->node->ending)
		w->nodes[t->node->index].phase[t->index] = PHASE_OVER;
}
