/* SPDX-License-Identifier: MIT */
/*
 * Posting: every argument check happens here, once, and the queues' bookkeeping with it; a provider
 * gets requests that are well-formed and fit its queues.
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
/* Requests that need none of the special checks. */
#define PLAIN_OPS (BIT(GN_OP_WRITE) | BIT(GN_OP_READ) | BIT(GN_OP_SEND) | BIT(GN_OP_WRITE_IMM))
#define WR_FLAGS  (GN_SIGNALED | GN_INLINE | GN_FENCE | GN_SOLICITED)

#define SENDS_FULL "gn_post_send(): the send queue is full; poll its cq"
#define RECVS_FULL "gn_post_recv(): the receive queue is full; poll its cq"

static int check_atomic(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (!(qp->caps & GN_CAP_ATOMICS))
		return gn_fail(-EOPNOTSUPP, "gn_post_send(): this connection has no atomics");
	if (len != 8 || wr->n_sge != 1 || wr->to.remote.offset % 8)
		return gn_fail(-EINVAL,
			       "gn_post_send(): an atomic has one sge of 8 bytes, and an offset "
			       "that is a multiple of 8");
	return 0;
}

static int check_ud(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	if (!obj_alive(wr->to.ud.ah, OBJ_AH) || wr->to.ud.ah->qp != qp)
		return gn_fail(-EINVAL, "gn_post_send(): to.ud.ah is no address of this qp");
	/* Soft-RoCE would report success for a datagram that is too long, and drop it. */
	if (len > qp->obj.fabric->attr.ud_mtu)
		return gn_fail(-EMSGSIZE, "gn_post_send(): a datagram of %llu bytes: ud_mtu is %u",
			       (unsigned long long)len, qp->obj.fabric->attr.ud_mtu);
	return 0;
}

/* What few requests need: inline data, atomics, datagrams, the longest messages. */
static int check_special(const struct gn_qp *qp, const struct gn_wr *wr, uint64_t len)
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
		return check_atomic(qp, wr, len);
	return qp->type == GN_QP_UD ? check_ud(qp, wr, len) : 0;
}

static inline uint64_t payload(const struct gn_wr *wr)
{
	uint64_t len = 0;

	if (likely(wr->n_sge == 1))
		return wr->sge->len_bytes;
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	return len;
}

static no_inline int refuse_wr(const struct gn_qp *qp, const struct gn_wr *wr)
{
	if ((unsigned)wr->op >= GN_OPS || wr->flags & ~(unsigned)WR_FLAGS)
		return gn_fail(-EINVAL, "gn_post_send(): no such op %u, or flags %x",
			       (unsigned)wr->op, wr->flags);
	if (wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge))
		return gn_fail(-EINVAL, "gn_post_send(): n_sge is %u, sge is %s: at most %u",
			       wr->n_sge, wr->sge ? "set" : "NULL", qp->max_send_sge);
	return gn_fail(-EINVAL, "gn_post_send(): %s is no operation of %s qp", gn_op_str(wr->op),
		       qp->type == GN_QP_RC ? "an RC" : "a UD");
}

/* 0, or what is wrong with the request. */
static inline int check_send(const struct gn_qp *qp, const struct gn_wr *wr)
{
	const unsigned op = (unsigned)wr->op;
	uint64_t len;

	if (unlikely(op >= GN_OPS || wr->flags & ~(unsigned)WR_FLAGS ||
		     wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge)))
		return refuse_wr(qp, wr);
	len = payload(wr);
	if (likely(qp->type == GN_QP_RC && PLAIN_OPS & BIT(op) && len <= PLAIN_LEN &&
		   (!(wr->flags & GN_INLINE) || (op != GN_OP_READ && len <= qp->max_inline))))
		return 0;
	if (unlikely(!((qp->type == GN_QP_RC ? RC_OPS : UD_OPS) & BIT(op))))
		return refuse_wr(qp, wr);
	return check_special(qp, wr, len);
}

/* How many of the chain can be posted, and what is wrong with the next one. */
static inline unsigned check_chain(const struct gn_qp *qp, const struct gn_wr *wr, int *rc)
{
	const uint64_t room = qp->sq_tail + qp->max_send_wr - qp->sq_head;
	unsigned n = 0;

	for (*rc = 0; wr; wr = wr->next, n++) {
		*rc = check_send(qp, wr);
		if (likely(!*rc) && unlikely(n == room))
			*rc = gn_fail_text(-EAGAIN, SENDS_FULL);
		if (unlikely(*rc))
			break;
	}
	return n;
}

static inline void count(struct gn_qp *qp, enum gn_op op, uint64_t wrs, uint64_t bytes)
{
	counter_add(&qp->count.wrs[op], wrs);
	counter_add(&qp->count.bytes[op], bytes);
}

/*
 * Enter what was posted in the send queue and the counters; consecutive requests of one operation
 * count together. This comes after the provider has had them, whose peers are waiting. Returns the
 * first request not posted.
 */
static inline const struct gn_wr *enter_chain(struct gn_qp *qp, const struct gn_wr *wr, unsigned n)
{
	const uint64_t end = qp->sq_head + n;
	uint64_t position = qp->sq_head, bytes = qp->sq_bytes, run_start = position,
		 run_bytes = bytes;
	enum gn_op op = wr->op;

	for (; position != end; wr = wr->next) {
		const uint64_t len = payload(wr);

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
	count(qp, op, position - run_start, bytes - run_bytes);
	counter_add(&qp->count.doorbells, 1);
	qp->sq_head = end;
	qp->sq_bytes = bytes;
	__atomic_store_n(&qp->count.bytes_in_flight, bytes - qp->sq_bytes_done, __ATOMIC_RELAXED);
	return wr;
}

static no_inline int post_chain(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad)
{
	int rc;
	const unsigned n = check_chain(qp, wr, &rc);
	const unsigned taken = likely(n) ? qp->obj.fabric->provider->post_send(qp, wr, n) : 0;
	const struct gn_wr *end = likely(taken) ? enter_chain(qp, wr, taken) : wr;

	if (unlikely(taken < n))
		rc = gn_fail_text(-EAGAIN, SENDS_FULL);
	if (unlikely(rc) && bad)
		*bad = end;
	return rc;
}

/*
 * One request as most are: a WRITE or READ of one piece, with nothing wrong or special about it.
 * What check_send() and check_chain() would find out, at less expense.
 */
static inline bool is_plain(const struct gn_qp *qp, const struct gn_wr *wr)
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
	_Static_assert(GN_OP_WRITE == 0 && GN_OP_READ == 1 && GN_INLINE == 2, "they make an index");
	if (qp->type != GN_QP_RC)
		return;
	qp->plain_len[GN_OP_WRITE] = qp->plain_len[GN_OP_READ] = PLAIN_LEN;
	qp->plain_len[GN_OP_WRITE | GN_INLINE] = qp->max_inline < PLAIN_LEN ? qp->max_inline :
									      PLAIN_LEN;
}

/* Like enter_chain() for one of them. */
static inline void enter_plain(struct gn_qp *qp, const struct gn_wr *wr)
{
	const uint32_t len = wr->sge->len_bytes;
	const uint64_t position = qp->sq_head, bytes = qp->sq_bytes + len;

	qp->sq[position & qp->sq_mask] = (struct sq_entry){
		.id = wr->id,
		.bytes_to = bytes,
		.len_bytes = len,
		.op = (uint8_t)wr->op,
	};
	count(qp, wr->op, 1, len);
	counter_add(&qp->count.doorbells, 1);
	qp->sq_head = position + 1;
	qp->sq_bytes = bytes;
	__atomic_store_n(&qp->count.bytes_in_flight, bytes - qp->sq_bytes_done, __ATOMIC_RELAXED);
}

static inline int post_send_locked(struct gn_qp *qp, const struct gn_wr *wr,
				   const struct gn_wr **bad)
{
	if (unlikely(!is_plain(qp, wr) || !qp->obj.fabric->provider->post_plain(qp, wr)))
		return post_chain(qp, wr, bad);
	enter_plain(qp, wr);
	return 0;
}

static no_inline int refuse_send(const struct gn_qp *qp, const struct gn_wr *wr,
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
		return refuse_send(qp, wr, bad);
	qp_lock(qp);
	if (likely(qp->state >= GN_QP_READY))
		rc = post_send_locked(qp, wr, bad);
	else
		rc = refuse_send(qp, wr, bad);
	qp_unlock(qp);
	return rc;
}

int post_one_any(struct gn_qp *qp, const struct gn_wr *wr)
{
	struct gn_wr alone;

	if (unlikely(wr && wr->next)) { /* which a post of one does not look at */
		alone = *wr;
		alone.next = NULL;
		wr = &alone;
	}
	return gn_post_send(qp, wr, NULL);
}

int gn_post_one(struct gn_qp *qp, const struct gn_wr *wr)
{
	if (unlikely(!obj_alive(qp, OBJ_QP)))
		return refuse_send(qp, wr, NULL);
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
		return gn_fail(-EINVAL, "gn_post_fixed(): the offset is beyond everything");
	sge.addr = fixed->addr + offset;
	sge.len_bytes = len;
	wr.id = id;
	wr.next = NULL;
	wr.sge = &sge;
	wr.flags &= ~(unsigned)GN_INLINE;
	if (len && len <= fixed->max_inline) /* which is 0 of a READ */
		wr.flags |= GN_INLINE;
	wr.to.remote.offset = fixed->remote + offset;
	return fixed->qp->post_one(fixed->qp, &wr);
}

int gn_post_fixed(struct gn_fixed *fixed, uint64_t offset, uint32_t len_bytes, uint64_t id)
{
	if (unlikely(!fixed || !obj_alive(fixed->qp, OBJ_QP)))
		return refuse_send(fixed ? fixed->qp : NULL, NULL, NULL);
	return fixed->post(fixed, offset, len_bytes, id);
}

static int check_recv(const struct gn_qp *qp, const struct gn_recv_wr *wr)
{
	uint64_t len = 0;

	if (wr->n_sge > qp->max_recv_sge || (wr->n_sge && !wr->sge))
		return gn_fail(-EINVAL, "gn_post_recv(): n_sge is %u, sge is %s: at most %u",
			       wr->n_sge, wr->sge ? "set" : "NULL", qp->max_recv_sge);
	for (uint32_t i = 0; i < wr->n_sge; i++)
		len += wr->sge[i].len_bytes;
	return len > UINT32_MAX ? gn_fail(-EINVAL, "gn_post_recv(): 4 GiB and more") : 0;
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
