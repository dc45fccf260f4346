/* SPDX-License-Identifier: MIT */
#include "link/timer.h"
#include "base/list.h"

#define TIMERS_RUN_MAX 1024u /* per call, so that the caller gets to its messages */

/* Melds two heaps: the later root becomes the first child of the earlier. NULL is an empty heap. */
static struct link_timer *heap_meld(struct link_timer *a, struct link_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->due_ns < a->due_ns) {
		struct link_timer *later = a;

		a = b;
		b = later;
	}
	list_push(&a->child, b);
	return a;
}

/* Melds a list of siblings into one heap: pairwise from the left, then all from the right. */
static struct link_timer *heap_meld_siblings(struct link_timer *first)
{
	struct link_timer *pairs = NULL, *root = NULL;

	while (first) {
		struct link_timer *a = first, *b = a->next;

		first = b ? b->next : NULL;
		a->next = NULL;
		if (b)
			b->next = NULL;
		a = heap_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct link_timer *next = pairs->next;

		pairs->next = NULL;
		root = heap_meld(root, pairs);
		pairs = next;
	}
	return root;
}

static void heap_set_root(struct link_timers *timers, struct link_timer *root)
{
	timers->root = root;
	if (root) {
		root->next = NULL;
		root->prev = &timers->root;
	}
}

static void heap_remove(struct link_timers *timers, struct link_timer *timer)
{
	struct link_timer *children = heap_meld_siblings(timer->child);

	timer->child = NULL;
	if (timers->root == timer) {
		heap_set_root(timers, children);
		return;
	}
	list_remove(timer);
	heap_set_root(timers, heap_meld(timers->root, children));
}

void link_timer_set(struct link_timers *timers, struct link_timer *timer, uint64_t due_ns)
{
	if (timer->due_ns == due_ns)
		return;
	if (timer->due_ns != GN_FOREVER)
		heap_remove(timers, timer);
	timer->due_ns = due_ns;
	if (due_ns == GN_FOREVER)
		return;
	timer->child = timer->next = NULL;
	heap_set_root(timers, heap_meld(timers->root, timer));
}

void link_timers_run(struct link_timers *timers, uint64_t now_ns)
{
	for (unsigned n = 0; n < TIMERS_RUN_MAX && link_timers_due(timers) <= now_ns; n++) {
		struct link_timer *timer = timers->root;

		heap_remove(timers, timer);
		timer->due_ns = GN_FOREVER;
		timer->fire(timer, now_ns);
	}
}
