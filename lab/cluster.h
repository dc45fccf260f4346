/* SPDX-License-Identifier: MIT */
/*
 * A load on a simulated cluster: which processes stand on which machine and who connects to whom,
 * and what came of it.
 */
#ifndef GN_LAB_CLUSTER_H
#define GN_LAB_CLUSTER_H

#include "trial.h"

struct cluster_opts {
	const char *card; /* profile */
	uint64_t seed;
	double effort;
	uint64_t ops; /* to measure, however long they take; 0: until they tell enough */
	const volatile sig_atomic_t *interrupted;
};

struct cluster {
	struct fab_opts load;
	unsigned n_nodes;
	struct fab_proc *procs;
	unsigned n_procs;
};

/* A process with so many requesting threads; NULL when memory ends. Valid until the next one. */
struct fab_proc *cluster_add(struct cluster *cluster, unsigned node, unsigned n_threads);
/* Each thread of process from gets n more connections to process to. */
int cluster_connect(struct cluster *cluster, unsigned from, unsigned to, unsigned n);
/* Spread a machine's window over the threads of its processes of [first, first + n). */
int cluster_spread(struct cluster *cluster, unsigned first, unsigned n, unsigned window);
void cluster_free(struct cluster *cluster);

/* -errno and error: why there is no result. */
int cluster_run(struct cluster *cluster, const struct cluster_opts *opts, struct trial_result *out,
		struct lab_error *error);

/* The cluster of a configuration of the layer fabric (fabric.c). */
int lab_fabric_cluster(const struct config *config, const char *profile, struct cluster *out,
		       struct lab_error *error);

#endif
