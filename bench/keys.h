/* SPDX-License-Identifier: MIT */
/*
 * The keys and values of a load, generated from numbers. Values differ by key and version; a reader
 * can check every byte of a value without knowing its writer. Keys are bytes, or printable for text
 * protocols.
 */
#ifndef GN_BENCH_KEYS_H
#define GN_BENCH_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "choice.h"

#define KEYS_KEY_MIN  4u /* bytes: so that any two numbers have different keys */
#define KEYS_NAME_MIN 8u

static inline void keys_put_word(uint8_t *to, uint32_t at, uint32_t len, uint64_t word)
{
	memcpy(to + at, &word, len - at < sizeof(word) ? len - at : sizeof(word));
}

/* Different for each number in the first four bytes already. */
static inline void keys_fill(uint8_t *to, uint32_t len, uint32_t number)
{
	uint64_t word = (uint64_t)(number * 0x9e3779b1u) | choice_scramble(number) << 32;

	for (uint32_t at = 0; at < len; at += sizeof(word)) {
		keys_put_word(to, at, len, word);
		word = word * 0xd6e8feb86659fd93u + number;
	}
}

/* len printable characters, KEYS_NAME_MIN at least: hexadecimal digits, and dashes behind 16. */
void keys_name(char *to, uint32_t len, uint32_t number);

static inline uint64_t keys_value_seed(uint32_t number, uint32_t version)
{
	const uint64_t mixed = ((uint64_t)number << 32 | version) * 0x9e3779b97f4a7c15u;

	return mixed ^ mixed >> 29;
}

/* The first word has the version, if it fits; shorter values are the same in all versions. */
static inline uint64_t keys_value_first(uint32_t len, uint32_t number, uint32_t version)
{
	if (len < sizeof(uint64_t))
		return keys_value_seed(number, 0);
	return keys_value_seed(number, version) << 32 | version;
}

static inline void keys_value_fill(uint8_t *to, uint32_t len, uint32_t number, uint32_t version)
{
	uint64_t word = keys_value_seed(number, version);

	if (len)
		keys_put_word(to, 0, len, keys_value_first(len, number, version));
	for (uint32_t at = sizeof(word); at < len; at += sizeof(word)) {
		word += 0x9e3779b97f4a7c15u;
		keys_put_word(to, at, len, word);
	}
}

/* Is this a value of that key? */
static inline bool keys_value_is_right(const uint8_t *value, uint32_t len, uint32_t number)
{
	uint64_t word, wrong, found = 0;
	uint32_t at = sizeof(word), version = 0;

	if (!len)
		return true;
	if (len >= sizeof(found))
		memcpy(&version, value, sizeof(version));
	word = keys_value_first(len, number, version);
	if (len < sizeof(word))
		return !memcmp(value, &word, len);
	memcpy(&found, value, sizeof(found));
	wrong = found ^ word;
	word = keys_value_seed(number, version);
	for (; at + sizeof(word) <= len; at += sizeof(word)) {
		word += 0x9e3779b97f4a7c15u;
		memcpy(&found, value + at, sizeof(found));
		wrong |= found ^ word;
	}
	word += 0x9e3779b97f4a7c15u;
	return !wrong && !memcmp(value + at, &word, len - at);
}

#endif
