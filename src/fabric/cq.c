/* SPDX-License-Identifier: MIT */
/*
 * Completion queues: polling, the send queue's bookkeeping, arming and waiting. A provider reports
 * a completion by its request's position; gn_cq_poll() translates the position into the user's id
 * and frees the queue entries up to it.
 */
#include "base/fail.h"
#include "base/sized.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <string.h>

static int cq_arm_locked(struct gn_cq *cq, bool solicited_only)
{
	const struct provider *p = cq->obj.fabric->provider;
	int rc;

	cq_lock(cq);
	rc = p->cq_arm(cq, solicited_only);
	counter_add(&cq->arms, rc == 0);
	cq_unlock(cq);
	return rc;
}

static bool cq_source_ready(struct gn_source *source)
{
	struct gn_cq *cq = container_of(source, struct gn_cq, source);
	bool ready;

	cq_lock(cq);
	ready = cq->overrun || cq->obj.fabric->provider->cq_ready(cq);
	cq_unlock(cq);
	return ready;
}

/* Removes the event of a cq that no user has armed and no thread sleeps on. */
static void cq_drop_unwanted_event(struct gn_cq *cq)
{
	if (!__atomic_load_n(&cq->waiters, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&cq->user_armed, __ATOMIC_RELAXED))
		chan_remove(cq->chan, &cq->ev_completion);
}

static int cq_source_arm(struct gn_source *source)
{
	struct gn_cq *cq = container_of(source, struct gn_cq, source);
	int rc;

	if (!cq->chan || cq->chan->fd < 0)
		return -EOPNOTSUPP;
	rc = cq_arm_locked(cq, false);
	if (rc)
		return rc;
	if (cq_source_ready(source))
		return -EAGAIN;
	if (unlikely(__atomic_load_n(&cq->chan->first, __ATOMIC_RELAXED)))
		cq_drop_unwanted_event(cq);
	/* Events that were not taken keep the channel readable: sleep instead of spinning. */
	if (__atomic_load_n(&cq->chan->first, __ATOMIC_RELAXED)) {
		gn_sleep_us(PENDING_EVENTS_SLEEP_US);
		return -EAGAIN;
	}
	__atomic_fetch_add(&cq->waiters, 1, __ATOMIC_RELAXED);
	return cq->chan->fd;
}

/*
 * An event requested only by waits is removed with the last wait; until then it wakes the others.
 */
static void cq_source_disarm(struct gn_source *source)
{
	struct gn_cq *cq = container_of(source, struct gn_cq, source);

	cq->obj.fabric->provider->chan_pump(cq->chan);
	__atomic_fetch_sub(&cq->waiters, 1, __ATOMIC_RELAXED);
	cq_drop_unwanted_event(cq);
}

static void cq_source_armed(struct gn_source *source)
{
	counter_add(&container_of(source, struct gn_cq, source)->arms, 1);
}

static const struct source_ops cq_source = {.ready = cq_source_ready,
					    .arm = cq_source_arm,
					    .disarm = cq_source_disarm,
					    .armed = cq_source_armed};

int gn_cq_create(struct gn_ctx *ctx, const struct gn_cq_opts *given, struct gn_cq **out)
{
	struct gn_cq_opts own = {.size = sizeof(own)}, *opts = &own;
	const unsigned failures_before = gn_fail_count();
	struct gn_fabric *fabric;
	struct gn_cq *cq;
	int rc;

	if (obj_check(ctx, OBJ_CTX))
		return -EINVAL;
	if (!given || !out)
		return gn_fail(-EINVAL, "gn_cq_create(): opts is NULL, or out is NULL");
	rc = SIZED_READ(opts, given, "gn_cq_opts");
	if (rc)
		return rc;
	if (opts->flags & ~(unsigned)GN_SHARED)
		return gn_fail(-EINVAL,
			       "gn_cq_create(): opts->flags has other bits than GN_SHARED");
	fabric = ctx->obj.fabric;
	if (!opts->depth || opts->depth > fabric->attr.max_cqe)
		return gn_fail(-EINVAL,
			       "gn_cq_create(): depth %u: at least 1, at most %u on this provider",
			       opts->depth, fabric->attr.max_cqe);
	if (opts->chan && (obj_check(opts->chan, OBJ_CHAN) || opts->chan->ctx != ctx))
		return gn_fail(-EINVAL,
			       "gn_cq_create(): opts->chan is not a channel of this context");
	rc = obj_create(fabric, OBJ_CQ, sizeof(*cq), &cq);
	if (rc)
		return rc;
	cq->ctx = ctx;
	cq->chan = opts->chan;
	cq->depth = opts->depth;
	cq->shared = opts->flags & GN_SHARED;
	cq->poll = cq_poll_any;
	cq->ev_completion = (struct chan_node){.type = GN_EVENT_CQ, .about = &cq->obj};
	cq->ev_overrun = (struct chan_node){.type = GN_EVENT_CQ_OVERRUN, .about = &cq->obj};
	source_init(&cq->source, &cq_source);
	cq->source.wakes = cq->chan != NULL;
	rc = fabric->provider->cq_init(cq);
	if (rc) {
		obj_destroy(&cq->obj);
		return gn_fail_since(failures_before, rc, "gn_cq_create()");
	}
	obj_hold(&ctx->obj);
	if (cq->chan)
		obj_hold(&cq->chan->obj);
	*out = cq;
	return 0;
}

int gn_cq_destroy(struct gn_cq *cq)
{
	struct gn_counters *past;
	int rc;

	if (!cq)
		return 0;
	rc = obj_check_idle(cq, OBJ_CQ);
	if (rc)
		return rc;
	source_fini(&cq->source);
	/* Excludes a thread that pumps the channel. */
	gn_mutex_lock(&cq->ctx->lock);
	cq->obj.fabric->provider->cq_fini(cq);
	gn_mutex_unlock(&cq->ctx->lock);
	chan_remove(cq->chan, &cq->ev_completion);
	chan_remove(cq->chan, &cq->ev_overrun);
	past = &cq->obj.fabric->past_counters;
	gn_mutex_lock(&cq->obj.fabric->lock);
	past->polls_empty += cq->polls_empty;
	past->arms += cq->arms;
	gn_mutex_unlock(&cq->obj.fabric->lock);
	if (cq->chan)
		obj_release(&cq->chan->obj);
	obj_release(&cq->ctx->obj);
	obj_destroy(&cq->obj);
	return 0;
}

uint32_t gn_cq_depth(const struct gn_cq *cq)
{
	return obj_alive(cq, OBJ_CQ) ? cq->depth : 0;
}

struct gn_source *gn_cq_source(struct gn_cq *cq)
{
	return obj_check(cq, OBJ_CQ) ? NULL : &cq->source;
}

int cq_poll_any(struct gn_cq *cq, struct gn_wc *wc, int n)
{
	int got;

	cq_lock(cq);
	got = cq->obj.fabric->provider->cq_poll(cq, wc, n);
	if (likely(got > 0)) {
		for (int i = 0; i < got; i++)
			cq_finish(&wc[i]);
	} else if (unlikely(cq->overrun)) {
		got = gn_fail_text(-EOVERFLOW, "the cq was overrun: completions were lost");
	} else {
		counter_add(&cq->polls_empty, 1);
	}
	cq_unlock(cq);
	return got;
}

int gn_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n)
{
	if (unlikely(!obj_alive(cq, OBJ_CQ) || !wc || n < 0)) {
		return obj_check(cq, OBJ_CQ) ?
			       -EINVAL :
			       gn_fail(-EINVAL, "gn_cq_poll(): wc is NULL, or n is negative");
	}
	return cq->poll(cq, wc, n);
}

int gn_cq_arm(struct gn_cq *cq, bool solicited_only)
{
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(cq, OBJ_CQ))
		return -EINVAL;
	if (!cq->chan)
		return gn_fail(-EINVAL, "gn_cq_arm(): the cq has no channel");
	__atomic_store_n(&cq->user_armed, true, __ATOMIC_RELAXED);
	rc = cq_arm_locked(cq, solicited_only);
	return rc ? gn_fail_since(failures_before, rc, "gn_cq_arm()") : 0;
}

int gn_cq_wait(struct gn_cq *cq, struct gn_wc *wc, int n, uint64_t deadline_ns, const char *reason)
{
	struct gn_wait_item item;
	int rc = gn_cq_poll(cq, wc, n);

	if (rc)
		return rc;
	item = gn_wait_on(&cq->source);
	do {
		rc = exec_wait(&item, 1, deadline_ns, reason);
		if (rc < 0 && rc != -ETIMEDOUT)
			break;
		const int got = gn_cq_poll(cq, wc, n);

		if (got)
			return got;
	} while (rc >= 0);
	return exec_wait_failed(rc, deadline_ns, reason);
}

static const char *const status_names[GN_WC_STATUSES] = {
	[GN_WC_OK] = "ok",
	[GN_WC_LOCAL_LENGTH] = "local length error",
	[GN_WC_LOCAL_ACCESS] = "local access error",
	[GN_WC_LOCAL_QP] = "local qp error",
	[GN_WC_FLUSHED] = "flushed",
	[GN_WC_REMOTE_ACCESS] = "remote access error",
	[GN_WC_REMOTE_INVALID] = "remote invalid request",
	[GN_WC_REMOTE_FAILED] = "remote operation failed",
	[GN_WC_RETRY] = "peer does not answer",
	[GN_WC_RNR] = "peer posted no receive",
	[GN_WC_FATAL] = "device failed",
};

const char *gn_wc_status_str(enum gn_wc_status status)
{
	return (unsigned)status < GN_WC_STATUSES ? status_names[status] : "unknown status";
}

static const char *const op_names[GN_OPS] = {
	[GN_OP_WRITE] = "write",
	[GN_OP_READ] = "read",
	[GN_OP_WRITE_IMM] = "write-imm",
	[GN_OP_SEND] = "send",
	[GN_OP_SEND_IMM] = "send-imm",
	[GN_OP_CAS] = "cas",
	[GN_OP_FAA] = "faa",
	[GN_OP_RECV] = "recv",
	[GN_OP_RECV_WRITE_IMM] = "recv-write-imm",
};

const char *gn_op_str(enum gn_op op)
{
	return (unsigned)op < GN_OPS ? op_names[op] : "unknown operation";
}
