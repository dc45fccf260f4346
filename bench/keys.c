/* SPDX-License-Identifier: MIT */
/*
 * Keys and values made from a number. A name is 16 hexadecimal digits that look random and are
 * different for different numbers, and dashes up to its length; short ones are the number itself.
 */
#include "keys.h"

#include <math.h>
#include <string.h>

#define NAME_DIGITS 16u
#define STRIDE	    2654435761u /* a prime above most counts: neighbours by rank lie far apart */

/*
 * Zipf's law as Gray et al. draw from it ("Quickly generating billion-record synthetic databases",
 * SIGMOD 1994, 3.2): one uniform number and one power.
 */
static void prepare_zipf(struct keys *keys)
{
	const double n = keys->count, theta = keys->theta;
	const double two = 1 + pow(0.5, theta);

	keys->zeta = 0;
	for (uint32_t i = 1; i <= keys->count; i++)
		keys->zeta += pow(i, -theta);
	keys->alpha = 1 / (1 - theta);
	keys->eta = (1 - pow(2 / n, 1 - theta)) / (1 - two / keys->zeta);
}

void keys_init(struct keys *keys, uint32_t count, uint32_t key_bytes, uint32_t value_bytes,
	       double theta, uint64_t seed)
{
	*keys = (struct keys){.count = count,
			      .key_bytes = key_bytes,
			      .value_bytes = value_bytes,
			      .theta = count > 2 ? theta : 0,
			      .random = seed};
	if (keys->theta > 0)
		prepare_zipf(keys);
}

uint32_t keys_draw_zipf(struct keys *keys)
{
	const double u = (double)(keys_random(keys) >> 11) * 0x1p-53;
	const double uz = u * keys->zeta;
	double rank;

	if (uz < 1)
		rank = 0;
	else if (uz < 1 + pow(0.5, keys->theta))
		rank = 1;
	else
		rank = keys->count * pow(keys->eta * u - keys->eta + 1, keys->alpha);
	if (rank > keys->count - 1) /* rounding */
		rank = keys->count - 1;
	return (uint32_t)((uint64_t)rank * STRIDE % keys->count);
}

static void put_hex(char *to, unsigned digits, uint64_t value)
{
	static const char digit[] = "0123456789abcdef";

	for (unsigned i = digits; i > 0; i--) {
		to[i - 1] = digit[value & 15];
		value >>= 4;
	}
}

void keys_name(const struct keys *keys, uint32_t number, char *to)
{
	if (keys->key_bytes < NAME_DIGITS) {
		put_hex(to, keys->key_bytes, number);
		return;
	}
	put_hex(to, NAME_DIGITS, keys_mix(number + 1)); /* reversible, so names differ */
	if (keys->key_bytes > NAME_DIGITS)
		memset(to + NAME_DIGITS, '-', keys->key_bytes - NAME_DIGITS);
}

/*
 * The first word of a value is its version, all others follow from that and the key. One that is
 * too short for a version is the same in all of them.
 */
static uint64_t word_of(uint32_t number, uint64_t version, size_t at)
{
	return keys_mix(version + (uint64_t)number * 0xd1342543de82ef95ull + at);
}

static bool has_versions(size_t len)
{
	return len >= 16;
}

void keys_value(const struct keys *keys, uint32_t number, uint64_t version, uint8_t *to)
{
	const size_t len = keys->value_bytes;
	size_t at = 0;

	if (has_versions(len)) {
		memcpy(to, &version, 8);
		at = 8;
	} else {
		version = 0;
	}
	for (; at < len; at += 8) {
		const uint64_t word = word_of(number, version, at);

		memcpy(to + at, &word, len - at < 8 ? len - at : 8);
	}
}

bool keys_owns(const struct keys *keys, uint32_t number, const uint8_t *value, size_t len)
{
	uint64_t version = 0;
	size_t at = 0;

	if (len != keys->value_bytes)
		return false;
	if (has_versions(len)) {
		memcpy(&version, value, 8);
		at = 8;
	}
	for (; at < len; at += 8) {
		const uint64_t word = word_of(number, version, at);

		if (memcmp(value + at, &word, len - at < 8 ? len - at : 8))
			return false;
	}
	return true;
}
