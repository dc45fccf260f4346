/* SPDX-License-Identifier: MIT */
/*
 * stats detail: gets, hits, sets and deletes by prefix, which is what a key has before its first
 * colon. Clients choose prefixes, so there is a limit of how many are told apart.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

#define SLOTS	     1024u /* a power of two */
#define PREFIXES_MAX 768u  /* keys with other prefixes are not counted */
#define LINE_MAX     128u  /* bytes, but for the prefix */

struct prefix {
	uint64_t gets, hits, sets, deletes;
	uint8_t len; /* 1 + its length; 0: nothing is here */
	char text[GN_KV_KEY_MAX];
};

/* Under the proxy's lock. */
struct px_detail {
	unsigned n;
	struct prefix prefix[SLOTS];
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

static struct prefix *find(struct px_detail *d, const char *key, uint32_t len)
{
	uint32_t at = 2166136261u; /* FNV-1a */

	for (uint32_t i = 0; i < len; i++)
		at = (at ^ (uint8_t)key[i]) * 16777619u;
	for (;; at++) {
		struct prefix *prefix = &d->prefix[at % SLOTS];

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
	prefix = p->detail ?
			 find(p->detail, r->op.key, (uint32_t)(colon - (const char *)r->op.key)) :
			 NULL;
	if (prefix) {
		prefix->gets += r->kind == PX_VALUE;
		prefix->hits += r->kind == PX_VALUE && r->op.status == GN_KV_OK;
		prefix->sets += r->kind == PX_STORE;
		prefix->deletes += r->kind == PX_DELETE;
	}
	gn_mutex_unlock(&p->lock);
}

/* The text, and how long it is; NULL: only that, at most. */
static size_t put_all(const struct px_detail *d, char *to)
{
	size_t len = 0;

	for (unsigned i = 0; d && i < SLOTS; i++) {
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
	len = put_all(p->detail, NULL) + sizeof("END\r\n");
	room = px_slot_more(s->conn->thread, s, (uint32_t)len);
	if (room) {
		len = put_all(p->detail, s->more);
		memcpy(s->more + len, "END\r\n", 5);
		s->raw_bytes = (uint32_t)len + 5;
	}
	gn_mutex_unlock(&p->lock);
	return room;
}
