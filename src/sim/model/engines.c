/* SPDX-License-Identifier: MIT */
/*
 * The card's transmit and receive engines for connected qps. Each packet occupies an engine for a
 * time that depends on its kind. One unit, a station of its own, fetches contexts, translations and
 * requests that are not cached, from the packet's arrival on. Packets pass in order: one that waits
 * for a fetch delays those behind it, whose own fetches proceed meanwhile.
 */
#include "sim/model/engines.h"

#define PAGES_MAX 16u /* pages of one message that are looked up: enough to tell small from large */

uint64_t sim_object_key(enum sim_object object, uint64_t id, uint64_t page)
{
	return (uint64_t)object << 62 | (id & UINT32_MAX) << 28 | (page & 0xfffffffu);
}

/* Looks up an object; a fetch, if needed, ends at *at_ps. True: it was needed. */
static bool cache_look_up(struct sim_device *device, uint64_t key, uint64_t units, uint64_t miss_ps,
			  uint64_t *at_ps)
{
	if (sim_cache_touch(&device->cache, key, (uint32_t)units)) {
		device->hits++;
		return false;
	}
	device->misses++;
	*at_ps = sim_station_pass(&device->icm, *at_ps, miss_ps);
	return true;
}

bool sim_pages(const struct sim_device *device, const struct sim_message *m, uint64_t *first,
	       uint64_t *n)
{
	const uint64_t covers = device->profile->translation_bytes;

	if (!m->memory || !m->bytes || !covers)
		return false;
	*first = m->offset / covers;
	*n = (m->offset + m->bytes - 1) / covers - *first + 1;
	if (*n > PAGES_MAX)
		*n = PAGES_MAX;
	return true;
}

static unsigned cache_look_up_pages(struct sim_device *device, const struct sim_message *m,
				    uint64_t miss_ps, uint64_t *at_ps)
{
	unsigned misses = 0;
	uint64_t page, n;

	if (!sim_pages(device, m, &page, &n))
		return 0;
	for (; n > 0; n--, page++)
		misses += cache_look_up(device, sim_object_key(SIM_TRANSLATION, m->memory, page), 1,
					miss_ps, at_ps);
	return misses;
}

uint64_t sim_packets(const struct sim_device *device, uint64_t bytes)
{
	const uint64_t mtu = device->profile->mtu;

	return bytes > mtu ? (bytes + mtu - 1) / mtu : 1;
}

uint64_t sim_tx(struct sim_device *device, const struct sim_message *m)
{
	const struct sim_profile *p = device->profile;
	uint64_t fetched = device->engine->now_ps, service;

	if (p->stalls)
		return sim_stall_tx(device, m);
	switch (m->packet) {
	case SIM_REQUEST: {
		const uint64_t miss_ps = m->read ? p->miss_ps : p->miss_write_ps;

		device->requests++;
		cache_look_up(device, sim_object_key(SIM_REQUESTER, m->qpn, 0), p->requester_units,
			      miss_ps, &fetched);
		cache_look_up_pages(device, m, miss_ps, &fetched);
		service = sim_jitter(device, p->tx_request_ps) *
			  (m->read ? 1 : sim_packets(device, m->bytes));
		break;
	}
	case SIM_READ_RESPONSE:
		service = p->tx_response_ps * sim_packets(device, m->bytes);
		break;
	default:
		service = p->tx_ack_ps;
		break;
	}
	return sim_station_pass(&device->tx, fetched, service);
}

/*
 * With more requests in flight than the card has slots for, the share without a slot is fetched
 * again when the response arrives.
 */
bool sim_request_gone(struct sim_device *device)
{
	const uint64_t slots = device->profile->wqe_slots;

	if (!slots || device->wqes <= slots)
		return false;
	device->wqe_debt += device->wqes - slots;
	if (device->wqe_debt < device->wqes)
		return false;
	device->wqe_debt -= device->wqes;
	device->wqe_misses++;
	return true;
}

/* At the requester: the response finds its request. */
static void cache_look_up_request(struct sim_device *device, const struct sim_message *m,
				  uint64_t miss_ps, uint64_t *at_ps)
{
	const struct sim_profile *p = device->profile;

	cache_look_up(device, sim_object_key(SIM_REQUESTER, m->qpn, 0), p->requester_units, miss_ps,
		      at_ps);
	if (sim_request_gone(device))
		*at_ps = sim_station_pass(&device->icm, *at_ps, p->wqe_miss_ps);
	cache_look_up_pages(device, m, miss_ps, at_ps);
}

uint64_t sim_rx(struct sim_device *device, const struct sim_message *m, uint64_t *stall_ps)
{
	const struct sim_profile *p = device->profile;
	uint64_t fetched = device->engine->now_ps, service;

	*stall_ps = 0;
	if (p->stalls)
		return sim_stall_rx(device, m, stall_ps);
	switch (m->packet) {
	case SIM_REQUEST:
		device->inbound++;
		device->inbound_misses +=
			cache_look_up(device, sim_object_key(SIM_RESPONDER, m->qpn, 0),
				      p->responder_units, p->miss_inbound_ps, &fetched);
		device->inbound_misses +=
			cache_look_up_pages(device, m, p->miss_inbound_ps, &fetched);
		service = p->rx_request_ps * (m->read ? 1 : sim_packets(device, m->bytes)) +
			  (m->receive ? p->rx_receive_ps : 0);
		break;
	case SIM_READ_RESPONSE:
		cache_look_up_request(device, m, p->miss_ps, &fetched);
		service = p->rx_response_ps * sim_packets(device, m->bytes);
		break;
	default:
		cache_look_up_request(device, m, p->miss_write_ps, &fetched);
		service = p->rx_ack_ps;
		break;
	}
	return sim_station_pass(&device->rx, fetched, service);
}

uint64_t sim_atomic_unit(struct sim_device *device, uint64_t at_ps, uint64_t region_bytes)
{
	const struct sim_profile *p = device->profile;
	uint64_t ps = p->atomic_ps;

	/* The share of the region that does not fit the CPU's cache. */
	if (region_bytes > p->cpu_cache_bytes && p->atomic_dram_ps != ps) {
		const uint64_t draw = sim_random_next(&device->engine->random) >> 24; /* 40 bits */

		if ((unsigned __int128)draw * region_bytes > (unsigned __int128)p->cpu_cache_bytes
								     << 40)
			ps = p->atomic_dram_ps;
	}
	return sim_station_pass(&device->atomic, at_ps, ps);
}
