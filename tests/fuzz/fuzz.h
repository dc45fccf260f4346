/* SPDX-License-Identifier: MIT */
/*
 * What the fuzz tests share: how long they run, what they draw, and an endpoint of the fabric that
 * speaks to RPC clients and servers without being one.
 */
#ifndef GN_TESTS_FUZZ_H
#define GN_TESTS_FUZZ_H

#include "unit.h"

#define FUZZ_SECONDS 1u /* times GANNET_EFFORT */

static uint64_t fuzz_state;
static __thread uint64_t fuzz_own; /* a thread's own sequence, if it has one */

static inline uint32_t fuzz_any(void)
{
	return unit_next(fuzz_own ? &fuzz_own : &fuzz_state);
}

static inline uint32_t fuzz_pick(uint64_t n)
{
	return fuzz_any() % (uint32_t)n;
}

/* Numbers at the edges of what is allowed, and any. */
static inline uint32_t fuzz_strange(void)
{
	static const uint32_t odd[] = {
		0,	    1,		7,	    8,		9,	   16,	    24,
		32,	    511,	512,	    513,	520,	   4096,    4104,
		4105,	    0x7fff,	0x8000,	    0x8001,	0xffff,	   0x10000, 64u << 20,
		0x7fffffff, 0x80000000, 0xfffffff0, 0xfffffff8, 0xffffffff};

	return fuzz_pick(3) ? odd[fuzz_pick(sizeof(odd) / sizeof(odd[0]))] : fuzz_any();
}

static inline uint64_t fuzz_us(void)
{
	const char *effort = getenv("GANNET_EFFORT");

	return FUZZ_SECONDS * 1000000ull * (effort ? strtoul(effort, NULL, 10) : 1);
}

/* Draws and prints the seed; until when to go on. */
static inline uint64_t fuzz_begin(void)
{
	fuzz_state = unit_seed();
	return gn_deadline_us(fuzz_us());
}

/* Whoever is hostile makes others complain. */
static inline void fuzz_be_silent(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

#endif
