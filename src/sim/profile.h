/* SPDX-License-Identifier: MIT */
/* What things cost on a simulated machine, by the name of the machine. */
#ifndef GN_SIM_PROFILE_H
#define GN_SIM_PROFILE_H

#include "gannet/base.h"

struct sim_profile {
	const char *name;
	uint64_t work_ps[GN_WORK_KINDS]; /* a unit of charged work */
	uint64_t look_ps; /* looking for something that is not there: an empty poll */
	uint64_t yield_ps;
};

/* NULL if there is none of that name. */
const struct sim_profile *sim_profile_find(const char *name);

#endif
