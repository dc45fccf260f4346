/* SPDX-License-Identifier: MIT */
/*
 * Numbers and base64, to and from text. Clients may write numbers in any form that the C library
 * accepts, so anything but plain digits is left to it.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

/* Up to nine digits and nothing else. */
static bool parse_plain(const char *text, uint32_t *out)
{
	uint32_t value = 0;
	unsigned i = 0;

	for (; i < 9 && text[i] >= '0' && text[i] <= '9'; i++)
		value = value * 10 + (uint32_t)(text[i] - '0');
	*out = value;
	return i && !text[i];
}

static bool number_ended(const char *text, const char *end)
{
	return !errno && end != text && (!*end || isspace((unsigned char)*end));
}

bool px_i32(const char *text, int32_t *out)
{
	uint32_t digits;
	char *end;
	long value;

	if (parse_plain(text, &digits)) {
		*out = (int32_t)digits;
		return true;
	}
	errno = 0;
	value = strtol(text, &end, 10);
	*out = (int32_t)value;
	return number_ended(text, end);
}

bool px_u64(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	return number_ended(text, end) && (!(*out >> 63) || !strchr(text, '-'));
}

bool px_u32(const char *text, uint32_t *out)
{
	uint64_t value;

	if (parse_plain(text, out))
		return true;
	if (!px_u64(text, &value))
		return false;
	*out = (uint32_t)value;
	return true;
}

char *px_put_u64(char *at, uint64_t value)
{
	char digits[20];
	unsigned n = 0;

	/* Flags are mostly 0, and values short. */
	if (value < 10) {
		*at = (char)('0' + value);
		return at + 1;
	}
	if (value < 100) {
		at[0] = (char)('0' + (unsigned)value / 10);
		at[1] = (char)('0' + (unsigned)value % 10);
		return at + 2;
	}
	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	while (n)
		*at++ = digits[--n];
	return at;
}

/* ---- base64 ---- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t px_base64_encode(const void *from, size_t len, char *to)
{
	const uint8_t *bytes = from;
	char *at = to;

	for (size_t i = 0; i < len; i += 3) {
		const uint32_t bits = (uint32_t)bytes[i] << 16 |
				      (i + 1 < len ? (uint32_t)bytes[i + 1] << 8 : 0) |
				      (i + 2 < len ? bytes[i + 2] : 0);

		*at++ = alphabet[bits >> 18];
		*at++ = alphabet[bits >> 12 & 63];
		*at++ = i + 1 < len ? alphabet[bits >> 6 & 63] : '=';
		*at++ = i + 2 < len ? alphabet[bits & 63] : '=';
	}
	return (size_t)(at - to);
}

/* -1: to be skipped; the pad counts as a digit. */
static int base64_digit(char c)
{
	const char *at = c ? strchr(alphabet, c) : NULL;

	return at ? (int)(at - alphabet) : c == '=' ? 0 : -1;
}

size_t px_base64_decode(const char *from, size_t len, void *to)
{
	uint8_t *out = to;
	size_t digits = 0, done = 0;
	uint32_t bits = 0;
	unsigned pads = 0;

	for (size_t i = 0; i < len; i++)
		digits += base64_digit(from[i]) >= 0;
	if (!digits || digits % 4)
		return 0;
	digits = 0;
	for (size_t i = 0; i < len && !pads; i++) {
		/* A block is read completely before its bytes, which are fewer, are written. */
		for (; i < len; i++) {
			const int d = base64_digit(from[i]);

			if (d < 0)
				continue;
			pads += from[i] == '=';
			bits = bits << 6 | (uint32_t)d;
			if (++digits % 4 == 0)
				break;
		}
		if (i == len)
			break;
		if (pads > 2)
			return 0;
		out[done++] = (uint8_t)(bits >> 16);
		if (pads < 2)
			out[done++] = (uint8_t)(bits >> 8);
		if (pads < 1)
			out[done++] = (uint8_t)bits;
	}
	return done;
}
