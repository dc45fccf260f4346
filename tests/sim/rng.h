/* SPDX-License-Identifier: MIT */
/* splitmix64: the random numbers of a test's plan, apart from the simulator's own. */
#ifndef GN_TESTS_SIM_RNG_H
#define GN_TESTS_SIM_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t rng_next(struct rng *rng)
{
	return rng_mix(rng->state += 0x9e3779b97f4a7c15u);
}

#endif
