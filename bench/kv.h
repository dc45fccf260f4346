/* SPDX-License-Identifier: MIT */
/*
 * The load of the key-value store: clients GET and PUT as fast as they can, and check every value.
 * One client over shm runs next to the same store in its own thread, without calls; with one
 * operation at a time, next to a bare cache line there and back as well.
 */
#ifndef GN_BENCH_KV_H
#define GN_BENCH_KV_H

#include "rpc.h"

enum bench_kv_mode {
	BENCH_KV_FETCH,
	BENCH_KV_REPLY,
	BENCH_KV_HYBRID,
	BENCH_KV_BYPASS,
	BENCH_KV_LOCAL, /* no server: the store in one thread */
	BENCH_KV_MODES
};

extern const char *const bench_kv_modes[BENCH_KV_MODES + 1];

#define BENCH_KV_KEYS_MAX      (1u << 30)
#define BENCH_KV_IN_FLIGHT_MAX (256u << 20) /* bytes of values */

struct bench_kv_opts {
	struct load_opts load;
	enum bench_kv_mode mode;
	uint32_t keys; /* how many */
	uint32_t key_bytes, value_bytes;
	double get_percent;
	double zipf;	 /* 0: uniform */
	uint64_t memory; /* of all servers together; 0: enough for all keys */
	/*
	 * Simulated. One server has a partition for each of its threads. Or (split) each thread is
	 * a server of one partition; a client draws a server for each batch, or has one (fixed).
	 */
	bool split, fixed;
	bool procs_each;   /* every server and every client is a process, with its own context */
	uint32_t fill_pct; /* bypass: of the table, by storing more keys; 0: as it comes */
};

/* NAN where a figure has no meaning. */
struct bench_kv_result {
	struct load_result calls; /* "calls" are operations */
	double cacheline_ns, local_p50_ns;
	uint64_t items;	       /* stored at the end */
	double bytes_per_item; /* of the store's memory */
};

extern const struct load_kind load_kv;

/* Of each server: its part of opts->memory, or enough for all keys, whatever holds them. */
uint64_t bench_kv_memory(const struct bench_kv_opts *opts);

/* As bench_rpc_run(). */
int bench_kv_run(const struct bench_kv_opts *opts, bench_progress_fn *progress,
		 struct bench_kv_result *out);

void bench_kv_print_json(FILE *f, const struct bench_kv_opts *opts,
			 const struct bench_kv_result *result);
void bench_kv_print_lines(FILE *f, const struct bench_kv_opts *opts,
			  const struct bench_kv_result *result);

#endif
