/* SPDX-License-Identifier: MIT */
/*
 * How long calls took: counts in buckets of a quarter octave. One thread adds, any may read, so
 * that metrics can be asked for at any time.
 */
#ifndef GN_RPC_TIMES_H
#define GN_RPC_TIMES_H

#include <stdint.h>

#include "base/counter.h"

#define RPC_TIMES_BUCKETS 160u /* up to 2^40 ns */

/* A method that takes longer is timed each time: the clock costs little then. */
#define RPC_TIMED_NS 2000u

struct rpc_times {
	uint64_t calls;		/* that there were */
	uint32_t last_us;	/* of a server: what the last took that was timed by itself */
	uint32_t untimed;	/* … calls before the next that is timed; 0: it is */
	uint64_t count, sum_ns; /* of those that were timed */
	uint64_t bucket[RPC_TIMES_BUCKETS];
};

static inline unsigned rpc_times_bucket(uint64_t ns)
{
	const unsigned octave = 63 - (unsigned)__builtin_clzll(ns | 4);
	const unsigned i = octave * 4 + (unsigned)((ns >> (octave - 2)) & 3);

	return i < RPC_TIMES_BUCKETS ? i : RPC_TIMES_BUCKETS - 1;
}

/* Where bucket i ends. */
static inline uint64_t rpc_times_end(unsigned i)
{
	return (uint64_t)(5 + i % 4) << (i / 4) >> 2;
}

static inline void rpc_times_last(struct rpc_times *t, uint64_t ns)
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
/* The time in ns that so many per cent of them did not exceed. */
uint64_t rpc_times_percentile(const struct rpc_times *t, unsigned percent);

#endif
