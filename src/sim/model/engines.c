/* SPDX-License-Identifier: MIT */
/*
 * The card's transmit and receive engines for connected qps. Each packet occupies an engine for a
 * time that depends on its kind. One unit, a station of its own, fetches contexts, translations and
 * requests that are not cached, from the packet's arrival on. Packets pass in order: one that waits
 * for a fetch delays those behind it, whose own fetches proceed meanwhile.
 */
#include "sim/model/engines.h"

#define SHARE_BITS 32u

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

uint64_t sim_pages_count(struct sim_device *device, const struct sim_message *m,
			 bool (*look)(struct sim_device *device, uint64_t key, void *arg),
			 void *arg)
{
	const uint64_t covers = device->profile->translation_bytes;
	uint64_t n = 0;

	for (unsigned i = 0; covers && i < m->n_spans; i++) {
		const struct sim_span *span = &m->spans[i];
		uint64_t page = span->offset / covers, left;

		/* The offset is a peer's, and not checked yet: it may be any number. */
		left = span->bytes ? (span->offset % covers + span->bytes - 1) / covers + 1 : 0;
		for (; left > 0; left--, page++)
			n += look(device, sim_object_key(SIM_TRANSLATION, span->memory, page), arg);
	}
	return n;
}

struct fetches {
	uint64_t miss_ps, at_ps;
};

static bool cache_look_up_page(struct sim_device *device, uint64_t key, void *arg)
{
	struct fetches *f = arg;

	return cache_look_up(device, key, 1, f->miss_ps, &f->at_ps);
}

static uint64_t cache_look_up_pages(struct sim_device *device, const struct sim_message *m,
				    uint64_t miss_ps, uint64_t *at_ps)
{
	struct fetches f = {.miss_ps = miss_ps, .at_ps = *at_ps};
	const uint64_t misses = sim_pages_count(device, m, cache_look_up_page, &f);

	*at_ps = f.at_ps;
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

/* The share of lines in use that has no slot. */
static uint64_t evicted_share(uint64_t lines, uint64_t slots)
{
	return slots && lines > slots ? ((lines - slots) << SHARE_BITS) / lines : 0;
}

/*
 * With more lines of requests outstanding than the card has slots for, of all qps or of one, the
 * share without a slot is fetched again. A list of buffers is walked line by line: each further
 * line is asked for when the one before it has been used, so memory's latency is paid each time.
 */
uint64_t sim_refetch_ps(struct sim_device *device, const struct sim_message *m)
{
	const struct sim_profile *p = device->profile;
	const uint64_t share = sim_later(evicted_share(device->wqes, p->wqe_slots),
					 evicted_share(m->qp_lines, p->wqe_qp_slots));

	if (!share || !m->lines)
		return 0;
	device->wqe_debt += share;
	if (device->wqe_debt >> SHARE_BITS == 0)
		return 0;
	device->wqe_debt -= 1ull << SHARE_BITS;
	device->wqe_misses++;
	return (m->read ? p->wqe_miss_ps : p->wqe_miss_write_ps) + (m->lines - 1) * p->dma_read_ps;
}

/* At the requester: the response finds its request. */
static void cache_look_up_request(struct sim_device *device, const struct sim_message *m,
				  uint64_t miss_ps, uint64_t *at_ps)
{
	const uint64_t again_ps = sim_refetch_ps(device, m);

	cache_look_up(device, sim_object_key(SIM_REQUESTER, m->qpn, 0),
		      device->profile->requester_units, miss_ps, at_ps);
	if (again_ps)
		*at_ps = sim_station_pass(&device->icm, *at_ps, again_ps);
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
