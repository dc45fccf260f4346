/* SPDX-License-Identifier: MIT */
/*
 * The way of a request: three stages, each an event that takes one request and puts itself back
 * while there are more. In the profile ideal no time passes between them; models of devices and
 * links will put it there.
 */
#include "fabric/sim/sim.h"

#define LOCAL_STORE_OPS (1u << GN_OP_READ | 1u << GN_OP_CAS | 1u << GN_OP_FAA)

static void again(struct sim_qp *qp, struct sim_event *event)
{
	sim_event_now(sim_engine_of(qp), event);
}

unsigned sim_post_send(struct gn_qp *base, const struct gn_wr *wr, unsigned n)
{
	struct sim_qp *qp = sim_qp_of(base);
	const bool flush = base->state == GN_QP_ERROR;

	for (unsigned i = 0; i < n; i++, wr = wr->next) {
		const uint64_t position = base->sq_head + i;

		soft_sq_push(&qp->sq, wr, position);
		*sim_send_at(qp, position) = (struct sim_send){
			.status = flush ? GN_WC_FLUSHED : GN_WC_OK,
			.node = base->type == GN_QP_UD ? sim_ah_node(wr->to.ud.ah) : 0,
		};
	}
	if (flush)
		qp->sent = qp->placed = qp->sq.head;
	again(qp, flush ? &qp->done : &qp->tx);
	return n;
}

unsigned sim_post_recv(struct gn_qp *base, const struct gn_recv_wr *wr, unsigned n)
{
	struct sim_qp *qp = sim_qp_of(base);

	for (unsigned i = 0; i < n; i++, wr = wr->next)
		soft_rq_post(&qp->rq, wr);
	if (base->state == GN_QP_ERROR)
		again(qp, &qp->done);
	return n;
}

/* The device takes a request. Bad buffers are noted here, and fail it when its turn comes. */
void sim_tx(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, tx);
	const struct gn_wr *wr = &qp->sq.wr[qp->sent & qp->sq.mask];
	uint32_t access;

	if (qp->sent == qp->sq.head)
		return;
	access = LOCAL_STORE_OPS & 1u << wr->op ? GN_LOCAL_WRITE : 0;
	if (!(wr->flags & GN_INLINE) &&
	    !soft_sge_ok(&sim_fabric_of(&qp->qp.obj)->keys, qp->qp.pd, wr->sge, wr->n_sge, access))
		sim_send_at(qp, qp->sent)->status = GN_WC_LOCAL_ACCESS;
	qp->sent++;
	if (!sim_event_waits(
		    &qp->rx)) /* or it would end the wait of an earlier one for a receive */
		again(qp, &qp->rx);
	if (qp->sent != qp->sq.head)
		again(qp, &qp->tx);
}

/* The target does not answer: repeat after_ps later, unless that was done often enough. */
static bool try_later(struct sim_qp *qp, struct sim_send *send, uint32_t tries, uint64_t after_ps)
{
	struct sim_engine *engine = sim_engine_of(qp);

	if (send->tries++ >= tries)
		return false;
	sim_event_at(engine, &qp->rx, sim_after(engine, after_ps));
	return true;
}

static void trace(struct sim_qp *qp, const struct gn_wr *wr)
{
	struct sim_engine *engine = sim_engine_of(qp);

	sim_trace(engine, (uint64_t)wr->op << 56 | soft_sge_len(wr->sge, wr->n_sge));
	if (qp->qp.type == GN_QP_UD) {
		sim_trace(engine, wr->to.ud.qpn);
	} else if (wr->op != GN_OP_SEND && wr->op != GN_OP_SEND_IMM) {
		sim_trace(engine, wr->to.remote.key);
		sim_trace(engine, wr->to.remote.offset);
	}
}

/* True when the request is done, well or with send->status; false when it waits. */
static bool deliver(struct sim_qp *qp, const struct gn_wr *wr, struct sim_send *send)
{
	struct sim_qp *to = qp->conn.peer;

	trace(qp, wr);
	if (qp->qp.type == GN_QP_UD) {
		sim_ud_place(qp, wr, send->node);
		return true;
	}
	if (qp->conn.phase != SIM_CONN_UP) /* its next step will try again, or flush */
		return false;
	if (to->qp.state != GN_QP_READY) {
		if (try_later(qp, send, 1, SIM_RETRY_PS))
			return false;
		send->status = GN_WC_RETRY;
		return true;
	}
	switch (sim_place(qp, wr, to, &send->status)) {
	case SIM_NOT_READY:
		if (try_later(qp, send, qp->conn.rnr_retry, qp->conn.rnr_timer_ps))
			return false;
		send->status = GN_WC_RNR;
		return true;
	case SIM_PLACED:
	case SIM_REFUSED:
		break;
	}
	return true;
}

void sim_rx(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, rx);
	const struct gn_wr *wr = &qp->sq.wr[qp->placed & qp->sq.mask];
	struct sim_send *send = sim_send_at(qp, qp->placed);

	if (qp->placed == qp->sent)
		return;
	if (send->status == GN_WC_OK && !deliver(qp, wr, send))
		return;
	if (qp->qp.state == GN_QP_ERROR) /* by what it did: it was a cq's last straw */
		return;
	qp->placed++;
	if (send->status != GN_WC_OK)
		sim_qp_fail(qp);
	again(qp, &qp->done);
	if (qp->placed != qp->sent)
		again(qp, &qp->rx);
}

/* Takes sends up to the next that has something to say. True if one did. */
static bool complete_send(struct sim_qp *qp)
{
	while (qp->sq.tail != qp->placed) {
		const uint64_t position = qp->sq.tail++;
		const struct gn_wr *wr = &qp->sq.wr[position & qp->sq.mask];
		const struct sim_send *send = sim_send_at(qp, position);

		if (send->status == GN_WC_OK && !(wr->flags & GN_SIGNALED))
			continue;
		sim_cq_push(qp->qp.send_cq,
			    &(struct gn_wc){
				    .id = position,
				    .qp = &qp->qp,
				    .status = send->status,
				    .op = wr->op,
				    .len_bytes = (uint32_t)soft_sge_len(wr->sge, wr->n_sge),
			    },
			    false);
		return true;
	}
	return false;
}

void sim_done(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, done);

	if (complete_send(qp)) {
		again(qp, &qp->done);
	} else if (qp->qp.state == GN_QP_ERROR && !soft_rq_empty(&qp->rq)) {
		struct gn_wc wc = {.status = GN_WC_FLUSHED, .op = GN_OP_RECV};

		sim_recv_complete(qp, &wc, false);
		again(qp, &qp->done);
	}
}
