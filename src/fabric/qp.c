/* SPDX-License-Identifier: MIT */
/* Queue pairs and address handles: creation with all checks, query, error, counters. */
#include "base/fail.h"
#include "base/sized.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_WR  128u
#define DEFAULT_SGE 1u

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
	return value ? value : fallback;
}

static uint32_t ring_size(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size *= 2;
	return size;
}

static int qp_check_opts(const struct gn_pd *pd, const struct gn_qp_opts *o)
{
	const struct gn_attr *a = &pd->obj.fabric->attr;
	const bool shared = o->flags & GN_SHARED;

	if (o->type != GN_QP_RC && o->type != GN_QP_UD)
		return gn_fail(-EINVAL, "gn_qp_create(): unknown type %u", (unsigned)o->type);
	if (o->type == GN_QP_UD && !(a->caps & GN_CAP_UD))
		return gn_fail(-EOPNOTSUPP, "gn_qp_create(): %s has no GN_CAP_UD", a->provider);
	if (obj_check(o->send_cq, OBJ_CQ) || obj_check(o->recv_cq, OBJ_CQ))
		return -EINVAL;
	if (o->send_cq->ctx != pd->ctx || o->recv_cq->ctx != pd->ctx ||
	    o->flags & ~(unsigned)GN_SHARED)
		return gn_fail(-EINVAL,
			       "gn_qp_create(): a cq is another context's, or flags has bits other "
			       "than GN_SHARED");
	if (o->send_cq->shared != shared || o->recv_cq->shared != shared)
		return gn_fail_log(-EINVAL,
				   "fabric: a shared qp needs shared cqs, an owned one owned ones");
	if (o->chan ? obj_check(o->chan, OBJ_CHAN) || o->chan->ctx != pd->ctx : o->type == GN_QP_RC)
		return gn_fail_log(-EINVAL, "fabric: an RC qp needs a channel of its own context");
	if (o->max_send_wr > a->max_send_wr || o->max_recv_wr > a->max_recv_wr ||
	    o->max_send_sge > a->max_sge || o->max_recv_sge > a->max_sge ||
	    o->max_inline > a->max_inline)
		return gn_fail(-EINVAL,
			       "gn_qp_create(): %u and %u requests of %u and %u pieces, %u bytes "
			       "inline: at most %u and %u of %u, %u on %s",
			       o->max_send_wr, o->max_recv_wr, o->max_send_sge, o->max_recv_sge,
			       o->max_inline, a->max_send_wr, a->max_recv_wr, a->max_sge,
			       a->max_inline, a->provider);
	return 0;
}

static void qp_fill(struct gn_qp *qp, struct gn_pd *pd, const struct gn_qp_opts *o)
{
	qp->pd = pd;
	qp->ctx = pd->ctx;
	qp->send_cq = o->send_cq;
	qp->recv_cq = o->recv_cq;
	qp->chan = o->chan;
	qp->type = o->type;
	qp->shared = o->flags & GN_SHARED;
	qp->qkey = o->qkey;
	qp->max_send_wr = or_default(o->max_send_wr, DEFAULT_WR);
	qp->max_recv_wr = or_default(o->max_recv_wr, DEFAULT_WR);
	qp->max_send_sge = or_default(o->max_send_sge, DEFAULT_SGE);
	qp->max_recv_sge = or_default(o->max_recv_sge, DEFAULT_SGE);
	qp->max_inline = o->max_inline;
	qp->caps = pd->obj.fabric->attr.caps;
	qp->user = o->user;
	qp->post_one = post_one_any;
	qp->post_fixed[GN_OP_WRITE] = qp->post_fixed[GN_OP_READ] = post_fixed_any;
	qp->ev_outcome = (struct chan_node){.about = &qp->obj};
	qp->ev_disconnected = (struct chan_node){.type = GN_EVENT_DISCONNECTED, .about = &qp->obj};
}

static int qp_alloc_rings(struct gn_qp *qp)
{
	const uint32_t sq = ring_size(qp->max_send_wr), rq = ring_size(qp->max_recv_wr);

	qp->sq = gn_alloc(sq * sizeof(*qp->sq), GN_CACHELINE);
	qp->rq = gn_alloc(rq * sizeof(*qp->rq), GN_CACHELINE);
	qp->sq_mask = sq - 1;
	qp->rq_mask = rq - 1;
	if (qp->sq && qp->rq)
		return 0;
	gn_free(qp->sq);
	gn_free(qp->rq);
	return -ENOMEM;
}

static void qp_ref_parts(struct gn_qp *qp)
{
	obj_hold(&qp->pd->obj);
	obj_hold(&qp->send_cq->obj);
	obj_hold(&qp->recv_cq->obj);
	if (qp->chan)
		obj_hold(&qp->chan->obj);
}

static void qp_unref_parts(struct gn_qp *qp)
{
	obj_release(&qp->pd->obj);
	obj_release(&qp->send_cq->obj);
	obj_release(&qp->recv_cq->obj);
	if (qp->chan)
		obj_release(&qp->chan->obj);
}

int gn_qp_create(struct gn_pd *pd, const struct gn_qp_opts *given, struct gn_qp **out)
{
	const unsigned failures_before = gn_fail_count();
	const struct provider *p;
	struct gn_qp_opts opts = {.size = sizeof(opts)};
	struct gn_qp *qp;
	int rc;

	if (obj_check(pd, OBJ_PD))
		return -EINVAL;
	if (!given || !out)
		return gn_fail(-EINVAL, "gn_qp_create(): opts is NULL, or out is NULL");
	rc = SIZED_READ(&opts, given, "gn_qp_opts");
	if (!rc)
		rc = qp_check_opts(pd, &opts);
	if (rc)
		return rc;
	p = pd->obj.fabric->provider;
	rc = obj_create(pd->obj.fabric, OBJ_QP, sizeof(*qp), &qp);
	if (rc)
		return rc;
	qp_fill(qp, pd, &opts);
	qp_lock(qp);
	rc = p->qp_init(qp);
	if (rc)
		goto destroy_obj;
	rc = qp_alloc_rings(qp);
	if (rc)
		goto fini_qp;
	qp_set_plain(qp);
	qp_ref_parts(qp);
	qp_unlock(qp);
	*out = qp;
	return 0;
fini_qp:
	p->qp_fini(qp);
destroy_obj:
	qp_unlock(qp);
	obj_destroy(&qp->obj);
	return gn_fail_since(failures_before, rc, "gn_qp_create()");
}

static void counters_add(struct gn_counters *sum, const struct gn_counters *part)
{
	const uint64_t *from = part->wrs;
	uint64_t *to = sum->wrs;

	enum { BYTES = sizeof(*sum) - offsetof(struct gn_counters, wrs) };

	_Static_assert(BYTES % sizeof(*to) == 0, "counters are all uint64_t");
	for (size_t i = 0; i < BYTES / sizeof(*to); i++)
		to[i] += counter_read(&from[i]);
}

static void qp_drop_events(struct gn_qp *qp)
{
	chan_remove(qp->chan, &qp->ev_outcome);
	chan_remove(qp->chan, &qp->ev_disconnected);
}

int gn_qp_detach(struct gn_qp *qp)
{
	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (qp->type != GN_QP_RC)
		return gn_fail(-EINVAL, "gn_qp_detach(): the qp is not of type GN_QP_RC");
	qp_lock(qp);
	qp->disconnect_reported = true; /* no more events of this qp */
	qp->obj.fabric->provider->qp_detach(qp);
	qp_unlock(qp);
	qp_drop_events(qp);
	return 0;
}

int gn_qp_destroy_try(struct gn_qp *qp)
{
	struct gn_fabric *fabric;
	int rc;

	if (!qp)
		return 0;
	rc = obj_check_idle(qp, OBJ_QP);
	if (rc)
		return rc;
	fabric = qp->obj.fabric;
	qp_lock(qp);
	qp->disconnect_reported = true; /* no more events of this qp */
	rc = fabric->provider->qp_close(qp);
	if (!rc)
		fabric->provider->qp_fini(qp);
	qp_unlock(qp);
	qp_drop_events(qp);
	if (rc)
		return rc; /* a peer is copying: not a failure for gn_error() */
	gn_mutex_lock(&fabric->lock);
	qp->count.bytes_in_flight = 0;
	counters_add(&fabric->past_counters, &qp->count);
	gn_mutex_unlock(&fabric->lock);
	gn_free(qp->sq);
	gn_free(qp->rq);
	qp_unref_parts(qp);
	obj_destroy(&qp->obj);
	return 0;
}

int gn_qp_destroy(struct gn_qp *qp)
{
	int rc;

	for (unsigned tries = 0; (rc = gn_qp_destroy_try(qp)) == -EAGAIN; tries++)
		teardown_pause(tries);
	return rc;
}

int gn_qp_query(struct gn_qp *qp, struct gn_qp_attr *out)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	qp_lock(qp);
	qp->obj.fabric->provider->qp_query(qp);
	attr = (struct gn_qp_attr){
		.size = sizeof(struct gn_qp_attr),
		.state = qp->state,
		.caps = qp->caps,
		.max_send_wr = qp->max_send_wr,
		.max_recv_wr = qp->max_recv_wr,
		.max_send_sge = qp->max_send_sge,
		.max_recv_sge = qp->max_recv_sge,
		.max_inline = qp->max_inline,
		.qpn = qp->qpn,
	};
	qp_unlock(qp);
	return SIZED_WRITE(out, &attr, "gn_qp_attr");
}

int gn_qp_error(struct gn_qp *qp)
{
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	qp_lock(qp);
	rc = qp->obj.fabric->provider->qp_error(qp);
	qp_unlock(qp);
	return rc ? gn_fail_since(failures_before, rc, "gn_qp_error()") : 0;
}

int gn_qp_reset(struct gn_qp *qp)
{
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (qp->type != GN_QP_UD)
		return gn_fail(-EINVAL, "gn_qp_reset(): the qp is not of type GN_QP_UD");
	qp_lock(qp);
	rc = qp->obj.fabric->provider->qp_reset(qp);
	if (!rc) {
		qp->sq_tail = qp->sq_head;
		qp->rq_tail = qp->rq_head;
		qp->sq_bytes_done = qp->sq_bytes;
		__atomic_store_n(&qp->count.bytes_in_flight, 0, __ATOMIC_RELAXED);
	}
	qp_unlock(qp);
	return rc ? gn_fail_since(failures_before, rc, "gn_qp_reset()") : 0;
}

void *gn_qp_user(const struct gn_qp *qp)
{
	return obj_alive(qp, OBJ_QP) ? qp->user : NULL;
}

int gn_qp_counters(const struct gn_qp *qp, struct gn_counters *out)
{
	struct gn_counters sum = {.size = sizeof(sum)};

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	counters_add(&sum, &qp->count);
	return SIZED_WRITE(out, &sum, "gn_counters");
}

int gn_fabric_counters(struct gn_fabric *fabric, struct gn_counters *out)
{
	struct gn_counters sum = {.size = sizeof(sum)};

	if (fabric_check(fabric))
		return -EINVAL;
	gn_mutex_lock(&fabric->lock);
	sum = fabric->past_counters;
	for (struct obj *o = fabric->pool[OBJ_QP].live; o; o = o->next)
		counters_add(&sum, &container_of(o, struct gn_qp, obj)->count);
	for (struct obj *o = fabric->pool[OBJ_CQ].live; o; o = o->next) {
		const struct gn_cq *cq = container_of(o, struct gn_cq, obj);

		sum.polls_empty += counter_read(&cq->polls_empty);
		sum.arms += counter_read(&cq->arms);
	}
	for (struct obj *o = fabric->pool[OBJ_CHAN].live; o; o = o->next)
		sum.events += counter_read(&container_of(o, struct gn_chan, obj)->events);
	gn_mutex_unlock(&fabric->lock);
	return SIZED_WRITE(out, &sum, "gn_counters");
}

/* ---- address handles ---- */

int gn_qp_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out)
{
	const unsigned failures_before = gn_fail_count();
	struct gn_ud_addr addr = {.lid = 0};
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (!out || qp->type != GN_QP_UD)
		return gn_fail(-EINVAL,
			       "gn_qp_ud_addr(): out is NULL, or the qp is not of type GN_QP_UD");
	rc = qp->obj.fabric->provider->ud_addr(qp, &addr);
	if (rc)
		return gn_fail_since(failures_before, rc, "gn_qp_ud_addr()");
	addr.qpn = qp->qpn;
	addr.qkey = qp->qkey;
	*out = addr;
	return 0;
}

static int ah_create(struct gn_qp *qp, struct gn_qp *conn, const struct gn_ud_addr *addr,
		     struct gn_ah **out)
{
	const unsigned failures_before = gn_fail_count();
	struct gn_ah *ah;
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (!addr || !out || qp->type != GN_QP_UD)
		return gn_fail(-EINVAL,
			       "gn_ah_create(): addr or out is NULL, or the qp is not of type "
			       "GN_QP_UD");
	rc = obj_create(qp->obj.fabric, OBJ_AH, sizeof(*ah), &ah);
	if (rc)
		return rc;
	ah->qp = qp;
	ah->conn = conn;
	ah->addr = *addr;
	rc = qp->obj.fabric->provider->ah_init(ah);
	ah->conn = NULL;
	if (rc) {
		obj_destroy(&ah->obj);
		return gn_fail_since(failures_before, rc, "gn_ah_create()");
	}
	obj_hold(&qp->obj);
	*out = ah;
	return 0;
}

int gn_ah_create(struct gn_qp *qp, const struct gn_ud_addr *addr, struct gn_ah **out)
{
	return ah_create(qp, NULL, addr, out);
}

int gn_ah_create_peer(struct gn_qp *qp, struct gn_qp *conn, const struct gn_ud_addr *addr,
		      struct gn_ah **out)
{
	if (obj_check(conn, OBJ_QP))
		return -EINVAL;
	if (conn->type != GN_QP_RC || (obj_alive(qp, OBJ_QP) && conn->obj.fabric != qp->obj.fabric))
		return gn_fail(-EINVAL, "gn_ah_create_peer(): conn is no RC qp of the same fabric");
	if (conn->state != GN_QP_READY)
		return gn_fail(-ENOTCONN, "gn_ah_create_peer(): conn is not connected");
	return ah_create(qp, conn, addr, out);
}

int gn_ah_create_from_wc(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
			 struct gn_ah **out)
{
	struct gn_ud_addr addr = {.lid = 0};
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(qp, OBJ_QP))
		return -EINVAL;
	if (!wc || !grh || !out || qp->type != GN_QP_UD)
		return gn_fail(-EINVAL,
			       "gn_ah_create_from_wc(): wc, grh or out is NULL, or qp is no UD qp");
	if (wc->status != GN_WC_OK || !(wc->flags & GN_WC_GRH))
		return gn_fail(-EINVAL,
			       "gn_ah_create_from_wc(): wc is not that of a received datagram");
	rc = qp->obj.fabric->provider->ah_reverse(qp, wc, grh, &addr);
	if (rc)
		return gn_fail_since(failures_before, rc, "gn_ah_create_from_wc()");
	addr.qpn = wc->src_qpn;
	return gn_ah_create(qp, &addr, out);
}

int gn_ah_destroy(struct gn_ah *ah)
{
	int rc;

	if (!ah)
		return 0;
	rc = obj_check_idle(ah, OBJ_AH);
	if (rc)
		return rc;
	ah->obj.fabric->provider->ah_fini(ah);
	obj_release(&ah->qp->obj);
	obj_destroy(&ah->obj);
	return 0;
}
