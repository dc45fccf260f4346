/* SPDX-License-Identifier: MIT */
/*
 * Pages of a scan. A page is the cursor of the next page, the number of keys, whether more pages
 * follow, and the keys. All integers are little-endian.
 *
 * A cursor is a position in the index, and the index may change between two pages. Both kinds of
 * index guarantee that a key that exists all the time is returned at least once:
 *
 *  - Buckets are visited in the order of their numbers. A split moves a key to a bucket with a
 *    larger number only, and the number of buckets never shrinks.
 *  - Table entries are visited in order, and a key may move either way. The table logs where keys
 *    moved: keys that moved behind the cursor are returned with the next page. After more moves
 *    than the log holds, and after the table has grown, the scan starts over.
 */
#ifndef GN_KV_SCAN_H
#define GN_KV_SCAN_H

#include "kv/store.h"

#define KV_PAGE_MAX	 65536u /* bytes; a server does not make larger pages */
#define KV_SCAN_BUCKETS	 4096u	/* buckets visited per page */
#define KV_SCAN_ENTRIES	 8192u	/* entries visited per page */
#define KV_SCAN_RESTARTS 16u	/* of a scan, before it fails */

struct kv_cursor {
	uint32_t partition, restarts;
	uint64_t at;   /* bucket or entry */
	uint64_t mark; /* of a table: see cuckoo.c */
};
_Static_assert(sizeof(struct kv_cursor) == sizeof(struct gn_kv_cursor),
	       "the public struct has the same size");

struct kv_page_head {
	struct kv_cursor next;
	uint32_t n, more;
};
_Static_assert(sizeof(struct kv_page_head) == 32 && offsetof(struct kv_cursor, at) == 8 &&
		       offsetof(struct kv_cursor, mark) == 16 &&
		       offsetof(struct kv_page_head, n) == 24 &&
		       offsetof(struct kv_page_head, more) == 28,
	       "wire");

struct kv_page_key {
	uint64_t cas;
	uint32_t len, flags, ttl_s, idle_s;
	uint8_t key_len, found;
	uint8_t zero[6];
};
_Static_assert(sizeof(struct kv_page_key) == 32 && offsetof(struct kv_page_key, len) == 8 &&
		       offsetof(struct kv_page_key, idle_s) == 20 &&
		       offsetof(struct kv_page_key, key_len) == 24 &&
		       offsetof(struct kv_page_key, found) == 25,
	       "wire");

/* A page under construction. */
struct kv_page {
	uint8_t *at, *end;
	uint32_t n;
};

/* False: the page is full. Expired items are skipped. */
bool kv_page_add(const struct gn_kv_store *store, struct kv_page *page, const struct kv_item *item);

/* index.c, cuckoo.c: continue from the cursor and advance it. 1: more follows; 0; or -EAGAIN. */
int kv_bucket_scan(const struct gn_kv_store *store, struct kv_cursor *cursor, struct kv_page *page);
int kv_cuckoo_scan(const struct gn_kv_store *store, struct kv_cursor *cursor, struct kv_page *page);

/*
 * Executes a SCAN of a partition, one of parts, into to: sets op's status and the length of the
 * page.
 */
void kv_scan(const struct gn_kv_store *store, uint32_t parts, struct gn_kv_op *op, uint8_t *to,
	     uint32_t room);

/* The partition of op's cursor; UINT32_MAX: not a cursor. */
uint32_t kv_scan_partition(const struct gn_kv_op *op);

#endif
