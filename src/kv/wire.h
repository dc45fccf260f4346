/* SPDX-License-Identifier: MIT */
/*
 * What clients and servers of a store send each other. Each operation is one call: KV_DO, or
 * KV_SCAN for a page of keys, which takes longer. RPC puts several of them into a message. Integers
 * are little-endian. Nothing here is a struct of the public headers.
 */
#ifndef GN_KV_WIRE_H
#define GN_KV_WIRE_H

#include <stddef.h>

#include "base/bits.h"
#include "base/preempt.h"
#include "kv/item.h"

#define KV_VERSION 4u
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is, and so are we");

enum kv_method { KV_DO = 1, KV_LAYOUT, KV_STATS, KV_CLEAR, KV_SCAN };

/* An operation: this, the words that its bits and verb ask for, the key, and the value. */
struct kv_request {
	uint8_t verb, key_len;
	uint16_t how;	     /* enum gn_kv_how, and the bit below */
	uint32_t room_bytes; /* GET, SCAN: for the value; else 0 */
};
#define KV_REQUEST_KEPT 0x8000u /* flags and ttl_s follow; else both are 0 */
_Static_assert(sizeof(struct kv_request) == 8 && offsetof(struct kv_request, key_len) == 1 &&
		       offsetof(struct kv_request, how) == 2 &&
		       offsetof(struct kv_request, room_bytes) == 4,
	       "wire");

/* What became of it: this, the words that its bits tell of, and the value to the end. */
struct kv_response {
	uint8_t status, found;
	uint16_t bits;
	uint32_t len; /* of the value that is there */
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
	KV_RESPONSE_WAS = 1 << 4,   /* was_ttl_s, if it is not ttl_s */
	KV_RESPONSE_VALUE = 1 << 5, /* len bytes follow */
	KV_RESPONSE_BITS = 1 << 6,
};

/* On the wire only: the key belongs to another partition. */
#define KV_ELSEWHERE GN_KV_STATUSES

/* The most bytes of a response, without the value. */
#define KV_RESPONSE_WORDS 5u
#define KV_RESPONSE_MAX	  (sizeof(struct kv_response) + KV_RESPONSE_WORDS * sizeof(uint64_t))

/* KV_LAYOUT's request. */
struct kv_layout_ask {
	uint64_t show; /* 1: the partition's memory, if it can be read */
};
_Static_assert(sizeof(struct kv_layout_ask) == 8, "wire");

/* A struct gn_rpc_view. */
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

/* … and answer. */
struct kv_layout {
	uint32_t version, partitions;
	uint32_t max_value;
	uint32_t now_s; /* the partition's clock */
	uint64_t seed;
	uint64_t epoch; /* another with each server */
	/* of a store that clients read; views only if they were asked for */
	uint32_t bypass;     /* 1: it is one */
	uint32_t table_bits; /* there are so many entries, as a power of two */
	uint64_t age_ns;     /* of the store: now_s are its seconds, from 1 */
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

/* KV_CLEAR's request. */
struct kv_clear {
	uint32_t delay_s, zero;
};
_Static_assert(sizeof(struct kv_clear) == 8 && offsetof(struct kv_clear, zero) == 4, "wire");

/*
 * KV_STATS' answer: a word for each, little-endian, in this order. What is new comes last, and
 * KV_VERSION changes with it.
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
	       "everything that is counted is sent");
_Static_assert(KV_STATS_WORDS == 39, "the words of version 4");

void kv_stats_write(uint64_t to[KV_STATS_WORDS], const struct gn_kv_stats *stats);
void kv_stats_read(const uint64_t from[KV_STATS_WORDS], struct gn_kv_stats *out);

/* A GET that needs nothing but its key. */
static inline bool kv_is_plain_get(const struct gn_kv_op *op)
{
	return op->verb == GN_KV_GET && !op->how;
}

/* More than a value can have need not be told. */
static inline uint32_t kv_room_bytes(const struct gn_kv_op *op)
{
	return op->room_bytes < GN_KV_VALUE_MAX ? op->room_bytes : GN_KV_VALUE_MAX;
}

/* How many bytes an operation takes in a request. */
uint32_t kv_request_bytes_any(const struct gn_kv_op *op);
static inline uint32_t kv_request_bytes(const struct gn_kv_op *op)
{
	return likely(kv_is_plain_get(op)) ? (uint32_t)sizeof(struct kv_request) + op->key_len :
					     kv_request_bytes_any(op);
}

/* Write so many bytes there. */
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
 * Read one of len bytes, which may change meanwhile: the key is copied to key, which has room for
 * GN_KV_KEY_MAX, the value stays. Sets what its verb and options need. False: it is none.
 */
bool kv_request_read_any(const uint8_t *from, uint32_t len, uint64_t word, struct gn_kv_op *op,
			 uint8_t *key);
static inline bool kv_request_read(const uint8_t *from, uint32_t len, struct gn_kv_op *op,
				   uint8_t *key)
{
	const uint32_t key_len = len - (uint32_t)sizeof(struct kv_request);
	uint64_t word;

	if (unlikely(len < sizeof(word)))
		return false;
	memcpy(&word, from, sizeof(word));
	__atomic_signal_fence(__ATOMIC_ACQUIRE); /* what is checked is not read again */
	exec_preempt();
	op->key = key;
	op->room_bytes = (uint32_t)(word >> 32);
	/* A plain GET: both verb and how are 0, and behind the head there is only the key. */
	if (unlikely((uint32_t)word != key_len << 8 || key_len - 1 >= GN_KV_KEY_MAX))
		return kv_request_read_any(from, len, word, op, key);
	op->verb = GN_KV_GET;
	op->how = 0;
	op->key_len = key_len;
	kv_copy(key, from + sizeof(word), key_len);
	return true;
}

/* What is told of an operation that was done, with the value of item if it is not NULL. */
struct kv_result {
	struct kv_response head;
	uint32_t bytes; /* of all */
	const struct kv_item *item;
};
/* A value for which the client has no room is too big. */
void kv_result_make(struct kv_result *result, const struct gn_kv_op *op,
		    const struct kv_item *item);
void kv_result_write(uint8_t *to, const struct kv_result *result, const struct gn_kv_op *op);

/* The result of a plain GET, of a value of len bytes that fits and is without flags. */
static inline void kv_result_write_plain(uint8_t *to, const struct gn_kv_op *op,
					 const struct kv_item *item, uint32_t len)
{
	const uint64_t head = GN_KV_OK | (op->found & 0xff) << 8 | KV_RESPONSE_VALUE << 16 |
			      (uint64_t)len << 32;

	memcpy(to, &head, sizeof(head));
	kv_copy(to + sizeof(head), item->bytes + kv_key_len(item), len);
}

/* Read a response into op, and its value into op's room; false: it is none. */
bool kv_response_read_any(const uint8_t *from, uint32_t len, struct kv_response head,
			  struct gn_kv_op *op);
static inline bool kv_response_read(const uint8_t *from, uint32_t len, struct gn_kv_op *op)
{
	struct kv_response head;

	if (unlikely(len < sizeof(head)))
		return false;
	memcpy(&head, from, sizeof(head));
	__atomic_signal_fence(__ATOMIC_ACQUIRE); /* a reply may change: it is not read again */
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
