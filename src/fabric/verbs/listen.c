/* SPDX-License-Identifier: MIT */
/*
 * The passive side of connections (cm.c has the picture): listeners, and the requests that come to
 * them, which wait for somebody to accept or reject them.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <netinet/in.h>
#include <string.h>

#define BACKLOG	 1024 /* requests that wait in the kernel */
#define REQS_MAX 1024 /* and that wait for their taker, per channel; more are refused */

/* The kernel calls a port that conflicts with a listener at any address "not available", too. */
static bool is_available(struct vrb_chan *chan, struct sockaddr_storage at)
{
	struct rdma_cm_id *id;
	bool available;

	if (rdma_create_id(chan->cm, &id, NULL, RDMA_PS_TCP))
		return false;
	/* Any free port. In IPv6 it has the same place (addr.c). */
	((struct sockaddr_in *)&at)->sin_port = 0;
	available = !rdma_bind_addr(id, (struct sockaddr *)&at);
	rdma_destroy_id(id);
	return available;
}

/* At any address of IPv6 it takes IPv4 too, whatever the system does with sockets (bindv6only). */
static void take_both(struct rdma_cm_id *id, const struct sockaddr_storage *at)
{
	int only = 0;

	if (at->ss_family == AF_INET6 &&
	    IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)at)->sin6_addr) &&
	    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)))
		gn_log(GN_LOG_WARN, "verbs: this listener may take IPv6 only: %s",
		       gn_strerror(vrb_errno()));
}

static int bind_and_listen(struct vrb_chan *chan, struct rdma_cm_id *id,
			   struct sockaddr_storage *at)
{
	int rc;

	take_both(id, at);
	if (!rdma_bind_addr(id, (struct sockaddr *)at) && !rdma_listen(id, BACKLOG))
		return 0;
	rc = vrb_errno();
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
	rc = vrb_cm_new_id(chan, &base->obj, &listener->id);
	if (rc)
		goto unlock;
	rc = bind_and_listen(chan, listener->id, &at);
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

	/* Under the lock nobody handles a request of it. Those that rdma_cm has, it refuses. */
	gn_mutex_lock(&chan->lock);
	rdma_destroy_id(container_of(base, struct vrb_listener, base)->id);
	gn_mutex_unlock(&chan->lock);
}

/* A request's id is ours to keep or destroy from here on. */
void vrb_requested(struct vrb_listener *listener, const struct vrb_happening *what)
{
	struct gn_fabric *fabric = listener->base.obj.fabric;
	struct vrb_chan *chan = vrb_chan(listener->base.chan);
	struct gn_conn_req *base;
	struct vrb_req *req;

	if (!vrb_cm_on_our_device(what->id, fabric)) {
		if (!listener->told_device)
			gn_fail_log(
				0,
				"verbs: a request that came through %s is refused: this fabric is "
				"%s; listen at an address of that device only, not at any",
				what->id->verbs ? ibv_get_device_name(what->id->verbs->device) :
						  "no RDMA device",
				fabric->attr.device);
		listener->told_device = true;
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

static void release(struct vrb_req *req)
{
	__atomic_fetch_sub(&req->chan->n_reqs, 1, __ATOMIC_RELAXED);
	obj_release(&req->chan->base.obj);
}

/* From here on events of it may come to the channel, whose lock is held. */
static int answer(struct vrb_qp *qp, struct vrb_req *req, const struct gn_conn_opts *opts,
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

	/* No event of it can be under way: rdma_cm drops them until it is accepted. */
	if (chan != req->chan && rdma_migrate_id(req->id, chan->cm))
		return vrb_errno();
	req->id->context = &qp->base.obj;
	qp->conn.id = req->id;
	qp->conn.state = VRB_CONN_ACCEPTED;
	qp->conn.deadline_ns = gn_deadline_us(opts->timeout_us);
	vrb_qp_state(qp, GN_QP_READY);
	vrb_chan_expect(chan, qp);
	if (!rdma_accept(req->id, &param))
		return 0;
	rc = vrb_errno();
	vrb_chan_expect_no_more(chan, qp);
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
		/* The qp's owner may be at work; when the lock is free, the qp is the owner's. */
		gn_mutex_lock(&chan->lock);
		rc = answer(qp, req, opts, &path);
		gn_mutex_unlock(&chan->lock);
	}
	if (rc) {
		/* What rdma_cm calls an invalid state is a client that did not wait for us. */
		rc = rc == -EINVAL ? -ECONNABORTED : rc;
		gn_log(GN_LOG_INFO, "verbs: a connection was not accepted: %s", gn_strerror(rc));
		rdma_destroy_id(req->id);
		vrb_qp_silence(qp);
	}
	release(req);
	return rc;
}

int vrb_reject(struct gn_conn_req *base, const void *private_data, uint32_t private_len)
{
	struct vrb_req *req = container_of(base, struct vrb_req, base);
	int rc = 0;

	if (rdma_reject(req->id, private_data, (uint8_t)private_len))
		rc = errno == EINVAL ? -ECONNRESET : vrb_errno();
	rdma_destroy_id(req->id);
	release(req);
	return rc;
}
