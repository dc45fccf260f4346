/* SPDX-License-Identifier: MIT */
/*
 * The load of a cluster's fabric: threads that post READs, WRITEs, atomics or datagrams to the
 * memory of other processes as fast as their windows let them. Nobody above the fabric takes part.
 */
#ifndef GN_BENCH_FABRIC_H
#define GN_BENCH_FABRIC_H

#include "load.h"

#define BENCH_FABRIC_WINDOW_MAX	 4096u
#define BENCH_FABRIC_CHAIN_MAX	 64u
#define BENCH_FABRIC_SIZE_MAX	 (16u << 20)
#define BENCH_FABRIC_THREADS_MAX 512u
#define BENCH_FABRIC_QPS_MAX	 1024u
#define BENCH_FABRIC_INLINE	 92u /* bytes that go inline unless told otherwise: RFP 3.2 */

/* Node 0 is the server, or the one. */
enum fabric_topology {
	FABRIC_IN,  /* the clients' threads request of a server */
	FABRIC_OUT, /* the threads of a server request of its clients */
	FABRIC_M1,  /* many nodes request of one */
	FABRIC_1M,  /* one node requests of many */
	FABRIC_MM,  /* all of all */
	FABRIC_TOPOLOGIES
};

extern const char *const bench_fabric_topologies[FABRIC_TOPOLOGIES + 1];

struct bench_fabric_opts {
	struct load_opts load; /* threads: of the server, or of each node that requests */
	enum bench_op op;      /* write, read, cas, faa, ud-send */
	uint32_t topology;     /* enum fabric_topology */
	uint32_t nodes;	       /* M:1, 1:M: the many */
	uint32_t size_bytes;
	/* Bytes of a buffer before those that are moved. Such buffers lie end to end. */
	uint32_t lead_bytes;
	uint64_t region_bytes; /* atomics: that they hit at random */
	uint32_t qps;	       /* of a thread, to each process that it requests of; M:M: in all */
	/*
	 * Requests under way: of a thread, which draws a connection for each; of a connection; or
	 * of a machine, spread over its threads. One is not 0.
	 */
	uint32_t window, window_qp, window_machine;
	uint32_t chain; /* requests that are posted together, the last of them signaled */
	/*
	 * Not 0: requests are posted one by one without a window. Of so many the first is signaled,
	 * and its completion is waited for after the last.
	 */
	uint32_t signal_every;
	uint32_t requests;  /* of an operation, one after the other */
	uint32_t shared_by; /* threads that share their connections and their cq */
	bool inlined;	    /* the payload goes with the request */
	bool procs_each;    /* every thread is a process of its own */
	uint64_t ops;	    /* to measure, however long they take; 0: as many as a figure needs */
};

extern const struct load_kind load_fabric;

struct bench_fabric_result {
	struct load_result load;
	double mops_per_core, mops_per_node; /* that request */
	double gbps, gbps_per_node;
	double misses_per_op; /* in: at the server, of a request that it serves; else of all */
};

/* 0, -EINVAL and error: why these options do not go together. */
int bench_fabric_check(const struct bench_fabric_opts *opts, char error[LOAD_ERROR_MAX]);
/* 0, -EINTR, or -errno and out->load.error. Processes: a server and clients, topology in. */
int bench_fabric_run(const struct bench_fabric_opts *opts, bench_progress_fn *progress,
		     struct bench_fabric_result *out);

void bench_fabric_print_json(FILE *f, const struct bench_fabric_opts *opts,
			     const struct bench_fabric_result *result);
void bench_fabric_print_row(FILE *f, const struct bench_fabric_opts *opts,
			    const struct bench_fabric_result *result);

#endif
