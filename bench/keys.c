/* SPDX-License-Identifier: MIT */
/*
 * Which key comes next, uniformly or by Zipf's law; and what it is called in protocols of text.
 */
#include "keys.h"

#include <math.h>

/* 0 up to, but not, 1. */
static double draw_real(struct choice *c)
{
	return (double)(choice_word(c) >> 11) * 0x1p-53;
}

/*
 * Ranks 1 … n with probabilities like 1 / rank ^ s, by rejection-inversion (Hörmann and Derflinger,
 * 1996): a point under the curve x ^ -s from 1/2 to n + 1/2 is drawn by the inverse of its area,
 * and kept if it is also under the step of its rank. Most are.
 */
static double zipf_density(const struct zipf *z, double x)
{
	return exp(-z->s * log(x));
}

/* (x ^ (1 - s) - 1) / (1 - s), which is log x where s is 1. */
static double zipf_area(const struct zipf *z, double x)
{
	const double log_x = log(x), t = (1 - z->s) * log_x;

	return fabs(t) < 1e-8 ? log_x * (1 + t / 2) : log_x * expm1(t) / t;
}

static double zipf_area_inverse(const struct zipf *z, double a)
{
	const double t = fmax(-1, a * (1 - z->s));

	return exp(fabs(t) < 1e-8 ? a * (1 - t / 2) : a * log1p(t) / t);
}

static struct zipf zipf_of(double s, uint32_t n)
{
	struct zipf z = {.s = s, .n = n};

	z.area_first = zipf_area(&z, 1.5) - 1;
	z.area_last = zipf_area(&z, z.n + 0.5);
	z.near = 2 - zipf_area_inverse(&z, zipf_area(&z, 2.5) - zipf_density(&z, 2));
	return z;
}

static uint32_t draw_rank(struct choice *c)
{
	const struct zipf *z = &c->zipf;

	for (;;) {
		const double a = z->area_last + draw_real(c) * (z->area_first - z->area_last);
		const double x = zipf_area_inverse(z, a);
		const double rank = fmin(fmax(floor(x + 0.5), 1), z->n);

		if (rank - x <= z->near || a >= zipf_area(z, rank + 0.5) - zipf_density(z, rank))
			return (uint32_t)rank;
	}
}

static uint32_t without_common_factor(uint32_t with, uint32_t about)
{
	for (uint32_t n = about | 1;; n += 2) {
		uint32_t a = n, b = with;

		while (b) {
			const uint32_t rest = a % b;

			a = b;
			b = rest;
		}
		if (a == 1)
			return n;
	}
}

void choice_init(struct choice *c, uint32_t n, uint32_t population, double s, uint64_t seed)
{
	*c = (struct choice){.state = seed, .n = n, .s = s};
	c->step = without_common_factor(n, (uint32_t)(0.618 * n));
	if (s > 0)
		c->zipf = zipf_of(s, population);
}

static void put_hex(char *to, unsigned digits, uint64_t value)
{
	static const char digit[] = "0123456789abcdef";

	for (unsigned i = digits; i > 0; i--) {
		to[i - 1] = digit[value & 15];
		value >>= 4;
	}
}

#define NAME_DIGITS 16u

void keys_name(char *to, uint32_t len, uint32_t number)
{
	if (len < NAME_DIGITS) {
		put_hex(to, len, number);
		return;
	}
	put_hex(to, NAME_DIGITS, choice_scramble(number + 1ull));
	memset(to + NAME_DIGITS, '-', len - NAME_DIGITS);
}

uint32_t choice_draw(struct choice *c)
{
	if (c->s > 0)
		return (uint32_t)((uint64_t)draw_rank(c) * c->step % c->n);
	return (uint32_t)((choice_word(c) >> 32) * c->n >> 32);
}
