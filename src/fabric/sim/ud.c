/* SPDX-License-Identifier: MIT */
/*
 * Datagrams. An address names a node and a qp; a datagram without a qp, with a wrong qkey or
 * without a receive is lost silently. One that is too long for its receive ends as a random draw
 * decides. Once sent, a datagram is independent of its sender: it has one event for its arrival,
 * reception and placement.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "fabric/sim/sim.h"

#define SGID_AT 8u /* offsets in a GRH */
#define DGID_AT 24u

#define UD_OVERTAKE_PS (5ull * 1000 * 1000) /* long enough for later datagrams to overtake */

/* A GID of the simulator: a unique-local prefix, and the node's number at the end. */
static const uint8_t gid_prefix[12] = {0xfd, 'g', 'a', 'n', 'n', 'e', 't', ':', 's', 'i', 'm', ':'};

static void gid_make(unsigned node, uint8_t gid[16])
{
	memcpy(gid, gid_prefix, sizeof(gid_prefix));
	for (unsigned i = 0; i < 4; i++)
		gid[12 + i] = (uint8_t)(node >> (24 - 8 * i));
}

/* UINT_MAX, which is no node, for a foreign GID: the datagram is lost. */
static unsigned gid_node(const uint8_t gid[16])
{
	if (memcmp(gid, gid_prefix, sizeof(gid_prefix)))
		return (unsigned)-1;
	return (unsigned)gid[12] << 24 | (unsigned)gid[13] << 16 | (unsigned)gid[14] << 8 | gid[15];
}

int sim_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out)
{
	gid_make(sim_fabric_of(&qp->obj)->nic->node->index, out->gid);
	return 0;
}

int sim_ah_init(struct gn_ah *ah)
{
	const struct sim_qp *peer = ah->conn ? sim_qp_of(ah->conn)->conn.peer : NULL;

	if (peer)
		gid_make(sim_node_of(peer)->index, ah->addr.gid);
	return ah->conn && !peer ? -ENOTCONN : 0;
}

int sim_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		   struct gn_ud_addr *out)
{
	(void)qp;
	(void)wc;
	memcpy(out->gid, (const uint8_t *)grh + SGID_AT, sizeof(out->gid));
	return 0;
}

/* ---- in flight ---- */

static void datagram_free(struct sim_datagram *datagram)
{
	sim_held_drop(datagram);
	sim_event_fini(datagram->nic->node->device.engine, &datagram->event);
	list_remove(datagram);
	free(datagram);
}

void sim_datagrams_drop(struct sim_nic *nic)
{
	while (nic->datagrams)
		datagram_free(nic->datagrams);
}

static void grh_make(const struct sim_datagram *datagram, uint8_t grh[GN_GRH_BYTES])
{
	memset(grh, 0, GN_GRH_BYTES);
	grh[0] = 0x60; /* version 6, as in IPv6 */
	grh[4] = (uint8_t)(datagram->len_bytes >> 8);
	grh[5] = (uint8_t)datagram->len_bytes;
	grh[6] = 0x1b; /* next header: IBA transport */
	grh[7] = 64;   /* hops */
	gid_make(datagram->from_node, grh + SGID_AT);
	gid_make(datagram->nic->node->index, grh + DGID_AT);
}

/*
 * The receive is too small. Devices differ: they drop the datagram, fail the receive, or fail the
 * receive and the qp.
 */
static void datagram_misfit(struct sim_qp *to)
{
	enum { DROPPED, RECEIVE_FAILS, QP_FAILS, OUTCOMES };
	const uint64_t outcome = sim_random_below(&sim_engine_of(to)->random, OUTCOMES);
	struct gn_wc wc = {.status = GN_WC_LOCAL_LENGTH, .op = GN_OP_RECV};

	if (outcome == DROPPED) {
		counter_add(&to->qp.count.drops, 1);
		return;
	}
	sim_recv_complete(to, &wc, false);
	if (outcome == QP_FAILS)
		sim_qp_fail(to);
}

static void datagram_place(struct sim_datagram *datagram)
{
	struct sim_qp *to = sim_nic_find(datagram->nic, datagram->qpn);
	enum gn_wc_status fits;
	uint8_t grh[GN_GRH_BYTES];

	if (!to || to->qp.type != GN_QP_UD || to->qp.state != GN_QP_READY)
		return;
	if (to->qp.qkey != datagram->qkey || soft_rq_empty(&to->rq)) {
		counter_add(&to->qp.count.drops, 1);
		return;
	}
	fits = sim_recv_check(to, datagram->wc.len_bytes);
	if (fits != GN_WC_OK) {
		if (fits == GN_WC_LOCAL_LENGTH)
			datagram_misfit(to);
		else
			counter_add(&to->qp.count.drops, 1);
		return;
	}
	grh_make(datagram, grh);
	soft_scatter(soft_rq_sge(&to->rq), soft_rq_n_sge(&to->rq), 0, grh, sizeof(grh));
	sim_recv_fill(to, sizeof(grh), datagram->data, datagram->len_bytes);
	sim_recv_complete(to, &datagram->wc, datagram->solicited);
}

static void datagram_step(struct sim_event *event)
{
	struct sim_datagram *datagram = container_of(event, struct sim_datagram, event);
	struct sim_device *device = &datagram->nic->node->device;
	uint64_t at_ps, in;

	if (datagram->taken_in) {
		datagram_place(datagram);
		datagram_free(datagram);
		return;
	}
	sim_held_fill(datagram);
	datagram->taken_in = true;
	in = sim_link_receive(device, datagram->len_bytes + GN_GRH_BYTES);
	at_ps = sim_rx_datagram(device);
	at_ps = sim_dma_write(device, in > at_ps ? in : at_ps, datagram->len_bytes);
	sim_event_at(device->engine, event,
		     sim_complete(device, at_ps + device->profile->place_ps));
}

static void datagram_send(struct sim_qp *from, const struct gn_wr *wr, struct sim_nic *nic,
			  uint64_t arrives_ps)
{
	struct sim_engine *engine = sim_engine_of(from);
	const uint32_t len_bytes = (uint32_t)soft_sge_len(wr->sge, wr->n_sge);
	struct sim_datagram *datagram = calloc(1, sizeof(*datagram) + len_bytes);

	/* Without memory it is lost. */
	if (!datagram)
		return;
	if (sim_event_init(engine, &datagram->event, datagram_step, SIM_KIND_QP,
			   (uint64_t)nic->node->index << 32 | wr->to.ud.qpn)) {
		free(datagram);
		return;
	}
	datagram->nic = nic;
	datagram->solicited = wr->flags & GN_SOLICITED;
	datagram->from_node = sim_node_of(from)->index;
	datagram->qpn = wr->to.ud.qpn;
	datagram->qkey = wr->to.ud.qkey;
	datagram->len_bytes = len_bytes;
	datagram->wc = (struct gn_wc){
		.op = GN_OP_RECV,
		.len_bytes = len_bytes + GN_GRH_BYTES,
		.imm = wr->imm,
		.flags = GN_WC_GRH | (wr->op == GN_OP_SEND_IMM ? GN_WC_IMM : 0),
		.src_qpn = from->qp.qpn,
	};
	sim_held_carry(from, from->passed[SIM_TX], datagram);
	list_push(&nic->datagrams, datagram);
	sim_event_at(engine, &datagram->event, arrives_ps);
}

void sim_ud_send(struct sim_qp *from, const struct gn_wr *wr, uint64_t leaves_ps)
{
	struct gn_sim *sim = sim_fabric_of(&from->qp.obj)->sim;
	const unsigned me = sim_node_of(from)->index, node = gid_node(wr->to.ud.ah->addr.gid);
	struct sim_nic *nic = sim_nic_of(sim, node);
	const uint64_t bytes = soft_sge_len(wr->sge, wr->n_sge) + GN_GRH_BYTES;
	uint64_t arrives_ps = sim_link_send(sim_device_of(from), leaves_ps, bytes);

	if (!nic || sim_fault_cut(sim, me, node) || sim_fault(sim, SIM_UD_LOSS, me))
		return;
	if (sim_fault(sim, SIM_UD_DUP, me))
		datagram_send(from, wr, nic, arrives_ps + sim_fault_long_delay_ps(sim));
	if (sim_fault(sim, SIM_UD_REORDER, me))
		arrives_ps += sim_random_below(&sim->engine.random, UD_OVERTAKE_PS);
	if (sim_fault(sim, SIM_UD_DELAY, me))
		arrives_ps += sim_fault_long_delay_ps(sim);
	datagram_send(from, wr, nic, arrives_ps);
}
