/* SPDX-License-Identifier: MIT */
/*
 * The simulator's random generator: xoshiro256** 1.0 (Blackman and Vigna), seeded by splitmix64 as
 * its authors advise. Integers only, so a seed gives the same run on every compiler and machine.
 */
#ifndef GN_SIM_RANDOM_H
#define GN_SIM_RANDOM_H

#include <stdint.h>

struct sim_random {
	uint64_t s[4];
};

static inline uint64_t sim_rotl(uint64_t x, unsigned k)
{
	return (x << k) | (x >> (64 - k));
}

/* splitmix64's finalizer: every output bit depends on every input bit. */
static inline uint64_t sim_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline void sim_random_seed(struct sim_random *random, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		random->s[i] = sim_mix(seed += 0x9e3779b97f4a7c15u);
}

static inline uint64_t sim_random_next(struct sim_random *random)
{
	uint64_t *s = random->s;
	const uint64_t result = sim_rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = sim_rotl(s[3], 45);
	return result;
}

/* 0 to n - 1, by multiplication; its bias is below n / 2^32. */
static inline uint32_t sim_random_below(struct sim_random *random, uint32_t n)
{
	return (uint32_t)(((sim_random_next(random) >> 32) * n) >> 32);
}

#endif
