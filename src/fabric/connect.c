/* SPDX-License-Identifier: MIT */
/*
 * Listening, connecting, accepting: argument checks, defaults, and the providers' connection
 * events.
 */
#include "base/fail.h"
#include "base/sized.h"
#include "fabric/addr.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_TIMEOUT_US   2000000u
#define DEFAULT_RNR_TIMER_US 640u
#define RNR_RETRY_MAX	     6u /* 7 means infinite in verbs: a stuck peer would hang the qp */

/* Returns the part of addr after "provider:", or NULL. */
static const char *addr_after_provider(const struct gn_fabric *fabric, const char *addr)
{
	const size_t len = strlen(fabric->provider->name);

	if (addr && !strncmp(addr, fabric->provider->name, len) && addr[len] == ':')
		return addr + len + 1;
	gn_fail_log(0, "fabric: '%s' is not an address of provider %s: these start with '%s:'",
		    addr ? addr : "", fabric->provider->name, fabric->provider->name);
	return NULL;
}

int fabric_addr_check(struct gn_fabric *fabric, const char *addr)
{
	const char *own = addr_after_provider(fabric, addr);

	return own ? fabric->provider->addr_check(fabric, own) : -EINVAL;
}

int gn_listener_create(struct gn_ctx *ctx, const char *addr, struct gn_chan *chan, unsigned flags,
		       struct gn_listener **out)
{
	const unsigned failures_before = gn_fail_count();
	struct gn_listener *listener;
	struct gn_fabric *fabric;
	const char *own;
	int rc;

	if (obj_check(ctx, OBJ_CTX) || obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	if (!out || chan->ctx != ctx || flags & ~(unsigned)GN_ANY_USER)
		return gn_fail(
			-EINVAL,
			"gn_listener_create(): out is NULL, chan is another context's, or flags "
			"has bits other than "
			"GN_ANY_USER");
	fabric = ctx->obj.fabric;
	own = addr_after_provider(fabric, addr);
	if (!own)
		return -EINVAL;
	rc = obj_create(fabric, OBJ_LISTENER, sizeof(*listener), &listener);
	if (rc)
		return rc;
	listener->ctx = ctx;
	listener->chan = chan;
	listener->flags = flags;
	rc = fabric->provider->listen_init(listener, own);
	if (rc) {
		obj_destroy(&listener->obj);
		return gn_fail_since(failures_before, rc, addr);
	}
	obj_hold(&ctx->obj);
	obj_hold(&chan->obj);
	*out = listener;
	return 0;
}

/* Taken requests lose their listener; queued ones are rejected. */
static void listener_orphan_requests(struct gn_listener *listener)
{
	struct gn_fabric *fabric = listener->obj.fabric;
	struct gn_conn_req *refused;

	do {
		refused = NULL;
		gn_mutex_lock(&fabric->lock);
		for (struct obj *o = fabric->pool[OBJ_REQ].live; o; o = o->next) {
			struct gn_conn_req *req = container_of(o, struct gn_conn_req, obj);

			if (req->listener != listener)
				continue;
			req->listener = NULL;
			if (req->ev.queued) {
				refused = req;
				break;
			}
		}
		gn_mutex_unlock(&fabric->lock);
		if (refused) {
			chan_remove(listener->chan, &refused->ev);
			gn_reject(refused, NULL, 0);
		}
	} while (refused);
}

int gn_listener_destroy(struct gn_listener *listener)
{
	struct gn_ctx *ctx;
	int rc;

	if (!listener)
		return 0;
	rc = obj_check_idle(listener, OBJ_LISTENER);
	if (rc)
		return rc;
	ctx = listener->ctx;
	/* Excludes a thread that pumps the channel. After listen_fini no request arrives. */
	gn_mutex_lock(&ctx->lock);
	listener->obj.fabric->provider->listen_fini(listener);
	listener_orphan_requests(listener);
	gn_mutex_unlock(&ctx->lock);
	obj_release(&ctx->obj);
	obj_release(&listener->chan->obj);
	obj_destroy(&listener->obj);
	return 0;
}

static int conn_opts_fill(const struct gn_fabric *fabric, const struct gn_conn_opts *in,
			  uint32_t max_private, struct gn_conn_opts *out)
{
	int rc = SIZED_READ(out, in, "gn_conn_opts");

	if (rc)
		return rc;
	if (!out->rnr_retry)
		out->rnr_retry = GN_RNR_RETRY_DEFAULT;
	else if (out->rnr_retry == GN_RNR_NONE)
		out->rnr_retry = 0;
	if (!out->timeout_us)
		out->timeout_us = DEFAULT_TIMEOUT_US;
	if (!out->rnr_timer_us)
		out->rnr_timer_us = DEFAULT_RNR_TIMER_US;
	if (out->rnr_retry > RNR_RETRY_MAX || out->private_len > max_private ||
	    (out->private_len && !out->private_data))
		return gn_fail_log(
			-EINVAL,
			"fabric: connection options: rnr_retry %u (at most %u), %u bytes of "
			"private "
			"data (at most %u on %s)",
			out->rnr_retry, RNR_RETRY_MAX, out->private_len, max_private,
			fabric->attr.provider);
	return 0;
}

static int qp_check_new(const struct gn_qp *qp)
{
	if (qp->state == GN_QP_NEW)
		return 0;
	return gn_fail(-EISCONN, "fabric: the qp was connected before; create another");
}

int gn_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts)
{
	struct gn_conn_opts full = {.size = sizeof(full)};
	const unsigned failures_before = gn_fail_count();
	const char *own;
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (qp->type != GN_QP_RC)
		return gn_fail(-EINVAL, "gn_connect(): the qp is not of type GN_QP_RC");
	own = addr_after_provider(qp->obj.fabric, addr);
	if (!own)
		return -EINVAL;
	rc = conn_opts_fill(qp->obj.fabric, opts, qp->obj.fabric->attr.max_private, &full);
	if (rc)
		return rc;
	qp_lock(qp);
	rc = qp_check_new(qp);
	if (!rc)
		rc = qp->obj.fabric->provider->connect(qp, own, &full);
	qp_unlock(qp);
	return rc ? gn_fail_since(failures_before, rc, addr) : 0;
}

int req_create(struct gn_listener *listener, struct gn_conn_req **out)
{
	struct gn_conn_req *req;
	int rc = obj_create(listener->obj.fabric, OBJ_REQ, sizeof(*req), &req);

	if (rc)
		return rc;
	req->ctx = listener->ctx;
	req->listener = listener;
	req->ev = (struct chan_node){.type = GN_EVENT_CONNECT_REQUEST, .about = &req->obj};
	obj_hold(&req->ctx->obj);
	*out = req;
	return 0;
}

void req_push(struct gn_conn_req *req)
{
	chan_push(req->listener->chan, &req->ev);
}

void req_drop(struct gn_conn_req *req)
{
	obj_release(&req->ctx->obj);
	obj_destroy(&req->obj);
}

int gn_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts)
{
	struct gn_conn_opts full = {.size = sizeof(full)};
	const unsigned failures_before = gn_fail_count();
	struct gn_ctx *shared_in;
	int rc;

	if (obj_check(req, OBJ_REQ))
		return -EINVAL;
	rc = obj_check(qp, OBJ_QP);
	if (!rc && (qp->obj.fabric != req->obj.fabric || qp->type != GN_QP_RC))
		rc = gn_fail(-EINVAL, "gn_accept(): qp is not an RC qp of the request's fabric");
	if (!rc)
		rc = conn_opts_fill(req->obj.fabric, opts, GN_PRIVATE_MAX, &full);
	if (rc)
		goto refuse;
	shared_in = qp->shared ? qp->ctx : NULL;
	qp_lock(qp);
	rc = qp_check_new(qp);
	if (!rc) {
		/* On success the owner has the qp, and may have destroyed it already. */
		rc = req->obj.fabric->provider->accept(req, qp, &full);
		req_drop(req);
		if (shared_in)
			gn_mutex_unlock(&shared_in->lock);
		return rc ? gn_fail_since(failures_before, rc, "gn_accept()") : 0;
	}
	qp_unlock(qp);
refuse:
	gn_reject(req, NULL, 0);
	return rc;
}

int gn_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len)
{
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(req, OBJ_REQ))
		return -EINVAL;
	if (private_len > req->obj.fabric->attr.max_private || (private_len && !private_data)) {
		private_len = 0;
		gn_log(GN_LOG_WARN,
		       "fabric: the private data of a rejection is too long and was not sent");
	}
	rc = req->obj.fabric->provider->reject(req, private_data, private_len);
	req_drop(req);
	return rc ? gn_fail_since(failures_before, rc, "gn_reject()") : 0;
}

int gn_disconnect(struct gn_qp *qp)
{
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (qp->type != GN_QP_RC)
		return gn_fail(-EINVAL, "gn_disconnect(): the qp is not of type GN_QP_RC");
	qp_lock(qp);
	rc = qp->state == GN_QP_NEW ?
		     gn_fail(-ENOTCONN, "gn_disconnect(): the qp is not connected") :
		     qp->obj.fabric->provider->disconnect(qp);
	qp_unlock(qp);
	return rc ? gn_fail_since(failures_before, rc, "gn_disconnect()") : 0;
}

void qp_established(struct gn_qp *qp)
{
	qp->ev_outcome.type = GN_EVENT_ESTABLISHED;
	qp->ev_outcome.status = 0;
	chan_push(qp->chan, &qp->ev_outcome);
}

void qp_established_for(struct gn_qp *qp, void (*hand_over)(struct gn_qp *qp))
{
	struct gn_chan *chan = qp->chan;

	obj_hold(&chan->obj);
	qp->ev_outcome.type = GN_EVENT_ESTABLISHED;
	qp->ev_outcome.status = 0;
	gn_mutex_lock(&chan->lock);
	hand_over(qp);
	chan_push_locked(chan, &qp->ev_outcome);
	gn_mutex_unlock(&chan->lock);
	obj_release(&chan->obj);
}

void qp_refused(struct gn_qp *qp, enum gn_event_type type, int status)
{
	qp->ev_outcome.type = type;
	qp->ev_outcome.status = status;
	chan_push(qp->chan, &qp->ev_outcome);
}

void qp_disconnected(struct gn_qp *qp)
{
	if (qp->disconnect_reported)
		return;
	qp->disconnect_reported = true;
	chan_push(qp->chan, &qp->ev_disconnected);
}
