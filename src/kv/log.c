/* SPDX-License-Identifier: MIT */
/*
 * The log: where items are. It grows in the active segment. When the last free segment becomes the
 * active one, another is chosen and emptied, a little with every addition, so that it is free when
 * the active one is full: what lives there is moved to the active one, or forgotten. The segment
 * with the fewest living bytes is chosen, if they are not more than half of it: then all are kept.
 * Else memory is full, and it is the oldest's turn: those that were used since the last time are
 * kept, up to a half.
 */
#include "kv/store.h"

#define PACE 4u /* bytes of the old segment that are looked at for one that is added */

static uint32_t n_free(const struct gn_kv_store *s)
{
	return s->n_idle + (s->n_segments - s->fresh);
}

bool kv_log_short(const struct gn_kv_store *s)
{
	return !n_free(s) && (s->tidied == KV_NONE || !s->tidied_all);
}

/* No item is at place 0. */
static uint32_t first_byte(uint32_t segment)
{
	return segment ? 0 : KV_LINE * KV_UNIT;
}

uint32_t kv_segment_take(struct gn_kv_store *s, enum kv_kind kind)
{
	/* One is left for the log: it cannot be tidied without. */
	if (n_free(s) <= (kind != KV_LOG && s->active != KV_NONE))
		return KV_NONE;
	const uint32_t n = s->n_idle ? s->idle[--s->n_idle] : s->fresh++;

	s->segments[n] = (struct kv_segment){.used = first_byte(n), .kind = kind};
	return n;
}

bool kv_log_shrink(struct gn_kv_store *s, uint64_t bytes)
{
	const uint64_t n = (bytes + s->segment_bytes - 1) / s->segment_bytes;

	/* The log cannot do without one to go on with, and one to tidy. */
	if (n + 2 > s->n_segments - s->fresh)
		return false;
	s->n_segments -= (uint32_t)n;
	return true;
}

void kv_log_unshrink(struct gn_kv_store *s, uint64_t bytes)
{
	s->n_segments += (uint32_t)((bytes + s->segment_bytes - 1) / s->segment_bytes);
}

static void free_segment(struct gn_kv_store *s, uint32_t n)
{
	s->segments[n] = (struct kv_segment){.kind = KV_FREE};
	s->idle[s->n_idle++] = n;
}

static bool is_better(const struct gn_kv_store *s, uint32_t n, uint32_t best)
{
	const struct kv_segment *a = &s->segments[n], *b = &s->segments[best];
	const uint32_t half = s->segment_bytes / 2;

	if (a->live <= half || b->live <= half)
		return a->live < b->live;
	return s->order - a->order > s->order - b->order;
}

static void begin_tidying(struct gn_kv_store *s)
{
	uint32_t best = KV_NONE;

	for (uint32_t i = 0; i < s->fresh; i++)
		if (s->segments[i].kind == KV_LOG && i != s->active &&
		    (best == KV_NONE || is_better(s, i, best)))
			best = i;
	s->tidied = best;
	if (best == KV_NONE)
		return;
	s->tidied_to = first_byte(best);
	s->tidied_moved = 0;
	s->tidied_all = s->segments[best].live <= s->segment_bytes / 2;
}

/* At the end of the active segment; 0: it is full. */
static uint32_t append(struct gn_kv_store *s, uint32_t bytes)
{
	struct kv_segment *to;
	uint64_t at;

	if (s->active == KV_NONE)
		return 0;
	to = &s->segments[s->active];
	if (to->used + bytes > s->segment_bytes)
		return 0;
	at = (uint64_t)s->active * s->segment_bytes + to->used;
	to->used += bytes;
	to->live += bytes;
	s->stats.item_bytes += bytes;
	return (uint32_t)(at / KV_UNIT);
}

void kv_log_kill(struct gn_kv_store *s, uint32_t place)
{
	struct kv_item *item = kv_at(s, place);
	const uint32_t bytes = kv_item_bytes(item->lengths);

	KV_PUT(&item->used, item->used | KV_ITEM_DEAD);
	s->segments[kv_segment_of(s, place)].live -= bytes;
	s->stats.item_bytes -= bytes;
}

void kv_log_undo(struct gn_kv_store *s, uint32_t place, uint32_t bytes)
{
	struct kv_segment *segment = &s->segments[kv_segment_of(s, place)];

	segment->used -= bytes;
	segment->live -= bytes;
	s->stats.item_bytes -= bytes;
}

static bool keep(struct gn_kv_store *s, uint64_t hash, uint32_t place, uint32_t bytes)
{
	const struct kv_item *item = kv_at(s, place);
	uint32_t to;

	if (kv_expires(item) && kv_expires(item) <= s->now_s)
		return false;
	if (!s->tidied_all &&
	    (!(item->used & KV_ITEM_RECENT) || s->tidied_moved + bytes > s->segment_bytes / 2))
		return false;
	to = append(s, bytes);
	if (!to)
		return false;
	kv_copy(kv_at(s, to), item, bytes);
	gn_charge(GN_WORK_COPY, bytes);
	KV_PUT(&kv_at(s, to)->used, kv_at(s, to)->used & ~KV_ITEM_RECENT);
	kv_relink(s, hash, place, to);
	kv_log_kill(s, place);
	s->tidied_moved += bytes;
	s->stats.moved += bytes;
	return true;
}

/* What is left of it is looked at, up to so many bytes; then it is free. */
static void tidy(struct gn_kv_store *s, uint64_t bytes)
{
	const uint32_t n = s->tidied;

	while (s->tidied_to < s->segments[n].used) {
		const uint32_t place =
			(uint32_t)(((uint64_t)n * s->segment_bytes + s->tidied_to) / KV_UNIT);
		const struct kv_item *item = kv_at(s, place);
		const uint32_t size = kv_item_bytes(item->lengths);
		uint64_t hash;

		if (!bytes)
			return;
		bytes -= size < bytes ? size : bytes;
		s->tidied_to += size;
		if (item->used & KV_ITEM_DEAD)
			continue;
		hash = kv_hash(kv_key(item), kv_key_len(item), s->seed);
		if (keep(s, hash, place, size))
			continue;
		if (kv_expires(item) && kv_expires(item) <= s->now_s)
			kv_count_expired(s, item);
		else
			s->stats.evicted_log++, kv_count_evicted(s, item);
		kv_forget(s, hash, place);
	}
	s->tidied = KV_NONE;
	if (s->wants_chunk) {
		s->segments[n] = (struct kv_segment){.kind = KV_INDEX};
		s->chunks[s->n_chunks++] = n;
		s->wants_chunk = false;
		begin_tidying(s);
	} else {
		free_segment(s, n);
	}
}

static bool next_segment(struct gn_kv_store *s)
{
	uint32_t n;

	while (!n_free(s) && s->tidied != KV_NONE)
		tidy(s, UINT64_MAX);
	n = kv_segment_take(s, KV_LOG);
	if (n == KV_NONE)
		return false;
	s->active = n;
	s->segments[n].order = s->order++;
	if (!n_free(s) && s->tidied == KV_NONE)
		begin_tidying(s);
	return true;
}

uint32_t kv_log_add(struct gn_kv_store *s, uint32_t bytes)
{
	uint32_t place;

	if (s->tidied != KV_NONE)
		tidy(s, PACE * (uint64_t)bytes);
	/* What was moved may have filled the next one too. */
	for (unsigned tries = 0; tries < 4; tries++) {
		place = append(s, bytes);
		if (place || !next_segment(s))
			return place;
	}
	return append(s, bytes);
}

void kv_log_clear(struct gn_kv_store *s)
{
	s->active = s->tidied = KV_NONE;
	for (uint32_t i = 0; i < s->fresh; i++)
		if (s->segments[i].kind == KV_LOG)
			free_segment(s, i);
	s->stats.item_bytes = 0;
}
