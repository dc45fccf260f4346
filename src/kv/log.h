/* SPDX-License-Identifier: MIT */
/*
 * The memory of a store, which is one range:
 *
 *	0            lo                                           hi          end
 *	| spare lines | heap: items, dead and living, and two gaps | buckets |
 *
 * The heap has no holes: from lo to hi every byte belongs to an item, to a filler (a dead item
 * without a key), or to a gap. Items are appended to the active gap. When it is used up, another
 * one must be there: compaction makes it. A pass over a part of the heap, its window, moves the
 * living items towards the window's beginning, in their order, and leaves a gap at its end.
 *
 * Regions only keep account: how many bytes live in each, when it was last written, how many
 * expire when. Items lie across their borders, so an item may be larger than a region.
 */
#ifndef GN_KV_LOG_H
#define GN_KV_LOG_H

#include "kv/item.h"

/*
 * No living item is evicted while more than this share of a store's memory is garbage: neither
 * living items, nor the one to be stored, nor the index. Compaction keeps some distance to it.
 */
#define KV_GARBAGE_PCT 15u
#define KV_EVICT_SHIFT 3u /* evict when garbage is at most memory >> 3 */

/* An operation looks at no more than so many bytes of the heap for each that it stores. */
#define KV_WORK_FACTOR 16u

#define KV_REGIONS     128u /* at least, unless they would be tiny */
#define KV_REGION_MIN  (1u << 10)
#define KV_REGION_MAX  (4u << 20)
#define KV_EXPIRY_BINS 16u

/*
 * How many bytes expire when: bins of 1 << shift seconds, the first from base << shift on. They are
 * as wide as they must be for what is in them.
 */
struct kv_expiry {
	uint32_t base, shift;
	uint32_t all; /* bytes */
	uint32_t bytes[KV_EXPIRY_BINS];
};

struct kv_region {
	uint32_t first; /* the place where the first item begins, here or behind */
	uint32_t live;	/* bytes of living items that begin here */
	uint32_t order; /* in which a gap in it became the active one */
	struct kv_expiry expiry;
};

/* Places; empty if at == end. */
struct kv_gap {
	uint32_t at, end;
};

/* [begin, to) is compacted, [to, at) is free, [at, end) is still to be looked at. */
struct kv_pass {
	bool running, evict;
	uint32_t begin, to, at, end;
	uint32_t need;		  /* bytes: the item for which it is done, or 0 */
	uint32_t kept, keep_most; /* bytes that were used recently, when it evicts */
};

struct kv_log {
	uint32_t lo, hi; /* of the heap */
	uint32_t fresh;	 /* from here on memory was never written, not even before a clear */
	uint32_t high;	 /* … since the last clear */
	struct kv_gap active, next;
	struct kv_pass pass;
	struct kv_region *regions;
	uint32_t n_regions, order;
	unsigned region_shift; /* a region is 1 << region_shift units */
	uint32_t scratch;      /* bypass: a place where the largest item fits; else 0 */
	uint64_t expired;      /* bytes of items that have expired, and are still there */
	uint32_t expired_s;    /* when that was found out */
	uint64_t exiled;       /* bytes of items that leave what is cut off the heap */
	uint64_t work;	       /* bytes looked at, ever: for tests */
};

static inline uint32_t kv_gap_len(const struct kv_gap *g)
{
	return g->end - g->at;
}

/* expiry.c */
void kv_expiry_add(struct kv_expiry *e, uint32_t when_s, uint32_t bytes);
void kv_expiry_remove(struct kv_expiry *e, uint32_t when_s, uint32_t bytes);
/* Of what has expired by then, but for what did in the bin that then is in. */
uint32_t kv_expiry_by(const struct kv_expiry *e, uint32_t now_s);

#endif
