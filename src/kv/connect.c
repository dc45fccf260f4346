/* SPDX-License-Identifier: MIT */
/*
 * Connects a client to all partitions of a server, one after the other, and reconnects it. An
 * attempt is a sequence of steps that do not wait, so that gn_kv_poll() can execute them;
 * synchronous callers wait between the steps.
 */
#include <errno.h>

#include "base/fail.h"
#include "base/owner.h"
#include "kv/bypass.h"

#define GATHER_DEFAULT	   64u /* operations per message */
#define CONNECT_TIMEOUT_US 2000000u
/* timeout of the first attempt of polls; doubled for each later one */
#define POLL_CONNECT_US 100000u

/* Within done, this client must not start anything, wait, or be closed. */
void kv_disconnect(struct gn_kv_client *c)
{
	const bool busy = c->busy;

	c->closing = c->busy = true;
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct kv_link *link = &c->links[i];

		c->count.messages += kv_link_messages(link);
		gn_rpc_client_close(link->rpc);
		link->rpc = NULL;
	}
	kv_controls_end_all(c);
	/* Queued operations fail and complete. */
	for (uint32_t i = 0; i < c->n_links; i++)
		if (c->links[i].bypass)
			kv_bypass_end_all(c->links[i].bypass);
	kv_ops_poll(c);
	for (uint32_t i = 0; i < c->n_links; i++)
		kv_bypass_free(&c->links[i]);
	gn_free(c->links);
	c->links = NULL;
	c->n_links = 0;
	c->connect = KV_CONNECT_IDLE;
	c->closing = false;
	c->busy = busy;
}

/* Connects to the next partition. */
static int open_link(struct gn_kv_client *c)
{
	const uint64_t now_ns = gn_now_ns();
	struct kv_link *link = &c->links[c->n_links];
	struct gn_rpc_client_opts opts = c->opts.rpc;
	int rc;

	if (now_ns >= c->connect_deadline_ns)
		return gn_fail(-ETIMEDOUT, "kv: %s: not connected in time", c->addr);
	opts.size = sizeof(opts);
	opts.thread = c->n_links + 1;
	opts.flags &= ~(unsigned)GN_RPC_RECONNECT;
	if (c->opts.gather)
		opts.batch.entries = c->opts.gather;
	else if (!opts.batch.entries && !opts.batch.limit_us)
		opts.batch.entries = GATHER_DEFAULT;
	opts.timeout_us = (c->connect_deadline_ns - now_ns) / 1000 + 1;
	opts.previous = c->previous[c->n_links];
	*link = (struct kv_link){.client = c, .queued_end = &link->queued};
	c->n_links++;
	c->connect = KV_CONNECT_OPEN;
	rc = gn_rpc_client_open_begin(c->fabric, c->addr, &opts, &link->rpc);
	if (!rc)
		source_join(&c->source, gn_rpc_client_source(link->rpc));
	return rc;
}

static void layout_done(struct gn_rpc_op *op)
{
	struct gn_kv_client *c = op->arg;

	c->layout_received = true;
}

/* Connected: request the layout. */
static int send_layout_request(struct gn_kv_client *c)
{
	const uint32_t part = c->n_links - 1;
	struct kv_link *link = &c->links[part];
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	int rc = gn_rpc_client_limits(link->rpc, &limits);

	if (rc)
		return rc;
	c->previous[part] = limits.conn;
	link->max_request = limits.max_request;
	c->layout_received = false;
	c->layout_request =
		(struct kv_layout_request){.expose = !(c->opts.flags & GN_KV_CALL_ONLY)};
	c->layout_op = (struct gn_rpc_op){.method = KV_LAYOUT,
					  .request = &c->layout_request,
					  .request_len = sizeof(c->layout_request),
					  .result = &c->layout_response,
					  .result_room = sizeof(c->layout_response),
					  .deadline_ns = c->connect_deadline_ns,
					  .done = layout_done,
					  .arg = c};
	c->layout_sent_ns = gn_now_ns();
	c->connect = KV_CONNECT_LAYOUT;
	return gn_rpc_submit(link->rpc, &c->layout_op);
}

static int layout_error(const struct gn_rpc_op *op)
{
	switch (op->status) {
	case GN_RPC_OK:
		return op->result_len == op->result_room ? 0 : -EPROTO;
	case GN_RPC_TIMEOUT:
		return -ETIMEDOUT;
	case GN_RPC_PEER_GONE:
		return -ENOTCONN;
	case GN_RPC_BUSY:
		return -EBUSY;
	default:
		return -EPROTO;
	}
}

/*
 * The first partition describes the server. The others must belong to the same server: it may have
 * been restarted meanwhile.
 */
static int take_layout(struct gn_kv_client *c)
{
	const struct kv_layout *layout = &c->layout_response;
	const uint32_t part = c->n_links - 1;
	const int rc = layout_error(&c->layout_op);

	if (rc == -EPROTO)
		return gn_fail(rc, "kv: %s is not the address of a key-value store", c->addr);
	if (rc)
		return gn_fail(rc, "kv: no layout from the server at %s: %s", c->addr,
			       gn_rpc_status_str(c->layout_op.status));
	if (layout->version != KV_VERSION || !layout->partitions ||
	    layout->partitions > GN_KV_THREADS_MAX)
		return gn_fail(-EPROTO,
			       "kv: the server at %s speaks version %u, this client version %u",
			       c->addr, layout->version, KV_VERSION);
	if (part && layout->epoch != c->layout.epoch)
		return gn_fail(-ECONNRESET, "kv: the server at %s was restarted", c->addr);
	if (!part)
		c->layout = *layout;
	return kv_client_bypasses(c) ? kv_bypass_create(c, part, layout, c->layout_sent_ns) : 0;
}

/* -EAGAIN: no response by the deadline. */
static int wait_layout(struct gn_kv_client *c, uint64_t deadline_ns)
{
	struct gn_rpc_client *rpc = c->links[c->n_links - 1].rpc;

	while (!c->layout_received) {
		const int rc = deadline_ns == GN_NO_WAIT ? gn_rpc_poll(rpc) :
							   gn_rpc_wait(rpc, deadline_ns);

		if (!c->layout_received && deadline_ns == GN_NO_WAIT)
			return rc < 0 ? rc : -EAGAIN;
		if (!c->layout_received && rc == -ETIMEDOUT)
			return -EAGAIN;
		if (!c->layout_received && rc < 0 && rc != -EINTR)
			return rc;
	}
	return 0;
}

static int connect_start(struct gn_kv_client *c, uint64_t us)
{
	const uint64_t max_us = c->opts.rpc.timeout_us ? c->opts.rpc.timeout_us :
							 CONNECT_TIMEOUT_US;

	kv_disconnect(c);
	c->links = gn_alloc(GN_KV_THREADS_MAX * sizeof(*c->links), 0);
	c->connect_deadline_ns = gn_deadline_us(us < max_us ? us : max_us);
	return c->links ? open_link(c) : -ENOMEM;
}

/*
 * Advances the attempt until the deadline; us limits a new attempt. 0: connected; -EAGAIN: not yet.
 */
static int connect_advance(struct gn_kv_client *c, uint64_t us, uint64_t deadline_ns)
{
	int rc = c->connect == KV_CONNECT_IDLE ? connect_start(c, us) : 0;

	while (!rc && c->connect != KV_CONNECT_IDLE) {
		if (c->connect == KV_CONNECT_OPEN) {
			rc = gn_rpc_client_open_wait(c->links[c->n_links - 1].rpc, deadline_ns);
			if (!rc)
				rc = send_layout_request(c);
			continue;
		}
		rc = wait_layout(c, deadline_ns);
		if (!rc)
			rc = take_layout(c);
		if (!rc && c->n_links < c->layout.partitions)
			rc = open_link(c);
		else if (!rc)
			c->connect = KV_CONNECT_IDLE;
	}
	if (rc && rc != -EAGAIN)
		kv_disconnect(c);
	c->disconnected = rc != 0;
	return rc;
}

static int connect_try(struct gn_kv_client *c, uint64_t us, uint64_t deadline_ns)
{
	const bool busy = c->busy;
	int rc;

	c->busy = true; /* callbacks of rpc must not start operations */
	rc = connect_advance(c, us, deadline_ns);
	c->busy = busy;
	return rc;
}

int kv_connect(struct gn_kv_client *c)
{
	return connect_try(c, UINT64_MAX, GN_FOREVER);
}

static bool error_is_transient(int rc)
{
	return rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -ENOTCONN || rc == -ECONNRESET ||
	       rc == -EBUSY;
}

static void client_reconnected(struct gn_kv_client *c)
{
	c->count.reconnects++;
	c->backoff.failed = 0;
}

int kv_client_ensure_connected(struct gn_kv_client *c, uint64_t deadline_ns)
{
	int rc;

	if (c->busy)
		return gn_fail(-EDEADLK, "kv: not within a done function");
	if (!c->disconnected)
		return 0;
	if (!(c->opts.flags & GN_KV_RECONNECT))
		return gn_fail(-ENOTCONN, KV_DISCONNECTED, c->addr);
	for (;;) {
		rc = connect_try(c, UINT64_MAX, deadline_ns);
		if (!rc) {
			client_reconnected(c);
			return 0;
		}
		if (rc != -EAGAIN && !error_is_transient(rc))
			return rc;
		link_backoff_failed(&c->backoff);
		if (link_backoff_wait(&c->backoff, deadline_ns))
			return gn_fail(-ENOTCONN, KV_DISCONNECTED, c->addr);
	}
}

/* An attempt starts when no operation is outstanding. */
void kv_reconnect_step(struct gn_kv_client *c)
{
	int rc;

	if (!(c->opts.flags & GN_KV_RECONNECT) ||
	    (c->connect == KV_CONNECT_IDLE && (c->n_ops || gn_now_ns() < c->backoff.at_ns)))
		return;
	rc = connect_try(c, POLL_CONNECT_US << c->backoff.failed, GN_NO_WAIT);
	if (!rc)
		client_reconnected(c);
	else if (rc != -EAGAIN)
		link_backoff_failed(&c->backoff);
}

/* ---- change of thread ---- */

static void adopt_links(struct gn_kv_client *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		gn_rpc_client_adopt(c->links[i].rpc);
}

int gn_kv_client_release(struct gn_kv_client *c)
{
	int rc = kv_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_kv_client_release(): not within a done function");
	if (!rc && (c->n_ops || c->connect != KV_CONNECT_IDLE))
		rc = gn_fail(
			-EBUSY,
			"gn_kv_client_release(): %llu operations are outstanding, or the client "
			"is connecting",
			(unsigned long long)c->n_ops);
	for (uint32_t i = 0; !rc && i < c->n_links; i++) {
		rc = gn_rpc_client_release(c->links[i].rpc);
		if (rc)
			adopt_links(c, i);
	}
	if (rc)
		return rc;
	gn_source_disarm(&c->source);
	exec_release(&c->owner);
	return 0;
}

/* The owner of a client owns its connections. */
int gn_kv_client_adopt(struct gn_kv_client *c)
{
	int rc;

	if (!c)
		return gn_fail(-EINVAL, "gn_kv_client_adopt(): client is NULL");
	rc = exec_adopt(&c->owner, "kv client");
	if (!rc)
		adopt_links(c, c->n_links);
	return rc;
}
