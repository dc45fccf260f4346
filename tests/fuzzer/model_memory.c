/* SPDX-License-Identifier: MIT */
/*
 * Memory with one remote writer. Each WRITE has bytes drawn from its own seed, so the bytes of a
 * line tell which WRITEs have reached it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Fewer equal bytes than this may be a coincidence. */
#define TELLING 8u

static uint8_t bytes_at(uint64_t seed, uint64_t off)
{
	return (uint8_t)(rng_mix(seed + (off / 8) * 0x9e3779b97f4a7c15u) >> (off % 8 * 8));
}

static uint64_t bytes_word(uint64_t seed, uint64_t off)
{
	return rng_mix(seed + (off / 8) * 0x9e3779b97f4a7c15u);
}

void bytes_fill(uint8_t *to, uint64_t seed, uint64_t off, size_t len)
{
	while (len > 0 && (off % 8 || len < 8)) {
		*to++ = bytes_at(seed, off++);
		len--;
	}
	for (; len >= 8; len -= 8, off += 8, to += 8) {
		const uint64_t word = bytes_word(seed, off);

		for (unsigned i = 0; i < 8; i++) /* the same bytes whatever the byte order */
			to[i] = (uint8_t)(word >> (8 * i));
	}
	for (; len > 0; len--)
		*to++ = bytes_at(seed, off++);
}

bool bytes_equal(const uint8_t *at, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t want[LINE];

	while (len > 0) {
		const size_t n = len < LINE ? len : LINE;

		bytes_fill(want, seed, off, n);
		if (memcmp(want, at, n))
			return false;
		at += n;
		off += n;
		len -= n;
	}
	return true;
}

void mem_model_init(struct mem_model *area, uint32_t size, uint64_t seed)
{
	*area = (struct mem_model){.size = size, .base = malloc(size)};
	assert(area->base);
	bytes_fill(area->base, seed, 0, size);
}

void mem_model_fini(struct mem_model *area)
{
	free(area->base);
	free(area->pending);
}

void mem_model_post(struct mem_model *area, uint32_t req, uint32_t off, uint32_t len, uint64_t seed)
{
	assert(off + len <= area->size);
	area->pending = array_grow(area->pending, area->n, &area->cap, sizeof(*area->pending));
	area->pending[area->n++] =
		(struct mem_write){.req = req, .off = off, .len = len, .seed = seed};
}

void mem_model_unpost(struct mem_model *area, uint32_t req)
{
	while (area->n > 0 && area->pending[area->n - 1].req >= req)
		area->n--;
}

void mem_model_forget(struct mem_model *area, uint32_t req)
{
	uint32_t n = 0;

	if (req > area->settled)
		req = area->settled;
	while (n < area->n && area->pending[n].req < req) {
		const struct mem_write *w = &area->pending[n++];

		bytes_fill(area->base + w->off, w->seed, w->off, w->len);
	}
	if (n > 0)
		memmove(area->pending, area->pending + n, (area->n - n) * sizeof(*area->pending));
	area->n -= n;
}

/* The intersection of [from, to) and a WRITE: [*a, *b). */
static void write_overlap(const struct mem_write *w, uint32_t from, uint32_t to, uint32_t *a,
			  uint32_t *b)
{
	*a = w->off > from ? w->off : from;
	*b = w->off + w->len < to ? w->off + w->len : to;
	if (*a > *b)
		*a = *b;
}

static bool line_has_writes(const struct mem_model *area, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < area->n; i++)
		if (area->pending[i].off < to && area->pending[i].off + area->pending[i].len > from)
			return true;
	return false;
}

/*
 * One line, or a part of one. From the newest WRITE to the oldest: a WRITE all of whose bytes are
 * there, except those that a newer one explains, counts as placed, which leaves the least to be
 * explained by the others. The bytes that no WRITE explains must be those of the base.
 */
static bool line_possible(const struct mem_model *area, const uint8_t *seen, uint32_t from,
			  uint32_t to, uint32_t must, uint32_t may)
{
	bool explained[LINE] = {false};

	if (!memcmp(seen, area->base + from, to - from) && !line_has_writes(area, from, to))
		return true;
	for (uint32_t i = area->n; i-- > 0;) {
		const struct mem_write *w = &area->pending[i];
		uint8_t bytes[LINE];
		uint32_t a, b;
		bool placed = true;

		if (w->req >= may)
			continue;
		write_overlap(w, from, to, &a, &b);
		if (a == b)
			continue;
		bytes_fill(bytes, w->seed, a, b - a);
		for (uint32_t at = a; at < b; at++)
			if (!explained[at - from] && seen[at - from] != bytes[at - a])
				placed = false;
		if (!placed && w->req < must)
			return false;
		if (placed)
			memset(explained + (a - from), true, b - a);
	}
	for (uint32_t at = from; at < to; at++)
		if (!explained[at - from] && seen[at - from] != area->base[at])
			return false;
	return true;
}

static uint32_t line_end(uint32_t from, uint32_t end)
{
	const uint32_t to = (from / LINE + 1) * LINE;

	return to < end ? to : end;
}

bool mem_model_possible(const struct mem_model *area, const uint8_t *seen, uint32_t off,
			uint32_t len, uint32_t must, uint32_t may, uint32_t *at)
{
	for (uint32_t from = off, to; from < off + len; from = to) {
		to = line_end(from, off + len);
		if (!line_possible(area, seen + (from - off), from, to, must, may)) {
			*at = from;
			return false;
		}
	}
	return true;
}

/* ---- orders that only some devices promise ---- */

enum placed { NOT_PLACED, UNCLEAR, PLACED };

/* Is the newest WRITE placed in this line? No other can have overwritten it. */
static enum placed newest_write_in_line(const struct mem_write *w, const uint8_t *seen,
					uint32_t from, uint32_t to)
{
	uint32_t a, b;

	write_overlap(w, from, to, &a, &b);
	if (!bytes_equal(seen + a, w->seed, a, b - a))
		return NOT_PLACED;
	return b - a < TELLING ? UNCLEAR : PLACED;
}

/* No line of the WRITE is placed while an earlier line of the same block is not. */
static bool lines_in_order(const struct mem_write *w, const uint8_t *seen, uint32_t block,
			   uint32_t *at)
{
	bool missing = false;

	for (uint32_t from = w->off, to; from < w->off + w->len; from = to) {
		enum placed placed;

		to = line_end(from, w->off + w->len);
		if (from == w->off || from % block == 0)
			missing = false;
		placed = newest_write_in_line(w, seen, from, to);
		if (placed == PLACED && missing) {
			*at = from;
			return false;
		}
		missing = missing || placed == NOT_PLACED;
	}
	return true;
}

static bool write_is_visible(const struct mem_write *w, const uint8_t *seen)
{
	for (uint32_t from = w->off, to; from < w->off + w->len; from = to) {
		to = line_end(from, w->off + w->len);
		if (newest_write_in_line(w, seen, from, to) == PLACED)
			return true;
	}
	return false;
}

/* If any line of the newest WRITE is placed, all of the others are. */
static bool writes_in_order(const struct mem_model *area, const uint8_t *seen, uint32_t *at)
{
	const struct mem_write *newest = &area->pending[area->n - 1];

	if (!write_is_visible(newest, seen))
		return true;
	for (uint32_t i = 0; i + 1 < area->n; i++) {
		const struct mem_write *w = &area->pending[i];

		if (!mem_model_possible(area, seen + w->off, w->off, w->len, newest->req,
					UINT32_MAX, at))
			return false;
	}
	return true;
}

bool mem_model_in_order(const struct mem_model *area, const uint8_t *seen, uint64_t caps,
			uint32_t *at)
{
	const struct mem_write *newest;

	if (area->n == 0)
		return true;
	newest = &area->pending[area->n - 1];
	if (caps & GN_CAP_INORDER_WRITE && !lines_in_order(newest, seen, UINT32_MAX, at))
		return false;
	if (caps & GN_CAP_INORDER_128 && !lines_in_order(newest, seen, 2 * LINE, at))
		return false;
	return !(caps & GN_CAP_WRITE_ORDER) || writes_in_order(area, seen, at);
}
