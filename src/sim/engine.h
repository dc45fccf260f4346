/* SPDX-License-Identifier: MIT */
/*
 * Virtual time: a queue of events, and the trace hash of processed events.
 *
 * Events are embedded in their objects, and an event is queued at most once. Queue space is
 * reserved when an event is initialised, so scheduling neither allocates nor fails. Events of later
 * instants are in queue.h; those of the present instant are in a list from which the next is drawn
 * at random: the seed decides the order of simultaneous events. Steps that must keep an order share
 * one event.
 */
#ifndef GN_SIM_ENGINE_H
#define GN_SIM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/queue.h"
#include "sim/random.h"

#define SIM_PS_PER_NS 1000u
#define SIM_NS_MAX    (SIM_NEVER / SIM_PS_PER_NS - 1) /* largest virtual time: 213 days */

/* The kind of an event or trace entry; a number follows. Never an address. */
enum sim_kind {
	SIM_KIND_THREAD = 1,
	SIM_KIND_PROC,
	SIM_KIND_QP,
	SIM_KIND_ALARM,
	SIM_KIND_FAULT = 15
};

struct sim_engine {
	uint64_t now_ps;
	uint64_t limit_ps;
	uint64_t taken;		/* events so far */
	uint64_t taken_instant; /* … in the present instant */
	uint64_t hash;
	struct sim_random random;
	struct sim_event **now; /* events of the present instant */
	uint32_t n_now;
	uint32_t n_events, capacity; /* events initialised, and queue capacity */
	struct sim_queue later;
};

void sim_engine_init(struct sim_engine *engine, uint64_t seed, uint64_t limit_ps);
void sim_engine_fini(struct sim_engine *engine);

int sim_event_init(struct sim_engine *engine, struct sim_event *event,
		   void (*fn)(struct sim_event *), enum sim_kind kind, uint64_t number);
void sim_event_fini(struct sim_engine *engine, struct sim_event *event);

/* Schedules the event at at_ps, or now if that is past; moves an event that is queued. */
void sim_event_at(struct sim_engine *engine, struct sim_event *event, uint64_t at_ps);
void sim_event_cancel(struct sim_engine *engine, struct sim_event *event);

static inline bool sim_event_waits(const struct sim_event *event)
{
	return event->where != SIM_EVENT_IDLE;
}

static inline void sim_event_now(struct sim_engine *engine, struct sim_event *event)
{
	sim_event_at(engine, event, engine->now_ps);
}

/*
 * Processes one event: 0; -ENOENT: the queue is empty; -ETIMEDOUT: the next one is past the limit.
 */
int sim_engine_step(struct sim_engine *engine);

/* Advances time by ps without processing events, if none is due before. */
bool sim_engine_skip(struct sim_engine *engine, uint64_t ps);

/* now + ps; SIM_NEVER on overflow. */
static inline uint64_t sim_after(const struct sim_engine *engine, uint64_t ps)
{
	return ps < SIM_NEVER - engine->now_ps ? engine->now_ps + ps : SIM_NEVER;
}

static inline uint64_t sim_ns_to_ps(uint64_t ns)
{
	return ns > SIM_NS_MAX ? SIM_NEVER : ns * SIM_PS_PER_NS;
}

/* Adds a number to the trace hash: an id, an offset, a length; never a pointer. */
static inline void sim_trace(struct sim_engine *engine, uint64_t value)
{
	engine->hash = (sim_rotl(engine->hash, 29) ^ value) * 0x9e3779b97f4a7c15u;
}

#endif
