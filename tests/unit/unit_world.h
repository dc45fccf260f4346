/* SPDX-License-Identifier: MIT */
/*
 * What the worlds have in common in which the same program runs over shared memory and on simulated
 * cards: how a program says what is not so, promises that a card need not make, and bytes that tell
 * their seed.
 */
#ifndef GN_TESTS_UNIT_WORLD_H
#define GN_TESTS_UNIT_WORLD_H

#include <string.h>

#include "gannet/fabric.h"
#include "unit.h"

/* For programs: what is not so becomes the exit status. */
#define EXPECT(cond)                                                                   \
	do {                                                                           \
		if (!(cond)) {                                                         \
			print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			return __LINE__;                                               \
		}                                                                      \
	} while (0)

/* What simulated cards promise, for those that are to keep none of it. */
#define SIM_CAPS                                                                              \
	(GN_CAP_ATOMIC_CPU | GN_CAP_INORDER_WRITE | GN_CAP_INORDER_128 | GN_CAP_WRITE_ORDER | \
	 GN_CAP_READ_HEAD_FIRST)

#ifdef __SANITIZE_THREAD__
#define THREADS_WATCHED true /* a simulation has one, and takes its time to be watched */
#else
#define THREADS_WATCHED false
#endif

static inline void fill(uint8_t *bytes, uint32_t len, uint32_t seed)
{
	uint64_t word = seed * 0x9e3779b97f4a7c15u;

	for (uint32_t i = 0; i < len; i += 8) {
		word += 0xd6e8feb86659fd93u;
		memcpy(bytes + i, &word, len - i < 8 ? len - i : 8);
	}
}

static inline bool is_filled(const uint8_t *bytes, uint32_t len, uint32_t seed)
{
	uint64_t word = seed * 0x9e3779b97f4a7c15u;

	for (uint32_t i = 0; i < len; i += 8) {
		word += 0xd6e8feb86659fd93u;
		if (memcmp(bytes + i, &word, len - i < 8 ? len - i : 8))
			return false;
	}
	return true;
}

#endif
