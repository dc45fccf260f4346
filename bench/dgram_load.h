/* SPDX-License-Identifier: MIT */
/* The control block of the load of datagram calls, and what its parts share. */
#ifndef GN_BENCH_DGRAM_LOAD_H
#define GN_BENCH_DGRAM_LOAD_H

#include "dgram.h"

#define DGRAM_METHOD_ECHO 1u
#define DGRAM_METHOD_NULL 2u /* the first call to a node, which connects */

/* Calls without an answer, and calls that were executed more than once. */
struct dgram_misses {
	uint64_t lost, twice;
};

struct dgram_run {
	struct load_run load;
	struct bench_dgram_opts opts;
	bool with_raw;
	bool crowded;		     /* there are more threads than cores */
	struct dgram_misses *result; /* simulated: nodes note the misses there at their end */
	LINE struct dgram_misses misses;
	LINE uint32_t opened; /* threads whose endpoints exist */
	uint32_t greeted;     /* simulated: nodes that are connected to all others */
	uint32_t rested;      /* threads without calls under way */
	LINE uint32_t parked; /* threads whose workers wait for the end of a block of raw sends */
	struct gn_ud_addr raw[]; /* of all endpoints */
};

static inline struct dgram_run *dgram_run_of(struct load_run *run)
{
	return (struct dgram_run *)run; /* which begins with it */
}

/* ---- endpoints are numbered: node by node, thread by thread ---- */

static inline uint32_t dgram_node_endpoints(const struct bench_dgram_opts *o)
{
	return o->load.threads * o->endpoints;
}

static inline uint32_t dgram_endpoints(const struct bench_dgram_opts *o)
{
	return o->nodes * dgram_node_endpoints(o);
}

/* Endpoints of other nodes that one endpoint calls. */
static inline uint32_t dgram_peers(const struct bench_dgram_opts *o)
{
	return (o->nodes - 1) * (o->mapped ? 1 : dgram_node_endpoints(o));
}

/* The i-th of them, nodes going round fastest. */
static inline uint32_t dgram_peer_of(const struct bench_dgram_opts *o, uint32_t endpoint,
				     uint32_t i)
{
	const uint32_t each = dgram_node_endpoints(o);
	const uint32_t node = (endpoint / each + 1 + i % (o->nodes - 1)) % o->nodes;

	return node * each + (endpoint + i / (o->nodes - 1)) % each;
}

static inline bool dgram_calls(const struct bench_dgram_opts *o, uint32_t client)
{
	return !o->one_way || client < o->load.threads;
}

/* Calls that an endpoint has under way. */
static inline uint32_t dgram_under_way(const struct bench_dgram_opts *o)
{
	return o->workers * o->batch;
}

/* What a request begins with. */
struct dgram_number {
	uint32_t seq;  /* of the slot, from 1 on */
	uint16_t slot; /* of the caller's endpoint: worker and place in its batch */
	uint16_t caller;
};

static inline unsigned dgram_flags_of(const struct bench_dgram_opts *o)
{
	unsigned flags = o->mapped ? GN_DGRAM_MAPPED : 0;

	for (unsigned i = 0; i < BENCH_DGRAM_STEPS; i++)
		flags |= o->off & 1u << i ? bench_dgram_flags[i] : 0;
	return flags;
}

/* ---- a process (dgram_node.c) ---- */

int dgram_node_open(struct load_proc *proc);
void dgram_node_close(struct load_proc *proc);
struct gn_dgram_node *dgram_node_of(const struct load_proc *proc);

/* ---- raw sends and receives (dgram_raw.c) ---- */

struct dgram_raw;

/* Creates the qp of an endpoint, and publishes its address. */
int dgram_raw_create(struct dgram_run *run, struct gn_fabric *fabric, uint32_t endpoint, bool calls,
		     struct dgram_raw **out);
/* When all have published theirs. */
int dgram_raw_connect(struct dgram_raw *raw);
/* Receives, answers, sends: how many requests of its own were answered; -errno. */
int dgram_raw_poll(struct dgram_raw *raw);
/* When the last answered request of dgram_raw_poll() was sent; simulated only. */
uint64_t dgram_raw_began(const struct dgram_raw *raw, int i);
uint64_t dgram_raw_lost(const struct dgram_raw *raw);
void dgram_raw_destroy(struct dgram_raw *raw);

#endif
