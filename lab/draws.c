/* SPDX-License-Identifier: MIT */
/* Drawing keys, evenly or by Zipf's law (YCSB's parameter, as S000 5.1 and S002 V.D.3). */
#include "draws.h"

#include <gannet/exec.h>

#include <math.h>
#include <string.h>

#define KEYS_PAPER 128e6
#define THETA	   0.99
#define TWO_64	   18446744073709551616.0

/* The sum of k^-THETA from 1 to n: what is left of it behind the first terms is an integral. */
static double zeta(double n)
{
	const double from = KEYS_HOT + 0.5;
	double sum = (pow(n + 0.5, 1 - THETA) - pow(from, 1 - THETA)) / (1 - THETA);

	for (unsigned k = KEYS_HOT; k > 0; k--)
		sum += pow(k, -THETA);
	return sum;
}

void draws_init(struct draws *keys, bool zipf)
{
	const double all = zeta(KEYS_PAPER);
	double sum = 0;

	keys->zipf = zipf;
	for (unsigned k = 0; k < KEYS_HOT; k++) {
		sum += pow(k + 1, -THETA);
		keys->hot[k] = (uint64_t)(sum / all * TWO_64);
	}
}

uint64_t draws_next(const struct draws *keys, uint64_t stored)
{
	const uint64_t draw = gn_random();
	unsigned low = 0, high = KEYS_HOT - 1;

	if (!keys->zipf || draw >= keys->hot[high])
		return gn_random() % stored;
	while (low < high) {
		const unsigned mid = (low + high) / 2;

		if (draw < keys->hot[mid])
			high = mid;
		else
			low = mid + 1;
	}
	return low % stored;
}

void draws_fill(uint8_t *out, uint32_t len, uint64_t seed)
{
	for (uint32_t at = 0; at < len; at += 8) {
		const uint64_t word = (seed + at) * 0x9e3779b97f4a7c15u;

		memcpy(out + at, &word, len - at < 8 ? len - at : 8);
	}
}
