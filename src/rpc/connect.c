/* SPDX-License-Identifier: MIT */
/* Connecting and closing a client. */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/owner.h"
#include "base/sized.h"
#include "rpc/client.h"

#define CONNECT_TIMEOUT_US 2000000u
#define PIECE_MAX_BYTES	   (256u << 10)
#define SENDS_PER_SLOT	   3u  /* a request, a READ, and the READ of the rest */
#define LINKS_MAX	   2u  /* the current connection, and one that is being torn down */
#define SENDS_BESIDE	   8u  /* acks, wake-ups, pieces of large results */
#define WAIT_SPIN_US	   20u /* of spinning, before the wait looks at events */

/* ---- options ---- */

static int client_check_opts(const struct gn_rpc_client_opts *o)
{
	if (o->mode >= GN_RPC_MODES)
		return gn_fail_log(-EINVAL, "rpc: mode %d: no such mode", (int)o->mode);
	if (o->slots > GN_RPC_SLOTS_MAX || o->max_request > GN_RPC_BYTES_MAX ||
	    o->max_result > GN_RPC_BYTES_MAX || o->fetch_bytes > GN_RPC_BYTES_MAX ||
	    o->max_large > GN_RPC_LARGE_MAX || o->batch.entries > GN_RPC_BATCH_MAX)
		return gn_fail_log(
			-EINVAL,
			"rpc: slots %u, max_request %u, max_result %u, fetch_bytes %u, max_large "
			"%u, batch.entries %u: at most %u slots, %u bytes in a slot, %u bytes in "
			"a large message, %u entries",
			o->slots, o->max_request, o->max_result, o->fetch_bytes, o->max_large,
			o->batch.entries, GN_RPC_SLOTS_MAX, GN_RPC_BYTES_MAX, GN_RPC_LARGE_MAX,
			GN_RPC_BATCH_MAX);
	if (o->batch.alpha_pct > 100)
		return gn_fail_log(-EINVAL, "rpc: batch.alpha_pct %u: at most 100",
				   o->batch.alpha_pct);
	return 0;
}

static uint32_t value_or(uint32_t given, uint32_t otherwise)
{
	return given ? given : otherwise;
}

/* What the client requests; the server may grant less. */
static void client_apply_opts(struct gn_rpc_client *c)
{
	const struct gn_rpc_client_opts *o = &c->opts;
	const uint32_t slots = rpc_round_up(value_or(o->slots, GN_RPC_SLOTS_DEFAULT));
	const uint64_t window = (uint64_t)slots * c->adapt.batch.entries;

	c->opts.max_large = value_or(o->max_large, GN_RPC_LARGE_MAX);
	c->limits = (struct gn_rpc_limits){
		.size = sizeof(struct gn_rpc_limits),
		.slots = slots,
		.max_request = value_or(o->max_request, GN_RPC_BYTES_DEFAULT),
		.max_result = value_or(o->max_result, GN_RPC_BYTES_DEFAULT),
		.max_large = c->opts.max_large,
		.window = window < GN_RPC_WINDOW_MAX ? (uint32_t)window : GN_RPC_WINDOW_MAX,
	};
}

/* ---- the link: everything that is created anew with a connection ---- */

/* After the qp is destroyed the server cannot copy any more, so nothing here waits. */
static bool link_destroy(struct link_conn *conn)
{
	struct rpc_link *link = container_of(conn, struct rpc_link, conn);

	rpc_area_retry(&link->retired);
	for (uint32_t i = 0; link->calls && i < link->n_calls; i++)
		rpc_area_free(&link->calls[i].request);
	for (unsigned i = 0; i < sizeof(link->areas) / sizeof(link->areas[0]); i++)
		rpc_area_free(&link->areas[i]);
	rpc_area_free(&link->reply);
	rpc_area_free(&link->local);
	gn_pd_destroy(link->pd);
	gn_free(link->calls);
	gn_free(link);
	return true;
}

/*
 * Detaches the connection from the client. The loop tears it down while the server may still be
 * copying.
 */
static void client_close_link(struct gn_rpc_client *c)
{
	struct rpc_link *link = c->link;

	if (!link)
		return;
	link->calls = c->calls;
	link->n_calls = c->limits.window;
	link->areas[0] = c->bounce;
	link->areas[1] = c->spare;
	link->areas[2] = c->view_reads.area;
	link->retired = c->retired;
	c->bounce = c->spare = c->view_reads.area = (struct rpc_area){0};
	c->retired = NULL;
	rpc_large_free(c);
	rpc_reads_free(c);
	gn_free(c->rslots);
	c->link = NULL;
	c->qp = NULL;
	c->calls = c->free_calls = NULL;
	c->rslots = NULL;
	link_conn_close(&link->conn);
	link_conns_sweep(&c->loop);
}

static int link_make_memory(struct gn_rpc_client *c)
{
	const size_t requests = rpc_stride(c->limits.max_request) * c->limits.slots;
	const size_t results = rpc_stride(c->limits.max_result) * c->limits.slots;
	struct rpc_link *l = c->link;
	int rc = rpc_area_make(c->loop.fabric, l->pd, requests + results, 0, &l->local);

	if (!rc)
		rc = rpc_area_make(c->loop.fabric, l->pd, results, GN_REMOTE_WRITE, &l->reply);
	if (rc)
		return rc;
	c->local_key = gn_mr_lkey(l->local.mr);
	c->requests = gn_mem_addr(l->local.mem);
	c->fetched = c->requests + requests;
	c->replies = gn_mem_addr(l->reply.mem);
	return 0;
}

static int link_make_tables(struct gn_rpc_client *c)
{
	const uint32_t window = c->limits.window, slots = c->limits.slots;

	c->calls = gn_alloc(window * sizeof(*c->calls), 0);
	c->rslots = gn_alloc(slots * sizeof(*c->rslots), 0);
	return c->calls && c->rslots ? 0 : -ENOMEM;
}

static uint32_t link_max_sends(const struct gn_rpc_client *c)
{
	return c->limits.slots * SENDS_PER_SLOT + rpc_reads_max(c->limits.slots) + SENDS_BESIDE;
}

static int link_make_qp(struct gn_rpc_client *c)
{
	struct rpc_link *link = gn_alloc(sizeof(*link), 0);
	struct gn_qp_opts qp = {.size = sizeof(qp),
				.type = GN_QP_RC,
				.max_recv_wr = RPC_NOTIFY_RECVS,
				.max_send_wr = link_max_sends(c),
				.max_inline = c->max_inline};
	int rc;

	if (!link)
		return -ENOMEM;
	c->link = link;
	link->client = c;
	link_conn_init(&c->loop, &link->conn);
	link_conn_set_probe_interval(&link->conn, GN_FOREVER); /* until calls are outstanding */
	rc = gn_pd_create(c->loop.ctx, &link->pd);
	if (!rc)
		rc = link_conn_create_qp(&link->conn, link->pd, &qp);
	c->qp = link->conn.qp;
	for (unsigned i = 0; i < RPC_NOTIFY_RECVS && !rc; i++)
		rc = rpc_notify_recv(c);
	return rc;
}

/* ---- handshake ---- */

static int fail_other_version(const char *addr, unsigned version)
{
	return gn_fail_log(-EPROTO,
			   "rpc: the server at %s speaks version %u, this client version %u", addr,
			   version, RPC_VERSION);
}

/*
 * The server refused the connection, perhaps with a reason, or its provider did for lack of
 * descriptors.
 */
static int client_refused(const char *addr, const struct gn_event *event)
{
	static const char *const reasons[RPC_REFUSALS] = {
		[RPC_REFUSED_ENDING] = ": it is shutting down",
		[RPC_REFUSED_FULL] = ": it takes no more clients (max_clients, max_bytes)",
		[RPC_REFUSED_MEMORY] = ": it has no memory left",
		[RPC_REFUSED_FILES] = ": it has no file descriptors left (ulimit -n)",
	};
	struct rpc_refusal r = {.magic = RPC_MAGIC, .version = RPC_VERSION};
	const char *reason;

	if (event->private_len >= sizeof(r))
		memcpy(&r, event->private_data, sizeof(r));
	else if (event->status == -EMFILE)
		r.reason = RPC_REFUSED_FILES;
	if (r.magic == RPC_MAGIC && r.version != RPC_VERSION)
		return fail_other_version(addr, r.version);
	reason = r.magic == RPC_MAGIC && r.reason < RPC_REFUSALS ? reasons[r.reason] : NULL;
	return gn_fail(-ECONNREFUSED, "rpc: the server at %s refuses the connection%s", addr,
		       reason ? reason : "");
}

static bool client_welcome_ok(const struct gn_rpc_client *c, const struct gn_event *event,
			      const struct rpc_welcome *w)
{
	return event->private_len >= sizeof(*w) && w->magic == RPC_MAGIC &&
	       w->version == RPC_VERSION && w->slots && !(w->slots & (w->slots - 1)) &&
	       w->slots <= c->limits.slots && w->max_request <= c->limits.max_request &&
	       w->max_result <= c->limits.max_result && w->window && w->window <= c->limits.window;
}

/* The server must not grant more than was requested. */
static int client_take_welcome(struct gn_rpc_client *c, const struct gn_event *event)
{
	struct rpc_welcome w;
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	int rc;

	memcpy(&w, event->private_data, sizeof(w));
	if (event->private_len >= RPC_VERSION_BYTES && w.magic == RPC_MAGIC &&
	    w.version != RPC_VERSION)
		return fail_other_version(c->link->conn.addr, w.version);
	if (!client_welcome_ok(c, event, &w))
		return gn_fail_log(-EPROTO, "rpc: %s is not the address of an RPC server",
				   c->link->conn.addr);
	rc = gn_qp_query(c->qp, &attr);
	if (rc)
		return rc;
	c->check_reply = !(attr.caps & GN_CAP_INORDER_WRITE);
	c->check_fetch = !(attr.caps & GN_CAP_READ_HEAD_FIRST);
	c->limits = (struct gn_rpc_limits){
		.size = sizeof(struct gn_rpc_limits),
		.slots = w.slots,
		.max_request = w.max_request,
		.max_result = w.max_result,
		.max_large = w.max_large < c->opts.max_large ? w.max_large : c->opts.max_large,
		.window = w.window,
		.reads = rpc_reads_max(w.slots),
		.conn = {rpc_conn_name(w.epoch, c->nonce), w.thread},
	};
	c->previous = c->limits.conn;
	c->mask = w.slots - 1;
	c->ack_after = c->mask / 2;
	c->max_fill = rpc_max_request(w.max_request);
	c->send_fill = c->adapt.batch.bytes < c->max_fill ? c->adapt.batch.bytes : c->max_fill;
	c->max_short = w.max_request < RPC_SHORT ? w.max_request : RPC_SHORT;
	c->request_stride = rpc_stride(w.max_request);
	c->result_stride = rpc_stride(w.max_result);
	c->request_key = w.request_key;
	c->result_key = w.result_key;
	c->epoch = w.epoch;
	c->park_us = w.park_us;
	c->park_quarter_ns = w.park_us * 250ull;
	c->max_results = rpc_max_len(w.max_result);
	return 0;
}

/* The connect timeout, limited by the deadline of the operation that follows. */
static uint32_t client_connect_us(const struct gn_rpc_client *c, uint64_t deadline_ns)
{
	uint64_t us = c->opts.timeout_us ? c->opts.timeout_us : CONNECT_TIMEOUT_US;
	const uint64_t now_ns = gn_now_ns();

	if (deadline_ns < now_ns + us * 1000)
		us = deadline_ns > now_ns + 1000 ? (deadline_ns - now_ns) / 1000 : 1;
	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static int client_send_hello(struct gn_rpc_client *c, uint32_t timeout_us)
{
	struct gn_remote reply;
	struct rpc_hello hello = {
		.magic = RPC_MAGIC,
		.version = RPC_VERSION,
		.bytes = sizeof(hello),
		.slots = c->limits.slots,
		.max_request = c->limits.max_request,
		.max_result = c->limits.max_result,
		.window = c->limits.window,
		.thread = c->opts.thread,
		.nonce = c->nonce,
		.previous = c->previous.name,
		.previous_thread = c->previous.thread,
	};
	const struct gn_conn_opts conn = {
		.size = sizeof(conn),
		.private_data = &hello,
		.private_len = sizeof(hello),
		.timeout_us = timeout_us,
		.rnr_timer_us = RPC_RNR_US,
	};
	int rc = gn_mr_remote(c->link->reply.mr, &reply);

	if (rc)
		return rc;
	hello.reply_key = reply.key;
	c->sent_ns = gn_now_ns(); /* the server's idle time starts before its acceptance arrives */
	return link_conn_connect(&c->link->conn, c->addr, &conn);
}

/* Starts to connect a client that has no link. */
static int client_begin_link(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	int rc;

	c->dead = true;
	client_apply_opts(c);
	c->nonce = gn_random();
	c->large_reads_end = &c->large_reads;
	rc = link_make_qp(c);
	if (!rc)
		rc = link_make_memory(c);
	if (!rc)
		rc = link_make_tables(c);
	if (!rc)
		rc = client_send_hello(c, client_connect_us(c, deadline_ns));
	if (rc)
		client_close_link(c);
	return rc;
}

/* The connection is established: reset all per-connection state. */
static void client_start_link(struct link_conn *conn)
{
	struct gn_rpc_client *c = container_of(conn, struct rpc_link, conn)->client;

	c->number = c->expected = 1;
	c->consumed = c->acked = c->taken = 0;
	c->n_fetch = c->n_reply = c->untimed = c->n_exported = 0;
	rpc_next_slot(c);
	c->posted = c->n_fetch_reads = c->unconfirmed = c->unsignaled = 0;
	c->send_due = c->has_large = c->ack_due = c->slow_reads = c->missed = c->blocked =
		c->notify = false;
	c->notify_after_ns = RPC_NOTIFY_NS;
	c->woken_park = c->wakes_sent = 0;
	c->fetch_at_ns = 0;
	c->probed_ns = rpc_read_clock(c);
	rpc_init_posts(c);
	rpc_adapt_first_read(c);
	link_timer_set(&c->loop.timers, &c->deadline_timer, GN_FOREVER);
	c->left_to_ns = 0;
	for (uint32_t i = c->limits.window; i--;) {
		c->calls[i].index = (uint16_t)i;
		c->calls[i].index_bits = (uint64_t)i << 48;
		c->calls[i].next = c->free_calls;
		c->free_calls = &c->calls[i];
	}
	c->open_ns = c->newest_ns = 0;
	c->dead = false;
	if (!c->opts.peer)
		return;
	c->busy = true; /* the loop is inside a turn: the callback must not close the client */
	c->opts.peer(c->opts.peer_arg, c->epoch, true);
	c->busy = false;
}

static int client_answered(struct link_conn *conn, const struct gn_event *event)
{
	struct gn_rpc_client *c = container_of(conn, struct rpc_link, conn)->client;
	int rc;

	if (event->type == GN_EVENT_REJECTED && event->status != -EACCES)
		return client_refused(conn->addr, event);
	rc = link_connect_error(conn, event);
	return rc ? rc : client_take_welcome(c, event);
}

static void client_ended(struct link_conn *conn)
{
	rpc_client_disconnected(container_of(conn, struct rpc_link, conn)->client);
}

/*
 * A READ of the next result also tells whether the client is parked: see
 * rpc_client_check_liveness().
 */
static bool client_watched(const struct link_conn *conn)
{
	(void)conn;
	return false;
}

static const struct link_ops client_ops = {
	.completed = rpc_client_completed,
	.connect_done = client_answered,
	.established = client_start_link,
	.conn_failed = client_ended,
	.needs_probe = client_watched,
	.probe_due = rpc_client_check_liveness,
	.destroy = link_destroy,
	.poll_words = rpc_client_words,
	.req_notify = rpc_client_notified,
};

bool rpc_client_opening(const struct gn_rpc_client *c)
{
	return c->link && c->link->conn.state == LINK_OPENING;
}

static int client_finish_link(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	const int rc = link_conn_wait(&c->link->conn, deadline_ns);

	if (rc == -EAGAIN)
		return gn_fail_text(rc, "rpc: the server has not answered yet");
	if (rc)
		client_close_link(c);
	return rc;
}

/* ---- client ---- */

static void client_destroy(struct gn_rpc_client *c)
{
	client_close_link(c);
	link_loop_close(&c->loop);
	rpc_adapt_free(c);
	gn_free(c->addr);
	gn_free(c);
}

static int client_init(struct gn_rpc_client *c, struct gn_fabric *fabric, const char *addr)
{
	struct link_loop_opts loop = {.fabric = fabric,
				      .ctx = c->opts.ctx,
				      .maintain_every = RPC_MAINTAIN_EVERY,
				      .policy = {.spin_us = WAIT_SPIN_US, .completions = true}};
	int rc = rpc_adapt_init(c, &c->opts);

	if (rc)
		return rc;
	c->addr = gn_alloc(strlen(addr) + 1, 0);
	if (!c->addr)
		return -ENOMEM;
	memcpy(c->addr, addr, strlen(addr));
	client_apply_opts(c);
	loop.completions = LINKS_MAX * (link_max_sends(c) + LINK_PROBE_SENDS + RPC_NOTIFY_RECVS);
	rc = link_loop_open(&c->loop, &client_ops, &loop);
	if (rc)
		return rc;
	c->loop.source.ops = &rpc_client_source;
	link_timer_init(&c->deadline_timer, rpc_client_deadline);
	c->max_inline = c->loop.attr.max_inline < RPC_INLINE ? c->loop.attr.max_inline : RPC_INLINE;
	c->piece = c->loop.attr.max_msg < PIECE_MAX_BYTES ? (uint32_t)c->loop.attr.max_msg :
							    PIECE_MAX_BYTES;
	return client_begin_link(c, GN_FOREVER);
}

int gn_rpc_client_open_begin(struct gn_fabric *fabric, const char *addr,
			     const struct gn_rpc_client_opts *given, struct gn_rpc_client **out)
{
	struct gn_rpc_client_opts opts = {.size = sizeof(opts)};
	struct gn_rpc_client *c;
	int rc;

	if (!fabric || !addr || !out)
		return gn_fail(
			-EINVAL,
			"gn_rpc_client_open(): fabric is NULL, or addr is NULL, or out is NULL");
	rc = SIZED_READ(&opts, given, "gn_rpc_client_opts");
	if (!rc)
		rc = client_check_opts(&opts);
	if (rc)
		return rc;
	c = gn_alloc(sizeof(*c), 0);
	if (!c)
		return -ENOMEM;
	c->owner = gn_thread_id();
	c->opts = opts;
	c->mode = opts.mode;
	c->flags = opts.flags;
	c->previous = opts.previous;
	rc = client_init(c, fabric, addr);
	if (rc) {
		client_destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

int gn_rpc_client_open_wait(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	int rc = rpc_client_check(c);

	if (!rc && !rpc_client_opening(c))
		rc = c->dead ?
			     gn_fail_text(-ENOTCONN, RPC_GONE) :
			     gn_fail(-EISCONN,
				     "gn_rpc_client_open_wait(): the client is connected already");
	return rc ? rc : client_finish_link(c, deadline_given(deadline_ns));
}

int gn_rpc_client_open(struct gn_fabric *fabric, const char *addr,
		       const struct gn_rpc_client_opts *opts, struct gn_rpc_client **out)
{
	struct gn_rpc_client *c = NULL;
	int rc = gn_rpc_client_open_begin(fabric, addr, opts, out ? &c : NULL);

	if (!rc)
		rc = client_finish_link(c, GN_FOREVER);
	if (!rc)
		*out = c;
	else if (c)
		client_destroy(c);
	return rc;
}

int rpc_reconnect(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	int rc;

	rpc_client_disconnected(c);
	client_close_link(c);
	link_conns_sweep(&c->loop); /* no poll of a client without a link does this */
	if (c->loop.n_closing >= LINKS_MAX)
		return gn_fail_text(-EAGAIN, "rpc: earlier connections are still being torn down");
	rc = client_begin_link(c, deadline_ns);
	if (!rc)
		rc = client_finish_link(c, GN_FOREVER);
	c->count.reconnects += !rc;
	return rc;
}

int gn_rpc_reconnect(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_reconnect(): not within a done function");
	return rc ? rc : rpc_reconnect(c, GN_FOREVER);
}

int gn_rpc_client_release(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);
	uint64_t live;

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_client_release(): not within a done function");
	live = rc ? 0 : c->count.calls + c->count.reads - c->ended;
	if (live)
		rc = gn_fail(-EBUSY,
			     "gn_rpc_client_release(): %llu calls and reads are outstanding",
			     (unsigned long long)live);
	else if (!rc && c->prepared)
		rc = gn_fail(-EBUSY,
			     "gn_rpc_client_release(): a call is prepared and not committed");
	else if (!rc && rpc_client_opening(c))
		rc = gn_fail(-EBUSY, "gn_rpc_client_release(): the client is still connecting");
	if (rc)
		return rc;
	gn_source_disarm(&c->loop.source);
	exec_release(&c->owner);
	return 0;
}

int gn_rpc_client_adopt(struct gn_rpc_client *c)
{
	return c ? exec_adopt(&c->owner, "rpc client") :
		   gn_fail(-EINVAL, "gn_rpc_client_adopt(): client is NULL");
}

int gn_rpc_client_close(struct gn_rpc_client *c)
{
	int rc;

	if (!c)
		return 0;
	if (__atomic_load_n(&c->owner, __ATOMIC_RELAXED) & OWNER_RELEASED)
		exec_adopt(&c->owner, "rpc client");
	rc = rpc_client_check(c);
	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_client_close(): not within a done function");
	if (rc)
		return rc;
	c->dead = c->busy = true; /* calls submitted by done would never complete */
	c->put_end = NULL;
	for (uint32_t i = 0; c->calls && i < c->limits.window; i++)
		rpc_call_complete(c, &c->calls[i], GN_RPC_CANCELED, 0);
	rpc_reads_end(c, GN_RPC_CANCELED);
	client_destroy(c);
	return 0;
}
