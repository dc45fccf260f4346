/* SPDX-License-Identifier: MIT */
/*
 * Posting: every argument check happens here, once, and the queues' bookkeeping with it; a provider
 * gets requests that are well-formed and fit its queues.
 */
#include "fabric/fabric.h"

#include <errno.h>

#define BIT(op) (1u << (op))
#define RC_OPS                                                                         \
	(BIT(GN_OP_WRITE) | BIT(GN_OP_READ) | BIT(GN_OP_WRITE_IMM) | BIT(GN_OP_SEND) | \
	 BIT(GN_OP_SEND_IMM) | BIT(GN_OP_CAS) | BIT(GN_OP_FAA))
#define UD_OPS	   (BIT(GN_OP_SEND) | BIT(GN_OP_SEND_IMM))
#define INLINE_OPS (BIT(GN_OP_WRITE) | BIT(GN_OP_WRITE_IMM) | BIT(GN_OP_SEND) | BIT(GN_OP_SEND_IMM))
#define ATOMIC_OPS (BIT(GN_OP_CAS) | BIT(GN_OP_FAA))
#define WR_FLAGS   (GN_SIGNALED | GN_INLINE | GN_FENCE | GN_SOLICITED)

static int check_atomic(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (!(qp->caps & GN_CAP_ATOMICS))
		return -EOPNOTSUPP;
	if (len != 8 || wr->n_sge != 1 || wr->to.remote.offset % 8)
		return -EINVAL;
	return 0;
}

static int check_ud(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (!obj_alive(wr->to.ud.ah, OBJ_AH) || wr->to.ud.ah->qp != qp)
		return -EINVAL;
	/* Soft-RoCE would report success for a datagram that is too long, and drop it. */
	return len > qp->obj.fabric->attr.ud_mtu ? -EMSGSIZE : 0;
}

/* 0 and the payload's length, or what is wrong with the request. */
static inline int check_send(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t *len_bytes)
{
	const unsigned ops = qp->type == GN_QP_RC ? RC_OPS : UD_OPS;
	uint64_t len = 0;

	if (unlikely((unsigned)wr->op >= GN_OPS || !(ops & BIT(wr->op)) ||
		     wr->flags & ~(unsigned)WR_FLAGS))
		return -EINVAL;
	if (unlikely(wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge)))
		return -EINVAL;
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	*len_bytes = len;
	if (wr->flags & GN_INLINE) {
		if (unlikely(!(INLINE_OPS & BIT(wr->op))))
			return -EINVAL;
		if (unlikely(len > qp->max_inline))
			return -EMSGSIZE;
	}
	if (unlikely(len > qp->obj.fabric->attr.max_msg))
		return -EMSGSIZE;
	if (unlikely(ATOMIC_OPS & BIT(wr->op)))
		return check_atomic(qp, wr, len);
	return qp->type == GN_QP_UD ? check_ud(qp, wr, len) : 0;
}

static inline void remember(struct gn_qp *qp, uint64_t position, const struct gn_wr *wr,
			    uint64_t len)
{
	struct sq_entry *entry = &qp->sq[position & qp->sq_mask];

	entry->id = wr->id;
	entry->len_bytes = (uint32_t)len;
	entry->op = (uint8_t)wr->op;
	entry->flags = (uint8_t)wr->flags;
	counter_add(&qp->count.wrs[wr->op], 1);
	counter_add(&qp->count.bytes[wr->op], len);
}

/* The device refused what we had counted already. */
static void forget(struct gn_qp *qp, uint64_t from, uint64_t to)
{
	for (; from < to; from++) {
		const struct sq_entry *entry = &qp->sq[from & qp->sq_mask];

		counter_add(&qp->count.wrs[entry->op], -1ull);
		counter_add(&qp->count.bytes[entry->op], -(uint64_t)entry->len_bytes);
		counter_add(&qp->count.bytes_in_flight, -(uint64_t)entry->len_bytes);
	}
}

static int post_send_locked(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad)
{
	const uint64_t start = qp->sq_head, limit = qp->sq_tail + qp->max_send_wr;
	uint64_t position = start, bytes = 0, len;
	const struct gn_wr *w;
	int rc = 0;

	for (w = wr; w; w = w->next) {
		rc = check_send(qp, w, &len);
		if (unlikely(rc))
			break;
		if (unlikely(position == limit)) {
			rc = -EAGAIN;
			break;
		}
		remember(qp, position++, w, len);
		bytes += len;
	}
	if (likely(position > start)) {
		const unsigned n = (unsigned)(position - start);
		unsigned taken;

		counter_add(&qp->count.bytes_in_flight, bytes);
		taken = qp->obj.fabric->provider->post_send(qp, wr, n);
		qp->sq_head += taken;
		if (unlikely(taken < n)) {
			forget(qp, start + taken, position);
			rc = -EAGAIN;
			for (w = wr; taken; taken--)
				w = w->next;
		}
		if (likely(qp->sq_head > start))
			counter_add(&qp->count.doorbells, 1);
	}
	if (unlikely(rc) && bad)
		*bad = w;
	return rc;
}

int gn_post_send(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad)
{
	int rc;

	if (unlikely(!obj_alive(qp, OBJ_QP) || !wr)) {
		if (bad)
			*bad = wr;
		obj_check(qp, OBJ_QP);
		return -EINVAL;
	}
	qp_lock(qp);
	if (unlikely(qp->state < GN_QP_READY)) {
		if (bad)
			*bad = wr;
		rc = -ENOTCONN;
	} else {
		rc = post_send_locked(qp, wr, bad);
	}
	qp_unlock(qp);
	return rc;
}

static int check_recv(const struct gn_qp *qp, const struct gn_recv_wr *wr)
{
	uint64_t len = 0;

	if (wr->n_sge > qp->max_recv_sge || (wr->n_sge && !wr->sge))
		return -EINVAL;
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	return len > UINT32_MAX ? -EINVAL : 0;
}

static int post_recv_locked(struct gn_qp *qp, const struct gn_recv_wr *wr,
			    const struct gn_recv_wr **bad)
{
	const uint64_t start = qp->rq_head, limit = qp->rq_tail + qp->max_recv_wr;
	uint64_t position = start;
	const struct gn_recv_wr *w;
	unsigned taken = 0;
	int rc = 0;

	for (w = wr; w; w = w->next) {
		rc = check_recv(qp, w);
		if (!rc && position == limit)
			rc = -EAGAIN;
		if (rc)
			break;
		qp->rq[position++ & qp->rq_mask] = w->id;
	}
	if (position > start) {
		const unsigned n = (unsigned)(position - start);

		taken = qp->obj.fabric->provider->post_recv(qp, wr, n);
		qp->rq_head += taken;
		if (taken < n) {
			rc = -EAGAIN;
			w = wr;
			for (unsigned i = 0; i < taken; i++)
				w = w->next;
		}
	}
	if (taken) {
		counter_add(&qp->count.wrs[GN_OP_RECV], taken);
		counter_add(&qp->count.recv_doorbells, 1);
	}
	if (rc && bad)
		*bad = w;
	return rc;
}

int gn_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr, const struct gn_recv_wr **bad)
{
	int rc;

	if (unlikely(!obj_alive(qp, OBJ_QP) || !wr)) {
		if (bad)
			*bad = wr;
		obj_check(qp, OBJ_QP);
		return -EINVAL;
	}
	qp_lock(qp);
	rc = post_recv_locked(qp, wr, bad);
	qp_unlock(qp);
	return rc;
}
