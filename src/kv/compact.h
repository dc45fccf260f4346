/* SPDX-License-Identifier: MIT */
/* Compaction, for the log: how gaps are made. */
#ifndef GN_KV_COMPACT_H
#define GN_KV_COMPACT_H

#include "kv/store.h"

/* Bytes from one item to the next, dead or not. */
static inline uint32_t kv_step(const struct kv_item *item)
{
	return kv_key_len(item) ? kv_item_bytes(item->lengths) : (item->lengths >> 8) * KV_UNIT;
}

/* Where the first item of a region begins, at or behind it, within the heap. */
static inline uint32_t kv_region_start(const struct kv_log *log, uint32_t n)
{
	const uint32_t first = n < log->n_regions ? log->regions[n].first : log->hi;

	return first < log->lo ? log->lo : first > log->hi ? log->hi : first;
}

/* An item, a filler or a gap is there: account for where regions begin. */
void kv_heap_mark(struct kv_log *log, uint32_t from, uint32_t to);
/* Nothing is there any more. */
void kv_heap_fill(struct gn_kv_store *s, uint32_t from, uint32_t to);
/* Account for a living item, or no longer. */
void kv_heap_count(struct gn_kv_store *s, uint32_t place, uint32_t bytes);
void kv_heap_discount(struct gn_kv_store *s, uint32_t place, uint32_t bytes);
/* A living item goes elsewhere, and its index knows. Its old place is accounted for already. */
void kv_heap_move(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to, uint32_t bytes);

/* Begin to make the next gap, if that is possible beside the active one. */
void kv_compact_begin(struct gn_kv_store *s);
/* Look at so many bytes; when the pass is done, log->next is the gap. */
void kv_compact_some(struct gn_kv_store *s, uint64_t bytes);
/* End a pass as it is: its gap becomes garbage. */
void kv_compact_abort(struct gn_kv_store *s);
/* Make a gap of so many bytes at least, at once, while there is no other. False: no room. */
bool kv_compact_now(struct gn_kv_store *s, uint32_t bytes);

#endif
