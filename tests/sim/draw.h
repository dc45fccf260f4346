/* SPDX-License-Identifier: MIT */
/* Draws plans from a seed: numbers, and the kinds and rates of faults. */
#ifndef GN_TESTS_SIM_DRAW_H
#define GN_TESTS_SIM_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "gannet/fabric.h"

#include "rng.h"

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

static const char *const node_faults[] = {"crash",     "kill",	     "pause",
					  "slow-node", "slow-link",  "partition",
					  "drift",     "low-memory", NULL};

/* rare_ppm: the highest rate of faults that end a connection or a program. */
static inline void draw_rate(struct rng *rng, const char *kind, bool node, uint32_t rare_ppm,
			     char *to, size_t size)
{
	static const char *const rare[] = {"qp-error", "rnr", "alloc", "register", NULL};
	const uint32_t ppm = node		   ? range(rng, 2000, 50000) :
			     is_one_of(kind, rare) ? range(rng, 100, rare_ppm) :
						     range(rng, 1000, 200000);

	snprintf(to, size, "%s=%uppm", kind, ppm);
}

/* Nodes whose crashes and partitions may be permanent: a bit for each of n0 and n1. */
enum { GOOD_NONE = 0, GOOD_CLIENT = 2, GOOD_ALL = 3 };

/*
 * By what factor a fault may last longer than usual: up to seconds, longer than any time-out. Pauses
 * stay shorter, because simulating a thread that polls a paused node takes real time.
 */
static inline uint32_t draw_longer(struct rng *rng, const char *kind)
{
	static const char *const outages[] = {"crash", "kill", "partition", NULL};

	if (!one_in(rng, 12))
		return 1;
	return is_one_of(kind, outages) ? 500 : !strcmp(kind, "pause") ? 25 : 1;
}

/*
 * The fault begins by until_us. A node's fault lasts for a while, or is permanent; an operation's
 * hits the first operation after its begin.
 */
static inline void draw_schedule(struct rng *rng, const char *kind, bool node, uint32_t until_us,
				 unsigned good, char *to, size_t size)
{
	const unsigned where = range(rng, 0, 1);
	const uint32_t at_us = range(rng, 0, until_us), longer = draw_longer(rng, kind);
	const uint32_t for_us = range(rng, 20, 4000) * longer;
	const uint32_t amount = range(rng, 1, 1000);
	const bool other = one_in(rng, 2);
	char span[32];

	snprintf(span, sizeof(span), "+%uus", for_us);
	if (other && good >> where & 1 &&
	    (!strcmp(kind, "crash") || !strcmp(kind, "kill") || !strcmp(kind, "partition")))
		*span = '\0';
	if (!node)
		snprintf(to, size, "%s@%uus:n%u:#%u", kind, other ? 0 : at_us, where,
			 1 + amount % 100);
	else if (!strcmp(kind, "drift"))
		snprintf(to, size, "%s@%uus:n%u:%s%uppm", kind, at_us, where, other ? "-" : "",
			 amount);
	else if (!strncmp(kind, "slow-", 5))
		snprintf(to, size, "%s@%uus%s:n%u:%ux", kind, at_us, span, where, 2 + amount % 30);
	else
		snprintf(to, size, "%s@%uus%s:n%u%s", kind, at_us, span, where,
			 !strcmp(kind, "partition") && amount % 3 == 0 ? ">" : "");
}

/* Some programs of the run may not return. */
static inline bool ends_programs(const char *faults)
{
	return strstr(faults, "crash") || strstr(faults, "kill");
}

/* ---- capabilities that are switched off ---- */

static inline uint64_t draw_caps_off(struct rng *rng)
{
	const uint64_t all = GN_CAP_INORDER_WRITE | GN_CAP_INORDER_128 | GN_CAP_WRITE_ORDER |
			     GN_CAP_READ_HEAD_FIRST;
	const uint64_t some = rng_next(rng) & all;

	switch (range(rng, 0, 2)) {
	case 0:
		return 0;
	case 1:
		return all;
	default:
		return some;
	}
}

#endif
