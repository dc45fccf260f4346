/* SPDX-License-Identifier: MIT */
/*
 * Posting: translates a chain into arrays of verbs requests, which were allocated with the qp, and
 * posts them with one call and one doorbell. SGE lists are not copied: the layouts are the same.
 */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>

static_assert(sizeof(void *) == sizeof(uint64_t), "an SGE's address has 64 bits");
static_assert(sizeof(struct gn_sge) == sizeof(struct ibv_sge), "SGE");
static_assert(offsetof(struct gn_sge, addr) == offsetof(struct ibv_sge, addr), "SGE");
static_assert(offsetof(struct gn_sge, len_bytes) == offsetof(struct ibv_sge, length), "SGE");
static_assert(offsetof(struct gn_sge, lkey) == offsetof(struct ibv_sge, lkey), "SGE");

static const uint8_t opcodes[GN_OPS] = {
	[GN_OP_WRITE] = IBV_WR_RDMA_WRITE,
	[GN_OP_READ] = IBV_WR_RDMA_READ,
	[GN_OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[GN_OP_SEND] = IBV_WR_SEND,
	[GN_OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[GN_OP_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[GN_OP_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/* Verbs does not change the list, but lacks the const. */
static struct ibv_sge *wr_sge_list(const struct gn_sge *sge)
{
	return (struct ibv_sge *)(uintptr_t)sge;
}

int vrb_post_init(struct vrb_qp *qp)
{
	const uint32_t n_send = qp->base.max_send_wr, n_recv = qp->base.max_recv_wr;

	qp->send_wr = gn_alloc(n_send * sizeof(*qp->send_wr), GN_CACHELINE);
	qp->recv_wr = gn_alloc(n_recv * sizeof(*qp->recv_wr), GN_CACHELINE);
	if (!qp->send_wr || !qp->recv_wr) {
		vrb_post_fini(qp);
		return -ENOMEM;
	}
	/* The array stays chained; a post cuts the chain at its end and restores it. */
	for (uint32_t i = 0; i + 1 < n_send; i++)
		qp->send_wr[i].next = &qp->send_wr[i + 1];
	for (uint32_t i = 0; i + 1 < n_recv; i++)
		qp->recv_wr[i].next = &qp->recv_wr[i + 1];
	return 0;
}

void vrb_post_fini(struct vrb_qp *qp)
{
	gn_free(qp->send_wr);
	gn_free(qp->recv_wr);
}

static inline uint64_t wr_id(const struct vrb_qp *qp, uint64_t position, bool recv)
{
	return qp->tag | (position & VRB_POSITION_MASK) << 1 | recv;
}

static inline unsigned wr_send_flags(uint32_t flags)
{
	return (flags & GN_SIGNALED ? IBV_SEND_SIGNALED : 0u) |
	       (flags & GN_INLINE ? IBV_SEND_INLINE : 0u) |
	       (flags & GN_FENCE ? IBV_SEND_FENCE : 0u) |
	       (flags & GN_SOLICITED ? IBV_SEND_SOLICITED : 0u);
}

static inline void wr_fill_send(const struct vrb_qp *qp, struct ibv_send_wr *out,
				const struct gn_wr *wr, uint64_t position)
{
	out->wr_id = wr_id(qp, position, false);
	out->sg_list = wr_sge_list(wr->sge);
	out->num_sge = (int)wr->n_sge;
	out->opcode = (enum ibv_wr_opcode)opcodes[wr->op];
	out->send_flags = wr_send_flags(wr->flags);
	out->imm_data = htonl(wr->imm);
	if (qp->base.type == GN_QP_UD) {
		out->wr.ud.ah = container_of(wr->to.ud.ah, struct vrb_ah, base)->ibv;
		out->wr.ud.remote_qpn = wr->to.ud.qpn;
		out->wr.ud.remote_qkey = wr->to.ud.qkey;
	} else if (wr->op == GN_OP_CAS || wr->op == GN_OP_FAA) {
		out->wr.atomic.remote_addr = wr->to.remote.offset;
		out->wr.atomic.rkey = wr->to.remote.key;
		out->wr.atomic.compare_add = wr->to.remote.compare;
		out->wr.atomic.swap = wr->to.remote.swap;
	} else {
		out->wr.rdma.remote_addr = wr->to.remote.offset;
		out->wr.rdma.rkey = wr->to.remote.key;
	}
}

unsigned vrb_post_send(struct gn_qp *base, const struct gn_wr *wr, unsigned n)
{
	struct vrb_qp *qp = vrb_qp(base);
	struct ibv_send_wr *last = &qp->send_wr[n - 1], *after = last->next, *bad = NULL;
	int rc;

	assert(n && n <= base->max_send_wr);
	for (unsigned i = 0; i < n; i++, wr = wr->next)
		wr_fill_send(qp, &qp->send_wr[i], wr, base->sq_head + i);
	last->next = NULL;
	rc = ibv_post_send(qp->ibv, qp->send_wr, &bad);
	last->next = after;
	if (likely(!rc))
		return n;
	gn_log(GN_LOG_DEBUG, "verbs: a device refused to send: %s", gn_strerror(-rc));
	/* Soft-RoCE sets no bad_wr when it queued all requests and only the doorbell failed. */
	return bad ? (unsigned)(bad - qp->send_wr) : n;
}

unsigned vrb_post_recv(struct gn_qp *base, const struct gn_recv_wr *wr, unsigned n)
{
	struct vrb_qp *qp = vrb_qp(base);
	struct ibv_recv_wr *last = &qp->recv_wr[n - 1], *after = last->next, *bad = NULL;
	int rc;

	assert(n && n <= base->max_recv_wr);
	for (unsigned i = 0; i < n; i++, wr = wr->next) {
		qp->recv_wr[i].wr_id = wr_id(qp, base->rq_head + i, true);
		qp->recv_wr[i].sg_list = wr_sge_list(wr->sge);
		qp->recv_wr[i].num_sge = (int)wr->n_sge;
	}
	last->next = NULL;
	rc = ibv_post_recv(qp->ibv, qp->recv_wr, &bad);
	last->next = after;
	/*
	 * A receive rings no doorbell on Soft-RoCE: without this, one posted in error would never
	 * complete.
	 */
	if (unlikely(base->state == GN_QP_ERROR))
		vrb_qp_fail(qp);
	if (likely(!rc))
		return n;
	gn_log(GN_LOG_DEBUG, "verbs: a device refused a receive: %s", gn_strerror(-rc));
	return bad ? (unsigned)(bad - qp->recv_wr) : n;
}
