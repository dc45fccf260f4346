/* SPDX-License-Identifier: MIT */
/*
 * PCIe: a doorbell takes time to the card and needs a gap to the next, a longer one if it carries
 * inline data (BlueFlame). Reads by the card wait for a response. The bytes of each direction share
 * its bandwidth. On a card that stalls (stalls.c) one unit handles doorbells and contexts, and both
 * directions share one bandwidth.
 */
#include "sim/model/model.h"

uint64_t sim_doorbell(struct sim_device *device, uint64_t at_ps, bool with_data, bool cold)
{
	const struct sim_profile *p = device->profile;
	const uint64_t gap = with_data ? p->blueflame_gap_ps : p->doorbell_gap_ps;

	if (p->stalls)
		return sim_station_pass(&device->icm, at_ps, gap + (cold ? p->miss_write_ps : 0)) +
		       p->mmio_ps;
	return sim_station_pass(&device->doorbells, at_ps, gap) + p->mmio_ps;
}

uint64_t sim_dma_read(struct sim_device *device, uint64_t at_ps, uint64_t bytes, unsigned reads)
{
	const struct sim_profile *p = device->profile;

	return sim_station_pass(&device->dma_read, at_ps, sim_rate_ps(p->pcie, bytes)) +
	       reads * p->dma_read_ps;
}

uint64_t sim_dma_stall(struct sim_device *device, uint64_t at_ps, uint64_t ps)
{
	return ps ? sim_station_pass(&device->dma_read, at_ps, ps) : at_ps;
}

uint64_t sim_dma_write(struct sim_device *device, uint64_t at_ps, uint64_t bytes)
{
	const struct sim_profile *p = device->profile;

	return sim_station_pass(p->stalls ? &device->dma_read : &device->dma_write, at_ps,
				sim_rate_ps(p->pcie, bytes));
}
