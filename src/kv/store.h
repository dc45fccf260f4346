/* SPDX-License-Identifier: MIT */
/*
 * Internal state of a store: one partition of the keys, and its memory.
 *
 * Memory is one range (log.h): the heap with the items in its middle, and the index at its ends.
 * Pages are touched as the store fills.
 *
 * An index maps a key to the location of its item: the offset from the start of memory, in units of
 * eight bytes (KV_UNIT). There are two kinds: buckets (index.c), and a table that clients READ
 * (cuckoo.c).
 */
#ifndef GN_KV_STORE_H
#define GN_KV_STORE_H

#include "base/bits.h"
#include "kv/item.h"
#include "kv/log.h"

#define KV_LINE_SLOTS 8u /* slots per line of a bucket */

/*
 * While more than a quarter of memory is free or garbage, a use is recorded (in the item, and in
 * the order of its bucket) only if the last recorded use is older than this: so most GETs write
 * nothing. With less free memory every use is recorded, because it will decide what is evicted.
 */
#define KV_USE_S 8u

struct kv_cuckoo;

struct gn_kv_store {
	/* memory */
	void *memory; /* allocation of base, if not in mem */
	uint8_t *base;
	struct kv_log log;

	/* buckets grow down from the end of memory */
	uint8_t *buckets_end;
	uint32_t bucket_capacity, bucket_max; /* allocated, and the limit */
	uint32_t level, split;	/* there are level + split buckets; level is a power of two */
	uint32_t spare;		/* location of the first free spare line; 0: none */
	uint32_t spare_next;	/* from here up to the heap spare lines were never used */
	uint32_t spare_free;	/* free spare lines, of both kinds */
	uint32_t found_slot;	/* slot of the last found item */
	bool wide;		/* most items are longer than a cache line */
	bool index_needs_space; /* kv_index_reserve() must be called */

	struct kv_cuckoo *cuckoo; /* instead of buckets, or NULL */
	struct gn_mem *mem;	  /* allocation of base, with cuckoo */
	uint32_t first_loc;	  /* start of the heap, with cuckoo */

	uint64_t seed;	  /* of the hash; clients must not be able to derive it */
	uint64_t version; /* of the last stored item */
	uint32_t max_value;
	uint64_t start_ns;
	uint32_t now_s;	     /* seconds since start_ns, from 1 */
	uint32_t recent_use; /* a use of an item that was used after this is not recorded */
	uint32_t clear_at_s; /* 0: never */
	struct gn_kv_stats stats;
};

static inline struct kv_item *kv_item_at(const struct gn_kv_store *s, uint32_t loc)
{
	return (struct kv_item *)(s->base + (uint64_t)loc * KV_UNIT);
}

/*
 * Versions are below 2^53, so that clients may keep them in a double; 0 is no version. They start
 * at a random number in the lower half, drawn for this purpose only: a version of a former store is
 * very unlikely to recur, and the first 2^52 versions are distinct.
 */
#define KV_VERSION_BITS 53u

static inline uint64_t kv_next_version(struct gn_kv_store *s)
{
	s->version = (s->version + 1) & ((1ull << KV_VERSION_BITS) - 1);
	s->version += !s->version;
	return s->version;
}

/* store.c */
struct kv_store_opts {
	struct gn_kv_store_opts open;
	struct gn_fabric *fabric; /* for a store with bypass; NULL: no bypass */
};
int kv_store_make(const struct kv_store_opts *opts, struct gn_kv_store **out);
/* Reads the clock and executes a due clear. */
void kv_tick(struct gn_kv_store *store);
/* Simulated cost of n operations. */
void kv_charge(unsigned n);

/*
 * commands.c: executes the operation. The value of a GET is not copied: returns its item, or NULL.
 */
const struct kv_item *kv_execute(struct gn_kv_store *store, struct gn_kv_op *op);
/* Records a use of the item, which was found in found_slot of its bucket. */
void kv_record_use(struct gn_kv_store *store, const struct gn_kv_op *op, uint32_t loc);

/*
 * log.c. kv_log_add() may move or evict any item: locations obtained before are invalid afterwards.
 * 0: no space.
 */
int kv_log_make(struct gn_kv_store *store);
uint32_t kv_log_add(struct gn_kv_store *store, uint32_t bytes);
/* Drops the item added last. */
void kv_log_undo_add(struct gn_kv_store *store, uint32_t loc, uint32_t bytes);
void kv_log_remove(struct gn_kv_store *store, uint32_t loc);
/* Account for the expiry of the item at loc: after it is set, before it is changed. */
void kv_log_expiry_add(struct gn_kv_store *store, uint32_t loc);
void kv_log_expiry_remove(struct gn_kv_store *store, uint32_t loc);
/* True if an item can be added only by evicting another. */
bool kv_log_is_full(struct gn_kv_store *store);
/* Updates recent_use after a change of memory or time: see KV_USE_S. */
void kv_log_update_recent_use(struct gn_kv_store *store);
/* Removes everything; the heap is from lo to hi. */
void kv_log_clear(struct gn_kv_store *store, uint32_t lo, uint32_t hi);
/* Cut units off an end of the heap. False: the heap is too small. Items may be moved. */
bool kv_log_cut_top(struct gn_kv_store *store, uint32_t units);
bool kv_log_cut_bottom(struct gn_kv_store *store, uint32_t units);
/*
 * Give bytes at the top of the heap to the table, and take them back. False: they were written
 * already.
 */
bool kv_log_shrink(struct gn_kv_store *store, uint64_t bytes);
void kv_log_unshrink(struct gn_kv_store *store, uint64_t bytes);
/* Bytes of memory outside the heap: the index. */
uint64_t kv_log_reserved(const struct gn_kv_store *store);

/* index.c, cuckoo.c: the same functions for both kinds of index. */
#define KV_INDEX_OF(kind)                                                                          \
	uint32_t kv_##kind##_find(struct gn_kv_store *s, uint64_t hash, const void *key,           \
				  uint32_t key_len);                                               \
	void kv_##kind##_link(struct gn_kv_store *s, uint64_t hash, uint32_t loc);                 \
	void kv_##kind##_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to); \
	void kv_##kind##_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t loc);               \
	void kv_##kind##_clear(struct gn_kv_store *s)
KV_INDEX_OF(bucket);
KV_INDEX_OF(cuckoo);
#undef KV_INDEX_OF
void kv_cuckoo_prefetch_entries(const struct gn_kv_store *store, uint64_t hash);
void kv_cuckoo_prefetch_item(const struct gn_kv_store *store, uint64_t hash);
void kv_bucket_promote(struct gn_kv_store *store, uint64_t hash, uint32_t loc);
uint32_t kv_bucket_oldest(const struct gn_kv_store *store, uint64_t hash);
void kv_index_make(struct gn_kv_store *store);
/* Reserve the space that the next item may need in the index. Items may be moved. */
void kv_index_reserve(struct gn_kv_store *store);

static inline uint32_t kv_find(struct gn_kv_store *s, uint64_t hash, const void *key,
			       uint32_t key_len)
{
	return unlikely(s->cuckoo) ? kv_cuckoo_find(s, hash, key, key_len) :
				     kv_bucket_find(s, hash, key, key_len);
}

/* Make the item found last the most recently used of its bucket. */
static inline void kv_promote(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	if (likely(!s->cuckoo))
		kv_bucket_promote(s, hash, loc);
}

/* Add a new key; another may be evicted for it. */
static inline void kv_link(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_link(s, hash, loc);
	else
		kv_bucket_link(s, hash, loc);
}

/* The item was moved or replaced. */
static inline void kv_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_relink(s, hash, from, to);
	else
		kv_bucket_relink(s, hash, from, to);
}

static inline void kv_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_unlink(s, hash, loc);
	else
		kv_bucket_unlink(s, hash, loc);
}

/* The least recently used item of the bucket; 0: none. */
static inline uint32_t kv_oldest(const struct gn_kv_store *s, uint64_t hash)
{
	return unlikely(s->cuckoo) ? 0 : kv_bucket_oldest(s, hash);
}

static inline void kv_index_clear(struct gn_kv_store *s)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_clear(s);
	else
		kv_bucket_clear(s);
}

static inline bool kv_has_expired(const struct gn_kv_store *s, const struct kv_item *item)
{
	const uint32_t expires = kv_expires(item);

	return expires && expires <= s->now_s;
}

/* Must this use be recorded? See KV_USE_S. */
static inline bool kv_must_record_use(const struct gn_kv_store *s, const struct kv_item *item)
{
	return item->used < s->recent_use || ~item->used & (KV_ITEM_HIT | KV_ITEM_RECENT);
}

static inline void kv_count_hit(struct gn_kv_store *s)
{
	s->stats.gets++;
	s->stats.hits++;
}

static inline void kv_count_expired(struct gn_kv_store *s, const struct kv_item *item)
{
	s->stats.expired++;
	s->stats.expired_unfetched += !(item->used & KV_ITEM_HIT);
}

/* Counts an item dropped to free memory: in *evicted if it is live, else as expired. */
static inline void kv_count_dropped(struct gn_kv_store *s, const struct kv_item *item,
				    uint64_t *evicted)
{
	if (kv_has_expired(s, item)) {
		kv_count_expired(s, item);
		return;
	}
	*evicted += 1;
	s->stats.evicted_unfetched += !(item->used & KV_ITEM_HIT);
	s->stats.evicted_ttl += kv_expires(item) != 0;
	s->stats.evicted_idle_s = s->now_s - (item->used >> KV_ITEM_BITS);
}

/* Removes the item from its index and frees its memory. */
void kv_item_remove(struct gn_kv_store *store, uint64_t hash, uint32_t loc);

#endif
