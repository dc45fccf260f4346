/* SPDX-License-Identifier: MIT */
/*
 * Memory with one remote writer. Each WRITE has bytes of its own, drawn from its seed, so what a
 * line holds tells which WRITEs have reached it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "swarm_model.h"

/* Fewer equal bytes than this may be chance. */
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

void area_init(struct area *area, uint32_t size, uint64_t seed)
{
	*area = (struct area){.size = size, .base = malloc(size)};
	assert(area->base);
	bytes_fill(area->base, seed, 0, size);
}

void area_fini(struct area *area)
{
	free(area->base);
	free(area->pending);
}

void area_post(struct area *area, uint32_t req, uint32_t off, uint32_t len, uint64_t seed)
{
	assert(off + len <= area->size);
	area->pending = swarm_grow(area->pending, area->n, &area->cap, sizeof(*area->pending));
	area->pending[area->n++] =
		(struct area_write){.req = req, .off = off, .len = len, .seed = seed};
}

void area_unpost(struct area *area, uint32_t req)
{
	while (area->n > 0 && area->pending[area->n - 1].req >= req)
		area->n--;
}

void area_forget(struct area *area, uint32_t req)
{
	uint32_t n = 0;

	if (req > area->settled)
		req = area->settled;
	while (n < area->n && area->pending[n].req < req) {
		const struct area_write *w = &area->pending[n++];

		bytes_fill(area->base + w->off, w->seed, w->off, w->len);
	}
	if (n > 0)
		memmove(area->pending, area->pending + n, (area->n - n) * sizeof(*area->pending));
	area->n -= n;
}

/* The bytes of [from, to) that a WRITE has: *a to *b, none if equal. */
static void overlap(const struct area_write *w, uint32_t from, uint32_t to, uint32_t *a,
		    uint32_t *b)
{
	*a = w->off > from ? w->off : from;
	*b = w->off + w->len < to ? w->off + w->len : to;
	if (*a > *b)
		*a = *b;
}

static bool touched(const struct area *area, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < area->n; i++)
		if (area->pending[i].off < to && area->pending[i].off + area->pending[i].len > from)
			return true;
	return false;
}

/*
 * One line, or a part of one. From the newest WRITE to the oldest: one whose bytes are all there,
 * as far as no newer one explains them, may be taken to be placed; that leaves the least to be
 * explained by the others. In the end what is left must be the base.
 */
static bool line_possible(const struct area *area, const uint8_t *seen, uint32_t from, uint32_t to,
			  uint32_t must, uint32_t may)
{
	bool explained[LINE] = {false};

	if (!memcmp(seen, area->base + from, to - from) && !touched(area, from, to))
		return true;
	for (uint32_t i = area->n; i-- > 0;) {
		const struct area_write *w = &area->pending[i];
		uint8_t bytes[LINE];
		uint32_t a, b;
		bool placed = true;

		if (w->req >= may)
			continue;
		overlap(w, from, to, &a, &b);
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

bool area_possible(const struct area *area, const uint8_t *seen, uint32_t off, uint32_t len,
		   uint32_t must, uint32_t may, uint32_t *at)
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

/* ---- what only some devices promise ---- */

enum there { NOT_THERE, UNCLEAR, THERE };

/* The newest WRITE in one line: nothing can have covered it. */
static enum there newest_in_line(const struct area_write *w, const uint8_t *seen, uint32_t from,
				 uint32_t to)
{
	uint32_t a, b;

	overlap(w, from, to, &a, &b);
	if (!bytes_equal(seen + a, w->seed, a, b - a))
		return NOT_THERE;
	return b - a < TELLING ? UNCLEAR : THERE;
}

/* No line of it is there while an earlier one of the same block is not. */
static bool lines_in_order(const struct area_write *w, const uint8_t *seen, uint32_t block,
			   uint32_t *at)
{
	bool missing = false;

	for (uint32_t from = w->off, to; from < w->off + w->len; from = to) {
		enum there there;

		to = line_end(from, w->off + w->len);
		if (from == w->off || from % block == 0)
			missing = false;
		there = newest_in_line(w, seen, from, to);
		if (there == THERE && missing) {
			*at = from;
			return false;
		}
		missing = missing || there == NOT_THERE;
	}
	return true;
}

static bool is_visible(const struct area_write *w, const uint8_t *seen)
{
	for (uint32_t from = w->off, to; from < w->off + w->len; from = to) {
		to = line_end(from, w->off + w->len);
		if (newest_in_line(w, seen, from, to) == THERE)
			return true;
	}
	return false;
}

/* Any of the newest is there: then all of the others is. */
static bool writes_in_order(const struct area *area, const uint8_t *seen, uint32_t *at)
{
	const struct area_write *newest = &area->pending[area->n - 1];

	if (!is_visible(newest, seen))
		return true;
	for (uint32_t i = 0; i + 1 < area->n; i++) {
		const struct area_write *w = &area->pending[i];

		if (!area_possible(area, seen + w->off, w->off, w->len, newest->req, UINT32_MAX,
				   at))
			return false;
	}
	return true;
}

bool area_in_order(const struct area *area, const uint8_t *seen, uint64_t caps, uint32_t *at)
{
	const struct area_write *newest;

	if (area->n == 0)
		return true;
	newest = &area->pending[area->n - 1];
	if (caps & GN_CAP_INORDER_WRITE && !lines_in_order(newest, seen, UINT32_MAX, at))
		return false;
	if (caps & GN_CAP_INORDER_128 && !lines_in_order(newest, seen, 2 * LINE, at))
		return false;
	return !(caps & GN_CAP_WRITE_ORDER) || writes_in_order(area, seen, at);
}
