/* SPDX-License-Identifier: MIT */
/* Compaction of the log. */
#ifndef GN_KV_COMPACT_H
#define GN_KV_COMPACT_H

#include "kv/store.h"

/* Bytes from one item to the next, dead or live. */
static inline uint32_t kv_item_span(const struct kv_item *item)
{
	return kv_key_len(item) ? kv_item_bytes(item->lengths) : (item->lengths >> 8) * KV_UNIT;
}

/* Location of the first item that begins in region n or behind it, within the heap. */
static inline uint32_t kv_region_start(const struct kv_log *log, uint32_t n)
{
	const uint32_t first = n < log->n_regions ? log->regions[n].first : log->hi;

	return first < log->lo ? log->lo : first > log->hi ? log->hi : first;
}

/* Record that an item, filler or gap extends from from to to: updates where regions begin. */
void kv_heap_mark(struct kv_log *log, uint32_t from, uint32_t to);
/* Overwrite with fillers. */
void kv_heap_fill(struct gn_kv_store *s, uint32_t from, uint32_t to);
/* Add or subtract a live item in the account of its region. */
void kv_heap_count(struct gn_kv_store *s, uint32_t loc, uint32_t bytes);
void kv_heap_discount(struct gn_kv_store *s, uint32_t loc, uint32_t bytes);
/*
 * Move a live item and update its index entry. The accounts of the old location are already
 * updated.
 */
void kv_heap_move(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to, uint32_t bytes);

/* Start a pass that makes the next gap, if there is space besides the active gap. */
void kv_compact_begin(struct gn_kv_store *s);
/* Visit this many bytes. When the pass is done, log->next is the gap. */
void kv_compact_some(struct gn_kv_store *s, uint64_t bytes);
/* Stop a pass: its gap becomes garbage. */
void kv_compact_abort(struct gn_kv_store *s);
/* Make a gap of at least this many bytes at once, while there is no other gap. False: no space. */
bool kv_compact_now(struct gn_kv_store *s, uint32_t bytes);

#endif
