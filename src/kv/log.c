/* SPDX-License-Identifier: MIT */
/*
 * The log: items are appended to the active gap. While it shrinks, the next gap is made, a part
 * with each item, in proportion: so it is ready when it is needed. The index grows by cutting off
 * the ends of the heap; live items there are appended again.
 */
#include <errno.h>

#include "kv/compact.h"

#define HEAP_MIN_PCT 50u /* of memory that the index leaves to the heap */

/* ---- items ---- */

void kv_log_expiry_add(struct gn_kv_store *s, uint32_t loc)
{
	const struct kv_item *item = kv_item_at(s, loc);
	const uint32_t expires = kv_expires(item);

	if (unlikely(expires))
		kv_expiry_add(&s->log.regions[loc >> s->log.region_shift].expiry, expires,
			      kv_item_bytes(item->lengths));
}

void kv_log_expiry_remove(struct gn_kv_store *s, uint32_t loc)
{
	const struct kv_item *item = kv_item_at(s, loc);
	const uint32_t expires = kv_expires(item);

	if (unlikely(expires))
		kv_expiry_remove(&s->log.regions[loc >> s->log.region_shift].expiry, expires,
				 kv_item_bytes(item->lengths));
}

void kv_log_remove(struct gn_kv_store *s, uint32_t loc)
{
	struct kv_item *item = kv_item_at(s, loc);
	const uint32_t bytes = kv_item_bytes(item->lengths);

	kv_log_expiry_remove(s, loc);
	KV_STORE_RELAXED(&item->used, item->used | KV_ITEM_DEAD);
	kv_heap_discount(s, loc, bytes);
	s->stats.item_bytes -= bytes;
	kv_log_update_recent_use(s);
}

void kv_log_undo_add(struct gn_kv_store *s, uint32_t loc, uint32_t bytes)
{
	kv_heap_fill(s, loc, loc + bytes / KV_UNIT);
	kv_heap_discount(s, loc, bytes);
	s->stats.item_bytes -= bytes;
	kv_log_update_recent_use(s);
}

/* ---- gaps ---- */

static void log_close_gap(struct gn_kv_store *s, struct kv_gap *gap)
{
	kv_heap_fill(s, gap->at, gap->end);
	*gap = (struct kv_gap){0, 0};
}

static void log_next_gap(struct gn_kv_store *s)
{
	struct kv_log *log = &s->log;

	log_close_gap(s, &log->active);
	log->active = log->next;
	log->next = (struct kv_gap){0, 0};
	for (uint32_t n = log->active.at >> log->region_shift;
	     n < log->n_regions && n << log->region_shift < log->active.end; n++)
		log->regions[n].order = log->order;
	log->order++;
}

/* 0: it does not fit. */
static uint32_t log_append(struct gn_kv_store *s, uint32_t bytes)
{
	struct kv_log *log = &s->log;
	const uint32_t at = log->active.at, end = at + bytes / KV_UNIT;

	if (kv_gap_len(&log->active) < bytes / KV_UNIT)
		return 0;
	log->active.at = end;
	if (at >> log->region_shift != end >> log->region_shift)
		kv_heap_mark(log, at, end);
	if (end > log->high) {
		log->high = end;
		log->fresh = end > log->fresh ? end : log->fresh;
	}
	kv_heap_count(s, at, bytes);
	s->stats.item_bytes += bytes;
	return at;
}

/* Compacts what is due before the active gap is full. */
static void log_compact_in_step(struct gn_kv_store *s, uint32_t bytes)
{
	struct kv_log *log = &s->log;
	const struct kv_pass *p = &log->pass;
	const uint64_t left = kv_gap_len(&log->active);

	if (p->running)
		kv_compact_some(s, left ? ((uint64_t)bytes * (p->end - p->at) + left - 1) / left :
					  UINT64_MAX);
	else if (left <= 1ull << log->region_shift && !kv_gap_len(&log->next))
		kv_compact_begin(s);
}

static uint32_t log_add(struct gn_kv_store *s, uint32_t bytes)
{
	struct kv_log *log = &s->log;
	uint32_t loc;

	log_compact_in_step(s, bytes);
	loc = log_append(s, bytes);
	if (likely(loc))
		return loc;
	if (log->pass.running && (uint64_t)(log->pass.end - log->pass.begin) * KV_UNIT >= bytes)
		kv_compact_some(s, UINT64_MAX);
	if (kv_gap_len(&log->next) < bytes / KV_UNIT) {
		kv_compact_abort(s);
		log_close_gap(s, &log->active);
		log_close_gap(s, &log->next);
		if (!kv_compact_now(s, bytes))
			return 0;
	}
	log_next_gap(s);
	return log_append(s, bytes);
}

uint32_t kv_log_add(struct gn_kv_store *s, uint32_t bytes)
{
	uint32_t loc;

	if (unlikely(s->index_needs_space))
		kv_index_reserve(s);
	loc = log_add(s, bytes);
	kv_log_update_recent_use(s);
	return loc;
}

/* ---- the ends of the heap ---- */

/* Where the next item, filler or gap begins. */
static uint32_t log_after(const struct gn_kv_store *s, uint32_t at)
{
	const struct kv_log *log = &s->log;

	if (at == log->active.at && kv_gap_len(&log->active))
		return log->active.end;
	if (at == log->next.at && kv_gap_len(&log->next))
		return log->next.end;
	return at + kv_item_span(kv_item_at(s, at)) / KV_UNIT;
}

static void log_close_gaps(struct gn_kv_store *s, uint32_t from, uint32_t to)
{
	struct kv_log *log = &s->log;

	if (log->active.at < to && log->active.end > from)
		log_close_gap(s, &log->active);
	if (log->next.at < to && log->next.end > from)
		log_close_gap(s, &log->next);
}

/* Empties a range that was cut off the heap: live items are appended to the rest, or evicted. */
static void log_evacuate(struct gn_kv_store *s, uint32_t from, uint32_t to)
{
	for (uint32_t at = from; at < to; at += kv_item_span(kv_item_at(s, at)) / KV_UNIT)
		if (!(kv_item_at(s, at)->used & KV_ITEM_DEAD)) {
			const uint32_t bytes = kv_item_span(kv_item_at(s, at));

			kv_log_expiry_remove(s, at);
			kv_heap_discount(s, at, bytes);
			s->log.evacuating += bytes;
		}
	for (uint32_t at = from; at < to; at += kv_item_span(kv_item_at(s, at)) / KV_UNIT) {
		struct kv_item *item = kv_item_at(s, at);
		const uint32_t bytes = kv_item_span(item);
		uint64_t hash;
		uint32_t loc;

		if (item->used & KV_ITEM_DEAD)
			continue;
		loc = kv_has_expired(s, item) ? 0 : log_add(s, bytes);
		hash = kv_hash(kv_key(item), kv_key_len(item), s->seed);
		if (loc) {
			kv_heap_move(s, hash, at, loc, bytes);
		} else {
			kv_unlink(s, hash, at);
			kv_count_dropped(s, item, &s->stats.evicted_log);
		}
		s->log.evacuating -= bytes;
		s->stats.item_bytes -= bytes;
		s->log.work += bytes;
	}
}

static bool log_may_cut(const struct gn_kv_store *s, uint32_t units)
{
	const uint64_t left = (uint64_t)(s->log.hi - s->log.lo) * KV_UNIT;

	return left >= (uint64_t)units * KV_UNIT + s->stats.memory * HEAP_MIN_PCT / 100;
}

/* The start of the last region whose first item is not behind loc. */
static uint32_t log_start_before(const struct kv_log *log, uint32_t loc)
{
	uint32_t n = loc >> log->region_shift;

	while (kv_region_start(log, n) > loc)
		n--;
	return kv_region_start(log, n);
}

bool kv_log_cut_top(struct gn_kv_store *s, uint32_t units)
{
	struct kv_log *log = &s->log;
	const uint32_t old = log->hi, new = old - units;
	uint32_t at;

	if (!log_may_cut(s, units))
		return false;
	if (log->active.end == old && log->active.at <= new) {
		log->hi = log->active.end = new;
		return true;
	}
	/* The first item that lies beyond the new end, or across it. */
	at = log_start_before(log, new);
	if (log->pass.running && log->pass.end > at) {
		kv_compact_abort(s);
		at = log_start_before(log, new); /* the region accounts are consistent again */
	}
	while (at < new &&log_after(s, at) <= new)
		at = log_after(s, at);
	log_close_gaps(s, at, old);
	log->hi = at;
	log_evacuate(s, at, old);
	log->hi = new;
	kv_heap_fill(s, at, new);
	return true;
}

bool kv_log_cut_bottom(struct gn_kv_store *s, uint32_t units)
{
	struct kv_log *log = &s->log;
	const uint32_t old = log->lo, new = old + units;
	uint32_t at = old;

	if (!log_may_cut(s, units))
		return false;
	for (; at < new; at = log_after(s, at)) {
		if (log->pass.running && at == log->pass.begin)
			kv_compact_abort(s);
		if (at == log->active.at && log->active.end > new) {
			kv_heap_fill(s, at, new);
			log->active.at = new; /* the rest of the gap stays, and may be large */
		}
	}
	log_close_gaps(s, old, new);
	log->lo = at;
	log_evacuate(s, old, at);
	log->lo = new;
	for (uint32_t n = 0; n <= new >> log->region_shift; n++)
		log->regions[n].first = new;
	kv_heap_fill(s, new, at);
	return true;
}

bool kv_log_shrink(struct gn_kv_store *s, uint64_t bytes)
{
	struct kv_log *log = &s->log;
	const uint64_t units = (bytes + KV_UNIT - 1) / KV_UNIT;

	/* Only memory that was never written: clients may still READ the rest. */
	if (units > log->hi - log->lo || !log_may_cut(s, (uint32_t)units) ||
	    log->active.end != log->hi || log->hi - units < log->fresh ||
	    log->hi - units < log->active.at)
		return false;
	log->hi -= (uint32_t)units;
	log->active.end = log->hi;
	return true;
}

void kv_log_unshrink(struct gn_kv_store *s, uint64_t bytes)
{
	s->log.hi += (uint32_t)((bytes + KV_UNIT - 1) / KV_UNIT);
	s->log.active.end = s->log.hi;
}

/* ---- create and clear ---- */

void kv_log_clear(struct gn_kv_store *s, uint32_t lo, uint32_t hi)
{
	struct kv_log *log = &s->log;

	log->lo = log->high = lo;
	log->hi = hi;
	log->pass.running = false;
	log->next = (struct kv_gap){0, 0};
	log->active = (struct kv_gap){lo, hi};
	log->order = 1;
	log->expired = log->evacuating = 0;
	log->fresh = log->fresh < lo ? lo : log->fresh;
	for (uint32_t n = 0; n < log->n_regions; n++)
		log->regions[n] =
			(struct kv_region){.first = n << log->region_shift <= lo ? lo : hi};
	s->stats.item_bytes = 0;
}

uint64_t kv_log_reserved(const struct gn_kv_store *s)
{
	return s->stats.memory - (uint64_t)(s->log.hi - s->log.lo) * KV_UNIT;
}

int kv_log_make(struct gn_kv_store *s)
{
	struct kv_log *log = &s->log;
	unsigned shift = 0;

	while (KV_UNIT << shift < KV_REGION_MIN ||
	       (KV_UNIT << shift < KV_REGION_MAX &&
		(2ull * KV_UNIT << shift) * KV_REGIONS <= s->stats.memory))
		shift++;
	log->region_shift = shift;
	log->n_regions = (uint32_t)(s->stats.memory / KV_UNIT >> shift) + 1;
	log->regions = gn_alloc(log->n_regions * sizeof(log->regions[0]), 0);
	return log->regions ? 0 : -ENOMEM;
}
