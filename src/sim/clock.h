/* SPDX-License-Identifier: MIT */
/*
 * A node's clock. It shows virtual time until it drifts; then it runs slightly fast or slow, but
 * never jumps or goes back. Programs see only this clock: their times and deadlines in nanoseconds
 * are local times.
 */
#ifndef GN_SIM_CLOCK_H
#define GN_SIM_CLOCK_H

#include "base/bits.h"
#include "sim/engine.h"

struct sim_clock {
	bool drifts;
	int32_t ppm;	  /* rate relative to virtual time, since … */
	uint64_t from_ps; /* … this virtual time, when the clock showed … */
	uint64_t local_ps;
};

#define SIM_DRIFT_MAX 100000 /* ppm, fast or slow */

/* From now_ps on the clock is ppm fast. */
void sim_clock_drift(struct sim_clock *clock, uint64_t now_ps, int32_t ppm);

uint64_t sim_clock_drifted_ps(const struct sim_clock *clock, uint64_t now_ps);
uint64_t sim_clock_drifted_until_ps(const struct sim_clock *clock, uint64_t local_ns);

/* The local time at now_ps, which is not before the drift began. */
static inline uint64_t sim_clock_ns(const struct sim_clock *clock, uint64_t now_ps)
{
	if (unlikely(clock->drifts))
		now_ps = sim_clock_drifted_ps(clock, now_ps);
	return now_ps / SIM_PS_PER_NS;
}

/* The first virtual time at which the clock shows local_ns; a past one if it has; SIM_NEVER. */
static inline uint64_t sim_clock_until_ps(const struct sim_clock *clock, uint64_t local_ns)
{
	if (unlikely(clock->drifts))
		return sim_clock_drifted_until_ps(clock, local_ns);
	return sim_ns_to_ps(local_ns);
}

#endif
