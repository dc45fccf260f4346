/* SPDX-License-Identifier: MIT */
/*
 * The load of a key-value store: which keys are asked for, what they are called, and what their
 * values are. Keys are printable, so that every protocol can carry them; a value shows whose it is,
 * so that every one that comes back can be checked. One thread.
 */
#ifndef GN_BENCH_KEYS_H
#define GN_BENCH_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEYS_KEY_MIN   8u /* bytes: room for any number of a key */
#define KEYS_THETA_MAX 0.999

struct keys {
	uint32_t count;
	uint32_t key_bytes, value_bytes;
	uint64_t random;
	/* Zipf's law: theta 0 is uniform; the rest follows from count and theta. */
	double theta, alpha, eta, zeta;
};

/* Takes count steps when theta is not 0. */
void keys_init(struct keys *keys, uint32_t count, uint32_t key_bytes, uint32_t value_bytes,
	       double theta, uint64_t seed);

/* Any 64 bits; the splitmix64 sequence. */
static inline uint64_t keys_mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline uint64_t keys_random(struct keys *keys)
{
	keys->random += 0x9e3779b97f4a7c15ull;
	return keys_mix(keys->random);
}

/* The number of a key, 0 to count - 1. */
uint32_t keys_draw_zipf(struct keys *keys);

static inline uint32_t keys_draw(struct keys *keys)
{
	if (keys->theta > 0)
		return keys_draw_zipf(keys);
	return (uint32_t)((keys_random(keys) >> 32) * keys->count >> 32);
}

/* Writes key_bytes. */
void keys_name(const struct keys *keys, uint32_t number, char *to);

/* Writes value_bytes: another value of the same key for each version. */
void keys_value(const struct keys *keys, uint32_t number, uint64_t version, uint8_t *to);
/* Is this a value of that key? */
bool keys_owns(const struct keys *keys, uint32_t number, const uint8_t *value, size_t len);

#endif
