/* SPDX-License-Identifier: MIT */
/*
 * A node's own clock. It shows virtual time until it drifts; from then on it runs a little fast or
 * slow, but never jumps and never goes back. Programs see only this clock: what they are told in
 * nanoseconds, and the deadlines they give, are its.
 */
#ifndef GN_SIM_CLOCK_H
#define GN_SIM_CLOCK_H

#include "base/bits.h"
#include "sim/engine.h"

struct sim_clock {
	bool drifts;
	int32_t ppm;	  /* how much faster than virtual time, since … */
	uint64_t from_ps; /* … this moment, when the clock showed … */
	uint64_t local_ps;
};

#define SIM_DRIFT_MAX 100000 /* ppm, either way */

/* From now_ps on it is ppm fast. */
void sim_clock_drift(struct sim_clock *clock, uint64_t now_ps, int32_t ppm);

uint64_t sim_clock_drifted_ps(const struct sim_clock *clock, uint64_t now_ps);
uint64_t sim_clock_drifted_until_ps(const struct sim_clock *clock, uint64_t local_ns);

/* What it shows at now_ps, which is not before it began to drift. */
static inline uint64_t sim_clock_ns(const struct sim_clock *clock, uint64_t now_ps)
{
	if (unlikely(clock->drifts))
		now_ps = sim_clock_drifted_ps(clock, now_ps);
	return now_ps / SIM_PS_PER_NS;
}

/* The first moment at which it shows local_ns, or any that has passed; SIM_NEVER if none does. */
static inline uint64_t sim_clock_until_ps(const struct sim_clock *clock, uint64_t local_ns)
{
	if (unlikely(clock->drifts))
		return sim_clock_drifted_until_ps(clock, local_ns);
	return sim_ns_to_ps(local_ns);
}

#endif
