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
/* Requests that need none of the special checks. */
#define PLAIN_OPS (BIT(GN_OP_WRITE) | BIT(GN_OP_READ) | BIT(GN_OP_SEND) | BIT(GN_OP_WRITE_IMM))
#define PLAIN_LEN 65536u /* every provider's max_msg is larger */
#define WR_FLAGS  (GN_SIGNALED | GN_INLINE | GN_FENCE | GN_SOLICITED)

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

/* What few requests need: inline data, atomics, datagrams, the longest messages. */
static int check_special(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (wr->flags & GN_INLINE) {
		if (!(INLINE_OPS & BIT(wr->op)))
			return -EINVAL;
		if (len > qp->max_inline)
			return -EMSGSIZE;
	}
	if (len > qp->obj.fabric->attr.max_msg)
		return -EMSGSIZE;
	if (ATOMIC_OPS & BIT(wr->op))
		return check_atomic(qp, wr, len);
	return qp->type == GN_QP_UD ? check_ud(qp, wr, len) : 0;
}

/* 0 and the payload's length, or what is wrong with the request. */
static inline int check_send(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t *len_bytes)
{
	const unsigned op = (unsigned)wr->op;
	uint64_t len = 0;

	if (unlikely(op >= GN_OPS || wr->flags & ~(unsigned)WR_FLAGS ||
		     wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge)))
		return -EINVAL;
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	*len_bytes = len;
	if (likely(qp->type == GN_QP_RC && PLAIN_OPS & BIT(op) && !(wr->flags & GN_INLINE) &&
		   len <= PLAIN_LEN))
		return 0;
	if (unlikely(!((qp->type == GN_QP_RC ? RC_OPS : UD_OPS) & BIT(op))))
		return -EINVAL;
	return check_special(qp, wr, len);
}

/* Count consecutive requests of one operation together. */
static inline void count(struct gn_qp *qp, enum gn_op op, uint64_t wrs, uint64_t bytes)
{
	counter_add(&qp->count.wrs[op], wrs);
	counter_add(&qp->count.bytes[op], bytes);
}

/* The device took only some of what had been counted. Returns the first one it refused. */
static const struct gn_wr *forget(struct gn_qp *qp, const struct gn_wr *wr, unsigned taken,
				  unsigned n)
{
	for (unsigned i = taken; i < n; i++) {
		const struct sq_entry *entry = &qp->sq[(qp->sq_head + i) & qp->sq_mask];

		count(qp, (enum gn_op)entry->op, -1ull, -(uint64_t)entry->len_bytes);
		qp->sq_bytes -= entry->len_bytes;
	}
	for (unsigned i = 0; i < taken; i++)
		wr = wr->next;
	return wr;
}

/* Check the chain up to the first bad request and enter it in the send queue. Returns how many. */
static unsigned enter_chain(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **end,
			    int *rc)
{
	const uint64_t start = qp->sq_head, limit = qp->sq_tail + qp->max_send_wr;
	uint64_t position = start, bytes = qp->sq_bytes, run_start = start, run_bytes = bytes, len;
	enum gn_op op = wr->op;
	int err = 0;

	for (; wr; wr = wr->next) {
		err = check_send(qp, wr, &len);
		if (unlikely(err))
			break;
		if (unlikely(position == limit)) {
			err = -EAGAIN;
			break;
		}
		if (unlikely(wr->op != op)) {
			count(qp, op, position - run_start, bytes - run_bytes);
			op = wr->op;
			run_start = position;
			run_bytes = bytes;
		}
		bytes += len;
		qp->sq[position++ & qp->sq_mask] = (struct sq_entry){
			.id = wr->id,
			.bytes_to = bytes,
			.len_bytes = (uint32_t)len,
			.op = (uint8_t)wr->op,
		};
	}
	if (likely(position != run_start))
		count(qp, op, position - run_start, bytes - run_bytes);
	qp->sq_bytes = bytes;
	*end = wr;
	*rc = err;
	return (unsigned)(position - start);
}

static int post_send_locked(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad)
{
	const struct gn_wr *end;
	int rc;
	const unsigned n = enter_chain(qp, wr, &end, &rc);

	if (likely(n)) {
		const unsigned taken = qp->obj.fabric->provider->post_send(qp, wr, n);

		if (unlikely(taken < n)) {
			end = forget(qp, wr, taken, n);
			rc = -EAGAIN;
		}
		qp->sq_head += taken;
		if (likely(taken))
			counter_add(&qp->count.doorbells, 1);
		__atomic_store_n(&qp->count.bytes_in_flight, qp->sq_bytes - qp->sq_bytes_done,
				 __ATOMIC_RELAXED);
	}
	if (unlikely(rc) && bad)
		*bad = end;
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
