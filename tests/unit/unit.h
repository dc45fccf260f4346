/* SPDX-License-Identifier: MIT */
/*
 * What the unit tests share: cmocka with the headers it wants in front of it, a seed that is
 * printed first and can be given, and the question whether timing means anything in this build.
 */
#ifndef GN_TESTS_UNIT_H
#define GN_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gannet/exec.h"

#if defined(__has_include) && __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#if defined(__has_feature)
#define UNIT_FEATURE(x) __has_feature(x)
#else
#define UNIT_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
	UNIT_FEATURE(address_sanitizer) || UNIT_FEATURE(thread_sanitizer)
#define UNIT_SANITIZED 1
#else
#define UNIT_SANITIZED 0
#endif

#define UNIT_PATIENCE_US 30000000u /* only a bug takes this long */

/* Code runs ten to a hundred times slower here, and the times it takes say nothing. */
static inline bool unit_slow(void)
{
	return UNIT_SANITIZED || RUNNING_ON_VALGRIND;
}

/* The seed of a random test: GN_SEED or a fresh one. A comment in TAP. */
static inline uint64_t unit_seed(void)
{
	const char *given = getenv("GN_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : gn_random() % 1000000;

	printf("# seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

/*
 * The next number of a sequence that begins with its seed (an LCG of Knuth's; its high half is good
 * enough).
 */
static inline uint32_t unit_next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 32);
}

#endif
