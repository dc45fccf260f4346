/* SPDX-License-Identifier: MIT */
/* Queue pairs: creation, destruction, and the error state. */
#include <errno.h>

#include "fabric/sim/sim.h"

static int init_queues(struct sim_qp *qp)
{
	int rc = soft_sq_init(&qp->sq, qp->qp.max_send_wr, qp->qp.max_send_sge, qp->qp.max_inline);

	if (rc)
		return rc;
	rc = soft_rq_init(&qp->rq, qp->qp.max_recv_wr, qp->qp.max_recv_sge);
	if (rc)
		goto fini_sq;
	qp->sends = gn_alloc(((size_t)qp->sq.mask + 1) * sizeof(*qp->sends), 0);
	if (!qp->sends) {
		rc = -ENOMEM;
		goto fini_rq;
	}
	rc = sim_held_init(qp);
	if (rc)
		goto free_sends;
	return 0;

free_sends:
	gn_free(qp->sends);
fini_rq:
	soft_rq_fini(&qp->rq);
fini_sq:
	soft_sq_fini(&qp->sq);
	return rc;
}

static void fini_queues(struct sim_qp *qp)
{
	gn_free(qp->held);
	gn_free(qp->sends);
	soft_rq_fini(&qp->rq);
	soft_sq_fini(&qp->sq);
}

/* The number of an event tells stages, connections and nodes apart in the trace. */
static int init_events(struct sim_qp *qp)
{
	struct sim_engine *engine = sim_engine_of(qp);
	const uint64_t id = (uint64_t)sim_fabric_of(&qp->qp.obj)->nic->node->index << 32 |
			    qp->qp.qpn;
	int rc = sim_event_init(engine, &qp->conn.event, sim_conn_step, SIM_KIND_QP,
				(uint64_t)SIM_STAGES << 48 | id);

	if (rc)
		return rc;
	for (unsigned i = 0; i < SIM_STAGES; i++) {
		rc = sim_event_init(engine, &qp->stage[i], sim_stage_fn[i], SIM_KIND_QP,
				    (uint64_t)i << 48 | id);
		if (rc) {
			while (i > 0)
				sim_event_fini(engine, &qp->stage[--i]);
			sim_event_fini(engine, &qp->conn.event);
			return rc;
		}
	}
	return 0;
}

static void fini_events(struct sim_qp *qp)
{
	struct sim_engine *engine = sim_engine_of(qp);

	for (unsigned i = 0; i < SIM_STAGES; i++)
		sim_event_fini(engine, &qp->stage[i]);
	sim_event_fini(engine, &qp->conn.event);
}

int sim_qp_init(struct gn_qp *base)
{
	struct sim_qp *qp = sim_qp_of(base);
	int rc = init_queues(qp);

	if (rc)
		return rc;
	sim_nic_add(sim_fabric_of(&base->obj)->nic, qp);
	rc = init_events(qp);
	if (rc) {
		sim_nic_del(qp);
		fini_queues(qp);
		return rc;
	}
	qp->path = sim_ctx_path(base->pd->ctx);
	sim_cq_of(base->send_cq)->requests += base->max_send_wr;
	base->state = base->type == GN_QP_UD ? GN_QP_READY : GN_QP_NEW;
	qp->up = true;
	return 0;
}

void sim_qp_unplug(struct sim_qp *qp)
{
	if (!qp->up)
		return;
	sim_conn_leave(qp);
	qp->up = false;
	for (uint64_t at = qp->passed[SIM_DONE]; at < qp->sq.head; at++) {
		sim_sample_drop(sim_send_at(qp, at));
		sim_request_drop(qp, sim_send_at(qp, at));
	}
	sim_orphans_drop(qp);
	sim_held_fini(qp);
	sim_flights_drop(qp);
	fini_events(qp);
	sim_nic_del(qp);
}

void sim_qp_detach(struct gn_qp *base)
{
	struct sim_qp *qp = sim_qp_of(base);

	sim_flights_land(qp);
	sim_qp_unplug(qp);
	base->state = GN_QP_ERROR;
	soft_cq_purge(container_of(base->send_cq, struct soft_cq, cq), base);
	soft_cq_purge(container_of(base->recv_cq, struct soft_cq, cq), base);
}

void sim_qp_fini(struct gn_qp *base)
{
	sim_cq_of(base->send_cq)->requests -= base->max_send_wr;
	sim_qp_detach(base);
	fini_queues(sim_qp_of(base));
}

void sim_qp_fail(struct sim_qp *qp)
{
	if (qp->qp.state == GN_QP_ERROR)
		return;
	sim_orphans_leave(qp);
	if (qp->qp.type == GN_QP_RC)
		sim_stages_unanswered(qp);
	sim_qp_fail_answered(qp);
}

void sim_qp_fail_answered(struct sim_qp *qp)
{
	if (qp->qp.state == GN_QP_ERROR)
		return;
	qp->qp.state = GN_QP_ERROR;
	sim_stages_flush(qp);
	sim_event_now(sim_engine_of(qp), &qp->stage[SIM_DONE]); /* for its receives */
}

/* Pending events of its stages will find nothing to do. */
int sim_qp_reset(struct gn_qp *base)
{
	struct sim_qp *qp = sim_qp_of(base);

	for (uint64_t at = qp->passed[SIM_DONE]; at < qp->sq.head; at++)
		sim_request_drop(qp, sim_send_at(qp, at));
	sim_held_fini(qp);
	for (unsigned i = 0; i < SIM_STAGES; i++)
		qp->passed[i] = qp->sq.head;
	qp->sq.tail = qp->sq.head;
	qp->rq.tail = qp->rq.head;
	soft_cq_purge(container_of(base->send_cq, struct soft_cq, cq), base);
	soft_cq_purge(container_of(base->recv_cq, struct soft_cq, cq), base);
	base->state = GN_QP_READY;
	return 0;
}

int sim_qp_error(struct gn_qp *base)
{
	sim_qp_fail(sim_qp_of(base));
	return 0;
}

void sim_recv_complete(struct sim_qp *qp, struct gn_wc *wc, bool solicited)
{
	wc->id = qp->rq.tail++;
	wc->qp = &qp->qp;
	sim_cq_push(qp->qp.recv_cq, wc, solicited);
}
