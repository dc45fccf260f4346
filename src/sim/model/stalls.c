/* SPDX-License-Identifier: MIT */
/*
 * The engines of a card that stalls where others continue. What a READ needs and is not cached is
 * fetched while both directions of the memory path stand still. WRITEs and SENDs do not stall it:
 * the doorbell unit fetches what they need, one after the other.
 *
 * Qps with packets to send are visited in turn. A visit has a cost, and all packets of the qp that
 * are ready by then leave with it. There is no explicit queue here; packets that arrive before the
 * first one of a visit has left belong to that visit.
 */
#include "sim/model/engines.h"

/* An inbound READ: its qp, its list of READs, its memory; its qp again, for the response. */
#define READ_FETCHES 4u

/* Occupies the doorbell unit for ps. */
static uint64_t icm_fetch(struct sim_device *device, uint64_t at_ps, uint64_t ps)
{
	return ps ? sim_station_pass(&device->icm, at_ps, ps) : at_ps;
}

/* True: the card must fetch it. */
static bool set_look_up(struct sim_device *device, struct sim_set *set, uint64_t key,
			uint64_t units)
{
	const bool gone = sim_set_gone(set, key, (uint32_t)units);

	device->hits += !gone;
	device->misses += gone;
	return gone;
}

static bool context_gone(struct sim_device *device, const struct sim_message *m, bool asks)
{
	const struct sim_profile *p = device->profile;

	if (!asks)
		return set_look_up(device, &device->contexts,
				   sim_object_key(SIM_RESPONDER, m->qpn, 0), p->responder_units);
	return set_look_up(device, &device->contexts, sim_object_key(SIM_REQUESTER, m->qpn, 0),
			   m->read ? p->reader_units : p->requester_units);
}

static bool page_gone(struct sim_device *device, uint64_t key, void *set)
{
	return set_look_up(device, set, key, 1);
}

/* The pages of a message whose translations must be fetched. */
static uint64_t pages_gone(struct sim_device *device, struct sim_set *set,
			   const struct sim_message *m)
{
	return sim_pages_count(device, m, page_gone, set);
}

bool sim_is_cold(struct sim_device *device, uint32_t qpn)
{
	return device->profile->stalls &&
	       context_gone(device, &(struct sim_message){.qpn = qpn}, true);
}

uint64_t sim_gather_ps(struct sim_device *device, const struct sim_message *m)
{
	const struct sim_profile *p = device->profile;

	if (!p->stalls)
		return 0;
	return pages_gone(device, &device->gather, m) * p->miss_inbound_ps +
	       sim_refetch_ps(device, m);
}

/* The first translation of a READ's buffer is waited for, the others come from the same table. */
static uint64_t scatter_ps(struct sim_device *device, const struct sim_message *m)
{
	const struct sim_profile *p = device->profile;
	const uint64_t n = pages_gone(device, &device->scatter, m);

	return n ? p->miss_ps + (n - 1) * p->miss_inbound_ps : 0;
}

uint64_t sim_stall_tx(struct sim_device *device, const struct sim_message *m)
{
	const struct sim_profile *p = device->profile;
	uint64_t from = device->engine->now_ps, service;

	switch (m->packet) {
	case SIM_REQUEST:
		device->requests++;
		service = sim_jitter(device, p->tx_request_ps);
		if (m->read) {
			/* Its requests were cached with the context, and evicted with it. */
			if (context_gone(device, m, true))
				from = sim_dma_stall(device, from, (1u + m->more) * p->miss_ps);
			break;
		}
		service = service * sim_packets(device, m->bytes) +
			  (m->cold && m->visit ? p->visit_send_ps : 0);
		break;
	case SIM_READ_RESPONSE:
		service = p->tx_response_ps * sim_packets(device, m->bytes) +
			  (m->visit ? p->visit_ps : 0);
		break;
	default:
		service = p->tx_ack_ps;
		break;
	}
	return sim_station_pass(&device->tx, from, service);
}

/* A request of a peer. */
static uint64_t take_request(struct sim_device *device, const struct sim_message *m,
			     uint64_t *stall_ps)
{
	const struct sim_profile *p = device->profile;
	const uint64_t n = m->read ? 1 : sim_packets(device, m->bytes);
	const bool gone = context_gone(device, m, false);
	const uint64_t pages = pages_gone(device, &device->gather, m);
	uint64_t from = device->engine->now_ps, service = p->rx_request_ps * n;

	device->inbound++;
	device->inbound_misses += gone + pages;
	if (m->read)
		*stall_ps = gone ? READ_FETCHES * p->miss_ps : pages * p->miss_inbound_ps;
	if (m->receive) {
		service += p->rx_receive_ps;
		/* Later packets find it evicted again, on their way to memory. */
		from = icm_fetch(device, from, gone ? p->miss_receive_ps : 0);
		*stall_ps = gone ? (n - 1) * p->miss_receive_ps : 0;
	}
	return sim_station_pass(&device->rx, from, service);
}

uint64_t sim_stall_rx(struct sim_device *device, const struct sim_message *m, uint64_t *stall_ps)
{
	const struct sim_profile *p = device->profile;
	const uint64_t now = device->engine->now_ps;

	switch (m->packet) {
	case SIM_REQUEST:
		return take_request(device, m, stall_ps);
	case SIM_READ_RESPONSE:
		*stall_ps = (context_gone(device, m, true) ? p->miss_ps : 0) +
			    scatter_ps(device, m) + sim_refetch_ps(device, m);
		return sim_station_pass(&device->rx, now,
					p->rx_response_ps * sim_packets(device, m->bytes));
	default:
		context_gone(device, m, true);
		return sim_station_pass(&device->rx, now, p->rx_ack_ps);
	}
}
