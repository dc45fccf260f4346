/* SPDX-License-Identifier: MIT */
/*
 * A node's link to the switch; each direction is a station. Messages cut through: the head travels
 * on while the tail is still being sent, and the receiving link is busy for the same time,
 * concurrently unless others interleave. A message is not split into packets, but has their
 * headers.
 */
#include "sim/model/model.h"

/* Bytes with a header per packet; an empty message is one packet, too. */
static uint64_t link_wire_bytes(const struct sim_profile *p, uint64_t bytes, uint64_t *packets)
{
	*packets = bytes > p->mtu ? (bytes + p->mtu - 1) / p->mtu : 1;
	return bytes + *packets * p->header_bytes;
}

static uint64_t link_service_ps(const struct sim_device *device, uint64_t bytes)
{
	const uint32_t factor = sim_slow_factor(&device->slow, device->engine->now_ps);

	return (uint64_t)((unsigned __int128)sim_rate_ps(device->profile->link, bytes) * factor /
			  SIM_FACTOR_ONE);
}

uint64_t sim_link_send(struct sim_device *device, uint64_t at_ps, uint64_t bytes)
{
	uint64_t packets;
	const uint64_t all = link_wire_bytes(device->profile, bytes, &packets);
	const uint64_t ps = link_service_ps(device, all);

	device->packets_out += packets;
	device->bytes_out += all;
	return sim_station_pass(&device->link_out, at_ps, ps) - ps + device->profile->wire_ps;
}

uint64_t sim_link_receive(struct sim_device *device, uint64_t bytes)
{
	uint64_t packets;
	const uint64_t all = link_wire_bytes(device->profile, bytes, &packets);

	device->packets_in += packets;
	device->bytes_in += all;
	return sim_station_pass(&device->link_in, device->engine->now_ps,
				link_service_ps(device, all));
}
