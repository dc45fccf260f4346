/* SPDX-License-Identifier: MIT */
/*
 * Parses the input of a connection: lines, keys of long lines, values, and bytes to be skipped.
 * Each step function makes one step and returns whether it made progress.
 */
#include <string.h>

#include "internal.h"

#define BINARY_REQUEST 0x80
#define GET_NAME_MAX   105u /* bytes before the first key of a get without an end, with its name */

/* ---- steps ---- */

static void skip_start(struct px_conn *c, uint64_t bytes)
{
	c->skip = bytes;
	c->mode = PX_MODE_SKIP;
}

static bool step_skip(struct px_conn *c)
{
	const uint32_t have = c->in_len - c->in_at;
	const uint32_t n = c->skip < have ? (uint32_t)c->skip : have;

	c->in_at += n;
	c->skip -= n;
	if (!c->skip)
		c->mode = PX_MODE_LINE;
	return n;
}

static bool step_skip_line(struct px_conn *c)
{
	char *end = memchr(c->in->bytes + c->in_at, '\n', c->in_len - c->in_at);

	if (end)
		c->mode = PX_MODE_LINE;
	c->in_at = end ? (uint32_t)(end + 1 - c->in->bytes) : c->in_len;
	return end;
}

/* NULL: malloc() failed, and the connection ends. */
static struct px_slot *slot_new(struct px_conn *c)
{
	struct px_slot *s = px_slot_new(c);

	if (!s)
		c->dead = true;
	return s;
}

static struct px_slot *slot_reply(struct px_conn *c, uint8_t kind, const char *text)
{
	struct px_slot *s = slot_new(c);

	if (!s)
		return NULL;
	memset(&s->request, 0, sizeof(s->request));
	s->request.kind = kind;
	s->request.reply = text;
	return s;
}

/* ---- keys ---- */

static bool add_key(struct px_conn *c, const char *key, size_t len, bool last)
{
	struct px_slot *s = slot_new(c);
	struct gn_kv_op *op;

	if (!s)
		return false;
	op = &s->request.op;
	s->request.kind = PX_VALUE;
	s->request.bits = (uint8_t)(c->keys_bits | (last ? PX_LAST : 0));
	/* Only the members that a GET uses: the slot is not zeroed. */
	op->verb = GN_KV_GET;
	op->how = c->keys_how;
	op->key = key;
	op->key_len = (uint32_t)len;
	op->value_len = 0;
	op->flags = 0;
	op->ttl_s = c->keys_ttl_s;
	px_op_start(s);
	return true;
}

/* The end of the last complete token of a line whose end was not received. */
static size_t complete_tokens_end(const struct px_conn *c)
{
	const char *space = memrchr(c->in->bytes + c->in_at, ' ', c->in_len - c->in_at);

	return space ? (size_t)(space - c->in->bytes) + 1 : c->in_at;
}

static void keys_end(struct px_conn *c)
{
	c->in_at = (uint32_t)c->line_end;
	c->line_end = 0;
	c->mode = PX_MODE_LINE;
}

/* A line without an end is parsed as far as it was received: it is too long to wait for. */
static bool find_line_end(struct px_conn *c)
{
	const char *end;

	if (c->line_end)
		return true;
	end = memchr(c->in->bytes + c->in_at, '\n', c->in_len - c->in_at);
	if (end)
		c->line_end = (size_t)(end + 1 - c->in->bytes);
	return end;
}

static bool step_keys(struct px_conn *c)
{
	const bool whole = find_line_end(c);
	size_t at = c->in_at, stop = whole ? c->line_end - 1 : complete_tokens_end(c);
	const size_t first = at;

	if (whole && stop > at && c->in->bytes[stop - 1] == '\r')
		stop--;
	while (!c->dead && px_may_add_slot(c)) {
		const char *key;
		const size_t len = px_key(c->in->bytes, stop, &at, &key);
		bool last;

		if (len > GN_KV_KEY_MAX || (!whole && c->in_len - at > GN_KV_KEY_MAX && !len)) {
			slot_reply(c, PX_END, "CLIENT_ERROR bad command line format");
			c->mode = PX_MODE_SKIP_LINE;
			c->in_at = (uint32_t)at;
			return true;
		}
		if (!len) {
			if (whole) {
				slot_reply(c, PX_END, NULL);
				keys_end(c);
			}
			break;
		}
		if (c->keys_how & GN_KV_AND_TOUCH && px_would_overtake(c, key, (uint32_t)len))
			break;
		last = whole && at == stop;
		if (!add_key(c, key, len, last))
			break;
		if (last) {
			keys_end(c);
			return true;
		}
		c->in_at = (uint32_t)at;
	}
	return c->in_at > first;
}

/* ---- values ---- */

/* The existing value is outdated: delete it. */
static void delete_old(struct px_conn *c, const struct px_request *r)
{
	struct px_slot *s = slot_reply(c, PX_DELETE, NULL);

	if (!s)
		return;
	s->request.bits = PX_NOREPLY;
	s->request.op.verb = GN_KV_DELETE;
	s->request.op.key = r->op.key;
	s->request.op.key_len = r->op.key_len;
	px_op_start(s);
}

/*
 * The value is not stored. A quiet ms suppresses successes only; "noreply" suppresses everything.
 */
static void value_refuse(struct px_slot *s, const char *text)
{
	struct px_request *r = &s->request;

	if (r->kind == PX_META_SET)
		r->bits &= (uint8_t)~PX_NOREPLY;
	r->kind = PX_REPLY_TEXT;
	r->reply = text;
	s->state = PX_DONE;
}

/* As in memcached: a value that could not be replaced is outdated, and is deleted. */
static void value_refuse_no_memory(struct px_slot *s)
{
	const struct px_request *r = &s->request;
	const bool outdates = r->kind == PX_META_SET ||
			      (r->op.verb == GN_KV_SET && !(r->op.how & GN_KV_IF_CAS));

	value_refuse(s, "SERVER_ERROR out of memory storing object");
	skip_start(s->conn, r->op.value_len + 2);
	if (outdates)
		delete_old(s->conn, r);
}

/* The value is complete, with what should be CR LF. */
static void value_complete(struct px_slot *s, const char *value)
{
	struct px_request *r = &s->request;

	s->conn->mode = PX_MODE_LINE;
	if (memcmp(value + r->op.value_len, "\r\n", 2)) {
		value_refuse(s, "CLIENT_ERROR bad data chunk");
		return;
	}
	r->op.value = value;
	px_op_start(s);
}

/*
 * The value may take long to arrive: copy the line into the slot, if it fits, and release the input
 * buffer.
 */
static void slot_copy_line(struct px_slot *s, const char *line, size_t len)
{
	struct px_request *r = &s->request;

	if (len > PX_SLOT_LINE_MAX)
		return;
	memcpy(s->line, line, len + 1);
	r->op.key = s->line + ((const char *)r->op.key - line);
	if (r->n_flags)
		r->flags = s->line + (r->flags - line);
	px_slot_detach(s);
}

/* Starts a value. If it is not complete, it is received into the slot or its buffer. */
static void value_start(struct px_slot *s, const char *line, size_t len)
{
	struct px_conn *c = s->conn;
	struct px_request *r = &s->request;
	const uint32_t bytes = r->op.value_len + 2, have = c->in_len - c->in_at;

	if (have >= bytes) {
		c->in_at += bytes;
		value_complete(s, c->in->bytes + c->in_at - bytes);
		return;
	}
	if (bytes > sizeof(s->inline_buf) && !px_slot_alloc(c->thread, s, bytes)) {
		value_refuse_no_memory(s);
		return;
	}
	memcpy(bytes > sizeof(s->inline_buf) ? s->buf : s->inline_buf, c->in->bytes + c->in_at,
	       have);
	c->in_at = c->in_len;
	s->filled = have;
	s->state = PX_FILLING;
	slot_copy_line(s, line, len);
	c->mode = PX_MODE_VALUE;
	c->filling = s;
}

static bool step_value(struct px_conn *c)
{
	struct px_slot *s = c->filling;
	char *value = s->request.op.value_len + 2 > sizeof(s->inline_buf) ? s->buf : s->inline_buf;
	const uint32_t left = s->request.op.value_len + 2 - s->filled;
	const uint32_t have = c->in_len - c->in_at, n = left < have ? left : have;

	if (n)
		memcpy(value + s->filled, c->in->bytes + c->in_at, n);
	s->filled += n;
	c->in_at += n;
	if (n < left)
		return false;
	c->filling = NULL;
	value_complete(s, value);
	return true;
}

/* ---- lines ---- */

static bool request_changes_store(const struct px_request *r)
{
	switch (r->kind) {
	case PX_STORE:
	case PX_DELETE:
	case PX_NUMBER:
	case PX_TOUCH:
	case PX_META_SET:
	case PX_META_DELETE:
	case PX_META_NUMBER:
		return true;
	case PX_META_GET:
		return r->op.how & (GN_KV_AND_TOUCH | GN_KV_VIVIFY);
	default:
		return r->bits & PX_DELETE_OLD;
	}
}

/* Executes every command except get. */
static void request_execute(struct px_slot *s, const char *line, size_t len)
{
	struct px_conn *c = s->conn;
	struct px_request *r = &s->request;

	s->state = PX_DONE;
	if (r->bits & PX_SKIP) {
		skip_start(c, (uint64_t)r->op.value_len + 2);
		if (r->bits & PX_DELETE_OLD)
			delete_old(c, r);
		return;
	}
	if (r->bits & PX_DATA && r->kind != PX_REPLY_TEXT) {
		value_start(s, line, len);
		return;
	}
	switch (r->kind) {
	case PX_REPLY_TEXT:
		return;
	case PX_QUIT:
	case PX_CLOSE:
		r->kind = PX_REPLY_TEXT;
		r->bits = PX_NOREPLY;
		c->mode = PX_MODE_CLOSING;
		return;
	case PX_FLUSH:
	case PX_STATS:
		px_control_start(s);
		return;
	case PX_DUMP:
		r->kind = PX_REPLY_TEXT;
		r->bits = PX_NOREPLY;
		px_dump_start(c, (enum px_dump_format)r->op.flags, (uint32_t)r->op.number);
		return;
	default:
		PX_COUNT(c->thread, debugs, r->kind == PX_META_DEBUG);
		px_op_start(s);
		return;
	}
}

/* Must the request wait for the store, or for a read that it would overtake? */
static bool request_must_wait(struct px_conn *c, const struct px_request *r)
{
	if (r->kind == PX_FLUSH || r->kind == PX_STATS)
		return c->outstanding || c->n_retry;
	return c->reading && request_changes_store(r) &&
	       px_would_overtake(c, r->op.key, r->op.key_len);
}

static bool step_held(struct px_conn *c)
{
	struct px_slot *s = c->filling;

	if (request_must_wait(c, &s->request))
		return false;
	c->filling = NULL;
	c->mode = PX_MODE_LINE;
	request_execute(s, s->held_line, s->held_len);
	return true;
}

/* Keys follow, perhaps without an end: each gets a slot when one is available. */
static bool keys_start(struct px_conn *c, const struct px_request *r, size_t keys, size_t line_end)
{
	c->keys_how = r->op.how;
	c->keys_ttl_s = r->op.ttl_s;
	c->keys_bits = r->bits;
	c->line_end = line_end;
	c->in_at += (uint32_t)keys;
	c->mode = PX_MODE_KEYS;
	return true;
}

/* A line that is too long must be a get, whose keys are taken as they arrive. */
static bool line_too_long(struct px_conn *c, const char *line)
{
	struct px_request r = {0};
	const size_t keys = px_keys_of(line, &r);

	if (!keys || keys > GET_NAME_MAX || r.op.how & GN_KV_AND_TOUCH) {
		c->mode = PX_MODE_CLOSING;
		return false;
	}
	return keys_start(c, &r, keys, 0);
}

static bool step_line(struct px_conn *c)
{
	char *line = c->in->bytes + c->in_at, *end;
	const uint32_t have = c->in_len - c->in_at;
	struct px_request *r = &c->thread->get;
	struct px_slot *s = NULL;
	size_t len, keys;

	end = memchr(line, '\n', have);
	if (!end && have <= PX_LINE_MAX)
		return false;
	if (!end) {
		c->in->bytes[c->in_len] = 0;
		return line_too_long(c, line);
	}
	len = (size_t)(end - line);
	if (len > 1 && line[len - 1] == '\r')
		len--;
	PX_COUNT(c->thread, commands, 1);
	c->last_ns = c->thread->now_ns;
	/* A get needs no slot of its own, only slots for its keys. */
	if (*line != 'g') {
		s = slot_new(c);
		if (!s)
			return false;
		r = &s->request;
	}
	px_parse(line, len, &c->thread->context, r, &keys);
	if (r->kind == PX_KEYS) {
		keys_start(c, r, keys, (size_t)(end + 1 - c->in->bytes));
		if (s)
			px_slot_undo_new(c, s);
		return step_keys(c);
	}
	if (!s) {
		s = slot_new(c);
		if (!s)
			return false;
		s->request = *r;
	}
	c->in_at += (uint32_t)(end + 1 - line);
	if (request_must_wait(c, &s->request)) {
		s->state = PX_FILLING;
		s->held_line = line;
		s->held_len = (uint32_t)len;
		c->filling = s;
		c->mode = PX_MODE_HELD;
		return false;
	}
	request_execute(s, line, len);
	return true;
}

static bool step_new(struct px_conn *c)
{
	/* The binary protocol is not supported; its clients would not understand a text. */
	c->mode = (uint8_t)c->in->bytes[c->in_at] == BINARY_REQUEST ? PX_MODE_CLOSING :
								      PX_MODE_LINE;
	return true;
}

/* A slot that is being filled does not depend on the window. */
static bool may_step(struct px_conn *c)
{
	if (c->dead || c->mode == PX_MODE_CLOSING || c->control_pending)
		return false;
	if (c->filling || c->mode == PX_MODE_DUMP)
		return true;
	return c->in_at < c->in_len &&
	       (c->mode == PX_MODE_SKIP || c->mode == PX_MODE_SKIP_LINE || px_may_add_slot(c));
}

void px_input(struct px_conn *c)
{
	static bool (*const steps[])(struct px_conn * c) = {
		[PX_MODE_NEW] = step_new,
		[PX_MODE_LINE] = step_line,
		[PX_MODE_KEYS] = step_keys,
		[PX_MODE_VALUE] = step_value,
		[PX_MODE_HELD] = step_held,
		[PX_MODE_SKIP] = step_skip,
		[PX_MODE_SKIP_LINE] = step_skip_line,
		[PX_MODE_DUMP] = px_dump_step,
	};
	bool more = true;

	while (more && may_step(c))
		more = steps[c->mode](c);
}
