/* SPDX-License-Identifier: MIT */
/*
 * The profiles. `ideal` has no costs, except that a loop which polls in vain must let time pass, or
 * what it polls for would never come. Work that a program states in nanoseconds takes them on any
 * machine.
 */
#include <string.h>

#include "gannet/sim.h"
#include "sim/profile.h"

static const struct sim_profile profiles[] = {
	{
		.name = "ideal",
		.work_ps = {[GN_WORK_NS] = 1000},
		.look_ps = 50 * 1000,
		.yield_ps = 50 * 1000,
	},
};

const struct sim_profile *sim_profile_find(const char *name)
{
	for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
		if (!strcmp(name, profiles[i].name))
			return &profiles[i];
	return NULL;
}

const char *gn_sim_profile_name(unsigned i)
{
	return i < sizeof(profiles) / sizeof(profiles[0]) ? profiles[i].name : NULL;
}

const char *gn_sim_profile_text(const char *name)
{
	return name && sim_profile_find(name) ? "" : NULL;
}
