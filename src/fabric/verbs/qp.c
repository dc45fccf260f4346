/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: creation, the way through the states of verbs, error, and what a connection
 * promises.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>

/*
 * A peer that is gone is noticed when a request was sent 1 + RETRIES times. A device waits 4.096 µs
 * << ACK_TIMEOUT each time, here 268 ms, so 1.9 s in all; the specification lets it wait up to four
 * times as long. Not 7 retries, the most there is: Soft-RoCE takes that for "for ever", as it is
 * with RNR retries.
 */
#define ACK_TIMEOUT 16
#define RETRIES	    6

#define PSN_MASK 0xffffffu

/* Flags of ibv_query_qp_data_in_order(): headers older than rdma-core 46 do not have them. */
#define IN_ORDER_ASK_CAPS  (1u << 0)
#define IN_ORDER_WHOLE_MSG (1 << 0)
#define IN_ORDER_128_BYTES (1 << 1)

/* How long "receiver not ready" tells the sender to wait, by its code. */
static const uint32_t rnr_us[32] = {
	655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
	480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
	20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
};

/* The shortest that is long enough. */
static uint8_t rnr_code(uint32_t us)
{
	for (uint8_t code = 1; code < 32; code++)
		if (rnr_us[code] >= us)
			return code;
	return 0;
}

static unsigned rc_access(const struct gn_qp *qp)
{
	return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	       (qp->caps & GN_CAP_ATOMICS ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

static int modify(struct vrb_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	const int rc = ibv_modify_qp(qp->ibv, attr, mask);

	if (rc)
		gn_fail_log(0, "verbs: qp %u does not go to state %d: %s", qp->base.qpn,
			    (int)attr->qp_state, gn_strerror(-rc));
	return -rc;
}

/* In INIT it takes receives. */
static int to_init_rc(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = vrb_fabric(qp->base.obj.fabric)->port,
		.qp_access_flags = rc_access(&qp->base),
	};

	return modify(qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_ready_ud(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = vrb_fabric(qp->base.obj.fabric)->port,
		.qkey = qp->base.qkey,
		.sq_psn = gn_random() & PSN_MASK,
	};
	int rc = modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	rc = modify(qp, &attr, IBV_QP_STATE);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	rc = modify(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (!rc)
		qp->base.state = GN_QP_READY;
	return rc;
}

static int create(struct vrb_qp *qp)
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
	 * The queues keep the length asked for, so that who fills them fills their cqs no further
	 * than they planned for.
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
	int rc = create(qp);

	if (rc)
		return rc;
	rc = vrb_post_init(qp);
	if (rc)
		goto destroy_qp;
	rc = vrb_table_add(table, qp, &qp->tag);
	if (rc)
		goto fini_post;
	rc = base->type == GN_QP_RC ? to_init_rc(qp) : to_ready_ud(qp);
	if (!rc)
		return 0;
	vrb_table_del(table, qp->tag);
fini_post:
	vrb_post_fini(qp);
destroy_qp:
	ibv_destroy_qp(qp->ibv);
	return rc;
}

void vrb_qp_silence(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	if (qp->silent)
		return;
	qp->silent = true;
	vrb_table_del(&vrb_ctx(qp->base.ctx)->table, qp->tag);
	vrb_qp_state(qp, GN_QP_ERROR);
	modify(qp, &attr, IBV_QP_STATE);
}

/* Some of its completions may be in the cqs. The cqs' owner makes them free. */
static void forget(struct gn_qp *qp)
{
	if (qp->sq_head != qp->sq_tail)
		vrb_cq_forget(qp->send_cq);
	if (qp->rq_head != qp->rq_tail)
		vrb_cq_forget(qp->recv_cq);
}

void vrb_qp_detach(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);

	if (qp->silent)
		return;
	vrb_cm_leave(qp);
	vrb_qp_silence(qp);
	forget(base);
}

void vrb_qp_fini(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);
	/* Another thread may have made one that was never connected; a device completes nothing. */
	const bool was_used = base->type == GN_QP_UD || base->state != GN_QP_NEW;
	int rc;

	vrb_cm_fini(qp);
	if (!qp->silent)
		vrb_table_del(&vrb_ctx(base->ctx)->table, qp->tag);
	rc = ibv_destroy_qp(qp->ibv);
	if (rc)
		gn_fail_log(0, "verbs: qp %u is left behind: %s", base->qpn, gn_strerror(-rc));
	if (was_used && !qp->silent)
		forget(base);
	vrb_post_fini(qp);
}

int vrb_qp_fail(struct vrb_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	vrb_qp_state(qp, GN_QP_ERROR);
	return modify(qp, &attr, IBV_QP_STATE);
}

int vrb_qp_error(struct gn_qp *qp)
{
	return vrb_qp_fail(vrb_qp(qp));
}

/* A new tag makes completions of what was outstanding nobody's, also those the cq has already. */
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
	rc = modify(qp, &attr, IBV_QP_STATE);
	if (rc) {
		vrb_table_del(table, tag);
		return rc;
	}
	qp->tag = tag;
	vrb_table_del(table, old);
	vrb_cq_forget(base->send_cq);
	if (base->recv_cq != base->send_cq)
		vrb_cq_forget(base->recv_cq);
	return to_ready_ud(qp);
}

/*
 * What the device says of the WRITEs that arrive through this qp, once it is connected. It holds
 * for regions that are not relaxed-ordering, as all of ours are.
 */
static uint64_t order_caps(struct vrb_qp *qp)
{
	const int caps = ibv_query_qp_data_in_order(qp->ibv, IBV_WR_RDMA_WRITE, IN_ORDER_ASK_CAPS);

	/*
	 * An older library does not know the flag, answers 0, and can only be asked about whole
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

	if (base->type != GN_QP_RC || base->state != GN_QP_READY || qp->asked_order)
		return;
	qp->asked_order = true;
	base->caps |= order_caps(qp);
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

void vrb_path_depths(struct vrb_path *path, const struct gn_fabric *base,
		     uint8_t responder_resources, uint8_t initiator_depth)
{
	const struct vrb_fabric *fabric = container_of(base, struct vrb_fabric, base);

	path->rd_atomic_in = smaller(fabric->rd_atomic_in, responder_resources);
	path->rd_atomic_out = smaller(fabric->rd_atomic_out, initiator_depth);
}

struct step {
	struct ibv_qp_attr attr;
	int mask;
};

static int ask_steps(struct rdma_cm_id *id, struct step step[3])
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
	int rc = ask_steps(id, step);

	if (rc)
		return rc;
	step[0].attr.qp_access_flags = rc_access(&qp->base);
	step[1].attr.max_dest_rd_atomic = path->rd_atomic_in;
	step[1].attr.min_rnr_timer = rnr_code(path->rnr_timer_us);
	step[2].attr.max_rd_atomic = path->rd_atomic_out;
	step[2].attr.timeout = ACK_TIMEOUT;
	step[2].attr.retry_cnt = RETRIES;
	step[2].attr.rnr_retry = (uint8_t)path->rnr_retry;
	for (int i = 0; !rc && i < 3; i++)
		rc = modify(qp, &step[i].attr, step[i].mask);
	return rc;
}
