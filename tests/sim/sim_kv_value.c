/* SPDX-License-Identifier: MIT */
/*
 * Keys and values that identify their writers. Each operation writes one piece: its number, and a
 * checksum over that, the key, and the bytes behind. An appended or prepended value is another
 * piece. So a reader knows which operation wrote each byte, and that it belongs there.
 */
#include <stdio.h>

#include "sim_kv.h"

#define SHORT 0xa5u
#define LONG  0xb6u

struct short_piece {
	uint32_t kind_op; /* SHORT in the low eight bits */
	uint32_t sum;
};

struct long_piece {
	uint32_t kind_op;
	uint32_t len;  /* with this head */
	uint32_t sum;  /* of this head without the sum, and the key */
	uint32_t body; /* of what follows */
};

/* Of all lengths, and some that are prefixes of others. */
uint32_t key_make(char *to, uint32_t key)
{
	const uint32_t lens[] = {0, 0, 0, 8, 20, 60, 200};
	const uint32_t n = (uint32_t)snprintf(to, 16, "%u", key / 2);
	const uint32_t pad = lens[key * 2654435761u % 7] + (key % 2 ? 1 + key % 5 : 0);

	memset(to + n, '.', pad);
	return n + pad;
}

uint32_t value_len(uint32_t wanted)
{
	return wanted < 8 ? 0 : wanted < sizeof(struct long_piece) ? 8 : wanted;
}

static uint32_t sum_of(uint32_t kind_op, uint32_t len, uint32_t key)
{
	const uint32_t words[] = {kind_op, len, key};

	return gn_crc32c(77, words, sizeof(words));
}

static void fill(uint8_t *to, uint32_t len, uint32_t op)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)((op * 2654435761u >> (i % 4 * 8)) + i / 4 * 31);
}

void value_make(uint8_t *to, uint32_t len, uint32_t key, uint32_t op)
{
	if (len == sizeof(struct short_piece)) {
		struct short_piece piece = {.kind_op = op << 8 | SHORT};

		piece.sum = sum_of(piece.kind_op, len, key);
		memcpy(to, &piece, sizeof(piece));
	} else if (len) {
		struct long_piece piece = {.kind_op = op << 8 | LONG, .len = len};

		fill(to + sizeof(piece), len - (uint32_t)sizeof(piece), op);
		piece.sum = sum_of(piece.kind_op, len, key);
		piece.body = gn_crc32c(0, to + sizeof(piece), len - sizeof(piece));
		memcpy(to, &piece, sizeof(piece));
	}
}

/* Digits, followed by blanks. */
static uint32_t parse_number(const uint8_t *from, uint32_t len, struct piece *out)
{
	uint32_t n = 0;

	out->number = true;
	out->what = 0;
	for (; n < len && from[n] >= '0' && from[n] <= '9'; n++)
		out->what = out->what * 10 + (from[n] - '0');
	if (!n)
		return 0;
	while (n < len && from[n] == ' ')
		n++;
	return out->len = n;
}

static uint32_t parse_short(const uint8_t *from, uint32_t len, uint32_t key, struct piece *out)
{
	struct short_piece piece;

	if (len < sizeof(piece))
		return 0;
	memcpy(&piece, from, sizeof(piece));
	*out = (struct piece){.what = piece.kind_op >> 8, .len = sizeof(piece)};
	return piece.sum == sum_of(piece.kind_op, out->len, key) ? out->len : 0;
}

static uint32_t parse_long(const uint8_t *from, uint32_t len, uint32_t key, struct piece *out)
{
	struct long_piece piece;

	if (len < sizeof(piece))
		return 0;
	memcpy(&piece, from, sizeof(piece));
	*out = (struct piece){.what = piece.kind_op >> 8, .len = piece.len};
	if (piece.len < sizeof(piece) || piece.len > len ||
	    piece.sum != sum_of(piece.kind_op, piece.len, key) ||
	    piece.body != gn_crc32c(0, from + sizeof(piece), piece.len - sizeof(piece)))
		return 0;
	return out->len;
}

int value_parse(const uint8_t *from, uint32_t len, uint32_t key, struct piece *out)
{
	int n = 0;

	for (uint32_t used; len; from += used, len -= used, n++) {
		if (n == PIECES)
			return -1;
		if (*from == SHORT)
			used = parse_short(from, len, key, &out[n]);
		else if (*from == LONG)
			used = parse_long(from, len, key, &out[n]);
		else
			used = parse_number(from, len, &out[n]);
		if (!used)
			return -1;
	}
	return n;
}
