/* SPDX-License-Identifier: MIT */
/*
 * Pages of a scan. A page is the cursor of the next one, how many keys follow and whether there is
 * a next one, and the keys. All integers are little-endian.
 *
 * A cursor is a place in the index, and an index may change between two pages. Each kind of index
 * sees to it that a key that is there all the time is met at least once:
 *
 *  - Buckets are walked in the order of their numbers. A split moves a key to a bucket with a
 *    larger number only, and there are never fewer buckets.
 *  - Entries of a table are walked in their order, and a key may move either way. The table
 *    remembers where keys went last: those that went to a place behind the cursor are told with the
 *    next page. After more moves than it remembers, and when the table has grown, the walk begins
 *    again.
 */
#ifndef GN_KV_SCAN_H
#define GN_KV_SCAN_H

#include "kv/store.h"

#define KV_PAGE_MAX	 65536u /* bytes; a server does not make larger ones */
#define KV_SCAN_BUCKETS	 4096u	/* that are looked at for a page */
#define KV_SCAN_ENTRIES	 8192u	/* likewise */
#define KV_SCAN_RESTARTS 16u	/* of a walk; then the scan fails */

struct kv_cursor {
	uint32_t partition, restarts;
	uint64_t at;   /* bucket or entry */
	uint64_t mark; /* of a table: see cuckoo.c */
};
_Static_assert(sizeof(struct kv_cursor) == sizeof(struct gn_kv_cursor),
	       "a cursor is as large for those who may not look into it");

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

/* A page that is being made. */
struct kv_page {
	uint8_t *at, *end;
	uint32_t n;
};

/* False: there is no room. What has expired takes none. */
bool kv_page_add(const struct gn_kv_store *store, struct kv_page *page, const struct kv_item *item);

/* index.c, cuckoo.c: goes on from the cursor, which is moved. 1: there is more; or -EAGAIN. */
int kv_bucket_scan(const struct gn_kv_store *store, struct kv_cursor *cursor, struct kv_page *page);
int kv_cuckoo_scan(const struct gn_kv_store *store, struct kv_cursor *cursor, struct kv_page *page);

/*
 * Does a SCAN of the partition, one of parts, to where there is room: op's status, and the length
 * of the page.
 */
void kv_scan(const struct gn_kv_store *store, uint32_t parts, struct gn_kv_op *op, uint8_t *to,
	     uint32_t room);

/* The partition that op's cursor is in; UINT32_MAX: it is no cursor. */
uint32_t kv_scan_partition(const struct gn_kv_op *op);

#endif
