/* SPDX-License-Identifier: MIT */
/*
 * Completions: the card writes them to memory, where a polling thread finds them. A thread that has
 * waited for longer than it spins is asleep, and an interrupt wakes it.
 */
#include "sim/model/model.h"

uint64_t sim_complete(const struct sim_device *device, uint64_t at_ps)
{
	return at_ps + device->profile->cqe_ps;
}

uint64_t sim_wake_cost(struct sim_device *device, uint64_t waited_ps)
{
	if (!device->profile->interrupt_ps || waited_ps <= device->profile->spin_ps)
		return 0;
	device->interrupts++;
	return device->profile->interrupt_ps;
}
