/* SPDX-License-Identifier: MIT */
/*
 * Which key comes next. The papers have 128 million of them; a simulation stores some thousands,
 * each of which stands for many. With Zipf's law the share of those that are asked for most is that
 * of 128 million, and the rest is spread over all that are stored.
 */
#ifndef GN_LAB_DRAWS_H
#define GN_LAB_DRAWS_H

#include <stdbool.h>
#include <stdint.h>

#define KEYS_HOT 1024u

struct draws {
	bool zipf;		/* with parameter 0.99; else every key is as likely */
	uint64_t hot[KEYS_HOT]; /* of a draw of 64 bits: below it are keys 0 to this */
};

void draws_init(struct draws *keys, bool zipf);
/* A number below stored. */
uint64_t draws_next(const struct draws *keys, uint64_t stored);

/* The bytes of a key, and of the value that it always has: len bytes from seed. */
void draws_fill(uint8_t *out, uint32_t len, uint64_t seed);

#endif
