/* SPDX-License-Identifier: MIT */
/* Operations and results as bytes. */
#include <endian.h>

#include "kv/wire.h"

#include "base/bits.h"
#include "base/preempt.h"

#define WORD sizeof(uint64_t)

static inline bool stores(enum gn_kv_verb verb)
{
	return verb >= GN_KV_SET && verb <= GN_KV_PREPEND;
}

static inline bool counts(enum gn_kv_verb verb)
{
	return verb == GN_KV_INCR || verb == GN_KV_DECR;
}

/* Its result has a value, for which there is so much room. */
static bool reads(enum gn_kv_verb verb)
{
	return verb == GN_KV_GET || verb == GN_KV_SCAN;
}

/* Of a GET that was used before, ttl_s is what it found. */
static bool keeps(const struct gn_kv_op *op)
{
	if (stores(op->verb))
		return op->ttl_s || op->flags;
	return op->ttl_s && (op->verb == GN_KV_TOUCH || op->how & GN_KV_AND_TOUCH);
}

#define SECONDS (GN_KV_CREATE | GN_KV_VIVIFY | GN_KV_RECACHE)

static inline bool is_plain_get(const struct gn_kv_op *op)
{
	return op->verb == GN_KV_GET && !op->how;
}

/* Words between head and key. */
static uint32_t ask_words(enum gn_kv_verb verb, unsigned how)
{
	uint32_t n = counts(verb);

	if (!how)
		return n;
	n += (how & KV_ASK_KEPT) != 0;
	n += (how & GN_KV_IF_CAS) != 0;
	n += (how & GN_KV_SET_CAS) != 0;
	n += (how & SECONDS) != 0;
	return n + ((how & GN_KV_CREATE) != 0);
}

static unsigned ask_how(const struct gn_kv_op *op)
{
	return (op->how & ~KV_ASK_KEPT) | (keeps(op) ? KV_ASK_KEPT : 0);
}

static uint32_t value_bytes(const struct gn_kv_op *op)
{
	return stores(op->verb) ? op->value_len : 0;
}

/* More than a value can have need not be told. */
static uint32_t room_bytes(const struct gn_kv_op *op)
{
	return op->room_bytes < GN_KV_VALUE_MAX ? op->room_bytes : GN_KV_VALUE_MAX;
}

uint32_t kv_ask_bytes(const struct gn_kv_op *op)
{
	if (likely(is_plain_get(op)))
		return (uint32_t)sizeof(struct kv_ask) + kv_round(op->key_len);
	return (uint32_t)(sizeof(struct kv_ask) + ask_words(op->verb, ask_how(op)) * WORD +
			  kv_round(op->key_len + value_bytes(op)));
}

uint32_t kv_tell_bytes(const struct gn_kv_op *op)
{
	return (uint32_t)KV_TELL_MAX + (reads(op->verb) ? kv_round(room_bytes(op)) : 0);
}

static uint8_t *put_word(uint8_t *to, uint64_t word)
{
	memcpy(to, &word, WORD);
	return to + WORD;
}

static uint64_t two(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

static uint8_t *put_words(uint8_t *to, const struct gn_kv_op *op, unsigned how)
{
	if (how & KV_ASK_KEPT)
		to = put_word(to, two(op->flags, op->ttl_s));
	if (how & GN_KV_IF_CAS)
		to = put_word(to, op->cas);
	if (how & GN_KV_SET_CAS)
		to = put_word(to, op->new_cas);
	if (how & SECONDS)
		to = put_word(to, two(op->create_s, op->recache_s));
	if (counts(op->verb))
		to = put_word(to, op->number);
	if (how & GN_KV_CREATE)
		to = put_word(to, op->initial);
	return to;
}

uint8_t *kv_ask_write(uint8_t *to, const struct gn_kv_op *op)
{
	const bool plain = is_plain_get(op);
	const unsigned how = plain ? 0 : ask_how(op);
	const uint32_t value = plain ? 0 : value_bytes(op), tail = kv_round(op->key_len + value);
	const struct kv_ask ask = {
		.verb = (uint8_t)op->verb,
		.key_len = (uint8_t)op->key_len,
		.how = (uint16_t)how,
		.bytes = reads(op->verb) ? room_bytes(op) : value,
	};

	memcpy(to, &ask, sizeof(ask));
	to += sizeof(ask);
	if (unlikely(how || counts(op->verb)))
		to = put_words(to, op, how);
	memset(to + tail - WORD, 0, WORD); /* no byte is sent that nobody wrote */
	kv_copy(to, op->key, op->key_len);
	if (value)
		kv_copy(to + op->key_len, op->value, value);
	return to + tail;
}

static const uint8_t *get_word(const uint8_t *from, uint64_t *word)
{
	memcpy(word, from, WORD);
	return from + WORD;
}

static const uint8_t *get_two(const uint8_t *from, uint32_t *low, uint32_t *high)
{
	uint64_t word;

	from = get_word(from, &word);
	*low = (uint32_t)word;
	*high = (uint32_t)(word >> 32);
	return from;
}

static const uint8_t *get_words(const uint8_t *from, struct gn_kv_op *op, unsigned how)
{
	if (how & KV_ASK_KEPT)
		from = get_two(from, &op->flags, &op->ttl_s);
	if (how & GN_KV_IF_CAS)
		from = get_word(from, &op->cas);
	if (how & GN_KV_SET_CAS)
		from = get_word(from, &op->new_cas);
	if (how & SECONDS)
		from = get_two(from, &op->create_s, &op->recache_s);
	if (counts(op->verb))
		from = get_word(from, &op->number);
	if (how & GN_KV_CREATE)
		from = get_word(from, &op->initial);
	return from;
}

uint32_t kv_ask_read(const uint8_t *from, uint32_t bytes, struct gn_kv_op *op, uint8_t *key)
{
	const uint8_t *at = from + sizeof(struct kv_ask);
	struct kv_ask ask;
	uint64_t need;

	if (bytes < sizeof(ask))
		return 0;
	memcpy(&ask, from, sizeof(ask));
	__atomic_signal_fence(__ATOMIC_ACQUIRE); /* what is checked is not read again */
	exec_preempt();
	op->verb = (enum gn_kv_verb)ask.verb;
	op->how = ask.how & ~KV_ASK_KEPT;
	op->key = key;
	op->key_len = ask.key_len;
	op->value_len = 0;
	op->room_bytes = ask.bytes;
	op->flags = op->ttl_s = 0;
	need = sizeof(ask) + kv_round(ask.key_len);
	if (unlikely(ask.verb != GN_KV_GET || ask.how)) {
		op->value_len = stores(op->verb) ? ask.bytes : 0;
		need = sizeof(ask) + ask_words(op->verb, ask.how) * WORD +
		       (((uint64_t)op->key_len + op->value_len + WORD - 1) & ~(WORD - 1));
	}
	if (ask.verb >= GN_KV_VERBS || ask.key_len - 1u >= GN_KV_KEY_MAX || need > bytes)
		return 0;
	if (unlikely(ask.how || counts(op->verb)))
		at = get_words(at, op, ask.how);
	exec_preempt();
	kv_copy(key, at, op->key_len);
	op->value = at + op->key_len;
	return (uint32_t)need;
}

/* ---- results ---- */

static unsigned tell_bits(const struct gn_kv_op *op, const struct kv_item *item)
{
	unsigned bits = 0;

	if (op->status != GN_KV_OK)
		return 0;
	if (likely(op->verb == GN_KV_GET && !(op->how & GN_KV_DETAILS)))
		return (item ? KV_TELL_VALUE : 0) | (op->flags ? KV_TELL_FLAGS : 0);
	if (op->verb != GN_KV_GET && op->verb != GN_KV_DELETE)
		bits |= KV_TELL_CAS;
	if (op->how & GN_KV_DETAILS)
		bits |= KV_TELL_CAS | KV_TELL_TIMES;
	if (op->flags && op->verb != GN_KV_DELETE)
		bits |= KV_TELL_FLAGS;
	if (op->verb == GN_KV_INCR || op->verb == GN_KV_DECR)
		bits |= KV_TELL_NUMBER | KV_TELL_TIMES;
	if (bits & KV_TELL_TIMES && op->was_ttl_s != op->ttl_s)
		bits |= KV_TELL_WAS;
	return item ? bits | KV_TELL_VALUE : bits;
}

static uint8_t *put_told(uint8_t *to, const struct gn_kv_op *op, unsigned bits)
{
	if (bits & KV_TELL_FLAGS)
		to = put_word(to, op->flags);
	if (bits & KV_TELL_CAS)
		to = put_word(to, op->cas);
	if (bits & KV_TELL_TIMES)
		to = put_word(to, two(op->ttl_s, op->idle_s));
	if (bits & KV_TELL_NUMBER)
		to = put_word(to, op->number);
	if (bits & KV_TELL_WAS)
		to = put_word(to, op->was_ttl_s);
	return to;
}

uint8_t *kv_tell_write(uint8_t *to, uint32_t room_bytes, const struct gn_kv_op *op,
		       const struct kv_item *item)
{
	const bool fits = !item || op->len <= room_bytes;
	const unsigned bits = tell_bits(op, fits ? item : NULL);
	const struct kv_tell tell = {
		.status = (uint8_t)(fits ? op->status : GN_KV_TOO_BIG),
		.found = (uint8_t)op->found,
		.bits = (uint16_t)bits,
		.len = op->len,
	};
	const uint32_t value = bits & KV_TELL_VALUE ? kv_round(op->len) : 0;

	memcpy(to, &tell, sizeof(tell));
	to += sizeof(tell);
	if (unlikely(bits & (KV_TELL_VALUE - 1)))
		to = put_told(to, op, bits);
	if (value) {
		memset(to + value - WORD, 0, WORD);
		kv_copy(to, kv_value(item), op->len);
	}
	return to + value;
}

static uint32_t tell_words(unsigned bits)
{
	return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1) + (bits >> 4 & 1);
}

static const uint8_t *get_told(const uint8_t *from, struct gn_kv_op *op, unsigned bits)
{
	uint32_t zero;

	if (bits & KV_TELL_FLAGS)
		from = get_two(from, &op->flags, &zero);
	if (bits & KV_TELL_CAS)
		from = get_word(from, &op->cas);
	if (bits & KV_TELL_TIMES)
		from = get_two(from, &op->ttl_s, &op->idle_s);
	op->was_ttl_s = op->ttl_s;
	if (bits & KV_TELL_NUMBER)
		from = get_word(from, &op->number);
	if (bits & KV_TELL_WAS)
		from = get_two(from, &op->was_ttl_s, &zero);
	return from;
}

/* Who asks for a value, and hears that it is there, looks at so many bytes. */
static bool value_lacks(const struct gn_kv_op *op, const struct kv_tell *tell)
{
	return op->verb == GN_KV_GET && tell->status == GN_KV_OK && tell->len &&
	       !(op->how & GN_KV_NO_VALUE) && !(tell->bits & KV_TELL_VALUE);
}

uint32_t kv_tell_read(const uint8_t *from, uint32_t bytes, struct gn_kv_op *op)
{
	const uint8_t *at = from + sizeof(struct kv_tell);
	struct kv_tell tell;
	uint64_t need = sizeof(tell);

	if (bytes < sizeof(tell))
		return 0;
	memcpy(&tell, from, sizeof(tell));
	if (unlikely(tell.bits & (KV_TELL_VALUE - 1)))
		need += tell_words(tell.bits) * WORD;
	if (tell.bits & KV_TELL_VALUE)
		need += ((uint64_t)tell.len + WORD - 1) & ~(WORD - 1);
	if (tell.bits >= KV_TELL_BITS || need > bytes ||
	    (tell.bits & KV_TELL_VALUE && tell.len > op->room_bytes) || value_lacks(op, &tell))
		return 0;
	op->status = tell.status;
	op->found = tell.found;
	op->len = tell.len;
	if (likely(tell.status == GN_KV_OK))
		op->flags = 0;
	if (unlikely(tell.bits & (KV_TELL_VALUE - 1)))
		at = get_told(at, op, tell.bits);
	if (tell.bits & KV_TELL_VALUE && tell.len)
		kv_copy(op->room, at, tell.len);
	return (uint32_t)need;
}

/* ---- statistics ---- */

void kv_stats_write(uint64_t to[KV_STATS_WORDS], const struct gn_kv_stats *stats)
{
#define KV_STATS_WRITE(field) *to++ = htole64(stats->field);
	KV_STATS_FIELDS(KV_STATS_WRITE)
}

void kv_stats_read(const uint64_t from[KV_STATS_WORDS], struct gn_kv_stats *out)
{
#define KV_STATS_READ(field) out->field = le64toh(*from++);
	KV_STATS_FIELDS(KV_STATS_READ)
}
