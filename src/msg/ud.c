/* SPDX-License-Identifier: MIT */
/*
 * UD traffic of a poller: one port (dgram/port.h) for all connections. This file keeps the peers'
 * addresses, finds a datagram's endpoint, and knows which slots' buffers the device still reads;
 * requester and responder interpret the payload.
 *
 * If the qp fails, the port resets it, and the connections stay up: datagrams in flight are lost,
 * and requesters retransmit them. If it fails again and again, the connections end.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "dgram/port.h"
#include "msg/endpoint.h"

#define INLINE_MAX     92u /* as the connections' own qps */
#define SIGNAL_EVERY   16u
#define UNSIGNALED_MAX (2 * SIGNAL_EVERY) /* send queue slack for completed unsignaled sends */
#define RESETS_MAX     8u		  /* in a row, without a valid datagram in between */

struct msg_ud {
	struct dgram_port port;
	size_t bytes;
	uint32_t resets;
	struct msg_peer *closing_peers; /* their sends may be in flight */
};

/*
 * UD address of a connection's peer. After its endpoint is closed it stays on closing_peers, with
 * the send buffers, until its last send is complete.
 */
struct msg_peer {
	struct gn_ah *ah;
	uint32_t qpn, qkey, conn;
	uint64_t last; /* sequence number of the last send + 1 */
	struct gn_mem *mem;
	struct gn_mr *mr;
	size_t bytes;
	struct msg_peer *next;
};

/*
 * Sends posted from a slot: sequence + 1 of the last send, and of the last one that the device
 * reads from the buffer (not inline).
 */
struct msg_slot_sends {
	uint64_t last, read;
};

uint32_t msg_ud_max(const struct gn_attr *attr)
{
	const uint32_t head = sizeof(struct msg_datagram);

	return attr->ud_mtu > head ? attr->ud_mtu - head : 0;
}

/* ---- creation ---- */

static int ud_open_port(struct msg_poller *poller, const struct port_opts *opts)
{
	struct msg_ud *ud = poller->ud;
	const size_t bytes = port_bytes(&poller->loop, opts);
	int rc = msg_poller_reserve_bytes(poller, bytes);

	if (rc)
		return rc;
	ud->bytes = bytes;
	rc = port_open(&ud->port, &poller->loop, opts);
	if (!rc)
		poller->loop.cq_free -= opts->receives;
	return rc;
}

int msg_ud_open(struct msg_poller *poller, uint32_t receives, uint32_t sends, uint32_t bytes)
{
	const struct gn_attr *attr = &poller->loop.attr;
	/* The RC qp of each UD connection needs completions, too. */
	const uint32_t beside = 2 * poller->max_eps;
	const uint32_t half = poller->loop.cq_free > beside ? (poller->loop.cq_free - beside) / 2 :
							      0;
	const struct port_opts opts = {
		.datagram_bytes = (uint32_t)sizeof(struct msg_datagram) + bytes,
		.receives = min_u32(min_u32(receives, attr->max_recv_wr), half),
		.sends = sends + UNSIGNALED_MAX,
		.max_inline = INLINE_MAX,
		.chain = MSG_CHAIN,
		.signal_every = poller->flags & GN_MSG_PAPER ? 1 : SIGNAL_EVERY,
	};
	int rc;

	if (poller->ud) {
		/* For a new connection even a port that was given up is reset once more. */
		if (poller->ud->resets >= RESETS_MAX)
			poller->ud->resets = 0;
		return 0;
	}
	if (!(attr->caps & GN_CAP_UD))
		return -EOPNOTSUPP;
	if (!opts.receives)
		return gn_fail(-ENOSPC,
			       "msg: the cq has no space for datagrams beside %u connections",
			       poller->max_eps);
	poller->ud = gn_alloc(sizeof(*poller->ud), MSG_CACHE_LINE);
	if (!poller->ud)
		return -ENOMEM;
	rc = ud_open_port(poller, &opts);
	if (rc)
		msg_ud_close(poller);
	return rc;
}

int msg_ud_pd(const struct msg_poller *poller, struct gn_pd **out)
{
	if (!poller->ud)
		return -EOPNOTSUPP;
	*out = poller->ud->port.pd;
	return 0;
}

int msg_ud_addr(struct msg_poller *poller, struct gn_ud_addr *out)
{
	return gn_qp_ud_addr(poller->ud->port.qp, out);
}

void msg_ud_add_stats(const struct msg_poller *poller, struct gn_msg_stats *stats)
{
	const struct port_stats *port = poller->ud ? &poller->ud->port.stats : NULL;

	if (!port)
		return;
	stats->resets += port->resets;
	stats->wrs += port->sent;
	stats->doorbells += port->doorbells;
	stats->recvs += port->recvs;
}

/* ---- peers ---- */

static void ud_free_closing_peers(struct msg_poller *poller, bool all)
{
	struct msg_ud *ud = poller->ud;
	struct msg_peer **at = &ud->closing_peers;

	while (*at) {
		struct msg_peer *peer = *at;

		if (!all && !port_sent(&ud->port, peer->last)) {
			at = &peer->next;
			continue;
		}
		*at = peer->next;
		gn_ah_destroy(peer->ah);
		gn_mr_deregister(peer->mr);
		gn_mem_free(peer->mem);
		msg_poller_release_bytes(poller, peer->bytes);
		gn_free(peer);
	}
}

int msg_ud_add_peer(struct msg_ep *ep, const struct gn_ud_addr *addr, uint32_t conn)
{
	struct msg_ud *ud = ep->poller->ud;
	struct msg_peer *peer = gn_alloc(sizeof(*peer), 0);
	int rc;

	if (!peer)
		return -ENOMEM;
	*peer = (struct msg_peer){.qpn = addr->qpn, .qkey = addr->qkey, .conn = conn};
	/* The peer chooses only the qpn and qkey; the path comes from the RC connection. */
	rc = gn_ah_create_peer(ud->port.qp, ep->link.qp, addr, &peer->ah);
	if (rc)
		gn_free(peer);
	else
		ep->peer = peer;
	return rc;
}

void msg_ud_remove_peer(struct msg_ep *ep)
{
	struct msg_peer *peer = ep->peer;
	struct msg_ud *ud = ep->poller->ud;

	if (!peer)
		return;
	/* The chain may refer to the peer. */
	msg_ud_flush(ep->poller);
	ep->peer = NULL;
	peer->mem = ep->tx.mem;
	peer->mr = ep->tx.mr;
	peer->bytes = ep->tx.bytes;
	ep->tx.mem = NULL;
	ep->tx.mr = NULL;
	ep->tx.bytes = 0;
	peer->next = ud->closing_peers;
	ud->closing_peers = peer;
	ud_free_closing_peers(ep->poller, false);
}

void msg_ud_close(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;

	if (!ud)
		return;
	if (ud->port.qp)
		gn_qp_error(ud->port.qp); /* ends all sends in flight */
	ud_free_closing_peers(poller, true);
	port_close(&ud->port);
	msg_poller_release_bytes(poller, ud->bytes);
	link_timer_set(&poller->loop.timers, &poller->ud_reset, GN_FOREVER);
	gn_free(ud);
	poller->ud = NULL;
}

/* ---- sending ---- */

void msg_ud_flush(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;

	if (!ud)
		return;
	port_flush_receives(&ud->port);
	port_flush_sends(&ud->port);
}

struct msg_slot_sends *msg_ud_alloc_slot_sends(uint32_t slots)
{
	return gn_alloc(slots * sizeof(struct msg_slot_sends), 0);
}

bool msg_ud_writable(struct msg_ep *ep, uint32_t at)
{
	struct dgram_port *port = &ep->poller->ud->port;
	const struct msg_slot_sends *sends = &ep->sends[at];
	const uint64_t posted = port_posted(port);

	if (mutant("msg-ud-reuse", MUTANT_ALWAYS))
		return true;
	/*
	 * A chained send was not read yet, not even an inline one. And the signaled send that
	 * covers this slot must have been posted.
	 */
	if (unlikely(sends->last > posted) ||
	    (sends->read > port->completed && port_signaled(port) > posted))
		msg_ud_flush(ep->poller);
	return port_sent(port, sends->read);
}

bool msg_ud_will_complete(const struct msg_ep *ep, uint32_t at)
{
	return ep->sends[at].read <= port_signaled(&ep->poller->ud->port);
}

/*
 * A send that the device reads from memory must complete before its slot is reused, so these are
 * signaled more often: by a requester always; by a responder at least twice per pass over its
 * slots. A retransmission is always signaled, because it is likely the last send for some time. The
 * attempt travels as immediate data: the device may be reading the buffer of a retransmission.
 */
int msg_ud_send(struct msg_ep *ep, uint32_t at, uint32_t seq, uint32_t length, uint32_t attempt,
		bool again)
{
	struct dgram_port *port = &ep->poller->ud->port;
	struct msg_peer *peer = ep->peer;
	struct msg_datagram head = {
		.slot = (uint16_t)at, .nonce = ep->nonce, .seq = seq, .length = length};
	const uint32_t bytes = (uint32_t)sizeof(head) + (length & ~MSG_REFUSED);
	const bool inlined = port_inlines(port, bytes);
	struct port_datagram datagram = {
		.data = msg_slot(&ep->tx, at),
		.len = bytes,
		.lkey = ep->tx.lkey,
		.imm = attempt,
		.signal = again || (!inlined && port->unsignaled + 1 >= ep->signal_every)};

	if (!peer)
		return -EAGAIN;
	head.conn = (uint16_t)peer->conn;
	if (!again) /* the buffer of a retransmission is complete, and the device may read it */
		memcpy(datagram.data, &head, sizeof(head));
	datagram.ah = peer->ah;
	datagram.qpn = peer->qpn;
	datagram.qkey = peer->qkey;
	if (port_send_from(port, &datagram))
		return -EAGAIN;
	peer->last = ep->sends[at].last = port->queued;
	if (!inlined)
		ep->sends[at].read = port->queued;
	if (ep->poller->flags & GN_MSG_PAPER)
		msg_ud_flush(ep->poller);
	return 0;
}

/* ---- receiving ---- */

/* The endpoint that a datagram belongs to, after checking its sender; NULL. */
static struct msg_ep *ud_find_endpoint(struct msg_poller *poller, const struct gn_wc *wc,
				       const struct msg_datagram *head)
{
	struct msg_ep *ep = head->conn < poller->max_eps ? poller->eps[head->conn] : NULL;

	if (!ep || !ep->peer || ep->status != GN_MSG_OK || head->slot >= ep->pending)
		return NULL;
	if (wc->src_qpn != ep->peer->qpn)
		return NULL;
	return head->nonce == ep->nonce || mutant("msg-nonce", MUTANT_ALWAYS) ? ep : NULL;
}

void msg_ud_completed(struct msg_poller *poller, const struct gn_wc *wc)
{
	struct msg_ud *ud = poller->ud;
	struct msg_datagram head;
	struct msg_ep *ep = NULL;
	const uint8_t *data;
	uint32_t len;

	/* The qp will be reset: nothing can be posted until then. */
	if (!ud || ud->port.broken)
		return;
	data = port_received(&ud->port, wc, &len);
	if (ud->port.broken)
		return;
	if (data && !msg_datagram_check(data, len, &head))
		ep = ud_find_endpoint(poller, wc, &head);
	if (ep) {
		ud->resets = 0;
		poller->datagram(ep, &head, wc->flags & GN_WC_IMM ? wc->imm : 0,
				 data + sizeof(head));
	} else {
		poller->stats.strays++;
	}
	port_repost(&ud->port, wc);
}

/* ---- maintenance ---- */

static void ud_fail_endpoints(struct msg_poller *poller)
{
	for (unsigned i = 0; i < poller->max_eps; i++)
		if (poller->eps[i] && poller->eps[i]->peer)
			msg_ep_fail(poller->eps[i], GN_MSG_GONE);
}

/* Timer: resets the failed qp. */
void msg_ud_reset(struct link_timer *timer, uint64_t now_ns)
{
	struct msg_poller *poller = container_of(timer, struct msg_poller, ud_reset);
	struct msg_ud *ud = poller->ud;

	if (!ud->port.broken)
		return;
	if (++ud->resets < RESETS_MAX && port_maintain(&ud->port, now_ns)) {
		ud_free_closing_peers(poller, false);
		return;
	}
	gn_fail_log(0, "msg: cannot reset the datagram qp; its connections fail");
	ud->resets = RESETS_MAX;
	ud_fail_endpoints(poller);
}

void msg_ud_maintain(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;

	if (!ud)
		return;
	if (unlikely(ud->closing_peers))
		ud_free_closing_peers(poller, false);
	if (likely(!ud->port.broken) || ud->resets >= RESETS_MAX ||
	    poller->ud_reset.due_ns != GN_FOREVER)
		return;
	link_timer_set(&poller->loop.timers, &poller->ud_reset, ud->port.reset_ns);
	link_loop_force_maintain(&poller->loop);
}
