/* SPDX-License-Identifier: MIT */
/*
 * The benchmark of calls, as the gannet command sees it: fill in options, run, print.
 *
 * The server is a process of its own, and so is every client; the caller's process is the first
 * client. One client with one call at a time runs next to the cache-line ping-pong of bench.h,
 * which the very server thread answers that serves it.
 */
#ifndef GN_BENCH_RPC_H
#define GN_BENCH_RPC_H

#include "bench.h"

enum bench_rpc_mode {
	BENCH_RPC_FETCH,
	BENCH_RPC_REPLY,
	BENCH_RPC_HYBRID,
	BENCH_RPC_LIMIT, /* no calls: the same bytes between two cores, without a protocol */
	BENCH_RPC_MODES
};

extern const char *const bench_rpc_modes[BENCH_RPC_MODES + 1];

#define BENCH_RPC_BYTES_MAX    (1u << 20)
#define BENCH_RPC_BATCH_MAX    1024u
#define BENCH_RPC_BATCHES_MAX  1024u /* of a client, under way */
#define BENCH_RPC_INFLIGHT_MAX 32768u
#define BENCH_RPC_THREADS_MAX  64u
#define BENCH_RPC_CLIENTS_MAX  64u
#define BENCH_RPC_WORK_US_MAX  100000.0

struct bench_rpc_opts {
	enum bench_rpc_mode mode;
	uint32_t request_bytes, result_bytes;
	uint32_t batch;	      /* calls that go together */
	uint32_t inflight;    /* calls that a client has under way */
	uint32_t fetch_bytes; /* 0: the library's choice */
	uint32_t threads;     /* of the server */
	uint32_t clients;
	double work_us; /* that the handler computes for each call */
	double seconds;
	int cpus[2]; /* the first client's and the first server thread's */
	uint64_t seed;
};

/* NAN where a figure has no meaning. */
struct bench_rpc_result {
	struct bench_result run; /* the first client's; ops and seconds of all */
	double mops;		 /* of all clients */
	double server_wrs, client_wrs, round_trips, doorbells; /* per call */
	double batch_fill;  /* calls in a message with requests */
	double limit_ratio; /* of the speed of the mode limit, with several calls under way */
	bool has_counters;
	uint64_t failed_fetches, second_reads, switches;
};

/* As bench_run(). */
int bench_rpc_run(const struct bench_rpc_opts *opts, bench_progress_fn *progress,
		  struct bench_rpc_result *out);

#define BENCH_CELLS_MAX 24u /* room for those of a result */
/* All figures of a result, by the names that they have as members: how many. */
unsigned bench_rpc_cells(const struct bench_rpc_result *result, struct bench_cell *out);

void bench_rpc_print_json(FILE *f, const struct bench_rpc_opts *opts,
			  const struct bench_rpc_result *result);
void bench_rpc_print_head(FILE *f);
void bench_rpc_print_row(FILE *f, const struct bench_rpc_opts *opts,
			 const struct bench_rpc_result *result);

/* The other processes of a run, spawned as "--bench-rpc". Returns the exit status. */
int bench_rpc_peer_main(void);

#endif
