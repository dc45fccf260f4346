/* SPDX-License-Identifier: MIT */
/*
 * Latency histogram of a method: buckets of a quarter octave. One thread adds; any thread may read.
 */
#ifndef GN_RPC_TIMES_H
#define GN_RPC_TIMES_H

#include <stdint.h>

#include "base/counter.h"
#include "base/prometheus.h"

#define RPC_TIMES_BUCKETS 160u /* up to 2^40 ns */

/* A slower method is timed with every call: the clock is cheap in comparison. */
#define RPC_TIMED_NS 2000u

struct rpc_times {
	uint64_t calls;	  /* all, timed or not */
	uint32_t last_us; /* server: time of the last call that was timed alone */
	uint32_t untimed; /* server: calls to go before the next timed one */
	uint64_t open;	  /* calls in progress that are being timed, or were deferred */
	uint64_t count;	  /* timed calls */
	uint64_t weighed; /* calls in the buckets, and in the sum */
	uint64_t sum_ns;
	uint64_t bucket[RPC_TIMES_BUCKETS];
};

static inline unsigned rpc_times_bucket(uint64_t ns)
{
	const unsigned octave = 63 - (unsigned)__builtin_clzll(ns | 4);
	const unsigned i = octave * 4 + (unsigned)((ns >> (octave - 2)) & 3);

	return i < RPC_TIMES_BUCKETS ? i : RPC_TIMES_BUCKETS - 1;
}

/* Upper end of bucket i. */
static inline uint64_t rpc_times_end(unsigned i)
{
	return (uint64_t)(5 + i % 4) << (i / 4) >> 2;
}

static inline void rpc_times_set_last(struct rpc_times *t, uint64_t ns)
{
	t->last_us = ns / 1000 < UINT32_MAX ? (uint32_t)(ns / 1000) : UINT32_MAX;
	if (ns >= RPC_TIMED_NS)
		t->untimed = 0;
}

/*
 * n calls were timed. They stand for all calls that have ended since the last that was timed, too:
 * so short calls, of which one in ten is timed, weigh as much as long ones, which all are.
 */
static inline void rpc_times_add(struct rpc_times *t, uint64_t ns, uint64_t n)
{
	const int64_t since = (int64_t)(t->calls - t->open - t->weighed);
	const uint64_t weight = since > 0 ? (uint64_t)since : 1;

	counter_add(&t->count, n);
	counter_add(&t->weighed, weight);
	counter_add(&t->sum_ns, ns * weight);
	counter_add(&t->bucket[rpc_times_bucket(ns)], weight);
}

void rpc_times_merge(struct rpc_times *into, const struct rpc_times *from);
uint64_t rpc_times_percentile(const struct rpc_times *t, unsigned percent);

/* ---- what Prometheus sees of them (times.c) ---- */

/*
 * Buckets that are exported, always all of them: from 96 ns to 10.7 s in quarters of an octave, as
 * they are counted. So a quantile that Prometheus estimates is off by a quarter at most.
 */
#define RPC_EXPORT_FIRST 25u  /* ends at 96 ns */
#define RPC_EXPORT_LAST	 132u /* ends at 10.7 s */

/* A method's histogram as it was shown last: every call is in a bucket. */
struct rpc_histogram {
	struct rpc_histogram *next; /* of a higher method */
	unsigned method;
	uint64_t calls, sum_ns;
	uint64_t bucket[RPC_TIMES_BUCKETS];
	uint64_t seen_sum_ns, seen[RPC_TIMES_BUCKETS]; /* of rpc_times, at the last look */
};

/* A list's element of this method, or a new one, at *at or behind; NULL: there is no memory. */
struct rpc_histogram *rpc_histogram_find(struct rpc_histogram ***at, unsigned method);
/* Shows all calls that have ended. others: times to go by if none of this method is known. */
void rpc_histogram_update(struct rpc_histogram *histogram, const struct rpc_times *now,
			  const struct rpc_times *others);
void rpc_histogram_put(struct prom *p, const struct rpc_histogram *histogram);
void rpc_histogram_free(struct rpc_histogram *list);

#endif
