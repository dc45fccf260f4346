/* SPDX-License-Identifier: MIT */
/*
 * What an RC request does at its target. Nothing is believed: key, protection domain, rights and
 * range are the target's to check, from the target's own table.
 */
#include <assert.h>

#include "fabric/sim/sim.h"

/* The target answers with an error; as on a real device, that is the end of its own qp as well. */
static enum sim_placed refuse(struct sim_qp *to, enum gn_wc_status why, enum gn_wc_status *status)
{
	sim_qp_fail(to);
	*status = why;
	return SIM_REFUSED;
}

/* The target's memory that the request is about, or NULL if it must not touch it. */
static uint8_t *find_range(const struct sim_qp *to, const struct gn_wr *wr, uint64_t len_bytes,
			   uint32_t access)
{
	const struct soft_key *key =
		soft_key_find(&sim_fabric_of(&to->qp.obj)->keys, wr->to.remote.key, to->qp.pd);
	const uint64_t offset = wr->to.remote.offset;

	if (!key || (key->access & access) != access)
		return NULL;
	if (offset > key->length || len_bytes > key->length - offset)
		return NULL;
	return key->addr + offset;
}

static void changed(const struct sim_qp *qp, const void *addr, uint64_t len_bytes)
{
	sim_words_changed(sim_fabric_of(&qp->qp.obj)->proc, addr, len_bytes);
}

static void changed_pieces(const struct sim_qp *qp, const struct gn_sge *sge, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		changed(qp, sge[i].addr, sge[i].len_bytes);
}

/* ---- messages ---- */

enum gn_wc_status sim_recv_check(const struct sim_qp *to, uint64_t len_bytes)
{
	const struct soft_keys *keys = &sim_fabric_of(&to->qp.obj)->keys;

	if (soft_rq_len(&to->rq) < len_bytes)
		return GN_WC_LOCAL_LENGTH;
	if (!soft_sge_ok(keys, to->qp.pd, soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq),
			 GN_LOCAL_WRITE))
		return GN_WC_LOCAL_ACCESS;
	return GN_WC_OK;
}

void sim_recv_fill(struct sim_qp *to, uint64_t offset, const struct gn_wr *wr)
{
	for (uint32_t i = 0; i < wr->n_sge; i++) {
		soft_scatter(soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq), offset, wr->sge[i].addr,
			     wr->sge[i].len_bytes);
		offset += wr->sge[i].len_bytes;
	}
	changed_pieces(to, soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq));
}

static enum sim_placed place_send(const struct gn_wr *wr, uint64_t len_bytes, struct sim_qp *to,
				  enum gn_wc_status *status)
{
	struct gn_wc wc = {
		.op = GN_OP_RECV,
		.len_bytes = (uint32_t)len_bytes,
		.imm = wr->imm,
		.flags = wr->op == GN_OP_SEND_IMM ? GN_WC_IMM : 0,
	};

	if (soft_rq_empty(&to->rq))
		return SIM_NOT_READY;
	wc.status = sim_recv_check(to, len_bytes);
	if (wc.status == GN_WC_OK)
		sim_recv_fill(to, 0, wr);
	sim_recv_complete(to, &wc, wr->flags & GN_SOLICITED);
	if (wc.status == GN_WC_OK)
		return SIM_PLACED;
	return refuse(to,
		      wc.status == GN_WC_LOCAL_LENGTH ? GN_WC_REMOTE_INVALID : GN_WC_REMOTE_FAILED,
		      status);
}

/* ---- one-sided ---- */

static enum sim_placed place_write(const struct gn_wr *wr, uint64_t len_bytes, struct sim_qp *to,
				   enum gn_wc_status *status)
{
	struct gn_wc wc = {
		.op = GN_OP_RECV_WRITE_IMM,
		.len_bytes = (uint32_t)len_bytes,
		.imm = wr->imm,
		.flags = GN_WC_IMM,
	};

	if (wr->op == GN_OP_WRITE_IMM && soft_rq_empty(&to->rq))
		return SIM_NOT_READY;
	if (len_bytes) {
		uint8_t *addr = find_range(to, wr, len_bytes, GN_REMOTE_WRITE);

		if (!addr)
			return refuse(to, GN_WC_REMOTE_ACCESS, status);
		soft_write(addr, wr->sge, wr->n_sge);
		changed(to, addr, len_bytes);
	}
	if (wr->op == GN_OP_WRITE_IMM)
		sim_recv_complete(to, &wc, wr->flags & GN_SOLICITED);
	return SIM_PLACED;
}

static enum sim_placed place_read(struct sim_qp *from, const struct gn_wr *wr, uint64_t len_bytes,
				  struct sim_qp *to, enum gn_wc_status *status)
{
	const uint8_t *addr;

	if (!len_bytes)
		return SIM_PLACED;
	addr = find_range(to, wr, len_bytes, GN_REMOTE_READ);
	if (!addr)
		return refuse(to, GN_WC_REMOTE_ACCESS, status);
	soft_read(wr->sge, wr->n_sge, addr);
	changed_pieces(from, wr->sge, wr->n_sge);
	return SIM_PLACED;
}

static enum sim_placed place_atomic(struct sim_qp *from, const struct gn_wr *wr, struct sim_qp *to,
				    enum gn_wc_status *status)
{
	uint8_t *addr = find_range(to, wr, sizeof(uint64_t), GN_REMOTE_ATOMIC);
	uint64_t *word = (void *)addr;
	uint64_t old;

	if (!addr)
		return refuse(to, GN_WC_REMOTE_ACCESS, status);
	if ((uintptr_t)addr % sizeof(uint64_t))
		return refuse(to, GN_WC_REMOTE_INVALID, status);
	old = *word;
	if (wr->op == GN_OP_FAA)
		*word = old + wr->to.remote.compare;
	else if (old == wr->to.remote.compare)
		*word = wr->to.remote.swap;
	changed(to, addr, sizeof(uint64_t));
	soft_scatter(wr->sge, wr->n_sge, 0, (const uint8_t *)&old, sizeof(old));
	changed_pieces(from, wr->sge, wr->n_sge);
	return SIM_PLACED;
}

enum sim_placed sim_place(struct sim_qp *from, const struct gn_wr *wr, struct sim_qp *to,
			  enum gn_wc_status *status)
{
	const uint64_t len_bytes = soft_sge_len(wr->sge, wr->n_sge);

	switch (wr->op) {
	case GN_OP_SEND:
	case GN_OP_SEND_IMM:
		return place_send(wr, len_bytes, to, status);
	case GN_OP_WRITE:
	case GN_OP_WRITE_IMM:
		return place_write(wr, len_bytes, to, status);
	case GN_OP_READ:
		return place_read(from, wr, len_bytes, to, status);
	case GN_OP_CAS:
	case GN_OP_FAA:
		return place_atomic(from, wr, to, status);
	default:
		assert(false && "a post lets no other operation through");
		return refuse(to, GN_WC_REMOTE_INVALID, status);
	}
}
