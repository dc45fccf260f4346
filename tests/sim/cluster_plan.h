/* SPDX-License-Identifier: MIT */
/* The part of a plan that is the same for every protocol: the simulated cluster and its faults. */
#ifndef GN_TESTS_SIM_CLUSTER_PLAN_H
#define GN_TESTS_SIM_CLUSTER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/sim.h"

#include "rng.h"

struct cluster_plan {
	const char *profile;
	uint64_t caps_off;
	char faults[1024];
	bool breaks, no_memory, stalls; /* effects of the faults on operations */
};

/* Draws a profile and the capabilities that the fabric does not have; no faults yet. */
void cluster_draw(struct cluster_plan *cluster, struct rng *rng);
/* The ideal profile with these faults only, which are failures of memory. */
void cluster_small(struct cluster_plan *cluster, const char *faults);

struct fault_opts {
	uint32_t until_us; /* a scheduled fault begins by then */
	unsigned good;	   /* GOOD_…: nodes whose crashes may be permanent */
	uint32_t rare_ppm; /* highest rate of a fault that ends a connection or a program */
};
/* Draws a fault of this kind, scheduled or at a rate, and adds it to the cluster if chosen. */
void cluster_draw_fault(struct cluster_plan *cluster, struct rng *rng, const char *kind,
			bool chosen, bool scheduled, const struct fault_opts *opts);
/*
 * Draws faults of all kinds. True: they all end within the run, and none has a rate, so that clients
 * must come to their end.
 */
bool cluster_draw_faults(struct cluster_plan *cluster, struct rng *rng);
/*
 * Draws faults that are over at some time, or end with cluster_heal(): for tests that must come to
 * their end.
 */
void cluster_draw_some_faults(struct cluster_plan *cluster, struct rng *rng);
/* Ends all faults, also those with a rate. */
void cluster_heal(struct gn_sim *sim);
void cluster_add_fault(struct cluster_plan *cluster, const char *fault);

/* No fault of the cluster can break a connection or make an operation late. */
static inline bool cluster_is_strict(const struct cluster_plan *cluster)
{
	return !cluster->breaks && !cluster->no_memory && !cluster->stalls;
}

struct gn_sim_opts cluster_sim_opts(const struct cluster_plan *cluster, uint64_t seed,
				    unsigned nodes, uint64_t limit_ns);

#endif
