/* SPDX-License-Identifier: MIT */
/* The commands: what each operation does to a store. */
#include <errno.h>

#include "base/mutant.h"
#include "base/preempt.h"
#include "kv/bucket.h"

#define DIGITS_MAX 20u /* of the largest number */

/* ---- finding items ---- */

static bool item_expired(const struct gn_kv_store *s, const struct kv_item *item)
{
	return kv_has_expired(s, item) && !mutant("kv-ttl-ignored", MUTANT_ALWAYS);
}

static no_inline void drop_expired(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	kv_count_expired(s, kv_item_at(s, loc));
	s->stats.expired_get++;
	kv_item_remove(s, hash, loc);
}

/* The location of the item if it has not expired; else 0. */
static force_inline uint32_t find_live(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	const uint32_t loc = kv_find_op(s, op);

	if (likely(!loc || !item_expired(s, kv_item_at(s, loc))))
		return loc;
	drop_expired(s, op->hash, loc);
	return 0;
}

/* … as a function call, for commands that are not time-critical. */
static no_inline uint32_t find_live_call(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	return find_live(s, op);
}

static uint32_t expiry_time(const struct gn_kv_store *s, uint32_t ttl_s)
{
	if (ttl_s == GN_KV_TTL_PAST)
		return s->now_s;
	/* Beyond the range of the clock: never. */
	return !ttl_s || ttl_s > UINT32_MAX - s->now_s ? 0 : s->now_s + ttl_s;
}

static uint32_t used_stamp(const struct gn_kv_store *s, uint32_t bits)
{
	return s->now_s << KV_ITEM_BITS | bits;
}

void kv_record_use(struct gn_kv_store *s, const struct gn_kv_op *op, uint32_t loc)
{
	struct kv_item *item = kv_item_at(s, loc);
	const uint32_t now = used_stamp(s, (item->used & ((1u << KV_ITEM_BITS) - 1)) | KV_ITEM_HIT |
						   KV_ITEM_RECENT);

	kv_promote(s, op->hash, loc);
	if (item->used != now)
		KV_STORE_RELAXED(&item->used, now);
}

static force_inline void note_use(struct gn_kv_store *s, const struct gn_kv_op *op, uint32_t loc)
{
	if (kv_must_record_use(s, kv_item_at(s, loc)))
		kv_record_use(s, op, loc);
}

/* Seconds until then. */
static uint32_t ttl_left(const struct gn_kv_store *s, uint32_t expires)
{
	return !expires ? GN_KV_TTL_NONE : expires > s->now_s ? expires - s->now_s : 0;
}

static inline void op_report(const struct gn_kv_store *s, struct gn_kv_op *op,
			     const struct kv_item *item)
{
	const uint32_t expires = kv_expires(item);

	op->status = GN_KV_OK;
	op->flags = kv_flags(item);
	op->cas = item->cas;
	op->len = kv_value_len(item);
	op->ttl_s = ttl_left(s, expires);
	op->idle_s = s->now_s - (item->used >> KV_ITEM_BITS);
}

/* IF_CAS: GN_KV_OK, or the reason why not. */
static unsigned cas_check(const struct gn_kv_op *op, const struct kv_item *item)
{
	if (!(op->how & GN_KV_IF_CAS))
		return GN_KV_OK;
	if (!item)
		return GN_KV_MISS;
	return item->cas == op->cas ? GN_KV_OK : GN_KV_EXISTS;
}

static void count_cas(struct gn_kv_store *s, const struct gn_kv_op *op, unsigned status)
{
	if (!(op->how & GN_KV_IF_CAS) || (op->verb != GN_KV_SET && op->verb != GN_KV_REPLACE))
		return;
	s->stats.cas_ok += status == GN_KV_OK;
	s->stats.cas_bad += status == GN_KV_EXISTS;
	s->stats.cas_misses += status == GN_KV_MISS;
}

static uint64_t cas_next(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	if (op->how & GN_KV_SET_CAS)
		return op->new_cas;
	return mutant("kv-version-again", op->hash) ? s->version : kv_next_version(s);
}

/* ---- storing ---- */

/*
 * An item to be stored. Its value is the given one; the existing value may go before or behind it.
 */
struct new_item {
	const void *value;
	uint32_t len, front, back; /* bytes: given; of the existing value, before and behind */
	uint32_t blanks;	   /* spaces appended */
	uint32_t flags, expires, bits;
	uint64_t cas;
	bool stored; /* counts as a new item */
};

static uint32_t new_item_lengths(const struct gn_kv_op *op, const struct new_item *w)
{
	return kv_lengths(op->key_len, w->front + w->len + w->back + w->blanks) |
	       (w->flags || w->expires ? KV_EXT : 0);
}

static void item_fill(struct kv_item *item, const struct gn_kv_op *op, const struct new_item *w,
		      const struct kv_item *old)
{
	uint8_t *to;

	KV_STORE_RELAXED(&item->lengths, new_item_lengths(op, w));
	KV_STORE_RELAXED(&item->cas, w->cas);
	if (kv_ext(item)) {
		KV_STORE_RELAXED(&kv_ext(item)->flags, w->flags);
		KV_STORE_RELAXED(&kv_ext(item)->expires, w->expires);
	}
	kv_copy(kv_key(item), op->key, op->key_len);
	to = kv_value(item);
	if (w->front)
		kv_copy(to, kv_value(old), w->front);
	exec_preempt(); /* the value may still be in memory that the client can change */
	if (w->len)
		kv_copy(to + w->front, w->value, w->len);
	if (w->back)
		kv_copy(to + w->front + w->len, kv_value(old), w->back);
	for (uint32_t i = 0; i < w->blanks; i++)
		KV_STORE_RELAXED(to + w->front + w->len + w->back + i, ' ');
	gn_charge(GN_WORK_COPY, kv_item_bytes(item->lengths));
}

/*
 * Allocates an item for a new key. If memory is full, and the least recently used item of its
 * bucket has the same size, it is replaced.
 */
static uint32_t item_alloc(struct gn_kv_store *s, uint64_t hash, uint32_t bytes, uint32_t *bits)
{
	const uint32_t oldest = kv_log_is_full(s) ? kv_oldest(s, hash) : 0;

	if (!oldest || s->mem || kv_item_bytes(kv_item_at(s, oldest)->lengths) != bytes)
		return kv_log_add(s, bytes);
	kv_unlink(s, hash, oldest);
	kv_log_expiry_remove(s, oldest);
	kv_count_dropped(s, kv_item_at(s, oldest), &s->stats.evicted_bucket);
	*bits |= KV_ITEM_RECENT; /* though the memory around it is not */
	return oldest;
}

/*
 * Stores the item. old: the existing item's location, or 0. Returns a status; GN_KV_STATUSES: try
 * again.
 */
static unsigned item_put(struct gn_kv_store *s, struct gn_kv_op *op, uint32_t old,
			 const struct new_item *w)
{
	const uint32_t bytes = kv_item_bytes(new_item_lengths(op, w));
	uint32_t loc, bits = w->bits;

	if ((uint64_t)w->len + w->front + w->back + w->blanks > s->max_value) {
		s->stats.too_big++;
		return GN_KV_TOO_BIG;
	}
	/* With bypass, items are not changed in place. */
	if (old && !s->mem && !w->front && !w->back &&
	    kv_item_bytes(kv_item_at(s, old)->lengths) == bytes) {
		loc = old;
		bits |= KV_ITEM_RECENT;
		kv_log_expiry_remove(s, loc);
		item_fill(kv_item_at(s, loc), op, w, kv_item_at(s, old));
		KV_STORE_RELAXED(&kv_item_at(s, loc)->used, used_stamp(s, bits));
	} else {
		loc = old ? kv_log_add(s, bytes) : item_alloc(s, op->hash, bytes, &bits);
		if (!loc) {
			s->stats.no_memory++;
			return GN_KV_NO_MEMORY;
		}
		/* The allocation may have moved or evicted the existing item. */
		const uint32_t now = old ? kv_find(s, op->hash, op->key, op->key_len) : 0;

		if (old && !now) {
			kv_log_undo_add(s, loc, bytes);
			return GN_KV_STATUSES; /* try again without the old item */
		}
		item_fill(kv_item_at(s, loc), op, w, now ? kv_item_at(s, now) : NULL);
		KV_STORE_RELAXED(&kv_item_at(s, loc)->used, used_stamp(s, bits));
		if (now) {
			kv_relink(s, op->hash, now, loc);
			kv_log_remove(s, now);
		} else {
			kv_link(s, op->hash, loc);
		}
	}
	kv_log_expiry_add(s, loc);
	kv_promote(s, op->hash, loc);
	s->stats.stored += w->stored;
	op_report(s, op, kv_item_at(s, loc));
	return GN_KV_OK;
}

/* May the operation store, given the existing item? Sets what is derived from the existing item. */
static unsigned store_check(struct gn_kv_store *s, const struct gn_kv_op *op,
			    const struct kv_item *old, struct new_item *w)
{
	unsigned status = cas_check(op, old);

	/*
	 * INVALIDATE allows an older version: the item is stored as stale. 0 is no version, so it
	 * is not older.
	 */
	if (status == GN_KV_EXISTS && op->how & GN_KV_INVALIDATE && op->cas && op->cas < old->cas) {
		w->bits |= KV_ITEM_STALE | (old->used & KV_ITEM_WON);
		w->expires = kv_expires(old);
		status = GN_KV_OK;
	}
	count_cas(s, op, status);
	if (status)
		return status;
	switch (op->verb) {
	case GN_KV_ADD:
		return old ? GN_KV_NOT_STORED : GN_KV_OK;
	case GN_KV_REPLACE:
		return old ? GN_KV_OK : GN_KV_NOT_STORED;
	case GN_KV_APPEND:
	case GN_KV_PREPEND:
		if (!old)
			return GN_KV_NOT_STORED;
		*(op->verb == GN_KV_APPEND ? &w->front : &w->back) = kv_value_len(old);
		w->flags = kv_flags(old);
		w->expires = kv_expires(old);
		return GN_KV_OK;
	default:
		return GN_KV_OK;
	}
}

static void command_store(struct gn_kv_store *s, struct gn_kv_op *op)
{
	s->stats.sets++;
	do {
		const uint32_t old = find_live_call(s, op);
		bool past;
		struct new_item w = {.value = op->value,
				     .len = op->value_len,
				     .flags = op->flags,
				     .expires = expiry_time(s, op->ttl_s),
				     .stored = true};

		op->status = store_check(s, op, old ? kv_item_at(s, old) : NULL, &w);
		if (op->status == GN_KV_NOT_STORED && old)
			kv_promote(s, op->hash, old); /* an interest in the item, but no hit */
		if (op->status)
			return;
		w.cas = cas_next(s, op);
		op->cas = w.cas;
		if (mutant("kv-put-lost", w.cas))
			return;
		/* An appended or stale item keeps its expiry. */
		past = w.expires && w.expires <= s->now_s;
		s->stats.stored += past;
		if (past && old) {
			kv_item_remove(s, op->hash, old);
			return;
		}
		if (past && !old)
			return;
		op->status = item_put(s, op, old, &w);
	} while (op->status == GN_KV_STATUSES);
}

/* Changes the head of an item; in a copy if clients READ it or it has no extension yet. */
static unsigned item_rewrite(struct gn_kv_store *s, struct gn_kv_op *op, uint32_t loc,
			     uint32_t expires, uint64_t cas, uint32_t bits)
{
	struct kv_item *item = kv_item_at(s, loc);

	if (s->mem || (expires && !kv_ext(item))) {
		const struct new_item w = {.front = kv_value_len(item),
					   .flags = kv_flags(item),
					   .expires = expires,
					   .cas = cas,
					   .bits = bits};

		const unsigned status = item_put(s, op, loc, &w);

		return status == GN_KV_STATUSES ? GN_KV_MISS : status;
	}
	kv_log_expiry_remove(s, loc);
	if (kv_ext(item))
		kv_ext(item)->expires = expires;
	kv_log_expiry_add(s, loc);
	item->cas = cas;
	item->used = used_stamp(s, bits);
	op_report(s, op, item);
	return GN_KV_OK;
}

/* ---- commands ---- */

/* VIVIFY: store an empty item on a miss; this client must fill it. */
static void get_vivify(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const struct new_item w = {.expires = expiry_time(s, op->create_s),
				   .cas = cas_next(s, op),
				   .stored = true,
				   .bits = KV_ITEM_WON | (op->how & GN_KV_QUIET ? 0 : KV_ITEM_HIT)};

	op->status = item_put(s, op, 0, &w);
	op->was_ttl_s = GN_KV_TTL_NONE;
	op->found = GN_KV_CREATED | GN_KV_WON;
}

static void get_recache_token(struct gn_kv_op *op, struct kv_item *item, uint32_t left_s)
{
	const bool due = op->how & GN_KV_RECACHE &&
			 (item->used & KV_ITEM_STALE || left_s < op->recache_s);

	op->found = item->used & KV_ITEM_FOUND;
	if (due && !(op->found & GN_KV_LOST)) {
		op->found |= GN_KV_WON;
		KV_STORE_RELAXED(&item->used, item->used | KV_ITEM_WON);
	}
}

static void count_get(struct gn_kv_store *s, const struct gn_kv_op *op, bool hit)
{
	if (op->how & GN_KV_UNCOUNTED)
		return;
	if (op->how & GN_KV_AND_TOUCH) {
		*(hit ? &s->stats.touches : &s->stats.touch_misses) += 1;
		return;
	}
	s->stats.gets++;
	*(hit ? &s->stats.hits : &s->stats.misses) += 1;
}

static no_inline const struct kv_item *get_miss(struct gn_kv_store *s, struct gn_kv_op *op)
{
	count_get(s, op, false);
	op->status = GN_KV_MISS;
	op->found = op->len = op->idle_s = op->was_ttl_s = 0;
	if (op->how & GN_KV_VIVIFY)
		get_vivify(s, op);
	return NULL;
}

/* GET with options other than GN_KV_NO_VALUE and GN_KV_DETAILS. */
static no_inline const struct kv_item *get_with_options(struct gn_kv_store *s, struct gn_kv_op *op,
							uint32_t loc)
{
	const uint32_t ttl_s = op->ttl_s;

	op_report(s, op, kv_item_at(s, loc));
	op->was_ttl_s = op->ttl_s;
	/* Compare recache_s with the new time to live, unless RECACHE_FIRST is set. */
	get_recache_token(op, kv_item_at(s, loc),
			  !(op->how & GN_KV_AND_TOUCH) || op->how & GN_KV_RECACHE_FIRST ?
				  op->ttl_s :
				  ttl_left(s, expiry_time(s, ttl_s)));
	if (op->how & GN_KV_AND_TOUCH) {
		const struct kv_item *item = kv_item_at(s, loc);
		const uint32_t idle_s = op->idle_s;

		op->status = item_rewrite(s, op, loc, expiry_time(s, ttl_s), item->cas,
					  item->used & ((1u << KV_ITEM_BITS) - 1));
		op->idle_s = idle_s;
		loc = kv_find(s, op->hash, op->key, op->key_len);
		if (!loc) { /* it was evicted to make space for itself */
			return get_miss(s, op);
		}
	}
	count_get(s, op, true);
	if (!(op->how & GN_KV_QUIET))
		note_use(s, op, loc);
	return op->how & GN_KV_NO_VALUE ? NULL : kv_item_at(s, loc);
}

static inline const struct kv_item *command_get(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t loc = find_live(s, op);
	const struct kv_item *item = kv_item_at(s, loc);

	if (unlikely(!loc))
		return get_miss(s, op);
	if (unlikely(op->how & ~(unsigned)(GN_KV_NO_VALUE | GN_KV_DETAILS)))
		return get_with_options(s, op, loc);
	op_report(s, op, item);
	op->was_ttl_s = op->ttl_s;
	op->found = item->used & KV_ITEM_FOUND;
	kv_count_hit(s);
	note_use(s, op, loc);
	return op->how & GN_KV_NO_VALUE ? NULL : item;
}

static void command_delete(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t loc = find_live_call(s, op);
	const struct kv_item *item = loc ? kv_item_at(s, loc) : NULL;

	op->status = item ? cas_check(op, item) : GN_KV_MISS;
	s->stats.delete_misses += op->status != GN_KV_OK;
	if (op->status)
		return;
	if (op->how & GN_KV_INVALIDATE)
		op->status = item_rewrite(
			s, op, loc,
			op->how & GN_KV_AND_TOUCH ? expiry_time(s, op->ttl_s) : kv_expires(item),
			cas_next(s, op),
			(item->used & (KV_ITEM_HIT | KV_ITEM_RECENT)) | KV_ITEM_STALE);
	else
		s->stats.deletes++, kv_item_remove(s, op->hash, loc);
}

static void command_touch(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t loc = find_live_call(s, op);

	op->status = GN_KV_MISS;
	s->stats.touch_misses += !loc;
	if (!loc)
		return;
	s->stats.touches++;
	if (op->ttl_s == GN_KV_TTL_PAST) {
		op->status = GN_KV_OK;
		kv_item_remove(s, op->hash, loc);
		return;
	}
	op->status = item_rewrite(s, op, loc, expiry_time(s, op->ttl_s), kv_item_at(s, loc)->cas,
				  kv_item_at(s, loc)->used & ((1u << KV_ITEM_BITS) - 1));
	if (op->status == GN_KV_OK)
		note_use(s, op, kv_find(s, op->hash, op->key, op->key_len));
}

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/*
 * Parses a number as memcached does with strtoull(): white space, a sign, digits, and then the end,
 * a NUL, or white space and anything. A value of 2^63 or more must not contain a minus sign
 * anywhere.
 */
static bool number_parse(const uint8_t *text, uint32_t len, uint64_t *out)
{
	uint32_t at = 0, digits;
	bool minus;

	while (at < len && is_space(text[at]))
		at++;
	minus = at < len && text[at] == '-';
	at += at < len && (text[at] == '-' || text[at] == '+');
	*out = 0;
	for (digits = at; at < len && text[at] >= '0' && text[at] <= '9'; at++)
		if (__builtin_mul_overflow(*out, 10, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(text[at] - '0'), out))
			return false;
	if (at == digits || (at < len && text[at] && !is_space(text[at])))
		return false;
	if (minus)
		*out = -*out;
	return !(*out >> 63) || !memchr(text, '-', strnlen((const char *)text, len));
}

static uint32_t number_format(uint64_t number, uint8_t out[DIGITS_MAX])
{
	uint8_t digits[DIGITS_MAX];
	uint32_t n = 0;

	do {
		digits[n++] = (uint8_t)('0' + number % 10);
		number /= 10;
	} while (number);
	for (uint32_t i = 0; i < n; i++)
		out[i] = digits[n - 1 - i];
	return n;
}

/* INCR or DECR of a key that does not exist. */
static unsigned number_create(struct gn_kv_store *s, struct gn_kv_op *op)
{
	uint8_t text[DIGITS_MAX];
	struct new_item w = {
		.value = text, .expires = expiry_time(s, op->create_s), .stored = true};
	unsigned status;

	if (!(op->how & GN_KV_CREATE)) {
		*(op->verb == GN_KV_INCR ? &s->stats.incr_misses : &s->stats.decr_misses) += 1;
		return GN_KV_MISS;
	}
	w.len = number_format(op->initial, text);
	w.cas = cas_next(s, op);
	op->number = op->initial;
	op->was_ttl_s = GN_KV_TTL_NONE;
	status = item_put(s, op, 0, &w);
	op->found = GN_KV_CREATED;
	return status;
}

/* A number that becomes shorter is padded with blanks. */
static unsigned number_update(struct gn_kv_store *s, struct gn_kv_op *op, uint32_t loc,
			      uint64_t number)
{
	const struct kv_item *item = kv_item_at(s, loc);
	const uint32_t old_len = kv_value_len(item);
	uint8_t text[DIGITS_MAX];
	struct new_item w = {.value = text,
			     .flags = kv_flags(item),
			     .expires = op->how & GN_KV_AND_TOUCH ? expiry_time(s, op->ttl_s) :
								    kv_expires(item),
			     .cas = cas_next(s, op),
			     .bits = item->used & ((1u << KV_ITEM_BITS) - 1)};

	w.len = number_format(number, text);
	w.stored = w.len > old_len;
	if (w.len <= old_len)
		w.blanks = old_len - w.len;
	else
		w.bits = 0; /* as in memcached: a longer number is a new item */
	return item_put(s, op, loc, &w);
}

static void command_count(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint64_t by = op->number;

	s->stats.numbers++;
	do {
		const uint32_t loc = find_live_call(s, op);
		struct kv_item *item = loc ? kv_item_at(s, loc) : NULL;
		uint64_t now;

		if (!item) {
			op->status = number_create(s, op);
			return;
		}
		/* An empty value is not a number, whatever its version. */
		op->status = kv_value_len(item) ? cas_check(op, item) : GN_KV_NOT_NUMBER;
		if (op->status)
			return;
		if (!number_parse(kv_value(item), kv_value_len(item), &now)) {
			op->status = GN_KV_NOT_NUMBER;
			return;
		}
		op->was_ttl_s = ttl_left(s, kv_expires(item));
		op->number = op->verb == GN_KV_INCR ? now + by : now < by ? 0 : now - by;
		op->status = number_update(s, op, loc, op->number);
	} while (op->status == GN_KV_STATUSES);
	if (op->status == GN_KV_OK)
		*(op->verb == GN_KV_INCR ? &s->stats.incr_hits : &s->stats.decr_hits) += 1;
}

static no_inline void execute_slow(struct gn_kv_store *s, struct gn_kv_op *op)
{
	op->status = GN_KV_MISS;
	op->found = 0;
	op->len = op->idle_s = op->was_ttl_s = 0;
	if (op->key_len - 1 >= GN_KV_KEY_MAX) {
		op->status = GN_KV_INVALID;
		return;
	}
	switch (op->verb) {
	case GN_KV_SET:
	case GN_KV_ADD:
	case GN_KV_REPLACE:
	case GN_KV_APPEND:
	case GN_KV_PREPEND:
		command_store(s, op);
		return;
	case GN_KV_DELETE:
		command_delete(s, op);
		return;
	case GN_KV_INCR:
	case GN_KV_DECR:
		command_count(s, op);
		return;
	case GN_KV_TOUCH:
		command_touch(s, op);
		return;
	default:
		op->status = GN_KV_INVALID;
		return;
	}
}

const struct kv_item *kv_execute(struct gn_kv_store *s, struct gn_kv_op *op)
{
	if (likely(op->verb == GN_KV_GET && op->key_len - 1 < GN_KV_KEY_MAX))
		return command_get(s, op);
	execute_slow(s, op);
	return NULL;
}
