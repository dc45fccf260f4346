/* SPDX-License-Identifier: MIT */
/*
 * The load of datagram calls: every node is a process whose threads call and answer; workers call
 * the threads of all other nodes in turn. Processes run in blocks of time that take turns with raw
 * UD sends and receives of the same shape between the same threads (dgram_raw.c). On a simulated
 * cluster the raw load runs after the calls, on a cluster of its own.
 */
#ifndef GN_BENCH_DGRAM_H
#define GN_BENCH_DGRAM_H

#include <gannet/dgram.h>

#include "load.h"

#define BENCH_DGRAM_NODES_MAX	256u
#define BENCH_DGRAM_WORKERS_MAX 1024u
#define BENCH_DGRAM_BATCH_MAX	64u
#define BENCH_DGRAM_REQUEST_MIN 8u /* bytes: a request has its number in it */
#define BENCH_DGRAM_CALLS_MAX	8192u
#define BENCH_DGRAM_TABLE_MAX	(4ull << 30)

/* FaSST's optimisations, in the order of its slides ("single-core RPC"). */
enum bench_dgram_step {
	STEP_BATCH,
	STEP_COALESCE,
	STEP_ANSWER_BATCH,
	STEP_CHEAP_RECV,
	STEP_SIGNALING,
	STEP_PREFETCH,
	BENCH_DGRAM_STEPS
};

extern const char *const bench_dgram_steps[BENCH_DGRAM_STEPS + 1];
/* The flag of gn_dgram_opts that leaves each of them out. */
extern const unsigned bench_dgram_flags[BENCH_DGRAM_STEPS];
#define BENCH_DGRAM_ALL_OFF ((1u << BENCH_DGRAM_STEPS) - 1)

struct bench_dgram_opts {
	struct load_opts load; /* threads: of a node */
	uint32_t nodes;
	uint32_t endpoints; /* that each thread polls in turn; usually 1 */
	uint32_t workers;   /* of an endpoint */
	uint32_t batch;	    /* calls that a worker makes together */
	uint32_t request_bytes, result_bytes;
	uint64_t table_bytes; /* of which the handler reads a random line; 0: none */
	unsigned off;	      /* bits by enum bench_dgram_step */
	bool mapped;	      /* GN_DGRAM_MAPPED */
	bool one_way;	      /* only node 0 calls */
};

/* NAN where a figure has no meaning. */
struct bench_dgram_result {
	struct load_result load;
	double mops_per_core, mrps, mverbs_per_core;
	double raw_mops_per_core, raw_ratio;
	double datagrams, messages, doorbells, recv_doorbells; /* per call, of both sides */
	double repeats, lost, twice;
	double switch_ns, worker_bytes;
	bool crowded; /* raw sends were left out: there are more threads than cores */
};

/* Threads of all nodes, and cores that they have. */
uint32_t bench_dgram_clients(const struct bench_dgram_opts *opts);
/* Can it be, as far as one can tell without a fabric? -EINVAL and why, without a newline. */
int bench_dgram_check(const struct bench_dgram_opts *opts, char why[BENCH_WHY_MAX]);

/* As bench_rpc_run(). with_raw: the raw load, too; else its figures are NAN. */
int bench_dgram_run(const struct bench_dgram_opts *opts, bool with_raw, bench_progress_fn *progress,
		    struct bench_dgram_result *out);
/*
 * The time of a switch to the next worker, and the resident memory of an idle one, in this process
 * and without a network. 0 or -errno; the figures stay NAN where they cannot be taken.
 */
int bench_dgram_switch(const struct bench_dgram_opts *opts, double *switch_ns,
		       double *worker_bytes);

/* step: what the row shows, or NULL. */
void bench_dgram_print_json(FILE *f, const struct bench_dgram_opts *opts, const char *step,
			    const struct bench_dgram_result *result);
void bench_dgram_print_head(FILE *f, bool steps);
void bench_dgram_print_row(FILE *f, const struct bench_dgram_opts *opts, const char *step,
			   const struct bench_dgram_result *result);

extern const struct load_kind load_dgram, load_dgram_raw;

#endif
