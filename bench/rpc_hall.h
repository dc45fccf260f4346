/* SPDX-License-Identifier: MIT */
/*
 * What the processes of a run of calls share, and what the files of the benchmark share. Like the
 * page of pair.h, which it begins with, it carries orders and results, and only the limits'
 * traffic.
 */
#ifndef GN_BENCH_RPC_HALL_H
#define GN_BENCH_RPC_HALL_H

#include <gannet/rpc.h>

#include "pair.h"
#include "rpc.h"

enum method {
	METHOD_ECHO,
	METHOD_CACHELINE, /* answer pings until CACHELINE_END, then the call */
	METHOD_BARE,	  /* answer what is in the lanes of the limit until the next order */
};

/* What a client has done. */
struct tally {
	uint64_t calls, ns;
	struct gn_hist group_ns;
	uint64_t group_ops;
	uint64_t wrs, doorbells, batches, fetches, failed_fetches, second_reads, switches;
};

/* What the clients that were spawned do. */
enum signal { SIGNAL_WAIT, SIGNAL_RUN, SIGNAL_END };

struct hall {
	struct shared pair;
	struct bench_rpc_opts opts;
	cpu_set_t server_cpus, client_cpus[BENCH_RPC_CLIENTS_MAX];
	size_t bytes;	       /* of all this */
	uint64_t bare_batches; /* that the limit's other side has answered */
	/* by the server, when it is asked */
	uint64_t server_calls, server_wrs, server_doorbells;
	LINE uint32_t joined;	/* processes that know who they are: the server, then clients */
	uint32_t ready, failed; /* clients */
	LINE uint32_t signal;	/* enum signal */
	LINE uint64_t held;	/* the order that METHOD_BARE obeys */
	LINE struct tally tally[BENCH_RPC_CLIENTS_MAX];
	LINE uint8_t limit[]; /* lanes without calls: slots for requests, slots for results */
};

static inline uint32_t least_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

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

struct caller;
int caller_create(struct hall *hall, uint32_t index, struct caller **out);
void caller_destroy(struct caller *c);
/* A load, as in pair.h. Adds to the client's tally, too. */
int caller_run(void *caller, uint64_t block_ns, struct block *out);
/* Ends what is under way. */
int caller_rest(struct caller *c);
struct gn_rpc_client *caller_rpc(const struct caller *c);
/* Ends what is under way; then every byte of the last results is checked. */
int caller_finish(struct caller *c);
/* A client that was spawned, from beginning to end. */
int caller_main(struct hall *hall, uint32_t index);

/* ---- the server (rpc_server.c) ---- */

int server_main(struct hall *hall);
/* The bytes of a result behind those that are the request's. */
#define RESULT_SEED 0x726573756c74u
void compute(double work_us);

/* ---- the limit (rpc_limit.c) ---- */

size_t limit_bytes(const struct bench_rpc_opts *opts);
struct bare;
int bare_create(struct pair *pair, struct hall *hall, struct bare **out);
void bare_destroy(struct bare *b);
int bare_run(void *bare, uint64_t block_ns, struct block *out);
int bare_check(const struct bare *b);
/* The same without an order: the other side is there. */
int bare_block(struct bare *b, uint64_t block_ns, struct block *out);
/* The other side, until the order is not mine any more. */
int bare_answer(struct hall *hall, uint64_t mine);

/* ---- a limit next to calls (rpc_hold.c) ---- */

/* Loads. Both hold the server thread meanwhile. */
struct hold {
	struct pair *pair;
	struct hall *hall;
	struct caller *caller;
	struct bare *bare;
};
int hold_line(void *hold, uint64_t block_ns, struct block *out);
int hold_bare(void *hold, uint64_t block_ns, struct block *out);

#endif
