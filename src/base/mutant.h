/* SPDX-License-Identifier: MIT */
/*
 * Defects on purpose, to see whether the tests notice: in a build with GN_MUTANTS, GANNET_MUTANT in
 * the environment names the one that is there. Any other build contains nothing of it. Each place
 * goes wrong once in a while only; n is what tells its occasions apart.
 */
#ifndef GN_BASE_MUTANT_H
#define GN_BASE_MUTANT_H

#include <stdbool.h>
#include <stdint.h>

#define MUTANT_ONE_IN 16u
#define MUTANT_ALWAYS (MUTANT_ONE_IN / 2) /* as n: it is rare enough by itself */

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
