/* SPDX-License-Identifier: MIT */
/* A client: its beginning and end, and operations. */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/owner.h"
#include "base/sized.h"
#include "kv/bypass.h"
#include "kv/scan.h"

#define LOOKS	200u /* at all partitions, before one of them is waited for */
#define WAIT_US 20u

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
	c->due_ns = GN_FOREVER;
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
		rc = gn_fail(-EDEADLK, "gn_kv_client_close(): not from within a done function");
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

/* Send the batches that are being gathered. */
static void flush_links(struct gn_kv_client *c)
{
	for (uint32_t i = 0; i < c->n_links; i++)
		if (c->links[i].under_way && c->links[i].rpc)
			gn_rpc_flush(c->links[i].rpc);
}

/* Nothing is under way: polls that are some time apart hear of the end of a connection. */
static bool look_due(struct gn_kv_client *c)
{
	const uint64_t ticks = exec_ticks();

	if (likely(ticks - c->look_ticks < EXEC_TICKS_SHORT))
		return false;
	c->look_ticks = ticks;
	return true;
}

static int poll_links(struct gn_kv_client *c)
{
	c->ended = 0;
	if (unlikely(c->due_ns != GN_FOREVER) && !(++c->polls % KV_CLOCK_EVERY))
		kv_end_late(c);
	kv_ops_poll(c);
	flush_links(c);
	if (c->controls)
		kv_controls_poll(c);
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		if (!link->under_way) {
			if (!c->n_ops && look_due(c))
				c->look_at_all = true;
			if (unlikely(c->look_at_all))
				kv_link_look(c, link);
			continue;
		}
		if (link->bypass)
			kv_bypass_poll(link->bypass);
		gn_rpc_poll(link->rpc);
		if (link->bypass)
			kv_bypass_poll(link->bypass);
	}
	c->look_at_all = false;
	/* What was begun meanwhile, or can be now. */
	kv_ops_poll(c);
	flush_links(c);
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
	if (c->due_ns < until_ns)
		until_ns = c->due_ns;
	rc = gn_rpc_wait(link->rpc, until_ns);
	c->polls = KV_CLOCK_EVERY - 1; /* the next poll looks at the clock */
	if (rc == -EINTR || (rc == -ETIMEDOUT && until_ns == deadline_ns))
		return rc;
	return 0;
}

int gn_kv_do(struct gn_kv_client *c, struct gn_kv_op *ops, unsigned n, uint64_t deadline_ns)
{
	unsigned looks = 0;
	int rc = kv_client_check(c);

	if (!rc && n && !ops)
		rc = gn_fail(-EINVAL, "gn_kv_do(): ops is NULL");
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rc = kv_client_ready(c, deadline_ns);
	if (rc == -EDEADLK)
		return rc;
	c->busy = true;
	for (unsigned i = 0; i < n; i++) {
		int one = rc;

		ops[i].deadline_ns = deadline_ns;
		if (!one)
			one = kv_op_begin(c, &ops[i], KV_STEP_WAITED);
		if (one) {
			ops[i].status = rc ? GN_KV_GONE : kv_status_of_error(one);
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

int gn_kv_flush(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);
	bool busy;

	if (rc)
		return rc;
	busy = c->busy;
	c->busy = true; /* some may end, if the server is gone */
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
		return gn_fail(-EDEADLK, "gn_kv_poll(): not from within a done function");
	c->busy = true;
	rc = poll_links(c);
	if (unlikely(c->down))
		kv_reconnect_some(c);
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
			return gn_fail_text(-ETIMEDOUT, "gn_kv_wait(): no operation has ended");
	}
}
