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

#define STUCK_US      100000u /* for others to end, so that there is room for one more */
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

/* A value of len bytes, and CR LF, fit. */
static bool make_room(struct px_slot *s, uint32_t len)
{
	struct gn_kv_op *op = &s->request.op;

	op->room = s->room;
	op->room_bytes = PX_ROOM;
	if (len <= PX_ROOM)
		return true;
	if (!px_slot_more(s->conn->thread, s, len + 2))
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

void px_ended(struct px_slot *s)
{
	s->conn->under_way--;
	s->conn->thread->under_way--;
	finish(s);
}

/* From within gn_kv_poll() and gn_kv_wait(). */
static void done(struct gn_kv_op *op)
{
	struct px_slot *s = px_slot_of(op);
	struct px_conn *c = s->conn;

	c->under_way--;
	c->thread->under_way--;
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

void px_submit(struct px_slot *s, void (*ended)(struct gn_kv_op *op))
{
	struct px_conn *c = s->conn;
	struct px_thread *t = c->thread;
	struct gn_kv_op *op = &s->request.op;
	int rc;

	op->done = ended;
	op->deadline_ns = t->now_ns + t->proxy->opts.timeout_ms * 1000000ull;
	s->state = PX_UNDER_WAY;
	c->under_way++;
	t->under_way++;
	while ((rc = gn_kv_submit(t->kv, op)) == -EAGAIN)
		gn_kv_wait(t->kv, gn_deadline_us(STUCK_US));
	if (!rc)
		return;
	op->status = rc == -ENOTCONN ? GN_KV_GONE : GN_KV_FAILED;
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
		if (!make_room(s, once ? t->context.max_value : t->early_bytes))
			make_room(s, 0);
		read_begins(s);
	}
	px_submit(s, done);
}

void px_begin_again(struct px_conn *c)
{
	for (struct px_slot *s = c->first; s && c->again; s = s->next) {
		const uint32_t len = s->tries < TRIES_MANY ? s->request.op.len :
							     c->thread->context.max_value;

		/* One large one at a time, and only for who takes what it is given. */
		if (s->state != PX_AGAIN || (len > PX_ROOM_EARLY && (s != c->first || c->out)))
			continue;
		if (make_room(s, len)) {
			c->again--;
			px_submit(s, done);
		} else if (s == c->first) {
			c->again--;
			s->request.op.status = GN_KV_NO_MEMORY;
			finish(s);
		}
	}
}
