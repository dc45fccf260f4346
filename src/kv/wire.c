/* SPDX-License-Identifier: MIT */
/* Operations and responses on the wire. */
#include <endian.h>

#include "kv/wire.h"

#define FIELD_BYTES sizeof(uint64_t)

static inline bool verb_stores(enum gn_kv_verb verb)
{
	return verb >= GN_KV_SET && verb <= GN_KV_PREPEND;
}

static inline bool verb_counts(enum gn_kv_verb verb)
{
	return verb == GN_KV_INCR || verb == GN_KV_DECR;
}

/* Does the response have a value, for which room_bytes is sent? */
static bool verb_returns_value(enum gn_kv_verb verb)
{
	return verb == GN_KV_GET || verb == GN_KV_SCAN;
}

/* A GET returns ttl_s, so it is not sent unless AND_TOUCH is set. */
static bool op_has_flags_ttl(const struct gn_kv_op *op)
{
	if (verb_stores(op->verb))
		return op->ttl_s || op->flags;
	return op->ttl_s && (op->verb == GN_KV_TOUCH || op->how & GN_KV_AND_TOUCH);
}

#define HAS_SECONDS (GN_KV_CREATE | GN_KV_VIVIFY | GN_KV_RECACHE)

/* Fields between head and key. */
static uint32_t request_fields(enum gn_kv_verb verb, unsigned how)
{
	uint32_t n = verb_counts(verb);

	if (!how)
		return n;
	n += (how & KV_REQUEST_FLAGS_TTL) != 0;
	n += (how & GN_KV_IF_CAS) != 0;
	n += (how & GN_KV_SET_CAS) != 0;
	n += (how & HAS_SECONDS) != 0;
	return n + ((how & GN_KV_CREATE) != 0);
}

static unsigned request_how(const struct gn_kv_op *op)
{
	return (op->how & ~KV_REQUEST_FLAGS_TTL) |
	       (op_has_flags_ttl(op) ? KV_REQUEST_FLAGS_TTL : 0);
}

static uint32_t value_bytes(const struct gn_kv_op *op)
{
	return verb_stores(op->verb) ? op->value_len : 0;
}

uint32_t kv_request_bytes_any(const struct gn_kv_op *op)
{
	return (uint32_t)(sizeof(struct kv_request) +
			  request_fields(op->verb, request_how(op)) * FIELD_BYTES) +
	       op->key_len + value_bytes(op);
}

static uint8_t *put_u64(uint8_t *to, uint64_t word)
{
	memcpy(to, &word, FIELD_BYTES);
	return to + FIELD_BYTES;
}

static uint64_t pack_2u32(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

static uint8_t *put_request_fields(uint8_t *to, const struct gn_kv_op *op, unsigned how)
{
	if (how & KV_REQUEST_FLAGS_TTL)
		to = put_u64(to, pack_2u32(op->flags, op->ttl_s));
	if (how & GN_KV_IF_CAS)
		to = put_u64(to, op->cas);
	if (how & GN_KV_SET_CAS)
		to = put_u64(to, op->new_cas);
	if (how & HAS_SECONDS)
		to = put_u64(to, pack_2u32(op->create_s, op->recache_s));
	if (verb_counts(op->verb))
		to = put_u64(to, op->number);
	if (how & GN_KV_CREATE)
		to = put_u64(to, op->initial);
	return to;
}

void kv_request_write_any(uint8_t *to, const struct gn_kv_op *op)
{
	const unsigned how = request_how(op);
	const struct kv_request head = {
		.verb = (uint8_t)op->verb,
		.key_len = (uint8_t)op->key_len,
		.how = (uint16_t)how,
		.room_bytes = verb_returns_value(op->verb) ? kv_room_bytes(op) : 0,
	};

	memcpy(to, &head, sizeof(head));
	to = put_request_fields(to + sizeof(head), op, how);
	kv_copy(to, op->key, op->key_len);
	if (value_bytes(op))
		kv_copy(to + op->key_len, op->value, op->value_len);
}

static const uint8_t *get_u64(const uint8_t *from, uint64_t *word)
{
	memcpy(word, from, FIELD_BYTES);
	return from + FIELD_BYTES;
}

static const uint8_t *get_2u32(const uint8_t *from, uint32_t *low, uint32_t *high)
{
	uint64_t word;

	from = get_u64(from, &word);
	*low = (uint32_t)word;
	*high = (uint32_t)(word >> 32);
	return from;
}

static const uint8_t *get_request_fields(const uint8_t *from, struct gn_kv_op *op, unsigned how)
{
	if (how & KV_REQUEST_FLAGS_TTL)
		from = get_2u32(from, &op->flags, &op->ttl_s);
	if (how & GN_KV_IF_CAS)
		from = get_u64(from, &op->cas);
	if (how & GN_KV_SET_CAS)
		from = get_u64(from, &op->new_cas);
	if (how & HAS_SECONDS)
		from = get_2u32(from, &op->create_s, &op->recache_s);
	if (verb_counts(op->verb))
		from = get_u64(from, &op->number);
	if (how & GN_KV_CREATE)
		from = get_u64(from, &op->initial);
	return from;
}

bool kv_request_read_any(const uint8_t *from, uint32_t len, uint64_t head_bits, struct gn_kv_op *op,
			 uint8_t *key)
{
	const uint32_t rest = len - (uint32_t)sizeof(struct kv_request);
	struct kv_request head;
	uint32_t fields;

	memcpy(&head, &head_bits, sizeof(head));
	op->verb = (enum gn_kv_verb)head.verb;
	op->how = head.how & ~KV_REQUEST_FLAGS_TTL;
	op->key_len = head.key_len;
	fields = request_fields(op->verb, head.how) * (uint32_t)FIELD_BYTES;
	if (head.verb >= GN_KV_VERBS || head.key_len - 1u >= GN_KV_KEY_MAX ||
	    fields + head.key_len > rest)
		return false;
	op->value_len = rest - fields - head.key_len;
	if (op->value_len && !verb_stores(op->verb))
		return false;
	op->flags = op->ttl_s = 0;
	from = get_request_fields(from + sizeof(head), op, head.how);
	exec_preempt();
	kv_copy(key, from, op->key_len);
	op->value = from + op->key_len;
	return true;
}

/* ---- responses ---- */

static unsigned response_bits(const struct gn_kv_op *op, const struct kv_item *item)
{
	unsigned bits = 0;

	if (op->status != GN_KV_OK)
		return 0;
	if (likely(op->verb == GN_KV_GET && !(op->how & GN_KV_DETAILS)))
		return (item ? KV_RESPONSE_VALUE : 0) | (op->flags ? KV_RESPONSE_FLAGS : 0);
	if (op->verb != GN_KV_GET && op->verb != GN_KV_DELETE)
		bits |= KV_RESPONSE_CAS;
	if (op->how & GN_KV_DETAILS)
		bits |= KV_RESPONSE_CAS | KV_RESPONSE_TIMES;
	if (op->flags && op->verb != GN_KV_DELETE)
		bits |= KV_RESPONSE_FLAGS;
	if (op->verb == GN_KV_INCR || op->verb == GN_KV_DECR)
		bits |= KV_RESPONSE_NUMBER | KV_RESPONSE_TIMES;
	if (bits & KV_RESPONSE_TIMES && op->was_ttl_s != op->ttl_s)
		bits |= KV_RESPONSE_WAS;
	return item ? bits | KV_RESPONSE_VALUE : bits;
}

static uint32_t response_fields(unsigned bits)
{
	return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1) + (bits >> 4 & 1);
}

void kv_response_make(struct kv_response_parts *r, const struct gn_kv_op *op,
		      const struct kv_item *item)
{
	const bool fits = !item || op->len <= op->room_bytes;

	r->item = fits ? item : NULL;
	r->head = (struct kv_response){
		.status = (uint8_t)(fits ? op->status : GN_KV_TOO_BIG),
		.found = (uint8_t)op->found,
		.bits = (uint16_t)response_bits(op, r->item),
		.len = op->len,
	};
	r->bytes = (uint32_t)(sizeof(r->head) + response_fields(r->head.bits) * FIELD_BYTES) +
		   (r->item ? op->len : 0);
}

void kv_response_write(uint8_t *to, const struct kv_response_parts *r, const struct gn_kv_op *op)
{
	const unsigned bits = r->head.bits;

	memcpy(to, &r->head, sizeof(r->head));
	to += sizeof(r->head);
	if (bits & KV_RESPONSE_FLAGS)
		to = put_u64(to, op->flags);
	if (bits & KV_RESPONSE_CAS)
		to = put_u64(to, op->cas);
	if (bits & KV_RESPONSE_TIMES)
		to = put_u64(to, pack_2u32(op->ttl_s, op->idle_s));
	if (bits & KV_RESPONSE_NUMBER)
		to = put_u64(to, op->number);
	if (bits & KV_RESPONSE_WAS)
		to = put_u64(to, op->was_ttl_s);
	if (r->item)
		kv_copy(to, kv_value(r->item), r->head.len);
}

static const uint8_t *get_response_fields(const uint8_t *from, struct gn_kv_op *op, unsigned bits)
{
	uint32_t zero;

	if (bits & KV_RESPONSE_FLAGS)
		from = get_2u32(from, &op->flags, &zero);
	if (bits & KV_RESPONSE_CAS)
		from = get_u64(from, &op->cas);
	if (bits & KV_RESPONSE_TIMES)
		from = get_2u32(from, &op->ttl_s, &op->idle_s);
	op->was_ttl_s = op->ttl_s;
	if (bits & KV_RESPONSE_NUMBER)
		from = get_u64(from, &op->number);
	if (bits & KV_RESPONSE_WAS)
		from = get_2u32(from, &op->was_ttl_s, &zero);
	return from;
}

/* A GET with status OK must carry its value, unless it is empty or NO_VALUE is set. */
static bool value_missing(const struct gn_kv_op *op, const struct kv_response *head)
{
	return op->verb == GN_KV_GET && head->status == GN_KV_OK && head->len &&
	       !(op->how & GN_KV_NO_VALUE);
}

bool kv_response_read_any(const uint8_t *from, uint32_t len, struct kv_response head,
			  struct gn_kv_op *op)
{
	const uint32_t fields = response_fields(head.bits) * (uint32_t)FIELD_BYTES;
	uint32_t rest = len - (uint32_t)sizeof(head);

	if (head.bits >= KV_RESPONSE_BITS || fields > rest)
		return false;
	rest -= fields;
	if (head.bits & KV_RESPONSE_VALUE ? rest != head.len || rest > op->room_bytes :
					    rest || value_missing(op, &head))
		return false;
	if (head.status == GN_KV_OK)
		op->flags = 0;
	from += sizeof(head);
	if (fields)
		from = get_response_fields(from, op, head.bits);
	if (rest)
		kv_copy(op->room, from, rest);
	return true;
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
