/* SPDX-License-Identifier: MIT */
/*
 * Buckets, as a lookup sees them: lines of eight slots. A slot is 32 bits of the key's hash and the
 * item's location; used slots come first. The last slot of a line may link to another line
 * (index.c).
 */
#ifndef GN_KV_BUCKET_H
#define GN_KV_BUCKET_H

#include "kv/store.h"

#define KV_LINK	      (1ull << 31) /* in a slot: the rest is the location of a line */
#define KV_LINE_BYTES (KV_LINE_SLOTS * sizeof(uint64_t))

static inline uint64_t *kv_line_at(const struct gn_kv_store *s, uint32_t loc)
{
	return (uint64_t *)(void *)(s->base + (uint64_t)loc * KV_UNIT);
}

static inline uint64_t *kv_bucket(const struct gn_kv_store *s, uint32_t n)
{
	return (uint64_t *)(void *)(s->buckets_end - ((uint64_t)n + 1) * KV_LINE_BYTES);
}

static inline uint64_t *kv_bucket_of(const struct gn_kv_store *s, uint64_t hash)
{
	uint32_t n = (uint32_t)hash & (s->level - 1);

	if (n < s->split)
		n = (uint32_t)hash & (2 * s->level - 1);
	return kv_bucket(s, n);
}

static inline unsigned kv_line_slots(const uint64_t *line)
{
	return KV_LINE_SLOTS - !!(line[KV_LINE_SLOTS - 1] & KV_LINK);
}

static inline uint64_t *kv_line_next(const struct gn_kv_store *s, const uint64_t *line)
{
	const uint64_t last = line[KV_LINE_SLOTS - 1];

	return last & KV_LINK ? kv_line_at(s, (uint32_t)(last & ~KV_LINK)) : NULL;
}

/* A bit for each slot with this hash. */
static inline unsigned kv_line_match(const uint64_t *line, uint64_t hash)
{
#ifdef __SSE2__
	const __m128 *two = (const __m128 *)(const void *)line;
	const __m128i wanted = _mm_set1_epi32((int)hash);
	/* the upper halves of four slots each */
	const __m128i low = _mm_castps_si128(_mm_shuffle_ps(two[0], two[1], 0xdd));
	const __m128i high = _mm_castps_si128(_mm_shuffle_ps(two[2], two[3], 0xdd));

	return (unsigned)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(low, wanted))) |
	       (unsigned)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(high, wanted))) << 4;
#else
	unsigned found = 0;

	for (unsigned i = 0; i < KV_LINE_SLOTS; i++)
		found |= (unsigned)((uint32_t)(line[i] >> 32) == (uint32_t)hash) << i;
	return found;
#endif
}

/* 0: the slot is empty or a link. */
static inline uint32_t kv_slot_loc(uint64_t slot)
{
	return slot & KV_LINK ? 0 : (uint32_t)slot;
}

/*
 * A lookup has three steps, so that lookups of several operations overlap: prefetch the bucket;
 * find the hash in it and prefetch the item; execute (kv_execute()). Each step runs
 * KV_PREFETCH_DISTANCE operations before the next one. Operations in between may change the bucket:
 * op->line and op->step are a hint that the third step checks.
 */
#define KV_PREFETCH_DISTANCE 10u

static inline void kv_prefetch_bucket(const struct gn_kv_store *s, struct gn_kv_op *op)
{
	if (unlikely(s->cuckoo)) {
		kv_cuckoo_prefetch_entries(s, op->hash);
		return;
	}
	op->line = kv_bucket_of(s, op->hash);
	__builtin_prefetch(op->line);
}

static inline void kv_prefetch_item(const struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint64_t *line = op->line;
	unsigned found, at;

	if (unlikely(s->cuckoo)) {
		kv_cuckoo_prefetch_item(s, op->hash);
		op->step = KV_LINE_SLOTS;
		return;
	}
	found = kv_line_match(line, op->hash);
	op->step = (uint32_t)__builtin_ctz(found | 1u << KV_LINE_SLOTS);
	at = found ? op->step : KV_LINE_SLOTS - 1;
	if (likely(found || line[at] & KV_LINK)) {
		const uint8_t *next = s->base + (line[at] & (KV_LINK - 1)) * KV_UNIT;

		__builtin_prefetch(next);
		if (s->wide)
			__builtin_prefetch(next + KV_LINE_BYTES);
	}
}

/* The location of the item with the operation's key, if the hint is right; else 0. */
static force_inline uint32_t kv_find_hinted(const struct gn_kv_store *s, const struct gn_kv_op *op)
{
	uint64_t slot;
	uint32_t loc;

	if (unlikely(op->step >= KV_LINE_SLOTS))
		return 0;
	slot = ((const uint64_t *)op->line)[op->step];
	loc = kv_slot_loc(slot);
	return likely((uint32_t)(slot >> 32) == (uint32_t)op->hash && loc &&
		      kv_key_is(kv_item_at(s, loc), op->key, op->key_len)) ?
		       loc :
		       0;
}

/* The location of the item with the operation's key; 0: none. */
static inline uint32_t kv_find_op(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	const uint32_t loc = kv_find_hinted(s, op);

	if (unlikely(!loc))
		return kv_find(s, op->hash, op->key, op->key_len);
	s->found_slot = op->step;
	return loc;
}

/*
 * The common GET: no options, and an item without flags and expiry. Of op only found is set. NULL:
 * not this case, nothing was changed, and kv_execute() must be used.
 */
static force_inline const struct kv_item *kv_get_fast(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t loc = kv_find_hinted(s, op);
	const struct kv_item *item = kv_item_at(s, loc);

	if (unlikely(!loc || item->lengths & KV_EXT))
		return NULL;
	op->found = item->used & KV_ITEM_FOUND;
	kv_count_hit(s);
	if (unlikely(kv_must_record_use(s, item))) {
		s->found_slot = op->step;
		kv_record_use(s, op, loc);
	}
	return item;
}

#endif
