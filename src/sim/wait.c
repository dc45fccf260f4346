/* SPDX-License-Identifier: MIT */
/*
 * gn_wait() in a simulation: the thread parks on the list of each item, and the item that changes
 * wakes it. Memory words are items, too: the fabric reports where it stored bytes, and whenever a
 * thread of the process lets others run, the words that its siblings wait for are polled.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/list.h"
#include "base/mutant.h"
#include "sim/nodes.h"

#define FEW_WORDS    64u
#define WORD_POLL_PS 2000u /* per word, between two polls of many words */

static void wait_unlink_item(struct gn_wait_item *item)
{
	list_remove(item);
	item->next = NULL;
	item->prev = NULL;
}

static void wait_wake(struct gn_wait_item *item)
{
	struct sim_thread *thread = item->waiter;

	if (thread->woken || mutant("wake-lost", thread->proc->sim->engine.taken))
		return;
	thread->woken = true;
	sim_unpark(thread);
}

static void source_woken(struct gn_wait_item *waiters)
{
	for (struct gn_wait_item *item = waiters; item; item = item->next)
		wait_wake(item);
}

static bool word_changed(const struct gn_wait_item *item)
{
	return __atomic_load_n(item->word, __ATOMIC_RELAXED) != item->seen;
}

void sim_words_placed(struct sim_proc *proc, const void *addr, size_t len_bytes)
{
	const uintptr_t from = (uintptr_t)addr;

	for (struct gn_wait_item *item = proc->watched; item; item = item->next) {
		const uintptr_t word = (uintptr_t)item->word;

		if (word + sizeof(*item->word) > from && word < from + len_bytes &&
		    word_changed(item))
			wait_wake(item);
	}
}

static void words_poll_all(struct sim_proc *proc)
{
	proc->looked_ps = proc->sim->engine.now_ps;
	for (struct gn_wait_item *item = proc->watched; item; item = item->next)
		if (word_changed(item))
			wait_wake(item);
}

void sim_words_due(struct sim_event *event)
{
	words_poll_all(container_of(event, struct sim_proc, words));
}

/*
 * Stores are visible at once. With very many words, polling all of them each time a thread lets
 * others run would dominate the run; these are polled a little later, as on real cores.
 */
void sim_words_look(struct sim_proc *proc)
{
	struct sim_engine *engine = &proc->sim->engine;
	const uint64_t next_ps = proc->looked_ps + (uint64_t)proc->n_watched * WORD_POLL_PS;

	if (proc->n_watched <= FEW_WORDS || engine->now_ps >= next_ps)
		words_poll_all(proc);
	else if (!sim_event_waits(&proc->words))
		sim_event_at(engine, &proc->words, next_ps);
}

/* With all its members. */
static void wait_link_source(struct sim_thread *self, struct gn_source *source,
			     struct gn_wait_item *item)
{
	item->waiter = self;
	source->wake = source_woken;
	list_push(&source->waiters, item);
	for (struct gn_source *m = source->mute ? NULL : source->members; m; m = m->next)
		wait_link_source(self, m, &m->item);
}

static void wait_unlink_source(struct gn_source *source, struct gn_wait_item *item)
{
	if (item->prev)
		wait_unlink_item(item);
	for (struct gn_source *m = source->members; m; m = m->next)
		wait_unlink_source(m, &m->item);
}

/* Before polling: a source's ready() may park, and a change meanwhile must not be missed. */
static void wait_link_all(struct sim_thread *self, struct gn_wait_item *items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (items[i].kind == GN_WAIT_SOURCE) {
			wait_link_source(self, items[i].source, &items[i]);
		} else {
			items[i].waiter = self;
			list_push(&self->proc->watched, &items[i]);
			self->proc->n_watched++;
		}
	}
	self->items = items;
	self->n_items = n;
}

void sim_wait_unlink(struct sim_thread *thread)
{
	for (unsigned i = 0; i < thread->n_items; i++) {
		if (thread->items[i].kind == GN_WAIT_SOURCE) {
			wait_unlink_source(thread->items[i].source, &thread->items[i]);
		} else {
			thread->proc->n_watched--;
			wait_unlink_item(&thread->items[i]);
		}
	}
	thread->items = NULL;
	thread->n_items = 0;
}

static int wait_poll_items(struct sim_thread *self, struct gn_wait_item *items, unsigned n)
{
	int ready = 0;

	self->looking = true;
	for (unsigned i = 0; i < n; i++) {
		struct gn_wait_item *item = &items[i];

		item->ready = item->kind == GN_WAIT_SOURCE ?
				      item->source->ops->ready(item->source) :
				      word_changed(item);
		ready += item->ready;
	}
	self->looking = false;
	return ready;
}

/* A thread sleeps only if every item can wake it, as in a process. */
static bool wait_can_sleep(const struct gn_wait_item *items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (items[i].kind != GN_WAIT_SOURCE || !items[i].source->wakes)
			return false;
	return true;
}

static void wait_armed_source(struct gn_source *source)
{
	if (source->ops->armed)
		source->ops->armed(source);
	for (struct gn_source *m = source->mute ? NULL : source->members; m; m = m->next)
		wait_armed_source(m);
}

/* The items were armed. An interrupt follows, unless the deadline came first. */
static void wait_by_event(struct sim_thread *self, struct gn_wait_item *items, unsigned n,
			  bool interrupt)
{
	for (unsigned i = 0; i < n; i++)
		wait_armed_source(items[i].source);
	if (interrupt)
		sim_owe(self->proc->sim, sim_interrupt(&self->proc->node->device));
}

static int wait_linked(struct sim_thread *self, struct gn_wait_item *items, unsigned n,
		       uint64_t deadline_ns, const char *reason, bool spin)
{
	const struct gn_sim *sim = self->proc->sim;
	const bool sleeps = wait_can_sleep(items, n);
	bool by_event = false;

	for (;;) {
		uint64_t from_ps;
		int ready;

		self->woken = false;
		ready = wait_poll_items(self, items, n);
		if (ready) {
			if (sleeps && !spin && !by_event)
				wait_by_event(self, items, n, true);
			return ready;
		}
		if (sim_passed(self, deadline_ns))
			return -ETIMEDOUT;
		if (self->woken)
			continue;
		from_ps = sim->engine.now_ps;
		sim_park_till(self, deadline_ns, reason);
		by_event = sleeps && (!spin || sim->engine.now_ps - from_ps > sim->profile.spin_ps);
		if (by_event)
			wait_by_event(self, items, n, self->woken);
	}
}

int sim_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason,
	     bool spin)
{
	struct gn_sim *sim = sim_current();
	struct sim_thread *self = sim->thread;
	uint64_t until_ns = deadline_ns;
	int rc;

	for (unsigned i = 0; i < n; i++) {
		if (items[i].kind == GN_WAIT_FD)
			return gn_fail_log(-EOPNOTSUPP,
					   "sim: a wait for fd %d: there are none in a simulation",
					   items[i].fd);
	}
	if (sim_passed(self, deadline_ns)) {
		rc = wait_poll_items(self, items, n);
		if (rc)
			return rc;
		sim_looked(sim, sim->profile.look_ps);
		return -ETIMEDOUT;
	}
	self->looks = 0;
	rc = source_prepare_items(items, n, &until_ns);
	if (!rc) {
		sim_spun(sim);
		wait_link_all(self, items, n);
		rc = wait_linked(self, items, n, until_ns, reason, spin);
		sim_wait_unlink(self);
	}
	source_rest_items(items, n);
	return rc;
}
