/* SPDX-License-Identifier: MIT */
/*
 * Fast path for the most common request: one valid WRITE, READ or atomic with one SGE and nothing
 * queued before it. All checks of post.c are made; a request that fails a check, or whose key has
 * no view yet, is left to post.c unchanged.
 */
#include "fabric/shm/access.h"

/* n_sge and op as one value: the two are adjacent. */
static force_inline uint64_t n_sge_and_op(const struct gn_wr *wr)
{
	uint64_t both;

	_Static_assert(offsetof(struct gn_wr, op) == offsetof(struct gn_wr, n_sge) + 4, "adjacent");
	memcpy(&both, &wr->n_sge, sizeof(both));
	return both;
}

#define ONE_PIECE(op) (1u | (uint64_t)(op) << 32)
#define WR_FLAGS      (GN_SIGNALED | GN_INLINE | GN_FENCE | GN_SOLICITED)

/* Values that are loaded once, before the connection is checked. */
struct plain_sge {
	uint8_t *addr;
	uint32_t len, key;
	uint64_t offset;
};

/* Checks flags, length (not 0) and the local region. */
static force_inline bool plain_local_ok(const struct shm_qp *qp, const struct gn_wr *wr,
					const struct plain_sge *p, bool reads)
{
	const struct gn_sge sge = {p->addr, p->len, wr->sge->lkey};
	const uint32_t flags = wr->flags;

	if (likely(!(flags & ~(uint32_t)(WR_FLAGS & ~GN_INLINE))))
		return likely(
			soft_one_sge_ok(qp->keys, qp->qp.pd, &sge, reads ? GN_LOCAL_WRITE : 0));
	return flags <= WR_FLAGS && !reads && p->len <= qp->qp.max_inline;
}

/* Copies, or does nothing and returns false. small: 8 to COPY_SMALL bytes, aligned, whole words. */
static force_inline bool plain_copy(struct shm_qp *qp, const struct plain_sge *p, bool reads,
				    bool small)
{
	struct area_busy *busy = &qp->conn.own_area->busy;
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

static force_inline struct plain_sge plain_sge_of(const struct gn_wr *wr)
{
	return (struct plain_sge){wr->sge->addr, wr->sge->len_bytes, wr->to.remote.key,
				  wr->to.remote.offset};
}

/* ---- gn_post_one() ---- */

/* Any length and alignment. */
static no_inline int plain_post_long(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	const struct plain_sge p = plain_sge_of(wr);

	if (unlikely(p.len - 1 >= PLAIN_LEN || !plain_local_ok(qp, wr, &p, reads) ||
		     !plain_copy(qp, &p, reads, false)))
		return post_one_any(&qp->qp, wr);
	post_counted(&qp->qp, reads ? GN_OP_READ : GN_OP_WRITE, p.len);
	return 1;
}

/*
 * Inlined once for WRITEs and once for READs. The slow path is a tail call, so that no registers
 * need to be saved.
 */
static force_inline int plain_post_one(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	struct plain_sge p;

	if (unlikely(!wr->sge))
		return post_one_any(&qp->qp, wr);
	p = plain_sge_of(wr);
	if (unlikely(p.len - 1 >= COPY_SMALL || ((uintptr_t)p.addr | p.offset | p.len) & 7))
		return plain_post_long(qp, wr, reads);
	if (unlikely(!plain_local_ok(qp, wr, &p, reads) || !plain_copy(qp, &p, reads, true)))
		return post_one_any(&qp->qp, wr);
	post_counted(&qp->qp, reads ? GN_OP_READ : GN_OP_WRITE, p.len);
	return 1;
}

/* CAS or FAA: 8 bytes on both sides, aligned at the target. */
static no_inline int plain_post_atomic(struct shm_qp *qp, const struct gn_wr *wr)
{
	struct area_busy *busy = &qp->conn.own_area->busy;
	uint64_t old = 0;
	uint8_t *remote;
	struct plain_sge p;
	bool did;

	if (unlikely(!wr->sge))
		return post_one_any(&qp->qp, wr);
	p = plain_sge_of(wr);
	if (unlikely(p.len != 8 || p.offset % 8 || !(qp->qp.caps & GN_CAP_ATOMICS) ||
		     !plain_local_ok(qp, wr, &p, true)))
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

/* An empty send queue has no blocked request: this one is the next. */
int shm_post_one(struct gn_qp *base, const struct gn_wr *wr)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (likely(wr && base->state == GN_QP_READY && base->sq_head == base->sq_tail)) {
		const uint64_t what = n_sge_and_op(wr);

		if (what == ONE_PIECE(GN_OP_WRITE))
			return plain_post_one(qp, wr, false);
		if (what == ONE_PIECE(GN_OP_READ))
			return plain_post_one(qp, wr, true);
		if (what == ONE_PIECE(GN_OP_CAS) || what == ONE_PIECE(GN_OP_FAA))
			return plain_post_atomic(qp, wr);
	}
	return post_one_any(base, wr);
}

/* ---- gn_post_send() of one request ---- */

/* Completes an executed request. */
static inline void plain_complete(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
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

static force_inline bool plain_post(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	const struct plain_sge p = plain_sge_of(wr);

	if (unlikely(!plain_local_ok(qp, wr, &p, reads) || !plain_copy(qp, &p, reads, false)))
		return false;
	if (wr->flags & GN_SIGNALED)
		plain_complete(qp, wr, reads);
	return true;
}

bool shm_post_plain(struct gn_qp *base, const struct gn_wr *wr)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (unlikely(base->state != GN_QP_READY || !soft_sq_empty(&qp->sq)))
		return false;
	return wr->op == GN_OP_READ ? plain_post(qp, wr, true) : plain_post(qp, wr, false);
}
