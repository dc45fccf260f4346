/* SPDX-License-Identifier: MIT */
#include "cluster_plan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "draw.h"

#define STACK_BYTES 131072u

void cluster_draw(struct cluster_plan *cluster, struct rng *rng)
{
	unsigned profiles = 0;

	while (gn_sim_profile_name(profiles))
		profiles++;
	cluster->profile = gn_sim_profile_name(range(rng, 0, profiles - 1));
	cluster->caps_off = draw_caps_off(rng);
}

void cluster_small(struct cluster_plan *cluster, const char *faults)
{
	cluster->profile = "ideal";
	snprintf(cluster->faults, sizeof(cluster->faults), "%s", faults);
	cluster->no_memory = true;
}

static void note_effect(struct cluster_plan *cluster, const char *kind)
{
	static const char *const breaks[] = {"crash", "kill", "partition", "qp-error", "rnr", NULL};
	static const char *const no_memory[] = {"alloc", "register", NULL};
	static const char *const stalls[] = {"pause",		"slow-node", "slow-link",
					     "late-completion", "ack-loss",  NULL};

	cluster->breaks |= is_one_of(kind, breaks);
	cluster->no_memory |= is_one_of(kind, no_memory);
	cluster->stalls |= is_one_of(kind, stalls);
}

void cluster_add_fault(struct cluster_plan *cluster, const char *fault)
{
	const size_t len = strlen(cluster->faults);

	snprintf(cluster->faults + len, sizeof(cluster->faults) - len, "%s%s", len ? "," : "",
		 fault);
}

void cluster_draw_fault(struct cluster_plan *cluster, struct rng *rng, const char *kind,
			bool chosen, bool scheduled, const struct fault_opts *opts)
{
	const bool node = is_one_of(kind, node_faults);
	char fault[64];

	/* Drawn in any case: the numbers that follow must not depend on the choice. */
	if (scheduled)
		draw_schedule(rng, kind, node, opts->until_us, opts->good, fault, sizeof(fault));
	else
		draw_rate(rng, kind, node, opts->rare_ppm, fault, sizeof(fault));
	if (!chosen)
		return;
	note_effect(cluster, kind);
	cluster_add_fault(cluster, fault);
}

bool cluster_draw_faults(struct cluster_plan *cluster, struct rng *rng)
{
	const bool none = one_in(rng, 8), healing = one_in(rng, 2);
	const struct fault_opts opts = {
		.until_us = 3000, .good = healing ? GOOD_NONE : GOOD_ALL, .rare_ppm = 3000};
	const uint32_t share = range(rng, 2, 8);
	const char *kind;

	for (unsigned i = 0; (kind = gn_sim_fault_name(i)); i++) {
		const bool chosen = one_in(rng, share) && !none;
		const bool scheduled = healing || one_in(rng, 2);

		cluster_draw_fault(cluster, rng, kind, chosen, scheduled, &opts);
	}
	return healing;
}

void cluster_draw_some_faults(struct cluster_plan *cluster, struct rng *rng)
{
	const struct fault_opts opts = {.until_us = 3000, .good = GOOD_NONE, .rare_ppm = 3000};
	const uint32_t share = range(rng, 2, 8);
	const char *kind;

	for (unsigned i = 0; (kind = gn_sim_fault_name(i)); i++) {
		const bool chosen = one_in(rng, share), scheduled = one_in(rng, 2);

		cluster_draw_fault(cluster, rng, kind, chosen, scheduled, &opts);
	}
}

void cluster_heal(struct gn_sim *sim)
{
	const char *kind;
	char fault[64];
	int rc;

	for (unsigned i = 0; (kind = gn_sim_fault_name(i)); i++) {
		snprintf(fault, sizeof(fault), "%s=0ppm", kind);
		rc = gn_sim_inject(sim, fault);
		assert(!rc);
		(void)rc;
	}
}

struct gn_sim_opts cluster_sim_opts(const struct cluster_plan *cluster, uint64_t seed,
				    unsigned nodes, uint64_t limit_ns)
{
	return (struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts),
		.profile = cluster->profile,
		.seed = seed,
		.nodes = nodes,
		.stack_bytes = STACK_BYTES,
		.limit_ns = limit_ns,
		.caps_off = cluster->caps_off,
		.faults = *cluster->faults ? cluster->faults : NULL,
	};
}
