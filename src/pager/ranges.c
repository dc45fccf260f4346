/* SPDX-License-Identifier: MIT */
/* Ranges of pages that no mapping has: first fit, in a sorted array. */
#include "pager/pages.h"

#define RANGES_MIN 1024u
#define RANGES_MAX 65536u

int ranges_init(struct pager_ranges *ranges, uint64_t pages)
{
	const uint64_t n = pages / 16;

	ranges->max = n < RANGES_MIN ? RANGES_MIN : (uint32_t)min_u64(n, RANGES_MAX);
	ranges->free = gn_alloc(ranges->max * sizeof(*ranges->free), 0);
	if (!ranges->free)
		return -ENOMEM;
	ranges->free[0] = (struct pager_range){0, pages};
	ranges->n = 1;
	return 0;
}

void ranges_fini(struct pager_ranges *ranges)
{
	gn_free(ranges->free);
}

static void range_remove(struct pager_ranges *ranges, uint32_t i)
{
	memmove(&ranges->free[i], &ranges->free[i + 1], (--ranges->n - i) * sizeof(*ranges->free));
}

/* A range that does not fit into the array is found again by ranges_rebuild(). */
static void range_insert(struct pager_ranges *ranges, uint32_t i, uint64_t start, uint64_t n)
{
	if (!n)
		return;
	if (ranges->n == ranges->max) {
		ranges->partial = true;
		return;
	}
	memmove(&ranges->free[i + 1], &ranges->free[i], (ranges->n++ - i) * sizeof(*ranges->free));
	ranges->free[i] = (struct pager_range){start, n};
}

int ranges_take(struct pager_ranges *ranges, uint64_t n, uint64_t *start)
{
	/* Mappings of a chunk or more begin with a chunk: they are evicted as a whole. */
	const uint64_t align = n >= PAGER_CHUNK ? PAGER_CHUNK : 1;

	for (uint32_t i = 0; i < ranges->n; i++) {
		struct pager_range *r = &ranges->free[i];
		const uint64_t at = (r->start + align - 1) / align * align, end = r->start + r->n;

		if (at > end || n > end - at)
			continue;
		*start = at;
		r->n = at - r->start;
		if (r->n) {
			range_insert(ranges, i + 1, at + n, end - at - n);
		} else if (end > at + n) {
			*r = (struct pager_range){at + n, end - at - n};
		} else {
			range_remove(ranges, i);
		}
		return 0;
	}
	return -ENOMEM;
}

void ranges_give(struct pager_ranges *ranges, uint64_t start, uint64_t n)
{
	struct pager_range *r = ranges->free;
	uint32_t low = 0, high = ranges->n;

	while (low < high) { /* the first one behind start */
		const uint32_t middle = (low + high) / 2;

		if (r[middle].start < start)
			low = middle + 1;
		else
			high = middle;
	}
	if (low && r[low - 1].start + r[low - 1].n == start) {
		r[--low].n += n;
		if (low + 1 < ranges->n && r[low].start + r[low].n == r[low + 1].start) {
			r[low].n += r[low + 1].n;
			range_remove(ranges, low + 1);
		}
	} else if (low < ranges->n && r[low].start == start + n) {
		r[low].start = start;
		r[low].n += n;
	} else {
		range_insert(ranges, low, start, n);
	}
}

void ranges_rebuild(struct pager_ranges *ranges, const uint8_t *state, uint64_t pages)
{
	ranges->n = 0;
	ranges->partial = false;
	for (uint64_t p = 0; p < pages;) {
		uint64_t end = p;

		while (end < pages && (state[end] & PAGE_STATE) == PAGE_NONE)
			end++;
		range_insert(ranges, ranges->n, p, end - p);
		p = end + 1;
	}
}
