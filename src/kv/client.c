/* SPDX-License-Identifier: MIT */
/* A client: connected to each partition of a server, and again when that was gone. */
#include <errno.h>

#include "base/deadline.h"
#include "base/owner.h"
#include "kv/bypass.h"
#include "kv/scan.h"

#define SLOT_HEADS 128u	  /* of a slot's bytes, for the call itself */
#define OPS_MAX	   65536u /* under way */
#define CONNECT_US 2000000u
#define RETRY_US   10000u  /* between two looks for a server that is gone */
#define SUBMIT_US  100000u /* … by who does not wait for it */
#define LOOKS	   200u	   /* at all partitions, before one of them is waited for */
#define WAIT_US	   20u

int kv_client_check(const struct gn_kv_client *c)
{
	if (!c)
		return -EINVAL;
	return c->owner == gn_thread_id() ? 0 : exec_not_owner(c->owner, "kv client");
}

/* ---- connections ---- */

static int connect_link(struct gn_kv_client *c, uint32_t part, struct kv_link *link,
			uint64_t timeout_us)
{
	struct gn_rpc_client_opts opts = c->opts.rpc;
	struct gn_rpc_limits limits;
	int rc;

	opts.thread = part + 1;
	opts.flags &= ~(unsigned)GN_RPC_RECONNECT;
	opts.timeout_us = timeout_us;
	opts.previous = c->previous[part];
	*link = (struct kv_link){.queue_end = &link->queue, .until_ns = GN_FOREVER};
	rc = gn_rpc_client_open(c->fabric, c->addr, &opts, &link->rpc);
	if (rc)
		return rc;
	rc = gn_rpc_client_limits(link->rpc, &limits);
	c->previous[part] = limits.conn;
	link->max_request = limits.max_request > 2 * SLOT_HEADS ? limits.max_request - SLOT_HEADS :
								  SLOT_HEADS;
	return rc;
}

int kv_client_call(struct gn_kv_client *c, uint32_t part, enum kv_method method,
		   const void *request, uint32_t request_len, void *result, uint32_t result_len,
		   uint64_t deadline_ns)
{
	const bool busy = c->busy;
	unsigned status = GN_RPC_OK;
	uint32_t len = 0;
	int rc;

	c->busy = true; /* others may end meanwhile */
	rc = gn_rpc_call(c->links[part].rpc, method, request, request_len, result, result_len, &len,
			 deadline_ns, &status);
	c->busy = busy;
	if (!rc && status == GN_RPC_PEER_GONE)
		rc = -ENOTCONN;
	c->down |= rc == -ENOTCONN;
	if (rc)
		return rc;
	switch (status) {
	case GN_RPC_OK:
		return len == result_len ? 0 : -EPROTO;
	case GN_RPC_TIMEOUT:
		return -ETIMEDOUT;
	case GN_RPC_BUSY:
		return -EBUSY;
	default:
		return -EPROTO;
	}
}

/* Who hears of an end here may not begin anything, nor wait, nor close the client. */
static void disconnect(struct gn_kv_client *c)
{
	const bool busy = c->busy;

	c->closing = c->busy = true;
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		gn_rpc_client_close(link->rpc);
		link->rpc = NULL;
	}
	kv_controls_end_all(c);
	/* What was not called yet finds nobody, and ends. */
	for (uint32_t i = 0; i < c->n_links; i++)
		if (c->links[i].bypass)
			kv_bypass_end_all(c->links[i].bypass);
	kv_message_send_all(c);
	for (uint32_t i = 0; i < c->n_links; i++)
		kv_bypass_free(&c->links[i]);
	gn_free(c->links);
	c->links = NULL;
	c->n_links = 0;
	c->closing = false;
	c->busy = busy;
}

/*
 * The first partition says what the server is. The others have to be of the same one: it may have
 * ended, and another begun, while we connected.
 */
static int learn_layout(struct gn_kv_client *c, uint32_t part, uint64_t deadline_ns)
{
	const struct kv_layout_ask ask = {0};
	struct kv_layout layout;
	int rc = kv_client_call(c, part, KV_LAYOUT, &ask, sizeof(ask), &layout, sizeof(layout),
				deadline_ns);

	if (rc)
		return rc;
	if (layout.version != KV_VERSION || !layout.partitions ||
	    layout.partitions > GN_KV_THREADS_MAX)
		return -EPROTO;
	if (part && layout.epoch != c->layout.epoch)
		return -ECONNRESET;
	if (!part)
		c->layout = layout;
	return 0;
}

static uint64_t left_us(uint64_t deadline_ns)
{
	const uint64_t now_ns = gn_now_ns();

	return deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 : 0;
}

static int connect_all(struct gn_kv_client *c, uint64_t timeout_us)
{
	const uint64_t deadline_ns = gn_deadline_us(timeout_us);
	uint32_t n = 1;
	int rc = 0;

	c->links = gn_alloc(GN_KV_THREADS_MAX * sizeof(*c->links), 0);
	if (!c->links)
		return -ENOMEM;
	for (uint32_t i = 0; !rc && i < n; i++) {
		c->n_links++;
		rc = connect_link(c, i, &c->links[i], left_us(deadline_ns) + 1);
		if (!rc)
			rc = learn_layout(c, i, deadline_ns);
		if (!rc)
			n = c->layout.partitions;
	}
	for (uint32_t i = 0; !rc && i < n && kv_client_bypasses(c); i++)
		rc = kv_bypass_make(c, i, deadline_ns);
	if (rc)
		disconnect(c);
	else
		c->down = false;
	return rc;
}

static bool passing(int rc)
{
	return rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -ENOTCONN || rc == -ECONNRESET ||
	       rc == -EBUSY;
}

int kv_client_ready(struct gn_kv_client *c, uint64_t deadline_ns)
{
	const uint64_t most_us = c->opts.rpc.timeout_us ? c->opts.rpc.timeout_us : CONNECT_US;
	int rc;

	if (c->busy)
		return -EDEADLK;
	if (!c->down)
		return 0;
	if (c->opts.flags & GN_KV_NO_RECONNECT)
		return -ENOTCONN;
	disconnect(c);
	for (;;) {
		const uint64_t us = left_us(deadline_ns);

		rc = connect_all(c, us < most_us ? us + 1 : most_us);
		if (!rc) {
			c->count.reconnects++;
			return 0;
		}
		if (!passing(rc))
			return rc;
		if (gn_now_ns() + RETRY_US * 1000ull >= deadline_ns)
			return -ENOTCONN;
		gn_sleep_us(RETRY_US);
	}
}

int gn_kv_connect(struct gn_fabric *fabric, const char *addr, const struct gn_kv_client_opts *opts,
		  struct gn_kv_client **out)
{
	const size_t len = addr ? strlen(addr) + 1 : 0;
	struct gn_kv_client *c;
	int rc;

	if (!fabric || !addr || !out || (opts && opts->gather > GN_KV_GATHER_MAX))
		return -EINVAL;
	c = gn_alloc(sizeof(*c), 0);
	if (!c)
		return -ENOMEM;
	c->fabric = fabric;
	c->owner = gn_thread_id();
	c->controls_end = &c->controls;
	c->controls_due_ns = GN_FOREVER;
	c->opts = opts ? *opts : (struct gn_kv_client_opts){0};
	c->addr = gn_alloc(len, 0);
	if (c->addr)
		memcpy(c->addr, addr, len);
	c->previous = gn_alloc(GN_KV_THREADS_MAX * sizeof(*c->previous), 0);
	rc = c->addr && c->previous ?
		     connect_all(c, c->opts.rpc.timeout_us ? c->opts.rpc.timeout_us : CONNECT_US) :
		     -ENOMEM;
	if (rc) {
		gn_free(c->previous);
		gn_free(c->addr);
		gn_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

int gn_kv_close(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);

	if (!rc && c->busy)
		rc = -EDEADLK;
	if (rc)
		return rc;
	disconnect(c);
	kv_messages_free(c);
	gn_free(c->previous);
	gn_free(c->addr);
	gn_free(c);
	return 0;
}

/* ---- operations ---- */

/* 0: it is under way. */
static int begin(struct gn_kv_client *c, struct gn_kv_op *op, enum kv_step step)
{
	bool call;
	int rc;

	if (!op->key || !op->key_len || op->key_len > GN_KV_KEY_MAX || op->verb >= GN_KV_VERBS ||
	    (op->value_len && !op->value) || (op->room_bytes && !op->room))
		return -EINVAL;
	if (op->value_len > GN_KV_VALUE_MAX)
		return -EMSGSIZE;
	op->hash = kv_hash(op->key, op->key_len, c->layout.seed);
	op->part = op->verb == GN_KV_SCAN ? kv_scan_partition(op) :
					    kv_partition(op->hash, c->n_links);
	if (op->part >= c->n_links)
		return -EINVAL;
	op->step = step;
	op->deadline_ns = deadline_given(op->deadline_ns);
	c->count.ops++;
	c->n_ops++;
	c->n_waited += step == KV_STEP_WAITED;
	call = step == KV_STEP_WAITED && c->n_waited == 1 && c->alone;
	if (c->links[op->part].bypass && (!call || op->verb == GN_KV_GET) && op->verb != GN_KV_SCAN)
		rc = kv_bypass_begin(c, op);
	else
		rc = call ? kv_message_call(c, op) : kv_message_add(c, op);
	if (rc) {
		c->n_ops--;
		c->n_waited -= step == KV_STEP_WAITED;
	}
	return rc;
}

static int poll_links(struct gn_kv_client *c)
{
	c->ended = 0;
	kv_messages_end_late(c);
	kv_message_send_all(c);
	if (c->controls)
		kv_controls_poll(c);
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		if (!link->under_way)
			continue;
		if (link->bypass)
			kv_bypass_poll(link->bypass);
		gn_rpc_poll(link->rpc);
		if (link->bypass)
			kv_bypass_poll(link->bypass);
	}
	/* What was asked for again. */
	kv_message_send_all(c);
	return c->ended;
}

/* Of those with something under way, if there is only one, or the first. */
static struct kv_link *to_wait_for(struct gn_kv_client *c, bool *only)
{
	struct kv_link *found = NULL;

	*only = true;
	for (uint32_t i = 0; i < c->n_links; i++) {
		if (!c->links[i].under_way)
			continue;
		*only = !found;
		if (!found)
			found = &c->links[i];
	}
	return found;
}

/* Until something has moved, perhaps: 0, -ETIMEDOUT, -EINTR. */
static int wait_links(struct gn_kv_client *c, unsigned *looks, uint64_t deadline_ns)
{
	uint64_t until_ns = deadline_ns;
	struct kv_link *link;
	bool only;
	int rc;

	link = to_wait_for(c, &only);
	if (!link)
		return 0;
	if (!only && ++*looks % LOOKS)
		return 0;
	if (!only && gn_deadline_us(WAIT_US) < until_ns)
		until_ns = gn_deadline_us(WAIT_US);
	if (link->queue && link->until_ns < until_ns)
		until_ns = link->until_ns;
	if (link->bypass && link->bypass->until_ns < until_ns)
		until_ns = link->bypass->until_ns;
	if (c->controls && c->controls_due_ns < until_ns)
		until_ns = c->controls_due_ns;
	rc = gn_rpc_wait(link->rpc, until_ns);
	if (rc == -EINTR || (rc == -ETIMEDOUT && until_ns == deadline_ns))
		return rc;
	return 0;
}

int gn_kv_do(struct gn_kv_client *c, struct gn_kv_op *ops, unsigned n, uint64_t deadline_ns)
{
	unsigned looks = 0;
	int rc = kv_client_check(c);

	if (!rc && n && !ops)
		rc = -EINVAL;
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rc = kv_client_ready(c, deadline_ns);
	if (rc == -EDEADLK)
		return rc;
	c->busy = true;
	c->alone = n == 1 && !c->n_ops;
	for (unsigned i = 0; i < n; i++) {
		int one = rc;

		ops[i].deadline_ns = deadline_ns;
		if (!one)
			one = begin(c, &ops[i], KV_STEP_WAITED);
		if (one) {
			ops[i].status = rc		 ? GN_KV_GONE :
					one == -EINVAL	 ? GN_KV_INVALID :
					one == -EMSGSIZE ? GN_KV_TOO_BIG :
							   GN_KV_FAILED;
			c->count.ended[ops[i].status]++;
		}
	}
	while (c->n_waited) {
		poll_links(c);
		if (c->n_waited)
			wait_links(c, &looks, GN_FOREVER);
	}
	c->busy = false;
	return 0;
}

/*
 * A submit does not wait: it tries to reconnect now and then, when all that was under way has
 * ended. A server that does not answer takes an attempt's time, and not more than a tenth of all.
 */
int kv_client_retry(struct gn_kv_client *c)
{
	uint64_t now_ns;

	if (c->closing)
		return -ENOTCONN;
	if (!c->down)
		return 0;
	now_ns = gn_now_ns();
	if (c->busy || c->n_ops || now_ns < c->retry_ns)
		return -ENOTCONN;
	if (!kv_client_ready(c, gn_deadline_us(SUBMIT_US)))
		return 0;
	c->retry_ns = gn_deadline_us(SUBMIT_US) + 9 * (gn_now_ns() - now_ns);
	return -ENOTCONN;
}

int gn_kv_submit(struct gn_kv_client *c, struct gn_kv_op *op)
{
	int rc = kv_client_check(c);

	if (rc)
		return rc;
	if (!op)
		return -EINVAL;
	if (!c->closing && c->n_ops >= OPS_MAX)
		return -EAGAIN;
	rc = kv_client_retry(c);
	if (rc)
		return rc;
	return begin(c, op, KV_STEP_SUBMITTED);
}

int gn_kv_flush(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);
	bool busy;

	if (rc)
		return rc;
	kv_message_send_all(c);
	busy = c->busy;
	c->busy = true; /* some may end, if the server is gone */
	for (uint32_t i = 0; i < c->n_links; i++)
		if (c->links[i].rpc)
			gn_rpc_flush(c->links[i].rpc);
	c->busy = busy;
	return 0;
}

int gn_kv_poll(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);

	if (rc)
		return rc;
	if (c->busy)
		return -EDEADLK;
	c->busy = true;
	rc = poll_links(c);
	c->busy = false;
	return rc;
}

int gn_kv_wait(struct gn_kv_client *c, uint64_t deadline_ns)
{
	unsigned looks = 0;
	int rc;

	deadline_ns = deadline_given(deadline_ns);
	for (;;) {
		rc = gn_kv_poll(c);
		if (rc || !c->n_ops)
			return rc;
		c->busy = true;
		c->ended = 0;
		rc = wait_links(c, &looks, deadline_ns);
		c->busy = false;
		if (c->ended)
			return c->ended;
		if (rc)
			return rc;
		if (looks && gn_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}
