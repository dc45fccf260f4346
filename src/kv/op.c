/* SPDX-License-Identifier: MIT */
/*
 * An operation of a client is one call. Its request is written where RPC sends it from, and its
 * value is copied from where RPC has its result; RPC puts several of them into a message. While a
 * connection has no room for more calls, operations wait here, in the order in which they began.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "kv/bypass.h"
#include "kv/scan.h"

#define OPS_MAX 65536u /* under way */

/* ---- the end ---- */

static inline void end(struct gn_kv_client *c, struct gn_kv_op *op, unsigned status)
{
	op->status = status < GN_KV_STATUSES ? status : GN_KV_FAILED;
	c->count.ended[op->status]++;
	c->n_ops--;
	if (unlikely(op->step & (KV_STEP_READS | KV_STEP_WRITES)))
		kv_bypass_ended(c, op);
	if (op->step & KV_STEP_WAITED) {
		c->n_waited--;
		return;
	}
	c->ended++;
	if (op->done)
		op->done(op);
}

void kv_op_end(struct gn_kv_client *c, struct gn_kv_op *op, unsigned status)
{
	end(c, op, status);
}

/*
 * A call that ends with BUSY was not executed, or its result is lost for want of memory: what would
 * have changed something may have.
 */
static unsigned status_of(const struct gn_kv_op *op)
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

	link->under_way--;
	if (unlikely(rpc->status != GN_RPC_OK)) {
		c->down |= rpc->status == GN_RPC_PEER_GONE;
		status = status_of(op);
	} else if (likely(kv_response_read(rpc->data, rpc->result_len, op))) {
		status = op->status;
	}
	end(c, op, status);
}

/* ---- beginning ---- */

/* One that is too large for a slot: RPC copies the request, and the server reads it from there. */
static no_inline int submit_large(struct gn_rpc_client *rpc, struct gn_kv_op *op)
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

/* 0: it is under way, or has ended already because the server is found to be gone. */
static force_inline int call(struct gn_kv_client *c, struct kv_link *link, struct gn_kv_op *op)
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
	link->under_way++;
	c->busy = true; /* calls may end, if the server is gone */
	if (likely(op->rpc.request_len <= link->max_request)) {
		rc = gn_rpc_prepare(link->rpc, &op->rpc, &to);
		if (likely(!rc)) {
			kv_request_write(to, op);
			rc = gn_rpc_commit(link->rpc, &op->rpc);
		}
	} else {
		rc = submit_large(link->rpc, op);
	}
	c->busy = busy;
	if (unlikely(rc)) {
		link->under_way--;
		c->down |= rc == -ENOTCONN;
	}
	return rc;
}

static int wait_for_room(struct kv_link *link, struct gn_kv_op *op)
{
	op->next = NULL;
	*link->waiting_end = op;
	link->waiting_end = &op->next;
	link->under_way++;
	kv_due(link->client, op->deadline_ns);
	return 0;
}

static force_inline int call_or_wait(struct gn_kv_client *c, struct kv_link *link,
				     struct gn_kv_op *op)
{
	const int rc = unlikely(link->waiting) ? -EAGAIN : call(c, link, op);

	return unlikely(rc == -EAGAIN) ? wait_for_room(link, op) : rc;
}

int kv_op_call(struct gn_kv_client *c, struct gn_kv_op *op)
{
	return call_or_wait(c, &c->links[op->part], op);
}

static no_inline int check_other(const struct gn_kv_client *c, const struct gn_kv_op *op)
{
	if (op->verb >= GN_KV_VERBS || (op->value_len && !op->value) ||
	    (op->room_bytes && !op->room))
		return gn_fail_text(-EINVAL, "kv: no such verb, or value or room is NULL but not "
					     "empty");
	if (op->value_len > GN_KV_VALUE_MAX)
		return gn_fail(-EMSGSIZE, "kv: a value of %u bytes: no store takes more than %u",
			       op->value_len, GN_KV_VALUE_MAX);
	if (op->verb == GN_KV_SCAN && kv_scan_partition(op) >= c->n_links)
		return gn_fail_text(-EINVAL, "kv: the cursor of a scan is none of this server's");
	return 0;
}

/* Where there are several, or GETs are reads. */
static struct kv_link *find_link(struct gn_kv_client *c, struct gn_kv_op *op)
{
	op->hash = kv_hash(op->key, op->key_len, c->layout.seed);
	op->part = op->verb == GN_KV_SCAN ? kv_scan_partition(op) :
					    kv_partition(op->hash, c->n_links);
	return &c->links[op->part];
}

static force_inline int begin(struct gn_kv_client *c, struct gn_kv_op *op, enum kv_step step)
{
	struct kv_link *link = c->links;
	int rc = 0;

	if (unlikely(!op->key || op->key_len - 1 >= GN_KV_KEY_MAX))
		return gn_fail(-EINVAL, "kv: key is NULL, or has not 1 to %u bytes", GN_KV_KEY_MAX);
	if (unlikely(op->verb != GN_KV_GET || !op->room))
		rc = check_other(c, op);
	if (unlikely(rc))
		return rc;
	op->part = 0;
	if (unlikely(c->n_links > 1 || link->bypass))
		link = find_link(c, op);
	op->step = step;
	op->deadline_ns = deadline_given(op->deadline_ns);
	c->count.ops++;
	c->n_ops++;
	c->n_waited += step == KV_STEP_WAITED;
	if (unlikely(link->bypass) && op->verb != GN_KV_SCAN)
		rc = kv_bypass_begin(c, op);
	else
		rc = call_or_wait(c, link, op);
	if (unlikely(rc)) {
		c->n_ops--;
		c->n_waited -= step == KV_STEP_WAITED;
	}
	return rc;
}

int kv_op_begin(struct gn_kv_client *c, struct gn_kv_op *op, enum kv_step step)
{
	return begin(c, op, step);
}

int gn_kv_submit(struct gn_kv_client *c, struct gn_kv_op *op)
{
	int rc = kv_client_check(c);

	if (unlikely(rc))
		return rc;
	if (unlikely(!op))
		return gn_fail(-EINVAL, "gn_kv_submit(): op is NULL");
	if (unlikely(c->closing | c->down))
		return gn_fail(-ENOTCONN, "gn_kv_submit(): the server at %s is gone", c->addr);
	if (unlikely(c->n_ops >= OPS_MAX))
		return gn_fail(-EAGAIN,
			       "gn_kv_submit(): %llu operations are under way; gn_kv_wait() "
			       "for some",
			       (unsigned long long)c->n_ops);
	return begin(c, op, KV_STEP_SUBMITTED);
}

/* ---- operations that wait ---- */

struct gn_kv_op *kv_ops_pick_late(struct gn_kv_client *c, struct gn_kv_op **list,
				  struct gn_kv_op ***end, uint32_t *count, uint64_t now_ns,
				  struct gn_kv_op *late)
{
	struct gn_kv_op *op;

	while ((op = *list)) {
		if (op->deadline_ns > now_ns) {
			kv_due(c, op->deadline_ns);
			list = &op->next;
			continue;
		}
		*list = op->next;
		op->next = late;
		late = op;
		*count -= 1;
	}
	*end = list;
	return late;
}

/* They are picked before one of them ends: whoever hears of it may begin others. */
void kv_end_late(struct gn_kv_client *c)
{
	const uint64_t now_ns = gn_now_ns();
	struct gn_kv_op *late = NULL, *next;

	if (now_ns < c->due_ns)
		return;
	c->due_ns = GN_FOREVER;
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		late = kv_ops_pick_late(c, &link->waiting, &link->waiting_end, &link->under_way,
					now_ns, late);
		if (link->bypass)
			late = kv_bypass_pick_late(link->bypass, now_ns, late);
	}
	for (; late; late = next) {
		next = late->next;
		kv_op_end(c, late, GN_KV_TIMEOUT);
	}
	kv_controls_end_late(c, now_ns);
}

/* The first is not in the list while it is called: whoever hears of its end may add others. */
static no_inline void call_waiting(struct gn_kv_client *c, struct kv_link *link)
{
	struct gn_kv_op *op;

	while ((op = link->waiting)) {
		int rc;

		link->waiting = op->next;
		if (!link->waiting)
			link->waiting_end = &link->waiting;
		link->under_way--;
		rc = call(c, link, op);
		if (rc == -EAGAIN) {
			op->next = link->waiting;
			if (!op->next)
				link->waiting_end = &op->next;
			link->waiting = op;
			link->under_way++;
			return;
		}
		if (rc)
			kv_op_end(c, op, kv_status_of_error(rc));
	}
}

void kv_ops_poll(struct gn_kv_client *c)
{
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		if (likely(!link->waiting))
			continue;
		call_waiting(c, link);
	}
}
