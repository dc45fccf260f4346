/* SPDX-License-Identifier: MIT */
/* A client: open, close, and the functions that poll and wait. */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/owner.h"
#include "base/sized.h"
#include "kv/bypass.h"
#include "kv/scan.h"

#define POLLS_BEFORE_WAIT 200u /* polls of all partitions, before one of them is waited for */
#define WAIT_SLICE_US	  20u

int kv_client_refuse(const struct gn_kv_client *c)
{
	return c ? exec_not_owner(__atomic_load_n(&c->owner, __ATOMIC_RELAXED), "kv client") :
		   gn_fail(-EINVAL, "kv: client is NULL");
}

int kv_client_call(struct gn_kv_client *c, uint32_t part, enum kv_method method,
		   const void *request, uint32_t request_len, void *result, uint32_t result_len,
		   uint64_t deadline_ns)
{
	const bool busy = c->busy;
	unsigned status = GN_RPC_OK;
	uint32_t len = 0;
	int rc;

	c->busy = true; /* other operations may complete meanwhile */
	rc = gn_rpc_call(c->links[part].rpc, method, request, request_len, result, result_len, &len,
			 deadline_ns, &status);
	c->busy = busy;
	if (!rc && status == GN_RPC_PEER_GONE)
		rc = -ENOTCONN;
	c->disconnected |= rc == -ENOTCONN;
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

int gn_kv_client_open(struct gn_fabric *fabric, const char *addr,
		      const struct gn_kv_client_opts *opts, struct gn_kv_client **out)
{
	const size_t len = addr ? strlen(addr) + 1 : 0;
	struct gn_kv_client_opts own = {.size = sizeof(own)};
	struct gn_kv_client *c;
	int rc = SIZED_READ(&own, opts, "gn_kv_client_opts");

	if (rc)
		return rc;
	if (!fabric || !addr || !out || own.gather > GN_KV_GATHER_MAX)
		return gn_fail(
			-EINVAL,
			"gn_kv_client_open(): fabric, addr or out is NULL, or gather is more than "
			"%u",
			GN_KV_GATHER_MAX);
	c = gn_alloc(sizeof(*c), 0);
	if (!c)
		return -ENOMEM;
	source_init(&c->source, &kv_client_source);
	c->fabric = fabric;
	c->owner = gn_thread_id();
	c->controls_end = &c->controls;
	c->earliest_deadline_ns = GN_FOREVER;
	c->opts = own;
	c->addr = gn_alloc(len, 0);
	if (c->addr)
		memcpy(c->addr, addr, len);
	c->previous = gn_alloc(GN_KV_THREADS_MAX * sizeof(*c->previous), 0);
	rc = c->addr && c->previous ? kv_connect(c) : -ENOMEM;
	if (rc) {
		gn_free(c->previous);
		gn_free(c->addr);
		gn_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

int gn_kv_client_close(struct gn_kv_client *c)
{
	int rc;

	if (!c)
		return 0;
	if (__atomic_load_n(&c->owner, __ATOMIC_RELAXED) & OWNER_RELEASED)
		gn_kv_client_adopt(c);
	rc = kv_client_check(c);
	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_kv_client_close(): not within a done function");
	if (rc)
		return rc;
	kv_disconnect(c);
	source_fini(&c->source);
	gn_free(c->previous);
	gn_free(c->addr);
	gn_free(c);
	return 0;
}

/* ---- operations ---- */

/* Sends the open batches. */
static void flush_links(struct gn_kv_client *c)
{
	for (uint32_t i = 0; i < c->n_links; i++)
		if (c->links[i].outstanding && c->links[i].rpc)
			gn_rpc_flush(c->links[i].rpc);
}

/* With nothing outstanding, polls at some interval detect a disconnect. */
static bool idle_poll_due(struct gn_kv_client *c)
{
	const uint64_t ticks = exec_ticks();

	if (likely(ticks - c->idle_poll_ticks < EXEC_TICKS_SHORT))
		return false;
	c->idle_poll_ticks = ticks;
	return true;
}

static int poll_links(struct gn_kv_client *c)
{
	c->ended = 0;
	if (unlikely(c->earliest_deadline_ns != GN_FOREVER) && !(++c->polls % KV_CLOCK_EVERY))
		kv_ops_expire(c);
	kv_ops_poll(c);
	flush_links(c);
	if (c->controls)
		kv_controls_poll(c);
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		if (!link->outstanding) {
			if (!c->n_ops && idle_poll_due(c))
				c->poll_idle_links = true;
			if (unlikely(c->poll_idle_links))
				kv_link_poll_idle(c, link);
			continue;
		}
		if (link->bypass)
			kv_bypass_poll(link->bypass);
		gn_rpc_poll(link->rpc);
		if (link->bypass)
			kv_bypass_poll(link->bypass);
	}
	c->poll_idle_links = false;
	/* Operations that were started by done, or can be started now. */
	kv_ops_poll(c);
	flush_links(c);
	return c->ended;
}

/* Returns the first link with outstanding operations; *only: it is the only one. */
static struct kv_link *pick_link_to_wait(struct gn_kv_client *c, bool *only)
{
	struct kv_link *found = NULL;

	*only = true;
	for (uint32_t i = 0; i < c->n_links; i++) {
		if (!c->links[i].outstanding)
			continue;
		*only = !found;
		if (!found)
			found = &c->links[i];
	}
	return found;
}

/* Waits until something may have happened: 0, -ETIMEDOUT, -EINTR. */
static int wait_links(struct gn_kv_client *c, unsigned *polls, uint64_t deadline_ns)
{
	uint64_t until_ns = deadline_ns;
	struct kv_link *link;
	bool only;
	int rc;

	link = pick_link_to_wait(c, &only);
	if (!link)
		return 0;
	if (!only && ++*polls % POLLS_BEFORE_WAIT)
		return 0;
	if (!only && gn_deadline_us(WAIT_SLICE_US) < until_ns)
		until_ns = gn_deadline_us(WAIT_SLICE_US);
	if (c->earliest_deadline_ns < until_ns)
		until_ns = c->earliest_deadline_ns;
	rc = gn_rpc_wait(link->rpc, until_ns);
	c->polls = KV_CLOCK_EVERY - 1; /* the next poll reads the clock */
	if (rc == -EINTR || (rc == -ETIMEDOUT && until_ns == deadline_ns))
		return rc;
	return 0;
}

int gn_kv_do(struct gn_kv_client *c, struct gn_kv_op *ops, unsigned n, uint64_t deadline_ns)
{
	unsigned polls = 0;
	int rc = kv_client_check(c);

	if (!rc && n && !ops)
		rc = gn_fail(-EINVAL, "gn_kv_do(): ops is NULL");
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rc = kv_client_ensure_connected(c, deadline_ns);
	if (rc == -EDEADLK)
		return rc;
	c->busy = true;
	for (unsigned i = 0; i < n; i++) {
		int one = rc;

		ops[i].deadline_ns = deadline_ns;
		if (!one)
			one = kv_op_begin(c, &ops[i], KV_OP_WAITED);
		if (one) {
			ops[i].status = rc ? GN_KV_GONE : kv_status_of_error(one);
			c->count.ended[ops[i].status]++;
		}
	}
	while (c->n_waited) {
		poll_links(c);
		if (c->n_waited)
			wait_links(c, &polls, GN_FOREVER);
	}
	c->busy = false;
	return 0;
}

int gn_kv_flush(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);
	bool busy;

	if (rc)
		return rc;
	busy = c->busy;
	c->busy = true; /* operations may complete if the connection broke */
	flush_links(c);
	c->busy = busy;
	return 0;
}

int gn_kv_poll(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);

	if (rc)
		return rc;
	if (c->busy)
		return gn_fail(-EDEADLK, "gn_kv_poll(): not within a done function");
	c->busy = true;
	rc = poll_links(c);
	if (unlikely(c->disconnected))
		kv_reconnect_step(c);
	c->busy = false;
	return rc;
}

int gn_kv_wait(struct gn_kv_client *c, uint64_t deadline_ns)
{
	unsigned polls = 0;
	int rc;

	deadline_ns = deadline_given(deadline_ns);
	for (;;) {
		rc = gn_kv_poll(c);
		if (rc || !c->n_ops)
			return rc;
		c->busy = true;
		c->ended = 0;
		rc = wait_links(c, &polls, deadline_ns);
		c->busy = false;
		if (c->ended)
			return c->ended;
		if (rc)
			return rc;
		if (polls && gn_now_ns() >= deadline_ns)
			return gn_fail_text(-ETIMEDOUT, "gn_kv_wait(): no operation has completed");
	}
}
