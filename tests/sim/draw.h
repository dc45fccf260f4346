/* SPDX-License-Identifier: MIT */
/* Drawing plans from a seed: numbers, and how often something goes wrong. */
#ifndef GN_TESTS_SIM_DRAW_H
#define GN_TESTS_SIM_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t x = rng->state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint32_t range(struct rng *rng, uint32_t low, uint32_t high)
{
	return low + (uint32_t)(rng_next(rng) % (high - low + 1));
}

static inline bool one_in(struct rng *rng, uint32_t n)
{
	return range(rng, 1, n) == 1;
}

static inline bool is_one_of(const char *kind, const char *const *list)
{
	while (*list && strcmp(kind, *list))
		list++;
	return *list;
}

/* ---- faults ---- */

static const char *const of_nodes[] = {"crash",	    "pause", "slow-node", "slow-link",
				       "partition", "drift", NULL};

/* rare_ppm: at most, of what ends a connection or a program. */
static inline void draw_rate(struct rng *rng, const char *kind, bool node, uint32_t rare_ppm,
			     char *to, size_t size)
{
	static const char *const rare[] = {"qp-error", "rnr", "alloc", "register", NULL};
	const uint32_t ppm = node		   ? range(rng, 2000, 50000) :
			     is_one_of(kind, rare) ? range(rng, 100, rare_ppm) :
						     range(rng, 1000, 200000);

	snprintf(to, size, "%s=%uppm", kind, ppm);
}

#endif
