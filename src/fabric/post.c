/* SPDX-License-Identifier: MIT */
/*
 * Posting: all argument checks and the queues' bookkeeping. A provider gets requests that are
 * well-formed and fit its queues.
 */
#include "base/fail.h"
#include "fabric/fabric.h"

#include <errno.h>

#define BIT(op) (1u << (op))
#define RC_OPS                                                                         \
	(BIT(GN_OP_WRITE) | BIT(GN_OP_READ) | BIT(GN_OP_WRITE_IMM) | BIT(GN_OP_SEND) | \
	 BIT(GN_OP_SEND_IMM) | BIT(GN_OP_CAS) | BIT(GN_OP_FAA))
#define UD_OPS	   (BIT(GN_OP_SEND) | BIT(GN_OP_SEND_IMM))
#define INLINE_OPS (BIT(GN_OP_WRITE) | BIT(GN_OP_WRITE_IMM) | BIT(GN_OP_SEND) | BIT(GN_OP_SEND_IMM))
#define ATOMIC_OPS (BIT(GN_OP_CAS) | BIT(GN_OP_FAA))
/* Operations that need none of the special checks. */
#define PLAIN_OPS (BIT(GN_OP_WRITE) | BIT(GN_OP_READ) | BIT(GN_OP_SEND) | BIT(GN_OP_WRITE_IMM))
#define WR_FLAGS  (GN_SIGNALED | GN_INLINE | GN_FENCE | GN_SOLICITED)

#define SENDS_FULL "gn_post_send(): the send queue is full; poll its cq"
#define RECVS_FULL "gn_post_recv(): the receive queue is full; poll its cq"

static int wr_check_atomic(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (!(qp->caps & GN_CAP_ATOMICS))
		return gn_fail(-EOPNOTSUPP, "gn_post_send(): this connection has no atomics");
	if (len != 8 || wr->n_sge != 1 || wr->to.remote.offset % 8)
		return gn_fail(-EINVAL,
			       "gn_post_send(): an atomic needs one sge of 8 bytes and an offset "
			       "that is a multiple of 8");
	return 0;
}

static int wr_check_ud(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (!obj_alive(wr->to.ud.ah, OBJ_AH) || wr->to.ud.ah->qp != qp)
		return gn_fail(-EINVAL,
			       "gn_post_send(): to.ud.ah is not an address handle of this qp");
	/* Soft-RoCE would drop a datagram that is too long, and report success. */
	if (len > qp->obj.fabric->attr.ud_mtu)
		return gn_fail(-EMSGSIZE, "gn_post_send(): a datagram of %llu bytes: ud_mtu is %u",
			       (unsigned long long)len, qp->obj.fabric->attr.ud_mtu);
	return 0;
}

/* Rare checks: inline data, atomics, datagrams, the longest messages. */
static int wr_check_special(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (wr->flags & GN_INLINE) {
		if (!(INLINE_OPS & BIT(wr->op)))
			return gn_fail(-EINVAL, "gn_post_send(): a %s cannot be GN_INLINE",
				       gn_op_str(wr->op));
		if (len > qp->max_inline)
			return gn_fail(-EMSGSIZE,
				       "gn_post_send(): %llu bytes GN_INLINE: max_inline is %u",
				       (unsigned long long)len, qp->max_inline);
	}
	if (len > qp->obj.fabric->attr.max_msg)
		return gn_fail(-EMSGSIZE, "gn_post_send(): %llu bytes: max_msg is %llu",
			       (unsigned long long)len,
			       (unsigned long long)qp->obj.fabric->attr.max_msg);
	if (ATOMIC_OPS & BIT(wr->op))
		return wr_check_atomic(qp, wr, len);
	return qp->type == GN_QP_UD ? wr_check_ud(qp, wr, len) : 0;
}

static inline uint64_t wr_payload_bytes(const struct gn_wr *wr)
{
	uint64_t len = 0;

	if (likely(wr->n_sge == 1))
		return wr->sge->len_bytes;
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	return len;
}

static no_inline int wr_invalid(const struct gn_qp *qp, const struct gn_wr *wr)
{
	if ((unsigned)wr->op >= GN_OPS || wr->flags & ~(unsigned)WR_FLAGS)
		return gn_fail(-EINVAL, "gn_post_send(): no such op %u, or flags %x",
			       (unsigned)wr->op, wr->flags);
	if (wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge))
		return gn_fail(-EINVAL, "gn_post_send(): n_sge is %u, sge is %s: at most %u",
			       wr->n_sge, wr->sge ? "set" : "NULL", qp->max_send_sge);
	return gn_fail(-EINVAL, "gn_post_send(): %s is not an operation of %s qp",
		       gn_op_str(wr->op), qp->type == GN_QP_RC ? "an RC" : "a UD");
}

/* Returns 0, or the error of the request. */
static inline int wr_check_send(const struct gn_qp *qp, const struct gn_wr *wr)
{
	const unsigned op = (unsigned)wr->op;
	uint64_t len;

	if (unlikely(op >= GN_OPS || wr->flags & ~(unsigned)WR_FLAGS ||
		     wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge)))
		return wr_invalid(qp, wr);
	len = wr_payload_bytes(wr);
	if (likely(qp->type == GN_QP_RC && PLAIN_OPS & BIT(op) && len <= PLAIN_LEN &&
		   (!(wr->flags & GN_INLINE) || (op != GN_OP_READ && len <= qp->max_inline))))
		return 0;
	if (unlikely(!((qp->type == GN_QP_RC ? RC_OPS : UD_OPS) & BIT(op))))
		return wr_invalid(qp, wr);
	return wr_check_special(qp, wr, len);
}

/* Returns how many requests of the chain can be posted, and the error of the next one. */
static inline unsigned chain_check(const struct gn_qp *qp, const struct gn_wr *wr, int *rc)
{
	const uint64_t free_entries = qp->sq_tail + qp->max_send_wr - qp->sq_head;
	unsigned n = 0;

	for (*rc = 0; wr; wr = wr->next, n++) {
		*rc = wr_check_send(qp, wr);
		if (likely(!*rc) && unlikely(n == free_entries))
			*rc = gn_fail_text(-EAGAIN, SENDS_FULL);
		if (unlikely(*rc))
			break;
	}
	return n;
}

static inline void post_count(struct gn_qp *qp, enum gn_op op, uint64_t wrs, uint64_t bytes)
{
	counter_add(&qp->count.wrs[op], wrs);
	counter_add(&qp->count.bytes[op], bytes);
}

/*
 * Enters posted requests into the send queue and the counters; consecutive requests of one
 * operation are counted together. Runs after the provider's post, because peers wait for that.
 * Returns the first request that was not posted.
 */
static inline const struct gn_wr *sq_enter_chain(struct gn_qp *qp, const struct gn_wr *wr,
						 unsigned n)
{
	const uint64_t end = qp->sq_head + n;
	uint64_t position = qp->sq_head, bytes = qp->sq_bytes, run_start = position,
		 run_bytes = bytes;
	enum gn_op op = wr->op;

	for (; position != end; wr = wr->next) {
		const uint64_t len = wr_payload_bytes(wr);

		if (unlikely(wr->op != op)) {
			post_count(qp, op, position - run_start, bytes - run_bytes);
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
	post_count(qp, op, position - run_start, bytes - run_bytes);
	counter_add(&qp->count.doorbells, 1);
	qp->sq_head = end;
	qp->sq_bytes = bytes;
	__atomic_store_n(&qp->count.bytes_in_flight, bytes - qp->sq_bytes_done, __ATOMIC_RELAXED);
	return wr;
}

static no_inline int post_chain(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad)
{
	int rc;
	const unsigned n = chain_check(qp, wr, &rc);
	const unsigned taken = likely(n) ? qp->obj.fabric->provider->post_send(qp, wr, n) : 0;
	const struct gn_wr *end = likely(taken) ? sq_enter_chain(qp, wr, taken) : wr;

	if (unlikely(taken < n))
		rc = gn_fail_text(-EAGAIN, SENDS_FULL);
	if (unlikely(rc) && bad)
		*bad = end;
	return rc;
}

/*
 * Is wr a common request: a valid WRITE or READ with one SGE that needs no special check? Same
 * result as wr_check_send() and chain_check(), at less cost.
 */
static inline bool wr_is_plain(const struct gn_qp *qp, const struct gn_wr *wr)
{
	const unsigned op = (unsigned)wr->op, flags = wr->flags;

	if (unlikely(wr->next || wr->n_sge != 1 || !wr->sge || op > GN_OP_READ ||
		     flags & ~(unsigned)WR_FLAGS))
		return false;
	return likely(wr->sge->len_bytes - 1 < qp->plain_len[op | (flags & GN_INLINE)] &&
		      qp->sq_head - qp->sq_tail < qp->max_send_wr);
}

void qp_set_plain(struct gn_qp *qp)
{
	_Static_assert(GN_OP_WRITE == 0 && GN_OP_READ == 1 && GN_INLINE == 2, "used as an index");
	if (qp->type != GN_QP_RC)
		return;
	qp->plain_len[GN_OP_WRITE] = qp->plain_len[GN_OP_READ] = PLAIN_LEN;
	qp->plain_len[GN_OP_WRITE | GN_INLINE] = qp->max_inline < PLAIN_LEN ? qp->max_inline :
									      PLAIN_LEN;
}

/* sq_enter_chain() for one plain request. */
static inline void sq_enter_plain(struct gn_qp *qp, const struct gn_wr *wr)
{
	const uint32_t len = wr->sge->len_bytes;
	const uint64_t position = qp->sq_head, bytes = qp->sq_bytes + len;

	qp->sq[position & qp->sq_mask] = (struct sq_entry){
		.id = wr->id,
		.bytes_to = bytes,
		.len_bytes = len,
		.op = (uint8_t)wr->op,
	};
	post_count(qp, wr->op, 1, len);
	counter_add(&qp->count.doorbells, 1);
	qp->sq_head = position + 1;
	qp->sq_bytes = bytes;
	__atomic_store_n(&qp->count.bytes_in_flight, bytes - qp->sq_bytes_done, __ATOMIC_RELAXED);
}

static inline int post_send_locked(struct gn_qp *qp, const struct gn_wr *wr,
				   const struct gn_wr **bad)
{
	if (unlikely(!wr_is_plain(qp, wr) || !qp->obj.fabric->provider->post_plain(qp, wr)))
		return post_chain(qp, wr, bad);
	sq_enter_plain(qp, wr);
	return 0;
}

static no_inline int post_send_invalid(const struct gn_qp *qp, const struct gn_wr *wr,
				       const struct gn_wr **bad)
{
	if (bad)
		*bad = wr;
	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (!wr)
		return gn_fail(-EINVAL, "gn_post_send(): wr is NULL");
	return gn_fail(-ENOTCONN, "gn_post_send(): the qp is not connected");
}

int gn_post_send(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad)
{
	int rc;

	if (unlikely(!obj_alive(qp, OBJ_QP) || !wr))
		return post_send_invalid(qp, wr, bad);
	qp_lock(qp);
	if (likely(qp->state >= GN_QP_READY))
		rc = post_send_locked(qp, wr, bad);
	else
		rc = post_send_invalid(qp, wr, bad);
	qp_unlock(qp);
	return rc;
}

int post_one_any(struct gn_qp *qp, const struct gn_wr *wr)
{
	struct gn_wr alone;

	if (unlikely(wr && wr->next)) { /* gn_post_one() ignores next */
		alone = *wr;
		alone.next = NULL;
		wr = &alone;
	}
	return gn_post_send(qp, wr, NULL);
}

int gn_post_one(struct gn_qp *qp, const struct gn_wr *wr)
{
	if (unlikely(!obj_alive(qp, OBJ_QP)))
		return post_send_invalid(qp, wr, NULL);
	return qp->post_one(qp, wr);
}

int gn_fixed_init(struct gn_fixed *fixed, struct gn_qp *qp, const struct gn_wr *wr,
		  uint32_t max_inline)
{
	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (!fixed || !wr || qp->type != GN_QP_RC || (unsigned)wr->op > GN_OP_READ ||
	    wr->n_sge != 1 || !wr->sge || wr->flags & ~(unsigned)WR_FLAGS)
		return gn_fail(-EINVAL, "gn_fixed_init(): not a WRITE or READ of one sge and an RC "
					"qp, or unknown flags");
	*fixed = (struct gn_fixed){
		.qp = qp,
		.post = qp->post_fixed[wr->op],
		.wr = *wr,
		.sge = {.lkey = wr->sge->lkey},
		.addr = wr->sge->addr,
		.remote = wr->to.remote.offset,
		.max_inline = wr->op == GN_OP_READ	  ? 0 :
			      max_inline < qp->max_inline ? max_inline :
							    qp->max_inline,
	};
	return 0;
}

int post_fixed_any(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	struct gn_wr wr = fixed->wr;
	struct gn_sge sge = fixed->sge;

	if (unlikely(offset > UINT64_MAX - fixed->remote))
		return gn_fail(-EINVAL, "gn_post_fixed(): the offset is out of range");
	sge.addr = fixed->addr + offset;
	sge.len_bytes = len;
	wr.id = id;
	wr.next = NULL;
	wr.sge = &sge;
	wr.flags &= ~(unsigned)GN_INLINE;
	if (len && len <= fixed->max_inline) /* max_inline is 0 for a READ */
		wr.flags |= GN_INLINE;
	wr.to.remote.offset = fixed->remote + offset;
	return fixed->qp->post_one(fixed->qp, &wr);
}

int gn_post_fixed(struct gn_fixed *fixed, uint64_t offset, uint32_t len_bytes, uint64_t id)
{
	if (unlikely(!fixed || !obj_alive(fixed->qp, OBJ_QP)))
		return post_send_invalid(fixed ? fixed->qp : NULL, NULL, NULL);
	return fixed->post(fixed, offset, len_bytes, id);
}

static int wr_check_recv(const struct gn_qp *qp, const struct gn_recv_wr *wr)
{
	uint64_t len = 0;

	if (wr->n_sge > qp->max_recv_sge || (wr->n_sge && !wr->sge))
		return gn_fail(-EINVAL, "gn_post_recv(): n_sge is %u, sge is %s: at most %u",
			       wr->n_sge, wr->sge ? "set" : "NULL", qp->max_recv_sge);
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	return len > UINT32_MAX ?
		       gn_fail(-EINVAL, "gn_post_recv(): the receive is 4 GiB or longer") :
		       0;
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
		rc = wr_check_recv(qp, w);
		if (!rc && position == limit)
			rc = gn_fail_text(-EAGAIN, RECVS_FULL);
		if (rc)
			break;
		qp->rq[position++ & qp->rq_mask] = w->id;
	}
	if (position > start) {
		const unsigned n = (unsigned)(position - start);

		taken = qp->obj.fabric->provider->post_recv(qp, wr, n);
		qp->rq_head += taken;
		if (taken < n) {
			rc = gn_fail_text(-EAGAIN, RECVS_FULL);
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
		return obj_check(qp, OBJ_QP) ? -EINVAL :
					       gn_fail(-EINVAL, "gn_post_recv(): wr is NULL");
	}
	qp_lock(qp);
	rc = post_recv_locked(qp, wr, bad);
	qp_unlock(qp);
	return rc;
}
