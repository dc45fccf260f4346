/* SPDX-License-Identifier: MIT */
/* Thread-local slots: an index into a small table of each simulated thread. */
#include <errno.h>

#include "base/fail.h"
#include "sim/nodes.h"

struct gn_slot {
	unsigned index;
	void (*destroy)(void *value);
};

int sim_slot_create(void (*destroy)(void *value), struct gn_slot **out)
{
	struct sim_proc *proc = sim_current()->proc;
	struct gn_slot *slot;
	unsigned index = 0;

	while (index < SIM_SLOTS && proc->slot[index])
		index++;
	if (index == SIM_SLOTS)
		return gn_fail(-EAGAIN, "gn_slot_create(): a simulated process has %u slots",
			       SIM_SLOTS);
	slot = gn_alloc(sizeof(*slot), 0);
	if (!slot)
		return -ENOMEM;
	slot->index = index;
	slot->destroy = destroy;
	proc->slot[index] = slot;
	*out = slot;
	return 0;
}

void *sim_slot_get(const struct gn_slot *slot)
{
	return sim_current()->thread->slot[slot->index];
}

int sim_slot_set(struct gn_slot *slot, void *value)
{
	sim_current()->thread->slot[slot->index] = value;
	return 0;
}

void sim_slot_destroy(struct gn_slot *slot)
{
	struct sim_proc *proc = sim_current()->proc;

	/* Otherwise the next slot with this index would start with old values. */
	for (struct sim_thread *thread = proc->threads; thread; thread = thread->next)
		thread->slot[slot->index] = NULL;
	proc->slot[slot->index] = NULL;
	gn_free(slot);
}

void sim_slots_end(struct sim_thread *thread)
{
	for (unsigned i = 0; i < SIM_SLOTS; i++) {
		const struct gn_slot *slot = thread->proc->slot[i];
		void *value = thread->slot[i];

		thread->slot[i] = NULL;
		if (slot && slot->destroy && value)
			slot->destroy(value);
	}
}
