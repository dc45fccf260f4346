/* SPDX-License-Identifier: MIT */
/*
 * Datagrams. An address names a node and a qp; what finds no qp, a wrong qkey, no receive or too
 * small a one is lost, and nobody is told.
 */
#include <string.h>

#include "fabric/sim/sim.h"

#define SGID_AT 8u /* where a global route header has them */
#define DGID_AT 24u

/* A GID of the simulator: a unique-local prefix, and the node's number at the end. */
static const uint8_t gid_prefix[12] = {0xfd, 'g', 'a', 'n', 'n', 'e', 't', ':', 's', 'i', 'm', ':'};

static void make_gid(unsigned node, uint8_t gid[16])
{
	memcpy(gid, gid_prefix, sizeof(gid_prefix));
	for (unsigned i = 0; i < 4; i++)
		gid[12 + i] = (uint8_t)(node >> (24 - 8 * i));
}

/* UINT_MAX, which no node has, for what is no GID of ours: it goes nowhere. */
static unsigned node_of(const uint8_t gid[16])
{
	if (memcmp(gid, gid_prefix, sizeof(gid_prefix)))
		return (unsigned)-1;
	return (unsigned)gid[12] << 24 | (unsigned)gid[13] << 16 | (unsigned)gid[14] << 8 | gid[15];
}

int sim_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out)
{
	make_gid(sim_fabric_of(&qp->obj)->nic->node->index, out->gid);
	return 0;
}

int sim_ah_init(struct gn_ah *ah)
{
	(void)ah;
	return 0;
}

unsigned sim_ah_node(const struct gn_ah *ah)
{
	return node_of(ah->addr.gid);
}

int sim_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		   struct gn_ud_addr *out)
{
	(void)qp;
	(void)wc;
	memcpy(out->gid, (const uint8_t *)grh + SGID_AT, sizeof(out->gid));
	return 0;
}

static void make_grh(const struct sim_qp *from, const struct sim_qp *to, uint64_t len_bytes,
		     uint8_t grh[GN_GRH_BYTES])
{
	memset(grh, 0, GN_GRH_BYTES);
	grh[0] = 0x60; /* version 6, as in IPv6 */
	grh[4] = (uint8_t)(len_bytes >> 8);
	grh[5] = (uint8_t)len_bytes;
	grh[6] = 0x1b; /* what follows is InfiniBand */
	grh[7] = 64;   /* hops */
	make_gid(sim_fabric_of(&from->qp.obj)->nic->node->index, grh + SGID_AT);
	make_gid(sim_fabric_of(&to->qp.obj)->nic->node->index, grh + DGID_AT);
}

void sim_ud_place(struct sim_qp *from, const struct gn_wr *wr, unsigned node)
{
	const struct sim_nic *nic = sim_nic_of(sim_fabric_of(&from->qp.obj)->sim, node);
	const uint64_t len_bytes = soft_sge_len(wr->sge, wr->n_sge);
	struct sim_qp *to = nic ? sim_nic_find(nic, wr->to.ud.qpn) : NULL;
	uint8_t grh[GN_GRH_BYTES];
	struct gn_wc wc = {
		.op = GN_OP_RECV,
		.len_bytes = (uint32_t)len_bytes + GN_GRH_BYTES,
		.imm = wr->imm,
		.flags = GN_WC_GRH | (wr->op == GN_OP_SEND_IMM ? GN_WC_IMM : 0),
		.src_qpn = from->qp.qpn,
	};

	if (!to || to->qp.type != GN_QP_UD || to->qp.state != GN_QP_READY)
		return;
	if (to->qp.qkey != wr->to.ud.qkey || soft_rq_empty(&to->rq) ||
	    sim_recv_check(to, wc.len_bytes) != GN_WC_OK) {
		counter_add(&to->qp.count.drops, 1);
		return;
	}
	make_grh(from, to, len_bytes, grh);
	soft_scatter(soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq), 0, grh, sizeof(grh));
	sim_recv_fill(to, sizeof(grh), wr);
	sim_recv_complete(to, &wc, wr->flags & GN_SOLICITED);
}
