/* SPDX-License-Identifier: MIT */
/*
 * Datagrams to peers: messages are added to the peer's open datagram, which is closed when it is
 * full or when the endpoint flushes. The head is filled when it is closed, so it carries the newest
 * counters.
 */
#include <string.h>

#include "dgram/endpoint.h"

static void send_close(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const struct dgram_session *session = peer->session;
	const uint32_t waiting = session ? session->n_waiting : 0;
	/* In place: a copy of a struct just written would wait for its stores. */
	struct dgram_head *head = (struct dgram_head *)(void *)port_buffer(&ep->port, peer->open);

	dgram_credit_grant(peer);
	dgram_ep_post_receives(ep);
	head->version = DGRAM_VERSION;
	head->flags = peer->open_flags;
	head->count = peer->open_count;
	head->want = 0;
	if (unlikely(peer->next_number == peer->granted))
		head->want = (uint8_t)min_u32(waiting, DGRAM_WANT_MAX);
	head->peer = peer->head_peer;
	head->epoch = peer->epoch;
	head->granted = peer->grant;
	head->done = peer->done;
	head->returned = peer->returned;
	head->floor = peer->floor;
	counter_add(&ep->stats.messages, peer->open_count);
	peer->ah_sends =
		port_send(&ep->port, peer->open, peer->open_len, peer->ah, peer->qpn, peer->qkey);
	peer->open = PORT_NO_BUFFER;
	peer->open_len = 0;
	peer->open_count = peer->open_flags = peer->open_less = 0;
}

static int send_open(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;

	if (unlikely(!peer->ah) && dgram_peer_ah(peer))
		return -1;
	if (unlikely(port_take(&ep->port, &peer->open))) {
		peer->open = PORT_NO_BUFFER;
		return -1;
	}
	peer->open_len = sizeof(struct dgram_head);
	if (!peer->flushing) {
		peer->flushing = true;
		peer->next_to_flush = ep->flush_list;
		ep->flush_list = peer;
	}
	return 0;
}

/* Closes a datagram before the endpoint flushes: it is full, or messages are not coalesced. */
static void send_separately(struct gn_dgram_peer *peer, uint8_t type)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const unsigned flag = type == DGRAM_ANSWER ? GN_DGRAM_NO_ANSWER_BATCH : GN_DGRAM_NO_BATCH;
	const uint32_t less = peer->open_less ? peer->open_less + (uint32_t)peer->open_count : 0;

	send_close(peer);
	if (less >= DGRAM_MSGS_MAX || ep->flags & flag)
		port_flush_sends(&ep->port);
	else
		peer->open_less = (uint8_t)less;
}

void dgram_send_early(struct gn_dgram_peer *peer)
{
	peer->open_less = DGRAM_MSGS_MAX - DGRAM_EARLY_MSGS;
}

int dgram_send_make_room(struct gn_dgram_peer *peer, uint8_t type)
{
	if (unlikely(!peer->assoc))
		return -1;
	/* With GN_DGRAM_NO_COALESCE the last message was written after it was added. */
	if (peer->open != PORT_NO_BUFFER)
		send_separately(peer, type);
	return send_open(peer);
}

void dgram_send_head(struct gn_dgram_peer *peer, uint8_t flags)
{
	if (!peer->assoc || (peer->open == PORT_NO_BUFFER && send_open(peer)))
		return;
	peer->open_flags |= flags;
}

void dgram_send_now(struct gn_dgram_peer *peer)
{
	if (peer->open != PORT_NO_BUFFER)
		send_close(peer);
}

void dgram_send_discard(struct gn_dgram_peer *peer)
{
	if (peer->open == PORT_NO_BUFFER)
		return;
	port_give_back(&peer->ep->port, peer->open);
	peer->open = PORT_NO_BUFFER;
	peer->open_len = 0;
	peer->open_count = peer->open_flags = 0;
}

void dgram_send_flush(struct gn_dgram_endpoint *ep)
{
	const unsigned apart = GN_DGRAM_NO_BATCH | GN_DGRAM_NO_ANSWER_BATCH;

	while (ep->flush_list) {
		struct gn_dgram_peer *peer = ep->flush_list;

		ep->flush_list = peer->next_to_flush;
		peer->flushing = false;
		if (peer->open == PORT_NO_BUFFER) {
			dgram_peer_release(peer);
			continue;
		}
		send_close(peer);
		if (unlikely(ep->flags & apart))
			port_flush_sends(&ep->port);
	}
	port_flush_sends(&ep->port);
}
