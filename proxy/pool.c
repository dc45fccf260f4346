/* SPDX-License-Identifier: MIT */
/*
 * Memory of a thread: slots and inputs are used again, last given back first, so that those in use
 * stay in the cache; everything else counts against a limit.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

#define SLOTS_KEPT 4096u
#define INS_KEPT   256u

/* ---- references to inputs ---- */

static void in_unref(struct px_thread *t, struct px_in *in)
{
	assert(in->refs);
	if (--in->refs)
		return;
	if (in->room < PX_IN_BYTES || t->ins_free == INS_KEPT) {
		free(in);
		return;
	}
	in->next_free = t->free_ins;
	t->free_ins = in;
	t->ins_free++;
}

/* ---- slots ---- */

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
		s->more = NULL;
		memset(&s->request, 0, sizeof(s->request));
	}
	s->conn = c;
	s->in = c->in;
	if (s->in)
		s->in->refs++;
	s->next = NULL;
	s->raw_bytes = 0;
	s->reads = false;
	s->state = PX_DONE;
	s->prev = c->last;
	*c->last = s;
	c->last = &s->next;
	c->slots++;
	return s;
}

void px_slot_take_back(struct px_conn *c, struct px_slot *s)
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

void px_slot_free(struct px_thread *t, struct px_slot *s)
{
	px_slot_detach(s);
	if (s->more) {
		px_memory_give(t, s->more_bytes);
		free(s->more);
		s->more = NULL;
	}
	if (t->n_free == SLOTS_KEPT) {
		free(s);
		return;
	}
	s->next = t->free_slots;
	t->free_slots = s;
	t->n_free++;
}

bool px_memory_take(struct px_thread *t, size_t bytes)
{
	if (bytes > t->proxy->memory_of_each - t->memory)
		return false;
	t->memory += bytes;
	return true;
}

void px_memory_give(struct px_thread *t, size_t bytes)
{
	t->memory -= bytes;
}

bool px_slot_more(struct px_thread *t, struct px_slot *s, uint32_t bytes)
{
	if (s->more) {
		px_memory_give(t, s->more_bytes);
		free(s->more);
	}
	s->more = px_memory_take(t, bytes) ? malloc(bytes) : NULL;
	s->more_bytes = s->more ? bytes : 0;
	return s->more;
}

/* ---- inputs ---- */

static struct px_in *in_new(struct px_thread *t, uint32_t room)
{
	struct px_in *in = room == PX_IN_BYTES ? t->free_ins : NULL;

	if (in) {
		t->free_ins = in->next_free;
		t->ins_free--;
	} else {
		in = malloc(sizeof(*in) + room + PX_SLACK);
	}
	if (!in)
		return NULL;
	in->refs = 1;
	in->room = room;
	return in;
}

/* What is not taken apart yet goes to the beginning of to, which may be where it is. */
static void in_move(struct px_conn *c, struct px_in *to)
{
	struct px_in *from = c->in;

	assert(from->refs == 1 && c->in_len - c->in_at <= to->room);
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
		return c->in_len < in->room ? 0 : -EAGAIN;
	if (!in || in->room < PX_IN_BYTES) {
		in = in_new(c->thread, PX_IN_BYTES);
		if (!in)
			return -ENOMEM;
	}
	if (!c->in)
		c->in = in;
	else if (c->in_at || c->in != in)
		in_move(c, in);
	return c->in_len < in->room ? 0 : -EAGAIN;
}

void px_in_shrink(struct px_conn *c)
{
	const uint32_t left = c->in_len - c->in_at;
	struct px_in *kept;

	if (!c->in || c->in->refs > 1 || c->in->room < PX_IN_BYTES || left > PX_LINE_MAX)
		return;
	if (!left) {
		px_in_end(c);
		return;
	}
	kept = in_new(c->thread, left);
	if (kept) /* else in all the room it has */
		in_move(c, kept);
}

void px_in_end(struct px_conn *c)
{
	if (c->in)
		in_unref(c->thread, c->in);
	c->in = NULL;
	c->in_at = c->in_len = 0;
	c->line_end = 0;
}

void px_pool_empty(struct px_thread *t)
{
	while (t->free_slots) {
		struct px_slot *s = t->free_slots;

		t->free_slots = s->next;
		free(s);
	}
	while (t->free_ins) {
		struct px_in *in = t->free_ins;

		t->free_ins = in->next_free;
		free(in);
	}
	t->n_free = t->ins_free = 0;
}
