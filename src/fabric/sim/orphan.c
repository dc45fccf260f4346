/* SPDX-License-Identifier: MIT */
/*
 * Requests whose qp failed or was destroyed after they had left it. Requests on the wire continue:
 * they take effect at the target, though the sender sees them flushed or not at all. How many of
 * them arrive is random. They arrive in order and without gaps, so the first that is lost or
 * refused is the last. A READ has no visible effect.
 *
 * They belong to the target qp, and end with it. A qp has one peer in its life, so there is one
 * such list.
 */
#include <stdlib.h>

#include "fabric/sim/sim.h"

struct orphan {
	struct gn_wr wr; /* an atomic has no SGEs: its result is dropped */
	struct gn_sge sge;
	uint64_t at_ps;
	uint32_t bytes;
};

struct sim_orphans {
	struct sim_event event;
	struct sim_qp *to;
	unsigned node; /* their source node */
	uint32_t n, next;
	uint8_t *data;
	struct orphan item[];
};

void sim_orphans_drop(struct sim_qp *to)
{
	struct sim_orphans *orphans = to->orphans;

	if (!orphans)
		return;
	to->orphans = NULL;
	sim_event_fini(sim_engine_of(to), &orphans->event);
	free(orphans->data);
	free(orphans);
}

static void orphans_step(struct sim_event *event)
{
	struct sim_orphans *orphans = container_of(event, struct sim_orphans, event);
	struct sim_engine *engine = sim_engine_of(orphans->to);
	struct sim_qp *to = orphans->to;
	const struct gn_sim *sim = sim_fabric_of(&to->qp.obj)->sim;
	struct orphan *orphan = &orphans->item[orphans->next];
	struct sim_send send = {.bytes = orphan->bytes};

	if (to->qp.state != GN_QP_READY ||
	    sim_fault_cut(sim, orphans->node, sim_node_of(to)->index) ||
	    sim_place(NULL, orphans->node, &orphan->wr, &send, to) != SIM_PLACED ||
	    ++orphans->next == orphans->n) {
		sim_orphans_drop(to);
		return;
	}
	to->heard++;
	sim_event_at(engine, event, orphans->item[orphans->next].at_ps);
}

/* Counts requests that have left and may still arrive; those before *first have arrived. */
static uint32_t orphans_count(const struct sim_qp *qp, uint64_t *first, uint64_t *bytes)
{
	uint64_t at;

	*first = qp->passed[SIM_PLACE];
	*bytes = 0;
	if (*first < qp->passed[SIM_TX] && (sim_send_at(qp, *first)->acted || qp->placing))
		++*first;
	for (at = *first; at < qp->passed[SIM_TX]; at++) {
		if (sim_send_at(qp, at)->status != GN_WC_OK)
			break;
		*bytes += sim_send_at(qp, at)->bytes;
	}
	return (uint32_t)(at - *first);
}

/* False: it has no effect, or its buffers are invalid. */
static bool orphans_add(struct sim_orphans *orphans, const struct sim_qp *qp, uint64_t at,
			uint8_t *data)
{
	const struct gn_wr *wr = &qp->sq.wr[at & qp->sq.mask];
	const struct sim_send *send = sim_send_at(qp, at);
	struct orphan *orphan = &orphans->item[orphans->n];

	if (wr->op == GN_OP_READ || !sim_local_ok(qp, wr))
		return false;
	*orphan = (struct orphan){.wr = *wr, .at_ps = send->at_ps, .bytes = send->bytes};
	orphan->wr.n_sge = 0;
	orphan->wr.sge = &orphan->sge;
	if (sim_op_gathers(wr->op) && send->bytes) {
		soft_gather(data, wr->sge, wr->n_sge, 0, send->bytes);
		orphan->sge = (struct gn_sge){.addr = data, .len_bytes = send->bytes};
		orphan->wr.n_sge = 1;
	}
	orphans->n++;
	return true;
}

void sim_orphans_leave(struct sim_qp *qp)
{
	struct sim_engine *engine = sim_engine_of(qp);
	struct sim_qp *to = qp->conn.peer;
	struct sim_orphans *orphans;
	uint64_t first, bytes, at = 0;
	uint32_t n;

	if (!to || to->orphans || qp->conn.phase != SIM_CONN_UP || qp->qp.state == GN_QP_ERROR)
		return;
	n = orphans_count(qp, &first, &bytes);
	if (n)
		n = sim_random_below(&engine->random, n + 1);
	if (!n)
		return;
	/* Without memory they are lost. */
	orphans = calloc(1, sizeof(*orphans) + n * sizeof(orphans->item[0]));
	if (!orphans)
		return;
	orphans->data = malloc(bytes + 1);
	if (!orphans->data || sim_event_init(engine, &orphans->event, orphans_step, SIM_KIND_QP,
					     (uint64_t)sim_node_of(to)->index << 32 | to->qp.qpn))
		goto free_orphans;
	orphans->to = to;
	orphans->node = sim_node_of(qp)->index;
	for (uint32_t i = 0; i < n; i++)
		if (orphans_add(orphans, qp, first + i, orphans->data + at))
			at += sim_send_at(qp, first + i)->bytes;
	to->orphans = orphans;
	if (orphans->n)
		sim_event_at(engine, &orphans->event, orphans->item[0].at_ps);
	else
		sim_orphans_drop(to);
	return;

free_orphans:
	free(orphans->data);
	free(orphans);
}
