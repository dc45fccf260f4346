/* SPDX-License-Identifier: MIT */
/*
 * Completions: the card writes them into memory, where a thread that polls finds them. One that had
 * waited for longer than it spins has gone to sleep, and is woken by an interrupt.
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
