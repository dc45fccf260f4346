/* SPDX-License-Identifier: MIT */
/*
 * Lists of keys: lru_crawler metadump and stats cachedump. A list is a scan of the store, one page
 * at a time: the next page is requested when the client has read the last one. So a list takes the
 * memory of one page, however long it is and however slow its reader, and other connections proceed
 * in between.
 */
#include <ctype.h>
#include <string.h>

#include "internal.h"

#define PAGE_BYTES GN_KV_PAGE_MIN
#define LINE_MAX   900u /* per key: 750 bytes for the key, and numbers */
/* A key of a page has at least 40 bytes; its line at most 130, and three per byte of the key. */
#define TEXT_BYTES (4u * PAGE_BYTES + LINE_MAX)
#define CLASS	   "1"
#define HEAD_BYTES 24u /* of an item, as reported by me */

void px_dump_start(struct px_conn *c, enum px_dump_format format, uint32_t limit)
{
	c->dump = (struct px_dump){.format = (uint8_t)format, .limit = limit, .more = true};
	c->mode = PX_MODE_DUMP;
}

/* ---- lines ---- */

static char *put_text(char *at, const char *text)
{
	return stpcpy(at, text);
}

static char *put_encoded(char *at, const struct gn_kv_key *key)
{
	static const char digits[] = "0123456789ABCDEF";
	const uint8_t *bytes = key->key;

	for (uint32_t i = 0; i < key->key_len; i++) {
		if (isalnum(bytes[i]) || (bytes[i] && strchr("-._~", bytes[i]))) {
			*at++ = (char)bytes[i];
		} else {
			*at++ = '%';
			*at++ = digits[bytes[i] >> 4];
			*at++ = digits[bytes[i] & 15];
		}
	}
	return at;
}

static char *put_meta(char *at, const struct gn_kv_key *key, uint64_t now_s)
{
	at = put_encoded(put_text(at, "key="), key);
	at = put_text(at, " exp=");
	at = key->ttl_s == GN_KV_TTL_NONE ? put_text(at, "-1") : px_put_u64(at, now_s + key->ttl_s);
	at = px_put_u64(put_text(at, " la="), now_s - key->idle_s);
	at = px_put_u64(put_text(at, " cas="), key->cas);
	at = put_text(at, key->found & GN_KV_HIT_BEFORE ? " fetch=yes" : " fetch=no");
	at = px_put_u64(put_text(at, " cls=" CLASS " size="),
			(HEAD_BYTES + key->key_len + key->len + 7u) / 8 * 8);
	return put_text(at, "\n");
}

/* Skip keys that cannot be in a line. memcached skips keys that were sent in base64. */
static bool is_plain(const struct gn_kv_key *key)
{
	const uint8_t *bytes = key->key;

	for (uint32_t i = 0; i < key->key_len; i++)
		if (bytes[i] <= ' ' || bytes[i] == 0x7f)
			return false;
	return true;
}

static char *put_item(char *at, const struct gn_kv_key *key, uint64_t now_s)
{
	at = put_text(at, "ITEM ");
	memcpy(at, key->key, key->key_len);
	at = px_put_u64(put_text(at + key->key_len, " ["), key->len);
	at = px_put_u64(put_text(at, " b; "),
			key->ttl_s == GN_KV_TTL_NONE ? 0 : now_s + key->ttl_s);
	return put_text(at, " s]\r\n");
}

/* ---- pages ---- */

static void put_page(struct px_slot *s)
{
	struct px_conn *c = s->conn;
	const struct gn_kv_op *op = &s->request.op;
	const uint64_t now_s = (uint64_t)c->thread->context.now_s;
	struct gn_kv_key key;
	char *at = s->buf;
	uint32_t from = 0;
	bool full = false;

	while (!full && gn_kv_page_next(op, &from, &key)) {
		if ((size_t)(s->buf + TEXT_BYTES - at) < LINE_MAX)
			break; /* cannot happen: see TEXT_BYTES */
		if (c->dump.format == PX_DUMP_META) {
			at = put_meta(at, &key, now_s);
		} else if (is_plain(&key)) {
			at = put_item(at, &key, now_s);
			full = ++c->dump.listed == c->dump.limit;
		}
	}
	c->dump.more = gn_kv_page_more(op, &c->dump.cursor) && !full;
	if (!c->dump.more)
		at = put_text(at, "END\r\n");
	s->reply_bytes = (uint32_t)(at - s->buf);
}

static void page_done(struct gn_kv_op *op)
{
	struct px_slot *s = px_slot_of(op);

	if (op->status == GN_KV_OK) {
		put_page(s);
		s->request.kind = PX_REPLY_TEXT; /* no reply, if the page was empty */
		s->request.bits = PX_NOREPLY;
	}
	px_op_ended(s);
}

bool px_dump_step(struct px_conn *c)
{
	struct px_slot *s;

	if (c->slots || c->out)
		return false; /* not read yet */
	if (!c->dump.more) {
		c->mode = PX_MODE_LINE;
		return true;
	}
	s = px_slot_new(c);
	if (!s) {
		c->dead = true;
		return false;
	}
	c->dump.more = false; /* set again when the page has arrived */
	s->request = (struct px_request){.kind = PX_DUMP};
	if (!px_slot_alloc(c->thread, s, TEXT_BYTES + PAGE_BYTES)) {
		s->request.op.status = GN_KV_NO_MEMORY;
		return true;
	}
	s->request.op.verb = GN_KV_SCAN;
	s->request.op.key = &c->dump.cursor;
	s->request.op.key_len = sizeof(c->dump.cursor);
	s->request.op.room = s->buf + TEXT_BYTES;
	s->request.op.room_bytes = PAGE_BYTES;
	px_submit(s, page_done);
	return true;
}
