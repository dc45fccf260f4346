/* SPDX-License-Identifier: MIT */
/*
 * Timers of one thread: a pairing heap whose nodes are embedded in what they are about, so that
 * setting one neither allocates nor fails. What has many deadlines that are rarely reached (a
 * client's calls) sets one timer to a lower bound of them and looks closer when it fires.
 */
#ifndef GN_LINK_TIMER_H
#define GN_LINK_TIMER_H

#include <stdint.h>

#include "gannet/base.h"

struct link_timer {
	uint64_t due_ns; /* GN_FOREVER: not set */
	void (*fire)(struct link_timer *timer, uint64_t now_ns);
	/* The heap's: the first child, the next sibling, and what points to this node. */
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

/* Sets, moves or (GN_FOREVER) ends it. */
void link_timer_set(struct link_timers *timers, struct link_timer *timer, uint64_t due_ns);

/* When the first is due; GN_FOREVER: none is set. */
static inline uint64_t link_timers_due(const struct link_timers *timers)
{
	return timers->root ? timers->root->due_ns : GN_FOREVER;
}

/* Fires what is due, in order; a bounded number, so that the caller gets to its messages. */
void link_timers_run(struct link_timers *timers, uint64_t now_ns);

#endif
