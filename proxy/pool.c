/* SPDX-License-Identifier: MIT */
/*
 * Memory of a thread: slots and input buffers are reused, last freed first, so that they stay in
 * the cache. All memory counts against a limit, including what is kept for reuse.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define SLOTS_KEPT 4096u
#define INS_KEPT   256u
#define WAKE_CONNS 64u	    /* starved connections that retry at a time */
#define WAKE_NS	   1000000u /* and the interval between such retries */

/* ---- limits ---- */

static size_t in_bytes(uint32_t room)
{
	return sizeof(struct px_in) + room + PX_SLACK;
}

static bool work_fits(const struct px_thread *t, size_t bytes)
{
	return t->work_bytes + bytes <= t->proxy->work_bytes;
}

static bool work_make_fit(struct px_thread *t, const struct px_conn *c, size_t bytes)
{
	while (!work_fits(t, bytes))
		if (!px_conn_drop_waiting(t, c))
			return false;
	return true;
}

bool px_memory_reserve(struct px_thread *t, const struct px_conn *c, size_t bytes)
{
	if (!work_make_fit(t, c, bytes))
		return false;
	t->work_bytes += bytes;
	return true;
}

void px_memory_release(struct px_thread *t, size_t bytes)
{
	assert(t->work_bytes >= bytes);
	t->work_bytes -= bytes;
}

void px_starve(struct px_conn *c)
{
	if (c->starved)
		return;
	c->starved = true;
	c->next_starved = NULL;
	*c->thread->starved_last = c;
	c->thread->starved_last = &c->next_starved;
}

void px_starved_wake(struct px_thread *t)
{
	if (!t->starved || t->now_ns < t->woke_ns + WAKE_NS)
		return;
	t->woke_ns = t->now_ns;
	for (unsigned n = 0; n < WAKE_CONNS && t->starved; n++) {
		struct px_conn *c = t->starved;

		t->starved = c->next_starved;
		if (!t->starved)
			t->starved_last = &t->starved;
		c->starved = false;
		px_conn_queue(c);
	}
}

/* ---- references to input buffers ---- */

static void in_unref(struct px_thread *t, struct px_in *in)
{
	assert(in->refs);
	if (--in->refs)
		return;
	if (in->capacity < PX_IN_BYTES) {
		px_memory_release(t, in_bytes(in->capacity));
		free(in);
	} else if (t->ins_free == INS_KEPT) {
		t->ins_bytes -= in_bytes(in->capacity);
		free(in);
	} else {
		in->next_free = t->free_ins;
		t->free_ins = in;
		t->ins_free++;
	}
}

/* ---- slots ---- */

bool px_may_add_slot(struct px_conn *c)
{
	struct px_thread *t = c->thread;
	const struct proxy *p = t->proxy;

	/*
	 * A connection with slots gets a turn when they are answered. It leaves a quarter of the
	 * memory and half of the operations to connections without slots.
	 */
	if (c->slots)
		return c->slots < PX_WINDOW && t->outstanding < PX_OPS_OUTSTANDING_MAX / 2 &&
		       c->slots * sizeof(struct px_slot) + c->buf_bytes < p->conn_bytes &&
		       work_fits(t, sizeof(struct px_slot) + p->work_bytes / 4);
	if (t->outstanding < PX_OPS_OUTSTANDING_MAX && work_make_fit(t, c, sizeof(struct px_slot)))
		return true;
	px_starve(c);
	return false;
}

struct px_slot *px_slot_new(struct px_conn *c)
{
	struct px_thread *t = c->thread;
	struct px_slot *s = t->free_slots;

	if (s) {
		t->free_slots = s->next;
		t->n_free--;
	} else {
		s = malloc(sizeof(*s));
		if (!s)
			return NULL;
		s->buf = NULL;
		memset(&s->request, 0, sizeof(s->request));
	}
	t->work_bytes += sizeof(*s);
	s->conn = c;
	s->in = c->in;
	if (s->in)
		s->in->refs++;
	s->next = NULL;
	s->reply_bytes = 0;
	s->reads = false;
	s->state = PX_DONE;
	s->prev = c->last;
	*c->last = s;
	c->last = &s->next;
	c->slots++;
	c->progressed = true;
	return s;
}

void px_slot_undo_new(struct px_conn *c, struct px_slot *s)
{
	c->last = s->prev;
	*c->last = NULL;
	c->slots--;
	px_slot_free(c->thread, s);
}

void px_slot_detach(struct px_slot *s)
{
	if (s->in)
		in_unref(s->conn->thread, s->in);
	s->in = NULL;
}

static void slot_free_buf(struct px_thread *t, struct px_slot *s)
{
	if (!s->buf)
		return;
	px_memory_release(t, s->buf_bytes);
	s->conn->buf_bytes -= s->buf_bytes;
	free(s->buf);
	s->buf = NULL;
}

void px_slot_free(struct px_thread *t, struct px_slot *s)
{
	px_slot_detach(s);
	slot_free_buf(t, s);
	px_memory_release(t, sizeof(*s));
	if (t->n_free >= t->proxy->slots_kept || t->n_free == SLOTS_KEPT) {
		free(s);
		return;
	}
	s->next = t->free_slots;
	t->free_slots = s;
	t->n_free++;
}

/* bytes are reserved already. */
static bool slot_set_buf(struct px_thread *t, struct px_slot *s, uint32_t bytes)
{
	slot_free_buf(t, s);
	s->buf = malloc(bytes);
	if (!s->buf) {
		px_memory_release(t, bytes);
		return false;
	}
	s->buf_bytes = bytes;
	s->conn->buf_bytes += bytes;
	return true;
}

bool px_slot_alloc(struct px_thread *t, struct px_slot *s, uint32_t bytes)
{
	return px_memory_reserve(t, s->conn, bytes) && slot_set_buf(t, s, bytes);
}

bool px_slot_try_alloc(struct px_slot *s, uint32_t bytes)
{
	struct px_thread *t = s->conn->thread;

	/* Half of the memory is reserved for allocations that are required. */
	if (s->conn->buf_bytes + bytes > t->proxy->conn_bytes ||
	    !work_fits(t, bytes + t->proxy->work_bytes / 2))
		return false;
	t->work_bytes += bytes;
	return slot_set_buf(t, s, bytes);
}

/* ---- input buffers ---- */

/* A buffer of the usual size, within the limit of input buffers; NULL: none. */
static struct px_in *in_alloc(struct px_conn *c)
{
	const size_t bytes = in_bytes(PX_IN_BYTES);
	struct px_thread *t = c->thread;
	struct px_in *in;

	while (!t->free_ins && t->ins_bytes + bytes > t->proxy->ins_bytes)
		if (!px_conn_drop_waiting(t, c))
			return NULL;
	in = t->free_ins;
	if (in) {
		t->free_ins = in->next_free;
		t->ins_free--;
	} else {
		in = malloc(bytes);
		if (!in)
			return NULL;
		t->ins_bytes += bytes;
		in->capacity = PX_IN_BYTES;
	}
	in->refs = 1;
	return in;
}

/* A small buffer, instead of a usual one that is freed right after. */
static struct px_in *in_alloc_small(struct px_conn *c, uint32_t room)
{
	struct px_in *in = malloc(in_bytes(room));

	if (!in)
		return NULL;
	c->thread->work_bytes += in_bytes(room);
	in->refs = 1;
	in->capacity = room;
	return in;
}

/* Moves unparsed input to the start of to, which may be the same buffer. */
static void in_move(struct px_conn *c, struct px_in *to)
{
	struct px_in *from = c->in;

	assert(from->refs == 1 && c->in_len - c->in_at <= to->capacity);
	c->in_len -= c->in_at;
	memmove(to->bytes, from->bytes + c->in_at, c->in_len);
	c->line_end -= c->line_end ? c->in_at : 0;
	c->in_at = 0;
	c->in = to;
	if (from != to)
		in_unref(c->thread, from);
}

int px_in_ready(struct px_conn *c)
{
	struct px_in *in = c->in;

	if (in && in->refs > 1)
		return c->in_len < in->capacity ? 0 : -EAGAIN;
	if (!in || in->capacity < PX_IN_BYTES) {
		in = in_alloc(c);
		if (!in)
			return -ENOMEM;
	}
	if (!c->in)
		c->in = in;
	else if (c->in_at || c->in != in)
		in_move(c, in);
	return c->in_len < in->capacity ? 0 : -EAGAIN;
}

void px_in_shrink(struct px_conn *c)
{
	const uint32_t left = c->in_len - c->in_at;
	struct px_in *kept;

	if (!c->in || c->in->refs > 1 || c->in->capacity < PX_IN_BYTES || left > PX_LINE_MAX)
		return;
	if (!left) {
		px_in_release(c);
		return;
	}
	kept = in_alloc_small(c, left);
	if (kept) /* else it stays */
		in_move(c, kept);
}

void px_in_release(struct px_conn *c)
{
	if (c->in)
		in_unref(c->thread, c->in);
	c->in = NULL;
	c->in_at = c->in_len = 0;
	c->line_end = 0;
}

void px_pool_free(struct px_thread *t)
{
	while (t->free_slots) {
		struct px_slot *s = t->free_slots;

		t->free_slots = s->next;
		free(s);
	}
	while (t->free_ins) {
		struct px_in *in = t->free_ins;

		t->free_ins = in->next_free;
		t->ins_bytes -= in_bytes(in->capacity);
		free(in);
	}
	t->n_free = t->ins_free = 0;
}
