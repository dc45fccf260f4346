/* SPDX-License-Identifier: MIT */
/*
 * Deliberate defects, to check that the tests detect them. In a build with GN_MUTANTS,
 * GANNET_MUTANT in the environment selects one. Other builds contain none. A mutant misbehaves only
 * occasionally; n distinguishes its occasions.
 */
#ifndef GN_BASE_MUTANT_H
#define GN_BASE_MUTANT_H

#include <stdbool.h>
#include <stdint.h>

#define MUTANT_ONE_IN 16u
#define MUTANT_ALWAYS (MUTANT_ONE_IN / 2) /* as n: the place is reached rarely enough */

#ifdef GN_MUTANTS

#include <stdlib.h>
#include <string.h>

static inline bool mutant(const char *name, uint64_t n)
{
	const char *chosen = getenv("GANNET_MUTANT");

	return n % MUTANT_ONE_IN == MUTANT_ALWAYS && chosen && !strcmp(chosen, name);
}

#else

static inline bool mutant(const char *name, uint64_t n)
{
	(void)name;
	(void)n;
	return false;
}

#endif

#endif
