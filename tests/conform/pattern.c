/* SPDX-License-Identifier: MIT */
/*
 * Random numbers from the seed, and data that shows by itself when a byte is wrong, moved or
 * missing.
 */
#include <string.h>

#include "harness.h"

/* The finalizer of splitmix64: every bit of the result depends on every bit of x. */
uint64_t cf_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t cf_rand(struct cf *cf)
{
	return cf_mix(cf->rand++);
}

uint64_t cf_rand_in(struct cf *cf, uint64_t low, uint64_t high)
{
	return low + cf_rand(cf) % (high - low + 1);
}

static uint64_t pattern_word(uint64_t base, size_t i)
{
	return cf_mix(base + i / sizeof(uint64_t));
}

void cf_fill(const struct cf *cf, void *data, size_t len_bytes, uint64_t tag)
{
	uint64_t base = cf_mix(cf->seed ^ cf_mix(tag));

	for (size_t i = 0; i < len_bytes; i += sizeof(uint64_t)) {
		uint64_t word = pattern_word(base, i);
		size_t n = len_bytes - i < sizeof(word) ? len_bytes - i : sizeof(word);

		memcpy((uint8_t *)data + i, &word, n);
	}
}

bool cf_check_fill(struct cf *cf, const void *data, size_t len_bytes, uint64_t tag)
{
	uint64_t base = cf_mix(cf->seed ^ cf_mix(tag));

	for (size_t i = 0; i < len_bytes; i += sizeof(uint64_t)) {
		uint64_t word = pattern_word(base, i);
		size_t n = len_bytes - i < sizeof(word) ? len_bytes - i : sizeof(word);

		if (memcmp((const uint8_t *)data + i, &word, n) != 0)
			return cf_why(cf, "bytes %zu to %zu of %zu are wrong (tag %llu)", i,
				      i + n - 1, len_bytes, (unsigned long long)tag);
	}
	return true;
}

static uint8_t paint(size_t i)
{
	return (uint8_t)(0xc5 ^ i ^ (i >> 8) ^ (i >> 16));
}

void cf_paint(void *data, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i++)
		((uint8_t *)data)[i] = paint(i);
}

bool cf_check_paint(struct cf *cf, const void *data, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (((const uint8_t *)data)[i] != paint(i))
			return cf_why(cf, "guard byte %zu was overwritten", i);
	return true;
}

bool cf_check_framed(struct cf *cf, const void *data, size_t size, size_t at, size_t len_bytes,
		     uint64_t tag)
{
	return cf_check_paint(cf, data, 0, at) &&
	       cf_check_fill(cf, (const uint8_t *)data + at, len_bytes, tag) &&
	       cf_check_paint(cf, data, at + len_bytes, size);
}
