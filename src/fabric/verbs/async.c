/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events of a context's device. Any thread may take them, so a handler does only what
 * any thread may do to another thread's cq or qp. Both stay valid until their events are
 * acknowledged, because destroying them waits for that.
 */
#include "fabric/verbs/verbs.h"

#define EVENTS_BATCH 64 /* per call; more leave the fd readable */

static void qp_fail_if_on(struct vrb_qp *qp, void *arg)
{
	const struct gn_cq *cq = arg;

	if (qp->base.send_cq == cq || qp->base.recv_cq == cq)
		vrb_qp_fail(qp);
}

static void async_cq_overrun(struct vrb_ctx *ctx, struct vrb_cq *cq)
{
	/* Flushing its qps overruns the cq again. */
	if (__atomic_exchange_n(&cq->base.overrun, true, __ATOMIC_RELAXED))
		return;
	gn_log(GN_LOG_WARN, "verbs: a completion queue of %u entries was overrun", cq->base.depth);
	vrb_table_each(&ctx->table, qp_fail_if_on, &cq->base);
	chan_push(cq->base.chan, &cq->base.ev_overrun);
}

static void async_device_lost(struct vrb_qp *qp, void *arg)
{
	(void)arg;
	vrb_qp_fail(qp);
	vrb_cm_peer_lost(qp);
}

static void async_handle(struct vrb_ctx *ctx, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		async_cq_overrun(ctx, event->element.cq->cq_context);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		vrb_qp_fail(event->element.qp->qp_context);
		break;
	case IBV_EVENT_COMM_EST:
		vrb_cm_received_early(event->element.qp->qp_context);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		gn_log(GN_LOG_ERROR, "verbs: device %s failed", ctx->base.obj.fabric->attr.device);
		vrb_table_each(&ctx->table, async_device_lost, NULL);
		break;
	case IBV_EVENT_PORT_ERR:
		gn_log(GN_LOG_WARN, "verbs: port %d of %s went down", event->element.port_num,
		       ctx->base.obj.fabric->attr.device);
		break;
	default:
		gn_log(GN_LOG_DEBUG, "verbs: %s", ibv_event_type_str(event->event_type));
		break;
	}
}

void vrb_async_pump(struct vrb_ctx *ctx)
{
	struct ibv_async_event event;

	for (int i = 0; i < EVENTS_BATCH && !ibv_get_async_event(ctx->ibv, &event); i++) {
		async_handle(ctx, &event);
		ibv_ack_async_event(&event);
	}
}
