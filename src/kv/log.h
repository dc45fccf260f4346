/* SPDX-License-Identifier: MIT */
/*
 * The memory of a store is one range:
 *
 *	0            lo                                           hi          end
 *	| spare lines | heap: items, dead and live, and two gaps  | buckets |
 *
 * The heap has no holes: from lo to hi every byte belongs to an item, to a filler (a dead item
 * without a key), or to a gap. Items are appended to the active gap. Before the active gap is full,
 * compaction makes the next one: a pass over a part of the heap, the window, moves the live items
 * towards the start of the window, in order, and leaves a gap at its end.
 *
 * Regions only keep accounts: how many bytes are live, when the region was last written, how many
 * bytes expire when. Items may cross region borders, so an item may be larger than a region.
 */
#ifndef GN_KV_LOG_H
#define GN_KV_LOG_H

#include "kv/item.h"

/*
 * No live item is evicted while more than this share of a store's memory is garbage, that is,
 * neither live items, nor the item to be stored, nor the index. Compaction keeps some distance to
 * this limit.
 */
#define KV_GARBAGE_PCT 15u
#define KV_EVICT_SHIFT 3u /* evict when garbage is at most memory >> 3 */

/* An operation visits at most this many bytes of the heap per byte that it stores. */
#define KV_WORK_FACTOR 16u

#define KV_REGIONS     128u /* at least, unless they would be too small */
#define KV_REGION_MIN  (1u << 10)
#define KV_REGION_MAX  (4u << 20)
#define KV_EXPIRY_BINS 16u

/*
 * A histogram of bytes by expiry time: bins of 1 << shift seconds, the first from base << shift on.
 * Bins are as wide as their content requires.
 */
struct kv_expiry {
	uint32_t base, shift;
	uint32_t all; /* bytes in all bins */
	uint32_t bytes[KV_EXPIRY_BINS];
};

struct kv_region {
	uint32_t first; /* location of the first item that begins here or behind */
	uint32_t live;	/* bytes of live items that begin here */
	uint32_t order; /* when a gap in it became the active one, as a serial number */
	struct kv_expiry expiry;
};

/* A range of locations; empty if at == end. */
struct kv_gap {
	uint32_t at, end;
};

/* [begin, to) is compacted, [to, at) is free, [at, end) is still to be visited. */
struct kv_pass {
	bool running, evict;
	uint32_t begin, to, at, end;
	uint32_t need;		 /* bytes of the item that needs the gap, or 0 */
	uint32_t kept, keep_max; /* bytes of recently used items kept by an evicting pass */
};

struct kv_log {
	uint32_t lo, hi; /* bounds of the heap */
	uint32_t fresh;	 /* memory above was never written, not even before a clear */
	uint32_t high;	 /* memory above was not written since the last clear */
	struct kv_gap active, next;
	struct kv_pass pass;
	struct kv_region *regions;
	uint32_t n_regions, order;
	unsigned region_shift; /* units per region: 1 << region_shift */
	uint32_t scratch;      /* bypass: location of a buffer for the largest item; else 0 */
	uint64_t expired;      /* bytes of expired items that are still in the heap */
	uint32_t expired_s;    /* when expired was computed */
	uint64_t evacuating;   /* bytes of items being moved out of a cut end of the heap */
	uint64_t work;	       /* bytes visited so far: for tests */
};

static inline uint32_t kv_gap_len(const struct kv_gap *g)
{
	return g->end - g->at;
}

/* expiry.c */
void kv_expiry_add(struct kv_expiry *e, uint32_t when_s, uint32_t bytes);
void kv_expiry_remove(struct kv_expiry *e, uint32_t when_s, uint32_t bytes);
/* Bytes that have expired by now_s, without those of the current bin. */
uint32_t kv_expiry_by(const struct kv_expiry *e, uint32_t now_s);

#endif
