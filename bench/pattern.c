/* SPDX-License-Identifier: MIT */
/* Payloads that differ by seed, so that a check at the end of a run can fail. */
#include "pair.h"

#include <errno.h>

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
	size_t at = 0;
	uint64_t word, is;

	for (; at + 8 <= len; at += 8) {
		memcpy(&is, p + at, 8);
		if (is != word_at(seed, at))
			return false;
	}
	word = word_at(seed, at);
	return !memcmp(p + at, &word, len - at);
}

void pattern_ends(size_t len, uint64_t seed, uint64_t ends[2])
{
	const size_t at = (len - 8) / 8 * 8;
	const uint64_t last[2] = {word_at(seed, at), word_at(seed, at + 8)};

	ends[0] = word_at(seed, 0);
	memcpy(&ends[1], (const uint8_t *)last + (len - 8 - at), 8);
}

void slots_fill(uint8_t *p, uint32_t slots, uint32_t stride, uint32_t size_bytes, uint64_t seed)
{
	for (uint32_t i = 0; i < slots; i++)
		pattern_fill(p + (size_t)i * stride, size_bytes, seed + i);
}

int slots_check(const char *what, const uint8_t *p, const struct plan *plan, uint32_t size_bytes,
		uint64_t ops, uint64_t seed)
{
	for (uint32_t slot = 0; slot < plan->slots && slot < ops; slot++) {
		/* The last operation that came by here, and where it came from. */
		const uint64_t op = ops - 1 - (ops - 1 - slot) % plan->slots;
		const uint64_t from = op % (2 * (uint64_t)plan->slots);

		if (!pattern_matches(p + (size_t)slot * plan->stride, size_bytes, seed + from)) {
			gn_log(GN_LOG_ERROR, "%s: wrong data in buffer %u after %llu operations",
			       what, slot, (unsigned long long)ops);
			return -EBADMSG;
		}
	}
	return 0;
}
