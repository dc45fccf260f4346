/* SPDX-License-Identifier: MIT */
/*
 * The load of calls: clients call an echo as fast as they can. One client over shm runs next to a
 * limit that the very thread answers which serves it: with one call at a time a bare cache line
 * there and back, else the bytes of requests and results without any calls.
 */
#ifndef GN_BENCH_RPC_H
#define GN_BENCH_RPC_H

#include "load.h"

enum bench_rpc_mode {
	BENCH_RPC_FETCH,
	BENCH_RPC_REPLY,
	BENCH_RPC_HYBRID,
	BENCH_RPC_LIMIT, /* no calls: the same bytes between two cores, without a protocol */
	BENCH_RPC_MODES
};

extern const char *const bench_rpc_modes[BENCH_RPC_MODES + 1];

#define BENCH_RPC_BYTES_MAX   (1u << 20)
#define BENCH_RPC_BATCHES_MAX 1024u /* of a client, under way */
#define BENCH_RPC_WORK_US_MAX 100000.0

struct bench_rpc_opts {
	struct load_opts load;
	enum bench_rpc_mode mode;
	uint32_t request_bytes, result_bytes;
	bool hashed;	/* a client calls all server threads, one drawn for each call; or its own */
	double work_us; /* that the handler computes for each call */
};

extern const struct load_kind load_rpc;

/* 0, -EINTR after bench_stop_on_signals() caught one, or what went wrong, which has been logged. */
int bench_rpc_run(const struct bench_rpc_opts *opts, bench_progress_fn *progress,
		  struct load_result *out);

void bench_rpc_print_json(FILE *f, const struct bench_rpc_opts *opts,
			  const struct load_result *result);
void bench_rpc_print_head(FILE *f);
void bench_rpc_print_row(FILE *f, const struct bench_rpc_opts *opts,
			 const struct load_result *result);

#endif
