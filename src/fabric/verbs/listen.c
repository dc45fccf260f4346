/* SPDX-License-Identifier: MIT */
/*
 * The passive side of connections (see cm.c): listeners, and their requests that wait for accept or
 * reject.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <netinet/in.h>
#include <string.h>

#define BACKLOG	 1024 /* of requests, in the kernel */
#define REQS_MAX 1024 /* per channel, neither accepted nor rejected; more are refused */

/* For a port that conflicts with a wildcard listener the kernel also returns EADDRNOTAVAIL. */
static bool listen_port_free(struct vrb_chan *chan, struct sockaddr_storage at)
{
	struct rdma_cm_id *id;
	bool available;

	if (rdma_create_id(chan->cm, &id, NULL, RDMA_PS_TCP))
		return false;
	/* Any free port. The offset is the same for IPv6 (addr.c). */
	((struct sockaddr_in *)&at)->sin_port = 0;
	available = !rdma_bind_addr(id, (struct sockaddr *)&at);
	rdma_destroy_id(id);
	return available;
}

/* The IPv6 wildcard address accepts IPv4, too, whatever bindv6only says. */
static void listen_dual_stack(struct rdma_cm_id *id, const struct sockaddr_storage *at)
{
	int only = 0;

	if (at->ss_family == AF_INET6 &&
	    IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)at)->sin6_addr) &&
	    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)))
		gn_log(GN_LOG_WARN, "verbs: this listener may take IPv6 only: %s",
		       gn_strerror(vrb_errno()));
}

static int listen_bind(struct vrb_chan *chan, struct rdma_cm_id *id, struct sockaddr_storage *at)
{
	int rc;

	listen_dual_stack(id, at);
	if (!rdma_bind_addr(id, (struct sockaddr *)at) && !rdma_listen(id, BACKLOG))
		return 0;
	rc = vrb_errno();
	return rc == -EADDRNOTAVAIL && listen_port_free(chan, *at) ? -EADDRINUSE : rc;
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
	rc = vrb_cm_new_id(chan, &base->obj, &listener->id);
	if (rc)
		goto unlock;
	rc = listen_bind(chan, listener->id, &at);
	if (rc) {
		gn_fail_log(0, "verbs: cannot listen at '%s': %s%s", addr, gn_strerror(rc),
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

	/*
	 * Under the lock no thread handles its requests. rdma_cm refuses those that it still has.
	 */
	gn_mutex_lock(&chan->lock);
	rdma_destroy_id(container_of(base, struct vrb_listener, base)->id);
	gn_mutex_unlock(&chan->lock);
}

/* From here on we own the request's id. */
void vrb_connect_requested(struct vrb_listener *listener, const struct vrb_cm_event *what)
{
	struct gn_fabric *fabric = listener->base.obj.fabric;
	struct vrb_chan *chan = vrb_chan(listener->base.chan);
	struct gn_conn_req *base;
	struct vrb_req *req;

	if (!vrb_cm_on_our_device(what->id, fabric)) {
		if (!listener->device_logged)
			gn_fail_log(
				0,
				"verbs: a request that came through %s is refused: this fabric is "
				"%s; listen at an address of that device only, not at any",
				what->id->verbs ? ibv_get_device_name(what->id->verbs->device) :
						  "no RDMA device",
				fabric->attr.device);
		listener->device_logged = true;
		goto refuse;
	}
	if (__atomic_load_n(&chan->n_reqs, __ATOMIC_RELAXED) >= REQS_MAX ||
	    req_create(&listener->base, &base))
		goto refuse;
	req = container_of(base, struct vrb_req, base);
	req->id = what->id;
	req->id->context = &base->obj;
	req->chan = chan;
	req->responder_resources = what->responder_resources;
	req->initiator_depth = what->initiator_depth;
	memcpy(base->private_data, what->private_data, what->private_len);
	base->private_len = what->private_len;
	obj_hold(&chan->base.obj);
	__atomic_fetch_add(&chan->n_reqs, 1, __ATOMIC_RELAXED);
	req_push(base);
	return;
refuse:
	rdma_reject(what->id, NULL, 0);
	rdma_destroy_id(what->id);
}

static void req_release(struct vrb_req *req)
{
	__atomic_fetch_sub(&req->chan->n_reqs, 1, __ATOMIC_RELAXED);
	obj_release(&req->chan->base.obj);
}

/* From here on the channel may get events of the qp. The caller holds its lock. */
static int req_accept(struct vrb_qp *qp, struct vrb_req *req, const struct gn_conn_opts *opts,
		      const struct vrb_path *path)
{
	struct vrb_chan *chan = vrb_chan(qp->base.chan);
	struct rdma_conn_param param = {
		.private_data = opts->private_data,
		.private_data_len = (uint8_t)opts->private_len,
		.rnr_retry_count = (uint8_t)opts->rnr_retry,
		.qp_num = qp->base.qpn,
		.responder_resources = path->rd_atomic_in,
		.initiator_depth = path->rd_atomic_out,
	};
	int rc;

	/* No event of the id can be in flight: rdma_cm drops them until the accept. */
	if (chan != req->chan && rdma_migrate_id(req->id, chan->cm))
		return vrb_errno();
	req->id->context = &qp->base.obj;
	qp->conn.id = req->id;
	qp->conn.state = VRB_CONN_ACCEPTED;
	qp->conn.deadline_ns = gn_deadline_us(opts->timeout_us);
	vrb_qp_state(qp, GN_QP_READY);
	vrb_chan_set_deadline(chan, qp);
	if (!rdma_accept(req->id, &param))
		return 0;
	rc = vrb_errno();
	vrb_chan_clear_deadline(chan, qp);
	qp->conn.state = VRB_CONN_NONE;
	qp->conn.id = NULL;
	return rc;
}

int vrb_accept(struct gn_conn_req *base_req, struct gn_qp *base, const struct gn_conn_opts *opts)
{
	struct vrb_req *req = container_of(base_req, struct vrb_req, base);
	struct vrb_qp *qp = vrb_qp(base);
	struct vrb_chan *chan = vrb_chan(base->chan);
	struct vrb_path path = {
		.rnr_retry = opts->rnr_retry,
		.rnr_timer_us = opts->rnr_timer_us,
	};
	int rc;

	vrb_path_depths(&path, base->obj.fabric, req->responder_resources, req->initiator_depth);
	rc = vrb_qp_bring_up(qp, req->id, &path);
	if (!rc) {
		/* The owner may use its objects meanwhile; after the unlock it owns the qp. */
		gn_mutex_lock(&chan->lock);
		rc = req_accept(qp, req, opts, &path);
		gn_mutex_unlock(&chan->lock);
	}
	if (rc) {
		/* rdma_cm returns EINVAL if the client has aborted. */
		rc = rc == -EINVAL ? -ECONNABORTED : rc;
		gn_log(GN_LOG_INFO, "verbs: a connection was not accepted: %s", gn_strerror(rc));
		rdma_destroy_id(req->id);
		vrb_qp_discard(qp);
	}
	req_release(req);
	return rc;
}

int vrb_reject(struct gn_conn_req *base, const void *private_data, uint32_t private_len)
{
	struct vrb_req *req = container_of(base, struct vrb_req, base);
	int rc = 0;

	if (rdma_reject(req->id, private_data, (uint8_t)private_len))
		rc = errno == EINVAL ? -ECONNRESET : vrb_errno();
	rdma_destroy_id(req->id);
	req_release(req);
	return rc;
}
