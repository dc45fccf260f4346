/* SPDX-License-Identifier: MIT */
/* A node's device: all its stations. */
#include "sim/model/model.h"

int sim_device_init(struct sim_device *device, struct sim_engine *engine,
		    const struct sim_profile *profile)
{
	int rc;

	*device = (struct sim_device){.profile = profile, .engine = engine};
	rc = sim_cache_init(&device->cache, profile->stalls ? 0 : profile->cache_units);
	if (!rc)
		rc = sim_set_init(&device->contexts, profile->stalls * profile->cache_units);
	if (!rc)
		rc = sim_set_init(&device->scatter, profile->translation_units);
	if (!rc)
		rc = sim_set_init(&device->gather, profile->translation_units);
	if (rc)
		sim_device_fini(device);
	return rc;
}

void sim_device_fini(struct sim_device *device)
{
	sim_cache_fini(&device->cache);
	sim_set_fini(&device->contexts);
	sim_set_fini(&device->scatter);
	sim_set_fini(&device->gather);
}

uint64_t sim_jitter(const struct sim_device *device, uint64_t ps)
{
	const uint64_t span =
		(uint64_t)((unsigned __int128)ps * device->profile->jitter_ppm / 1000000);

	if (!span)
		return ps;
	return ps - span +
	       (uint64_t)((unsigned __int128)sim_random_next(&device->engine->random) *
				  (2 * span + 1) >>
			  64);
}

void sim_device_stats(const struct sim_device *device, struct gn_sim_stats *out)
{
	out->requests = device->requests;
	out->packets_out = device->packets_out;
	out->packets_in = device->packets_in;
	out->bytes_out = device->bytes_out;
	out->bytes_in = device->bytes_in;
	out->cache_hits = device->hits;
	out->cache_misses = device->misses;
	out->wqe_misses = device->wqe_misses;
	out->inbound = device->inbound;
	out->inbound_misses = device->inbound_misses;
	out->interrupts = device->interrupts;
	out->tx_busy_ns = device->tx.busy_ps / SIM_PS_PER_NS;
	out->rx_busy_ns = device->rx.busy_ps / SIM_PS_PER_NS;
	out->link_out_busy_ns = device->link_out.busy_ps / SIM_PS_PER_NS;
	out->link_in_busy_ns = device->link_in.busy_ps / SIM_PS_PER_NS;
}
