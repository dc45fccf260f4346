/* SPDX-License-Identifier: MIT */
/*
 * A store as its files see it: a partition of keys, and the memory that it may use.
 *
 * Memory is one range (log.h): the heap, where items are, in its middle, and the index at its ends.
 * Memory is touched as the store fills.
 *
 * An index says where the item with a key is, as a place: bytes from the beginning of memory, in
 * units of eight. There are two: buckets (index.c), and a table that clients read (cuckoo.c).
 */
#ifndef GN_KV_STORE_H
#define GN_KV_STORE_H

#include "base/bits.h"
#include "kv/item.h"
#include "kv/log.h"

#define KV_LINE 8u /* slots of a bucket */

/*
 * While more than a quarter of memory is free or garbage, a use is recorded (in the item, and in
 * the order of its bucket) only if the last recorded one is older than this: so most GETs write
 * nothing. With less, every use is recorded, because soon it decides what is evicted.
 */
#define KV_USE_S 8u

struct kv_cuckoo;

struct gn_kv_store {
	/* memory */
	void *memory; /* what base is in, if not in mem */
	uint8_t *base;
	struct kv_log log;

	/* buckets: the first ends where memory does, and each next one is before it */
	uint8_t *buckets_end;
	uint32_t room, most;   /* buckets for which there is memory, and could ever be */
	uint32_t level, split; /* there are level + split buckets; level is a power of two */
	uint32_t spare;	       /* the first free line, as a place; 0: none */
	uint32_t spare_next;   /* from here up to the heap none was ever used */
	uint32_t spare_free;   /* lines, of both kinds */
	uint32_t found_at;     /* the slot that was found last */
	bool wide;	       /* most items take more than a line */
	bool index_wants;      /* kv_index_reserve() has something to do */

	struct kv_cuckoo *cuckoo; /* in place of buckets, or NULL */
	struct gn_mem *mem;	  /* what base is in, then */
	uint32_t first_place;	  /* … and the heap begins there */

	uint64_t seed;	  /* of the hash: nothing that clients see may derive from it */
	uint64_t version; /* of the item that was stored last */
	uint32_t max_value;
	uint64_t start_ns;
	uint32_t now_s;	     /* since then, from 1 */
	uint32_t recent_use; /* the next use of an item that was used since then is not recorded */
	uint32_t clear_at_s; /* 0: never */
	struct gn_kv_stats stats;
};

static inline struct kv_item *kv_at(const struct gn_kv_store *s, uint32_t place)
{
	return (struct kv_item *)(s->base + (uint64_t)place * KV_UNIT);
}

/*
 * Versions are below 2^53, so that clients may keep them in a double, and 0 is none. They begin
 * anywhere in the lower half, by a number drawn for them alone, so a version of a store that was
 * there before is hardly one of this, and the first 2^52 are all different.
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
	struct gn_fabric *fabric; /* for a store that is read by clients; NULL: it is not */
};
int kv_store_make(const struct kv_store_opts *opts, struct gn_kv_store **out);
/* Look at the clock, and do what is due. */
void kv_tick(struct gn_kv_store *store);
/* What n operations cost, where time is simulated. */
void kv_charge(unsigned n);

/* verbs.c: does it, except that a value that was found is left where it is; NULL: none was. */
const struct kv_item *kv_execute(struct gn_kv_store *store, struct gn_kv_op *op);
/* The item, which was found at found_at of its bucket, is used. */
void kv_record_use(struct gn_kv_store *store, const struct gn_kv_op *op, uint32_t place);

/*
 * log.c. Making room may move or evict any item: places that were known before are not valid
 * after kv_log_add(). 0: there is no room.
 */
int kv_log_make(struct gn_kv_store *store);
uint32_t kv_log_add(struct gn_kv_store *store, uint32_t bytes);
/* What was added last is not wanted. */
void kv_log_undo(struct gn_kv_store *store, uint32_t place, uint32_t bytes);
void kv_log_kill(struct gn_kv_store *store, uint32_t place);
/* The item that is there has an expiry from now on, or will not have this one any more. */
void kv_log_timed(struct gn_kv_store *store, uint32_t place);
void kv_log_untimed(struct gn_kv_store *store, uint32_t place);
/* Memory is full: an item can only be added if another one is evicted. */
bool kv_log_short(struct gn_kv_store *store);
/* Which uses are recorded from now on: after a change of memory, or of the time. See KV_USE_S. */
void kv_log_judge_uses(struct gn_kv_store *store);
/* Everything is forgotten; the heap is from lo to hi. */
void kv_log_clear(struct gn_kv_store *store, uint32_t lo, uint32_t hi);
/* Take so many units from an end of the heap; false: it has too few. Items may be moved. */
bool kv_log_cut_top(struct gn_kv_store *store, uint32_t units);
bool kv_log_cut_bottom(struct gn_kv_store *store, uint32_t units);
/* So many bytes are used elsewhere from now on; false: too much was written already. And back. */
bool kv_log_shrink(struct gn_kv_store *store, uint64_t bytes);
void kv_log_unshrink(struct gn_kv_store *store, uint64_t bytes);
/* Bytes of memory that are not the heap's: the index. */
uint64_t kv_log_reserved(const struct gn_kv_store *store);

/* index.c, cuckoo.c: the same for each kind of index. */
#define KV_INDEX_OF(kind)                                                                          \
	uint32_t kv_##kind##_find(struct gn_kv_store *s, uint64_t hash, const void *key,           \
				  uint32_t key_len);                                               \
	void kv_##kind##_link(struct gn_kv_store *s, uint64_t hash, uint32_t place);               \
	void kv_##kind##_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to); \
	void kv_##kind##_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t place);             \
	void kv_##kind##_clear(struct gn_kv_store *s)
KV_INDEX_OF(bucket);
KV_INDEX_OF(cuckoo);
#undef KV_INDEX_OF
void kv_cuckoo_prefetch_entries(const struct gn_kv_store *store, uint64_t hash);
void kv_cuckoo_prefetch_item(const struct gn_kv_store *store, uint64_t hash);
void kv_bucket_promote(struct gn_kv_store *store, uint64_t hash, uint32_t place);
uint32_t kv_bucket_oldest(const struct gn_kv_store *store, uint64_t hash);
void kv_index_make(struct gn_kv_store *store);
/* Make room for what the next item may need of the index. Items may be moved. */
void kv_index_reserve(struct gn_kv_store *store);

static inline uint32_t kv_find(struct gn_kv_store *s, uint64_t hash, const void *key,
			       uint32_t key_len)
{
	return unlikely(s->cuckoo) ? kv_cuckoo_find(s, hash, key, key_len) :
				     kv_bucket_find(s, hash, key, key_len);
}

/* What was found last is the most recently used of its bucket. */
static inline void kv_promote(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	if (likely(!s->cuckoo))
		kv_bucket_promote(s, hash, place);
}

/* A key that is not there; if need be another is forgotten for it. */
static inline void kv_link(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_link(s, hash, place);
	else
		kv_bucket_link(s, hash, place);
}

/* The item is elsewhere, or another. */
static inline void kv_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_relink(s, hash, from, to);
	else
		kv_bucket_relink(s, hash, from, to);
}

static inline void kv_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	if (unlikely(s->cuckoo))
		kv_cuckoo_unlink(s, hash, place);
	else
		kv_bucket_unlink(s, hash, place);
}

/* The least recently used of the bucket; 0: it is empty, or there are none. */
static inline uint32_t kv_oldest(const struct gn_kv_store *s, uint64_t hash)
{
	return unlikely(s->cuckoo) ? 0 : kv_bucket_oldest(s, hash);
}

/* Nothing is there any more. */
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

/* Is it to be recorded that it is used now? See KV_USE_S. */
static inline bool kv_use_matters(const struct gn_kv_store *s, const struct kv_item *item)
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

/* Counts an item that is dropped to make room: if it lives in *evicted, else as expired. */
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

/* The item dies: of its index, and of its memory. */
void kv_forget(struct gn_kv_store *store, uint64_t hash, uint32_t place);

#endif
