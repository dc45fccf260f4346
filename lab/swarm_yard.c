/* SPDX-License-Identifier: MIT */
/*
 * What the threads of a process do with each other: a counter under a lock, a condition, and a
 * queue from which one thread takes what all put there.
 */
#include <errno.h>

#include "swarm_node.h"

#define QUEUE	16u
#define LATE_NS 200000u /* a wake-up takes less */
#define NAP_US	2000u
#define LL(x)	((unsigned long long)(x))

struct yard {
	struct gn_mutex lock;
	struct gn_cond cond;
	uint64_t counter;
	struct gn_queue *queue;
	struct {
		uint64_t counted, pushed, popped;
		uint64_t pushed_ns[2 * QUEUE]; /* of the last ones */
	} by[2];
};

bool yard_open(struct house *house)
{
	struct yard *yard = gn_alloc(sizeof(*yard), 0);

	CHECK(house->s, yard || house->s->no_memory, "gn_alloc gave nothing");
	if (!yard)
		return false;
	if (!got(house->s, gn_queue_create(QUEUE, &yard->queue), "gn_queue_create")) {
		gn_free(yard);
		return false;
	}
	gn_mutex_init(&yard->lock);
	gn_cond_init(&yard->cond);
	house->yard = yard;
	return true;
}

static unsigned my_index(const struct worker *w)
{
	return w->index - w->house->plan->first_worker;
}

static void count(struct worker *w, struct yard *yard)
{
	uint64_t before;

	gn_mutex_lock(&yard->lock);
	before = yard->counter;
	gn_charge(GN_WORK_NS, rng_below(&w->rng, 300));
	CHECK(w->s, yard->counter == before, "two threads hold one mutex");
	yard->counter = before + 1;
	yard->by[my_index(w)].counted++;
	gn_cond_signal(&yard->cond);
	gn_mutex_unlock(&yard->lock);
}

static void wait_for_count(struct worker *w, struct yard *yard)
{
	const uint64_t deadline = gn_deadline_us(rng_below(&w->rng, 30));
	uint64_t seen;
	int rc = 0;

	gn_mutex_lock(&yard->lock);
	for (seen = yard->counter; yard->counter == seen && rc == 0;)
		rc = gn_cond_wait(&yard->cond, &yard->lock, deadline, "the yard's counter");
	CHECK(w->s, rc == 0 || (rc == -ETIMEDOUT && gn_now_ns() >= deadline),
	      "a wait for a condition gave %s before its time", gn_strerror(rc));
	gn_mutex_unlock(&yard->lock);
}

static void push(struct worker *w, struct yard *yard)
{
	const unsigned me = my_index(w);
	const uint64_t n = yard->by[me].pushed;
	int rc;

	yard->by[me].pushed_ns[n % (2 * QUEUE)] = worker_now(w);
	rc = gn_queue_push(yard->queue, (void *)(uintptr_t)(n << 1 | me | 1ull << 40));
	CHECK(w->s, rc == 0 || rc == -EAGAIN, "gn_queue_push gave %s", gn_strerror(rc));
	yard->by[me].pushed += rc == 0;
}

/* Takes all there is. since: when it began to wait for it. */
static void pop_all(struct swarm *s, struct yard *yard, uint64_t since, uint64_t now)
{
	void *item;

	while ((item = gn_queue_pop(yard->queue))) {
		const uint64_t value = (uintptr_t)item & ((1ull << 40) - 1), n = value >> 1;
		const unsigned from = value & 1;
		uint64_t at = yard->by[from].pushed_ns[n % (2 * QUEUE)];

		CHECK(s, n == yard->by[from].popped, "item %llu of thread %u comes as number %llu",
		      LL(n), from, LL(yard->by[from].popped));
		at = at > since ? at : since;
		CHECK(s, s->stalls || now < at + LATE_NS, "a wait noticed after %llu ns",
		      LL(now - at));
		yard->by[from].popped++;
	}
}

static void take(struct worker *w, struct yard *yard)
{
	const uint64_t since = worker_now(w), deadline = gn_deadline_us(NAP_US);
	struct gn_wait_item item = gn_wait_on(gn_queue_source(yard->queue));
	int rc = gn_wait(&item, 1, deadline, "the yard's queue");
	const uint64_t now = worker_now(w);

	CHECK(w->s, rc >= 0 || (rc == -ETIMEDOUT && now >= deadline),
	      "a wait for a queue gave %s before its time", gn_strerror(rc));
	pop_all(w->s, yard, since, now);
}

void yard_play(struct worker *w)
{
	struct yard *yard = w->house->yard;

	switch (rng_below(&w->rng, 8)) {
	case 0:
		wait_for_count(w, yard);
		break;
	case 1:
		if (my_index(w) == 0 && w->house->plan->n_workers > 1)
			take(w, yard);
		break;
	case 2:
	case 3:
		push(w, yard);
		break;
	default:
		count(w, yard);
	}
}

void yard_close(struct house *house)
{
	struct yard *yard = house->yard;

	if (!yard)
		return;
	pop_all(house->s, yard, UINT64_MAX - LATE_NS, 0);
	CHECK(house->s,
	      yard->by[0].pushed == yard->by[0].popped && yard->by[1].pushed == yard->by[1].popped,
	      "%llu and %llu items were put in a queue, %llu and %llu came out",
	      LL(yard->by[0].pushed), LL(yard->by[1].pushed), LL(yard->by[0].popped),
	      LL(yard->by[1].popped));
	CHECK(house->s, yard->counter == yard->by[0].counted + yard->by[1].counted,
	      "%llu and %llu counts came to %llu", LL(yard->by[0].counted), LL(yard->by[1].counted),
	      LL(yard->counter));
	gn_mutex_fini(&yard->lock);
	gn_cond_fini(&yard->cond);
	gn_queue_destroy(yard->queue);
	gn_free(yard);
	house->yard = NULL;
}
