/* SPDX-License-Identifier: MIT */
/* A client's beginnings and ends. */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/owner.h"
#include "base/sized.h"
#include "rpc/client.h"

#define TIMEOUT_US     2000000u
#define PIECE	       (256u << 10)
#define SENDS_PER_SLOT 3u /* a request, a read and the read of the rest */
#define OLD_LINKS_MAX  4u /* of a client, which their servers may be copying */
#define SENDS_BESIDE   8u /* words to the server, pieces of large results */

/* ---- options ---- */

static int check_opts(const struct gn_rpc_client_opts *o)
{
	if (o->mode >= GN_RPC_MODES)
		return gn_fail_log(-EINVAL, "rpc: mode %d: there is none", (int)o->mode);
	if (o->slots > GN_RPC_SLOTS_MAX || o->max_request > GN_RPC_BYTES_MAX ||
	    o->max_result > GN_RPC_BYTES_MAX || o->fetch_bytes > GN_RPC_BYTES_MAX ||
	    o->max_large > GN_RPC_LARGE_MAX || o->batch.entries > GN_RPC_BATCH_MAX)
		return gn_fail_log(
			-EINVAL,
			"rpc: slots %u, max_request %u, max_result %u, fetch_bytes %u, max_large "
			"%u, batch.entries %u: at most %u slots, %u bytes in a slot, %u bytes of "
			"anything, %u entries",
			o->slots, o->max_request, o->max_result, o->fetch_bytes, o->max_large,
			o->batch.entries, GN_RPC_SLOTS_MAX, GN_RPC_BYTES_MAX, GN_RPC_LARGE_MAX,
			GN_RPC_BATCH_MAX);
	if (o->batch.alpha_pct > 100)
		return gn_fail_log(-EINVAL, "rpc: batch.alpha_pct %u: at most 100",
				   o->batch.alpha_pct);
	return 0;
}

static uint32_t given_or(uint32_t given, uint32_t otherwise)
{
	return given ? given : otherwise;
}

/* What is asked for, before the server has granted less. */
static void take_opts(struct gn_rpc_client *c)
{
	const struct gn_rpc_client_opts *o = &c->opts;
	const uint32_t slots = rpc_round_up(given_or(o->slots, GN_RPC_SLOTS_DEFAULT));
	const uint64_t window = (uint64_t)slots * c->learn.batch.entries;

	c->opts.max_large = given_or(o->max_large, GN_RPC_LARGE_MAX);
	c->limits = (struct gn_rpc_limits){
		.size = sizeof(struct gn_rpc_limits),
		.slots = slots,
		.max_request = given_or(o->max_request, GN_RPC_BYTES_DEFAULT),
		.max_result = given_or(o->max_result, GN_RPC_BYTES_DEFAULT),
		.max_large = c->opts.max_large,
		.window = window < GN_RPC_WINDOW_MAX ? (uint32_t)window : GN_RPC_WINDOW_MAX,
	};
}

static const struct source_ops client_source = {
	.ready = source_object_ready,
	.arm = source_object_arm,
	.disarm = source_object_disarm,
	.prepare = rpc_client_prepare,
};

/* ---- the link: all that is made anew with a connection ---- */

/* False: the server may be copying. With the qp gone it does not, and nothing waits for it. */
static bool old_link_free(struct rpc_old_link *old)
{
	if (gn_qp_destroy_try(old->qp))
		return false;
	rpc_area_retry(&old->retired);
	for (uint32_t i = 0; old->calls && i < old->n_calls; i++)
		rpc_area_free(&old->calls[i].request);
	for (unsigned i = 0; i < sizeof(old->areas) / sizeof(old->areas[0]); i++)
		rpc_area_free(&old->areas[i]);
	for (unsigned i = 0; i < sizeof(old->mr) / sizeof(old->mr[0]); i++) {
		gn_mr_deregister(old->mr[i]);
		gn_mem_free(old->mem[i]);
	}
	gn_pd_destroy(old->pd);
	gn_cq_destroy(old->cq);
	gn_chan_destroy(old->chan);
	gn_free(old->calls);
	return true;
}

void rpc_old_links_retry(struct gn_rpc_client *c)
{
	struct rpc_old_link **at = &c->old_links;

	while (*at) {
		struct rpc_old_link *old = *at;

		if (!old_link_free(old)) {
			at = &old->next;
			continue;
		}
		*at = old->next;
		c->n_old_links--;
		gn_free(old);
	}
}

/* The client has no link any more; what its server may be copying is left for later. */
static void destroy_link(struct gn_rpc_client *c)
{
	struct rpc_old_link old = {
		.qp = c->qp,
		.chan = c->chan,
		.cq = c->cq,
		.pd = c->pd,
		.mem = {c->reply_mem, c->local_mem},
		.mr = {c->reply_mr, c->local_mr},
		.calls = c->calls,
		.n_calls = c->limits.window,
		.areas = {c->bounce, c->spare, c->look.area},
		.retired = c->retired,
	};
	struct rpc_old_link *kept;

	if (c->cq)
		source_fini(gn_cq_source(c->cq));
	if (c->chan)
		source_fini(gn_chan_source(c->chan));
	c->bounce = c->spare = c->look.area = (struct rpc_area){0};
	c->retired = NULL;
	rpc_far_free(c);
	rpc_reads_free(c);
	gn_free(c->got);
	c->qp = NULL;
	c->reply_mr = c->local_mr = NULL;
	c->reply_mem = c->local_mem = NULL;
	c->pd = NULL;
	c->cq = NULL;
	c->chan = NULL;
	c->calls = NULL;
	c->idle = NULL;
	c->got = NULL;
	if (old_link_free(&old))
		return;
	kept = gn_alloc(sizeof(*kept), 0);
	if (!kept) {
		gn_qp_destroy(old.qp);
		old.qp = NULL;
		old_link_free(&old);
		return;
	}
	*kept = old;
	kept->next = c->old_links;
	c->old_links = kept;
	c->n_old_links++;
}

static int make_memory(struct gn_rpc_client *c)
{
	const size_t requests = rpc_stride(c->limits.max_request) * c->limits.slots;
	const size_t results = rpc_stride(c->limits.max_result) * c->limits.slots;
	int rc = gn_mem_alloc(c->fabric, requests + results, 0, &c->local_mem);

	if (rc)
		return rc;
	rc = gn_mr_register(c->pd, c->local_mem, 0, requests + results, GN_LOCAL_WRITE,
			    &c->local_mr);
	if (rc)
		return rc;
	rc = gn_mem_alloc(c->fabric, results, GN_REMOTE_WRITE, &c->reply_mem);
	if (rc)
		return rc;
	rc = gn_mr_register(c->pd, c->reply_mem, 0, results, GN_LOCAL_WRITE | GN_REMOTE_WRITE,
			    &c->reply_mr);
	if (rc)
		return rc;
	c->local_key = gn_mr_lkey(c->local_mr);
	c->requests = gn_mem_addr(c->local_mem);
	c->fetched = c->requests + requests;
	c->replies = gn_mem_addr(c->reply_mem);
	return 0;
}

static int make_tables(struct gn_rpc_client *c)
{
	const uint32_t window = c->limits.window, slots = c->limits.slots;

	c->calls = gn_alloc(window * sizeof(*c->calls), 0);
	c->got = gn_alloc(slots * sizeof(*c->got), 0);
	return c->calls && c->got ? 0 : -ENOMEM;
}

static int make_endpoint(struct gn_rpc_client *c)
{
	const uint32_t sends =
		c->limits.slots * SENDS_PER_SLOT + rpc_reads_most(c->limits.slots) + SENDS_BESIDE;
	struct gn_attr attr = {.size = sizeof(attr)};
	struct gn_qp_opts qp = {.size = sizeof(qp),
				.type = GN_QP_RC,
				.max_recv_wr = RPC_NOTIFY_RECVS,
				.max_send_wr = sends};
	int rc = gn_fabric_query(c->fabric, &attr);

	if (rc)
		return rc;
	c->max_inline = attr.max_inline < RPC_INLINE ? attr.max_inline : RPC_INLINE;
	c->piece = attr.max_msg < PIECE ? (uint32_t)attr.max_msg : PIECE;
	rc = gn_chan_create(c->ctx, &c->chan);
	if (rc)
		return rc;
	source_join(&c->source, gn_chan_source(c->chan));
	rc = gn_pd_create(c->ctx, &c->pd);
	if (rc)
		return rc;
	rc = gn_cq_create(c->ctx,
			  &(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts),
					       .depth = sends + RPC_NOTIFY_RECVS,
					       .chan = c->chan},
			  &c->cq);
	if (rc)
		return rc;
	source_join(&c->source, gn_cq_source(c->cq));
	qp.send_cq = qp.recv_cq = c->cq;
	qp.chan = c->chan;
	qp.max_inline = c->max_inline;
	rc = gn_qp_create(c->pd, &qp, &c->qp);
	for (unsigned i = 0; i < RPC_NOTIFY_RECVS && !rc; i++)
		rc = rpc_notify_recv(c);
	return rc;
}

/* ---- hello and welcome ---- */

static bool welcome_ok(const struct gn_rpc_client *c, const struct gn_event *event,
		       const struct rpc_welcome *w)
{
	return event->private_len >= sizeof(*w) && w->magic == RPC_MAGIC &&
	       w->version == RPC_VERSION && w->slots && !(w->slots & (w->slots - 1)) &&
	       w->slots <= c->limits.slots && w->max_request <= c->limits.max_request &&
	       w->max_result <= c->limits.max_result && w->window && w->window <= c->limits.window;
}

/* The server grants at most what was asked for, or it is none of ours. */
static int take_welcome(struct gn_rpc_client *c, const struct gn_event *event)
{
	struct rpc_welcome w;
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	int rc;

	memcpy(&w, event->private_data, sizeof(w));
	if (!welcome_ok(c, event, &w))
		return gn_fail_log(-EPROTO, "rpc: who listens there is no RPC server of version %u",
				   RPC_VERSION);
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
		.reads = rpc_reads_most(w.slots),
		.conn = {rpc_conn_name(w.epoch, c->nonce), w.thread},
	};
	c->previous = c->limits.conn;
	c->mask = w.slots - 1;
	c->most = rpc_max_request(w.max_request);
	c->max_short = w.max_request < RPC_SHORT ? w.max_request : RPC_SHORT;
	c->request_stride = rpc_stride(w.max_request);
	c->result_stride = rpc_stride(w.max_result);
	c->request_key = w.request_key;
	c->result_key = w.result_key;
	c->epoch = w.epoch;
	c->park_us = w.park_us;
	c->silence_ns = w.park_us * 250ull;
	c->max_results = rpc_max_len(w.max_result);
	return 0;
}

/* How long it may take to connect: no longer than what is to be done afterwards. */
static uint32_t connect_us(const struct gn_rpc_client *c, uint64_t deadline_ns)
{
	uint64_t us = c->opts.timeout_us ? c->opts.timeout_us : TIMEOUT_US;
	const uint64_t now_ns = gn_now_ns();

	if (deadline_ns && deadline_ns < now_ns + us * 1000)
		us = deadline_ns > now_ns + 1000 ? (deadline_ns - now_ns) / 1000 : 1;
	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static int say_hello(struct gn_rpc_client *c, uint32_t timeout_us)
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
	int rc = gn_mr_remote(c->reply_mr, &reply);

	if (rc)
		return rc;
	hello.reply_key = reply.key;
	c->sent_ns = gn_now_ns(); /* the server's patience begins before its answer is here */
	return gn_connect(c->qp, c->addr, &conn);
}

/* A client without a link begins to make one. */
static int begin_link(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	int rc;

	c->dead = c->opening = true;
	take_opts(c);
	c->nonce = gn_random();
	c->far_end = &c->far_reads;
	rc = make_endpoint(c);
	if (!rc)
		rc = make_memory(c);
	if (!rc)
		rc = make_tables(c);
	if (!rc)
		rc = say_hello(c, connect_us(c, deadline_ns));
	if (rc)
		destroy_link(c);
	return rc;
}

/* It is connected, and as new. */
static void start_link(struct gn_rpc_client *c)
{
	c->number = c->expected = 1;
	c->spent = c->told = c->taken = 0;
	c->n_fetch = c->n_reply = c->untimed = c->lent = 0;
	rpc_next_slot(c);
	c->posted = c->reads = c->unconfirmed = c->unsignaled = 0;
	c->due = c->far = c->tell = c->slow_reads = c->missed = c->starved = c->notify = false;
	c->notify_after_ns = RPC_NOTIFY_NS;
	c->woken = c->waking = 0;
	c->first_ns = 0;
	c->asked_ns = rpc_read_clock(c);
	rpc_set_posts(c);
	rpc_learn_stride(c);
	c->until_ns = GN_FOREVER;
	for (uint32_t i = c->limits.window; i--;) {
		c->calls[i].index = (uint16_t)i;
		c->calls[i].name = (uint64_t)i << 48;
		c->calls[i].next = c->idle;
		c->idle = &c->calls[i];
	}
	c->open_ns = c->newest_ns = 0;
	c->dead = c->opening = false;
	if (c->opts.peer)
		c->opts.peer(c->opts.peer_arg, c->epoch, true);
}

/* The provider bounds an attempt: its outcome comes by itself. */
static int finish_link(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	struct gn_event event;
	int rc;

	do {
		rc = gn_chan_wait(c->chan, deadline_ns, &event);
	} while (rc == -EINTR);
	if (rc == -ETIMEDOUT)
		return gn_fail_text(-EAGAIN, "rpc: the server has not answered yet");
	if (!rc && event.type == GN_EVENT_ESTABLISHED)
		rc = take_welcome(c, &event);
	else if (!rc && event.type == GN_EVENT_UNREACHABLE)
		rc = gn_fail(event.status, "rpc: no server answers at %s: %s", c->addr,
			     gn_strerror(event.status));
	else if (!rc)
		rc = gn_fail(-ECONNREFUSED, "rpc: the server at %s refuses the connection",
			     c->addr);
	if (rc) {
		c->opening = false;
		destroy_link(c);
		return rc;
	}
	start_link(c);
	return 0;
}

static int make_link(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	const int rc = begin_link(c, deadline_ns);

	return rc ? rc : finish_link(c, GN_FOREVER);
}

/* ---- a client ---- */

static void destroy(struct gn_rpc_client *c)
{
	destroy_link(c);
	for (struct rpc_old_link *old = c->old_links; old; old = old->next) {
		gn_qp_destroy(old->qp); /* waits, but not for ever */
		old->qp = NULL;
	}
	rpc_old_links_retry(c);
	source_fini(&c->source);
	gn_ctx_destroy(c->own_ctx);
	rpc_learn_free(c);
	rpc_mail_free(c);
	gn_free(c->addr);
	gn_free(c);
}

static int make(struct gn_rpc_client *c, const char *addr)
{
	int rc = rpc_learn_init(c, &c->opts);

	if (rc)
		return rc;
	c->addr = gn_alloc(strlen(addr) + 1, 0);
	if (!c->addr)
		return -ENOMEM;
	memcpy(c->addr, addr, strlen(addr));
	c->ctx = c->opts.ctx;
	if (!c->ctx)
		rc = gn_ctx_create(c->fabric, &c->own_ctx);
	if (rc)
		return rc;
	if (!c->ctx)
		c->ctx = c->own_ctx;
	return begin_link(c, 0);
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
		rc = check_opts(&opts);
	if (rc)
		return rc;
	c = gn_alloc(sizeof(*c), 0);
	if (!c)
		return -ENOMEM;
	source_init(&c->source, &client_source);
	c->owner = gn_thread_id();
	c->fabric = fabric;
	c->opts = opts;
	c->mode = opts.mode;
	c->flags = opts.flags;
	c->previous = opts.previous;
	rc = make(c, addr);
	if (rc) {
		destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

int gn_rpc_client_open_wait(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	int rc = rpc_client_check(c);

	if (!rc && !c->opening)
		rc = c->dead ? gn_fail_text(-ENOTCONN, RPC_GONE) :
			       gn_fail(-EISCONN, "gn_rpc_client_open_wait(): it is connected");
	return rc ? rc : finish_link(c, deadline_ns);
}

int gn_rpc_client_open(struct gn_fabric *fabric, const char *addr,
		       const struct gn_rpc_client_opts *opts, struct gn_rpc_client **out)
{
	struct gn_rpc_client *c = NULL;
	int rc = gn_rpc_client_open_begin(fabric, addr, opts, out ? &c : NULL);

	if (!rc)
		rc = finish_link(c, GN_FOREVER);
	if (!rc)
		*out = c;
	else if (c)
		destroy(c);
	return rc;
}

int rpc_reconnect(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	int rc;

	rpc_client_die(c);
	if (c->qp)
		gn_disconnect(c->qp);
	destroy_link(c);
	rpc_old_links_retry(c);
	if (c->n_old_links >= OLD_LINKS_MAX)
		return gn_fail_text(-EAGAIN, "rpc: peers still use earlier connections");
	rc = make_link(c, deadline_ns);
	c->count.reconnects += !rc;
	return rc;
}

int gn_rpc_reconnect(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_reconnect(): not from within a done function");
	return rc ? rc : rpc_reconnect(c, 0);
}

int gn_rpc_client_release(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);
	uint64_t live;

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_client_release(): not from within a done function");
	live = rc ? 0 : c->count.calls + c->count.reads - c->ended;
	if (!rc && (live || c->prepared || c->opening))
		rc = gn_fail(-EBUSY,
			     "gn_rpc_client_release(): %llu calls and reads are under way, one "
			     "is prepared, or it connects",
			     (unsigned long long)live);
	if (rc)
		return rc;
	gn_source_disarm(&c->source);
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
		rc = gn_fail(-EDEADLK, "gn_rpc_client_close(): not from within a done function");
	if (rc)
		return rc;
	c->dead = c->busy = true; /* what done begins now would end in nothing */
	c->end = NULL;
	for (uint32_t i = 0; c->calls && i < c->limits.window; i++)
		rpc_end(c, &c->calls[i], GN_RPC_CANCELED, 0);
	rpc_reads_end(c, GN_RPC_CANCELED);
	if (c->qp)
		gn_disconnect(c->qp);
	destroy(c);
	return 0;
}
