/* SPDX-License-Identifier: MIT */
/*
 * Datagrams that arrive: checks, and dispatch of their messages. Whatever does not belong to an
 * association's epoch is counted and dropped. Handlers read requests in the receive buffers, which
 * are posted again, in one chain, after the batch.
 */
#include <string.h>

#include "base/mutant.h"
#include "dgram/endpoint.h"

static void receive_message(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			    const uint8_t *payload)
{
	switch (msg->type) {
	case DGRAM_REQUEST:
		dgram_serve_request(peer, msg, payload);
		break;
	case DGRAM_ANSWER:
		dgram_call_answer(peer, msg, payload);
		break;
	case DGRAM_PIECE:
		dgram_large_piece(peer, msg, payload);
		break;
	case DGRAM_ACK:
		dgram_large_ack(peer, msg, payload);
		break;
	default:
		dgram_serve_cancel(peer, msg);
	}
}

/* The peer that has sent the datagram; NULL: none, and counted. */
static struct gn_dgram_peer *receive_peer(struct gn_dgram_endpoint *ep, const struct gn_wc *wc,
					  const struct dgram_head *head)
{
	struct gn_dgram_peer *peer = dgram_peer_find(ep, head->peer);

	if (unlikely(!peer)) {
		/* The association may be new: its task was posted before this datagram was sent. */
		link_loop_run_tasks(&ep->loop);
		peer = dgram_peer_find(ep, head->peer);
	}
	if (unlikely(!peer)) {
		ep_count(ep, unknown_peer);
		return NULL;
	}
	if (unlikely(head->epoch != peer->epoch) && !mutant("dgram-epoch", MUTANT_ALWAYS)) {
		ep_count(ep, wrong_epoch);
		return NULL;
	}
	if (unlikely(wc->src_qpn != peer->qpn) && !mutant("dgram-epoch", MUTANT_ALWAYS)) {
		ep_count(ep, unknown_peer);
		return NULL;
	}
	return peer;
}

/* What the flags of the head say; after the messages. */
static void receive_flags(struct gn_dgram_peer *peer, const struct dgram_head *head)
{
	struct dgram_session *session = peer->session;

	if (head->flags & DGRAM_IDLE) {
		if (dgram_before(peer->floor, head->done) && !dgram_before(peer->grant, head->done))
			peer->floor = head->done;
		if (peer->floor == head->done && session)
			dgram_peer_free_slots(peer, false);
	}
	if (unlikely(head->flags & DGRAM_GONE))
		dgram_peer_ended(peer);
	else if (head->flags & DGRAM_ECHO)
		dgram_send_head(peer, 0);
	/* Other datagrams may have been sent before ours arrived. */
	if (session && session->idle_sent && !session->used && !session->n_waiting &&
	    head->floor == peer->done)
		peer->idle = true;
	if (peer->idle)
		dgram_peer_rest(peer);
}

static void receive_datagram(struct gn_dgram_endpoint *ep, const struct gn_wc *wc,
			     const uint8_t *bytes, uint32_t len)
{
	uint32_t at = sizeof(struct dgram_head);
	struct gn_dgram_peer *peer;
	struct dgram_head head;
	struct dgram_msg msg;

	ep_count(ep, received);
	if (unlikely(dgram_head_check(bytes, len, &head))) {
		ep_count(ep, malformed);
		return;
	}
	peer = receive_peer(ep, wc, &head);
	if (unlikely(!peer))
		return;
	peer->heard_ns = ep->now_ns;
	if (unlikely(!peer->ah))
		dgram_peer_ah_from(peer, wc, bytes - GN_GRH_BYTES);
	if (unlikely(!peer->confirmed)) {
		peer->confirmed = true;
		__atomic_store_n(&peer->assoc->confirmed, true, __ATOMIC_RELAXED);
	}
	dgram_credit_received(peer, &head);
	for (uint32_t i = 0; i < head.count; i++) {
		const uint8_t *payload = bytes + at + sizeof(msg);

		if (unlikely(dgram_msg_check(bytes, len, &at, &msg))) {
			ep_count(ep, malformed);
			break;
		}
		receive_message(peer, &msg, payload);
	}
	if (unlikely(head.flags || peer->idle || (peer->session && peer->session->idle_sent)))
		receive_flags(peer, &head);
	if (peer->session && peer->session->n_waiting)
		dgram_call_start(peer);
}

void dgram_receive_one(struct gn_dgram_endpoint *ep, const struct gn_wc *wc)
{
	uint32_t len;
	const uint8_t *bytes = port_received(&ep->port, wc, &len);

	if (unlikely(!bytes))
		counter_add(&ep->stats.malformed, !ep->port.broken); /* not what is flushed */
	else
		receive_datagram(ep, wc, bytes, len);
	if (likely(!ep->port.broken))
		port_repost(&ep->port, wc);
}

/* Calls the prefetch functions of the batch's requests. */
static void receive_prefetch(struct gn_dgram_endpoint *ep, const struct gn_wc *wc, int n)
{
	const struct gn_dgram_node *node = ep->node;

	for (int i = 0; i < n; i++) {
		uint32_t len, at = sizeof(struct dgram_head);
		const uint8_t *bytes = port_received(&ep->port, &wc[i], &len);
		struct dgram_head head;
		struct dgram_msg msg;

		if (!bytes || dgram_head_check(bytes, len, &head))
			continue;
		for (uint32_t k = 0; k < head.count; k++) {
			const uint8_t *payload = bytes + at + sizeof(msg);
			const struct dgram_method *method;

			if (dgram_msg_check(bytes, len, &at, &msg))
				break;
			if (msg.type != DGRAM_REQUEST || msg.code >= GN_DGRAM_METHODS_MAX)
				continue;
			method = &node->methods[msg.code];
			if (method->prefetch)
				method->prefetch(method->arg, payload, msg.bytes);
		}
	}
}

void dgram_receive(struct gn_dgram_endpoint *ep)
{
	struct gn_wc wc[DGRAM_RECV_BATCH];
	const int n = gn_cq_poll(ep->loop.cq, wc, DGRAM_RECV_BATCH);

	dgram_ep_refresh(ep);
	if (unlikely(n < 0))
		ep->port.broken = true; /* completions were lost */
	if (n <= 0)
		return;
	for (int i = 0; i < n; i++)
		__builtin_prefetch(ep->port.recv_base + (size_t)wc[i].id * ep->port.recv_stride +
				   GN_GRH_BYTES);
	if (ep->node->any_prefetch && !(ep->flags & GN_DGRAM_NO_PREFETCH))
		receive_prefetch(ep, wc, n);
	for (int i = 0; i < n; i++)
		dgram_receive_one(ep, &wc[i]);
}
