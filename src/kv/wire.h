/* SPDX-License-Identifier: MIT */
/*
 * The messages of a store. Each operation is one call: KV_DO, or KV_SCAN for a page of keys, which
 * takes longer. RPC batches calls. Integers are little-endian. No struct here is public.
 */
#ifndef GN_KV_WIRE_H
#define GN_KV_WIRE_H

#include <stddef.h>

#include "base/bits.h"
#include "base/preempt.h"
#include "kv/item.h"

#define KV_VERSION 4u
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian hosts only");

enum kv_method { KV_DO = 1, KV_LAYOUT, KV_STATS, KV_CLEAR, KV_SCAN };

/* A request: this head, the fields that how and verb select, the key, and the value. */
struct kv_request {
	uint8_t verb, key_len;
	uint16_t how;	     /* enum gn_kv_how, and the bit below */
	uint32_t room_bytes; /* GET, SCAN: space for the value; else 0 */
};
#define KV_REQUEST_FLAGS_TTL 0x8000u /* flags and ttl_s follow; else both are 0 */
_Static_assert(sizeof(struct kv_request) == 8 && offsetof(struct kv_request, key_len) == 1 &&
		       offsetof(struct kv_request, how) == 2 &&
		       offsetof(struct kv_request, room_bytes) == 4,
	       "wire");

/* A response: this head, the fields that bits selects, and the value up to the end. */
struct kv_response {
	uint8_t status, found;
	uint16_t bits;
	uint32_t len; /* of the stored value */
};
_Static_assert(sizeof(struct kv_response) == 8 && offsetof(struct kv_response, found) == 1 &&
		       offsetof(struct kv_response, bits) == 2 &&
		       offsetof(struct kv_response, len) == 4,
	       "wire");
enum kv_response_bit {
	KV_RESPONSE_FLAGS = 1 << 0,
	KV_RESPONSE_CAS = 1 << 1,
	KV_RESPONSE_TIMES = 1 << 2, /* ttl_s, idle_s */
	KV_RESPONSE_NUMBER = 1 << 3,
	KV_RESPONSE_WAS = 1 << 4,   /* was_ttl_s, if different from ttl_s */
	KV_RESPONSE_VALUE = 1 << 5, /* len bytes of value follow */
	KV_RESPONSE_BITS = 1 << 6,
};

/* On the wire only: the key belongs to another partition. */
#define KV_WRONG_PARTITION GN_KV_STATUSES

/* Maximum size of a response without its value. */
#define KV_RESPONSE_FIELDS 5u
#define KV_RESPONSE_MAX	   (sizeof(struct kv_response) + KV_RESPONSE_FIELDS * sizeof(uint64_t))

/* Request of KV_LAYOUT. */
struct kv_layout_request {
	uint64_t expose; /* 1: expose the partition's memory, if bypass is enabled */
};
_Static_assert(sizeof(struct kv_layout_request) == 8, "wire");

/* struct gn_rpc_view on the wire. */
struct kv_view {
	uint64_t bytes;
	uint32_t key, epoch;
};
_Static_assert(sizeof(struct kv_view) == 16 && offsetof(struct kv_view, key) == 8 &&
		       offsetof(struct kv_view, epoch) == 12,
	       "wire");

static inline struct kv_view kv_view_write(const struct gn_rpc_view *view)
{
	return (struct kv_view){.bytes = view->bytes, .key = view->key, .epoch = view->epoch};
}

static inline struct gn_rpc_view kv_view_read(const struct kv_view *view)
{
	return (struct gn_rpc_view){.bytes = view->bytes, .key = view->key, .epoch = view->epoch};
}

/* Response of KV_LAYOUT. */
struct kv_layout {
	uint32_t version, partitions;
	uint32_t max_value;
	uint32_t now_s; /* the partition's clock */
	uint64_t seed;
	uint64_t epoch; /* random, differs between servers */
	/* for bypass; the views are set only if requested */
	uint32_t bypass;     /* 1: bypass is enabled */
	uint32_t table_bits; /* 1 << table_bits entries */
	uint64_t age_ns;     /* age of the store; now_s counts its seconds from 1 */
	struct kv_view items, table;
};
_Static_assert(sizeof(struct kv_layout) == 80 && offsetof(struct kv_layout, partitions) == 4 &&
		       offsetof(struct kv_layout, max_value) == 8 &&
		       offsetof(struct kv_layout, now_s) == 12 &&
		       offsetof(struct kv_layout, seed) == 16 &&
		       offsetof(struct kv_layout, epoch) == 24 &&
		       offsetof(struct kv_layout, bypass) == 32 &&
		       offsetof(struct kv_layout, table_bits) == 36 &&
		       offsetof(struct kv_layout, age_ns) == 40 &&
		       offsetof(struct kv_layout, items) == 48 &&
		       offsetof(struct kv_layout, table) == 64,
	       "wire");

/* Request of KV_CLEAR. */
struct kv_clear {
	uint32_t delay_s, zero;
};
_Static_assert(sizeof(struct kv_clear) == 8 && offsetof(struct kv_clear, zero) == 4, "wire");

/*
 * Response of KV_STATS: one u64 per field, little-endian, in this order. Append new fields, and
 * change KV_VERSION with them.
 */
/* clang-format off */
#define KV_STATS_FIELDS(X) \
	X(items) X(item_bytes) X(memory) X(used) X(buckets) X(spare_lines) X(gets) \
	X(hits) X(misses) X(touches) X(touch_misses) X(sets) X(stored) X(deletes) \
	X(delete_misses) X(numbers) X(incr_hits) X(incr_misses) X(decr_hits) \
	X(decr_misses) X(cas_ok) X(cas_bad) X(cas_misses) X(evicted_bucket) \
	X(evicted_log) X(evicted_unfetched) X(evicted_ttl) X(evicted_idle_s) X(expired) \
	X(expired_get) X(expired_unfetched) X(clears) X(too_big) X(moved) X(splits) \
	X(kicks) X(no_memory) X(partitions) X(uptime_s)
/* clang-format on */

#define KV_STATS_ONE(field) +1
#define KV_STATS_WORDS	    (0 KV_STATS_FIELDS(KV_STATS_ONE))
_Static_assert(sizeof(struct gn_kv_stats) - sizeof(size_t) == KV_STATS_WORDS * sizeof(uint64_t),
	       "all statistics are sent");
_Static_assert(KV_STATS_WORDS == 39, "fields of version 4");

void kv_stats_write(uint64_t to[KV_STATS_WORDS], const struct gn_kv_stats *stats);
void kv_stats_read(const uint64_t from[KV_STATS_WORDS], struct gn_kv_stats *out);

/* A GET without options. */
static inline bool kv_is_plain_get(const struct gn_kv_op *op)
{
	return op->verb == GN_KV_GET && !op->how;
}

/* Capped: no value is longer. */
static inline uint32_t kv_room_bytes(const struct gn_kv_op *op)
{
	return op->room_bytes < GN_KV_VALUE_MAX ? op->room_bytes : GN_KV_VALUE_MAX;
}

/* Bytes of an operation's request. */
uint32_t kv_request_bytes_any(const struct gn_kv_op *op);
static inline uint32_t kv_request_bytes(const struct gn_kv_op *op)
{
	return likely(kv_is_plain_get(op)) ? (uint32_t)sizeof(struct kv_request) + op->key_len :
					     kv_request_bytes_any(op);
}

/* Writes kv_request_bytes() bytes. */
void kv_request_write_any(uint8_t *to, const struct gn_kv_op *op);
static inline void kv_request_write(uint8_t *to, const struct gn_kv_op *op)
{
	const struct kv_request head = {.verb = GN_KV_GET,
					.key_len = (uint8_t)op->key_len,
					.room_bytes = kv_room_bytes(op)};

	if (unlikely(!kv_is_plain_get(op))) {
		kv_request_write_any(to, op);
		return;
	}
	memcpy(to, &head, sizeof(head));
	kv_copy(to + sizeof(head), op->key, op->key_len);
}

/*
 * Parses a request of len bytes, which may change meanwhile: the key is copied to key, of
 * GN_KV_KEY_MAX bytes; the value stays in place. Sets the members that verb and how need. False:
 * invalid.
 */
bool kv_request_read_any(const uint8_t *from, uint32_t len, uint64_t head_bits, struct gn_kv_op *op,
			 uint8_t *key);
static inline bool kv_request_read(const uint8_t *from, uint32_t len, struct gn_kv_op *op,
				   uint8_t *key)
{
	const uint32_t key_len = len - (uint32_t)sizeof(struct kv_request);
	uint64_t head_bits;

	if (unlikely(len < sizeof(head_bits)))
		return false;
	memcpy(&head_bits, from, sizeof(head_bits));
	__atomic_signal_fence(__ATOMIC_ACQUIRE); /* checked values must not be read again */
	exec_preempt();
	op->key = key;
	op->room_bytes = (uint32_t)(head_bits >> 32);
	/* A plain GET: verb and how are 0, and the key alone follows. */
	if (unlikely((uint32_t)head_bits != key_len << 8 || key_len - 1 >= GN_KV_KEY_MAX))
		return kv_request_read_any(from, len, head_bits, op, key);
	op->verb = GN_KV_GET;
	op->how = 0;
	op->key_len = key_len;
	kv_copy(key, from + sizeof(head_bits), key_len);
	return true;
}

/* A response to be written, with the value of item if it is not NULL. */
struct kv_response_parts {
	struct kv_response head;
	uint32_t bytes; /* in total */
	const struct kv_item *item;
};
/* If the value exceeds room_bytes, the status becomes GN_KV_TOO_BIG. */
void kv_response_make(struct kv_response_parts *result, const struct gn_kv_op *op,
		      const struct kv_item *item);
void kv_response_write(uint8_t *to, const struct kv_response_parts *result,
		       const struct gn_kv_op *op);

/* The response of a plain GET whose value of len bytes fits and has no flags. */
static inline void kv_response_write_plain(uint8_t *to, const struct gn_kv_op *op,
					   const struct kv_item *item, uint32_t len)
{
	const uint64_t head = GN_KV_OK | (op->found & 0xff) << 8 | KV_RESPONSE_VALUE << 16 |
			      (uint64_t)len << 32;

	memcpy(to, &head, sizeof(head));
	kv_copy(to + sizeof(head), item->bytes + kv_key_len(item), len);
}

/* Parses a response into op and copies its value to op->room. False: invalid. */
bool kv_response_read_any(const uint8_t *from, uint32_t len, struct kv_response head,
			  struct gn_kv_op *op);
static inline bool kv_response_read(const uint8_t *from, uint32_t len, struct gn_kv_op *op)
{
	struct kv_response head;

	if (unlikely(len < sizeof(head)))
		return false;
	memcpy(&head, from, sizeof(head));
	/* the server may change a reply: do not read it again */
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	op->status = head.status;
	op->found = head.found;
	op->len = head.len;
	if (unlikely(head.status != GN_KV_OK || head.bits != KV_RESPONSE_VALUE))
		return kv_response_read_any(from, len, head, op);
	if (unlikely(len - sizeof(head) != head.len || head.len > op->room_bytes))
		return false;
	op->flags = 0;
	if (likely(head.len))
		kv_copy(op->room, from + sizeof(head), head.len);
	return true;
}

#endif
