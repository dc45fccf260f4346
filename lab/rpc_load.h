/* SPDX-License-Identifier: MIT */
/*
 * Calls on a simulated cluster: one server on node 0, and on each of the other nodes a process
 * whose threads are clients that call it all the time. Written against gannet/rpc.h; phases and
 * counting are those of load.h.
 */
#ifndef GN_LAB_RPC_LOAD_H
#define GN_LAB_RPC_LOAD_H

#include <gannet/rpc.h>
#include <gannet/sim.h>

#include "lab.h"
#include "load.h"

struct rpc_load {
	bool paper; /* the papers' way, or the library's own */
	enum gn_rpc_mode mode;
	unsigned server_threads, machines, clients; /* clients of each machine */
	bool hashed; /* a client calls all server threads, one drawn for each call; or its own */
	uint32_t req, resp;
	uint32_t fetch_bytes, retries; /* 0: the library's choice */
	uint64_t work_ns;	       /* of the handler */
	/*
	 * Calls that a client makes at once and waits for; 0: one by one. With chosen, as many as
	 * the library finds right for limit_ns and alpha_pct, up to batch.
	 */
	uint32_t batch;
	bool chosen;
	uint64_t limit_ns; /* 0: none */
	uint32_t alpha_pct;
};

/* What clients add when they are through; per call means of those that they counted. */
struct rpc_sums {
	uint64_t calls, fetches, failed_fetches, second_reads;
	uint64_t late;	   /* longer than limit_ns */
	uint64_t switches; /* since the beginning */
	uint64_t batches;  /* the sizes that clients have chosen in the end */
};

struct rpc_run {
	struct load_run load;
	const struct rpc_load *opts;
	const uint8_t *result; /* that a server may answer with */
	struct rpc_sums sums;
	unsigned clients_gone; /* machines whose process has ended */
};

/* Processes. env->arg: the struct rpc_run, and of a client's the struct rpc_site. */
struct rpc_site {
	struct rpc_run *run;
	unsigned machine; /* from 0 */
};
gn_node_main rpc_server_program, rpc_client_program;

/* Runs it. What came of each node's card is in stats; there are machines + 1. */
struct rpc_result {
	uint64_t calls, ns;
	double latency_ns_mean, p15_ns, p50_ns, p99_ns;
	struct rpc_sums sums;
	struct gn_sim_stats server, clients; /* of what was measured */
};
int rpc_load_run(const struct rpc_load *load, const struct lab_setup *setup, struct rpc_result *out,
		 struct lab_error *error);

#endif
