/* SPDX-License-Identifier: MIT */
/*
 * Completions: the card writes them to memory, where a polling thread finds them. An interrupt
 * wakes a thread that sleeps, because it has waited for longer than it spins or does not spin.
 */
#include "sim/model/model.h"

uint64_t sim_complete(const struct sim_device *device, uint64_t at_ps)
{
	return at_ps + device->profile->cqe_ps;
}

uint64_t sim_interrupt(struct sim_device *device)
{
	device->interrupts++;
	return device->profile->interrupt_ps;
}
