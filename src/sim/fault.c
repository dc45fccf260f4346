/* SPDX-License-Identifier: MIT */
/* Faults. */
#include "sim/fault.h"

#include <errno.h>

#include "sim/sim.h"

static const char *const names[SIM_FAULTS] = {
	[SIM_UD_LOSS] = "ud-loss",
	[SIM_UD_DUP] = "ud-dup",
	[SIM_UD_REORDER] = "ud-reorder",
	[SIM_UD_DELAY] = "ud-delay",
	[SIM_QP_ERROR] = "qp-error",
	[SIM_RNR] = "rnr",
	[SIM_LATE_COMPLETION] = "late-completion",
	[SIM_LATE_VISIBILITY] = "late-visibility",
	[SIM_LINES] = "lines",
	[SIM_TORN_READ] = "torn-read",
	[SIM_CRASH] = "crash",
	[SIM_PAUSE] = "pause",
	[SIM_SLOW_NODE] = "slow-node",
	[SIM_SLOW_LINK] = "slow-link",
	[SIM_PARTITION] = "partition",
	[SIM_DRIFT] = "drift",
	[SIM_ALLOC] = "alloc",
	[SIM_REGISTER] = "register",
};

const char *gn_sim_fault_name(unsigned kind)
{
	return kind < SIM_FAULTS ? names[kind] : NULL;
}

int gn_sim_inject(struct gn_sim *sim, const char *faults)
{
	return sim && faults ? -EOPNOTSUPP : -EINVAL;
}

uint64_t gn_sim_fault_count(const struct gn_sim *sim, unsigned kind)
{
	(void)sim;
	(void)kind;
	return 0;
}

bool sim_fault(struct gn_sim *sim, enum sim_fault kind, unsigned node)
{
	(void)sim, (void)kind, (void)node;
	return false;
}
uint64_t sim_fault_delay_ps(struct gn_sim *sim)
{
	(void)sim;
	return 0;
}
bool sim_fault_cut(const struct gn_sim *sim, unsigned from, unsigned to)
{
	(void)sim, (void)from, (void)to;
	return false;
}
