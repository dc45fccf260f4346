/* SPDX-License-Identifier: MIT */
/*
 * Receives messages from the peer's ring. The ring is the peer's memory: every value is loaded
 * once, and an invalid one ends the connection.
 */
#include "fabric/shm/shm.h"

#include "fabric/soft/copy.h"

#define RECV_BATCH 16 /* slots of one peer per call */

/*
 * Publishes consumed slots and data, a quarter of the ring at a time: each update costs a cache
 * line transfer each way, and three quarters are enough to continue.
 */
static inline void rx_publish_consumed(struct shm_conn *c)
{
	if (c->rx_slot - c->slots_published < SHM_SLOTS / 4 &&
	    c->rx_data_at - c->data_published < SHM_DATA / 4)
		return;
	c->slots_published = c->rx_slot;
	c->data_published = c->rx_data_at;
	__atomic_store_n(&c->own_area->credit.data_consumed, c->rx_data_at, __ATOMIC_RELEASE);
	/* Pairs with the acquire in the sender's tx_has_slot(). */
	__atomic_store_n(&c->own_area->credit.slots_consumed, c->rx_slot, __ATOMIC_RELEASE);
	shm_wake_sender(c);
}

static void rx_complete(struct shm_qp *qp, enum gn_wc_status status, const struct slot *slot,
			uint32_t flags)
{
	const struct gn_wc wc = {
		.id = qp->rq.tail,
		.qp = &qp->qp,
		.status = status,
		.op = flags & SLOT_WRITE_IMM ? GN_OP_RECV_WRITE_IMM : GN_OP_RECV,
		.len_bytes = qp->conn.rx_len,
		.imm = flags & SLOT_IMM ? __atomic_load_n(&slot->imm, __ATOMIC_RELAXED) : 0,
		.flags = flags & SLOT_IMM ? GN_WC_IMM : 0,
	};

	qp->rq.tail++;
	qp->conn.rx_off = 0;
	shm_complete((struct shm_cq *)qp->qp.recv_cq, &wc, flags & SLOT_SOLICITED);
}

/* Copies a fragment to the receive's SGEs. */
static enum gn_wc_status rx_store_fragment(struct shm_qp *qp, const struct slot *slot,
					   uint32_t frag_len, uint32_t flags)
{
	struct shm_conn *c = &qp->conn;
	const struct gn_sge *sge = soft_rq_sge(&qp->rq);
	const uint32_t n_sge = soft_rq_n_sge(&qp->rq);
	const uint8_t *src = slot->bytes;

	if (frag_len > c->rx_len - c->rx_off)
		return GN_WC_LOCAL_QP;
	if (!(flags & SLOT_INLINED)) {
		const uint64_t at = __atomic_load_n(&slot->data_at, __ATOMIC_RELAXED);

		if (at != c->rx_data_at || frag_len > SHM_DATA - (at & (SHM_DATA - 1)))
			return GN_WC_LOCAL_QP;
		src = c->rx_data + (at & (SHM_DATA - 1));
		c->rx_data_at += frag_len;
	} else if (frag_len > SLOT_INLINE) {
		return GN_WC_LOCAL_QP;
	}
	if (unlikely(!soft_sge_ok(qp->keys, qp->qp.pd, sge, n_sge, GN_LOCAL_WRITE)))
		return GN_WC_LOCAL_ACCESS;
	if (likely(n_sge == 1))
		copy_relaxed((uint8_t *)sge->addr + c->rx_off, src, frag_len);
	else
		soft_scatter(sge, n_sge, c->rx_off, src, frag_len);
	c->rx_off += frag_len;
	return GN_WC_OK;
}

/* Handles one slot. Any status but OK fails its receive and the qp. */
static enum gn_wc_status rx_take_slot(struct shm_qp *qp, const struct slot *slot, uint64_t head)
{
	struct shm_conn *c = &qp->conn;
	const uint32_t flags = slot_flags(head), frag_len = slot_len(head);
	enum gn_wc_status status = GN_WC_OK;

	if (unlikely(!(flags & SLOT_FIRST) != (c->rx_off != 0)))
		return GN_WC_LOCAL_QP;
	if (unlikely(flags & SLOT_WRITE_IMM &&
		     (frag_len || !(flags & SLOT_FIRST) || !(flags & SLOT_LAST))))
		return GN_WC_LOCAL_QP;
	if (flags & SLOT_FIRST) {
		c->rx_len = __atomic_load_n(&slot->msg_len, __ATOMIC_RELAXED);
		if (unlikely(flags & SLOT_TOO_LONG))
			return GN_WC_LOCAL_LENGTH;
		if (unlikely(!(flags & SLOT_WRITE_IMM) && c->rx_len > soft_rq_len(&qp->rq)))
			return GN_WC_LOCAL_LENGTH;
	}
	if (!(flags & SLOT_WRITE_IMM) && frag_len)
		status = rx_store_fragment(qp, slot, frag_len, flags);
	if (unlikely(status != GN_WC_OK))
		return status;
	if (flags & SLOT_LAST) {
		if (unlikely(!(flags & SLOT_WRITE_IMM) && c->rx_off != c->rx_len))
			return GN_WC_LOCAL_QP;
		rx_complete(qp, GN_WC_OK, slot, flags);
	} else if (unlikely(!frag_len)) {
		return GN_WC_LOCAL_QP; /* an empty fragment would make no progress */
	}
	return GN_WC_OK;
}

/*
 * Fast path for common messages: the payload is in the slot, the receive has one SGE, and a poll is
 * running. Handles it and returns true, or leaves it to rx_take_slot().
 */
static inline bool rx_take_short(struct shm_qp *qp, struct shm_cq *cq, const struct slot *slot,
				 uint64_t head)
{
	struct soft_rq *rq = &qp->rq;
	const uint32_t at = (uint32_t)rq->tail & rq->mask, len = slot_len(head);
	const struct gn_sge *sge = &rq->sge[at * rq->max_sge];
	struct gn_wc *wc;

	if (slot_flags(head) != (SLOT_FIRST | SLOT_LAST | SLOT_INLINED) || len > SLOT_INLINE ||
	    rq->n_sge[at] != 1 || len > sge->len_bytes || qp->conn.rx_off)
		return false;
	if (unlikely(!soft_one_sge_ok(qp->keys, qp->qp.pd, sge, GN_LOCAL_WRITE)))
		return false;
	wc = soft_cq_direct(&cq->soft);
	if (unlikely(!wc))
		return false;
	copy_relaxed(sge->addr, slot->bytes, len);
	wc->id = rq->tail++;
	wc->qp = &qp->qp;
	wc->status = GN_WC_OK;
	wc->op = GN_OP_RECV;
	wc->len_bytes = len;
	wc->imm = wc->flags = wc->src_qpn = wc->vendor = 0;
	wc->src_lid = 0;
	return true;
}

void shm_conn_disconnected(struct shm_qp *qp)
{
	shm_qp_fail(qp);
	shm_conn_peer_closed(qp);
	shm_rx_del(&qp->rx_recv);
	qp_disconnected(&qp->qp);
}

bool shm_progress_recvs(struct shm_rx *rx)
{
	struct shm_qp *qp = container_of(rx, struct shm_qp, rx_recv);
	struct shm_cq *cq = (struct shm_cq *)qp->qp.recv_cq;
	struct shm_conn *c = &qp->conn;
	bool drained = qp->qp.state != GN_QP_READY;
	int taken = 0;

	while (taken < RECV_BATCH && likely(qp->qp.state == GN_QP_READY) &&
	       soft_cq_wants(&cq->soft)) {
		const struct slot *slot = &c->rx_slots[c->rx_slot & (SHM_SLOTS - 1)];
		/* Pairs with the release in slot_publish(). */
		const uint64_t head = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE);
		enum gn_wc_status status;

		drained = slot_seq(head) != (uint32_t)(c->rx_slot + 1);
		if (drained)
			break;
		/* A correct peer sends only when a receive is posted. */
		if (soft_rq_empty(&qp->rq))
			status = GN_WC_LOCAL_QP;
		else if (likely(rx_take_short(qp, cq, slot, head)))
			status = GN_WC_OK;
		else
			status = rx_take_slot(qp, slot, head);
		c->rx_slot++;
		taken++;
		if (unlikely(status != GN_WC_OK)) {
			if (status == GN_WC_LOCAL_QP)
				gn_log(GN_LOG_WARN,
				       "shm: invalid data in a ring; closing the connection");
			if (!soft_rq_empty(&qp->rq))
				rx_complete(qp, status, slot, 0);
			shm_qp_fail(qp);
		}
	}
	if (unlikely(c->peer_ended || qp->qp.state != GN_QP_READY)) {
		rx->peek = NULL;
		if (c->peer_ended && drained && !soft_cq_full(&cq->soft))
			shm_conn_disconnected(qp);
	} else {
		shm_rx_expect(rx, &c->rx_slots[c->rx_slot & (SHM_SLOTS - 1)].head, c->rx_slot);
	}
	if (taken)
		rx_publish_consumed(c);
	return taken;
}
