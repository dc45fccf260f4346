/* SPDX-License-Identifier: MIT */
/* Queue pairs: their queues, destruction and completions. */
#include "fabric/shm/shm.h"

#include <errno.h>

/* Our thread owns the cq's qps, too. */
void shm_cq_overrun(struct shm_cq *cq)
{
	for (int way = 0; way < 2; way++)
		for (struct shm_qp *qp = cq->qps[way]; qp; qp = qp->next_on[way])
			shm_qp_fail(qp);
}

static void qp_join_cq(struct shm_qp *qp, int way, struct gn_cq *cq)
{
	struct shm_qp **first = &((struct shm_cq *)cq)->qps[way];

	qp->next_on[way] = *first;
	qp->prev_on[way] = first;
	if (*first)
		(*first)->prev_on[way] = &qp->next_on[way];
	*first = qp;
}

static void qp_leave_cq(struct shm_qp *qp, int way)
{
	*qp->prev_on[way] = qp->next_on[way];
	if (qp->next_on[way])
		qp->next_on[way]->prev_on[way] = qp->prev_on[way];
}

void shm_qp_join(struct shm_qp *qp)
{
	if (qp->on_cqs)
		return;
	qp->on_cqs = true;
	qp_join_cq(qp, 0, qp->qp.send_cq);
	qp_join_cq(qp, 1, qp->qp.recv_cq);
}

/* An RC qp joins its cqs when it is connected: another thread may create it. */
int shm_qp_init(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;
	int rc;

	shm_conn_init(&qp->conn);
	qp->keys = shm_of(&base->obj)->keys.table;
	if (base->type == GN_QP_RC && !base->shared) {
		base->post_one = shm_post_one;
		base->post_fixed[GN_OP_WRITE] = shm_post_fixed_write;
		base->post_fixed[GN_OP_READ] = shm_post_fixed_read;
	}
	base->qpn = __atomic_fetch_add(&shm_of(&base->obj)->next_qpn, 1, __ATOMIC_RELAXED) &
		    0xffffffu;
	rc = soft_sq_init(&qp->sq, base->max_send_wr, base->max_send_sge, base->max_inline);
	if (rc)
		return rc;
	rc = soft_rq_init(&qp->rq, base->max_recv_wr, base->max_recv_sge);
	if (rc)
		goto fini_sq;
	rc = base->type == GN_QP_UD ? shm_ud_init(qp) : 0;
	if (rc)
		goto fini_rq;
	if (qp->ud)
		shm_qp_join(qp);
	return 0;
fini_rq:
	soft_rq_fini(&qp->rq);
fini_sq:
	soft_sq_fini(&qp->sq);
	return rc;
}

/* Drops its completions and events. */
static void qp_purge(struct gn_qp *base)
{
	soft_cq_purge((struct soft_cq *)base->send_cq, base);
	soft_cq_purge((struct soft_cq *)base->recv_cq, base);
}

static void qp_leave_cqs(struct shm_qp *qp)
{
	if (!qp->on_cqs)
		return;
	qp->on_cqs = false;
	qp_leave_cq(qp, 0);
	qp_leave_cq(qp, 1);
	qp_purge(&qp->qp);
}

void shm_qp_adopt(struct gn_qp *base)
{
	if (((struct shm_qp *)base)->incoming)
		shm_cq_admit((struct shm_cq *)base->recv_cq);
}

void shm_qp_detach(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (qp->detached)
		return;
	shm_qp_adopt(base);
	qp->detached = true;
	base->state = GN_QP_ERROR;
	qp->sq.tail = qp->sq.head;
	qp->rq.tail = qp->rq.head;
	shm_conn_detach(qp);
	qp_leave_cqs(qp);
}

int shm_qp_close(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (qp->ud)
		return 0;
	shm_qp_detach(base);
	return shm_conn_close(qp);
}

void shm_qp_fini(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (qp->ud)
		shm_ud_fini(qp);
	else
		shm_conn_fini(qp);
	qp_leave_cqs(qp);
	soft_sq_fini(&qp->sq);
	soft_rq_fini(&qp->rq);
}

int shm_qp_error(struct gn_qp *qp)
{
	shm_qp_adopt(qp);
	if (qp->state == GN_QP_CONNECTING)
		return shm_disconnect(qp);
	shm_qp_fail((struct shm_qp *)qp);
	return 0;
}

/* Failing empties the queues. Senders that were not polled meanwhile are armed again (ud.c). */
int shm_qp_reset(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	shm_qp_fail(qp);
	qp_purge(base);
	base->state = GN_QP_READY;
	return 0;
}

void shm_qp_fail(struct shm_qp *qp)
{
	struct gn_wc wc = {.qp = &qp->qp, .status = GN_WC_FLUSHED};

	if (qp->qp.state == GN_QP_ERROR)
		return;
	qp->qp.state = GN_QP_ERROR;
	shm_qp_join(qp);
	if (qp->conn.own_area)
		__atomic_store_n(&qp->conn.own_area->conn_state.state, AREA_ERROR,
				 __ATOMIC_RELEASE);
	shm_rx_del(&qp->rx_send);
	for (; !soft_sq_empty(&qp->sq); qp->sq.tail++) {
		wc.id = qp->sq.tail;
		wc.op = soft_sq_first(&qp->sq)->op;
		shm_complete((struct shm_cq *)qp->qp.send_cq, &wc, false);
	}
	wc.op = GN_OP_RECV;
	for (; !soft_rq_empty(&qp->rq); qp->rq.tail++) {
		wc.id = qp->rq.tail;
		shm_complete((struct shm_cq *)qp->qp.recv_cq, &wc, false);
	}
}
