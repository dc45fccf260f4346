/* SPDX-License-Identifier: MIT */
/*
 * How long calls took, and the histogram of it that Prometheus sees.
 *
 * Not every call is timed, but every call counts: a histogram's _count is the number of calls. The
 * clock stays off the calls' way; instead each look at the metrics (a scrape) spreads the calls
 * since the last look over the buckets, in proportion to the calls that were timed since then. What
 * was shown once stays in its bucket, so buckets only grow.
 */
#include "rpc/times.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "rpc/fastpath.h"

void rpc_times_merge(struct rpc_times *into, const struct rpc_times *from)
{
	/* In this order: a call that begins in between is not counted yet, not too early. */
	into->calls += counter_read(&from->calls);
	into->open += counter_read(&from->open);
	into->count += counter_read(&from->count);
	into->weighed += counter_read(&from->weighed);
	into->sum_ns += counter_read(&from->sum_ns);
	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		into->bucket[i] += counter_read(&from->bucket[i]);
}

uint64_t rpc_times_percentile(const struct rpc_times *t, unsigned percent)
{
	uint64_t all = 0, below = 0;

	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		all += t->bucket[i];
	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++) {
		below += t->bucket[i];
		if (all && below * 100 >= all * percent)
			return rpc_times_end(i);
	}
	return 0;
}

/* ---- timing of handlers ---- */

/* For calls of a slow method, or when the next measurement is due. */
no_inline void rpc_timing_begin(struct rpc_conn *c, struct rpc_timing *t, uint32_t n)
{
	struct rpc_times *times = t->times;
	const bool always = times->last_us >= RPC_TIMED_NS / 1000;

	t->n = n;
	counter_add(&times->open, n);
	t->slow = times->last_us >= RPC_SLOW_US;
	/* No fixed interval: calls may be periodic. */
	times->untimed = always ? 0 : 8 + ((uint32_t)times->calls * 0x9e3779b1u >> 30);
	t->begin_ns = link_loop_clock(&c->thread->loop);
	if (t->slow)
		rpc_seal_results(c);
	t->alone = t->slow || !c->begin_ns;
	if (t->alone)
		c->begin_ns = t->begin_ns;
}

/*
 * A message's time goes to the method of its last call: a method that was never last has no time of
 * its own but this.
 */
static void rpc_timing_note(const struct rpc_timing *t, uint64_t ns)
{
	rpc_times_set_last(t->times, ns);
	if (!t->times->count)
		rpc_times_add(t->times, ns, t->n);
}

no_inline void rpc_timing_end(struct rpc_conn *c, const struct rpc_timing *t, uint32_t n)
{
	if (!t->alone && n)
		rpc_timing_note(t, (gn_now_ns() - t->begin_ns) / n);
	if (t->slow) {
		rpc_seal_results(c);
		c->begin_ns = 0;
	}
	counter_add(&t->times->open, -(uint64_t)t->n);
}

/* ---- what is shown ---- */

/* part of whole, as a share of n. */
static uint64_t histogram_share(uint64_t n, uint64_t part, uint64_t whole)
{
	return (uint64_t)((unsigned __int128)n * part / whole);
}

/* n calls more, in buckets as these; false: these are none. */
static bool histogram_spread(struct rpc_histogram *s, uint64_t n, const uint64_t *bucket,
			     uint64_t sum_ns)
{
	uint64_t all = 0, below = 0, put = 0;

	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		all += bucket[i];
	if (!all)
		return false;
	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++) {
		uint64_t upto;

		below += bucket[i];
		upto = histogram_share(n, below, all);
		s->bucket[i] += upto - put;
		put = upto;
	}
	s->calls += n;
	s->sum_ns += histogram_share(n, sum_ns, all);
	return true;
}

void rpc_histogram_update(struct rpc_histogram *s, const struct rpc_times *now,
			  const struct rpc_times *others)
{
	const uint64_t ended = now->calls - (now->open < now->calls ? now->open : now->calls);
	uint64_t fresh[RPC_TIMES_BUCKETS];
	const uint64_t n = ended > s->calls ? ended - s->calls : 0;

	if (!n)
		return; /* what was timed since then is for those to come */
	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		fresh[i] = now->bucket[i] - s->seen[i];
	if (!histogram_spread(s, n, fresh, now->sum_ns - s->seen_sum_ns) &&
	    !histogram_spread(s, n, now->bucket, now->sum_ns))
		histogram_spread(s, n, others->bucket, others->sum_ns);
	memcpy(s->seen, now->bucket, sizeof(s->seen));
	s->seen_sum_ns = now->sum_ns;
}

struct rpc_histogram *rpc_histogram_find(struct rpc_histogram ***at, unsigned method)
{
	struct rpc_histogram *s;

	while (**at && (**at)->method < method)
		*at = &(**at)->next;
	if (**at && (**at)->method == method)
		return **at;
	s = gn_alloc(sizeof(*s), 0);
	if (!s)
		return NULL;
	s->method = method;
	s->next = **at;
	**at = s;
	return s;
}

void rpc_histogram_free(struct rpc_histogram *list)
{
	while (list) {
		struct rpc_histogram *next = list->next;

		gn_free(list);
		list = next;
	}
}

void rpc_histogram_put(struct prom *p, const struct rpc_histogram *s)
{
	enum { FIRST = RPC_EXPORT_FIRST, N = RPC_EXPORT_LAST - RPC_EXPORT_FIRST + 1 };
	uint64_t bucket[N + 1] = {0};
	double le[N];
	char method[8];
	const struct prom_label label = {"method", method};

	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		bucket[i < FIRST ? 0 : i - FIRST < N ? i - FIRST : N] += s->bucket[i];
	for (unsigned i = 0; i < N; i++)
		le[i] = (double)rpc_times_end(FIRST + i) * 1e-9;
	snprintf(method, sizeof(method), "%u", s->method);
	prom_histogram(
		p, &label,
		&(struct prom_histogram){
			.n = N, .le = le, .bucket = bucket, .sum = (double)s->sum_ns * 1e-9});
}
