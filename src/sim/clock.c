/* SPDX-License-Identifier: MIT */
/*
 * A drifting clock. Both conversions are exact: the virtual time for a local time is the first
 * instant at which the clock shows it, so rounding makes no deadline early or late.
 */
#include "sim/clock.h"

#include <assert.h>

#define MILLION 1000000u

/* a * mul / div, rounded down or up; SIM_NEVER when that does not fit. */
static uint64_t clock_scale(uint64_t a, uint64_t mul, uint64_t div, bool up)
{
	/* With a = whole * div + rest the result is exact, and rest * mul fits. */
	const uint64_t part = a % div * mul;
	uint64_t whole;

	if (__builtin_mul_overflow(a / div, mul, &whole) ||
	    __builtin_add_overflow(whole, part / div + (up && part % div), &whole))
		return SIM_NEVER;
	return whole;
}

static uint64_t clock_rate(const struct sim_clock *clock)
{
	return (uint64_t)((int64_t)MILLION + clock->ppm);
}

uint64_t sim_clock_drifted_ps(const struct sim_clock *clock, uint64_t now_ps)
{
	uint64_t shown;

	assert(now_ps >= clock->from_ps);
	if (__builtin_add_overflow(
		    clock->local_ps,
		    clock_scale(now_ps - clock->from_ps, clock_rate(clock), MILLION, false),
		    &shown))
		return SIM_NEVER;
	return shown;
}

uint64_t sim_clock_drifted_until_ps(const struct sim_clock *clock, uint64_t local_ns)
{
	const uint64_t local_ps = sim_ns_to_ps(local_ns);
	uint64_t at_ps;

	if (local_ps == SIM_NEVER)
		return SIM_NEVER;
	if (local_ps <= clock->local_ps)
		return clock->from_ps;
	if (__builtin_add_overflow(
		    clock->from_ps,
		    clock_scale(local_ps - clock->local_ps, MILLION, clock_rate(clock), true),
		    &at_ps))
		return SIM_NEVER;
	return at_ps;
}

void sim_clock_drift(struct sim_clock *clock, uint64_t now_ps, int32_t ppm)
{
	const uint64_t local_ps = clock->drifts ? sim_clock_drifted_ps(clock, now_ps) : now_ps;

	assert(ppm >= -SIM_DRIFT_MAX && ppm <= SIM_DRIFT_MAX);
	*clock = (struct sim_clock){
		.drifts = true, .ppm = ppm, .from_ps = now_ps, .local_ps = local_ps};
}
