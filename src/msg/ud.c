/* SPDX-License-Identifier: MIT */
/*
 * Datagrams of a desk: one qp for all its connections, receives for all of them, and who a datagram
 * is from. What a datagram means is requester's and responder's business.
 *
 * Anybody who can reach the port can send to the qp, so nothing that arrives may harm it: it has a
 * random qkey, which only requesters that were accepted know, and each receive has room for the
 * longest datagram there is. Sends have a completion queue of their own, which is polled when it
 * matters that they are done. If the qp breaks all the same, it is reset in place and its
 * connections go on: they have lost what was under way, as datagrams may be, and ask again.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "msg/end.h"

#define INLINE_MAX   92u
#define SIGNAL_EVERY 16u
#define BESIDE	     (2 * SIGNAL_EVERY) /* sends that are done without having said so */
#define QKEY_MASK    0x7fffffffu	/* the highest bit is for privileged qkeys */
#define MTU_MAX	     4096u		/* of any port: a peer's may be larger than ours */
#define RESETS_MAX   8u			/* in a row, without a datagram that made sense */
#define RESET_NS     10000000u		/* between two: all receives are posted again */

struct msg_ud {
	struct gn_pd *pd;
	struct gn_cq *send_cq;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint32_t receives, stride;
	uint32_t rest; /* bytes of the longest datagram that go to the end of mem, for nobody */
	size_t bytes;
	uint64_t queued, done, told; /* sends; told: when this one is known to be done, plus one */
	uint32_t depth, silent, signal_every;
	uint32_t n_chain, n_again;
	struct gn_wr chain[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];
	uint32_t again[MSG_CHAIN]; /* receives that are to be posted again */
	bool broken;
	uint32_t resets;
	uint64_t reset_ns;     /* not before */
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
	size_t bytes;
	struct msg_peer *next;
};

/*
 * What was posted from a place: its last send, and the last that the device reads it for; plus one.
 */
struct msg_sends {
	uint64_t last, read;
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
	struct gn_sge sge[MSG_CHAIN][2];
	uint8_t *base = gn_mem_addr(ud->mem);
	const uint32_t lkey = gn_mr_lkey(ud->mr);

	for (uint32_t i = 0; i < n; i++) {
		sge[i][0] = (struct gn_sge){base + (size_t)which[i] * ud->stride, ud->stride, lkey};
		sge[i][1] =
			(struct gn_sge){base + (size_t)ud->receives * ud->stride, ud->rest, lkey};
		wrs[i] = (struct gn_recv_wr){.id = which[i],
					     .sge = sge[i],
					     .n_sge = ud->rest ? 2 : 1,
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
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = ud->send_cq,
		.recv_cq = desk->loop.cq,
		.max_send_wr = ud->depth,
		.max_recv_wr = ud->receives,
		.max_recv_sge = ud->rest ? 2 : 1,
		.max_inline = desk->loop.attr.max_inline < INLINE_MAX ? desk->loop.attr.max_inline :
									INLINE_MAX,
		.qkey = (uint32_t)gn_random() & QKEY_MASK,
	};
	const int rc = gn_qp_create(ud->pd, &opts, &ud->qp);

	return rc ? rc : post_all_receives(desk);
}

/*
 * What is longer than any message of ours goes on in memory that all receives share and nobody
 * reads: a receive is never too short, and costs no more than its message.
 */
static void size_receives(struct msg_desk *desk, uint32_t bytes)
{
	struct msg_ud *ud = desk->ud;
	const uint32_t mtu = desk->loop.attr.ud_mtu > MTU_MAX ? desk->loop.attr.ud_mtu : MTU_MAX;
	const uint32_t longest = GN_GRH_BYTES + mtu;

	ud->stride = GN_GRH_BYTES + (uint32_t)sizeof(struct msg_datagram) + bytes;
	if (desk->loop.attr.max_sge < 2)
		ud->stride = longest;
	ud->stride = (ud->stride + MSG_LINE - 1) / MSG_LINE * MSG_LINE;
	ud->rest = ud->stride < longest ? longest - ud->stride : 0;
}

static int make(struct msg_desk *desk, uint32_t bytes)
{
	struct msg_ud *ud = desk->ud;
	size_t all;
	int rc = gn_pd_create(desk->loop.ctx, &ud->pd);

	size_receives(desk, bytes);
	all = (size_t)ud->stride * ud->receives + ud->rest;
	if (!rc)
		rc = msg_desk_take_bytes(desk, all);
	if (!rc)
		ud->bytes = all;
	if (!rc)
		rc = gn_mem_alloc(desk->loop.fabric, all, 0, &ud->mem);
	if (!rc)
		rc = gn_mr_register(ud->pd, ud->mem, 0, all, GN_LOCAL_WRITE, &ud->mr);
	if (!rc)
		rc = gn_cq_create(
			desk->loop.ctx,
			&(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts), .depth = ud->depth},
			&ud->send_cq);
	return rc ? rc : make_qp(desk);
}

/* ---- peers ---- */

static void bury(struct msg_desk *desk, bool all)
{
	struct msg_ud *ud = desk->ud;
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
		msg_desk_give_bytes(desk, peer->bytes);
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
	/* Of the address only the qp is the peer's to choose; where it is, the connection tells. */
	rc = gn_ah_create_peer(ud->qp, end->link.qp, addr, &peer->ah);
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
	peer->bytes = end->said.bytes;
	end->said.mem = NULL;
	end->said.mr = NULL;
	end->said.bytes = 0;
	peer->next = ud->dead;
	ud->dead = peer;
	bury(end->desk, false);
}

/* Another qp in place of one that could not be reset; its connections have failed. */
static int replace_qp(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;
	int rc;

	for (unsigned i = 0; i < desk->max_ends; i++)
		if (desk->ends[i])
			msg_ud_forget(desk->ends[i]);
	if (ud->qp)
		gn_qp_error(ud->qp);
	bury(desk, true);
	gn_qp_destroy(ud->qp);
	ud->qp = NULL;
	ud->queued = ud->done = ud->told = ud->silent = ud->n_chain = ud->n_again = 0;
	ud->broken = false;
	ud->resets = 0;
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
	const uint32_t half = desk->loop.cq_free > beside ? (desk->loop.cq_free - beside) / 2 : 0;
	int rc;

	if (desk->ud)
		return desk->ud->broken && desk->ud->resets >= RESETS_MAX ? replace_qp(desk) : 0;
	if (!(desk->loop.attr.caps & GN_CAP_UD))
		return -EOPNOTSUPP;
	desk->ud = gn_alloc(sizeof(*desk->ud), MSG_LINE);
	if (!desk->ud)
		return -ENOMEM;
	desk->ud->signal_every = desk->flags & GN_MSG_PAPER ? 1 : SIGNAL_EVERY;
	desk->ud->receives = least(least(receives, desk->loop.attr.max_recv_wr), half);
	desk->ud->depth =
		least(least(sends + BESIDE, desk->loop.attr.max_send_wr), desk->loop.attr.max_cqe);
	if (desk->ud->receives < 1 || desk->ud->depth < BESIDE)
		rc = gn_fail(-ENOSPC, "msg: no room for datagrams beside %u connections",
			     desk->max_ends);
	else
		rc = make(desk, bytes);
	if (rc)
		msg_ud_close(desk);
	else
		desk->loop.cq_free -= desk->ud->receives;
	return rc;
}

void msg_ud_close(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;

	if (!ud)
		return;
	if (ud->qp)
		gn_qp_error(ud->qp); /* nothing is under way any more */
	bury(desk, true);
	gn_qp_destroy(ud->qp);
	gn_cq_destroy(ud->send_cq);
	gn_mr_deregister(ud->mr);
	gn_mem_free(ud->mem);
	msg_desk_give_bytes(desk, ud->bytes);
	gn_pd_destroy(ud->pd);
	link_timer_set(&desk->loop.timers, &desk->ud_reset, GN_FOREVER);
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
}

static void poll_sends(struct msg_ud *ud)
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

struct msg_sends *msg_ud_sends(uint32_t places)
{
	return gn_alloc(places * sizeof(struct msg_sends), 0);
}

bool msg_ud_writable(struct msg_end *end, uint32_t at)
{
	struct msg_ud *ud = end->desk->ud;
	const struct msg_sends *sends = &end->sends[at];
	const uint64_t posted = ud->queued - ud->n_chain;

	if (mutant("msg-ud-reuse", MUTANT_ALWAYS))
		return true;
	/*
	 * What is on the chain has not been read at all: a post reads what is sent inline. And what
	 * tells that others are done must have been posted.
	 */
	if (unlikely(sends->last > posted) || (sends->read > ud->done && ud->told > posted))
		msg_ud_flush(end->desk);
	if (sends->read > ud->done)
		poll_sends(ud);
	return sends->read <= ud->done;
}

bool msg_ud_will_tell(const struct msg_end *end, uint32_t at)
{
	return end->sends[at].read <= end->desk->ud->told;
}

/*
 * What the device reads later must be known to be done before its place is used again, so it is
 * signaled more often: by a requester, which waits for that, always; by a responder at least twice
 * while its peer goes through all places. What is said again most likely is the last for a while.
 */
static bool is_signaled(const struct msg_end *end, bool inlined, bool again)
{
	const struct msg_ud *ud = end->desk->ud;

	return ud->silent >= ud->signal_every || again ||
	       (!inlined && ud->silent >= end->signal_every);
}

/* The copy is immediate data: the bytes of what is said again may be with the device. */
static void name_copy(struct gn_wr *wr, uint32_t copy)
{
	if (likely(!copy))
		return;
	wr->op = GN_OP_SEND_IMM;
	wr->imm = copy;
}

int msg_ud_say(struct msg_end *end, uint32_t at, uint32_t number, uint32_t length, uint32_t copy,
	       bool again)
{
	struct msg_ud *ud = end->desk->ud;
	struct msg_peer *peer = end->peer;
	struct msg_datagram head = {
		.place = (uint16_t)at, .nonce = end->nonce, .number = number, .length = length};
	const uint32_t bytes = (uint32_t)sizeof(head) + (length & ~MSG_REFUSED), i = ud->n_chain;
	const bool inlined = bytes <= INLINE_MAX && bytes <= end->desk->loop.attr.max_inline;
	uint8_t *place = msg_place(&end->said, at);
	uint32_t flags = inlined ? GN_INLINE : 0;

	if (!peer)
		return -EAGAIN;
	head.conn = (uint16_t)peer->conn;
	if (!again) /* what is said again is there, and may be with the device */
		memcpy(place, &head, sizeof(head));
	if (unlikely(ud->queued - ud->done >= ud->depth))
		poll_sends(ud);
	if (ud->broken || ud->queued - ud->done >= ud->depth)
		return -EAGAIN;
	ud->silent++;
	if (is_signaled(end, inlined, again)) {
		ud->silent = 0;
		ud->told = ud->queued + 1;
		flags |= GN_SIGNALED;
	}
	ud->sge[i] = (struct gn_sge){place, bytes, end->said.lkey};
	gn_wr_ud(&ud->chain[i], ud->queued++, &ud->sge[i], peer->ah, peer->qpn, peer->qkey, flags);
	name_copy(&ud->chain[i], copy);
	ud->n_chain++;
	peer->last = ud->queued;
	end->sends[at].last = ud->queued;
	if (!inlined)
		end->sends[at].read = ud->queued;
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

static void receive_again(struct msg_desk *desk, uint32_t which)
{
	struct msg_ud *ud = desk->ud;

	ud->again[ud->n_again++] = which;
	if (ud->n_again == MSG_CHAIN)
		msg_ud_flush(desk);
}

static void received(struct msg_desk *desk, const struct gn_wc *wc)
{
	struct msg_ud *ud = desk->ud;
	const uint32_t which = (uint32_t)wc->id;
	const uint8_t *data =
		(uint8_t *)gn_mem_addr(ud->mem) + (size_t)which * ud->stride + GN_GRH_BYTES;
	struct msg_datagram head;
	struct msg_end *end = NULL;

	if (wc->len_bytes >= GN_GRH_BYTES &&
	    !msg_datagram_check(data, wc->len_bytes - GN_GRH_BYTES, &head))
		end = find(desk, wc, &head);
	if (end) {
		ud->resets = 0;
		desk->datagram(end, &head, wc->flags & GN_WC_IMM ? wc->imm : 0,
			       data + sizeof(head));
	} else {
		desk->stats.strays++;
	}
	receive_again(desk, which);
}

/* A receive may have failed alone, on a datagram that is none of ours; or the qp is broken. */
static void failed(struct msg_desk *desk, const struct gn_wc *wc)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (wc->status != GN_WC_FLUSHED && !gn_qp_query(desk->ud->qp, &attr) &&
	    attr.state == GN_QP_READY) {
		desk->stats.strays++;
		receive_again(desk, (uint32_t)wc->id);
	} else {
		desk->ud->broken = true;
	}
}

void msg_ud_completed(struct msg_desk *desk, const struct gn_wc *wc)
{
	struct msg_ud *ud = desk->ud;

	/* Of a broken qp nothing can be posted again, nor be noted for that: it is reset soon. */
	if (!ud || ud->broken)
		return;
	if (likely(wc->status == GN_WC_OK))
		received(desk, wc);
	else
		failed(desk, wc);
}

/* ---- upkeep ---- */

/* It is time to reset a qp that broke. */
void msg_ud_reset(struct link_timer *timer, uint64_t now_ns)
{
	struct msg_desk *desk = container_of(timer, struct msg_desk, ud_reset);
	struct msg_ud *ud = desk->ud;

	if (!ud->broken)
		return;
	ud->reset_ns = now_ns + RESET_NS;
	if (++ud->resets >= RESETS_MAX || gn_qp_reset(ud->qp)) {
		gn_fail_log(0, "msg: the datagram qp cannot be mended; its connections end");
		ud->resets = RESETS_MAX;
		all_fail(desk);
		return;
	}
	desk->stats.resets++;
	/*
	 * Nothing is under way any more. What was on the chain was not posted, and is lost as well.
	 */
	ud->done = ud->told = ud->queued;
	ud->silent = ud->n_chain = ud->n_again = 0;
	ud->broken = false;
	bury(desk, false);
	post_all_receives(desk);
}

void msg_ud_tend(struct msg_desk *desk)
{
	struct msg_ud *ud = desk->ud;

	if (!ud)
		return;
	if (unlikely(ud->dead)) {
		poll_sends(ud);
		bury(desk, false);
	}
	if (likely(!ud->broken) || ud->resets >= RESETS_MAX || desk->ud_reset.due_ns != GN_FOREVER)
		return;
	link_timer_set(&desk->loop.timers, &desk->ud_reset, ud->reset_ns);
	link_loop_must_tend(&desk->loop);
}
