/* SPDX-License-Identifier: MIT */
/*
 * A run with a server and several clients, each a process of its own on cores of its own as far as
 * there are enough. The caller's process is the first client. What the benchmarks of calls and of
 * the store have in common.
 */
#ifndef GN_BENCH_CREW_H
#define GN_BENCH_CREW_H

#include <gannet/rpc.h>

#include "pair.h"
#include "rpc.h"

#define CREW_CLIENTS_MAX BENCH_RPC_CLIENTS_MAX

/* What a client has done. */
struct tally {
	uint64_t calls, ns;
	struct gn_hist group_ns;
	uint64_t group_ops;
	uint64_t wrs, doorbells, batches, fetches, failed_fetches, second_reads, switches;
};

/* What the clients that were spawned do. */
enum signal { SIGNAL_WAIT, SIGNAL_RUN, SIGNAL_END };

/*
 * What all processes share, at the beginning of a benchmark's own hall. Like the page of pair.h,
 * which it begins with, it carries orders and results.
 */
struct crew_hall {
	struct shared pair;
	size_t bytes; /* of the whole hall */
	uint32_t clients;
	cpu_set_t server_cpus, client_cpus[CREW_CLIENTS_MAX];
	/* by the server, when it is asked */
	uint64_t server_batches, server_wrs, server_doorbells, server_cpu_ns;
	LINE uint32_t joined;	/* processes that know who they are: the server, then clients */
	uint32_t ready, failed; /* clients */
	LINE uint32_t signal;	/* enum signal */
	LINE struct tally tally[CREW_CLIENTS_MAX];
};

/* ---- the first client's (crew.c) ---- */

struct crew {
	struct pair pair; /* this process and the server */
	struct crew_hall *hall;
	const char *hidden_arg;		 /* by which the others are spawned */
	pid_t clients[CREW_CLIENTS_MAX]; /* from 1 on; 0: none */
	cpu_set_t cpus_before;
};

struct crew_opts {
	const char *hidden_arg;
	size_t bytes; /* of the hall */
	uint32_t threads, clients;
	double seconds;
	int cpus[2]; /* the first client's and the first server thread's */
};

/* The hall, and the core that this process is to run on. -errno, and told. */
int crew_open(struct crew *crew, const struct crew_opts *opts);
void crew_close(struct crew *crew);
/* When it answers, it is ready. */
int crew_start_server(struct crew *crew);
void crew_stop_server(struct crew *crew);
/* All but the first; they wait until they are let go. */
int crew_start_clients(struct crew *crew);
void crew_let_go(struct crew *crew);
int crew_end_clients(struct crew *crew);

/* ---- the others' (crew_member.c) ---- */

/* *number: 0 is the server, which comes first and is waited for; then come clients. */
int crew_join(size_t least_bytes, struct crew_hall **out, uint32_t *number);
void crew_leave(struct crew_hall *hall);
/* Runs on the cpus that are the server's. */
void crew_be_server(struct crew_hall *hall);
/* Carries out orders until the last: notes what was counted when asked to. */
void crew_obey(struct crew_hall *hall, struct gn_fabric *fabric, struct gn_rpc_server *rpc);

struct crew_client {
	int (*create)(struct crew_hall *hall, uint32_t index, void **out);
	void (*destroy)(void *client);
	int (*warm)(void *client);
	int (*run)(void *client, uint64_t block_ns, struct block *out); /* as a load */
	int (*finish)(void *client);
};
/* A client that was spawned, from beginning to end. */
int crew_be_client(struct crew_hall *hall, uint32_t index, const struct crew_client *ops);

/* ---- figures (crew_tally.c) ---- */

/* Adds what a connection has counted so far, or takes it away: before and after a block. */
void tally_calls(struct tally *tally, const struct gn_rpc_client *client, int sign);
void tally_fabric(struct tally *tally, const struct gn_fabric *fabric, int sign);
/* A finished block. */
void tally_block(struct tally *tally, const struct block *block);
/* All clients' figures per call, in the result. */
void tally_sum(const struct crew_hall *hall, struct bench_rpc_result *out);

/* ---- a limit next to calls (hold.c) ---- */

/* The server thread that answers calls is held by one, and answers something bare meanwhile. */
struct hold {
	struct pair *pair;
	struct gn_rpc_client *(*rest)(void *caller); /* ends what is under way; NULL: it failed */
	void *caller;
	unsigned method; /* of hold_answer() */
};
/* A load: one cache line. */
int hold_line(void *hold, uint64_t block_ns, struct block *out);
/* The method's handler; arg is the struct shared. */
gn_rpc_handler hold_answer;
/* The call that holds the thread is on its way, until the word says so. */
int hold_begin(struct hold *h, struct gn_rpc_op *op, const uint64_t *word, uint64_t held);
int hold_end(struct hold *h, struct gn_rpc_op *op);

#endif
