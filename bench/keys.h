/* SPDX-License-Identifier: MIT */
/*
 * The load of a key-value store: which keys are asked for (choice.h), what they are called, and
 * what their values are. Keys are printable, so that every protocol can carry them; a value shows
 * whose it is, so that every one that comes back can be checked. One thread.
 */
#ifndef GN_BENCH_KEYS_H
#define GN_BENCH_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "choice.h"

#define KEYS_KEY_MIN 8u /* bytes: room for any number of a key */

struct keys {
	uint32_t key_bytes, value_bytes;
	struct choice choice;
};

/* zipf: the exponent of Zipf's law; 0: uniform. */
void keys_init(struct keys *keys, uint32_t count, uint32_t key_bytes, uint32_t value_bytes,
	       double zipf, uint64_t seed);

/* Writes key_bytes. */
void keys_name(const struct keys *keys, uint32_t number, char *to);

/* Writes value_bytes: another value of the same key for each version. */
void keys_value(const struct keys *keys, uint32_t number, uint64_t version, uint8_t *to);
/* Is this a value of that key? */
bool keys_owns(const struct keys *keys, uint32_t number, const uint8_t *value, size_t len);

#endif
