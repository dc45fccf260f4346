/* SPDX-License-Identifier: MIT */
/* The packet engine for datagrams: no connection state, so no cache misses. */
#include "sim/model/model.h"

uint64_t sim_tx_datagram(struct sim_device *device)
{
	device->requests++;
	return sim_station_pass(&device->tx, device->engine->now_ps,
				device->profile->tx_datagram_ps);
}

uint64_t sim_rx_datagram(struct sim_device *device)
{
	device->inbound++;
	return sim_station_pass(&device->rx, device->engine->now_ps,
				device->profile->rx_datagram_ps + device->profile->rx_receive_ps);
}
