/* SPDX-License-Identifier: MIT */
/*
 * Timers of one thread: a pairing heap with embedded nodes, so that setting a timer neither
 * allocates nor fails. An object with many deadlines that rarely expire (a client's calls) sets one
 * timer to a lower bound and checks its deadlines when the timer fires.
 */
#ifndef GN_LINK_TIMER_H
#define GN_LINK_TIMER_H

#include <stdint.h>

#include "gannet/base.h"

struct link_timer {
	uint64_t due_ns; /* GN_FOREVER: not set */
	void (*fire)(struct link_timer *timer, uint64_t now_ns);
	/* Heap links: first child, next sibling, and the pointer to this node. */
	struct link_timer *child, *next, **prev;
};

struct link_timers {
	struct link_timer *root;
};

static inline void link_timer_init(struct link_timer *timer,
				   void (*fire)(struct link_timer *timer, uint64_t now_ns))
{
	*timer = (struct link_timer){.due_ns = GN_FOREVER, .fire = fire};
}

/* Sets, moves or (GN_FOREVER) stops the timer. */
void link_timer_set(struct link_timers *timers, struct link_timer *timer, uint64_t due_ns);

/* The earliest deadline; GN_FOREVER: no timer is set. */
static inline uint64_t link_timers_due(const struct link_timers *timers)
{
	return timers->root ? timers->root->due_ns : GN_FOREVER;
}

/* Fires due timers in order. The number is bounded, so that the caller gets to its messages. */
void link_timers_run(struct link_timers *timers, uint64_t now_ns);

#endif
