/* SPDX-License-Identifier: MIT */
/*
 * From slots to the store and back. How long a value is, is not known before it is there: it is
 * asked for with the room that was enough lately, and once more if it was not. Meanwhile nothing
 * that its connection wants to do to that key may overtake.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

#define FITS_MANY     4096u
#define SHORT_OF_ONE  8u
#define SHORT_OF_MANY 64u
#define TRIES_MANY    4u

struct px_slot *px_slot_of(struct gn_kv_op *op)
{
	return (struct px_slot *)((char *)op - offsetof(struct px_slot, request.op));
}

/* ---- which keys are being read ---- */

static uint16_t tag_of(const struct px_conn *c, const void *key, uint32_t len)
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

bool px_overtakes(const struct px_conn *c, const void *key, uint32_t len)
{
	return c->reading && c->thread->reading[tag_of(c, key, len)];
}

static void read_begins(struct px_slot *s)
{
	if (s->reads)
		return;
	s->reads = true;
	s->tag = tag_of(s->conn, s->request.op.key, s->request.op.key_len);
	s->conn->thread->reading[s->tag]++;
	s->conn->reading++;
}

static void read_ends(struct px_slot *s)
{
	s->reads = false;
	s->conn->thread->reading[s->tag]--;
	s->conn->reading--;
}

/* ---- room ---- */

static uint32_t round_up(uint32_t bytes)
{
	uint32_t room = PX_ROOM;

	while (room < bytes)
		room *= 2;
	return room;
}

/* A value of len bytes, and CR LF, fit. early: that it needs so much is just a guess. */
static bool make_room(struct px_slot *s, uint32_t len, bool early)
{
	struct gn_kv_op *op = &s->request.op;

	op->room = s->room;
	op->room_bytes = PX_ROOM;
	if (len <= PX_ROOM)
		return true;
	if (early ? !px_slot_more_early(s, len + 2) : !px_slot_more(s->conn->thread, s, len + 2))
		return false;
	op->room = s->more;
	op->room_bytes = len;
	return true;
}

/* More room when one in eight values lacked it; less when it has been too much for long. */
static void learn_room(struct px_thread *t, const struct gn_kv_op *op)
{
	if (op->len > t->early_bytes) {
		t->fits = 0;
		t->short_of += op->len <= PX_ROOM_EARLY ? SHORT_OF_ONE : 0;
		if (t->short_of >= SHORT_OF_MANY) {
			t->early_bytes = round_up(op->len);
			t->short_of = 0;
		}
		return;
	}
	t->short_of -= t->short_of > 0;
	t->fits = op->len * 2 <= t->early_bytes ? t->fits + 1 : 0;
	if (t->fits == FITS_MANY && t->early_bytes > PX_ROOM) {
		t->early_bytes /= 2;
		t->fits = 0;
	}
}

/* ---- operations ---- */

static void finish(struct px_slot *s)
{
	struct px_conn *c = s->conn;

	if (px_detail_on(c->thread->proxy))
		px_detail_count(s);
	s->state = PX_DONE;
	if (s->reads)
		read_ends(s);
	if (!c->under_way)
		px_conn_queue(c);
}

/* What it did besides reading is done, and what was found then is what counts. */
static void again(struct px_slot *s)
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
	s->state = PX_AGAIN;
	c->again++;
	px_conn_queue(c);
}

/* What the store's client has of an operation until it ends: a request, and room for a result. */
static size_t copy_bytes(const struct gn_kv_op *op)
{
	return PX_OP_BYTES + op->key_len + op->value_len + op->room_bytes;
}

static void began(struct px_slot *s)
{
	s->state = PX_UNDER_WAY;
	s->conn->under_way++;
	s->conn->thread->under_way++;
	s->conn->thread->work_bytes += copy_bytes(&s->request.op);
}

static void ended(struct px_slot *s)
{
	s->conn->under_way--;
	s->conn->thread->under_way--;
	px_memory_give(s->conn->thread, copy_bytes(&s->request.op));
}

void px_ended(struct px_slot *s)
{
	ended(s);
	finish(s);
}

/* From within gn_kv_poll() and gn_kv_wait(). */
static void done(struct gn_kv_op *op)
{
	struct px_slot *s = px_slot_of(op);
	struct px_conn *c = s->conn;

	c->thread->store_gone |= op->status == GN_KV_GONE;
	ended(s);
	if (s->reads) {
		learn_room(c->thread, op);
		if (op->status == GN_KV_TOO_BIG) {
			again(s);
			return;
		}
		if (s->tries) {
			op->found = s->found;
			op->was_ttl_s = s->was_ttl_s;
		}
	}
	finish(s);
}

void px_submit(struct px_slot *s, void (*on_end)(struct gn_kv_op *op))
{
	struct px_thread *t = s->conn->thread;
	struct gn_kv_op *op = &s->request.op;
	int rc;

	op->done = on_end;
	op->deadline_ns = t->now_ns + t->proxy->opts.timeout_ms * 1000000ull;
	began(s);
	rc = gn_kv_submit(t->kv, op);
	t->store_gone = rc && (t->store_gone || rc == -ENOTCONN);
	if (!rc)
		return;
	op->status = rc == -ENOTCONN ? GN_KV_GONE : rc == -EAGAIN ? GN_KV_BUSY : GN_KV_FAILED;
	px_ended(s);
}

void px_begin(struct px_slot *s)
{
	struct px_thread *t = s->conn->thread;
	struct gn_kv_op *op = &s->request.op;

	if (op->verb == GN_KV_GET && !(op->how & GN_KV_NO_VALUE)) {
		/* What is gone when it has been read cannot be asked for again. */
		const bool once = op->how & GN_KV_AND_TOUCH && op->ttl_s == GN_KV_TTL_PAST;

		s->tries = 0;
		if (!make_room(s, once ? t->context.max_value : t->early_bytes, !once))
			make_room(s, 0, false);
		read_begins(s);
	}
	px_submit(s, done);
}

/* ---- requests to the whole store ---- */

struct control {
	struct gn_kv_control kv;
	struct px_slot *slot;
};

static void control_said(struct px_slot *s, int error, const struct gn_kv_stats *stats)
{
	struct px_request *r = &s->request;
	const bool flush = r->kind == PX_FLUSH;

	r->kind = PX_SAY;
	if (error)
		r->say = error == -ETIMEDOUT ? "SERVER_ERROR the store does not answer" :
			 error == -ENOMEM    ? "SERVER_ERROR out of memory" :
					       "SERVER_ERROR the store is not there";
	else if (flush)
		r->say = "OK";
	else
		px_stats(s, r->say, stats);
}

static void control_done(struct gn_kv_control *kv)
{
	struct control *k = kv->arg;
	struct px_slot *s = k->slot;

	s->conn->control = false;
	s->conn->thread->store_gone |= kv->error == -ENOTCONN;
	ended(s);
	if (!s->conn->dead)
		control_said(s, kv->error, &kv->stats);
	px_memory_give(s->conn->thread, sizeof(*k));
	free(k);
	finish(s);
}

void px_begin_control(struct px_slot *s)
{
	struct px_thread *t = s->conn->thread;
	struct control *k;
	int rc;

	if (s->request.kind == PX_STATS && px_stats_local(s, s->request.say)) {
		s->request.kind = PX_SAY;
		return;
	}
	k = calloc(1, sizeof(*k));
	if (!k) {
		control_said(s, -ENOMEM, NULL);
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
		control_said(s, rc, NULL);
		return;
	}
	t->work_bytes += sizeof(*k);
	s->conn->control = true;
	began(s);
}

/* ---- values that had no room ---- */

void px_begin_again(struct px_conn *c)
{
	for (struct px_slot *s = c->first; s && c->again; s = s->next) {
		const uint32_t len = s->tries < TRIES_MANY ? s->request.op.len :
							     c->thread->context.max_value;

		/* One large one at a time, and only for who takes what it is given. */
		if (s->state != PX_AGAIN || (len > PX_ROOM_EARLY && (s != c->first || c->out)))
			continue;
		if (make_room(s, len, s != c->first)) {
			c->again--;
			px_submit(s, done);
		} else if (s == c->first && c->slots == 1 &&
			   c->thread->now_ns < s->request.op.deadline_ns) {
			/* Others give memory back or are closed. Pipelining may not hoard. */
			px_starve(c);
			return;
		} else if (s == c->first) {
			c->again--;
			s->request.op.status = GN_KV_NO_MEMORY;
			finish(s);
		}
	}
}
