/* SPDX-License-Identifier: MIT */
/*
 * Memory of a thread: slots and inputs are used again, last given back first, so that those in use
 * stay in the cache; everything else counts against a limit.
 */
#include <stdlib.h>
#include <string.h>

#include "front.h"

#define SLOTS_KEPT 4096u
#define INS_KEPT   256u

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

void px_slot_free(struct px_thread *t, struct px_slot *s)
{
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

static char *take_in(struct px_thread *t)
{
	char *in = t->free_ins;

	if (!in)
		return malloc(PX_IN_BYTES + PX_SLACK);
	memcpy(&t->free_ins, in, sizeof(in));
	t->ins_free--;
	return in;
}

static void give_in(struct px_thread *t, char *in)
{
	if (t->ins_free == INS_KEPT) {
		free(in);
		return;
	}
	memcpy(in, &t->free_ins, sizeof(in));
	t->free_ins = in;
	t->ins_free++;
}

bool px_in_begin(struct px_conn *c)
{
	char *in;

	if (c->in && !c->keep)
		return true;
	in = take_in(c->thread);
	if (!in)
		return false;
	if (c->in) {
		memcpy(in, c->in, c->in_len);
		free(c->in);
	}
	c->in = in;
	c->keep = 0;
	return true;
}

void px_in_tidy(struct px_conn *c)
{
	if (!c->in_at)
		return;
	c->in_len -= c->in_at;
	memmove(c->in, c->in + c->in_at, c->in_len);
	c->line_end -= c->line_end ? c->in_at : 0;
	c->in_at = 0;
}

void px_in_rest(struct px_conn *c)
{
	char *kept;

	if (!c->in || c->keep)
		return;
	px_in_tidy(c);
	if (c->in_len > PX_LINE_MAX)
		return;
	kept = c->in_len ? malloc(c->in_len + PX_SLACK) : NULL;
	if (c->in_len && !kept)
		return; /* then in all the room it has */
	if (kept)
		memcpy(kept, c->in, c->in_len);
	give_in(c->thread, c->in);
	c->in = kept;
	c->keep = c->in_len;
}

void px_in_end(struct px_conn *c)
{
	if (c->in && !c->keep)
		give_in(c->thread, c->in);
	else
		free(c->in);
	c->in = NULL;
}

void px_pool_empty(struct px_thread *t)
{
	while (t->free_slots) {
		struct px_slot *s = t->free_slots;

		t->free_slots = s->next;
		free(s);
	}
	while (t->free_ins) {
		char *in = t->free_ins;

		memcpy(&t->free_ins, in, sizeof(in));
		free(in);
	}
	t->n_free = t->ins_free = 0;
}
