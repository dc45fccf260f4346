/* SPDX-License-Identifier: MIT */
/* What operations do to a store. */
#include <errno.h>

#include "base/mutant.h"
#include "base/preempt.h"
#include "kv/bucket.h"

#define DIGITS 20u /* of the largest number */

/* ---- looking ---- */

static bool expired(const struct gn_kv_store *s, const struct kv_item *item)
{
	return kv_has_expired(s, item) && !mutant("kv-ttl-ignored", MUTANT_ALWAYS);
}

static no_inline void drop_expired(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	kv_count_expired(s, kv_at(s, place));
	s->stats.expired_get++;
	kv_forget(s, hash, place);
}

/* The place of what is there and lives; 0: nothing. */
static force_inline uint32_t look_now(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	const uint32_t place = kv_look_up(s, op);

	if (likely(!place || !expired(s, kv_at(s, place))))
		return place;
	drop_expired(s, op->hash, place);
	return 0;
}

/* … where a call does not matter. */
static no_inline uint32_t look(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	return look_now(s, op);
}

static uint32_t expiry(const struct gn_kv_store *s, uint32_t ttl_s)
{
	if (ttl_s == GN_KV_TTL_PAST)
		return s->now_s;
	/* Beyond the end of time is never. */
	return !ttl_s || ttl_s > UINT32_MAX - s->now_s ? 0 : s->now_s + ttl_s;
}

static uint32_t stamp(const struct gn_kv_store *s, uint32_t bits)
{
	return s->now_s << KV_ITEM_BITS | bits;
}

void kv_record_use(struct gn_kv_store *s, const struct gn_kv_op *op, uint32_t place)
{
	struct kv_item *item = kv_at(s, place);
	const uint32_t now =
		stamp(s, (item->used & ((1u << KV_ITEM_BITS) - 1)) | KV_ITEM_HIT | KV_ITEM_RECENT);

	kv_promote(s, op->hash, place);
	if (item->used != now)
		KV_PUT(&item->used, now);
}

static force_inline void use(struct gn_kv_store *s, const struct gn_kv_op *op, uint32_t place)
{
	if (kv_use_matters(s, kv_at(s, place)))
		kv_record_use(s, op, place);
}

/* Seconds until then. */
static uint32_t left(const struct gn_kv_store *s, uint32_t expires)
{
	return !expires ? GN_KV_TTL_NONE : expires > s->now_s ? expires - s->now_s : 0;
}

static inline void tell(const struct gn_kv_store *s, struct gn_kv_op *op,
			const struct kv_item *item)
{
	const uint32_t expires = kv_expires(item);

	op->status = GN_KV_OK;
	op->flags = kv_flags(item);
	op->cas = item->cas;
	op->len = kv_value_len(item);
	op->ttl_s = left(s, expires);
	op->idle_s = s->now_s - (item->used >> KV_ITEM_BITS);
}

/* IF_CAS: GN_KV_OK, or why not. */
static unsigned compare(const struct gn_kv_op *op, const struct kv_item *item)
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

static uint64_t version(struct gn_kv_store *s, const struct gn_kv_op *op)
{
	if (op->how & GN_KV_SET_CAS)
		return op->new_cas;
	return mutant("kv-version-again", op->hash) ? s->version : kv_next_version(s);
}

/* ---- storing ---- */

/* What is to be there: before the value that is given, or behind it, may be the one there is. */
struct what {
	const void *value;
	uint32_t len, front, back; /* bytes: given; of the old one, before and behind */
	uint32_t blanks;	   /* bytes: spaces at the end */
	uint32_t flags, expires, bits;
	uint64_t cas;
	bool stored; /* it counts as a new item */
};

static uint32_t lengths_of(const struct gn_kv_op *op, const struct what *w)
{
	return kv_lengths(op->key_len, w->front + w->len + w->back + w->blanks) |
	       (w->flags || w->expires ? KV_MORE : 0);
}

static void fill(struct kv_item *item, const struct gn_kv_op *op, const struct what *w,
		 const struct kv_item *old)
{
	uint8_t *to;

	KV_PUT(&item->lengths, lengths_of(op, w));
	KV_PUT(&item->cas, w->cas);
	if (kv_more(item)) {
		KV_PUT(&kv_more(item)->flags, w->flags);
		KV_PUT(&kv_more(item)->expires, w->expires);
	}
	kv_copy(kv_key(item), op->key, op->key_len);
	to = kv_value(item);
	if (w->front)
		kv_copy(to, kv_value(old), w->front);
	exec_preempt(); /* the value may still be in memory of its client's */
	if (w->len)
		kv_copy(to + w->front, w->value, w->len);
	if (w->back)
		kv_copy(to + w->front + w->len, kv_value(old), w->back);
	for (uint32_t i = 0; i < w->blanks; i++)
		KV_PUT(to + w->front + w->len + w->back + i, ' ');
	gn_charge(GN_WORK_COPY, kv_item_bytes(item->lengths));
}

/*
 * Room for an item that is not there. Where memory is short, and the least recently used of its
 * bucket takes just as much, it is that one's.
 */
static uint32_t make_room(struct gn_kv_store *s, uint64_t hash, uint32_t bytes, uint32_t *bits)
{
	const uint32_t oldest = kv_log_short(s) ? kv_oldest(s, hash) : 0;

	if (!oldest || s->mem || kv_item_bytes(kv_at(s, oldest)->lengths) != bytes)
		return kv_log_add(s, bytes);
	kv_unlink(s, hash, oldest);
	kv_log_untimed(s, oldest);
	kv_count_dropped(s, kv_at(s, oldest), &s->stats.evicted_bucket);
	*bits |= KV_ITEM_RECENT; /* though its segment is not */
	return oldest;
}

/* Puts it there: a status. old: what is there, or 0; what is longer than its room must be new. */
static unsigned put(struct gn_kv_store *s, struct gn_kv_op *op, uint32_t old, const struct what *w)
{
	const uint32_t bytes = kv_item_bytes(lengths_of(op, w));
	uint32_t place, bits = w->bits;

	if ((uint64_t)w->len + w->front + w->back + w->blanks > s->max_value) {
		s->stats.too_big++;
		return GN_KV_TOO_BIG;
	}
	/* Where others read, nothing changes in place. */
	if (old && !s->mem && !w->front && !w->back &&
	    kv_item_bytes(kv_at(s, old)->lengths) == bytes) {
		place = old;
		bits |= KV_ITEM_RECENT;
		kv_log_untimed(s, place);
		fill(kv_at(s, place), op, w, kv_at(s, old));
		KV_PUT(&kv_at(s, place)->used, stamp(s, bits));
	} else {
		place = old ? kv_log_add(s, bytes) : make_room(s, op->hash, bytes, &bits);
		if (!place) {
			s->stats.no_memory++;
			return GN_KV_NO_MEMORY;
		}
		/* It may have been moved to make room, or forgotten. */
		const uint32_t now = old ? kv_find(s, op->hash, op->key, op->key_len) : 0;

		if (old && !now) {
			kv_log_undo(s, place, bytes);
			return GN_KV_STATUSES; /* again, without it */
		}
		fill(kv_at(s, place), op, w, now ? kv_at(s, now) : NULL);
		KV_PUT(&kv_at(s, place)->used, stamp(s, bits));
		if (now) {
			kv_relink(s, op->hash, now, place);
			kv_log_kill(s, now);
		} else {
			kv_link(s, op->hash, place);
		}
	}
	kv_log_timed(s, place);
	kv_promote(s, op->hash, place);
	s->stats.stored += w->stored;
	tell(s, op, kv_at(s, place));
	return GN_KV_OK;
}

/* Whether it is to be stored, in view of what is there; and how, if not as it is given. */
static unsigned judge(struct gn_kv_store *s, const struct gn_kv_op *op, const struct kv_item *old,
		      struct what *w)
{
	unsigned status = compare(op, old);

	/*
	 * An older version may, where it is said so: then there is something, and it is stale. 0 is
	 * no version, and so not an older one.
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

static void store(struct gn_kv_store *s, struct gn_kv_op *op)
{
	s->stats.sets++;
	do {
		const uint32_t old = look(s, op);
		bool past;
		struct what w = {.value = op->value,
				 .len = op->value_len,
				 .flags = op->flags,
				 .expires = expiry(s, op->ttl_s),
				 .stored = true};

		op->status = judge(s, op, old ? kv_at(s, old) : NULL, &w);
		if (op->status == GN_KV_NOT_STORED && old)
			kv_promote(s, op->hash, old); /* who asks is interested, but sees nothing */
		if (op->status)
			return;
		w.cas = version(s, op);
		op->cas = w.cas;
		if (mutant("kv-put-lost", w.cas))
			return;
		/* What is added to, or becomes stale, keeps the time that it has. */
		past = w.expires && w.expires <= s->now_s;
		s->stats.stored += past;
		if (past && old) {
			kv_forget(s, op->hash, old);
			return;
		}
		if (past && !old)
			return;
		op->status = put(s, op, old, &w);
	} while (op->status == GN_KV_STATUSES);
}

/* Other words in the head of what is there; where others read, or there is no room, in a copy. */
static unsigned rewrite(struct gn_kv_store *s, struct gn_kv_op *op, uint32_t place,
			uint32_t expires, uint64_t cas, uint32_t bits)
{
	struct kv_item *item = kv_at(s, place);

	if (s->mem || (expires && !kv_more(item))) {
		const struct what w = {.front = kv_value_len(item),
				       .flags = kv_flags(item),
				       .expires = expires,
				       .cas = cas,
				       .bits = bits};

		const unsigned status = put(s, op, place, &w);

		return status == GN_KV_STATUSES ? GN_KV_MISS : status;
	}
	kv_log_untimed(s, place);
	if (kv_more(item))
		kv_more(item)->expires = expires;
	kv_log_timed(s, place);
	item->cas = cas;
	item->used = stamp(s, bits);
	tell(s, op, item);
	return GN_KV_OK;
}

/* ---- verbs ---- */

/* GET of what is not there: an empty one is, from now on, and its client is to fill it. */
static void vivify(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const struct what w = {.expires = expiry(s, op->create_s),
			       .cas = version(s, op),
			       .stored = true,
			       .bits = KV_ITEM_WON | (op->how & GN_KV_QUIET ? 0 : KV_ITEM_HIT)};

	op->status = put(s, op, 0, &w);
	op->was_ttl_s = GN_KV_TTL_NONE;
	op->found = GN_KV_CREATED | GN_KV_WON;
}

static void token(struct gn_kv_op *op, struct kv_item *item, uint32_t left_s)
{
	const bool due = op->how & GN_KV_RECACHE &&
			 (item->used & KV_ITEM_STALE || left_s < op->recache_s);

	op->found = item->used & KV_ITEM_FOUND;
	if (due && !(op->found & GN_KV_LOST)) {
		op->found |= GN_KV_WON;
		KV_PUT(&item->used, item->used | KV_ITEM_WON);
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

static no_inline const struct kv_item *miss(struct gn_kv_store *s, struct gn_kv_op *op)
{
	count_get(s, op, false);
	op->status = GN_KV_MISS;
	op->found = op->len = op->idle_s = op->was_ttl_s = 0;
	if (op->how & GN_KV_VIVIFY)
		vivify(s, op);
	return NULL;
}

/* GET with anything but GN_KV_NO_VALUE and GN_KV_DETAILS. */
static no_inline const struct kv_item *get_and(struct gn_kv_store *s, struct gn_kv_op *op,
					       uint32_t place)
{
	const uint32_t ttl_s = op->ttl_s;

	tell(s, op, kv_at(s, place));
	op->was_ttl_s = op->ttl_s;
	/* What it is given to live counts, if it is, and not asked for otherwise. */
	token(op, kv_at(s, place),
	      !(op->how & GN_KV_AND_TOUCH) || op->how & GN_KV_RECACHE_FIRST ?
		      op->ttl_s :
		      left(s, expiry(s, ttl_s)));
	if (op->how & GN_KV_AND_TOUCH) {
		const struct kv_item *item = kv_at(s, place);
		const uint32_t idle_s = op->idle_s;

		op->status = rewrite(s, op, place, expiry(s, ttl_s), item->cas,
				     item->used & ((1u << KV_ITEM_BITS) - 1));
		op->idle_s = idle_s;
		place = kv_find(s, op->hash, op->key, op->key_len);
		if (!place) { /* it had to make room for itself */
			return miss(s, op);
		}
	}
	count_get(s, op, true);
	if (!(op->how & GN_KV_QUIET))
		use(s, op, place);
	return op->how & GN_KV_NO_VALUE ? NULL : kv_at(s, place);
}

static inline const struct kv_item *get(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t place = look_now(s, op);
	const struct kv_item *item = kv_at(s, place);

	if (unlikely(!place))
		return miss(s, op);
	if (unlikely(op->how & ~(unsigned)(GN_KV_NO_VALUE | GN_KV_DETAILS)))
		return get_and(s, op, place);
	tell(s, op, item);
	op->was_ttl_s = op->ttl_s;
	op->found = item->used & KV_ITEM_FOUND;
	kv_count_hit(s);
	use(s, op, place);
	return op->how & GN_KV_NO_VALUE ? NULL : item;
}

static void delete (struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t place = look(s, op);
	const struct kv_item *item = place ? kv_at(s, place) : NULL;

	op->status = item ? compare(op, item) : GN_KV_MISS;
	s->stats.delete_misses += op->status != GN_KV_OK;
	if (op->status)
		return;
	if (op->how & GN_KV_INVALIDATE)
		op->status =
			rewrite(s, op, place,
				op->how & GN_KV_AND_TOUCH ? expiry(s, op->ttl_s) : kv_expires(item),
				version(s, op),
				(item->used & (KV_ITEM_HIT | KV_ITEM_RECENT)) | KV_ITEM_STALE);
	else
		s->stats.deletes++, kv_forget(s, op->hash, place);
}

static void touch(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint32_t place = look(s, op);

	op->status = GN_KV_MISS;
	s->stats.touch_misses += !place;
	if (!place)
		return;
	s->stats.touches++;
	if (op->ttl_s == GN_KV_TTL_PAST) {
		op->status = GN_KV_OK;
		kv_forget(s, op->hash, place);
		return;
	}
	op->status = rewrite(s, op, place, expiry(s, op->ttl_s), kv_at(s, place)->cas,
			     kv_at(s, place)->used & ((1u << KV_ITEM_BITS) - 1));
	if (op->status == GN_KV_OK)
		use(s, op, kv_find(s, op->hash, op->key, op->key_len));
}

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/*
 * As memcached reads them, which has strtoull() do it: white space, a sign, digits, and then the
 * end, a NUL, or white space and anything. A value of 2^63 or more has no minus sign anywhere.
 */
static bool read_number(const uint8_t *text, uint32_t len, uint64_t *out)
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

static uint32_t write_number(uint64_t number, uint8_t out[DIGITS])
{
	uint8_t digits[DIGITS];
	uint32_t n = 0;

	do {
		digits[n++] = (uint8_t)('0' + number % 10);
		number /= 10;
	} while (number);
	for (uint32_t i = 0; i < n; i++)
		out[i] = digits[n - 1 - i];
	return n;
}

/* INCR, DECR of what is not there. */
static unsigned begin_number(struct gn_kv_store *s, struct gn_kv_op *op)
{
	uint8_t text[DIGITS];
	struct what w = {.value = text, .expires = expiry(s, op->create_s), .stored = true};
	unsigned status;

	if (!(op->how & GN_KV_CREATE)) {
		*(op->verb == GN_KV_INCR ? &s->stats.incr_misses : &s->stats.decr_misses) += 1;
		return GN_KV_MISS;
	}
	w.len = write_number(op->initial, text);
	w.cas = version(s, op);
	op->number = op->initial;
	op->was_ttl_s = GN_KV_TTL_NONE;
	status = put(s, op, 0, &w);
	op->found = GN_KV_CREATED;
	return status;
}

/* A number that has become shorter is filled up with blanks. */
static unsigned change_number(struct gn_kv_store *s, struct gn_kv_op *op, uint32_t place,
			      uint64_t number)
{
	const struct kv_item *item = kv_at(s, place);
	const uint32_t old_len = kv_value_len(item);
	uint8_t text[DIGITS];
	struct what w = {.value = text,
			 .flags = kv_flags(item),
			 .expires = op->how & GN_KV_AND_TOUCH ? expiry(s, op->ttl_s) :
								kv_expires(item),
			 .cas = version(s, op),
			 .bits = item->used & ((1u << KV_ITEM_BITS) - 1)};

	w.len = write_number(number, text);
	w.stored = w.len > old_len;
	if (w.len <= old_len)
		w.blanks = old_len - w.len;
	else
		w.bits = 0; /* as memcached has it: what has no room is new */
	return put(s, op, place, &w);
}

static void count(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const uint64_t by = op->number;

	s->stats.numbers++;
	do {
		const uint32_t place = look(s, op);
		struct kv_item *item = place ? kv_at(s, place) : NULL;
		uint64_t now;

		if (!item) {
			op->status = begin_number(s, op);
			return;
		}
		/* What is empty is no number, whatever its version. */
		op->status = kv_value_len(item) ? compare(op, item) : GN_KV_NOT_NUMBER;
		if (op->status)
			return;
		if (!read_number(kv_value(item), kv_value_len(item), &now)) {
			op->status = GN_KV_NOT_NUMBER;
			return;
		}
		op->was_ttl_s = left(s, kv_expires(item));
		op->number = op->verb == GN_KV_INCR ? now + by : now < by ? 0 : now - by;
		op->status = change_number(s, op, place, op->number);
	} while (op->status == GN_KV_STATUSES);
	if (op->status == GN_KV_OK)
		*(op->verb == GN_KV_INCR ? &s->stats.incr_hits : &s->stats.decr_hits) += 1;
}

static no_inline void execute_other(struct gn_kv_store *s, struct gn_kv_op *op)
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
		store(s, op);
		return;
	case GN_KV_DELETE:
		delete (s, op);
		return;
	case GN_KV_INCR:
	case GN_KV_DECR:
		count(s, op);
		return;
	case GN_KV_TOUCH:
		touch(s, op);
		return;
	default:
		op->status = GN_KV_INVALID;
		return;
	}
}

const struct kv_item *kv_execute(struct gn_kv_store *s, struct gn_kv_op *op)
{
	if (likely(op->verb == GN_KV_GET && op->key_len - 1 < GN_KV_KEY_MAX))
		return get(s, op);
	execute_other(s, op);
	return NULL;
}
