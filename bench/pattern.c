/* SPDX-License-Identifier: MIT */
/*
 * Payloads that can be told apart, so that a check at the end of a run can fail: each seed gives
 * other bytes.
 */
#include "pair.h"

/* The finaliser of splitmix64. */
static uint64_t word_at(uint64_t seed, uint64_t i)
{
	uint64_t z = seed + i * 0xd1342543de82ef95ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void pattern_fill(uint8_t *p, size_t len, uint64_t seed)
{
	for (size_t at = 0; at < len; at += 8) {
		const uint64_t word = word_at(seed, at);

		memcpy(p + at, &word, len - at < 8 ? len - at : 8);
	}
}

bool pattern_matches(const uint8_t *p, size_t len, uint64_t seed)
{
	for (size_t at = 0; at < len; at += 8) {
		const uint64_t word = word_at(seed, at);

		if (memcmp(p + at, &word, len - at < 8 ? len - at : 8))
			return false;
	}
	return true;
}
