/* SPDX-License-Identifier: MIT */
/*
 * Each operation of a client is one call. Its request is written into RPC's send buffer, and its
 * value is copied out of RPC's receive buffer; RPC batches calls. While a connection has no free
 * slot, operations are queued here, in order.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "kv/bypass.h"
#include "kv/scan.h"

#define OPS_OUTSTANDING_MAX 65536u

/* ---- completion ---- */

static inline void op_complete(struct gn_kv_client *c, struct gn_kv_op *op, unsigned status)
{
	op->status = status < GN_KV_STATUSES ? status : GN_KV_FAILED;
	c->count.ended[op->status]++;
	c->n_ops--;
	if (unlikely(op->step & (KV_OP_READS | KV_OP_WRITES)))
		kv_bypass_ended(c, op);
	if (op->step & KV_OP_WAITED) {
		c->n_waited--;
		return;
	}
	c->ended++;
	if (op->done)
		op->done(op);
}

void kv_op_complete(struct gn_kv_client *c, struct gn_kv_op *op, unsigned status)
{
	op_complete(c, op, status);
}

/*
 * BUSY: the call was not executed, or its result was dropped for lack of memory. So an operation
 * that changes something may have been executed.
 */
static unsigned op_status_of_rpc(const struct gn_kv_op *op)
{
	switch (op->rpc.status) {
	case GN_RPC_TIMEOUT:
		return GN_KV_TIMEOUT;
	case GN_RPC_PEER_GONE:
	case GN_RPC_CANCELED:
		return GN_KV_GONE;
	case GN_RPC_BUSY:
		return op->verb == GN_KV_GET || op->verb == GN_KV_SCAN ? GN_KV_BUSY : GN_KV_FAILED;
	case GN_RPC_NO_METHOD:
	case GN_RPC_DENIED:
		return GN_KV_INVALID;
	default:
		return GN_KV_FAILED;
	}
}

unsigned kv_status_of_error(int rc)
{
	return rc == -ENOTCONN ? GN_KV_GONE :
	       rc == -EINVAL   ? GN_KV_INVALID :
	       rc == -EMSGSIZE ? GN_KV_TOO_BIG :
				 GN_KV_FAILED;
}

static void op_called(struct gn_rpc_op *rpc)
{
	struct gn_kv_op *op = container_of(rpc, struct gn_kv_op, rpc);
	struct kv_link *link = rpc->arg;
	struct gn_kv_client *c = link->client;
	unsigned status = GN_KV_FAILED;

	link->outstanding--;
	if (unlikely(rpc->status != GN_RPC_OK)) {
		c->disconnected |= rpc->status == GN_RPC_PEER_GONE;
		status = op_status_of_rpc(op);
	} else if (likely(kv_response_read(rpc->data, rpc->result_len, op))) {
		status = op->status;
	}
	op_complete(c, op, status);
}

/* ---- start ---- */

/* Larger than a slot: RPC copies the request, and the server READs the copy. */
static no_inline int op_submit_large(struct gn_rpc_client *rpc, struct gn_kv_op *op)
{
	void *request = gn_alloc(op->rpc.request_len, 0);
	int rc;

	if (!request)
		return -ENOMEM;
	kv_request_write(request, op);
	op->rpc.request = request;
	rc = gn_rpc_submit(rpc, &op->rpc);
	gn_free(request);
	return rc;
}

/* 0: the operation is outstanding, or has completed already because the connection broke. */
static force_inline int op_call_now(struct gn_kv_client *c, struct kv_link *link,
				    struct gn_kv_op *op)
{
	const bool busy = c->busy;
	void *to;
	int rc;

	if (unlikely(!link->rpc))
		return -ENOTCONN;
	op->rpc.method = op->verb == GN_KV_SCAN ? KV_SCAN : KV_DO;
	op->rpc.request_len = kv_request_bytes(op);
	op->rpc.result_room = (uint32_t)KV_RESPONSE_MAX + kv_room_bytes(op);
	op->rpc.deadline_ns = op->deadline_ns;
	op->rpc.done = op_called;
	op->rpc.arg = link;
	op->rpc.flags = GN_RPC_IN_PLACE;
	link->outstanding++;
	c->busy = true; /* calls may complete if the connection broke */
	if (likely(op->rpc.request_len <= link->max_request)) {
		rc = gn_rpc_prepare(link->rpc, &op->rpc, &to);
		if (likely(!rc)) {
			kv_request_write(to, op);
			rc = gn_rpc_commit(link->rpc, &op->rpc);
		}
	} else {
		rc = op_submit_large(link->rpc, op);
	}
	c->busy = busy;
	if (unlikely(rc)) {
		link->outstanding--;
		c->disconnected |= rc == -ENOTCONN;
	}
	return rc;
}

static int op_queue(struct kv_link *link, struct gn_kv_op *op)
{
	op->next = NULL;
	*link->queued_end = op;
	link->queued_end = &op->next;
	link->outstanding++;
	kv_note_deadline(link->client, op->deadline_ns);
	return 0;
}

static force_inline int op_call_or_queue(struct gn_kv_client *c, struct kv_link *link,
					 struct gn_kv_op *op)
{
	const int rc = unlikely(link->queued) ? -EAGAIN : op_call_now(c, link, op);

	return unlikely(rc == -EAGAIN) ? op_queue(link, op) : rc;
}

int kv_op_call(struct gn_kv_client *c, struct gn_kv_op *op)
{
	return op_call_or_queue(c, &c->links[op->part], op);
}

static no_inline int op_check(const struct gn_kv_client *c, const struct gn_kv_op *op)
{
	if (op->verb >= GN_KV_VERBS || (op->value_len && !op->value) ||
	    (op->room_bytes && !op->room))
		return gn_fail_text(-EINVAL, "kv: no such verb, or value or room is NULL but not "
					     "empty");
	if (op->value_len > GN_KV_VALUE_MAX)
		return gn_fail(-EMSGSIZE, "kv: a value of %u bytes: at most %u", op->value_len,
			       GN_KV_VALUE_MAX);
	if (op->verb == GN_KV_SCAN && kv_scan_partition(op) >= c->n_links)
		return gn_fail_text(-EINVAL, "kv: the cursor of the scan is not from this server");
	return 0;
}

/* For several partitions, or bypass. */
static struct kv_link *op_find_link(struct gn_kv_client *c, struct gn_kv_op *op)
{
	op->hash = kv_hash(op->key, op->key_len, c->layout.seed);
	op->part = op->verb == GN_KV_SCAN ? kv_scan_partition(op) :
					    kv_partition(op->hash, c->n_links);
	return &c->links[op->part];
}

static force_inline int op_begin(struct gn_kv_client *c, struct gn_kv_op *op, enum kv_op_flag step)
{
	struct kv_link *link = c->links;
	int rc = 0;

	if (unlikely(!op->key || op->key_len - 1 >= GN_KV_KEY_MAX))
		return gn_fail(-EINVAL, "kv: key is NULL, or its length is not 1 to %u",
			       GN_KV_KEY_MAX);
	if (unlikely(op->verb != GN_KV_GET || !op->room))
		rc = op_check(c, op);
	if (unlikely(rc))
		return rc;
	op->part = 0;
	if (unlikely(c->n_links > 1 || link->bypass))
		link = op_find_link(c, op);
	op->step = step;
	op->deadline_ns = deadline_given(op->deadline_ns);
	c->count.ops++;
	c->n_ops++;
	c->n_waited += step == KV_OP_WAITED;
	if (unlikely(link->bypass) && op->verb != GN_KV_SCAN)
		rc = kv_bypass_begin(c, op);
	else
		rc = op_call_or_queue(c, link, op);
	if (unlikely(rc)) {
		c->n_ops--;
		c->n_waited -= step == KV_OP_WAITED;
	}
	return rc;
}

int kv_op_begin(struct gn_kv_client *c, struct gn_kv_op *op, enum kv_op_flag step)
{
	return op_begin(c, op, step);
}

int gn_kv_submit(struct gn_kv_client *c, struct gn_kv_op *op)
{
	int rc = kv_client_check(c);

	if (unlikely(rc))
		return rc;
	if (unlikely(!op))
		return gn_fail(-EINVAL, "gn_kv_submit(): op is NULL");
	if (unlikely(c->closing | c->disconnected))
		return gn_fail(-ENOTCONN, "gn_kv_submit(): the connection to %s broke", c->addr);
	if (unlikely(c->n_ops >= OPS_OUTSTANDING_MAX))
		return gn_fail(-EAGAIN,
			       "gn_kv_submit(): %llu operations are outstanding; call gn_kv_wait()",
			       (unsigned long long)c->n_ops);
	return op_begin(c, op, KV_OP_SUBMITTED);
}

/* ---- queued operations ---- */

struct gn_kv_op *kv_ops_collect_expired(struct gn_kv_client *c, struct gn_kv_op **list,
					struct gn_kv_op ***end, uint32_t *count, uint64_t now_ns,
					struct gn_kv_op *expired)
{
	struct gn_kv_op *op;

	while ((op = *list)) {
		if (op->deadline_ns > now_ns) {
			kv_note_deadline(c, op->deadline_ns);
			list = &op->next;
			continue;
		}
		*list = op->next;
		op->next = expired;
		expired = op;
		*count -= 1;
	}
	*end = list;
	return expired;
}

/* Collect all before completing any: done may start others. */
void kv_ops_expire(struct gn_kv_client *c)
{
	const uint64_t now_ns = gn_now_ns();
	struct gn_kv_op *expired = NULL, *next;

	if (now_ns < c->earliest_deadline_ns)
		return;
	c->earliest_deadline_ns = GN_FOREVER;
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		expired = kv_ops_collect_expired(c, &link->queued, &link->queued_end,
						 &link->outstanding, now_ns, expired);
		if (link->bypass)
			expired = kv_bypass_collect_expired(link->bypass, now_ns, expired);
	}
	for (; expired; expired = next) {
		next = expired->next;
		kv_op_complete(c, expired, GN_KV_TIMEOUT);
	}
	kv_controls_expire(c, now_ns);
}

/* The first operation is off the list while it is called: done may add others. */
static no_inline void op_call_queued(struct gn_kv_client *c, struct kv_link *link)
{
	struct gn_kv_op *op;

	while ((op = link->queued)) {
		int rc;

		link->queued = op->next;
		if (!link->queued)
			link->queued_end = &link->queued;
		link->outstanding--;
		rc = op_call_now(c, link, op);
		if (rc == -EAGAIN) {
			op->next = link->queued;
			if (!op->next)
				link->queued_end = &op->next;
			link->queued = op;
			link->outstanding++;
			return;
		}
		if (rc)
			kv_op_complete(c, op, kv_status_of_error(rc));
	}
}

void kv_ops_poll(struct gn_kv_client *c)
{
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		if (likely(!link->queued))
			continue;
		op_call_queued(c, link);
	}
}
