/* SPDX-License-Identifier: MIT */
/*
 * The effect of an RC request at its target. The target checks key, protection domain, rights and
 * range against its own table.
 */
#include <assert.h>

#include "base/mutant.h"
#include "fabric/sim/sim.h"

/* The target responds with an error and puts its own qp in error, as real devices do. */
static enum sim_placed place_refuse(struct sim_qp *to, enum gn_wc_status why, struct sim_send *send)
{
	sim_qp_fail(to);
	send->status = why;
	return SIM_REFUSED;
}

static uint8_t *place_find_range(const struct sim_qp *to, const struct gn_wr *wr,
				 uint64_t len_bytes, uint32_t access)
{
	const struct soft_key *key =
		soft_key_find(sim_fabric_of(&to->qp.obj)->keys.table, wr->to.remote.key, to->qp.pd);
	const uint64_t offset = wr->to.remote.offset;

	if (!key || (key->access & access) != access)
		return NULL;
	if (offset > key->length || len_bytes > key->length - offset)
		return NULL;
	return key->addr + offset;
}

void sim_changed(const struct sim_qp *qp, const void *addr, uint64_t len_bytes)
{
	struct sim_proc *proc = sim_fabric_of(&qp->qp.obj)->proc;

	sim_words_placed(proc, addr, len_bytes);
	sim_held_placed(proc, addr, len_bytes);
}

static void changed_pieces(const struct sim_qp *qp, const struct gn_sge *sge, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sim_changed(qp, sge[i].addr, sge[i].len_bytes);
}

/* ---- messages ---- */

enum gn_wc_status sim_recv_check(const struct sim_qp *to, uint64_t len_bytes)
{
	const struct soft_key *keys = sim_fabric_of(&to->qp.obj)->keys.table;

	if (soft_rq_len(&to->rq) < len_bytes)
		return GN_WC_LOCAL_LENGTH;
	if (!soft_sge_ok(keys, to->qp.pd, soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq),
			 GN_LOCAL_WRITE))
		return GN_WC_LOCAL_ACCESS;
	return GN_WC_OK;
}

void sim_recv_fill(struct sim_qp *to, uint64_t offset, const uint8_t *data, uint64_t len_bytes)
{
	soft_scatter(soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq), offset, data, len_bytes);
	changed_pieces(to, soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq));
}

static void fill_from(struct sim_qp *to, const struct gn_wr *wr)
{
	uint64_t offset = 0;

	for (uint32_t i = 0; i < wr->n_sge; i++) {
		sim_recv_fill(to, offset, wr->sge[i].addr, wr->sge[i].len_bytes);
		offset += wr->sge[i].len_bytes;
	}
}

/* A fault may hide posted receives. */
static bool place_no_receive(const struct sim_qp *to)
{
	return soft_rq_empty(&to->rq) ||
	       sim_fault(sim_fabric_of(&to->qp.obj)->sim, SIM_RNR, sim_node_of(to)->index);
}

static enum sim_placed place_send(const struct gn_wr *wr, struct sim_send *send, struct sim_qp *to)
{
	const uint64_t len_bytes = send->bytes;
	struct gn_wc wc = {
		.op = GN_OP_RECV,
		.len_bytes = (uint32_t)len_bytes,
		.imm = wr->imm,
		.flags = wr->op == GN_OP_SEND_IMM ? GN_WC_IMM : 0,
	};

	if (place_no_receive(to))
		return SIM_NOT_READY;
	sim_flights_land(to);
	wc.status = sim_recv_check(to, len_bytes);
	if (wc.status == GN_WC_OK)
		fill_from(to, wr);
	sim_recv_complete(to, &wc, wr->flags & GN_SOLICITED);
	if (wc.status == GN_WC_OK)
		return SIM_PLACED;
	return place_refuse(
		to, wc.status == GN_WC_LOCAL_LENGTH ? GN_WC_REMOTE_INVALID : GN_WC_REMOTE_FAILED,
		send);
}

/* ---- one-sided ---- */

static enum sim_placed place_write(struct sim_qp *from, unsigned from_node, const struct gn_wr *wr,
				   struct sim_send *send, struct sim_qp *to)
{
	const uint64_t len_bytes = send->bytes;
	struct gn_wc wc = {
		.op = GN_OP_RECV_WRITE_IMM,
		.len_bytes = (uint32_t)len_bytes,
		.imm = wr->imm,
		.flags = GN_WC_IMM,
	};

	if (wr->op == GN_OP_WRITE_IMM && place_no_receive(to))
		return SIM_NOT_READY;
	if (len_bytes) {
		uint8_t *addr = place_find_range(to, wr, len_bytes, GN_REMOTE_WRITE);

		if (!addr)
			return place_refuse(to, GN_WC_REMOTE_ACCESS, send);
		if (!(from && mutant("write-dropped", from->passed[SIM_PLACE])) &&
		    !sim_flight_begin(from_node, wr, to, addr, len_bytes)) {
			soft_write(addr, wr->sge, wr->n_sge);
			sim_changed(to, addr, len_bytes);
		}
	}
	if (wr->op == GN_OP_WRITE_IMM) {
		sim_flights_land(to);
		sim_recv_complete(to, &wc, wr->flags & GN_SOLICITED);
	}
	return SIM_PLACED;
}

static enum sim_placed place_read(struct sim_qp *from, const struct gn_wr *wr,
				  struct sim_send *send, struct sim_qp *to)
{
	const uint64_t len_bytes = send->bytes;
	const uint8_t *addr;

	if (!len_bytes)
		return SIM_PLACED;
	addr = place_find_range(to, wr, len_bytes, GN_REMOTE_READ);
	if (!addr)
		return place_refuse(to, GN_WC_REMOTE_ACCESS, send);
	if (!mutant("stale-read", from->passed[SIM_PLACE]))
		sim_flights_land(to);
	if (sim_sample_more(from, wr, send, addr, len_bytes))
		return SIM_UNFINISHED;
	if (!send->sample)
		soft_read(wr->sge, wr->n_sge, addr);
	sim_sample_drop(send);
	changed_pieces(from, wr->sge, wr->n_sge);
	return SIM_PLACED;
}

static enum sim_placed place_atomic(struct sim_qp *from, const struct gn_wr *wr,
				    struct sim_send *send, struct sim_qp *to)
{
	uint8_t *addr = place_find_range(to, wr, sizeof(uint64_t), GN_REMOTE_ATOMIC);
	uint64_t *word = (void *)addr;
	uint64_t old;

	if (!addr)
		return place_refuse(to, GN_WC_REMOTE_ACCESS, send);
	if ((uintptr_t)addr % sizeof(uint64_t))
		return place_refuse(to, GN_WC_REMOTE_INVALID, send);
	sim_flights_land(to);
	old = *word;
	if (wr->op == GN_OP_FAA)
		*word = old + wr->to.remote.compare;
	else if (old == wr->to.remote.compare)
		*word = wr->to.remote.swap;
	sim_changed(to, addr, sizeof(uint64_t));
	soft_scatter(wr->sge, wr->n_sge, 0, (const uint8_t *)&old, sizeof(old));
	changed_pieces(from, wr->sge, wr->n_sge);
	return SIM_PLACED;
}

enum sim_placed sim_place(struct sim_qp *from, unsigned from_node, const struct gn_wr *wr,
			  struct sim_send *send, struct sim_qp *to)
{
	switch (wr->op) {
	case GN_OP_SEND:
	case GN_OP_SEND_IMM:
		return place_send(wr, send, to);
	case GN_OP_WRITE:
	case GN_OP_WRITE_IMM:
		return place_write(from, from_node, wr, send, to);
	case GN_OP_READ:
		return place_read(from, wr, send, to);
	case GN_OP_CAS:
	case GN_OP_FAA:
		return place_atomic(from, wr, send, to);
	default:
		assert(false && "a post lets no other operation through");
		return place_refuse(to, GN_WC_REMOTE_INVALID, send);
	}
}
