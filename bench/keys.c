/* SPDX-License-Identifier: MIT */
/*
 * Keys and values made from a number. A name is 16 hexadecimal digits that look random and are
 * different for different numbers, and dashes up to its length; short ones are the number itself.
 */
#include "keys.h"

#include <string.h>

#define NAME_DIGITS 16u

void keys_init(struct keys *keys, uint32_t count, uint32_t key_bytes, uint32_t value_bytes,
	       double zipf, uint64_t seed)
{
	*keys = (struct keys){.key_bytes = key_bytes, .value_bytes = value_bytes};
	choice_init(&keys->choice, count, zipf, seed);
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
	put_hex(to, NAME_DIGITS, choice_scramble(number + 1ull));
	if (keys->key_bytes > NAME_DIGITS)
		memset(to + NAME_DIGITS, '-', keys->key_bytes - NAME_DIGITS);
}

/*
 * The first word of a value is its version, all others follow from that and the key. One that is
 * too short for a version is the same in all of them.
 */
static uint64_t word_of(uint32_t number, uint64_t version, size_t at)
{
	return choice_scramble(version + (uint64_t)number * 0xd1342543de82ef95ull + at);
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
