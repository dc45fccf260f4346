/* SPDX-License-Identifier: MIT */
/*
 * Connections, by rdma_cm with qps it does not know ("external qp"):
 *
 *	active                                       passive
 *	resolve address, resolve route
 *	rdma_connect, with our qp's number  ------>  CONNECT_REQUEST: becomes a gn_conn_req
 *	                                             accept: qp to RTS, rdma_accept
 *	CONNECT_RESPONSE: qp to RTS         <------
 *	rdma_establish; ESTABLISHED         ------>  ESTABLISHED
 *
 * Nothing here waits. An event of rdma_cm is copied and acknowledged before it is handled, because handling may
 * destroy its id, and destroying waits for acknowledgements. An id's context is the object it belongs to.
 */
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#define BACKLOG	     1024
#define EVENTS_BATCH 64 /* per look; more leave the fd readable */
#define RETRIES	     6	/* for qps of other makers; ours set their own (qp.c) */
#define US_PER_MS    1000u
#define NS_PER_MS    1000000u

/* Why a request was rejected, as InfiniBand numbers it. */
enum { REJECT_TIMEOUT = 4, REJECT_NO_LISTENER = 8, REJECT_BY_OWNER = 28 };

/* What of an event outlives its acknowledgement. */
struct happening {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct obj *about; /* the qp or listener */
	uint8_t responder_resources, initiator_depth;
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
};

static int last_error(void)
{
	return errno ? -errno : -EIO;
}

static struct vrb_chan *chan_of(struct vrb_qp *qp)
{
	return vrb_chan(qp->base.chan);
}

static bool is_pending(const struct vrb_qp *qp)
{
	return qp->conn.state == VRB_CONN_ASKING || qp->conn.state == VRB_CONN_ACCEPTED;
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static bool on_our_device(const struct rdma_cm_id *id, const struct gn_fabric *fabric)
{
	return id->verbs && !strcmp(ibv_get_device_name(id->verbs->device), fabric->attr.device);
}

static int new_id(struct vrb_chan *chan, void *context, struct rdma_cm_id **out)
{
	int rc;

	if (!rdma_create_id(chan->cm, out, context, RDMA_PS_TCP))
		return 0;
	rc = last_error();
	gn_log(GN_LOG_ERROR, "verbs: no connection identifier: %s", gn_strerror(rc));
	return rc;
}

/* ---- the end of an attempt, and of a connection ---- */

static void drop_id(struct vrb_qp *qp)
{
	if (qp->conn.id)
		rdma_destroy_id(qp->conn.id);
	qp->conn.id = NULL;
}

static void give_up(struct vrb_qp *qp, enum gn_event_type type, int status)
{
	vrb_chan_expect_no_more(chan_of(qp), qp);
	/* The kernel tells the peer, if that can know of us. */
	drop_id(qp);
	qp->conn.state = VRB_CONN_DOWN;
	vrb_qp_fail(qp);
	qp_refused(&qp->base, type, status);
}

void vrb_cm_expired(struct vrb_qp *qp)
{
	give_up(qp, GN_EVENT_UNREACHABLE, -ETIMEDOUT);
}

static void peer_gone(struct vrb_qp *qp)
{
	if (is_pending(qp)) {
		give_up(qp, GN_EVENT_UNREACHABLE, -ECONNRESET);
	} else if (qp->conn.state == VRB_CONN_UP) {
		qp->conn.state = VRB_CONN_DOWN;
		vrb_qp_fail(qp);
		qp_gone(&qp->base);
	}
}

void vrb_cm_lost(struct vrb_qp *qp)
{
	struct vrb_chan *chan;

	if (qp->base.type != GN_QP_RC)
		return;
	chan = chan_of(qp);
	gn_mutex_lock(&chan->lock);
	peer_gone(qp);
	gn_mutex_unlock(&chan->lock);
}

void vrb_cm_heard(struct vrb_qp *qp)
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

void vrb_cm_fini(struct vrb_qp *qp)
{
	struct vrb_chan *chan;

	if (qp->base.type != GN_QP_RC)
		return;
	chan = chan_of(qp);
	gn_mutex_lock(&chan->lock);
	vrb_chan_expect_no_more(chan, qp);
	/* Destroying the id of a connection says goodbye to the peer, once: if that is lost, it is lost. */
	drop_id(qp);
	gn_mutex_unlock(&chan->lock);
}

int vrb_disconnect(struct gn_qp *base)
{
	struct vrb_qp *qp = vrb_qp(base);
	struct vrb_chan *chan = chan_of(qp);
	int rc;

	gn_mutex_lock(&chan->lock);
	rc = vrb_qp_fail(qp);
	if (is_pending(qp)) {
		give_up(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
	} else if (qp->conn.state == VRB_CONN_UP) {
		if (rdma_disconnect(qp->conn.id))
			gn_log(GN_LOG_DEBUG, "verbs: goodbye: %s", gn_strerror(last_error()));
		qp->conn.state = VRB_CONN_DOWN;
		qp_gone(base);
	}
	gn_mutex_unlock(&chan->lock);
	return rc;
}

/* ---- connecting ---- */

static int left_ms(const struct vrb_qp *qp)
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
	rc = new_id(chan, &base->obj, &conn->id);
	if (rc)
		goto unlock;
	conn->state = VRB_CONN_ASKING;
	conn->deadline_ns = gn_deadline_us(opts->timeout_us);
	conn->rnr_retry = opts->rnr_retry;
	conn->rnr_timer_us = opts->rnr_timer_us;
	conn->private_len = opts->private_len;
	if (opts->private_len)
		memcpy(conn->private_data, opts->private_data, opts->private_len);
	vrb_qp_state(qp, GN_QP_CONNECTING);
	vrb_chan_expect(chan, qp);
	if (rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&to, left_ms(qp)))
		give_up(qp, GN_EVENT_UNREACHABLE, last_error());
unlock:
	gn_mutex_unlock(&chan->lock);
	return rc;
}

static void addr_resolved(struct vrb_qp *qp)
{
	struct gn_fabric *fabric = qp->base.obj.fabric;

	if (!on_our_device(qp->conn.id, fabric)) {
		gn_log(GN_LOG_ERROR,
		       "verbs: the way to this address is through %s, not %s; open that device, or "
		       "change the route",
		       qp->conn.id->verbs ? ibv_get_device_name(qp->conn.id->verbs->device) :
					    "no RDMA device",
		       fabric->attr.device);
		give_up(qp, GN_EVENT_UNREACHABLE, -ENETUNREACH);
	} else if (rdma_resolve_route(qp->conn.id, left_ms(qp))) {
		give_up(qp, GN_EVENT_UNREACHABLE, last_error());
	}
}

static void route_resolved(struct vrb_qp *qp)
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
		give_up(qp, GN_EVENT_UNREACHABLE, last_error());
}

static void keep_private(struct gn_qp *qp, const struct happening *what)
{
	memcpy(qp->private_data, what->private_data, what->private_len);
	qp->private_len = what->private_len;
}

static void responded(struct vrb_qp *qp, const struct happening *what)
{
	const struct vrb_fabric *fabric = vrb_fabric(qp->base.obj.fabric);
	const struct vrb_path path = {
		.rd_atomic_in = smaller(fabric->rd_atomic_in, what->responder_resources),
		.rd_atomic_out = smaller(fabric->rd_atomic_out, what->initiator_depth),
		.rnr_retry = qp->conn.rnr_retry,
		.rnr_timer_us = qp->conn.rnr_timer_us,
	};
	int rc = qp->base.state == GN_QP_ERROR ? -ECANCELED : 0; /* by gn_qp_error(), meanwhile */

	if (!rc)
		rc = vrb_qp_bring_up(qp, qp->conn.id, &path);
	if (!rc && rdma_establish(qp->conn.id))
		rc = last_error();
	if (rc) {
		give_up(qp, GN_EVENT_UNREACHABLE, rc);
		return;
	}
	vrb_chan_expect_no_more(chan_of(qp), qp);
	qp->conn.state = VRB_CONN_UP;
	vrb_qp_state(qp, GN_QP_READY);
	keep_private(&qp->base, what);
	qp_established(&qp->base);
}

static void rejected(struct vrb_qp *qp, const struct happening *what)
{
	if (qp->conn.state == VRB_CONN_ACCEPTED) {
		give_up(qp, GN_EVENT_UNREACHABLE,
			-ECONNRESET); /* the other side changed its mind */
	} else if (what->status == REJECT_BY_OWNER) {
		keep_private(&qp->base, what);
		give_up(qp, GN_EVENT_REJECTED, -ECONNREFUSED);
	} else {
		gn_log(GN_LOG_DEBUG, "verbs: rejected for reason %d", what->status);
		give_up(qp, GN_EVENT_UNREACHABLE,
			what->status == REJECT_TIMEOUT ? -ETIMEDOUT : -ECONNREFUSED);
	}
}

static void unreachable(struct vrb_qp *qp, int status)
{
	give_up(qp, GN_EVENT_UNREACHABLE,
		status < 0 ? status : (status > 0 ? -status : -EHOSTUNREACH));
}

/* ---- accepting ---- */

/* A request's id is ours to keep or destroy from here on. */
static void requested(struct vrb_listener *listener, const struct happening *what)
{
	struct gn_fabric *fabric = listener->base.obj.fabric;
	struct gn_conn_req *base;
	struct vrb_req *req;

	if (!on_our_device(what->id, fabric)) {
		if (!listener->told_device)
			gn_log(GN_LOG_ERROR,
			       "verbs: a request that came through %s is refused: this fabric is %s; "
			       "listen at an address of that device only, not at any",
			       what->id->verbs ? ibv_get_device_name(what->id->verbs->device) :
						 "no RDMA device",
			       fabric->attr.device);
		listener->told_device = true;
		goto refuse;
	}
	if (req_create(&listener->base, &base))
		goto refuse;
	req = container_of(base, struct vrb_req, base);
	req->id = what->id;
	req->id->context = &base->obj;
	req->chan = vrb_chan(listener->base.chan);
	req->responder_resources = what->responder_resources;
	req->initiator_depth = what->initiator_depth;
	memcpy(base->private_data, what->private_data, what->private_len);
	base->private_len = what->private_len;
	obj_hold(&req->chan->base.obj);
	req_push(base);
	return;
refuse:
	rdma_reject(what->id, NULL, 0);
	rdma_destroy_id(what->id);
}

static int answer(struct vrb_qp *qp, struct vrb_req *req, const struct gn_conn_opts *opts)
{
	const struct vrb_fabric *fabric = vrb_fabric(qp->base.obj.fabric);
	const struct vrb_path path = {
		.rd_atomic_in = smaller(fabric->rd_atomic_in, req->responder_resources),
		.rd_atomic_out = smaller(fabric->rd_atomic_out, req->initiator_depth),
		.rnr_retry = opts->rnr_retry,
		.rnr_timer_us = opts->rnr_timer_us,
	};
	struct rdma_conn_param param = {
		.private_data = opts->private_data,
		.private_data_len = (uint8_t)opts->private_len,
		.responder_resources = path.rd_atomic_in,
		.initiator_depth = path.rd_atomic_out,
		.rnr_retry_count = (uint8_t)opts->rnr_retry,
		.qp_num = qp->base.qpn,
	};
	int rc = vrb_qp_bring_up(qp, req->id, &path);

	if (!rc && rdma_accept(req->id, &param))
		rc = last_error();
	/* What rdma_cm calls an invalid state is a client that did not wait for us. */
	return rc == -EINVAL ? -ECONNABORTED : rc;
}

int vrb_accept(struct gn_conn_req *base_req, struct gn_qp *base, const struct gn_conn_opts *opts)
{
	struct vrb_req *req = container_of(base_req, struct vrb_req, base);
	struct vrb_qp *qp = vrb_qp(base);
	struct vrb_chan *chan = chan_of(qp);
	int rc = 0;

	gn_mutex_lock(&chan->lock);
	/* No event of it can be under way: rdma_cm drops them until it is accepted. */
	if (chan != req->chan && rdma_migrate_id(req->id, chan->cm))
		rc = last_error();
	req->id->context = &base->obj;
	if (!rc)
		rc = answer(qp, req, opts);
	if (!rc) {
		qp->conn.id = req->id;
		qp->conn.state = VRB_CONN_ACCEPTED;
		qp->conn.deadline_ns = gn_deadline_us(opts->timeout_us);
		vrb_qp_state(qp, GN_QP_READY);
		vrb_chan_expect(chan, qp);
	} else {
		gn_log(GN_LOG_INFO, "verbs: a connection was not accepted: %s", gn_strerror(rc));
		rdma_destroy_id(req->id);
		vrb_qp_fail(qp);
	}
	gn_mutex_unlock(&chan->lock);
	obj_release(&req->chan->base.obj);
	return rc;
}

int vrb_reject(struct gn_conn_req *base, const void *private_data, uint32_t private_len)
{
	struct vrb_req *req = container_of(base, struct vrb_req, base);
	int rc = 0;

	if (rdma_reject(req->id, private_data, (uint8_t)private_len))
		rc = errno == EINVAL ? -ECONNRESET : last_error();
	rdma_destroy_id(req->id);
	obj_release(&req->chan->base.obj);
	return rc;
}

static void established(struct vrb_qp *qp)
{
	if (qp->conn.state != VRB_CONN_ACCEPTED)
		return;
	vrb_chan_expect_no_more(chan_of(qp), qp);
	qp->conn.state = VRB_CONN_UP;
	qp_established(&qp->base);
}

/* ---- listening ---- */

/* The kernel calls a port that conflicts with a listener at any address "not available", too. */
static bool is_available(struct vrb_chan *chan, struct sockaddr_storage at)
{
	struct rdma_cm_id *id;
	bool available;

	if (rdma_create_id(chan->cm, &id, NULL, RDMA_PS_TCP))
		return false;
	((struct sockaddr_in *)&at)->sin_port =
		0; /* the same place in IPv6 (addr.c): some free port */
	available = !rdma_bind_addr(id, (struct sockaddr *)&at);
	rdma_destroy_id(id);
	return available;
}

static int bind_and_listen(struct vrb_chan *chan, struct rdma_cm_id *id,
			   struct sockaddr_storage *at)
{
	int rc;

	if (!rdma_bind_addr(id, (struct sockaddr *)at) && !rdma_listen(id, BACKLOG))
		return 0;
	rc = last_error();
	return rc == -EADDRNOTAVAIL && is_available(chan, *at) ? -EADDRINUSE : rc;
}

int vrb_listen_init(struct gn_listener *base, const char *addr)
{
	struct vrb_listener *listener = container_of(base, struct vrb_listener, base);
	struct vrb_chan *chan = vrb_chan(base->chan);
	struct sockaddr_storage at;
	int rc = vrb_addr_parse(addr, true, &at);

	if (rc)
		return rc;
	gn_mutex_lock(&chan->lock);
	rc = new_id(chan, &base->obj, &listener->id);
	if (rc)
		goto unlock;
	rc = bind_and_listen(chan, listener->id, &at);
	if (rc) {
		gn_log(GN_LOG_ERROR, "verbs: cannot listen at '%s': %s%s", addr, gn_strerror(rc),
		       rc == -EADDRNOTAVAIL || rc == -ENODEV ?
			       "; it is no address of an RDMA device here" :
			       "");
		rdma_destroy_id(listener->id);
	}
unlock:
	gn_mutex_unlock(&chan->lock);
	return rc;
}

void vrb_listen_fini(struct gn_listener *base)
{
	struct vrb_chan *chan = vrb_chan(base->chan);

	/* The lock: nobody is handling a request of it now. Those that rdma_cm still has, it refuses. */
	gn_mutex_lock(&chan->lock);
	rdma_destroy_id(container_of(base, struct vrb_listener, base)->id);
	gn_mutex_unlock(&chan->lock);
}

/* ---- events ---- */

static void copy_event(const struct rdma_cm_event *event, struct happening *out)
{
	const struct rdma_conn_param *param = &event->param.conn;

	*out = (struct happening){.type = event->event, .status = event->status, .id = event->id};
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

static void handle_qp(struct vrb_qp *qp, const struct happening *what)
{
	switch (what->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		addr_resolved(qp);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(qp);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		responded(qp, what);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(qp);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rejected(qp, what);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		unreachable(qp, what->status);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_disconnect(qp->conn.id); /* the answer, without which the peer asks again */
		peer_gone(qp);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		gn_log(GN_LOG_ERROR, "verbs: device %s was removed",
		       qp->base.obj.fabric->attr.device);
		peer_gone(qp);
		break;
	default: /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing to be done */
		break;
	}
}

static void handle(const struct happening *what)
{
	if (what->about->type == OBJ_LISTENER) {
		struct gn_listener *base = container_of(what->about, struct gn_listener, obj);

		if (what->type == RDMA_CM_EVENT_CONNECT_REQUEST)
			requested(container_of(base, struct vrb_listener, base), what);
	} else if (what->about->type == OBJ_QP) {
		struct vrb_qp *qp = vrb_qp(container_of(what->about, struct gn_qp, obj));

		if (qp->conn.id == what->id)
			handle_qp(qp, what);
	}
}

void vrb_cm_events(struct vrb_chan *chan)
{
	struct rdma_cm_event *event;
	struct happening what;

	for (int i = 0; i < EVENTS_BATCH && !rdma_get_cm_event(chan->cm, &event); i++) {
		copy_event(event, &what);
		rdma_ack_cm_event(event);
		handle(&what);
	}
}
