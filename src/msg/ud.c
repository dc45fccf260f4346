/* SPDX-License-Identifier: MIT */
/*
 * Datagrams of a desk: one qp for all its connections, receives for all of them, and who a datagram
 * is from. What a datagram means is requester's and responder's business.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "msg/end.h"

#define INLINE_MAX   92u
#define SIGNAL_EVERY 16u
#define BESIDE	     (2 * SIGNAL_EVERY) /* sends that are done without having said so */
#define QKEY	     0x67736d67u

struct msg_ud {
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint32_t receives, stride;
	uint64_t queued, done;
	uint32_t depth, silent, signal_every;
	uint32_t n_chain, n_again;
	struct gn_wr chain[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];
	uint32_t again[MSG_CHAIN]; /* receives that are to be posted again */
	bool broken;
	struct msg_peer *dead; /* whose sends may still be under way */
};

/*
 * Where the other end of a connection gets its datagrams. When its end is freed it stays, with what
 * is sent from, until the last of its sends is done.
 */
struct msg_peer {
	struct gn_ah *ah;
	uint32_t qpn, qkey, conn;
	uint64_t last; /* send, and one; who is silent for long must not seem to be ahead */
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct msg_peer *next;
};

uint32_t msg_ud_max(const struct gn_attr *attr)
{
	const uint32_t head = sizeof(struct msg_datagram);

	return attr->ud_mtu > head ? attr->ud_mtu - head : 0;
}

/* ---- receives ---- */

static void post_receives(struct msg_ud *ud, const uint32_t *which, uint32_t n,
			  struct gn_msg_stats *stats)
{
	struct gn_recv_wr wrs[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];
	uint8_t *base = gn_mem_addr(ud->mem);

	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct gn_sge){base + (size_t)which[i] * ud->stride, ud->stride,
					 gn_mr_lkey(ud->mr)};
		wrs[i] = (struct gn_recv_wr){.id = which[i],
					     .sge = &sge[i],
					     .n_sge = 1,
					     .next = i + 1 < n ? &wrs[i + 1] : NULL};
	}
	if (n && gn_post_recv(ud->qp, wrs, NULL))
		ud->broken = true;
	stats->recvs += n;
}

static int post_all_receives(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;

	for (uint32_t i = 0; i < ud->receives && !ud->broken;) {
		uint32_t which[MSG_CHAIN], n = 0;

		while (n < MSG_CHAIN && i < ud->receives)
			which[n++] = i++;
		post_receives(ud, which, n, &desk->stats);
	}
	return ud->broken ? -EIO : 0;
}

/* ---- making ---- */

static int make_qp(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;
	const struct gn_qp_opts opts = {
		.type = GN_QP_UD,
		.send_cq = desk->cq,
		.recv_cq = desk->cq,
		.max_send_wr = ud->depth,
		.max_recv_wr = ud->receives,
		.max_inline = desk->attr.max_inline < INLINE_MAX ? desk->attr.max_inline :
								   INLINE_MAX,
		.qkey = QKEY,
	};
	const int rc = gn_qp_create(ud->pd, &opts, &ud->qp);

	return rc ? rc : post_all_receives(desk);
}

static int make(struct msg_desk *desk, uint32_t bytes)
{
	struct msg_ud *ud = desk->ud;
	size_t all;
	int rc = gn_pd_create(desk->ctx, &ud->pd);

	ud->stride = GN_GRH_BYTES + (uint32_t)sizeof(struct msg_datagram) + bytes;
	ud->stride = (ud->stride + MSG_LINE - 1) / MSG_LINE * MSG_LINE;
	all = (size_t)ud->stride * ud->receives;
	if (!rc)
		rc = gn_mem_alloc(desk->fabric, all, 0, &ud->mem);
	if (!rc)
		rc = gn_mr_register(ud->pd, ud->mem, 0, all, GN_LOCAL_WRITE, &ud->mr);
	return rc ? rc : make_qp(desk);
}

/* ---- peers ---- */

static void bury(struct msg_ud *ud, bool all)
{
	struct msg_peer **at = &ud->dead;

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
		gn_free(peer);
	}
}

int msg_ud_peer(struct msg_end *end, const struct gn_ud_addr *addr, uint32_t conn)
{
	struct msg_ud *ud = end->desk->ud;
	struct msg_peer *peer = gn_alloc(sizeof(*peer), 0);
	int rc;

	if (!peer)
		return -ENOMEM;
	*peer = (struct msg_peer){
		.qpn = addr->qpn, .qkey = addr->qkey, .conn = conn, .last = ud->done};
	rc = gn_ah_create(ud->qp, addr, &peer->ah);
	if (rc)
		gn_free(peer);
	else
		end->peer = peer;
	return rc;
}

void msg_ud_forget(struct msg_end *end)
{
	struct msg_peer *peer = end->peer;
	struct msg_ud *ud = end->desk->ud;

	if (!peer)
		return;
	/* What is on the chain may name it. */
	msg_ud_flush(end->desk);
	end->peer = NULL;
	peer->mem = end->said.mem;
	peer->mr = end->said.mr;
	end->said.mem = NULL;
	end->said.mr = NULL;
	peer->next = ud->dead;
	ud->dead = peer;
	bury(ud, false);
}

/* Another qp in place of one that is in error, with all that goes through it. */
static int mend(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;
	int rc;

	for (unsigned i = 0; i < desk->max_ends; i++)
		if (desk->ends[i])
			msg_ud_forget(desk->ends[i]);
	if (ud->qp)
		gn_qp_error(ud->qp);
	bury(ud, true);
	gn_qp_destroy(ud->qp);
	ud->qp = NULL;
	ud->queued = ud->done = ud->silent = ud->n_chain = ud->n_again = 0;
	ud->broken = false;
	rc = make_qp(desk);
	ud->broken |= rc != 0;
	return rc;
}

static void all_fail(struct msg_desk *desk)
{
	for (unsigned i = 0; i < desk->max_ends; i++)
		if (desk->ends[i] && desk->ends[i]->peer)
			msg_end_fail(desk->ends[i], GN_MSG_GONE);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int msg_ud_open(struct msg_desk *desk, uint32_t receives, uint32_t sends, uint32_t bytes)
{
	/* Each connection has a qp beside that says who is there, which needs completions too. */
	const uint32_t beside = 2 * desk->max_ends;
	const uint32_t half = desk->cq_room > beside ? (desk->cq_room - beside) / 2 : 0;
	int rc;

	if (desk->ud)
		return desk->ud->broken ? mend(desk) : 0;
	if (!(desk->attr.caps & GN_CAP_UD))
		return -EOPNOTSUPP;
	desk->ud = gn_alloc(sizeof(*desk->ud), MSG_LINE);
	if (!desk->ud)
		return -ENOMEM;
	desk->ud->signal_every = desk->flags & GN_MSG_PAPER ? 1 : SIGNAL_EVERY;
	desk->ud->receives = least(least(receives, desk->attr.max_recv_wr), half);
	desk->ud->depth = least(least(sends + BESIDE, desk->attr.max_send_wr), half);
	if (desk->ud->receives < 1 || desk->ud->depth < BESIDE)
		rc = -ENOSPC;
	else
		rc = make(desk, bytes);
	if (rc)
		msg_ud_close(desk);
	else
		desk->cq_room -= desk->ud->receives + desk->ud->depth;
	return rc;
}

void msg_ud_close(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;

	if (!ud)
		return;
	if (ud->qp)
		gn_qp_error(ud->qp); /* nothing is under way any more */
	bury(ud, true);
	gn_qp_destroy(ud->qp);
	gn_mr_deregister(ud->mr);
	gn_mem_free(ud->mem);
	gn_pd_destroy(ud->pd);
	gn_free(ud);
	desk->ud = NULL;
}

int msg_ud_pd(const struct msg_desk *desk, struct gn_pd **out)
{
	if (!desk->ud)
		return -EOPNOTSUPP;
	*out = desk->ud->pd;
	return 0;
}

int msg_ud_addr(struct msg_desk *desk, struct gn_ud_addr *out)
{
	return gn_qp_ud_addr(desk->ud->qp, out);
}

/* ---- sending ---- */

void msg_ud_flush(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;
	const struct gn_wr *bad = NULL;
	uint32_t n;

	if (!ud || ud->broken)
		return;
	post_receives(ud, ud->again, ud->n_again, &desk->stats);
	ud->n_again = 0;
	n = ud->n_chain;
	for (uint32_t i = 0; i + 1 < n; i++)
		ud->chain[i].next = &ud->chain[i + 1];
	ud->n_chain = 0;
	if (n && gn_post_send(ud->qp, ud->chain, &bad)) {
		n = bad ? (uint32_t)(bad - ud->chain) : 0;
		ud->broken = true;
	}
	desk->stats.wrs += n;
	desk->stats.doorbells += n != 0;
	if (ud->broken)
		all_fail(desk);
}

int msg_ud_say(struct msg_end *end, uint32_t at, uint32_t number, uint32_t length)
{
	struct msg_ud *ud = end->desk->ud;
	struct msg_peer *peer = end->peer;
	struct msg_datagram head = {
		.place = (uint16_t)at, .nonce = end->nonce, .number = number, .length = length};
	const uint32_t bytes = (uint32_t)sizeof(head) + (length & ~MSG_REFUSED), i = ud->n_chain;
	uint8_t *place = msg_place(&end->said, at);
	uint32_t flags = bytes <= INLINE_MAX && bytes <= end->desk->attr.max_inline ? GN_INLINE : 0;

	if (ud->broken || !peer || ud->queued - ud->done >= ud->depth)
		return -EAGAIN;
	head.conn = (uint16_t)peer->conn;
	memcpy(place, &head, sizeof(head));
	if (++ud->silent >= ud->signal_every) {
		ud->silent = 0;
		flags |= GN_SIGNALED;
	}
	ud->sge[i] = (struct gn_sge){place, bytes, end->said.lkey};
	gn_wr_ud(&ud->chain[i], ud->queued++, &ud->sge[i], peer->ah, peer->qpn, peer->qkey, flags);
	ud->n_chain++;
	peer->last = ud->queued;
	if (ud->n_chain == MSG_CHAIN || (end->desk->flags & GN_MSG_PAPER))
		msg_ud_flush(end->desk);
	return 0;
}

/* ---- receiving ---- */

/* Whose it is, if it is what it says. */
static struct msg_end *find(struct msg_desk *desk, const struct gn_wc *wc,
			    const struct msg_datagram *head)
{
	struct msg_end *end = head->conn < desk->max_ends ? desk->ends[head->conn] : NULL;

	if (!end || !end->peer || end->fate != GN_MSG_OK || head->place >= end->pending)
		return NULL;
	if (wc->src_qpn != end->peer->qpn)
		return NULL;
	return head->nonce == end->nonce || mutant("msg-nonce", MUTANT_ALWAYS) ? end : NULL;
}

static void received(struct msg_desk *desk, const struct gn_wc *wc)
{
	struct msg_ud *ud = desk->ud;
	const uint8_t *data = (uint8_t *)gn_mem_addr(ud->mem) + wc->id * ud->stride + GN_GRH_BYTES;
	struct msg_datagram head;
	struct msg_end *end = NULL;

	if (wc->len_bytes >= GN_GRH_BYTES &&
	    !msg_datagram_check(data, wc->len_bytes - GN_GRH_BYTES, &head))
		end = find(desk, wc, &head);
	if (end)
		desk->datagram(end, &head, data + sizeof(head));
	else
		desk->stats.strays++;
	ud->again[ud->n_again++] = (uint32_t)wc->id;
	if (ud->n_again == MSG_CHAIN)
		msg_ud_flush(desk);
}

void msg_ud_completed(struct msg_desk *desk, const struct gn_wc *wc)
{
	struct msg_ud *ud = desk->ud;

	if (!ud)
		return;
	if (wc->status != GN_WC_OK)
		ud->broken = true;
	else if (wc->op != GN_OP_RECV)
		ud->done = wc->id + 1;
	else if (!ud->broken) /* else it could not be posted again, nor be noted for that */
		received(desk, wc);
	if (ud->dead)
		bury(ud, false);
	if (ud->broken)
		all_fail(desk);
}
