/* SPDX-License-Identifier: MIT */
/*
 * UD traffic of a poller: one qp and one set of receives for all connections. This file finds a
 * datagram's endpoint; requester and responder interpret the payload.
 *
 * Any host on the network can send to the qp, so no datagram may harm it. The qkey is random and
 * known to accepted peers only, and each receive is large enough for the longest datagram. Sends
 * have their own completion queue, polled only when a buffer is needed again. If the qp fails
 * nevertheless, it is reset in place and the connections stay up: datagrams in flight are lost, and
 * requesters retransmit them.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "msg/endpoint.h"

#define INLINE_MAX	  92u
#define SIGNAL_EVERY	  16u
#define UNSIGNALED_MAX	  (2 * SIGNAL_EVERY) /* send queue slack for completed unsignaled sends */
#define QKEY_MASK	  0x7fffffffu	     /* the highest bit marks privileged qkeys */
#define MTU_MAX		  4096u		     /* of any port: the sender's may be larger than ours */
#define RESETS_MAX	  8u		     /* in a row, without a valid datagram in between */
#define RESET_INTERVAL_NS 10000000u	     /* a reset posts all receives again */

struct msg_ud {
	struct gn_pd *pd;
	struct gn_cq *send_cq;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint32_t receives, stride;
	uint32_t overflow_bytes; /* tail of the longest datagram, shared by all receives */
	size_t bytes;
	uint64_t queued, done, last_signaled; /* sends; last_signaled: sequence + 1 */
	uint32_t depth, n_unsignaled, signal_every;
	uint32_t n_chain, n_repost;
	struct gn_wr chain[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];
	uint32_t repost[MSG_CHAIN]; /* receives to post again */
	bool broken;
	uint32_t resets;
	uint64_t reset_ns;		/* earliest time of the next reset */
	struct msg_peer *closing_peers; /* their sends may be in flight */
};

/*
 * UD address of a connection's peer. After its endpoint is closed it stays on closing_peers, with
 * the send buffers, until its last send is complete.
 */
struct msg_peer {
	struct gn_ah *ah;
	uint32_t qpn, qkey, conn;
	/*
	 * sequence of the last send + 1; starts at ud->done, so that it compares well after a long
	 * idle time
	 */
	uint64_t last;
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

/* ---- receives ---- */

static void ud_post_receives(struct msg_ud *ud, const uint32_t *which, uint32_t n,
			     struct gn_msg_stats *stats)
{
	struct gn_recv_wr wrs[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN][2];
	uint8_t *base = gn_mem_addr(ud->mem);
	const uint32_t lkey = gn_mr_lkey(ud->mr);

	for (uint32_t i = 0; i < n; i++) {
		sge[i][0] = (struct gn_sge){base + (size_t)which[i] * ud->stride, ud->stride, lkey};
		sge[i][1] = (struct gn_sge){base + (size_t)ud->receives * ud->stride,
					    ud->overflow_bytes, lkey};
		wrs[i] = (struct gn_recv_wr){.id = which[i],
					     .sge = sge[i],
					     .n_sge = ud->overflow_bytes ? 2 : 1,
					     .next = i + 1 < n ? &wrs[i + 1] : NULL};
	}
	if (n && gn_post_recv(ud->qp, wrs, NULL))
		ud->broken = true;
	stats->recvs += n;
}

static int ud_post_all_receives(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;

	for (uint32_t i = 0; i < ud->receives && !ud->broken;) {
		uint32_t which[MSG_CHAIN], n = 0;

		while (n < MSG_CHAIN && i < ud->receives)
			which[n++] = i++;
		ud_post_receives(ud, which, n, &poller->stats);
	}
	return ud->broken ? -EIO : 0;
}

/* ---- creation ---- */

static int ud_create_qp(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = ud->send_cq,
		.recv_cq = poller->loop.cq,
		.max_send_wr = ud->depth,
		.max_recv_wr = ud->receives,
		.max_recv_sge = ud->overflow_bytes ? 2 : 1,
		.max_inline = poller->loop.attr.max_inline < INLINE_MAX ?
				      poller->loop.attr.max_inline :
				      INLINE_MAX,
		.qkey = (uint32_t)gn_random() & QKEY_MASK,
	};
	const int rc = gn_qp_create(ud->pd, &opts, &ud->qp);

	return rc ? rc : ud_post_all_receives(poller);
}

/*
 * A datagram longer than any message continues in memory that all receives share and nothing reads:
 * no receive is too short, and a receive costs no more than its message.
 */
static void ud_size_receives(struct msg_poller *poller, uint32_t bytes)
{
	struct msg_ud *ud = poller->ud;
	const uint32_t mtu = poller->loop.attr.ud_mtu > MTU_MAX ? poller->loop.attr.ud_mtu :
								  MTU_MAX;
	const uint32_t longest = GN_GRH_BYTES + mtu;

	ud->stride = GN_GRH_BYTES + (uint32_t)sizeof(struct msg_datagram) + bytes;
	if (poller->loop.attr.max_sge < 2)
		ud->stride = longest;
	ud->stride = (ud->stride + MSG_CACHE_LINE - 1) / MSG_CACHE_LINE * MSG_CACHE_LINE;
	ud->overflow_bytes = ud->stride < longest ? longest - ud->stride : 0;
}

static int ud_create(struct msg_poller *poller, uint32_t bytes)
{
	struct msg_ud *ud = poller->ud;
	size_t all;
	int rc = gn_pd_create(poller->loop.ctx, &ud->pd);

	ud_size_receives(poller, bytes);
	all = (size_t)ud->stride * ud->receives + ud->overflow_bytes;
	if (!rc)
		rc = msg_poller_reserve_bytes(poller, all);
	if (!rc)
		ud->bytes = all;
	if (!rc)
		rc = gn_mem_alloc(poller->loop.fabric, all, 0, &ud->mem);
	if (!rc)
		rc = gn_mr_register(ud->pd, ud->mem, 0, all, GN_LOCAL_WRITE, &ud->mr);
	if (!rc)
		rc = gn_cq_create(
			poller->loop.ctx,
			&(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts), .depth = ud->depth},
			&ud->send_cq);
	return rc ? rc : ud_create_qp(poller);
}

/* ---- peers ---- */

static void ud_free_closing_peers(struct msg_poller *poller, bool all)
{
	struct msg_ud *ud = poller->ud;
	struct msg_peer **at = &ud->closing_peers;

	while (*at) {
		struct msg_peer *peer = *at;

		if (!all && ud->done < peer->last) {
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
	*peer = (struct msg_peer){
		.qpn = addr->qpn, .qkey = addr->qkey, .conn = conn, .last = ud->done};
	/* The peer chooses only the qpn and qkey; the path comes from the RC connection. */
	rc = gn_ah_create_peer(ud->qp, ep->link.qp, addr, &peer->ah);
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

/* Replaces a qp that cannot be reset. Its connections have failed. */
static int ud_replace_qp(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;
	int rc;

	for (unsigned i = 0; i < poller->max_eps; i++)
		if (poller->eps[i])
			msg_ud_remove_peer(poller->eps[i]);
	if (ud->qp)
		gn_qp_error(ud->qp);
	ud_free_closing_peers(poller, true);
	gn_qp_destroy(ud->qp);
	ud->qp = NULL;
	ud->queued = ud->done = ud->last_signaled = ud->n_unsignaled = ud->n_chain = ud->n_repost =
		0;
	ud->broken = false;
	ud->resets = 0;
	rc = ud_create_qp(poller);
	ud->broken |= rc != 0;
	return rc;
}

static void ud_fail_endpoints(struct msg_poller *poller)
{
	for (unsigned i = 0; i < poller->max_eps; i++)
		if (poller->eps[i] && poller->eps[i]->peer)
			msg_ep_fail(poller->eps[i], GN_MSG_GONE);
}

int msg_ud_open(struct msg_poller *poller, uint32_t receives, uint32_t sends, uint32_t bytes)
{
	/* The RC qp of each UD connection needs completions, too. */
	const uint32_t beside = 2 * poller->max_eps;
	const uint32_t half = poller->loop.cq_free > beside ? (poller->loop.cq_free - beside) / 2 :
							      0;
	int rc;

	if (poller->ud)
		return poller->ud->broken && poller->ud->resets >= RESETS_MAX ?
			       ud_replace_qp(poller) :
			       0;
	if (!(poller->loop.attr.caps & GN_CAP_UD))
		return -EOPNOTSUPP;
	poller->ud = gn_alloc(sizeof(*poller->ud), MSG_CACHE_LINE);
	if (!poller->ud)
		return -ENOMEM;
	poller->ud->signal_every = poller->flags & GN_MSG_PAPER ? 1 : SIGNAL_EVERY;
	poller->ud->receives = min_u32(min_u32(receives, poller->loop.attr.max_recv_wr), half);
	poller->ud->depth = min_u32(min_u32(sends + UNSIGNALED_MAX, poller->loop.attr.max_send_wr),
				    poller->loop.attr.max_cqe);
	if (poller->ud->receives < 1 || poller->ud->depth < UNSIGNALED_MAX)
		rc = gn_fail(-ENOSPC,
			     "msg: the cq has no space for datagrams beside %u connections",
			     poller->max_eps);
	else
		rc = ud_create(poller, bytes);
	if (rc)
		msg_ud_close(poller);
	else
		poller->loop.cq_free -= poller->ud->receives;
	return rc;
}

void msg_ud_close(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;

	if (!ud)
		return;
	if (ud->qp)
		gn_qp_error(ud->qp); /* ends all sends in flight */
	ud_free_closing_peers(poller, true);
	gn_qp_destroy(ud->qp);
	gn_cq_destroy(ud->send_cq);
	gn_mr_deregister(ud->mr);
	gn_mem_free(ud->mem);
	msg_poller_release_bytes(poller, ud->bytes);
	gn_pd_destroy(ud->pd);
	link_timer_set(&poller->loop.timers, &poller->ud_reset, GN_FOREVER);
	gn_free(ud);
	poller->ud = NULL;
}

int msg_ud_pd(const struct msg_poller *poller, struct gn_pd **out)
{
	if (!poller->ud)
		return -EOPNOTSUPP;
	*out = poller->ud->pd;
	return 0;
}

int msg_ud_addr(struct msg_poller *poller, struct gn_ud_addr *out)
{
	return gn_qp_ud_addr(poller->ud->qp, out);
}

/* ---- sending ---- */

void msg_ud_flush(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;
	const struct gn_wr *bad = NULL;
	uint32_t n;

	if (!ud || ud->broken)
		return;
	ud_post_receives(ud, ud->repost, ud->n_repost, &poller->stats);
	ud->n_repost = 0;
	n = ud->n_chain;
	for (uint32_t i = 0; i + 1 < n; i++)
		ud->chain[i].next = &ud->chain[i + 1];
	ud->n_chain = 0;
	if (n && gn_post_send(ud->qp, ud->chain, &bad)) {
		n = bad ? (uint32_t)(bad - ud->chain) : 0;
		ud->broken = true;
	}
	poller->stats.wrs += n;
	poller->stats.doorbells += n != 0;
}

static void ud_poll_sends(struct msg_ud *ud)
{
	struct gn_wc wc[SIGNAL_EVERY];
	int n = (int)SIGNAL_EVERY;

	for (uint32_t polled = 0; polled < ud->depth && n == (int)SIGNAL_EVERY;
	     polled += SIGNAL_EVERY) {
		n = gn_cq_poll(ud->send_cq, wc, (int)SIGNAL_EVERY);
		for (int i = 0; i < n; i++)
			if (likely(wc[i].status == GN_WC_OK))
				ud->done = wc[i].id + 1;
			else
				ud->broken = true;
	}
	ud->broken |= n < 0;
}

struct msg_slot_sends *msg_ud_alloc_slot_sends(uint32_t slots)
{
	return gn_alloc(slots * sizeof(struct msg_slot_sends), 0);
}

bool msg_ud_writable(struct msg_ep *ep, uint32_t at)
{
	struct msg_ud *ud = ep->poller->ud;
	const struct msg_slot_sends *sends = &ep->sends[at];
	const uint64_t posted = ud->queued - ud->n_chain;

	if (mutant("msg-ud-reuse", MUTANT_ALWAYS))
		return true;
	/*
	 * A chained send was not read yet, not even an inline one. And the signaled send that
	 * covers this slot must have been posted.
	 */
	if (unlikely(sends->last > posted) ||
	    (sends->read > ud->done && ud->last_signaled > posted))
		msg_ud_flush(ep->poller);
	if (sends->read > ud->done)
		ud_poll_sends(ud);
	return sends->read <= ud->done;
}

bool msg_ud_will_complete(const struct msg_ep *ep, uint32_t at)
{
	return ep->sends[at].read <= ep->poller->ud->last_signaled;
}

/*
 * A send that the device reads from memory must complete before its slot is reused, so these are
 * signaled more often: by a requester always; by a responder at least twice per pass over its
 * slots. A retransmission is always signaled, because it is likely the last send for some time.
 */
static bool ud_needs_signal(const struct msg_ep *ep, bool inlined, bool again)
{
	const struct msg_ud *ud = ep->poller->ud;

	return ud->n_unsignaled >= ud->signal_every || again ||
	       (!inlined && ud->n_unsignaled >= ep->signal_every);
}

/*
 * The attempt travels as immediate data: the buffer of a retransmission may be in use by the
 * device.
 */
static void wr_set_attempt(struct gn_wr *wr, uint32_t attempt)
{
	if (likely(!attempt))
		return;
	wr->op = GN_OP_SEND_IMM;
	wr->imm = attempt;
}

int msg_ud_send(struct msg_ep *ep, uint32_t at, uint32_t seq, uint32_t length, uint32_t attempt,
		bool again)
{
	struct msg_ud *ud = ep->poller->ud;
	struct msg_peer *peer = ep->peer;
	struct msg_datagram head = {
		.slot = (uint16_t)at, .nonce = ep->nonce, .seq = seq, .length = length};
	const uint32_t bytes = (uint32_t)sizeof(head) + (length & ~MSG_REFUSED), i = ud->n_chain;
	const bool inlined = bytes <= INLINE_MAX && bytes <= ep->poller->loop.attr.max_inline;
	uint8_t *slot = msg_slot(&ep->tx, at);
	uint32_t flags = inlined ? GN_INLINE : 0;

	if (!peer)
		return -EAGAIN;
	head.conn = (uint16_t)peer->conn;
	if (!again) /* the buffer of a retransmission is complete, and the device may read it */
		memcpy(slot, &head, sizeof(head));
	if (unlikely(ud->queued - ud->done >= ud->depth))
		ud_poll_sends(ud);
	if (ud->broken || ud->queued - ud->done >= ud->depth)
		return -EAGAIN;
	ud->n_unsignaled++;
	if (ud_needs_signal(ep, inlined, again)) {
		ud->n_unsignaled = 0;
		ud->last_signaled = ud->queued + 1;
		flags |= GN_SIGNALED;
	}
	ud->sge[i] = (struct gn_sge){slot, bytes, ep->tx.lkey};
	gn_wr_ud(&ud->chain[i], ud->queued++, &ud->sge[i], peer->ah, peer->qpn, peer->qkey, flags);
	wr_set_attempt(&ud->chain[i], attempt);
	ud->n_chain++;
	peer->last = ud->queued;
	ep->sends[at].last = ud->queued;
	if (!inlined)
		ep->sends[at].read = ud->queued;
	if (ud->n_chain == MSG_CHAIN || (ep->poller->flags & GN_MSG_PAPER))
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

static void ud_repost_receive(struct msg_poller *poller, uint32_t which)
{
	struct msg_ud *ud = poller->ud;

	ud->repost[ud->n_repost++] = which;
	if (ud->n_repost == MSG_CHAIN)
		msg_ud_flush(poller);
}

static void ud_received(struct msg_poller *poller, const struct gn_wc *wc)
{
	struct msg_ud *ud = poller->ud;
	const uint32_t which = (uint32_t)wc->id;
	const uint8_t *data =
		(uint8_t *)gn_mem_addr(ud->mem) + (size_t)which * ud->stride + GN_GRH_BYTES;
	struct msg_datagram head;
	struct msg_ep *ep = NULL;

	if (wc->len_bytes >= GN_GRH_BYTES &&
	    !msg_datagram_check(data, wc->len_bytes - GN_GRH_BYTES, &head))
		ep = ud_find_endpoint(poller, wc, &head);
	if (ep) {
		ud->resets = 0;
		poller->datagram(ep, &head, wc->flags & GN_WC_IMM ? wc->imm : 0,
				 data + sizeof(head));
	} else {
		poller->stats.strays++;
	}
	ud_repost_receive(poller, which);
}

/* Either one receive failed (a foreign datagram did not fit), or the whole qp did. */
static void ud_receive_failed(struct msg_poller *poller, const struct gn_wc *wc)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (wc->status != GN_WC_FLUSHED && !gn_qp_query(poller->ud->qp, &attr) &&
	    attr.state == GN_QP_READY) {
		poller->stats.strays++;
		ud_repost_receive(poller, (uint32_t)wc->id);
	} else {
		poller->ud->broken = true;
	}
}

void msg_ud_completed(struct msg_poller *poller, const struct gn_wc *wc)
{
	struct msg_ud *ud = poller->ud;

	/* The qp will be reset: nothing can be posted until then. */
	if (!ud || ud->broken)
		return;
	if (likely(wc->status == GN_WC_OK))
		ud_received(poller, wc);
	else
		ud_receive_failed(poller, wc);
}

/* ---- maintenance ---- */

/* Timer: resets the failed qp. */
void msg_ud_reset(struct link_timer *timer, uint64_t now_ns)
{
	struct msg_poller *poller = container_of(timer, struct msg_poller, ud_reset);
	struct msg_ud *ud = poller->ud;

	if (!ud->broken)
		return;
	ud->reset_ns = now_ns + RESET_INTERVAL_NS;
	if (++ud->resets >= RESETS_MAX || gn_qp_reset(ud->qp)) {
		gn_fail_log(0, "msg: cannot reset the datagram qp; its connections fail");
		ud->resets = RESETS_MAX;
		ud_fail_endpoints(poller);
		return;
	}
	poller->stats.resets++;
	/* Nothing is in flight after a reset. Chained sends were not posted and are lost, too. */
	ud->done = ud->last_signaled = ud->queued;
	ud->n_unsignaled = ud->n_chain = ud->n_repost = 0;
	ud->broken = false;
	ud_free_closing_peers(poller, false);
	ud_post_all_receives(poller);
}

void msg_ud_maintain(struct msg_poller *poller)
{
	struct msg_ud *ud = poller->ud;

	if (!ud)
		return;
	if (unlikely(ud->closing_peers)) {
		ud_poll_sends(ud);
		ud_free_closing_peers(poller, false);
	}
	if (likely(!ud->broken) || ud->resets >= RESETS_MAX ||
	    poller->ud_reset.due_ns != GN_FOREVER)
		return;
	link_timer_set(&poller->loop.timers, &poller->ud_reset, ud->reset_ns);
	link_loop_force_maintain(&poller->loop);
}
