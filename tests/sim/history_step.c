/* SPDX-License-Identifier: MIT */
/* A sequential store: the result of one operation, and the state after it. */
#include <string.h>

#include "history_inner.h"

#define PIECES_MAX 256u

static void forget(struct key_state *to)
{
	*to = history_absent(to);
}

static uint64_t later(uint64_t ns, uint64_t by_ns)
{
	return ns > HISTORY_NEVER - by_ns ? HISTORY_NEVER : ns + by_ns;
}

/* When it was done at last. */
static uint64_t latest(const struct history_op *op)
{
	return history_known(op) ? op->end_ns : HISTORY_NEVER;
}

static void live_for(struct key_state *to, const struct history_op *op, uint32_t seconds)
{
	const uint64_t ns = seconds * 1000000000ull;

	to->dies_from_ns = to->dies_by_ns = HISTORY_NEVER;
	if (!seconds)
		return;
	to->dies_from_ns = op->begin_ns + ns - HISTORY_SLACK_NS;
	to->dies_by_ns = later(latest(op), ns + HISTORY_SLACK_NS);
	if (seconds == GN_KV_TTL_PAST)
		forget(to);
}

/* The version that was seen is its version, or becomes it. */
static bool is_version(struct history *h, struct key_state *to, uint64_t cas)
{
	uint32_t value;

	if (!cas || !to->present)
		return true;
	if (to->cas != HISTORY_ANY_CAS)
		return to->cas == cas;
	if (history_named(h, cas, &value) && value != to->value)
		return false;
	to->cas = cas;
	return true;
}

static uint64_t new_version(const struct history_op *op)
{
	if (op->how & GN_KV_SET_CAS)
		return op->new_cas;
	return op->version ? op->version : HISTORY_ANY_CAS;
}

static void write_value(struct key_state *to, const struct history_op *op, uint32_t value)
{
	to->present = 1;
	to->value = value;
	to->cas = new_version(op);
}

/* Its version comes after those before it, if the server chose it and somebody has seen it. */
static bool is_newer(struct key_state *to, const struct key_state *at, const struct history_op *op)
{
	if (!op->version || op->how & GN_KV_SET_CAS || !to->present)
		return true;
	to->top = op->version;
	return op->version > at->top;
}

static void store(struct key_state *to, const struct history_op *op)
{
	write_value(to, op, op->value);
	to->flags = op->flags;
	live_for(to, op, op->ttl_s);
}

/* A value made of two; the lists of pieces are as long as the plan lets them become. */
static uint32_t joined(struct history *h, uint32_t a, uint32_t b)
{
	const struct history_value *first, *second;
	struct piece pieces[PIECES_MAX];
	uint32_t n;

	if (a == HISTORY_UNSEEN || b == HISTORY_UNSEEN)
		return HISTORY_UNSEEN;
	first = &h->value[a];
	second = &h->value[b];
	n = first->n + second->n;
	if (n > PIECES_MAX)
		return HISTORY_UNSEEN; /* nobody has seen that */
	/* What is empty has no pieces to point at. */
	for (uint32_t i = 0; i < n; i++)
		pieces[i] = i < first->n ? first->pieces[i] : second->pieces[i - first->n];
	return history_value(h, pieces, n);
}

static uint32_t digits(uint64_t number)
{
	uint32_t len = 1;

	for (; number >= 10; number /= 10)
		len++;
	return len;
}

/* It is a number, or begins with one that has become shorter: behind blanks may be anything. */
static bool is_number(const struct history_value *value)
{
	return value->n && value->pieces[0].number &&
	       (value->n == 1 || value->pieces[0].len > digits(value->pieces[0].what));
}

/* A number that has become shorter has blanks behind it. */
static uint32_t number_value(struct history *h, uint64_t number, uint32_t least)
{
	struct piece piece = {.what = number, .len = digits(number), .number = true};

	if (piece.len < least)
		piece.len = least;
	return history_value(h, &piece, 1);
}

/* ---- the verbs: each is the status, with what is left in to ---- */

/* GN_KV_OK, or why it may not; of a version that nobody has seen, whatever was answered. */
static unsigned condition(struct history *h, struct key_state *to, const struct history_op *op)
{
	uint32_t value;

	if (!(op->how & GN_KV_IF_CAS))
		return GN_KV_OK;
	if (!to->present)
		return GN_KV_MISS;
	if (to->cas != HISTORY_ANY_CAS)
		return to->cas == op->cas ? GN_KV_OK : GN_KV_EXISTS;
	if (history_known(op) && op->status == GN_KV_EXISTS)
		return GN_KV_EXISTS;
	/* Was it this one? Not if that is another's. */
	if (history_named(h, op->cas, &value) && value != to->value)
		return GN_KV_EXISTS;
	to->cas = op->cas;
	return GN_KV_OK;
}

static unsigned do_store(struct history *h, struct key_state *to, const struct history_op *op)
{
	const bool add = op->verb == GN_KV_ADD, set = op->verb == GN_KV_SET;
	const unsigned status = condition(h, to, op);

	if (status != GN_KV_OK)
		return status;
	if (!set && add == (bool)to->present)
		return GN_KV_NOT_STORED;
	store(to, op);
	return GN_KV_OK;
}

static unsigned do_join(struct history *h, struct key_state *to, const struct history_op *op)
{
	const bool append = op->verb == GN_KV_APPEND;
	const unsigned status = condition(h, to, op);

	if (status != GN_KV_OK)
		return status;
	if (!to->present)
		return GN_KV_NOT_STORED;
	write_value(to, op,
		    joined(h, append ? to->value : op->value, append ? op->value : to->value));
	return GN_KV_OK;
}

static unsigned do_delete(struct history *h, struct key_state *to, const struct history_op *op)
{
	unsigned status;

	if (!to->present)
		return GN_KV_MISS;
	status = condition(h, to, op);
	if (status == GN_KV_OK)
		forget(to);
	return status;
}

static unsigned do_number(struct history *h, struct key_state *to, const struct history_op *op,
			  uint64_t *number)
{
	const struct history_value *value;
	unsigned status;
	uint64_t n;

	if (!to->present && !(op->how & GN_KV_CREATE))
		return GN_KV_MISS;
	if (!to->present) {
		*number = op->initial;
		write_value(to, op, number_value(h, op->initial, 0));
		to->flags = 0;
		live_for(to, op, op->create_s);
		return GN_KV_OK;
	}
	/* What is empty is none, whatever its version. */
	if (to->value != HISTORY_UNSEEN && !h->value[to->value].n)
		return GN_KV_NOT_NUMBER;
	status = condition(h, to, op);
	if (status != GN_KV_OK)
		return status;
	if (to->value == HISTORY_UNSEEN)
		return GN_KV_NOT_NUMBER;
	value = &h->value[to->value];
	if (!is_number(value))
		return GN_KV_NOT_NUMBER;
	n = value->pieces[0].what;
	if (op->verb == GN_KV_INCR)
		n += op->number;
	else
		n = n > op->number ? n - op->number : 0;
	*number = n;
	write_value(to, op, number_value(h, n, value->len));
	return GN_KV_OK;
}

/* A read, or one that moves its end. */
static unsigned do_look(struct key_state *to, const struct history_op *op)
{
	if (!to->present)
		return GN_KV_MISS;
	if (op->verb == GN_KV_TOUCH || op->how & GN_KV_AND_TOUCH)
		live_for(to, op, op->ttl_s);
	return GN_KV_OK;
}

static bool has_seen(const struct history *h, const struct history_op *op,
		     const struct key_state *at)
{
	if (op->seen != HISTORY_UNSEEN && op->seen != at->value)
		return false;
	if (op->seen != HISTORY_UNSEEN && !op->flags_unseen && op->seen_flags != at->flags)
		return false;
	return op->seen_len == HISTORY_UNSEEN || at->value == HISTORY_UNSEEN ||
	       op->seen_len == h->value[at->value].len;
}

static unsigned do_verb(struct history *h, struct key_state *to, const struct history_op *op,
			uint64_t *number)
{
	switch (op->verb) {
	case GN_KV_SET:
	case GN_KV_ADD:
	case GN_KV_REPLACE:
		return do_store(h, to, op);
	case GN_KV_APPEND:
	case GN_KV_PREPEND:
		return do_join(h, to, op);
	case GN_KV_DELETE:
		return do_delete(h, to, op);
	case GN_KV_INCR:
	case GN_KV_DECR:
		return do_number(h, to, op, number);
	default:
		return do_look(to, op);
	}
}

static bool is_read(const struct history_op *op)
{
	return op->verb == GN_KV_GET;
}

/* It was refused for what it is, and left all as it was. */
static bool refused(const struct history_op *op)
{
	return op->status == GN_KV_NO_MEMORY || op->status == GN_KV_INVALID ||
	       op->status == GN_KV_BUSY || (op->status == GN_KV_TOO_BIG && !is_read(op));
}

bool history_step(struct history *h, const struct history_op *op, const struct key_state *at,
		  struct key_state *to)
{
	const bool known = history_known(op);
	uint64_t number = 0;
	unsigned status, reported = op->status;

	*to = *at;
	if (op->verb == HISTORY_FORGET || op->verb == HISTORY_RESTART) {
		forget(to);
		if (op->verb == HISTORY_RESTART) {
			to->epoch++;
			to->top = 0;
		}
		return known || at->present;
	}
	if (known && refused(op))
		return true;
	status = do_verb(h, to, op, &number);
	if (!known)
		return status == GN_KV_OK && at->epoch <= op->last_epoch && is_newer(to, at, op) &&
		       memcmp(to, at, sizeof(*to)) != 0;
	if (reported == GN_KV_TOO_BIG) /* a read: the item exists, and its length was returned */
		reported = GN_KV_OK;
	if (status != reported)
		return false;
	if (is_read(op) && status == GN_KV_OK && !has_seen(h, op, at))
		return false;
	if ((op->verb == GN_KV_INCR || op->verb == GN_KV_DECR) && status == GN_KV_OK &&
	    number != op->seen_number)
		return false;
	return is_version(h, to, op->seen_cas) && (status != GN_KV_OK || is_newer(to, at, op));
}

/* ---- how it may be forgotten ---- */

bool history_may_live(const struct history_op *op, const struct key_state *at)
{
	return !at->present || op->begin_ns < at->dies_by_ns;
}

bool history_may_die(const struct history *h, const struct history_op *op,
		     const struct key_state *at)
{
	return at->present && (h->opts.may_evict || latest(op) > at->dies_from_ns);
}
