/* SPDX-License-Identifier: MIT */
/*
 * What the threads of a process share: a counter under a mutex, a condition variable, and a queue
 * that one thread pops and all push to.
 */
#include <errno.h>

#include "program.h"

#define QUEUE	      16u
#define WAKEUP_MAX_NS 200000u /* the longest wake-up */
#define QUEUE_WAIT_US 2000u
#define LL(x)	      ((unsigned long long)(x))

struct shared {
	struct gn_mutex lock;
	struct gn_cond cond;
	uint64_t counter;
	struct gn_queue *queue;
	struct {
		uint64_t counted, pushed, popped;
		uint64_t pushed_ns[2 * QUEUE]; /* of the last items */
	} by[2];
};

bool shared_open(struct process *process)
{
	struct shared *shared = gn_alloc(sizeof(*shared), 0);

	CHECK(process->run, shared || process->run->no_memory, "gn_alloc gave nothing");
	if (!shared)
		return false;
	if (!ok_or_no_memory(process->run, gn_queue_create(QUEUE, &shared->queue),
			     "gn_queue_create")) {
		gn_free(shared);
		return false;
	}
	gn_mutex_init(&shared->lock);
	gn_cond_init(&shared->cond);
	process->shared = shared;
	return true;
}

static unsigned worker_index(const struct worker *w)
{
	return w->index - w->process->plan->first_worker;
}

static void shared_count(struct worker *w, struct shared *shared)
{
	uint64_t before;

	gn_mutex_lock(&shared->lock);
	before = shared->counter;
	gn_charge(GN_WORK_NS, rng_below(&w->rng, 300));
	CHECK(w->run, shared->counter == before, "two threads hold one mutex");
	shared->counter = before + 1;
	shared->by[worker_index(w)].counted++;
	gn_cond_signal(&shared->cond);
	gn_mutex_unlock(&shared->lock);
}

static void shared_wait_count(struct worker *w, struct shared *shared)
{
	const uint64_t deadline = gn_deadline_us(rng_below(&w->rng, 30));
	uint64_t seen;
	int rc = 0;

	gn_mutex_lock(&shared->lock);
	for (seen = shared->counter; shared->counter == seen && rc == 0;)
		rc = gn_cond_wait(&shared->cond, &shared->lock, deadline, "the shared counter");
	CHECK(w->run, rc == 0 || (rc == -ETIMEDOUT && gn_now_ns() >= deadline),
	      "a wait for a condition gave %s before its time", gn_strerror(rc));
	gn_mutex_unlock(&shared->lock);
}

static void shared_push(struct worker *w, struct shared *shared)
{
	const unsigned me = worker_index(w);
	const uint64_t n = shared->by[me].pushed;
	int rc;

	shared->by[me].pushed_ns[n % (2 * QUEUE)] = worker_now(w);
	rc = gn_queue_push(shared->queue, (void *)(uintptr_t)(n << 1 | me | 1ull << 40));
	CHECK(w->run, rc == 0 || rc == -EAGAIN, "gn_queue_push gave %s", gn_strerror(rc));
	shared->by[me].pushed += rc == 0;
}

/* Pops all items. since: when the wait for them began. */
static void shared_pop_all(struct fuzz_run *run, struct shared *shared, uint64_t since,
			   uint64_t now)
{
	void *item;

	while ((item = gn_queue_pop(shared->queue))) {
		const uint64_t value = (uintptr_t)item & ((1ull << 40) - 1), n = value >> 1;
		const unsigned from = value & 1;
		uint64_t at = shared->by[from].pushed_ns[n % (2 * QUEUE)];

		CHECK(run, n == shared->by[from].popped,
		      "item %llu of thread %u comes as number %llu", LL(n), from,
		      LL(shared->by[from].popped));
		at = at > since ? at : since;
		CHECK(run, run->stalls || now < at + WAKEUP_MAX_NS, "a wake-up took %llu ns",
		      LL(now - at));
		shared->by[from].popped++;
	}
}

static void shared_pop(struct worker *w, struct shared *shared)
{
	const uint64_t since = worker_now(w), deadline = gn_deadline_us(QUEUE_WAIT_US);
	struct gn_wait_item item = gn_wait_on(gn_queue_source(shared->queue));
	int rc = gn_wait(&item, 1, deadline, "the shared queue");
	const uint64_t now = worker_now(w);

	CHECK(w->run, rc >= 0 || (rc == -ETIMEDOUT && now >= deadline),
	      "a wait for a queue gave %s before its time", gn_strerror(rc));
	shared_pop_all(w->run, shared, since, now);
}

void shared_use(struct worker *w)
{
	struct shared *shared = w->process->shared;

	switch (rng_below(&w->rng, 8)) {
	case 0:
		shared_wait_count(w, shared);
		break;
	case 1:
		if (worker_index(w) == 0 && w->process->plan->n_workers > 1)
			shared_pop(w, shared);
		break;
	case 2:
	case 3:
		shared_push(w, shared);
		break;
	default:
		shared_count(w, shared);
	}
}

void shared_close(struct process *process)
{
	struct shared *shared = process->shared;

	if (!shared)
		return;
	shared_pop_all(process->run, shared, UINT64_MAX - WAKEUP_MAX_NS, 0);
	CHECK(process->run,
	      shared->by[0].pushed == shared->by[0].popped &&
		      shared->by[1].pushed == shared->by[1].popped,
	      "%llu and %llu items were put in a queue, %llu and %llu came out",
	      LL(shared->by[0].pushed), LL(shared->by[1].pushed), LL(shared->by[0].popped),
	      LL(shared->by[1].popped));
	CHECK(process->run, shared->counter == shared->by[0].counted + shared->by[1].counted,
	      "%llu and %llu counts came to %llu", LL(shared->by[0].counted),
	      LL(shared->by[1].counted), LL(shared->counter));
	gn_mutex_fini(&shared->lock);
	gn_cond_fini(&shared->cond);
	gn_queue_destroy(shared->queue);
	gn_free(shared);
	process->shared = NULL;
}
