/* SPDX-License-Identifier: MIT */
/* An endpoint of a connection: its rings, its qp, sending and receiving. */
#include "msg/endpoint.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"

#define INLINE_MAX 92u		/* as in RF-RPC 3.2; longer inline sends cost more CPU time */
#define WAKEUP_ID  (1ull << 32) /* wr_id of sends and receives that carry no message */
#define SLEEPING   (1ull << 32) /* in a sleep word, together with the awaited sequence number */
enum {
	PEER_SLEEP_WORD,
	OWN_SLEEP_WORD,
	N_SLEEP_WORDS
};			 /* written by the peer, and the source of our WRITE to the peer */
#define SIGNAL_EVERY 16u /* at most; bounds how many completions a lost one hides */

/* ---- creation ---- */

static const struct {
	enum msg_verb request, answer;
} verbs[GN_MSG_PROTOCOLS] = {
	[GN_MSG_SEND_SEND] = {MSG_SEND, MSG_SEND},
	[GN_MSG_SEND_WRITE] = {MSG_SEND, MSG_WRITE},
	[GN_MSG_WRITE_SEND] = {MSG_WRITE, MSG_SEND},
	[GN_MSG_WRITE_WRITE] = {MSG_WRITE, MSG_WRITE},
	[GN_MSG_READ] = {MSG_NONE, MSG_READ},
	[GN_MSG_WRITE_IMM] = {MSG_WRITE_IMM, MSG_WRITE_IMM},
	[GN_MSG_UD] = {MSG_DATAGRAM, MSG_DATAGRAM},
};

static int ring_create(struct msg_ep *ep, struct msg_ring *ring, unsigned access)
{
	size_t bytes;
	int rc;

	if (ring->verb == MSG_NONE)
		return 0;
	ring->lengths = gn_alloc(ep->pending * sizeof(*ring->lengths), 0);
	if (!ring->lengths)
		return -ENOMEM;
	if (ring->verb == MSG_DATAGRAM)
		ring->frame = MSG_DATAGRAM_FRAME;
	else if (ring->verb != MSG_WRITE)
		ring->frame = MSG_PLAIN;
	ring->stride = msg_slot_stride(ring->frame, ring->max);
	bytes = (size_t)ring->stride * ring->n_bufs;
	rc = msg_poller_reserve_bytes(ep->poller, bytes);
	if (rc)
		return rc;
	ring->bytes = bytes;
	rc = gn_mem_alloc(ep->poller->loop.fabric, bytes, access & GN_REMOTE_WRITE, &ring->mem);
	if (!rc)
		rc = gn_mr_register(ep->pd, ring->mem, 0, bytes, access, &ring->mr);
	if (rc)
		return rc;
	ring->slots = gn_mem_addr(ring->mem);
	ring->lkey = gn_mr_lkey(ring->mr);
	return 0;
}

uint32_t msg_ring_rkey(const struct msg_ring *ring)
{
	struct gn_remote remote = {0};

	if (ring->mr)
		gn_mr_remote(ring->mr, &remote);
	return remote.key;
}

static unsigned ep_rx_access(const struct msg_ring *ring)
{
	const bool written = ring->verb == MSG_WRITE || ring->verb == MSG_WRITE_IMM;

	return GN_LOCAL_WRITE | (written ? GN_REMOTE_WRITE : 0);
}

static bool ep_uses_recvs(const struct msg_ep *ep)
{
	return ep->rx.verb == MSG_SEND || ep->rx.verb == MSG_WRITE_IMM;
}

/*
 * The peer idles until a chain is posted. If one chain held all pending messages, the two sides
 * would take turns, so a chain holds a quarter. READs need no peer: their chains may be longer.
 */
static uint32_t ep_max_chain(const struct msg_ep *ep)
{
	const uint32_t part = ep->pending < 4 ? 1 : ep->pending / 4;

	if (ep->poller->flags & GN_MSG_PAPER)
		return 1;
	return ep->rx.verb == MSG_READ || part > MSG_CHAIN ? MSG_CHAIN : part;
}

/*
 * The send queue holds all pending messages and the completed ones that are not known to be
 * complete yet: an unsignaled WR is known to be complete when a later signaled one is.
 */
static void ep_size_send_queue(struct msg_ep *ep, bool requester)
{
	const struct msg_poller *poller = ep->poller;

	ep->signal_every = ep->pending / 2 < SIGNAL_EVERY ? ep->pending / 2 : SIGNAL_EVERY;
	if (!ep->signal_every || ep->rx.verb == MSG_READ || (poller->flags & GN_MSG_PAPER))
		ep->signal_every = 1;
	ep->chain_max = ep_max_chain(ep);
	ep->depth = ep->pending + 2 * ep->signal_every;
	if (ep->depth > poller->loop.attr.max_send_wr - LINK_PROBE_SENDS - MSG_WAKEUPS)
		ep->depth = poller->loop.attr.max_send_wr - LINK_PROBE_SENDS - MSG_WAKEUPS;
	ep->tx.n_bufs = ep->depth;
	ep->rx.n_bufs = ep->pending;
	if (ep->tx.verb == MSG_DATAGRAM) {
		ep->tx.n_bufs = ep->pending;
		if (requester) /* a slot is not reused before its send completes */
			ep->signal_every = 1;
	}
	/* The RC qp of a UD connection only detects disconnects. */
	if (ep->tx.verb == MSG_DATAGRAM || ep->rx.verb == MSG_NONE)
		ep->depth = 1;
}

uint32_t msg_ep_max_recvs(const struct msg_ep *ep)
{
	return ep_uses_recvs(ep) ? ep->pending : MSG_WAKEUPS;
}

static int ep_create_qp(struct msg_ep *ep)
{
	const struct gn_attr *attr = &ep->poller->loop.attr;
	struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.max_send_wr = ep->depth + MSG_WAKEUPS,
		.max_recv_wr = msg_ep_max_recvs(ep),
		.max_inline = attr->max_inline < INLINE_MAX ? attr->max_inline : INLINE_MAX,
	};

	if (opts.max_recv_wr > attr->max_recv_wr)
		return gn_fail(-EINVAL, "msg: pending %u: %s has at most %u receives", ep->pending,
			       attr->provider, attr->max_recv_wr);
	return link_conn_create_qp(&ep->link, ep->pd, &opts);
}

static void ep_init_rings(struct msg_ep *ep, const struct msg_ep_opts *opts)
{
	const enum msg_verb request = verbs[opts->protocol].request;
	const enum msg_verb answer = verbs[opts->protocol].answer;

	ep->tx = (struct msg_ring){.verb = opts->requester ? request : answer,
				   .frame = opts->tx_frame,
				   .max = opts->tx_max};
	ep->rx = (struct msg_ring){.verb = opts->requester ? answer : request,
				   .frame = opts->rx_frame,
				   .max = opts->rx_max};
	/* One of the two sides gets its messages by WRITEs, which raise no event. */
	if (request == MSG_WRITE || answer == MSG_WRITE)
		ep->sleep_ring = (struct msg_ring){
			.verb = MSG_WRITE_IMM, .max = sizeof(uint64_t), .n_bufs = N_SLEEP_WORDS};
	/* A responder whose data is READ sends nothing. */
	if (!opts->requester && answer == MSG_READ)
		ep->tx.verb = MSG_NONE;
	/* A responder always has receives posted; a requester posts one with each request. */
	if (!opts->requester && ep_uses_recvs(ep))
		ep->rx.n_recvs_due = opts->pending;
	/* Slots are zeroed at first: no slot holds a message with sequence number 1. */
	ep->tx.seq = ep->rx.seq = 1;
}

int msg_ep_create(struct msg_poller *poller, const struct msg_ep_opts *opts, struct msg_ep **out)
{
	const int index = msg_poller_free_index(poller);
	struct msg_ep *ep;
	int rc;

	if (index < 0)
		return index;
	ep = gn_alloc(sizeof(*ep), MSG_CACHE_LINE);
	if (!ep)
		return -ENOMEM;
	link_conn_init(&poller->loop, &ep->link);
	ep->poller = poller;
	ep->index = (unsigned)index;
	ep->pending = opts->pending;
	ep->nonce = opts->nonce;
	ep_init_rings(ep, opts);
	ep_size_send_queue(ep, opts->requester);
	/* The datagram qp sends from memory of its own pd. No peer has rights to that pd. */
	rc = opts->protocol == GN_MSG_UD ? msg_ud_pd(poller, &ep->pd) :
					   gn_pd_create(poller->loop.ctx, &ep->pd);
	if (!rc && opts->protocol == GN_MSG_UD) {
		ep->sends = msg_ud_alloc_slot_sends(opts->pending);
		rc = ep->sends ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = ring_create(ep, &ep->tx, GN_LOCAL_WRITE);
	if (!rc)
		rc = ring_create(ep, &ep->rx, ep_rx_access(&ep->rx));
	if (!rc)
		rc = ring_create(ep, &ep->sleep_ring, GN_LOCAL_WRITE | GN_REMOTE_WRITE);
	if (!rc)
		rc = ep_create_qp(ep);
	for (unsigned i = 0; i < MSG_WAKEUPS && !rc && ep->rx.verb == MSG_WRITE; i++)
		rc = gn_post_recv(ep->link.qp, &(struct gn_recv_wr){.id = WAKEUP_ID}, NULL);
	if (rc) {
		msg_ep_close(ep);
		return rc;
	}
	poller->eps[index] = ep;
	poller->n_eps++;
	*out = ep;
	return 0;
}

static bool ring_destroy(struct msg_poller *poller, struct msg_ring *ring)
{
	if (gn_mr_deregister_try(ring->mr) == -EAGAIN)
		return false;
	ring->mr = NULL;
	gn_mem_free(ring->mem);
	ring->mem = NULL;
	msg_poller_release_bytes(poller, ring->bytes);
	ring->bytes = 0;
	gn_free(ring->lengths);
	ring->lengths = NULL;
	return true;
}

bool msg_ep_destroy(struct msg_ep *ep)
{
	if (gn_mr_deregister_try(ep->data) == -EAGAIN)
		return false;
	ep->data = NULL;
	if (!ring_destroy(ep->poller, &ep->tx) || !ring_destroy(ep->poller, &ep->rx) ||
	    !ring_destroy(ep->poller, &ep->sleep_ring))
		return false;
	if (ep->tx.verb != MSG_DATAGRAM)
		gn_pd_destroy(ep->pd);
	gn_free(ep->sends);
	gn_free(ep);
	return true;
}

void msg_ep_close(struct msg_ep *ep)
{
	struct msg_poller *poller = ep->poller;

	if (poller->eps[ep->index] == ep) {
		poller->eps[ep->index] = NULL;
		poller->n_eps--;
	}
	msg_ud_remove_peer(ep);
	link_conn_close(&ep->link);
	link_conns_sweep(&poller->loop);
}

void msg_ep_fail(struct msg_ep *ep, enum gn_msg_status status)
{
	if (ep->status != GN_MSG_OK)
		return;
	ep->status = status;
	ep->n_chain = 0;
	ep->rx.n_recvs_due = 0;
	gn_qp_error(ep->link.qp);
}

/* ---- sending ---- */

static force_inline uint32_t ep_next_slot(const struct msg_ep *ep, uint32_t at)
{
	return at + 1 == ep->pending ? 0 : at + 1;
}

static struct gn_wr *ep_chain_add(struct msg_ep *ep, void *addr, uint32_t len, uint32_t lkey,
				  uint32_t *flags)
{
	const uint32_t i = ep->n_chain++;

	ep->sge[i] = (struct gn_sge){addr, len, lkey};
	*flags = len <= INLINE_MAX && len <= ep->poller->loop.attr.max_inline ? GN_INLINE : 0;
	if (++ep->n_unsignaled >= ep->signal_every) {
		ep->n_unsignaled = 0;
		*flags |= GN_SIGNALED;
	}
	return &ep->chain[i];
}

void msg_ep_send(struct msg_ep *ep, uint32_t length)
{
	struct msg_ring *ring = &ep->tx;
	const uint32_t len = length & ~MSG_REFUSED, i = ep->n_chain;
	const uint32_t bytes = msg_frame_bytes(ring->frame, len);
	uint8_t *slot = msg_slot(ring, ring->buf);
	struct gn_wr *wr;
	uint32_t flags;

	if (ep->status != GN_MSG_OK)
		return;
	msg_frame_put(ring->frame, slot, ring->seq, ep->nonce, length);
	wr = ep_chain_add(ep, slot, bytes, ring->lkey, &flags);
	if (ring->verb == MSG_SEND) {
		gn_wr_send(wr, ep->queued, &ep->sge[i], flags);
		if (unlikely(length & MSG_REFUSED)) {
			wr->op = GN_OP_SEND_IMM;
			wr->imm = 1;
		}
	} else {
		gn_wr_rdma(wr, ring->verb == MSG_WRITE ? GN_OP_WRITE : GN_OP_WRITE_IMM, ep->queued,
			   &ep->sge[i], &ep->to, (uint64_t)ring->at * ring->stride, flags);
		wr->imm = length;
	}
	if (!bytes)
		wr->n_sge = 0;
	ep->queued++;
	ring->seq++;
	ring->at = ep_next_slot(ep, ring->at);
	ring->buf = ring->buf + 1 == ring->n_bufs ? 0 : ring->buf + 1;
	if (ep->n_chain >= ep->chain_max)
		msg_ep_flush(ep);
}

void msg_ep_read(struct msg_ep *ep, uint64_t offset, uint32_t len)
{
	struct msg_ring *ring = &ep->rx;
	const uint32_t i = ep->n_chain, at = ring->recv_slot;
	struct gn_wr *wr;
	uint32_t flags;

	ring->lengths[at] = len;
	wr = ep_chain_add(ep, msg_slot(ring, at), len, ring->lkey, &flags);
	gn_wr_rdma(wr, GN_OP_READ, ep->queued++, &ep->sge[i], &ep->to, offset, GN_SIGNALED);
	ring->recv_slot = ep_next_slot(ep, at);
	if (ep->n_chain >= ep->chain_max)
		msg_ep_flush(ep);
}

void msg_ep_need_recv(struct msg_ep *ep)
{
	ep->rx.n_recvs_due++;
}

static void ep_flush_receives(struct msg_ep *ep)
{
	struct msg_ring *ring = &ep->rx;
	const uint32_t most = ep->poller->flags & GN_MSG_PAPER ? 1 : MSG_CHAIN;
	struct gn_recv_wr wrs[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];

	while (ring->n_recvs_due) {
		const uint32_t n = ring->n_recvs_due < most ? ring->n_recvs_due : most;

		for (uint32_t i = 0; i < n; i++) {
			sge[i] = (struct gn_sge){msg_slot(ring, ring->recv_slot), ring->max,
						 ring->lkey};
			/* A WRITE_IMM carries its own destination; its receive has no buffer. */
			wrs[i] = (struct gn_recv_wr){
				.sge = &sge[i],
				.n_sge = ring->verb == MSG_SEND && ring->max ? 1 : 0,
				.next = i + 1 < n ? &wrs[i + 1] : NULL,
			};
			ring->recv_slot = ep_next_slot(ep, ring->recv_slot);
		}
		ring->n_recvs_due -= n;
		if (gn_post_recv(ep->link.qp, wrs, NULL)) {
			msg_ep_fail(ep, GN_MSG_GONE);
			return;
		}
		ep->poller->stats.recvs += n;
	}
}

void msg_ep_flush(struct msg_ep *ep)
{
	const struct gn_wr *bad = NULL;
	uint32_t n = ep->n_chain, posted = n;
	int rc;

	/* The receive for an answer must be posted before the request. */
	if (ep->rx.n_recvs_due)
		ep_flush_receives(ep);
	if (!n || ep->status != GN_MSG_OK)
		return;
	for (uint32_t i = 0; i + 1 < n; i++)
		ep->chain[i].next = &ep->chain[i + 1];
	ep->n_chain = 0;
	rc = gn_post_send(ep->link.qp, ep->chain, &bad);
	if (unlikely(rc)) {
		/* By our own count the queue has space: the qp has failed. */
		posted = bad ? (uint32_t)(bad - ep->chain) : 0;
		msg_ep_fail(ep, GN_MSG_GONE);
	}
	ep->poller->stats.wrs += posted;
	ep->poller->stats.doorbells += posted != 0;
	if (ep->tx.verb == MSG_WRITE)
		msg_ep_wake_peer(ep);
}

/* ---- wake-ups of a sleeping peer ---- */

static uint64_t *ep_sleep_word(const struct msg_ep *ep, uint32_t which)
{
	return (uint64_t *)(void *)msg_slot(&ep->sleep_ring, which);
}

/* False: nothing was posted. */
static bool ep_post_wakeup(struct msg_ep *ep, struct gn_wr *wr)
{
	int rc;

	if (ep->n_wakeups == MSG_WAKEUPS || ep->status != GN_MSG_OK || ep->link.state != LINK_UP)
		return false;
	rc = gn_post_one(ep->link.qp, wr);
	if (rc < 0)
		return false;
	ep->n_wakeups += !rc;
	return true;
}

void msg_ep_announce_sleep(struct msg_ep *ep)
{
	uint64_t *word = ep_sleep_word(ep, OWN_SLEEP_WORD);
	const struct gn_sge sge = {word, sizeof(*word), ep->sleep_ring.lkey};
	struct gn_wr wr;

	if (ep->rx.verb != MSG_WRITE || ep->sleep_seq == ep->rx.seq || ep->n_wakeups)
		return;
	*word = SLEEPING | ep->rx.seq;
	gn_wr_rdma(&wr, GN_OP_WRITE, WAKEUP_ID, &sge, &(struct gn_remote){.key = ep->sleep_key},
		   PEER_SLEEP_WORD * (uint64_t)ep->sleep_ring.stride, GN_SIGNALED);
	if (ep_post_wakeup(ep, &wr))
		ep->sleep_seq = ep->rx.seq;
}

void msg_ep_wake_peer(struct msg_ep *ep)
{
	const uint64_t word = __atomic_load_n(ep_sleep_word(ep, PEER_SLEEP_WORD), __ATOMIC_RELAXED);
	struct gn_wr wr;

	if (likely(word == ep->wake_answered) || (int32_t)(ep->tx.seq - (uint32_t)word) <= 0)
		return;
	gn_wr_init(&wr, GN_OP_WRITE_IMM, WAKEUP_ID, NULL, 0, GN_SIGNALED | GN_SOLICITED);
	if (ep_post_wakeup(ep, &wr))
		ep->wake_answered = word;
}

/* ---- receiving ---- */

static void ep_arrived(struct msg_ep *ep, uint32_t length)
{
	struct msg_ring *ring = &ep->rx;

	if ((length & ~MSG_REFUSED) > ring->max || ring->n_arrived == ep->pending) {
		msg_ep_fail(ep, GN_MSG_BROKEN);
		return;
	}
	ring->lengths[ring->arrived_slot] = length;
	ring->arrived_slot = ep_next_slot(ep, ring->arrived_slot);
	ring->n_arrived++;
}

void msg_ep_completed(struct msg_ep *ep, const struct gn_wc *wc)
{
	if (unlikely(wc->id == WAKEUP_ID)) { /* its only purpose was to wake this thread */
		if (wc->op != GN_OP_RECV_WRITE_IMM && wc->op != GN_OP_RECV)
			ep->n_wakeups--;
		else if (gn_post_recv(ep->link.qp, &(struct gn_recv_wr){.id = WAKEUP_ID}, NULL))
			msg_ep_fail(ep, GN_MSG_GONE);
		return;
	}
	switch (wc->op) {
	case GN_OP_RECV:
		ep_arrived(ep, wc->len_bytes | (wc->flags & GN_WC_IMM ? MSG_REFUSED : 0));
		break;
	case GN_OP_RECV_WRITE_IMM:
		ep_arrived(ep, wc->imm);
		break;
	case GN_OP_READ:
		ep_arrived(ep, ep->rx.lengths[ep->rx.arrived_slot]);
		ep->done = (uint32_t)wc->id + 1;
		break;
	default:
		ep->done = (uint32_t)wc->id + 1;
		break;
	}
}

int64_t msg_ep_peek(struct msg_ep *ep, uint8_t **bytes)
{
	struct msg_ring *ring = &ep->rx;
	uint8_t *slot = msg_slot(ring, ring->at);
	int64_t length;

	if (unlikely(ep->status == GN_MSG_BROKEN || ep->rx_ended))
		return -EAGAIN;
	*bytes = slot + msg_frame_head(ring->frame);
	if (ring->verb != MSG_WRITE)
		return ring->n_arrived ? (int64_t)ring->lengths[ring->at] : -EAGAIN;
	length = msg_frame_peek(ring->frame, slot, ring->seq, ep->nonce, ring->max);
	if (unlikely(length == -EPROTO)) {
		msg_ep_fail(ep, GN_MSG_BROKEN);
		return -EAGAIN;
	}
	ep->poller->stats.looks += length < 0;
	return length;
}

void msg_ep_consume(struct msg_ep *ep, uint32_t length)
{
	struct msg_ring *ring = &ep->rx;

	ep->link.active = true;
	if (unlikely(ep->link.state == LINK_OPENING)) /* the ESTABLISHED event may have been lost */
		link_conn_established(&ep->link);
	if (ring->verb == MSG_WRITE) {
		ring->lengths[ring->at] = length;
		gn_charge(GN_WORK_FOUND, 1);
	} else {
		ring->n_arrived--;
	}
	ring->seq++;
	ring->at = ep_next_slot(ep, ring->at);
}

void msg_ep_clear_slot(struct msg_ep *ep, uint32_t at)
{
	const struct msg_ring *ring = &ep->rx;
	uint32_t bytes;

	if (ring->frame != MSG_MARKERS || mutant("msg-zero", ring->seq))
		return;
	bytes = msg_frame_bytes(MSG_MARKERS, ring->lengths[at] & ~MSG_REFUSED);
	memset(msg_slot(ring, at), 0, bytes);
	gn_charge(GN_WORK_COPY, bytes);
}

const uint64_t *msg_ep_poll_word(const struct msg_ep *ep)
{
	const struct msg_ring *ring = &ep->rx;

	return ring->verb == MSG_WRITE ? (const uint64_t *)(const void *)msg_slot(ring, ring->at) :
					 NULL;
}
