/* SPDX-License-Identifier: MIT */
/* Completion queues: polling and translation, arming, and the completion channel's events. */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

/* An acknowledgement takes a lock in libibverbs, and destroying a cq waits for missing ones. */
#define ACK_BATCH    64u
#define POLL_BATCH   16	   /* completions per ibv_poll_cq() */
#define EVENTS_BATCH 64	   /* per call; more leave the fd readable */
#define ASYNC_EVERY  1024u /* empty polls: a thread that only polls must learn of a dead cq, too */

static const uint8_t statuses[] = {
	[IBV_WC_SUCCESS] = GN_WC_OK,
	[IBV_WC_LOC_LEN_ERR] = GN_WC_LOCAL_LENGTH,
	[IBV_WC_LOC_QP_OP_ERR] = GN_WC_LOCAL_QP,
	[IBV_WC_LOC_EEC_OP_ERR] = GN_WC_LOCAL_QP,
	[IBV_WC_LOC_PROT_ERR] = GN_WC_LOCAL_ACCESS,
	[IBV_WC_WR_FLUSH_ERR] = GN_WC_FLUSHED,
	[IBV_WC_MW_BIND_ERR] = GN_WC_LOCAL_ACCESS,
	[IBV_WC_BAD_RESP_ERR] = GN_WC_REMOTE_FAILED,
	[IBV_WC_LOC_ACCESS_ERR] = GN_WC_LOCAL_ACCESS,
	[IBV_WC_REM_INV_REQ_ERR] = GN_WC_REMOTE_INVALID,
	[IBV_WC_REM_ACCESS_ERR] = GN_WC_REMOTE_ACCESS,
	[IBV_WC_REM_OP_ERR] = GN_WC_REMOTE_FAILED,
	[IBV_WC_RETRY_EXC_ERR] = GN_WC_RETRY,
	[IBV_WC_RNR_RETRY_EXC_ERR] = GN_WC_RNR,
	[IBV_WC_LOC_RDD_VIOL_ERR] = GN_WC_LOCAL_QP,
	[IBV_WC_REM_INV_RD_REQ_ERR] = GN_WC_REMOTE_INVALID,
	[IBV_WC_REM_ABORT_ERR] = GN_WC_REMOTE_FAILED,
	[IBV_WC_INV_EECN_ERR] = GN_WC_LOCAL_QP,
	[IBV_WC_INV_EEC_STATE_ERR] = GN_WC_LOCAL_QP,
	[IBV_WC_FATAL_ERR] = GN_WC_FATAL,
	[IBV_WC_RESP_TIMEOUT_ERR] = GN_WC_RETRY,
	[IBV_WC_GENERAL_ERR] = GN_WC_FATAL,
};

static enum gn_wc_status wc_status_of(enum ibv_wc_status status)
{
	return (size_t)status < sizeof(statuses) ? (enum gn_wc_status)statuses[status] :
						   GN_WC_FATAL;
}

int vrb_cq_init(struct gn_cq *base)
{
	struct vrb_cq *cq = vrb_cq(base);
	int rc;

	cq->stash = gn_alloc(POLL_BATCH * sizeof(*cq->stash), GN_CACHELINE);
	if (!cq->stash)
		return -ENOMEM;
	cq->stash_size = POLL_BATCH;
	cq->ibv = ibv_create_cq(vrb_ctx(base->ctx)->ibv, (int)base->depth, cq,
				base->chan ? vrb_chan(base->chan)->comp : NULL, 0);
	if (!cq->ibv) {
		rc = vrb_errno();
		gn_fail_log(0, "verbs: no completion queue of %u entries: %s", base->depth,
			    gn_strerror(rc));
		gn_free(cq->stash);
		return rc;
	}
	base->depth = (uint32_t)cq->ibv->cqe;
	return 0;
}

void vrb_cq_fini(struct gn_cq *base)
{
	struct vrb_chan *chan = base->chan ? vrb_chan(base->chan) : NULL;
	struct vrb_cq *cq = vrb_cq(base);
	int rc;

	if (chan) {
		gn_mutex_lock(&chan->lock);
		/* From now on vrb_cq_events() acknowledges at once. */
		cq->closing = true;
		if (cq->events)
			ibv_ack_cq_events(cq->ibv, cq->events);
		cq->events = 0;
		gn_mutex_unlock(&chan->lock);
	}
	/* Waits for acknowledgements of other threads, so the caller holds no lock. */
	rc = ibv_destroy_cq(cq->ibv);
	if (rc)
		gn_fail_log(0, "verbs: a completion queue is left behind: %s", gn_strerror(-rc));
	gn_free(cq->stash);
}

/* A datagram that does not fit may fail the receive alone. */
static bool qp_still_ready(struct vrb_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return qp->base.state == GN_QP_READY &&
	       !ibv_query_qp(qp->ibv, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS;
}

/*
 * After an error completion the device has the qp in error, or (UD sends) in SQE. After a failed
 * receive of an RC qp the device changes the state itself, and must not be disturbed: Soft-RoCE
 * completes the receive first and then sends the reason, unless the qp is put in error in between.
 */
static void qp_fail_on_error(struct vrb_qp *qp, const struct gn_wc *wc)
{
	const bool by_itself = wc->op == GN_OP_RECV && qp->base.type == GN_QP_RC;

	if (wc->op == GN_OP_RECV && qp->base.type == GN_QP_UD && wc->status != GN_WC_FLUSHED &&
	    qp_still_ready(qp))
		return;
	if (qp->base.state != GN_QP_ERROR && by_itself)
		vrb_qp_state(qp, GN_QP_ERROR);
	else if (qp->base.state != GN_QP_ERROR)
		vrb_qp_fail(qp);
	if (wc->status == GN_WC_RETRY)
		vrb_cm_peer_lost(qp);
}

/* Finds the full position; -ERANGE: no request is outstanding there. */
static int wc_find_position(const struct ibv_wc *in, uint64_t tail, uint64_t head, uint64_t *out)
{
	const uint64_t position = tail + (((in->wr_id >> 1) - tail) & VRB_POSITION_MASK);

	if (unlikely(position >= head))
		return gn_fail_log(-ERANGE,
				   "verbs: a device completed what was not posted; ignored");
	*out = position;
	return 0;
}

static int wc_finish_send(struct gn_qp *qp, const struct ibv_wc *in, struct gn_wc *out)
{
	const struct sq_entry *entry;
	const int rc = wc_find_position(in, qp->sq_tail, qp->sq_head, &out->id);

	if (unlikely(rc))
		return rc;
	entry = &qp->sq[out->id & qp->sq_mask];
	out->op = (enum gn_op)entry->op;
	out->len_bytes = entry->len_bytes;
	return 0;
}

static int wc_finish_recv(struct gn_qp *qp, const struct ibv_wc *in, struct gn_wc *out)
{
	const int rc = wc_find_position(in, qp->rq_tail, qp->rq_head, &out->id);

	if (unlikely(rc))
		return rc;
	out->op = GN_OP_RECV;
	if (unlikely(in->status != IBV_WC_SUCCESS))
		return 0;
	if (in->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		out->op = GN_OP_RECV_WRITE_IMM;
	out->len_bytes = in->byte_len;
	if (in->wc_flags & IBV_WC_WITH_IMM) {
		out->flags = GN_WC_IMM;
		out->imm = ntohl(in->imm_data);
	}
	if (qp->type == GN_QP_UD) {
		out->flags |= GN_WC_GRH;
		out->src_qpn = in->src_qp;
		out->src_lid = in->slid;
	}
	return 0;
}

/* False: the completion's qp was destroyed. */
static bool wc_translate(struct vrb_cq *cq, const struct ibv_wc *in, struct gn_wc *out)
{
	struct vrb_qp *qp = vrb_table_find(&vrb_ctx(cq->base.ctx)->table, in->wr_id);

	if (unlikely(!qp))
		return false;
	*out = (struct gn_wc){.qp = &qp->base, .status = wc_status_of(in->status)};
	if (unlikely(in->wr_id & 1 ? wc_finish_recv(&qp->base, in, out) :
				     wc_finish_send(&qp->base, in, out)))
		return false;
	if (unlikely(out->status != GN_WC_OK)) {
		out->vendor = in->vendor_err;
		qp_fail_on_error(qp, out);
	}
	return true;
}

/* Appends a batch to the stash, which has space for it. Returns the number of completions. */
static unsigned stash_poll_batch(struct vrb_cq *cq)
{
	int n = ibv_poll_cq(cq->ibv, POLL_BATCH, &cq->stash[cq->stash_end]);

	if (unlikely(n < 0)) {
		gn_fail_log(0, "verbs: polling a completion queue failed: it is lost");
		cq->base.overrun = true;
		n = 0;
	}
	cq->stash_end += (unsigned)n;
	return (unsigned)n;
}

/* The stash must be empty. */
static unsigned stash_refill(struct vrb_cq *cq)
{
	assert(cq->stash_first == cq->stash_end);
	cq->stash_first = cq->stash_end = 0;
	return stash_poll_batch(cq);
}

/* Removes completions of destroyed qps from the stash, starting at from. */
static void stash_keep_live(struct vrb_cq *cq, unsigned from)
{
	const unsigned end = cq->stash_end;

	cq->stash_end = from;
	for (; from < end; from++)
		if (vrb_table_find(&vrb_ctx(cq->base.ctx)->table, cq->stash[from].wr_id))
			cq->stash[cq->stash_end++] = cq->stash[from];
}

/* Makes space for one more batch. The outstanding requests of live qps bound its growth. */
static int stash_grow(struct vrb_cq *cq)
{
	const unsigned size = 2 * cq->stash_size;
	struct ibv_wc *stash;

	if (cq->stash_size - cq->stash_end >= POLL_BATCH)
		return 0;
	stash = gn_alloc(size * sizeof(*stash), GN_CACHELINE);
	if (!stash)
		return -ENOMEM;
	memcpy(stash, cq->stash, cq->stash_end * sizeof(*stash));
	gn_free(cq->stash);
	cq->stash = stash;
	cq->stash_size = size;
	return 0;
}

void vrb_cq_purge(struct gn_cq *base)
{
	struct vrb_cq *cq = vrb_cq(base);
	unsigned n = POLL_BATCH;

	stash_keep_live(cq, cq->stash_first);
	/*
	 * Most devices remove a destroyed qp's completions themselves. Soft-RoCE does not, and a cq
	 * that is not polled would be overrun by short-lived qps. Without memory the completions
	 * stay, and a poll skips them.
	 */
	for (unsigned polled = 0; n == POLL_BATCH && polled < base->depth && !stash_grow(cq);
	     polled += n) {
		n = stash_poll_batch(cq);
		stash_keep_live(cq, cq->stash_end - n);
	}
}

int vrb_cq_poll(struct gn_cq *base, struct gn_wc *wc, int n)
{
	struct vrb_cq *cq = vrb_cq(base);
	bool was_last = false;
	int got = 0;

	while (got < n) {
		if (cq->stash_first == cq->stash_end) {
			if (was_last || !stash_refill(cq))
				break;
			was_last = cq->stash_end < POLL_BATCH;
		}
		got += wc_translate(cq, &cq->stash[cq->stash_first++], &wc[got]);
	}
	if (!got && ++cq->n_empty_polls % ASYNC_EVERY == 0)
		vrb_async_pump(vrb_ctx(base->ctx));
	return got;
}

bool vrb_cq_ready(struct gn_cq *base)
{
	struct vrb_cq *cq = vrb_cq(base);

	return cq->stash_first < cq->stash_end || stash_refill(cq);
}

int vrb_cq_arm(struct gn_cq *base, bool solicited_only)
{
	return -ibv_req_notify_cq(vrb_cq(base)->ibv, solicited_only);
}

void vrb_cq_events(struct vrb_chan *chan)
{
	struct ibv_cq *ibv;
	void *context;

	for (int i = 0; i < EVENTS_BATCH && !ibv_get_cq_event(chan->comp, &ibv, &context); i++) {
		struct vrb_cq *cq = context;

		/*
		 * Before acknowledging: after the last acknowledgement a closing cq may be freed.
		 */
		chan_push(&chan->base, &cq->base.ev_completion);
		if (++cq->events == ACK_BATCH || cq->closing) {
			const unsigned n = cq->events;

			cq->events = 0;
			ibv_ack_cq_events(ibv, n);
		}
	}
}
