/* SPDX-License-Identifier: MIT */
/*
 * stats detail: gets, hits, sets and deletes by key prefix, the part before the first colon.
 * Clients choose prefixes, so their number is limited.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define TABLE_SLOTS  1024u /* a power of two */
#define PREFIXES_MAX 768u  /* keys with further prefixes are not counted */
#define LINE_MAX     128u  /* bytes without the prefix */

struct prefix {
	uint64_t gets, hits, sets, deletes;
	uint8_t len; /* 1 + its length; 0: free */
	char text[GN_KV_KEY_MAX];
};

/* Under the proxy's lock. */
struct px_detail {
	unsigned n;
	struct prefix prefix[TABLE_SLOTS];
};

void px_detail_switch(struct proxy *p, bool on)
{
	gn_mutex_lock(&p->lock);
	if (on && !p->detail)
		p->detail = calloc(1, sizeof(*p->detail));
	gn_mutex_unlock(&p->lock);
	__atomic_store_n(&p->detail_on, on, __ATOMIC_RELAXED);
}

void px_detail_clear(struct proxy *p)
{
	gn_mutex_lock(&p->lock);
	if (p->detail)
		memset(p->detail, 0, sizeof(*p->detail));
	gn_mutex_unlock(&p->lock);
}

void px_detail_free(struct proxy *p)
{
	free(p->detail);
	p->detail = NULL;
}

static struct prefix *prefix_find(struct px_detail *d, const char *key, uint32_t len)
{
	uint32_t at = 2166136261u; /* FNV-1a */

	for (uint32_t i = 0; i < len; i++)
		at = (at ^ (uint8_t)key[i]) * 16777619u;
	for (;; at++) {
		struct prefix *prefix = &d->prefix[at % TABLE_SLOTS];

		if (prefix->len == len + 1 && !memcmp(prefix->text, key, len))
			return prefix;
		if (prefix->len)
			continue;
		if (d->n == PREFIXES_MAX)
			return NULL;
		d->n++;
		prefix->len = (uint8_t)(len + 1);
		memcpy(prefix->text, key, len);
		return prefix;
	}
}

void px_detail_count(const struct px_slot *s)
{
	struct proxy *p = s->conn->thread->proxy;
	const struct px_request *r = &s->request;
	const char *colon;
	struct prefix *prefix;

	if (r->kind != PX_VALUE && r->kind != PX_STORE && r->kind != PX_DELETE)
		return;
	colon = memchr(r->op.key, ':', r->op.key_len);
	if (!colon)
		return;
	gn_mutex_lock(&p->lock);
	prefix = p->detail ? prefix_find(p->detail, r->op.key,
					 (uint32_t)(colon - (const char *)r->op.key)) :
			     NULL;
	if (prefix) {
		prefix->gets += r->kind == PX_VALUE;
		prefix->hits += r->kind == PX_VALUE && r->op.status == GN_KV_OK;
		prefix->sets += r->kind == PX_STORE;
		prefix->deletes += r->kind == PX_DELETE;
	}
	gn_mutex_unlock(&p->lock);
}

/* Formats all lines. Returns the length; to NULL: an upper bound. */
static size_t detail_format(const struct px_detail *d, char *to)
{
	size_t len = 0;

	for (unsigned i = 0; d && i < TABLE_SLOTS; i++) {
		const struct prefix *prefix = &d->prefix[i];

		if (prefix->len && !to)
			len += prefix->len + LINE_MAX;
		else if (prefix->len)
			len += (size_t)sprintf(to + len,
					       "PREFIX %.*s get %" PRIu64 " hit %" PRIu64
					       " set %" PRIu64 " del %" PRIu64 "\r\n",
					       prefix->len - 1, prefix->text, prefix->gets,
					       prefix->hits, prefix->sets, prefix->deletes);
	}
	return len;
}

bool px_detail_dump(struct px_slot *s)
{
	struct proxy *p = s->conn->thread->proxy;
	size_t len;
	bool room;

	gn_mutex_lock(&p->lock);
	len = detail_format(p->detail, NULL) + sizeof("END\r\n");
	room = px_slot_alloc(s->conn->thread, s, (uint32_t)len);
	if (room) {
		len = detail_format(p->detail, s->buf);
		memcpy(s->buf + len, "END\r\n", 5);
		s->reply_bytes = (uint32_t)len + 5;
	}
	gn_mutex_unlock(&p->lock);
	return room;
}
