/* SPDX-License-Identifier: MIT */
/* Bytes that identify their request or result, and their position in it. */
#ifndef GN_TESTS_SIM_PATTERN_H
#define GN_TESTS_SIM_PATTERN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t pattern(uint64_t call, bool result, uint32_t word)
{
	uint64_t x = (call * 2 + result) * 0x9e3779b97f4a7c15u + word * 0xd6e8feb86659fd93u;

	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9u;
}

static inline uint32_t pattern_part(uint32_t len, uint32_t i)
{
	return len - i < 8 ? len - i : 8;
}

static inline bool pattern_is(const uint8_t *bytes, uint32_t len, uint64_t call, bool result,
			      uint32_t *bad)
{
	for (uint32_t i = 0; i < len; i += 8) {
		const uint64_t word = pattern(call, result, i / 8);

		if (memcmp(bytes + i, &word, pattern_part(len, i))) {
			*bad = i;
			return false;
		}
	}
	return true;
}

static inline void pattern_fill(uint8_t *bytes, uint32_t len, uint64_t call, bool result)
{
	for (uint32_t i = 0; i < len; i += 8) {
		const uint64_t word = pattern(call, result, i / 8);

		memcpy(bytes + i, &word, pattern_part(len, i));
	}
}

#endif
