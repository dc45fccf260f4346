/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histogram. A value below 256 has its own bucket; above, each octave [2^k, 2^(k+1)) has
 * 128 buckets, and a bucket is reported as its middle:
 *
 *     bucket   0 … 255    256 … 383       384 … 511         …    4480 … 4607
 *     values   0 … 255    256 … 511 by 2  512 … 1023 by 4   …    2^41 … 2^42-1 by 2^34
 */
#include <assert.h>
#include <string.h>

#include "gannet/base.h"

#define SUB_BITS  7u /* 128 buckets per octave */
#define TOP_BITS  42u
#define VALUE_MAX ((UINT64_C(1) << TOP_BITS) - 1)

static_assert((TOP_BITS - SUB_BITS + 1) << SUB_BITS == GN_HIST_BUCKETS, "every value has a bucket");

static unsigned hist_bucket_of(uint64_t value)
{
	unsigned octave, shift;

	if (value < 2u << SUB_BITS)
		return (unsigned)value;
	octave = 63u - (unsigned)__builtin_clzll(value);
	shift = octave - SUB_BITS;
	/* value >> shift is 128 … 255, its top bit the octave's */
	return (shift << SUB_BITS) + (unsigned)(value >> shift);
}

static uint64_t hist_bucket_middle(unsigned bucket)
{
	unsigned shift;
	uint64_t low;

	if (bucket < 2u << SUB_BITS)
		return bucket;
	shift = (bucket >> SUB_BITS) - 1;
	low = (uint64_t)(bucket - (shift << SUB_BITS)) << shift;
	return low + (UINT64_C(1) << shift) / 2;
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void gn_hist_init(struct gn_hist *hist)
{
	memset(hist, 0, sizeof(*hist));
	hist->min = UINT64_MAX;
}

void gn_hist_add(struct gn_hist *hist, uint64_t value, uint64_t times)
{
	uint64_t total;

	if (times == 0)
		return;
	if (value > VALUE_MAX)
		value = VALUE_MAX;
	if (__builtin_mul_overflow(value, times, &total))
		total = UINT64_MAX;
	hist->count = add_saturating(hist->count, times);
	hist->sum = add_saturating(hist->sum, total);
	if (value < hist->min)
		hist->min = value;
	if (value > hist->max)
		hist->max = value;
	hist->bucket[hist_bucket_of(value)] += times;
}

void gn_hist_merge(struct gn_hist *into, const struct gn_hist *from)
{
	into->count = add_saturating(into->count, from->count);
	into->sum = add_saturating(into->sum, from->sum);
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	for (unsigned i = 0; i < GN_HIST_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
}

/* The rank, from 1, of the percentile: count * percent / 100 rounded up. */
static uint64_t hist_rank_of(const struct gn_hist *hist, double percent)
{
	double exact = (double)hist->count * percent / 100;
	uint64_t rank;

	if (!(percent > 0))
		return 1;
	if (percent >= 100)
		return hist->count;
	/* 99.9 has no exact double: without the slack its rank in 1000 values might be 1000 */
	exact -= exact * 1e-12;
	rank = (uint64_t)exact;
	if ((double)rank < exact)
		rank++;
	return rank ? rank : 1;
}

uint64_t gn_hist_percentile(const struct gn_hist *hist, double percent)
{
	uint64_t rank, below = 0, value;

	if (hist->count == 0)
		return 0;
	rank = hist_rank_of(hist, percent);
	for (unsigned i = 0; i < GN_HIST_BUCKETS; i++) {
		below += hist->bucket[i];
		if (below >= rank) {
			value = hist_bucket_middle(i);
			if (value < hist->min)
				return hist->min;
			return value > hist->max ? hist->max : value;
		}
	}
	return hist->max;
}

double gn_hist_mean(const struct gn_hist *hist)
{
	return hist->count ? (double)hist->sum / (double)hist->count : 0;
}
