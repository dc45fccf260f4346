/* SPDX-License-Identifier: MIT */
/* Queue pairs: creation, state transitions, error, and the ordering guarantees of a connection. */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>

/*
 * A dead peer is detected after 1 + RETRIES transmissions. The device waits 4.096 µs << ACK_TIMEOUT
 * for each, here 268 ms, 1.9 s in all; the specification allows four times as long. Not the maximum
 * of 7 retries: Soft-RoCE treats 7 as infinite, as with RNR retries.
 */
#define ACK_TIMEOUT 16
#define RETRIES	    6

#define PSN_MASK 0xffffffu

/* Flags of ibv_query_qp_data_in_order(): headers older than rdma-core 46 do not have them. */
#define IN_ORDER_ASK_CAPS  (1u << 0)
#define IN_ORDER_WHOLE_MSG (1 << 0)
#define IN_ORDER_128_BYTES (1 << 1)

/* RNR timer values by their code. */
static const uint32_t rnr_us[32] = {
	655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
	480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
	20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
};

/* The code of the shortest sufficient time. */
static uint8_t rnr_code(uint32_t us)
{
	for (uint8_t code = 1; code < 32; code++)
		if (rnr_us[code] >= us)
			return code;
	return 0;
}

static unsigned qp_rc_access(const struct gn_qp *qp)
{
	return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	       (qp->caps & GN_CAP_ATOMICS ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

static int qp_modify(struct vrb_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	const int rc = ibv_modify_qp(qp->ibv, attr, mask);

	if (rc)
		gn_fail_log(0, "verbs: qp %u does not go to state %d: %s", qp->base.qpn,
			    (int)attr->qp_state, gn_strerror(-rc));
	return -rc;
}

/* In INIT a qp accepts receives. */
static int qp_to_init_rc(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = vrb_fabric(qp->base.obj.fabric)->port,
		.qp_access_flags = qp_rc_access(&qp->base),
	};

	return qp_modify(qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int qp_to_ready_ud(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = vrb_fabric(qp->base.obj.fabric)->port,
		.qkey = qp->base.qkey,
		.sq_psn = gn_random() & PSN_MASK,
	};
	int rc = qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	rc = qp_modify(qp, &attr, IBV_QP_STATE);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	rc = qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (!rc)
		qp->base.state = GN_QP_READY;
	return rc;
}

static int qp_create(struct vrb_qp *qp)
{
	struct gn_qp *base = &qp->base;
	struct ibv_qp_init_attr init = {
		.qp_context = qp,
		.send_cq = vrb_cq(base->send_cq)->ibv,
		.recv_cq = vrb_cq(base->recv_cq)->ibv,
		.qp_type = base->type == GN_QP_RC ? IBV_QPT_RC : IBV_QPT_UD,
		.cap = {.max_send_wr = base->max_send_wr,
			.max_recv_wr = base->max_recv_wr,
			.max_send_sge = base->max_send_sge,
			.max_recv_sge = base->max_recv_sge,
			.max_inline_data = base->max_inline},
	};
	int rc;

	qp->ibv = ibv_create_qp(vrb_pd(base->pd)->ibv, &init);
	if (!qp->ibv) {
		rc = vrb_errno();
		return gn_fail_log(
			rc, "verbs: no queue pair (%u sends, %u receives, %u inline): %s",
			base->max_send_wr, base->max_recv_wr, base->max_inline, gn_strerror(rc));
	}
	base->qpn = qp->ibv->qp_num;
	/*
	 * The queues keep the requested length, so that they cannot overrun cqs that were sized for
	 * it.
	 */
	base->max_send_sge = init.cap.max_send_sge;
	base->max_recv_sge = init.cap.max_recv_sge;
	base->max_inline = init.cap.max_inline_data;
	return 0;
}

int vrb_qp_init(struct gn_qp *base)
{
	struct vrb_table *table = &vrb_ctx(base->ctx)->table;
	struct vrb_qp *qp = vrb_qp(base);
	int rc = qp_create(qp);

	if (rc)
		return rc;
	rc = vrb_post_init(qp);
	if (rc)
		goto destroy_qp;
	rc = vrb_table_add(table, qp, &qp->tag);
	if (rc)
		goto fini_post;
	rc = base->type == GN_QP_RC ? qp_to_init_rc(qp) : qp_to_ready_ud(qp);
	if (!rc)
		return 0;
	vrb_table_del(table, qp->tag);
fini_post:
	vrb_post_fini(qp);
destroy_qp:
	ibv_destroy_qp(qp->ibv);
	return rc;
}

void vrb_qp_discard(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	if (qp->discarded)
		return;
	qp->discarded = true;
	vrb_table_del(&vrb_ctx(qp->base.ctx)->table, qp->tag);
	vrb_qp_state(qp, GN_QP_ERROR);
	qp_modify(qp, &attr, IBV_QP_STATE);
}

/* Its completions may still be in the cqs; the cqs' owner removes them. */
static void qp_purge_cqs(struct gn_qp *qp)
{
	if (qp->sq_head != qp->sq_tail)
		vrb_cq_purge(qp->send_cq);
	if (qp->rq_head != qp->rq_tail)
		vrb_cq_purge(qp->recv_cq);
}

void vrb_qp_detach(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);

	if (qp->discarded)
		return;
	vrb_cm_detach(qp);
	vrb_qp_discard(qp);
	qp_purge_cqs(base);
}

void vrb_qp_fini(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);
	/* Another thread may have created a qp that was never connected; it has no completions. */
	const bool was_used = base->type == GN_QP_UD || base->state != GN_QP_NEW;
	int rc;

	vrb_cm_fini(qp);
	if (!qp->discarded)
		vrb_table_del(&vrb_ctx(base->ctx)->table, qp->tag);
	rc = ibv_destroy_qp(qp->ibv);
	if (rc)
		gn_fail_log(0, "verbs: qp %u is left behind: %s", base->qpn, gn_strerror(-rc));
	if (was_used && !qp->discarded)
		qp_purge_cqs(base);
	vrb_post_fini(qp);
}

int vrb_qp_fail(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	vrb_qp_state(qp, GN_QP_ERROR);
	return qp_modify(qp, &attr, IBV_QP_STATE);
}

int vrb_qp_error(struct gn_qp *qp)
{
	return vrb_qp_fail(vrb_qp(qp));
}

/* A new tag invalidates completions of earlier requests, also those already in the cq. */
int vrb_qp_reset(struct gn_qp *base)
{
	struct vrb_table *table = &vrb_ctx(base->ctx)->table;
	struct vrb_qp *qp = vrb_qp(base);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	const uint64_t old = qp->tag;
	uint64_t tag;
	int rc = vrb_table_add(table, qp, &tag);

	if (rc)
		return rc;
	vrb_qp_state(qp, GN_QP_ERROR); /* until it is ready again */
	rc = qp_modify(qp, &attr, IBV_QP_STATE);
	if (rc) {
		vrb_table_del(table, tag);
		return rc;
	}
	qp->tag = tag;
	vrb_table_del(table, old);
	vrb_cq_purge(base->send_cq);
	if (base->recv_cq != base->send_cq)
		vrb_cq_purge(base->recv_cq);
	return qp_to_ready_ud(qp);
}

/*
 * The device's ordering guarantee for WRITEs that arrive through this qp, once connected. Valid for
 * regions without relaxed ordering, as all of ours are.
 */
static uint64_t qp_order_caps(struct vrb_qp *qp)
{
	const int caps = ibv_query_qp_data_in_order(qp->ibv, IBV_WR_RDMA_WRITE, IN_ORDER_ASK_CAPS);

	/*
	 * Older libraries do not know the flag, return 0, and can be asked only about whole
	 * messages.
	 */
	if (caps & IN_ORDER_WHOLE_MSG ||
	    ibv_query_qp_data_in_order(qp->ibv, IBV_WR_RDMA_WRITE, 0) == 1)
		return GN_CAP_INORDER_WRITE | GN_CAP_INORDER_128 | GN_CAP_WRITE_ORDER;
	return caps & IN_ORDER_128_BYTES ? GN_CAP_INORDER_128 : 0;
}

void vrb_qp_query(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);

	if (base->type != GN_QP_RC || base->state != GN_QP_READY || qp->order_queried)
		return;
	qp->order_queried = true;
	base->caps |= qp_order_caps(qp);
}

static uint8_t min_u8(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

void vrb_path_depths(struct vrb_path *path, const struct gn_fabric *base,
		     uint8_t responder_resources, uint8_t initiator_depth)
{
	const struct vrb_fabric *fabric = container_of(base, struct vrb_fabric, base);

	path->rd_atomic_in = min_u8(fabric->rd_atomic_in, responder_resources);
	path->rd_atomic_out = min_u8(fabric->rd_atomic_out, initiator_depth);
}

struct step {
	struct ibv_qp_attr attr;
	int mask;
};

static int qp_query_steps(struct rdma_cm_id *id, struct step step[3])
{
	static const enum ibv_qp_state states[3] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

	for (int i = 0; i < 3; i++) {
		step[i].attr.qp_state = states[i];
		if (rdma_init_qp_attr(id, &step[i].attr, &step[i].mask))
			return vrb_errno();
	}
	return 0;
}

int vrb_qp_bring_up(struct vrb_qp *qp, struct rdma_cm_id *id, const struct vrb_path *path)
{
	struct step step[3] = {{.mask = 0}};
	int rc = qp_query_steps(id, step);

	if (rc)
		return rc;
	step[0].attr.qp_access_flags = qp_rc_access(&qp->base);
	step[1].attr.max_dest_rd_atomic = path->rd_atomic_in;
	step[1].attr.min_rnr_timer = rnr_code(path->rnr_timer_us);
	step[2].attr.max_rd_atomic = path->rd_atomic_out;
	step[2].attr.timeout = ACK_TIMEOUT;
	step[2].attr.retry_cnt = RETRIES;
	step[2].attr.rnr_retry = (uint8_t)path->rnr_retry;
	for (int i = 0; !rc && i < 3; i++)
		rc = qp_modify(qp, &step[i].attr, step[i].mask);
	return rc;
}
