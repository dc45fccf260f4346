/* SPDX-License-Identifier: MIT */
/*
 * The benchmark of the key-value store, as the gannet command sees it: fill in options, run, print.
 *
 * The server is a process of its own, and so is every client; the caller's process is the first
 * client, and fills the store. One client runs next to the same store in its own thread, without
 * calls; and with one operation at a time next to the cache-line ping-pong of bench.h as well.
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
#define BENCH_KV_KEY_MIN       4u	    /* bytes: so that any number of keys differ */
#define BENCH_KV_BATCHES       4u	    /* under way, unless told otherwise */
#define BENCH_KV_IN_FLIGHT_MAX (256u << 20) /* bytes of values */

struct bench_kv_opts {
	enum bench_kv_mode mode;
	uint32_t threads, clients;
	uint32_t keys; /* how many */
	uint32_t key_bytes, value_bytes;
	double get_percent;
	double zipf;	   /* 0: uniform */
	uint32_t batch;	   /* operations that go together */
	uint32_t inflight; /* operations that a client has under way */
	uint64_t memory;   /* of the store; 0: enough for all keys */
	double seconds;
	int cpus[2]; /* the first client's and the first server thread's */
	uint64_t seed;
};

/* NAN where a figure has no meaning. */
struct bench_kv_result {
	struct bench_rpc_result calls; /* "calls" are operations */
	uint64_t gets, puts, hits;
	double reads_per_get; /* by bypass */
	double cacheline_ns, local_p50_ns;
	double server_cpu_percent; /* of one core */
	uint64_t items;		   /* stored at the end */
	double bytes_per_item;	   /* of the store's memory */
};

/* As bench_run(). */
int bench_kv_run(const struct bench_kv_opts *opts, bench_progress_fn *progress,
		 struct bench_kv_result *out);

void bench_kv_print_json(FILE *f, const struct bench_kv_opts *opts,
			 const struct bench_kv_result *result);
/* A line for each figure: its name, a tab, and - where there is none. */
void bench_kv_print_lines(FILE *f, const struct bench_kv_opts *opts,
			  const struct bench_kv_result *result);

/* The other processes of a run, spawned as "--bench-kv". Returns the exit status. */
int bench_kv_peer_main(void);

#endif
