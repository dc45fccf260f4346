/* SPDX-License-Identifier: MIT */
/*
 * An entry of the table that clients READ:
 *
 *	id     40 bits of the key's hash, and the low 24 bits of a serial number
 *	where  the item's location in 32 bits, its size in 18, both in units of eight bytes; and 14
 *	       more bits of the serial number
 *	sum    CRC-64 of the item, from its lengths to the last byte of its value
 *	crc    CRC-64 of the three words before, such that zeros have crc zero: memory that was
 *	       never written is an empty entry
 *
 * Every entry written, in any table, gets a new serial number. So an entry never has the same words
 * again after it had others, until 2^38 entries were written: if two READs return the same words,
 * the entry did not change between them.
 */
#ifndef GN_KV_ENTRY_H
#define GN_KV_ENTRY_H

#include "kv/item.h"

#define KV_WAYS 3u /* entries that a key may be in */

struct kv_entry {
	uint64_t id, where, sum, crc;
};
_Static_assert(sizeof(struct kv_entry) == 32, "entries share no line with others but one");
_Static_assert(offsetof(struct kv_entry, where) == 8 && offsetof(struct kv_entry, sum) == 16 &&
		       offsetof(struct kv_entry, crc) == 24,
	       "what clients read");

#define KV_ENTRY_TAG_BITS  40u
#define KV_ENTRY_LOW_BITS  (64u - KV_ENTRY_TAG_BITS) /* bits of the serial number in id */
#define KV_ENTRY_SIZE_BITS 18u
#define KV_ENTRY_HIGH	   (32u + KV_ENTRY_SIZE_BITS) /* position of its upper bits in where */
/* size of an entry whose table was replaced */
#define KV_ENTRY_MOVED 1u

_Static_assert((KV_ITEM_HEAD + sizeof(struct kv_ext) + GN_KV_KEY_MAX + GN_KV_VALUE_MAX) / KV_UNIT +
			       1 <
		       1u << KV_ENTRY_SIZE_BITS,
	       "an entry can hold the size of any item");

/*
 * The bits of a hash that an entry stores and that select its position. Independent of the
 * partition.
 */
static inline uint64_t kv_tag(uint64_t hash)
{
	return (hash ^ hash >> (64 - KV_ENTRY_TAG_BITS)) & ((1ull << KV_ENTRY_TAG_BITS) - 1);
}

static inline uint64_t kv_entry_tag(const struct kv_entry *e)
{
	return e->id >> KV_ENTRY_LOW_BITS;
}

static inline uint32_t kv_entry_loc(const struct kv_entry *e)
{
	return (uint32_t)e->where;
}

static inline uint32_t kv_entry_size(const struct kv_entry *e)
{
	return (uint32_t)(e->where >> 32 & ((1u << KV_ENTRY_SIZE_BITS) - 1)) * KV_UNIT;
}

static inline bool kv_entry_moved(const struct kv_entry *e)
{
	return !kv_entry_loc(e) && kv_entry_size(e);
}

static inline uint64_t kv_entry_crc(const struct kv_entry *e)
{
	return ~gn_crc64(~0ull, e, offsetof(struct kv_entry, crc));
}

/* The way-th entry for a key with this tag, in a table of 1 << bits entries. */
static inline uint32_t kv_entry_index(uint64_t tag, unsigned way, unsigned bits)
{
	static const uint64_t odd[KV_WAYS] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f,
					      0xd6e8feb86659fd93};

	return (uint32_t)(tag * odd[way] >> (64 - bits));
}

static inline uint64_t kv_item_sum(const struct kv_item *item)
{
	return gn_crc64(0, (const uint8_t *)item + KV_ITEM_UNSUMMED,
			kv_item_end(item->lengths) - KV_ITEM_UNSUMMED);
}

#endif
