/* SPDX-License-Identifier: MIT */
/* Virtual time: events of the present instant, and the step to the next instant. */
#include "sim/engine.h"
#include "base/fail.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 64u

void sim_engine_init(struct sim_engine *engine, uint64_t seed, uint64_t limit_ps)
{
	memset(engine, 0, sizeof(*engine));
	engine->limit_ps = limit_ps;
	sim_queue_init(&engine->later);
	sim_random_seed(&engine->random, seed);
}

void sim_engine_fini(struct sim_engine *engine)
{
	sim_queue_fini(&engine->later);
	free(engine->now);
}

/* ---- the present instant ---- */

static void engine_now_add(struct sim_engine *engine, struct sim_event *event)
{
	event->where = SIM_EVENT_NOW;
	event->pos = engine->n_now;
	engine->now[engine->n_now++] = event;
}

static void engine_now_remove(struct sim_engine *engine, uint32_t pos)
{
	struct sim_event *last = engine->now[--engine->n_now];

	engine->now[pos] = last;
	last->pos = pos;
}

/* ---- events ---- */

static int engine_grow(struct sim_engine *engine)
{
	const uint32_t capacity = engine->capacity ? engine->capacity * 2 : CAPACITY_FIRST;
	struct sim_event **bigger = reallocarray(engine->now, capacity, sizeof(struct sim_event *));
	int rc;

	if (!bigger)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	engine->now = bigger;
	rc = sim_queue_reserve(&engine->later, capacity);
	if (!rc)
		engine->capacity = capacity;
	return rc;
}

int sim_event_init(struct sim_engine *engine, struct sim_event *event,
		   void (*fn)(struct sim_event *), enum sim_kind kind, uint64_t number)
{
	if (engine->n_events == engine->capacity) {
		int rc = engine_grow(engine);

		if (rc)
			return rc;
	}
	engine->n_events++;
	*event = (struct sim_event){.fn = fn, .id = (uint64_t)kind << 56 | number};
	return 0;
}

void sim_event_fini(struct sim_engine *engine, struct sim_event *event)
{
	sim_event_cancel(engine, event);
	assert(engine->n_events > 0);
	engine->n_events--;
}

void sim_event_cancel(struct sim_engine *engine, struct sim_event *event)
{
	if (event->where == SIM_EVENT_NOW)
		engine_now_remove(engine, event->pos);
	else if (event->where != SIM_EVENT_IDLE)
		sim_queue_remove(&engine->later, event);
	event->where = SIM_EVENT_IDLE;
}

void sim_event_at(struct sim_engine *engine, struct sim_event *event, uint64_t at_ps)
{
	if (at_ps <= engine->now_ps && event->where == SIM_EVENT_NOW)
		return;
	if (event->where != SIM_EVENT_IDLE)
		sim_event_cancel(engine, event);
	if (at_ps <= engine->now_ps)
		engine_now_add(engine, event);
	else if (at_ps != SIM_NEVER)
		sim_queue_add(&engine->later, event, at_ps, engine->now_ps);
}

/* ---- time ---- */

static void engine_advance(struct sim_engine *engine, uint64_t at_ps)
{
	assert(at_ps > engine->now_ps);
	engine->now_ps = at_ps;
	engine->taken_instant = 0;
}

/* Advances to the next instant that has an event. */
static int engine_next_instant(struct sim_engine *engine)
{
	const uint64_t at_ps = sim_queue_first_ps(&engine->later, engine->now_ps);

	if (at_ps == SIM_NEVER)
		return -ENOENT;
	if (at_ps > engine->limit_ps) {
		engine->now_ps = engine->limit_ps;
		return -ETIMEDOUT;
	}
	engine_advance(engine, at_ps);
	for (struct sim_event *event; (event = sim_queue_take(&engine->later, at_ps));)
		engine_now_add(engine, event);
	return 0;
}

int sim_engine_step(struct sim_engine *engine)
{
	struct sim_event *event;
	uint32_t pos = 0;

	if (!engine->n_now) {
		int rc = engine_next_instant(engine);

		if (rc)
			return rc;
	}
	if (engine->n_now > 1)
		pos = sim_random_below(&engine->random, engine->n_now);
	event = engine->now[pos];
	engine_now_remove(engine, pos);
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
	    sim_queue_first_ps(&engine->later, engine->now_ps) <= at_ps)
		return false;
	if (ps)
		engine_advance(engine, at_ps);
	return true;
}
