/* SPDX-License-Identifier: MIT */
/*
 * What clients and servers of a store say to each other. A request of the method KV_DO is one
 * operation after the other, and its result is what came of each, in the same order. Where there is
 * no room for more results it ends: those behind were not done. All of both is in pieces of eight
 * bytes, little-endian. Nothing here is a struct of the public headers.
 */
#ifndef GN_KV_WIRE_H
#define GN_KV_WIRE_H

#include <stddef.h>

#include "kv/item.h"

#define KV_VERSION 3u
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is, and so are we");

enum kv_method { KV_DO = 1, KV_LAYOUT, KV_STATS, KV_CLEAR };

/* An operation: this, the words that its bits and verb ask for, key and value. */
struct kv_ask {
	uint8_t verb, key_len;
	uint16_t how;	/* enum gn_kv_how, and the bits below */
	uint32_t bytes; /* of the value; GET: of the room for it */
};
#define KV_ASK_KEPT 0x8000u /* flags and ttl_s follow; else both are 0 */
_Static_assert(sizeof(struct kv_ask) == 8 && offsetof(struct kv_ask, key_len) == 1 &&
		       offsetof(struct kv_ask, how) == 2 && offsetof(struct kv_ask, bytes) == 4,
	       "wire");

/* What became of it: this, the words that its bits tell of, and the value. */
struct kv_tell {
	uint8_t status, found;
	uint16_t bits;
	uint32_t len; /* of the value that is there */
};
_Static_assert(sizeof(struct kv_tell) == 8 && offsetof(struct kv_tell, found) == 1 &&
		       offsetof(struct kv_tell, bits) == 2 && offsetof(struct kv_tell, len) == 4,
	       "wire");
enum kv_tell_bit {
	KV_TELL_FLAGS = 1 << 0,
	KV_TELL_CAS = 1 << 1,
	KV_TELL_TIMES = 1 << 2, /* ttl_s, idle_s */
	KV_TELL_NUMBER = 1 << 3,
	KV_TELL_WAS = 1 << 4,	/* was_ttl_s, if it is not ttl_s */
	KV_TELL_VALUE = 1 << 5, /* len bytes follow */
	KV_TELL_BITS = 1 << 6,
};

/* On the wire only: the key belongs to another partition. */
#define KV_ELSEWHERE GN_KV_STATUSES

/* The most words that an operation has between its head and its key, and likewise a result. */
#define KV_ASK_WORDS  6u
#define KV_TELL_WORDS 5u
#define KV_TELL_MAX   (sizeof(struct kv_tell) + KV_TELL_WORDS * sizeof(uint64_t))

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
_Static_assert(KV_STATS_WORDS == 39, "the words of version 3");

void kv_stats_write(uint64_t to[KV_STATS_WORDS], const struct gn_kv_stats *stats);
void kv_stats_read(const uint64_t from[KV_STATS_WORDS], struct gn_kv_stats *out);

/* How many bytes an operation takes in a request, and at most in a result. */
uint32_t kv_ask_bytes(const struct gn_kv_op *op);
uint32_t kv_tell_bytes(const struct gn_kv_op *op);

/* Writes it there: where the next goes. */
uint8_t *kv_ask_write(uint8_t *to, const struct gn_kv_op *op);
/*
 * Reads one, from bytes that may change meanwhile: the key is copied to key, which has room for
 * GN_KV_KEY_MAX, the value stays. Returns what it takes; 0: it is none.
 */
uint32_t kv_ask_read(const uint8_t *from, uint32_t bytes, struct gn_kv_op *op, uint8_t *key);

/*
 * Writes a result, with the value of item if it is not NULL: where the next goes. There are
 * KV_TELL_MAX bytes for it and kv_round(room_bytes) for a value; a longer value is too big,
 * whatever the client has room for.
 */
uint8_t *kv_tell_write(uint8_t *to, uint32_t room_bytes, const struct gn_kv_op *op,
		       const struct kv_item *item);
/* Reads one into op, and its value into op's room: what it takes; 0: it is none. */
uint32_t kv_tell_read(const uint8_t *from, uint32_t bytes, struct gn_kv_op *op);

#endif
