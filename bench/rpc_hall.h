/* SPDX-License-Identifier: MIT */
/*
 * What the processes of a run of calls share, and what the files of the benchmark share: the hall
 * of a crew, and the limits' traffic.
 */
#ifndef GN_BENCH_RPC_HALL_H
#define GN_BENCH_RPC_HALL_H

#include "crew.h"
#include "limit.h"

enum method {
	METHOD_ECHO,
	METHOD_CACHELINE, /* answer pings until CACHELINE_END, then the call */
	METHOD_BARE,	  /* answer what is in the lanes of the limit until the next order */
};

struct hall {
	struct crew_hall crew;
	struct bench_rpc_opts opts;
	uint64_t bare_batches; /* that the limit's other side has answered */
	LINE uint64_t held;    /* the order that METHOD_BARE obeys */
	LINE uint8_t limit[];  /* lanes without calls: slots for requests, slots for results */
};

/* Batches that a client may have under way: two, so that one is gathered while one is away. */
static inline uint32_t slots_for(const struct bench_rpc_opts *opts)
{
	const uint32_t batches = (opts->inflight + opts->batch - 1) / opts->batch;

	return opts->batch > 1 && batches < 2 ? 2 : batches;
}

#define ENTRY_BYTES 16u /* that a call takes in a batch, besides its own, at most */

/* A slot's room for so many calls: to its options 0 means something else. */
static inline uint32_t room_for(uint32_t bytes, uint32_t batch)
{
	const uint64_t all = batch > 1 ? (uint64_t)batch * (bytes + ENTRY_BYTES) : bytes;

	return all > GN_RPC_BYTES_MAX ? GN_RPC_BYTES_MAX : all ? (uint32_t)all : 1;
}

/* ---- a client (rpc_client.c) ---- */

/* Its run is a load, as in pair.h, and adds to the client's tally, too. */
extern const struct crew_client caller_ops;
/* Ends what is under way; its connection, or NULL. */
struct gn_rpc_client *caller_rest(void *caller);

/* ---- the server (rpc_server.c) ---- */

int server_main(struct hall *hall);
/* ---- the limit (limit.c) ---- */

static inline struct limit_opts limit_opts_of(const struct bench_rpc_opts *o)
{
	return (struct limit_opts){.request_bytes = o->request_bytes,
				   .result_bytes = o->result_bytes,
				   .batch = o->batch,
				   .inflight = o->inflight,
				   .work_us = o->work_us,
				   .seed = o->seed};
}

static inline struct limit_place limit_place_of(struct hall *hall)
{
	return (struct limit_place){.shared = &hall->crew.pair,
				    .opts = limit_opts_of(&hall->opts),
				    .answered = &hall->bare_batches,
				    .lanes = hall->limit};
}

/* ---- a limit next to calls (rpc_hold.c) ---- */

/* A load, which holds the server thread meanwhile. */
struct hold_bare {
	struct hold hold;
	struct hall *hall;
	struct bare *bare;
};
int hold_bare(void *hold_bare, uint64_t block_ns, struct block *out);

#endif
