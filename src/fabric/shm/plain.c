/* SPDX-License-Identifier: MIT */
/*
 * The short way of what most requests are: one WRITE, READ or atomic of one piece, which nothing is
 * posted before and nothing is wrong with. Everything is checked that post.c checks; a request that
 * any check does not like, or whose key is new here, is left to post.c as it came.
 */
#include "fabric/shm/access.h"

/* n_sge and op of a request, as one value: they lie side by side. */
static force_inline uint64_t pieces_and_op(const struct gn_wr *wr)
{
	uint64_t both;

	_Static_assert(offsetof(struct gn_wr, op) == offsetof(struct gn_wr, n_sge) + 4, "both");
	memcpy(&both, &wr->n_sge, sizeof(both));
	return both;
}

#define ONE_PIECE(op) (1u | (uint64_t)(op) << 32)
#define WR_FLAGS      (GN_SIGNALED | GN_INLINE | GN_FENCE | GN_SOLICITED)

/* What is looked at before the connection is, read once. */
struct piece {
	uint8_t *addr;
	uint32_t len, key;
	uint64_t offset;
};

/* Our own end of it is in order: flags, length, and the region. Not for lengths of 0. */
static force_inline bool local_ok(const struct shm_qp *qp, const struct gn_wr *wr,
				  const struct piece *p, bool reads)
{
	const struct gn_sge sge = {p->addr, p->len, wr->sge->lkey};
	const uint32_t flags = wr->flags;

	if (likely(!(flags & ~(uint32_t)(WR_FLAGS & ~GN_INLINE))))
		return likely(soft_piece_ok(qp->keys, qp->qp.pd, &sge, reads ? GN_LOCAL_WRITE : 0));
	return flags <= WR_FLAGS && !reads && p->len <= qp->qp.max_inline;
}

/* Done, or nothing was. small: of 8 to COPY_SMALL bytes, aligned, and so is the length. */
static force_inline bool copy_plain(struct shm_qp *qp, const struct piece *p, bool reads,
				    bool small)
{
	struct area_busy *busy = &qp->conn.mine->busy;
	uint8_t *remote;
	bool did;

	shm_busy_begin(&busy->posting);
	did = likely(shm_peer_open(&qp->conn) &&
		     shm_view_find(&qp->conn, p->key, p->offset, p->len,
				   reads ? VIEW_READ : VIEW_WRITE, &remote));
	if (did && small && reads)
		copy_fetch_short(p->addr, remote, p->len);
	else if (did && small)
		copy_publish_short(remote, p->addr, p->len);
	else if (did && reads)
		copy_fetch(p->addr, remote, p->len);
	else if (did)
		copy_publish(remote, p->addr, p->len);
	shm_busy_end(&busy->posting);
	return did;
}

static force_inline struct piece piece_of(const struct gn_wr *wr)
{
	return (struct piece){wr->sge->addr, wr->sge->len_bytes, wr->to.remote.key,
			      wr->to.remote.offset};
}

/* ---- one that is done at once ---- */

/* Of any length and alignment. */
static no_inline int post_one_long(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	const struct piece p = piece_of(wr);

	if (unlikely(p.len - 1 >= PLAIN_LEN || !local_ok(qp, wr, &p, reads) ||
		     !copy_plain(qp, &p, reads, false)))
		return post_one_any(&qp->qp, wr);
	post_counted(&qp->qp, reads ? GN_OP_READ : GN_OP_WRITE, p.len);
	return 1;
}

/*
 * One for WRITEs and one for READs, so that neither asks what it is. What is not short ends in a
 * jump, so that nothing needs to be saved.
 */
static force_inline int post_one(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	struct piece p;

	if (unlikely(!wr->sge))
		return post_one_any(&qp->qp, wr);
	p = piece_of(wr);
	if (unlikely(p.len - 1 >= COPY_SMALL || ((uintptr_t)p.addr | p.offset | p.len) & 7))
		return post_one_long(qp, wr, reads);
	if (unlikely(!local_ok(qp, wr, &p, reads) || !copy_plain(qp, &p, reads, true)))
		return post_one_any(&qp->qp, wr);
	post_counted(&qp->qp, reads ? GN_OP_READ : GN_OP_WRITE, p.len);
	return 1;
}

/* A CAS or FAA: 8 bytes at both ends, aligned at the target. */
static no_inline int post_one_atomic(struct shm_qp *qp, const struct gn_wr *wr)
{
	struct area_busy *busy = &qp->conn.mine->busy;
	uint64_t old = 0;
	uint8_t *remote;
	struct piece p;
	bool did;

	if (unlikely(!wr->sge))
		return post_one_any(&qp->qp, wr);
	p = piece_of(wr);
	if (unlikely(p.len != 8 || p.offset % 8 || !(qp->qp.caps & GN_CAP_ATOMICS) ||
		     !local_ok(qp, wr, &p, true)))
		return post_one_any(&qp->qp, wr);
	shm_busy_begin(&busy->posting);
	did = shm_peer_open(&qp->conn) &&
	      shm_view_find(&qp->conn, p.key, p.offset, p.len, VIEW_ATOMIC, &remote);
	if (likely(did))
		old = shm_atomic(wr, remote);
	shm_busy_end(&busy->posting);
	if (unlikely(!did))
		return post_one_any(&qp->qp, wr);
	memcpy(p.addr, &old, sizeof(old));
	post_counted(&qp->qp, wr->op, p.len);
	return 1;
}

/* With nothing in the send queue there is nothing that waits: what is posted now is the next. */
int shm_post_one(struct gn_qp *base, const struct gn_wr *wr)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (likely(wr && base->state == GN_QP_READY && base->sq_head == base->sq_tail)) {
		const uint64_t what = pieces_and_op(wr);

		if (what == ONE_PIECE(GN_OP_WRITE))
			return post_one(qp, wr, false);
		if (what == ONE_PIECE(GN_OP_READ))
			return post_one(qp, wr, true);
		if (what == ONE_PIECE(GN_OP_CAS) || what == ONE_PIECE(GN_OP_FAA))
			return post_one_atomic(qp, wr);
	}
	return post_one_any(base, wr);
}

/* ---- a plain post ---- */

/* The completion of a request that was done. */
static inline void complete_plain(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	struct shm_cq *cq = (struct shm_cq *)qp->qp.send_cq;
	const struct gn_wc done = {.id = qp->qp.sq_head,
				   .qp = &qp->qp,
				   .status = GN_WC_OK,
				   .op = reads ? GN_OP_READ : GN_OP_WRITE,
				   .len_bytes = reads ? wr->sge->len_bytes : 0};
	struct gn_wc *wc = soft_cq_take(&cq->soft);

	if (likely(wc))
		*wc = done;
	else
		shm_complete(cq, &done, false);
}

static force_inline bool post_plain(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	const struct piece p = piece_of(wr);

	if (unlikely(!local_ok(qp, wr, &p, reads) || !copy_plain(qp, &p, reads, false)))
		return false;
	if (wr->flags & GN_SIGNALED)
		complete_plain(qp, wr, reads);
	return true;
}

bool shm_post_plain(struct gn_qp *base, const struct gn_wr *wr)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (unlikely(base->state != GN_QP_READY || !soft_sq_empty(&qp->sq)))
		return false;
	return wr->op == GN_OP_READ ? post_plain(qp, wr, true) : post_plain(qp, wr, false);
}
