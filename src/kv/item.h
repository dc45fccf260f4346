/* SPDX-License-Identifier: MIT */
/*
 * An item in memory: this struct, an optional extension, the key and the value, padded to eight
 * bytes. A key of 16 bytes with a value of 32 bytes and without extension takes one cache line.
 */
#ifndef GN_KV_ITEM_H
#define GN_KV_ITEM_H

#include <gannet/exec.h>
#include <gannet/kv.h>

#include <stddef.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#define KV_UNIT 8u

struct kv_item {
	/* seconds of the last use, and KV_ITEM_* bits; changes while clients read */
	uint32_t used;
	uint32_t lengths; /* key length in the low eight bits, value length above; KV_EXT */
	uint64_t cas;
	uint8_t bytes[];
};

/* Extension of an item whose lengths have KV_EXT set. */
#define KV_EXT 0x80000000u
struct kv_ext {
	uint32_t flags;
	uint32_t expires; /* in seconds of the store's clock; 0: never */
};

/* Low bits of used; the seconds are above. Three bits have the values of enum gn_kv_found. */
#define KV_ITEM_STALE ((uint32_t)GN_KV_STALE)
#define KV_ITEM_DEAD  2u			   /* garbage until its memory is reused */
#define KV_ITEM_WON   ((uint32_t)GN_KV_LOST)	   /* a client renews the item */
#define KV_ITEM_HIT   ((uint32_t)GN_KV_HIT_BEFORE) /* used since it was stored */
/* used since the last compaction of its memory */
#define KV_ITEM_RECENT 16u
#define KV_ITEM_BITS   5u
#define KV_ITEM_FOUND  (KV_ITEM_STALE | KV_ITEM_WON | KV_ITEM_HIT)
_Static_assert(!(KV_ITEM_FOUND & (KV_ITEM_DEAD | KV_ITEM_RECENT)) &&
		       KV_ITEM_FOUND < 1u << KV_ITEM_BITS,
	       "each bit of used means one thing");

#define KV_ITEM_HEAD 16u
_Static_assert(sizeof(struct kv_item) == KV_ITEM_HEAD && offsetof(struct kv_item, lengths) == 4 &&
		       offsetof(struct kv_item, cas) == 8 && sizeof(struct kv_ext) == 8,
	       "what clients of a store with bypass read");
/* Bytes that the checksum of an item leaves out: used. */
#define KV_ITEM_UNSUMMED 4u

static inline uint32_t kv_key_len(const struct kv_item *item)
{
	return item->lengths & 0xff;
}

static inline uint32_t kv_value_len(const struct kv_item *item)
{
	return (item->lengths & ~KV_EXT) >> 8;
}

static inline uint32_t kv_lengths(uint32_t key_len, uint32_t value_len)
{
	return value_len << 8 | key_len; /* without KV_EXT */
}

static inline struct kv_ext *kv_ext(const struct kv_item *item)
{
	return item->lengths & KV_EXT ? (struct kv_ext *)(void *)item->bytes : NULL;
}

static inline uint32_t kv_flags(const struct kv_item *item)
{
	return item->lengths & KV_EXT ? kv_ext(item)->flags : 0;
}

static inline uint32_t kv_expires(const struct kv_item *item)
{
	return item->lengths & KV_EXT ? kv_ext(item)->expires : 0;
}

static inline uint8_t *kv_key(const struct kv_item *item)
{
	return (uint8_t *)item->bytes + (item->lengths & KV_EXT ? sizeof(struct kv_ext) : 0);
}

static inline uint8_t *kv_value(const struct kv_item *item)
{
	return kv_key(item) + kv_key_len(item);
}

static inline uint32_t kv_round(uint32_t bytes)
{
	return (bytes + KV_UNIT - 1) & ~(KV_UNIT - 1);
}

/* Bytes of an item, and bytes with padding. */
static inline uint32_t kv_item_end(uint32_t lengths)
{
	return (uint32_t)(KV_ITEM_HEAD + (lengths & KV_EXT ? sizeof(struct kv_ext) : 0) +
			  (lengths & 0xff) + ((lengths & ~KV_EXT) >> 8));
}

static inline uint32_t kv_item_bytes(uint32_t lengths)
{
	return kv_round(kv_item_end(lengths));
}

/*
 * Clients may READ an item while it is written; its checksum tells. Under the thread sanitizer
 * these stores and copies are atomic; other builds do not pay for this.
 */
#define KV_STORE_RELAXED(to, value) __atomic_store_n(to, value, __ATOMIC_RELAXED)

#ifdef __SANITIZE_THREAD__

static inline void kv_copy(void *to, const void *from, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		KV_STORE_RELAXED((uint8_t *)to + i, ((const uint8_t *)from)[i]);
}

#else

/* Most keys and values have 16 to 32 bytes: copy two halves that may overlap, without a call. */
static inline void kv_copy(void *to, const void *from, uint32_t len)
{
	uint8_t *end = (uint8_t *)to + len;
	uint64_t a[4];

	if (len - 16 > 16) {
		memcpy(to, from, len);
		return;
	}
	memcpy(a, from, 16);
	memcpy(a + 2, (const uint8_t *)from + len - 16, 16);
	memcpy(to, a, 16);
	memcpy(end - 16, a + 2, 16);
}

#endif

static inline bool kv_same(const void *x, const void *y, uint32_t len)
{
#ifdef __SSE2__
	const __m128i *x16 = x, *y16 = y;
	const __m128i *x_end = (const __m128i *)((const uint8_t *)x + len) - 1;
	const __m128i *y_end = (const __m128i *)((const uint8_t *)y + len) - 1;

	if (len - 16 > 16)
		return !memcmp(x, y, len);
	return _mm_movemask_epi8(_mm_and_si128(
		       _mm_cmpeq_epi8(_mm_loadu_si128(x16), _mm_loadu_si128(y16)),
		       _mm_cmpeq_epi8(_mm_loadu_si128(x_end), _mm_loadu_si128(y_end)))) == 0xffff;
#else
	uint64_t a[4], b[4];

	if (len - 16 > 16)
		return !memcmp(x, y, len);
	memcpy(a, x, 16);
	memcpy(b, y, 16);
	memcpy(a + 2, (const uint8_t *)x + len - 16, 16);
	memcpy(b + 2, (const uint8_t *)y + len - 16, 16);
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
#endif
}

static inline bool kv_key_is(const struct kv_item *item, const void *key, uint32_t key_len)
{
	return kv_key_len(item) == key_len && kv_same(kv_key(item), key, key_len);
}

static inline uint64_t kv_hash(const void *key, uint32_t key_len, uint64_t seed)
{
	const uint64_t hash = XXH3_64bits_withSeed(key, key_len, seed);

#ifdef GN_MUTANTS
	return hash & 0xffffffff000003ff; /* make keys collide */
#else
	return hash;
#endif
}

/* The upper half of the hash selects the partition, the lower half the bucket. */
static inline uint32_t kv_partition(uint64_t hash, uint32_t partitions)
{
	return (uint32_t)((hash >> 32) * partitions >> 32);
}

#endif
