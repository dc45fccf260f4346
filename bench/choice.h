/* SPDX-License-Identifier: MIT */
/*
 * Which key of a load comes next: any, or by Zipf's law. One thread.
 *
 * The papers have 128 million keys. A simulation stores some thousands, each of which stands for
 * many: with Zipf's law the keys that are drawn most have the shares they have among 128 million.
 */
#ifndef GN_BENCH_CHOICE_H
#define GN_BENCH_CHOICE_H

#include <stdint.h>

#define CHOICE_ZIPF_MAX 5.0

struct zipf {
	double s, n;
	double area_first, area_last; /* of the curve, at both ends */
	double near;		      /* so close to its rank, a point is surely under the step */
};

struct choice {
	uint64_t state;
	uint32_t n;
	double s; /* the exponent of Zipf's law; 0: uniform */
	struct zipf zipf;
	uint32_t step; /* from one rank to the next */
};

/* Different for different words. */
static inline uint64_t choice_scramble(uint64_t x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

/* Any 64 bits. */
static inline uint64_t choice_word(struct choice *c)
{
	c->state += 0x9e3779b97f4a7c15u;
	return choice_scramble(c->state);
}

/* n keys that stand for population; s: the exponent of Zipf's law; 0: uniform. */
void choice_init(struct choice *c, uint32_t n, uint32_t population, double s, uint64_t seed);
/* 0 to n - 1. Keys that are asked for often have numbers far from each other. */
uint32_t choice_draw(struct choice *c);

#endif
