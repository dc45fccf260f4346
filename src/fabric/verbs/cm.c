/* SPDX-License-Identifier: MIT */
/*
 * Connections by rdma_cm, with qps that rdma_cm does not know ("external qp"):
 *
 * 	active                                       passive
 * 	resolve address, resolve route
 * 	rdma_connect, with our qp's number  ------>  CONNECT_REQUEST: becomes a gn_conn_req
 * 	                                             accept: qp to RTS, rdma_accept
 * 	CONNECT_RESPONSE: qp to RTS         <------
 * 	rdma_establish; ESTABLISHED         ------>  ESTABLISHED
 *
 * Nothing here waits. An rdma_cm event is copied and acknowledged before it is handled, because
 * handling may destroy its id, and destroying an id waits for acknowledgements. An id's context is
 * the object it belongs to.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <string.h>

#define EVENTS_BATCH 64 /* per call; more leave the fd readable */
#define RETRIES	     6	/* for peers' qps of other software; ours set their own (qp.c) */
#define NS_PER_MS    1000000u

/* Reasons of a rejection, as InfiniBand numbers them. All others count as 8: no listener. */
enum { REJECT_TIMEOUT = 4, REJECT_BY_OWNER = 28 };

static struct vrb_chan *chan_of(struct vrb_qp *qp)
{
	return vrb_chan(qp->base.chan);
}

static bool cm_is_pending(const struct vrb_qp *qp)
{
	return qp->conn.state == VRB_CONN_CONNECTING || qp->conn.state == VRB_CONN_ACCEPTED;
}

bool vrb_cm_on_our_device(const struct rdma_cm_id *id, const struct gn_fabric *fabric)
{
	return id->verbs && !strcmp(ibv_get_device_name(id->verbs->device), fabric->attr.device);
}

int vrb_cm_new_id(struct vrb_chan *chan, void *context, struct rdma_cm_id **out)
{
	int rc;

	if (!rdma_create_id(chan->cm, out, context, RDMA_PS_TCP))
		return 0;
	rc = vrb_errno();
	return gn_fail_log(rc, "verbs: no connection identifier: %s", gn_strerror(rc));
}

/* ---- failed attempts and disconnects ---- */

static void cm_destroy_id(struct vrb_qp *qp)
{
	if (qp->conn.id)
		rdma_destroy_id(qp->conn.id);
	qp->conn.id = NULL;
}

static void cm_connect_failed(struct vrb_qp *qp, enum gn_event_type type, int status)
{
	vrb_chan_clear_deadline(chan_of(qp), qp);
	/* The kernel notifies the peer, if the peer knows of this attempt. */
	cm_destroy_id(qp);
	qp->conn.state = VRB_CONN_DOWN;
	vrb_qp_fail(qp);
	if (type == GN_EVENT_UNREACHABLE)
		qp->base.private_len = 0; /* no text in addition to the status */
	qp_refused(&qp->base, type, status);
}

void vrb_cm_expired(struct vrb_qp *qp)
{
	cm_connect_failed(qp, GN_EVENT_UNREACHABLE, -ETIMEDOUT);
}

static void cm_peer_disconnected(struct vrb_qp *qp)
{
	if (cm_is_pending(qp)) {
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, -ECONNRESET);
	} else if (qp->conn.state == VRB_CONN_UP) {
		qp->conn.state = VRB_CONN_DOWN;
		vrb_qp_fail(qp);
		qp_disconnected(&qp->base);
	}
}

void vrb_cm_peer_lost(struct vrb_qp *qp)
{
	struct vrb_chan *chan;

	if (qp->base.type != GN_QP_RC)
		return;
	chan = chan_of(qp);
	gn_mutex_lock(&chan->lock);
	cm_peer_disconnected(qp);
	gn_mutex_unlock(&chan->lock);
}

void vrb_cm_received_early(struct vrb_qp *qp)
{
	struct vrb_chan *chan;

	if (qp->base.type != GN_QP_RC)
		return;
	chan = chan_of(qp);
	gn_mutex_lock(&chan->lock);
	if (qp->conn.state == VRB_CONN_ACCEPTED)
		rdma_notify(qp->conn.id, IBV_EVENT_COMM_EST);
	gn_mutex_unlock(&chan->lock);
}

void vrb_cm_detach(struct vrb_qp *qp)
{
	struct vrb_chan *chan = chan_of(qp);

	gn_mutex_lock(&chan->lock);
	if (cm_is_pending(qp)) {
		vrb_chan_clear_deadline(chan, qp);
		cm_destroy_id(qp);
	} else if (qp->conn.state == VRB_CONN_UP && rdma_disconnect(qp->conn.id)) {
		gn_log(GN_LOG_DEBUG, "verbs: goodbye: %s", gn_strerror(vrb_errno()));
	}
	qp->conn.state = VRB_CONN_DOWN;
	gn_mutex_unlock(&chan->lock);
}

void vrb_cm_fini(struct vrb_qp *qp)
{
	struct vrb_chan *chan;

	if (qp->base.type != GN_QP_RC)
		return;
	chan = chan_of(qp);
	gn_mutex_lock(&chan->lock);
	vrb_chan_clear_deadline(chan, qp);
	/* Destroying the id sends one DREQ to the peer, which may be lost. */
	cm_destroy_id(qp);
	/* Until the device's qp is destroyed, another thread may take an event of it. */
	qp->conn.state = VRB_CONN_DOWN;
	gn_mutex_unlock(&chan->lock);
}

int vrb_disconnect(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);
	struct vrb_chan *chan = chan_of(qp);
	int rc;

	gn_mutex_lock(&chan->lock);
	rc = vrb_qp_fail(qp);
	if (cm_is_pending(qp)) {
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
	} else if (qp->conn.state == VRB_CONN_UP) {
		if (rdma_disconnect(qp->conn.id))
			gn_log(GN_LOG_DEBUG, "verbs: goodbye: %s", gn_strerror(vrb_errno()));
		qp->conn.state = VRB_CONN_DOWN;
		qp_disconnected(base);
	}
	gn_mutex_unlock(&chan->lock);
	return rc;
}

/* ---- connecting ---- */

static int cm_time_left_ms(const struct vrb_qp *qp)
{
	const uint64_t now = gn_now_ns(), deadline = qp->conn.deadline_ns;

	return now < deadline ? (int)((deadline - now) / NS_PER_MS) + 1 : 1;
}

int vrb_connect(struct gn_qp *base, const char *addr, const struct gn_conn_opts *opts)
{
	struct vrb_qp *qp = vrb_qp(base);
	struct vrb_chan *chan = chan_of(qp);
	struct vrb_conn *conn = &qp->conn;
	struct sockaddr_storage to;
	int rc = vrb_addr_parse(addr, false, &to);

	if (rc)
		return rc;
	gn_mutex_lock(&chan->lock);
	rc = vrb_cm_new_id(chan, &base->obj, &conn->id);
	if (rc)
		goto unlock;
	conn->state = VRB_CONN_CONNECTING;
	conn->deadline_ns = gn_deadline_us(opts->timeout_us);
	conn->rnr_retry = opts->rnr_retry;
	conn->rnr_timer_us = opts->rnr_timer_us;
	conn->private_len = opts->private_len;
	if (opts->private_len)
		memcpy(conn->private_data, opts->private_data, opts->private_len);
	vrb_qp_state(qp, GN_QP_CONNECTING);
	vrb_chan_set_deadline(chan, qp);
	if (rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&to, cm_time_left_ms(qp)))
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, vrb_errno());
unlock:
	gn_mutex_unlock(&chan->lock);
	return rc;
}

static void cm_addr_resolved(struct vrb_qp *qp)
{
	struct gn_fabric *fabric = qp->base.obj.fabric;

	if (!vrb_cm_on_our_device(qp->conn.id, fabric)) {
		gn_fail_log(
			0,
			"verbs: the way to this address is through %s, not %s; open that device, "
			"or "
			"change the route",
			qp->conn.id->verbs ? ibv_get_device_name(qp->conn.id->verbs->device) :
					     "no RDMA device",
			fabric->attr.device);
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, -ENETUNREACH);
	} else if (rdma_resolve_route(qp->conn.id, cm_time_left_ms(qp))) {
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, vrb_errno());
	}
}

static void cm_route_resolved(struct vrb_qp *qp)
{
	const struct vrb_fabric *fabric = vrb_fabric(qp->base.obj.fabric);
	struct rdma_conn_param param = {
		.private_data = qp->conn.private_data,
		.private_data_len = (uint8_t)qp->conn.private_len,
		.responder_resources = fabric->rd_atomic_in,
		.initiator_depth = fabric->rd_atomic_out,
		.retry_count = RETRIES,
		.rnr_retry_count = (uint8_t)qp->conn.rnr_retry,
		.qp_num = qp->base.qpn,
	};

	if (rdma_connect(qp->conn.id, &param))
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, vrb_errno());
}

static void cm_keep_private(struct gn_qp *qp, const struct vrb_cm_event *what)
{
	memcpy(qp->private_data, what->private_data, what->private_len);
	qp->private_len = what->private_len;
}

static void cm_responded(struct vrb_qp *qp, const struct vrb_cm_event *what)
{
	struct vrb_path path = {
		.rnr_retry = qp->conn.rnr_retry,
		.rnr_timer_us = qp->conn.rnr_timer_us,
	};
	/* by gn_qp_error(), in the meantime */
	int rc = qp->base.state == GN_QP_ERROR ? -ECANCELED : 0;

	vrb_path_depths(&path, qp->base.obj.fabric, what->responder_resources,
			what->initiator_depth);
	if (!rc)
		rc = vrb_qp_bring_up(qp, qp->conn.id, &path);
	if (!rc && rdma_establish(qp->conn.id))
		rc = vrb_errno();
	if (rc) {
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, rc);
		return;
	}
	vrb_chan_clear_deadline(chan_of(qp), qp);
	qp->conn.state = VRB_CONN_UP;
	vrb_qp_state(qp, GN_QP_READY);
	cm_keep_private(&qp->base, what);
	qp_established(&qp->base);
}

static void cm_rejected(struct vrb_qp *qp, const struct vrb_cm_event *what)
{
	if (qp->conn.state == VRB_CONN_ACCEPTED) {
		/* The peer disconnected before the handshake was complete. */
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE, -ECONNRESET);
	} else if (what->status == REJECT_BY_OWNER) {
		cm_keep_private(&qp->base, what);
		cm_connect_failed(qp, GN_EVENT_REJECTED, -ECONNREFUSED);
	} else {
		gn_log(GN_LOG_DEBUG, "verbs: rejected for reason %d", what->status);
		cm_connect_failed(qp, GN_EVENT_UNREACHABLE,
				  what->status == REJECT_TIMEOUT ? -ETIMEDOUT : -ECONNREFUSED);
	}
}

static void cm_unreachable(struct vrb_qp *qp, int status)
{
	cm_connect_failed(qp, GN_EVENT_UNREACHABLE,
			  status < 0 ? status : (status > 0 ? -status : -EHOSTUNREACH));
}

static void cm_established(struct vrb_qp *qp)
{
	if (qp->conn.state != VRB_CONN_ACCEPTED)
		return;
	vrb_chan_clear_deadline(chan_of(qp), qp);
	qp->conn.state = VRB_CONN_UP;
	qp_established(&qp->base);
}

/* ---- events ---- */

static void cm_copy_event(const struct rdma_cm_event *event, struct vrb_cm_event *out)
{
	const struct rdma_conn_param *param = &event->param.conn;

	*out = (struct vrb_cm_event){
		.type = event->event, .status = event->status, .id = event->id};
	out->about = event->listen_id ? event->listen_id->context : event->id->context;
	out->responder_resources = param->responder_resources;
	out->initiator_depth = param->initiator_depth;
	if (param->private_data) {
		out->private_len = param->private_data_len < GN_PRIVATE_MAX ?
					   param->private_data_len :
					   GN_PRIVATE_MAX;
		memcpy(out->private_data, param->private_data, out->private_len);
	}
}

static void cm_handle_qp(struct vrb_qp *qp, const struct vrb_cm_event *what)
{
	switch (what->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		cm_addr_resolved(qp);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		cm_route_resolved(qp);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		cm_responded(qp, what);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		cm_established(qp);
		break;
	case RDMA_CM_EVENT_REJECTED:
		cm_rejected(qp, what);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		cm_unreachable(qp, what->status);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* the DREP, without which the peer repeats its DREQ */
		rdma_disconnect(qp->conn.id);
		cm_peer_disconnected(qp);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		gn_fail_log(0, "verbs: device %s was removed", qp->base.obj.fabric->attr.device);
		cm_peer_disconnected(qp);
		break;
	default: /* TIMEWAIT_EXIT, ADDR_CHANGE: ignored */
		break;
	}
}

static void cm_handle(const struct vrb_cm_event *what)
{
	if (what->about->type == OBJ_LISTENER) {
		struct gn_listener *base = container_of(what->about, struct gn_listener, obj);

		if (what->type == RDMA_CM_EVENT_CONNECT_REQUEST)
			vrb_connect_requested(container_of(base, struct vrb_listener, base), what);
	} else if (what->about->type == OBJ_QP) {
		struct vrb_qp *qp = vrb_qp(container_of(what->about, struct gn_qp, obj));

		if (qp->conn.id == what->id)
			cm_handle_qp(qp, what);
	}
}

void vrb_cm_events(struct vrb_chan *chan)
{
	struct rdma_cm_event *event;
	struct vrb_cm_event what;

	for (int i = 0; i < EVENTS_BATCH && !rdma_get_cm_event(chan->cm, &event); i++) {
		cm_copy_event(event, &what);
		rdma_ack_cm_event(event);
		cm_handle(&what);
	}
}
