/* SPDX-License-Identifier: MIT */
/*
 * The event queue. The heap has four children to a node: half the levels of a binary one, and the
 * four lie in one or two cache lines. Entries carry their time, so that comparing does not touch
 * the events.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"

#define ARITY	       4u
#define CAPACITY_FIRST 64u
#define NO_SLOT	       UINT32_MAX

void sim_engine_init(struct sim_engine *engine, uint64_t seed, uint64_t limit_ps)
{
	memset(engine, 0, sizeof(*engine));
	engine->limit_ps = limit_ps;
	engine->free_slot = NO_SLOT;
	sim_random_seed(&engine->random, seed);
}

void sim_engine_fini(struct sim_engine *engine)
{
	free(engine->later);
	free(engine->now);
	free(engine->slots);
}

/* ---- the heap ---- */

static bool before(const struct sim_heap_entry *a, const struct sim_heap_entry *b)
{
	return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->seq < b->seq;
}

static void put(struct sim_engine *engine, uint32_t pos, struct sim_heap_entry entry)
{
	engine->later[pos] = entry;
	engine->slots[entry.slot].pos = pos;
}

static void sift_up(struct sim_engine *engine, uint32_t pos, struct sim_heap_entry entry)
{
	while (pos > 0) {
		const uint32_t parent = (pos - 1) / ARITY;

		if (!before(&entry, &engine->later[parent]))
			break;
		put(engine, pos, engine->later[parent]);
		pos = parent;
	}
	put(engine, pos, entry);
}

static void sift_down(struct sim_engine *engine, uint32_t pos, struct sim_heap_entry entry)
{
	for (;;) {
		const uint32_t first = pos * ARITY + 1;
		uint32_t end = first + ARITY, least = first;

		if (first >= engine->n_later)
			break;
		if (end > engine->n_later)
			end = engine->n_later;
		for (uint32_t child = first + 1; child < end; child++)
			if (before(&engine->later[child], &engine->later[least]))
				least = child;
		if (!before(&engine->later[least], &entry))
			break;
		put(engine, pos, engine->later[least]);
		pos = least;
	}
	put(engine, pos, entry);
}

static void heap_remove(struct sim_engine *engine, uint32_t pos)
{
	const struct sim_heap_entry last = engine->later[--engine->n_later];

	if (pos == engine->n_later)
		return;
	if (pos > 0 && before(&last, &engine->later[(pos - 1) / ARITY]))
		sift_up(engine, pos, last);
	else
		sift_down(engine, pos, last);
}

/* ---- the present ---- */

static void now_add(struct sim_engine *engine, uint32_t slot)
{
	engine->slots[slot].event->where = SIM_EVENT_NOW;
	engine->slots[slot].pos = engine->n_now;
	engine->now[engine->n_now++] = slot;
}

static void now_remove(struct sim_engine *engine, uint32_t pos)
{
	const uint32_t last = engine->now[--engine->n_now];

	engine->now[pos] = last;
	engine->slots[last].pos = pos;
}

/* ---- events ---- */

static int grow(struct sim_engine *engine)
{
	const uint32_t capacity = engine->capacity ? engine->capacity * 2 : CAPACITY_FIRST;
	void *bigger;

	bigger = reallocarray(engine->later, capacity, sizeof(*engine->later));
	if (!bigger)
		return -ENOMEM;
	engine->later = bigger;
	bigger = reallocarray(engine->now, capacity, sizeof(*engine->now));
	if (!bigger)
		return -ENOMEM;
	engine->now = bigger;
	bigger = reallocarray(engine->slots, capacity, sizeof(*engine->slots));
	if (!bigger)
		return -ENOMEM;
	engine->slots = bigger;
	engine->capacity = capacity;
	return 0;
}

int sim_event_init(struct sim_engine *engine, struct sim_event *event,
		   void (*fn)(struct sim_event *), enum sim_kind kind, uint64_t number)
{
	uint32_t slot = engine->free_slot;

	if (slot != NO_SLOT) {
		engine->free_slot = engine->slots[slot].pos;
	} else {
		if (engine->n_slots == engine->capacity) {
			int rc = grow(engine);

			if (rc)
				return rc;
		}
		slot = engine->n_slots++;
	}
	engine->slots[slot].event = event;
	*event = (struct sim_event){.fn = fn, .id = (uint64_t)kind << 56 | number, .slot = slot};
	return 0;
}

void sim_event_fini(struct sim_engine *engine, struct sim_event *event)
{
	struct sim_slot *slot = &engine->slots[event->slot];

	assert(slot->event == event);
	sim_event_cancel(engine, event);
	*slot = (struct sim_slot){.pos = engine->free_slot};
	engine->free_slot = event->slot;
}

void sim_event_cancel(struct sim_engine *engine, struct sim_event *event)
{
	if (event->where == SIM_EVENT_LATER)
		heap_remove(engine, engine->slots[event->slot].pos);
	else if (event->where == SIM_EVENT_NOW)
		now_remove(engine, engine->slots[event->slot].pos);
	event->where = SIM_EVENT_IDLE;
}

void sim_event_at(struct sim_engine *engine, struct sim_event *event, uint64_t at_ps)
{
	if (at_ps <= engine->now_ps && event->where == SIM_EVENT_NOW)
		return;
	sim_event_cancel(engine, event);
	if (at_ps <= engine->now_ps) {
		now_add(engine, event->slot);
	} else if (at_ps != SIM_NEVER) {
		event->where = SIM_EVENT_LATER;
		sift_up(engine, engine->n_later++,
			(struct sim_heap_entry){
				.at_ps = at_ps, .seq = engine->seq++, .slot = event->slot});
	}
}

/* ---- time ---- */

static void advance(struct sim_engine *engine, uint64_t at_ps)
{
	assert(at_ps > engine->now_ps);
	engine->now_ps = at_ps;
	engine->taken_instant = 0;
}

/* The next instant in which something happens becomes the present. */
static int next_instant(struct sim_engine *engine)
{
	if (!engine->n_later)
		return -ENOENT;
	if (engine->later[0].at_ps > engine->limit_ps) {
		engine->now_ps = engine->limit_ps;
		return -ETIMEDOUT;
	}
	advance(engine, engine->later[0].at_ps);
	do {
		const uint32_t slot = engine->later[0].slot;

		heap_remove(engine, 0);
		now_add(engine, slot);
	} while (engine->n_later && engine->later[0].at_ps == engine->now_ps);
	return 0;
}

int sim_engine_step(struct sim_engine *engine)
{
	struct sim_event *event;
	uint32_t pos = 0;

	if (!engine->n_now) {
		int rc = next_instant(engine);

		if (rc)
			return rc;
	}
	if (engine->n_now > 1)
		pos = sim_random_below(&engine->random, engine->n_now);
	event = engine->slots[engine->now[pos]].event;
	now_remove(engine, pos);
	if (engine->n_later) /* by then it will have come */
		__builtin_prefetch(engine->slots[engine->later[0].slot].event, 1);
	event->where = SIM_EVENT_IDLE;
	engine->taken++;
	engine->taken_instant++;
	sim_trace(engine, engine->now_ps);
	sim_trace(engine, event->id);
	event->fn(event);
	return 0;
}

bool sim_engine_skip(struct sim_engine *engine, uint64_t ps)
{
	const uint64_t at_ps = sim_after(engine, ps);

	if (engine->n_now || at_ps > engine->limit_ps || at_ps == SIM_NEVER ||
	    (engine->n_later && engine->later[0].at_ps <= at_ps))
		return false;
	if (ps)
		advance(engine, at_ps);
	return true;
}
