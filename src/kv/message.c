/* SPDX-License-Identifier: MIT */
/* Operations of a client that travel together. */
#include <errno.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "kv/bypass.h"

#define REQUEST_ROOM 1024u
#define RESULTS_MAX  (4u << 20) /* a server does not send more */
#define SMALL	     (64u << 10)
#define LARGE_KEPT   4u
#define GATHER	     64u

void kv_op_end(struct gn_kv_client *c, struct gn_kv_op *op, unsigned status)
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

/* ---- buffers ---- */

static bool grow(uint8_t **buf, uint32_t *room, uint32_t used, uint64_t need)
{
	uint64_t bytes = *room ? *room : REQUEST_ROOM;
	uint8_t *more;

	if (need <= *room)
		return true;
	while (bytes < need)
		bytes *= 2;
	more = gn_alloc(bytes, 0);
	if (!more)
		return false;
	if (used)
		memcpy(more, *buf, used);
	gn_free(*buf);
	*buf = more;
	*room = (uint32_t)bytes;
	return true;
}

static bool is_large(const struct kv_message *m)
{
	return m->result_room > SMALL || m->request_room > SMALL;
}

static struct kv_message *get_message(struct gn_kv_client *c, uint32_t part)
{
	struct kv_message *m = c->idle;

	if (m) {
		c->idle = m->next;
		c->n_large -= is_large(m);
	} else {
		m = gn_alloc(sizeof(*m), 0);
	}
	if (!m)
		return NULL;
	m->next = NULL;
	m->client = c;
	m->part = part;
	m->n = 0;
	m->first = NULL;
	m->last = &m->first;
	m->request_bytes = m->result_bytes = 0;
	return m;
}

/* Buffers for large requests and results are kept, for some. */
static void put_message(struct gn_kv_client *c, struct kv_message *m)
{
	if (is_large(m) && ++c->n_large > LARGE_KEPT) {
		gn_free(m->request);
		gn_free(m->result);
		m->request = m->result = NULL;
		m->request_room = m->result_room = 0;
		c->n_large--;
	}
	m->next = c->idle;
	c->idle = m;
}

static void free_message(struct kv_message *m)
{
	gn_free(m->request);
	gn_free(m->result);
	gn_free(m);
}

void kv_messages_free(struct gn_kv_client *c)
{
	while (c->idle) {
		struct kv_message *m = c->idle;

		c->idle = m->next;
		free_message(m);
	}
}

/* So many bytes more, of the request and of results; false: there is no memory. */
static bool add(struct kv_message *m, struct gn_kv_op *op, uint32_t bytes, uint32_t results)
{
	const uint64_t all = (uint64_t)m->result_bytes + results;

	results = all < RESULTS_MAX ? (uint32_t)all : RESULTS_MAX;
	if (unlikely((uint64_t)m->request_bytes + bytes > m->request_room ||
		     results > m->result_room) &&
	    (!grow(&m->request, &m->request_room, m->request_bytes,
		   (uint64_t)m->request_bytes + bytes) ||
	     !grow(&m->result, &m->result_room, 0, results)))
		return false;
	kv_ask_write(m->request + m->request_bytes, op);
	m->request_bytes += bytes;
	m->result_bytes = results;
	*m->last = op;
	m->last = &op->next;
	op->next = NULL;
	m->n++;
	return true;
}

/* ---- answers ---- */

/*
 * A call that ends with BUSY was not executed, or its result is lost for want of memory: what would
 * have changed something may have.
 */
static unsigned status_of(unsigned rpc, const struct gn_kv_op *op)
{
	switch (rpc) {
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

static unsigned status_of_error(int rc)
{
	return rc == -ENOTCONN ? GN_KV_GONE : rc == -EMSGSIZE ? GN_KV_TOO_BIG : GN_KV_FAILED;
}

static void fail_all(struct gn_kv_client *c, struct gn_kv_op *op, unsigned status)
{
	for (struct gn_kv_op *next; op; op = next) {
		next = op->next;
		kv_op_end(c, op, status);
	}
}

static void end_all(struct gn_kv_client *c, struct gn_kv_op *op, unsigned rpc)
{
	for (struct gn_kv_op *next; op; op = next) {
		next = op->next;
		kv_op_end(c, op, status_of(rpc, op));
	}
}

/* Those for whose results there was no room go once more. */
static void again(struct gn_kv_client *c, struct gn_kv_op *op)
{
	for (struct gn_kv_op *next; op; op = next) {
		next = op->next;
		if (kv_message_add(c, op))
			kv_op_end(c, op, GN_KV_FAILED);
	}
}

/* Operations are the caller's as soon as they have ended: what is next is known before. */
static void take_results(struct gn_kv_client *c, struct kv_message *m, uint32_t bytes)
{
	struct gn_kv_op *op = m->first, *next;
	uint32_t at = 0, used;

	for (; op && at < bytes; op = next, at += used) {
		next = op->next;
		used = kv_tell_read(m->result + at, bytes - at, op);
		if (!used)
			break;
		kv_op_end(c, op, op->status);
	}
	if (op && at == bytes && op != m->first)
		again(c, op);
	else
		fail_all(c, op, GN_KV_FAILED);
}

static void call_queued(struct gn_kv_client *c, struct kv_link *link);

static void message_done(struct gn_rpc_op *rpc)
{
	struct kv_message *m = rpc->arg;
	struct gn_kv_client *c = m->client;
	struct kv_link *link = &c->links[m->part];

	link->under_way--;
	link->called--;
	if (m->alone)
		link->alone = false;
	if (rpc->status == GN_RPC_PEER_GONE)
		c->down = true;
	if (rpc->status == GN_RPC_OK)
		take_results(c, m, rpc->result_len);
	else
		end_all(c, m->first, rpc->status);
	put_message(c, m);
	if (link->queue && !c->closing)
		call_queued(c, link);
}

/* ---- sending ---- */

/*
 * False: not now. Operations are done in their order: calls are, but one that is too large for a
 * slot is done when all of it has been read, and one whose results are may have to be asked for
 * again in part. So nothing else is called while such a one is under way.
 */
static bool call(struct gn_kv_client *c, struct kv_message *m)
{
	struct kv_link *link = &c->links[m->part];
	const bool busy = c->busy;
	int rc;

	m->alone = m->request_bytes > link->max_request || m->result_bytes >= RESULTS_MAX;
	m->rpc = (struct gn_rpc_op){
		.method = KV_DO,
		.request = m->request,
		.request_len = m->request_bytes,
		.result = m->result,
		.result_room = m->result_bytes,
		.deadline_ns = m->first->deadline_ns,
		.done = message_done,
		.arg = m,
	};
	if ((link->alone || (m->alone && link->called)) && !mutant("kv-overtake", MUTANT_ALWAYS))
		return false;
	/* If the server is found to be gone now, this one and others end before this returns. */
	link->called++;
	link->alone = m->alone;
	c->busy = true;
	rc = link->rpc ? gn_rpc_submit(link->rpc, &m->rpc) : -ENOTCONN;
	c->busy = busy;
	c->count.messages += !rc;
	if (!rc)
		return true;
	link->called--;
	link->alone = false;
	c->down |= rc == -ENOTCONN;
	/* Who submits hears of it from the next poll. */
	if (rc == -EAGAIN || !busy)
		return false;
	link->under_way--;
	fail_all(c, m->first, status_of_error(rc));
	put_message(c, m);
	return true;
}

static void enqueue(struct kv_link *link, struct kv_message *m)
{
	m->next = NULL;
	*link->queue_end = m;
	link->queue_end = &m->next;
	if (m->first->deadline_ns < link->until_ns)
		link->until_ns = m->first->deadline_ns;
}

/* It is not in the queue while it is called: whoever hears of its end may add others there. */
static void call_queued(struct gn_kv_client *c, struct kv_link *link)
{
	while (link->queue) {
		struct kv_message *m = link->queue;

		link->queue = m->next;
		if (!link->queue)
			link->queue_end = &link->queue;
		if (call(c, m))
			continue;
		m->next = link->queue;
		if (!m->next)
			link->queue_end = &m->next;
		link->queue = m;
		return;
	}
}

static void send_open(struct gn_kv_client *c, struct kv_link *link)
{
	struct kv_message *m = link->open;

	link->open = NULL;
	enqueue(link, m);
	call_queued(c, link);
}

void kv_message_send_all(struct gn_kv_client *c)
{
	for (uint32_t i = 0; i < c->n_links; i++) {
		if (c->links[i].open)
			send_open(c, &c->links[i]);
		else if (c->links[i].queue)
			call_queued(c, &c->links[i]);
	}
}

static void end_late(struct gn_kv_client *c, struct kv_link *link, uint64_t now_ns)
{
	struct kv_message *late = NULL, **late_end = &late, **at = &link->queue, *m;

	link->until_ns = GN_FOREVER;
	while ((m = *at)) {
		if (m->first->deadline_ns > now_ns) {
			if (m->first->deadline_ns < link->until_ns)
				link->until_ns = m->first->deadline_ns;
			at = &m->next;
			continue;
		}
		*at = m->next;
		*late_end = m;
		late_end = &m->next;
	}
	link->queue_end = at;
	*late_end = NULL;
	while ((m = late)) {
		late = m->next;
		link->under_way--;
		fail_all(c, m->first, GN_KV_TIMEOUT);
		put_message(c, m);
	}
}

void kv_messages_end_late(struct gn_kv_client *c)
{
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];
		const uint64_t now_ns = link->queue ? gn_now_ns() : 0;

		if (link->queue && now_ns >= link->until_ns)
			end_late(c, link, now_ns);
	}
}

int kv_message_add(struct gn_kv_client *c, struct gn_kv_op *op)
{
	const unsigned gather = c->opts.gather ? c->opts.gather : GATHER;
	struct kv_link *link = &c->links[op->part];
	const struct kv_message *open = link->open;
	const uint32_t bytes = kv_ask_bytes(op), results = kv_tell_bytes(op);

	if (open && (open->request_bytes + bytes > link->max_request ||
		     (uint64_t)open->result_bytes + results > RESULTS_MAX ||
		     open->first->deadline_ns != op->deadline_ns))
		send_open(c, link);
	if (!link->open) {
		link->open = get_message(c, op->part);
		if (!link->open)
			return -ENOMEM;
		link->under_way++;
	}
	if (!add(link->open, op, bytes, results)) {
		if (!link->open->n) {
			put_message(c, link->open);
			link->open = NULL;
			link->under_way--;
		}
		return -ENOMEM;
	}
	if (link->open->n >= gather)
		send_open(c, link);
	return 0;
}

int kv_message_call(struct gn_kv_client *c, struct gn_kv_op *op)
{
	struct kv_link *link = &c->links[op->part];
	struct kv_message *m = get_message(c, op->part);
	unsigned status = GN_RPC_OK;
	uint32_t bytes = 0;
	int rc;

	if (!m)
		return -ENOMEM;
	if (!add(m, op, kv_ask_bytes(op), kv_tell_bytes(op))) {
		put_message(c, m);
		return -ENOMEM;
	}
	rc = gn_rpc_call(link->rpc, KV_DO, m->request, m->request_bytes, m->result, m->result_bytes,
			 &bytes, op->deadline_ns, &status);
	if (rc == -EAGAIN) { /* like the others, then */
		link->under_way++;
		enqueue(link, m);
		return 0;
	}
	c->count.messages++;
	if (rc == -ENOTCONN || (!rc && status == GN_RPC_PEER_GONE))
		c->down = true;
	if (rc)
		kv_op_end(c, op, status_of_error(rc));
	else if (status != GN_RPC_OK)
		kv_op_end(c, op, status_of(status, op));
	else
		take_results(c, m, bytes);
	put_message(c, m);
	return 0;
}
