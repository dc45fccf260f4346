/* SPDX-License-Identifier: MIT */
/*
 * A trial: programs on a simulated cluster, and the measured part of what happened. The programs
 * share a struct fab_run (load.h), whose phases say what is measured.
 */
#ifndef GN_LAB_TRIAL_H
#define GN_LAB_TRIAL_H

#include <gannet/sim.h>

#include "fab_load.h"

struct trial {
	const char *card; /* profile */
	uint64_t seed;
	unsigned nodes;
	size_t stack_bytes;
	uint64_t limit_ns; /* of virtual time: something hangs */
	/* Starts the processes. */
	int (*spawn)(struct gn_sim *sim, void *arg);
	void *arg;
};

struct trial_result {
	uint64_t ops, ns; /* measured */
	uint64_t events;  /* … of the simulator meanwhile */
	double wall_seconds;
	uint64_t trace_hash; /* of the whole run */
	double latency_ns_mean, p15_ns, p50_ns, p99_ns;
	struct gn_sim_stats *stats; /* of each node, of what was measured */
};

/* run: with length, threads and so on. -errno and error: why there is no result. */
int trial_run(const struct trial *trial, struct fab_run *run, struct trial_result *out,
	      struct lab_error *error);
void trial_result_free(struct trial_result *result);

#endif
