/* SPDX-License-Identifier: MIT */
/*
 * From slots to the store and back. The size of a value is not known before it is read: the first
 * read has the buffer size that was enough recently, and the read is repeated if the value did not
 * fit. Until then no change of that key by the same connection may overtake the read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define FIT_STREAK_SHRINK 4096u
#define SHORT_SCORE_STEP  8u
#define SHORT_SCORE_GROW  64u
#define RETRIES_SIZED	  4u

struct px_slot *px_slot_of(struct gn_kv_op *op)
{
	return (struct px_slot *)((char *)op - offsetof(struct px_slot, request.op));
}

/* ---- keys being read ---- */

static uint16_t key_tag(const struct px_conn *c, const void *key, uint32_t len)
{
	const char *bytes = key;
	uint64_t a = 0, b = 0;

	if (len >= sizeof(a)) {
		memcpy(&a, bytes, sizeof(a));
		memcpy(&b, bytes + len - sizeof(b), sizeof(b));
	} else {
		memcpy(&a, bytes, len);
	}
	a = (a ^ (uint64_t)(uintptr_t)c) * 0x9e3779b97f4a7c15u + b + len;
	return (uint16_t)(a * 0xff51afd7ed558ccdu >> 52);
}

_Static_assert(PX_TAGS == 1u << 12, "a tag has twelve bits");

bool px_would_overtake(const struct px_conn *c, const void *key, uint32_t len)
{
	return c->reading && c->thread->reading[key_tag(c, key, len)];
}

static void read_start(struct px_slot *s)
{
	if (s->reads)
		return;
	s->reads = true;
	s->tag = key_tag(s->conn, s->request.op.key, s->request.op.key_len);
	s->conn->thread->reading[s->tag]++;
	s->conn->reading++;
}

static void read_end(struct px_slot *s)
{
	s->reads = false;
	s->conn->thread->reading[s->tag]--;
	s->conn->reading--;
}

/* ---- buffers ---- */

static uint32_t round_up_capacity(uint32_t bytes)
{
	uint32_t room = PX_INLINE_BYTES;

	while (room < bytes)
		room *= 2;
	return room;
}

/* Allocates a buffer for a value of len bytes and CR LF. early: len is a guess. */
static bool value_alloc(struct px_slot *s, uint32_t len, bool early)
{
	struct gn_kv_op *op = &s->request.op;

	op->room = s->inline_buf;
	op->room_bytes = PX_INLINE_BYTES;
	if (len <= PX_INLINE_BYTES)
		return true;
	if (early ? !px_slot_try_alloc(s, len + 2) : !px_slot_alloc(s->conn->thread, s, len + 2))
		return false;
	op->room = s->buf;
	op->room_bytes = len;
	return true;
}

/*
 * Grows the guess when one in eight values did not fit; shrinks it when it was too large for long.
 */
static void adapt_guess(struct px_thread *t, const struct gn_kv_op *op)
{
	if (op->len > t->guess_bytes) {
		t->fit_streak = 0;
		t->short_score += op->len <= PX_GUESS_MAX ? SHORT_SCORE_STEP : 0;
		if (t->short_score >= SHORT_SCORE_GROW) {
			t->guess_bytes = round_up_capacity(op->len);
			t->short_score = 0;
		}
		return;
	}
	t->short_score -= t->short_score > 0;
	t->fit_streak = op->len * 2 <= t->guess_bytes ? t->fit_streak + 1 : 0;
	if (t->fit_streak == FIT_STREAK_SHRINK && t->guess_bytes > PX_INLINE_BYTES) {
		t->guess_bytes /= 2;
		t->fit_streak = 0;
	}
}

/* ---- operations ---- */

static void slot_finish(struct px_slot *s)
{
	struct px_conn *c = s->conn;

	if (px_detail_on(c->thread->proxy))
		px_detail_count(s);
	s->state = PX_DONE;
	if (s->reads)
		read_end(s);
	if (!c->outstanding)
		px_conn_queue(c);
}

/* The first read had all side effects; its found and was_ttl_s are reported. */
static void op_retry(struct px_slot *s)
{
	struct px_conn *c = s->conn;
	struct gn_kv_op *op = &s->request.op;

	PX_COUNT(c->thread, rooms_short, 1);
	if (!s->tries++) {
		s->found = op->found;
		s->was_ttl_s = op->was_ttl_s;
	}
	op->how = GN_KV_QUIET | GN_KV_UNCOUNTED | (op->how & GN_KV_DETAILS);
	op->ttl_s = 0;
	s->state = PX_RETRY;
	c->n_retry++;
	px_conn_queue(c);
}

/*
 * Memory that the store's client keeps for an outstanding operation: a request, and space for a
 * result.
 */
static size_t op_copy_bytes(const struct gn_kv_op *op)
{
	return PX_OP_OVERHEAD_BYTES + op->key_len + op->value_len + op->room_bytes;
}

static void op_started(struct px_slot *s)
{
	s->state = PX_OUTSTANDING;
	s->conn->outstanding++;
	s->conn->thread->outstanding++;
	s->conn->thread->work_bytes += op_copy_bytes(&s->request.op);
}

static void op_stopped(struct px_slot *s)
{
	s->conn->outstanding--;
	s->conn->thread->outstanding--;
	px_memory_release(s->conn->thread, op_copy_bytes(&s->request.op));
}

void px_op_ended(struct px_slot *s)
{
	op_stopped(s);
	slot_finish(s);
}

/* Called from gn_kv_poll() and gn_kv_wait(). */
static void op_done(struct gn_kv_op *op)
{
	struct px_slot *s = px_slot_of(op);
	struct px_conn *c = s->conn;

	c->thread->store_disconnected |= op->status == GN_KV_GONE;
	op_stopped(s);
	if (s->reads) {
		adapt_guess(c->thread, op);
		if (op->status == GN_KV_TOO_BIG) {
			op_retry(s);
			return;
		}
		if (s->tries) {
			op->found = s->found;
			op->was_ttl_s = s->was_ttl_s;
		}
	}
	slot_finish(s);
}

void px_submit(struct px_slot *s, void (*on_end)(struct gn_kv_op *op))
{
	struct px_thread *t = s->conn->thread;
	struct gn_kv_op *op = &s->request.op;
	int rc;

	op->done = on_end;
	op->deadline_ns = t->now_ns + t->proxy->opts.timeout_ms * 1000000ull;
	op_started(s);
	rc = gn_kv_submit(t->kv, op);
	t->store_disconnected = rc && (t->store_disconnected || rc == -ENOTCONN);
	if (!rc)
		return;
	op->status = rc == -ENOTCONN ? GN_KV_GONE : rc == -EAGAIN ? GN_KV_BUSY : GN_KV_FAILED;
	px_op_ended(s);
}

void px_op_start(struct px_slot *s)
{
	struct px_thread *t = s->conn->thread;
	struct gn_kv_op *op = &s->request.op;

	if (op->verb == GN_KV_GET && !(op->how & GN_KV_NO_VALUE)) {
		/* A read that expires the item cannot be repeated. */
		const bool once = op->how & GN_KV_AND_TOUCH && op->ttl_s == GN_KV_TTL_PAST;

		s->tries = 0;
		if (!value_alloc(s, once ? t->context.max_value : t->guess_bytes, !once))
			value_alloc(s, 0, false);
		read_start(s);
	}
	px_submit(s, op_done);
}

/* ---- control requests ---- */

struct control {
	struct gn_kv_control kv;
	struct px_slot *slot;
};

static void control_reply(struct px_slot *s, int error, const struct gn_kv_stats *stats)
{
	struct px_request *r = &s->request;
	const bool flush = r->kind == PX_FLUSH;

	r->kind = PX_REPLY_TEXT;
	if (error)
		r->reply = error == -ETIMEDOUT ? "SERVER_ERROR the store does not respond" :
			   error == -ENOMEM    ? "SERVER_ERROR out of memory" :
						 "SERVER_ERROR the store is not connected";
	else if (flush)
		r->reply = "OK";
	else
		px_stats(s, r->reply, stats);
}

static void control_done(struct gn_kv_control *kv)
{
	struct control *k = kv->arg;
	struct px_slot *s = k->slot;

	s->conn->control_pending = false;
	s->conn->thread->store_disconnected |= kv->error == -ENOTCONN;
	op_stopped(s);
	if (!s->conn->dead)
		control_reply(s, kv->error, &kv->stats);
	px_memory_release(s->conn->thread, sizeof(*k));
	free(k);
	slot_finish(s);
}

void px_control_start(struct px_slot *s)
{
	struct px_thread *t = s->conn->thread;
	struct control *k;
	int rc;

	if (s->request.kind == PX_STATS && px_stats_local(s, s->request.reply)) {
		s->request.kind = PX_REPLY_TEXT;
		return;
	}
	k = calloc(1, sizeof(*k));
	if (!k) {
		control_reply(s, -ENOMEM, NULL);
		return;
	}
	k->slot = s;
	k->kv = (struct gn_kv_control){
		.verb = s->request.kind == PX_FLUSH ? GN_KV_CONTROL_CLEAR : GN_KV_CONTROL_STATS,
		.delay_s = s->request.op.ttl_s,
		.deadline_ns = t->now_ns + t->proxy->opts.timeout_ms * 1000000ull,
		.done = control_done,
		.arg = k,
	};
	rc = gn_kv_control_submit(t->kv, &k->kv);
	if (rc) {
		free(k);
		control_reply(s, rc, NULL);
		return;
	}
	t->work_bytes += sizeof(*k);
	s->conn->control_pending = true;
	op_started(s);
}

/* ---- values that did not fit ---- */

void px_retry(struct px_conn *c)
{
	for (struct px_slot *s = c->first; s && c->n_retry; s = s->next) {
		const uint32_t len = s->tries < RETRIES_SIZED ? s->request.op.len :
								c->thread->context.max_value;

		/* One large value at a time, and only for a client that reads its replies. */
		if (s->state != PX_RETRY || (len > PX_GUESS_MAX && (s != c->first || c->out)))
			continue;
		if (value_alloc(s, len, s != c->first)) {
			c->n_retry--;
			px_submit(s, op_done);
		} else if (s == c->first && c->slots == 1 &&
			   c->thread->now_ns < s->request.op.deadline_ns) {
			/* Others release memory or are closed. Not for pipelined commands. */
			px_starve(c);
			return;
		} else if (s == c->first) {
			c->n_retry--;
			s->request.op.status = GN_KV_NO_MEMORY;
			slot_finish(s);
		}
	}
}
