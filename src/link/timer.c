/* SPDX-License-Identifier: MIT */
#include "link/timer.h"

#define TIMERS_RUN 1024u /* at once: then messages have their turn */

/* Of two heaps one: the later root becomes the first child of the earlier. NULL is an empty one. */
static struct link_timer *meld(struct link_timer *a, struct link_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->due_ns < a->due_ns) {
		struct link_timer *later = a;

		a = b;
		b = later;
	}
	b->next = a->child;
	b->prev = &a->child;
	if (b->next)
		b->next->prev = &b->next;
	a->child = b;
	return a;
}

/* The siblings from first on become one heap: in pairs from the left, then all from the right. */
static struct link_timer *meld_siblings(struct link_timer *first)
{
	struct link_timer *pairs = NULL, *root = NULL;

	while (first) {
		struct link_timer *a = first, *b = a->next;

		first = b ? b->next : NULL;
		a->next = NULL;
		if (b)
			b->next = NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct link_timer *next = pairs->next;

		pairs->next = NULL;
		root = meld(root, pairs);
		pairs = next;
	}
	return root;
}

static void set_root(struct link_timers *timers, struct link_timer *root)
{
	timers->root = root;
	if (root) {
		root->next = NULL;
		root->prev = &timers->root;
	}
}

static void take_out(struct link_timers *timers, struct link_timer *timer)
{
	struct link_timer *children = meld_siblings(timer->child);

	timer->child = NULL;
	if (timers->root == timer) {
		set_root(timers, children);
		return;
	}
	*timer->prev = timer->next;
	if (timer->next)
		timer->next->prev = timer->prev;
	set_root(timers, meld(timers->root, children));
}

void link_timer_set(struct link_timers *timers, struct link_timer *timer, uint64_t due_ns)
{
	if (timer->due_ns == due_ns)
		return;
	if (timer->due_ns != GN_FOREVER)
		take_out(timers, timer);
	timer->due_ns = due_ns;
	if (due_ns == GN_FOREVER)
		return;
	timer->child = timer->next = NULL;
	set_root(timers, meld(timers->root, timer));
}

void link_timers_run(struct link_timers *timers, uint64_t now_ns)
{
	for (unsigned n = 0; n < TIMERS_RUN && link_timers_due(timers) <= now_ns; n++) {
		struct link_timer *timer = timers->root;

		take_out(timers, timer);
		timer->due_ns = GN_FOREVER;
		timer->fire(timer, now_ns);
	}
}
