/* SPDX-License-Identifier: MIT */
/* Scans: pages of keys, written by the server and read by clients. */
#include <endian.h>
#include <errno.h>

#include "base/fail.h"
#include "kv/client.h"
#include "kv/scan.h"

_Static_assert(GN_KV_PAGE_MIN <= KV_PAGE_MAX, "the smallest page is none that is too large");

/* ---- cursors ---- */

static struct kv_cursor cursor_to_le(const struct kv_cursor *c)
{
	return (struct kv_cursor){.partition = le32toh(c->partition),
				  .restarts = le32toh(c->restarts),
				  .at = le64toh(c->at),
				  .mark = le64toh(c->mark)};
}

static bool cursor_of_op(const struct gn_kv_op *op, struct kv_cursor *out)
{
	if (op->key_len != sizeof(*out))
		return false;
	memcpy(out, op->key, sizeof(*out));
	*out = cursor_to_le(out);
	return true;
}

uint32_t kv_scan_partition(const struct gn_kv_op *op)
{
	struct kv_cursor cursor;

	return cursor_of_op(op, &cursor) ? cursor.partition : UINT32_MAX;
}

/* ---- writing pages ---- */

bool kv_page_add(const struct gn_kv_store *s, struct kv_page *page, const struct kv_item *item)
{
	const uint32_t key_len = kv_key_len(item), expires = kv_expires(item);
	const uint32_t tail = kv_round(key_len);
	const struct kv_page_key head = {
		.cas = htole64(item->cas),
		.len = htole32(kv_value_len(item)),
		.flags = htole32(kv_flags(item)),
		.ttl_s = htole32(expires ? expires - s->now_s : GN_KV_TTL_NONE),
		.idle_s = htole32(s->now_s - (item->used >> KV_ITEM_BITS)),
		.key_len = (uint8_t)key_len,
		.found = item->used & KV_ITEM_FOUND,
	};

	if (expires && expires <= s->now_s)
		return true;
	if ((size_t)(page->end - page->at) < sizeof(head) + tail)
		return false;
	memcpy(page->at, &head, sizeof(head));
	page->at += sizeof(head);
	memset(page->at + tail - KV_UNIT, 0, KV_UNIT);
	memcpy(page->at, kv_key(item), key_len);
	page->at += tail;
	page->n++;
	return true;
}

void kv_scan(const struct gn_kv_store *s, uint32_t parts, struct gn_kv_op *op, uint8_t *to,
	     uint32_t room)
{
	struct kv_page page = {.at = to + sizeof(struct kv_page_head), .end = to + room};
	struct kv_page_head head = {.n = 0};
	int more;

	op->len = 0;
	op->status = GN_KV_INVALID;
	if (!cursor_of_op(op, &head.next) || room < GN_KV_PAGE_MIN || head.next.partition >= parts)
		return;
	more = s->cuckoo ? kv_cuckoo_scan(s, &head.next, &page) :
			   kv_bucket_scan(s, &head.next, &page);
	if (more < 0) {
		op->status = GN_KV_FAILED;
		return;
	}
	if (!more)
		head.next = (struct kv_cursor){.partition = head.next.partition + 1};
	head.more = htole32(more || head.next.partition < parts);
	head.n = htole32(page.n);
	head.next = cursor_to_le(&head.next);
	memcpy(to, &head, sizeof(head));
	op->status = GN_KV_OK;
	op->len = (uint32_t)(page.at - to);
}

/* ---- reading pages ---- */

bool gn_kv_page_next(const struct gn_kv_op *op, uint32_t *at, struct gn_kv_key *out)
{
	const uint8_t *from = op->room;
	const uint32_t bytes = op->status == GN_KV_OK ? op->len : 0;
	const uint32_t begin = *at ? *at : (uint32_t)sizeof(struct kv_page_head);
	struct kv_page_key head;

	if (bytes < begin || bytes - begin < sizeof(head))
		return false;
	memcpy(&head, from + begin, sizeof(head));
	if (bytes - begin - sizeof(head) < head.key_len)
		return false;
	*at = begin + (uint32_t)sizeof(head) + kv_round(head.key_len);
	*out = (struct gn_kv_key){.key = from + begin + sizeof(head),
				  .key_len = head.key_len,
				  .len = le32toh(head.len),
				  .flags = le32toh(head.flags),
				  .ttl_s = le32toh(head.ttl_s),
				  .idle_s = le32toh(head.idle_s),
				  .found = head.found,
				  .cas = le64toh(head.cas)};
	return true;
}

bool gn_kv_page_more(const struct gn_kv_op *op, struct gn_kv_cursor *next)
{
	struct kv_page_head head;

	if (op->status != GN_KV_OK || op->len < sizeof(head))
		return false;
	memcpy(&head, op->room, sizeof(head));
	memcpy(next, &head.next, sizeof(*next));
	return head.more;
}

int gn_kv_scan(struct gn_kv_client *client, struct gn_kv_cursor *cursor, gn_kv_key_fn *fn,
	       void *arg, uint64_t deadline_ns)
{
	struct gn_kv_op op = {.verb = GN_KV_SCAN,
			      .key = cursor,
			      .key_len = sizeof(*cursor),
			      .room_bytes = GN_KV_PAGE_MIN};
	struct gn_kv_cursor next;
	struct gn_kv_key key;
	uint32_t at = 0;
	int rc;

	if (!cursor || !fn)
		return gn_fail(-EINVAL, "gn_kv_scan(): cursor is NULL, or fn is NULL");
	op.room = gn_alloc(op.room_bytes, 0);
	if (!op.room)
		return -ENOMEM;
	rc = kv_do_one(client, &op, deadline_ns);
	while (!rc && gn_kv_page_next(&op, &at, &key))
		fn(&key, arg);
	if (!rc) {
		rc = gn_kv_page_more(&op, &next);
		if (rc)
			*cursor = next;
	}
	gn_free(op.room);
	return rc;
}
