/* SPDX-License-Identifier: MIT */
/*
 * A trivial model of a store: a list of keys, whole seconds, no memory limit. Each operation is
 * applied to it, and the store's response is compared.
 */
#ifndef GN_TESTS_UNIT_KV_MODEL_H
#define GN_TESTS_UNIT_KV_MODEL_H

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gannet/kv.h"

#define MODEL_KEYS    512u
#define MODEL_BYTES   16384u
#define MODEL_SECONDS 1000000u /* no test takes longer */
/* A use so soon after another need not be recorded (docs/kv.md). */
#define MODEL_IDLE_LATE_S 8u

struct model_item {
	bool present, stale, won, hit;
	bool idle_known;
	uint8_t *value; /* MODEL_BYTES */
	uint32_t len, flags;
	uint64_t cas;
	uint64_t dies_s; /* UINT64_MAX: never */
	uint64_t used_s;
};

struct model {
	struct model_item item[MODEL_KEYS];
	uint64_t now_s;
	uint64_t flush_s; /* UINT64_MAX: none is due */
	uint32_t max_value;
};

/* The expected result of an operation. */
struct expected {
	unsigned status, found;
	uint32_t len, flags, ttl_s, was_ttl_s, idle_s;
	uint64_t number;
	bool was_told;
	bool told;	/* len, flags, ttl_s and cas are set */
	bool new_cas;	/* the version did not exist before */
	bool has_value; /* GET: these bytes */
	bool hit_known, idle_known;
};

static inline void model_forget(struct model_item *it)
{
	uint8_t *const value = it->value;

	*it = (struct model_item){.value = value};
}

static inline uint64_t model_dies(const struct model *m, uint32_t ttl_s)
{
	if (ttl_s == GN_KV_TTL_PAST)
		return m->now_s;
	/* Beyond the range of the clock: no expiry. */
	return ttl_s && ttl_s < UINT32_MAX - MODEL_SECONDS ? m->now_s + ttl_s : UINT64_MAX;
}

/* Time has passed. */
static inline void model_tick(struct model *m, uint64_t now_s)
{
	m->now_s = now_s;
	for (unsigned i = 0; i < MODEL_KEYS; i++)
		if (m->item[i].present && (m->item[i].dies_s <= now_s || m->flush_s <= now_s))
			model_forget(&m->item[i]);
	if (m->flush_s <= now_s)
		m->flush_s = UINT64_MAX;
}

static inline uint32_t model_left(const struct model *m, const struct model_item *it)
{
	return it->dies_s == UINT64_MAX ? GN_KV_TTL_NONE : (uint32_t)(it->dies_s - m->now_s);
}

static inline void model_was(const struct model *m, const struct model_item *it, struct expected *e)
{
	e->was_told = true;
	e->was_ttl_s = it->present ? model_left(m, it) : GN_KV_TTL_NONE;
}

static inline void model_tell(const struct model *m, const struct model_item *it,
			      struct expected *e)
{
	e->told = true;
	e->len = it->len;
	e->flags = it->flags;
	e->ttl_s = model_left(m, it);
	e->idle_s = (uint32_t)(m->now_s - it->used_s);
	e->idle_known = it->idle_known;
}

static inline unsigned model_compare(const struct gn_kv_op *op, const struct model_item *it)
{
	if (!(op->how & GN_KV_IF_CAS))
		return GN_KV_OK;
	if (!it->present)
		return GN_KV_MISS;
	return it->cas == op->cas ? GN_KV_OK : GN_KV_EXISTS;
}

/* The item exists and is new; its version is what the store returned, or what was given. */
static inline void model_stored(struct model *m, struct model_item *it, const struct gn_kv_op *op,
				struct expected *e)
{
	it->present = true;
	it->stale = it->won = false;
	it->used_s = m->now_s;
	it->idle_known = true;
	e->new_cas = !(op->how & GN_KV_SET_CAS);
	it->cas = op->how & GN_KV_SET_CAS ? op->new_cas : 0;
	model_tell(m, it, e);
}

static inline unsigned model_store(struct model *m, struct model_item *it,
				   const struct gn_kv_op *op, struct expected *e)
{
	const bool joins = op->verb == GN_KV_APPEND || op->verb == GN_KV_PREPEND;
	const uint32_t len = op->value_len + (joins ? it->len : 0);
	const bool won = it->won;
	unsigned status = model_compare(op, it);
	bool stale = false;

	if (status == GN_KV_EXISTS && op->how & GN_KV_INVALIDATE && op->cas && op->cas < it->cas) {
		stale = true;
		status = GN_KV_OK;
	}
	if (!status && (op->verb == GN_KV_ADD ? it->present :
			op->verb == GN_KV_SET ? false :
						!it->present))
		status = GN_KV_NOT_STORED;
	if (status == GN_KV_NOT_STORED && it->present)
		it->idle_known = false; /* it may count as used, or not */
	if (status)
		return status;
	if (op->ttl_s == GN_KV_TTL_PAST && !joins && !stale) {
		model_forget(it);
		return GN_KV_OK;
	}
	if (len > m->max_value)
		return GN_KV_TOO_BIG;
	if (op->verb == GN_KV_PREPEND)
		memmove(it->value + op->value_len, it->value, it->len);
	if (op->value_len)
		memcpy(it->value + (op->verb == GN_KV_APPEND ? it->len : 0), op->value,
		       op->value_len);
	it->len = len;
	if (!joins)
		it->flags = op->flags;
	if (!joins && !stale) /* a stale item keeps its expiry */
		it->dies_s = model_dies(m, op->ttl_s);
	it->hit = false;
	model_stored(m, it, op, e);
	it->stale = stale;
	it->won = stale && won;
	return GN_KV_OK;
}

static inline unsigned model_vivify(struct model *m, struct model_item *it,
				    const struct gn_kv_op *op, struct expected *e)
{
	if (!(op->how & GN_KV_VIVIFY))
		return GN_KV_MISS;
	it->len = it->flags = 0;
	it->hit = !(op->how & GN_KV_QUIET);
	it->dies_s = model_dies(m, op->create_s);
	model_stored(m, it, op, e);
	it->won = true;
	e->found = GN_KV_CREATED | GN_KV_WON;
	return GN_KV_OK;
}

static inline unsigned model_get(struct model *m, struct model_item *it, const struct gn_kv_op *op,
				 struct expected *e)
{
	uint64_t dies_s = it->dies_s, left_s;

	model_was(m, it, e);
	if (!it->present)
		return model_vivify(m, it, op, e);
	if (op->how & GN_KV_AND_TOUCH && !(op->how & GN_KV_RECACHE_FIRST))
		dies_s = model_dies(m, op->ttl_s);
	left_s = dies_s == UINT64_MAX ? UINT64_MAX : dies_s - m->now_s;
	e->found = (it->stale ? GN_KV_STALE : 0) | (it->hit ? GN_KV_HIT_BEFORE : 0);
	if (it->won) {
		e->found |= GN_KV_LOST;
	} else if (op->how & GN_KV_RECACHE && (it->stale || left_s < op->recache_s)) {
		e->found |= GN_KV_WON;
		it->won = true;
	}
	model_tell(m, it, e);
	e->hit_known = it->idle_known;
	if (op->how & GN_KV_AND_TOUCH) {
		it->dies_s = model_dies(m, op->ttl_s);
		model_tell(m, it, e);
		it->idle_known = false;
	}
	if (!(op->how & GN_KV_QUIET)) {
		it->hit = it->idle_known = true;
		it->used_s = m->now_s;
	}
	if (op->how & GN_KV_NO_VALUE)
		return GN_KV_OK;
	e->has_value = it->len <= op->room_bytes;
	return e->has_value ? GN_KV_OK : GN_KV_TOO_BIG;
}

static inline unsigned model_delete(struct model *m, struct model_item *it,
				    const struct gn_kv_op *op, struct expected *e)
{
	const unsigned status = it->present ? model_compare(op, it) : GN_KV_MISS;

	if (status)
		return status;
	if (!(op->how & GN_KV_INVALIDATE)) {
		model_forget(it);
		return GN_KV_OK;
	}
	it->idle_known = false;
	if (op->how & GN_KV_AND_TOUCH)
		it->dies_s = model_dies(m, op->ttl_s);
	model_stored(m, it, op, e);
	it->idle_known = false;
	it->stale = true;
	return GN_KV_OK;
}

/* As memcached does it, with the C library. */
static inline bool model_number(const struct model_item *it, uint64_t *out)
{
	char *text = strndup((const char *)it->value, it->len), *end;
	bool ok;

	if (!text)
		abort();
	errno = 0;
	*out = strtoull(text, &end, 10);
	ok = !errno && end != text && (!*end || isspace((unsigned char)*end)) &&
	     ((int64_t)*out >= 0 || !strchr(text, '-'));
	free(text);
	return ok;
}

static inline unsigned model_count(struct model *m, struct model_item *it,
				   const struct gn_kv_op *op, struct expected *e)
{
	const struct model_item was = *it;
	unsigned status;
	bool fits;
	char text[64];
	uint64_t n;
	int len;

	model_was(m, it, e);
	if (!it->present && !(op->how & GN_KV_CREATE))
		return GN_KV_MISS;
	if (!it->present) {
		it->len = (uint32_t)snprintf((char *)it->value, 32, "%llu",
					     (unsigned long long)op->initial);
		it->flags = 0;
		it->hit = false;
		it->dies_s = model_dies(m, op->create_s);
		e->number = op->initial;
		e->found = GN_KV_CREATED;
		model_stored(m, it, op, e);
		return GN_KV_OK;
	}
	if (!it->len)
		return GN_KV_NOT_NUMBER;
	status = model_compare(op, it);
	if (status)
		return status;
	if (!model_number(it, &n))
		return GN_KV_NOT_NUMBER;
	e->number = op->verb == GN_KV_INCR ? n + op->number : n < op->number ? 0 : n - op->number;
	len = snprintf(text, sizeof(text), "%llu", (unsigned long long)e->number);
	fits = (uint32_t)len <= it->len;
	memset(it->value, ' ', it->len);
	memcpy(it->value, text, (size_t)len);
	it->len = fits ? it->len : (uint32_t)len;
	if (op->how & GN_KV_AND_TOUCH)
		it->dies_s = model_dies(m, op->ttl_s);
	model_stored(m, it, op, e);
	/* A longer number is a new item; else it is the same item. */
	it->stale = was.stale && fits;
	it->won = was.won && fits;
	it->hit = was.hit && fits;
	it->idle_known = false;
	return GN_KV_OK;
}

static inline unsigned model_touch(struct model *m, struct model_item *it,
				   const struct gn_kv_op *op, struct expected *e)
{
	if (!it->present)
		return GN_KV_MISS;
	it->dies_s = model_dies(m, op->ttl_s);
	if (op->ttl_s != GN_KV_TTL_PAST)
		model_tell(m, it, e);
	e->idle_known = it->idle_known = false;
	it->hit = true;
	return GN_KV_OK;
}

/* op as submitted; key: its number. */
static inline struct expected model_do(struct model *m, unsigned key, const struct gn_kv_op *op)
{
	struct model_item *it = &m->item[key];
	struct expected e = {.status = GN_KV_OK};

	switch (op->verb) {
	case GN_KV_GET:
		e.status = model_get(m, it, op, &e);
		break;
	case GN_KV_DELETE:
		e.status = model_delete(m, it, op, &e);
		break;
	case GN_KV_INCR:
	case GN_KV_DECR:
		e.status = model_count(m, it, op, &e);
		break;
	case GN_KV_TOUCH:
		e.status = model_touch(m, it, op, &e);
		break;
	default:
		e.status = model_store(m, it, op, &e);
	}
	return e;
}

/* Is done the right response to op? NULL, or the error. The version becomes the model's. */
static inline const char *model_compare_to(struct model *m, unsigned key, const struct gn_kv_op *op,
					   const struct gn_kv_op *done, const struct expected *e,
					   uint64_t *last_cas)
{
	struct model_item *it = &m->item[key];
	const unsigned hit = GN_KV_HIT_BEFORE;

	if (done->status != e->status)
		return "status";
	if (e->status != GN_KV_OK && e->status != GN_KV_TOO_BIG)
		return NULL;
	if (e->hit_known ? done->found != e->found : (done->found & ~hit) != (e->found & ~hit))
		return "found";
	if (e->told && e->new_cas && done->cas <= *last_cas)
		return "version: an old one";
	if (e->told && ((!e->new_cas && done->cas != it->cas) || done->flags != e->flags))
		return "version or flags";
	if (e->told && (done->len != e->len || done->ttl_s != e->ttl_s))
		return "length or time to live";
	if (e->was_told && done->was_ttl_s != e->was_ttl_s)
		return "time to live before";
	if (e->told && op->verb == GN_KV_GET && e->idle_known &&
	    (done->idle_s < e->idle_s || done->idle_s - e->idle_s > MODEL_IDLE_LATE_S))
		return "idle time";
	if ((op->verb == GN_KV_INCR || op->verb == GN_KV_DECR) && done->number != e->number)
		return "number";
	if (e->has_value && memcmp(done->room, it->value, e->len))
		return "value";
	if (e->told && e->new_cas)
		*last_cas = it->cas = done->cas;
	if (it->present && it->dies_s <= m->now_s)
		model_forget(it);
	return NULL;
}

#endif
