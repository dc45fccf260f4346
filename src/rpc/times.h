/* SPDX-License-Identifier: MIT */
/*
 * Latency histogram of a method: buckets of a quarter octave. One thread adds; any thread may read.
 */
#ifndef GN_RPC_TIMES_H
#define GN_RPC_TIMES_H

#include <stdint.h>

#include "base/counter.h"

#define RPC_TIMES_BUCKETS 160u /* up to 2^40 ns */

/* A slower method is timed with every call: the clock is cheap in comparison. */
#define RPC_TIMED_NS 2000u

struct rpc_times {
	uint64_t calls;		/* all, timed or not */
	uint32_t last_us;	/* server: time of the last call that was timed alone */
	uint32_t untimed;	/* server: calls to go before the next timed one */
	uint64_t count, sum_ns; /* of timed calls */
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

static inline void rpc_times_add(struct rpc_times *t, uint64_t ns, uint64_t n)
{
	counter_add(&t->count, n);
	counter_add(&t->sum_ns, ns * n);
	counter_add(&t->bucket[rpc_times_bucket(ns)], n);
}

void rpc_times_merge(struct rpc_times *into, const struct rpc_times *from);
uint64_t rpc_times_percentile(const struct rpc_times *t, unsigned percent);

#endif
