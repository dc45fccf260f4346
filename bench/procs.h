/* SPDX-License-Identifier: MIT */
/*
 * Runs a load as processes, each on cores of its own as far as there are enough. This process is
 * client 0. The others are spawned as "--bench-load", servers first, and map the control block.
 */
#ifndef GN_BENCH_PROCS_H
#define GN_BENCH_PROCS_H

#include "limit.h"
#include "load.h"

/* What the clients that were spawned do. */
enum load_signal {
	SIGNAL_WAIT,
	SIGNAL_RUN,
	SIGNAL_LIMIT, /* the kind's limit; clients that are threads */
	SIGNAL_END
};

struct procs {
	struct pair pair; /* this process and server 0 */
	struct load_run *run;
	const struct load_kind *kind;
	pid_t pids[2 * LOAD_TALLIES_MAX]; /* but server 0's; 0: it has ended */
	uint32_t n_pids;
	cpu_set_t cpus_before;
	struct load_proc self;
	struct load_client *client; /* client 0, between procs_start() and procs_close() */
	/* Clients that are threads, from client 1 on. */
	struct gn_thread *threads[LOAD_TALLIES_MAX];
	uint32_t n_threads;
	uint8_t *others; /* their clients */
};

/*
 * Makes the control block, of so many bytes, and picks cores for server threads and clients. The
 * layer then fills in the rest of its block.
 */
int procs_open(struct procs *procs, const struct load_kind *kind, size_t bytes,
	       const struct load_opts *opts, uint32_t servers, uint32_t server_threads,
	       uint32_t clients);
/* Starts server 0, and waits until it listens. */
int procs_start_server(struct procs *procs);
/* Starts all processes and opens client 0. */
int procs_start(struct procs *procs);
/*
 * Measures client 0 in blocks beside a limit and a part (which may be NULL), while the others run
 * too; then ends the other clients and takes all counters.
 */
int procs_measure(struct procs *procs, const struct load *limit, const struct load *part,
		  bench_progress_fn *progress, struct load_result *out,
		  struct comparison *compared);
/* The same without blocks and limits, until it is over. */
int procs_run(struct procs *procs, bool (*is_over)(void *arg), void *arg, struct load_result *out);
/* A load of blocks.c: the kind's limit, by all clients, which are threads. */
int procs_limit(void *procs, uint64_t block_ns, struct block *out);
/* A closed loop: with several operations under way, each takes that many times its share. */
void procs_scale_latency(const struct load_opts *opts, struct load_result *result);
/* Ends server 0, which notes what it has counted. */
void procs_stop_server(struct procs *procs);
/* Ends all processes; out->error says why, if rc is an error. Returns rc. */
int procs_close(struct procs *procs, int rc, struct load_result *out);

/* A client other than the first: opens, and does what the signals say until the end. */
void procs_follow(struct load_client *client);

/* The processes that were spawned: returns the exit status. */
int procs_main(void);

/* ---- a limit next to calls (hold.c) ---- */

/*
 * While a limit runs, a call holds the server thread that serves client 0, and that thread answers
 * something bare. The limit's bytes are between the same two cores.
 */
struct hold {
	struct procs *procs;
	struct gn_rpc_client *rpc; /* of client 0 */
	unsigned method;
	struct bare *bare; /* hold_bare() */
	const uint64_t *held;
};

/* Loads of blocks.c: one cache line there and back, or the bytes of requests and results. */
int hold_line(void *hold, uint64_t block_ns, struct block *out);
int hold_bare(void *hold, uint64_t block_ns, struct block *out);
/* The method's handler for hold_line(); arg is the struct shared. */
gn_rpc_handler hold_answer;

#endif
