/* SPDX-License-Identifier: MIT */
/*
 * The programs of case 77. Any call may fail, any wait may end without a result: then they give up,
 * flush, account for what they had posted, and take everything down. What must not be, whatever
 * goes wrong, is noted in the struct point.
 */
#include "fault_programs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ADDR	   "sim:n0:9"
#define STEP_NS	   300u	   /* of work between two steps, so that they lie apart on any machine */
#define WAIT_US	   100000u /* for the other program; every retry of a device ends before */
#define WRITES	   3u
#define DATAGRAMS  3u
#define PIECE	   512u /* bytes of a WRITE: several lines */
#define MSG_BYTES  64u
#define QKEY	   77u
#define UD_RECVS   8u
#define UD_BYTES   (GN_GRH_BYTES + MSG_BYTES)
#define LEDGER_MAX 16u

/* The layout of both buffers. */
#define AREA_AT	   0u /* what the WRITEs fill */
#define AREA_BYTES (WRITES * PIECE)
#define COUNTER_AT 4096u
#define MSG_OUT_AT 4160u
#define MSG_IN_AT  4224u
#define BACK_AT	   8192u /* what the READ brings */
#define UD_AT	   12288u
#define BUF_BYTES  16384u

/* The server's private data in its accept. */
struct greeting {
	struct gn_remote remote;
	struct gn_ud_addr ud;
};

/* Requests of one queue: ids are positions, so each comes back once and in order. */
struct ledger {
	uint64_t posted, done;
	bool bad; /* one did not end well */
};

struct end {
	struct point *point;
	const char *who;
	unsigned *did;
	struct gn_attr attr;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_chan *chan;
	struct gn_cq *send_cq, *recv_cq, *ud_cq;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_qp *qp, *ud;
	struct gn_ah *ah;
	struct gn_listener *listener;
	struct ledger sends, recvs;
	uint8_t *buf;
};

bool point_finished(const struct point *point)
{
	const unsigned both = POINT_CONNECTED | POINT_SENT | POINT_HEARD | POINT_LEFT;
	const unsigned ud = point->caps & GN_CAP_UD ? POINT_DATAGRAMS : 0;
	const unsigned atomics = point->caps & GN_CAP_ATOMICS ? POINT_ADDED : 0;

	return point->client == (both | POINT_WROTE | POINT_READ | atomics | ud) &&
	       point->server == (both | ud);
}

/* Something that must not be; the first is kept. Returns false. */
__attribute__((format(printf, 2, 3))) static bool wrong(const struct end *end, const char *fmt, ...)
{
	char *why = end->point->why;
	va_list ap;
	int n;

	if (why[0])
		return false;
	n = snprintf(why, CF_WHY_MAX, "%s at %llu ns: ", end->who, (unsigned long long)gn_now_ns());
	va_start(ap, fmt);
	vsnprintf(why + n, CF_WHY_MAX - (size_t)n, fmt, ap);
	va_end(ap);
	return false;
}

/* A call may fail, with a valid error. */
static bool went_well(const struct end *end, const char *what, int err)
{
	const int errno_most = 4095;

	if (err > 0 || err < -errno_most)
		return wrong(end, "%s returned %d", what, err);
	return err == 0;
}

static void fill(uint8_t *data, size_t len, uint8_t tag)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(tag + i * 7);
}

static bool filled(const uint8_t *data, size_t len, uint8_t tag)
{
	for (size_t i = 0; i < len; i++)
		if (data[i] != (uint8_t)(tag + i * 7))
			return false;
	return true;
}

/* ---- setting up and taking down ---- */

static bool open_memory(struct end *end)
{
	unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;

	if (end->attr.caps & GN_CAP_ATOMICS)
		rights |= GN_REMOTE_ATOMIC;
	if (!went_well(end, "gn_mem_alloc",
		       gn_mem_alloc(end->fabric, BUF_BYTES, rights, &end->mem)) ||
	    !went_well(end, "gn_mr_register",
		       gn_mr_register(end->pd, end->mem, 0, BUF_BYTES, GN_LOCAL_WRITE | rights,
				      &end->mr)))
		return false;
	end->buf = gn_mr_addr(end->mr);
	return true;
}

static bool open_queues(struct end *end)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 2 * LEDGER_MAX, .chan = end->chan};
	struct gn_qp_opts rc = {
		.size = sizeof(rc),
		.type = GN_QP_RC,
		.chan = end->chan,
		.max_send_wr = LEDGER_MAX,
		.max_recv_wr = LEDGER_MAX,
	};
	struct gn_qp_opts ud = {.size = sizeof(ud), .type = GN_QP_UD, .qkey = QKEY};

	if (!went_well(end, "gn_cq_create", gn_cq_create(end->ctx, &cq, &end->send_cq)) ||
	    !went_well(end, "gn_cq_create", gn_cq_create(end->ctx, &cq, &end->recv_cq)) ||
	    !went_well(end, "gn_cq_create", gn_cq_create(end->ctx, &cq, &end->ud_cq)))
		return false;
	rc.send_cq = end->send_cq;
	rc.recv_cq = end->recv_cq;
	ud.send_cq = ud.recv_cq = end->ud_cq;
	if (!went_well(end, "gn_qp_create", gn_qp_create(end->pd, &rc, &end->qp)))
		return false;
	return !(end->attr.caps & GN_CAP_UD) ||
	       went_well(end, "gn_qp_create", gn_qp_create(end->pd, &ud, &end->ud));
}

static bool end_open(struct end *end, const struct gn_env *env)
{
	end->attr.size = sizeof(end->attr);
	if (!went_well(end, "gn_fabric_open", gn_fabric_open(env->fabric, &end->fabric)) ||
	    !went_well(end, "gn_fabric_query", gn_fabric_query(end->fabric, &end->attr)) ||
	    !went_well(end, "gn_ctx_create", gn_ctx_create(end->fabric, &end->ctx)) ||
	    !went_well(end, "gn_pd_create", gn_pd_create(end->ctx, &end->pd)) ||
	    !went_well(end, "gn_chan_create", gn_chan_create(end->ctx, &end->chan)))
		return false;
	end->point->caps = end->attr.caps;
	return open_memory(end) && open_queues(end);
}

static void end_close(struct end *end)
{
	int err = gn_ah_destroy(end->ah);

	err = gn_qp_destroy(end->ud) ?: err;
	err = gn_qp_destroy(end->qp) ?: err;
	err = gn_listener_destroy(end->listener) ?: err;
	err = gn_cq_destroy(end->ud_cq) ?: err;
	err = gn_cq_destroy(end->recv_cq) ?: err;
	err = gn_cq_destroy(end->send_cq) ?: err;
	err = gn_mr_deregister(end->mr) ?: err;
	err = gn_mem_free(end->mem) ?: err;
	err = gn_chan_destroy(end->chan) ?: err;
	err = gn_pd_destroy(end->pd) ?: err;
	err = gn_ctx_destroy(end->ctx) ?: err;
	err = gn_fabric_close(end->fabric) ?: err;
	if (err)
		wrong(end, "an object could not be destroyed: %s", gn_strerror(err));
}

/* ---- requests and completions ---- */

/* A completion that must be the next of its queue. */
static bool enter(struct end *end, struct ledger *ledger, const struct gn_wc *wc)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (ledger->done == ledger->posted || wc->id != ledger->done)
		return wrong(end, "completion %llu of %llu posted comes after %llu",
			     (unsigned long long)wc->id, (unsigned long long)ledger->posted,
			     (unsigned long long)ledger->done);
	if ((unsigned)wc->status >= GN_WC_STATUSES || wc->qp != end->qp)
		return wrong(end, "completion %llu has status %d", (unsigned long long)wc->id,
			     (int)wc->status);
	if (ledger->bad && wc->status != GN_WC_FLUSHED)
		return wrong(end, "completion %llu after a failure is %s",
			     (unsigned long long)wc->id, gn_wc_status_str(wc->status));
	ledger->done++;
	ledger->bad |= wc->status != GN_WC_OK;
	if (ledger->bad && (gn_qp_query(end->qp, &attr) || attr.state != GN_QP_ERROR))
		return wrong(end, "%s, but the qp is not in error", gn_wc_status_str(wc->status));
	return true;
}

/* The next completion has come, and is a success. */
static bool succeeds(struct end *end, struct ledger *ledger, struct gn_cq *cq, struct gn_wc *wc)
{
	int n = gn_cq_wait(cq, wc, 1, gn_deadline_us(WAIT_US), "a completion");

	if (n != 1)
		return n == -ETIMEDOUT ? false : wrong(end, "gn_cq_wait returned %d", n);
	return enter(end, ledger, wc) && wc->status == GN_WC_OK;
}

/* Whatever is still outstanding comes back, once, when the qp is put in error. */
static void settle(struct end *end, struct ledger *ledger, struct gn_cq *cq)
{
	struct gn_wc wc;
	int n;

	while (ledger->done < ledger->posted) {
		n = gn_cq_wait(cq, &wc, 1, gn_deadline_us(WAIT_US), "what was posted");
		if (n != 1) {
			wrong(end, "%llu of %llu requests came back: %s",
			      (unsigned long long)ledger->done, (unsigned long long)ledger->posted,
			      gn_strerror(n));
			return;
		}
		if (!enter(end, ledger, &wc))
			return;
	}
	n = gn_cq_poll(cq, &wc, 1);
	if (n)
		wrong(end, "a completion too many (%d)", n);
}

static void flush(struct end *end)
{
	if (!end->qp)
		return;
	gn_qp_error(end->qp);
	settle(end, &end->sends, end->send_cq);
	settle(end, &end->recvs, end->recv_cq);
}

/* Post one request and wait for its success. */
static bool do_one(struct end *end, struct gn_wr *wr, size_t at, uint32_t len)
{
	struct gn_sge sge = {end->buf + at, len, gn_mr_lkey(end->mr)};
	struct gn_wc wc;

	gn_charge(GN_WORK_NS, STEP_NS);
	wr->id = end->sends.posted;
	wr->sge = &sge;
	wr->n_sge = 1;
	wr->flags |= GN_SIGNALED;
	if (!went_well(end, "gn_post_send", gn_post_send(end->qp, wr, NULL)))
		return false;
	end->sends.posted++;
	return succeeds(end, &end->sends, end->send_cq, &wc);
}

static bool send_message(struct end *end, uint8_t tag)
{
	struct gn_wr wr;

	fill(end->buf + MSG_OUT_AT, MSG_BYTES, tag);
	gn_wr_send(&wr, 0, NULL, 0);
	if (!do_one(end, &wr, MSG_OUT_AT, MSG_BYTES))
		return false;
	*end->did |= POINT_SENT;
	return true;
}

static bool post_receive(struct end *end)
{
	struct gn_sge sge = {end->buf + MSG_IN_AT, MSG_BYTES, gn_mr_lkey(end->mr)};
	struct gn_recv_wr wr = {.id = end->recvs.posted, .sge = &sge, .n_sge = 1};

	if (!went_well(end, "gn_post_recv", gn_post_recv(end->qp, &wr, NULL)))
		return false;
	end->recvs.posted++;
	return true;
}

static bool hear_message(struct end *end, uint8_t tag)
{
	struct gn_wc wc;

	if (!succeeds(end, &end->recvs, end->recv_cq, &wc))
		return false;
	if (wc.len_bytes != MSG_BYTES || !filled(end->buf + MSG_IN_AT, MSG_BYTES, tag))
		return wrong(end, "a message of %u bytes is not what was sent", wc.len_bytes);
	*end->did |= POINT_HEARD;
	return true;
}

/* The next event but those of cqs; false when it does not come. */
static bool next_event(struct end *end, enum gn_event_type want, struct gn_event *ev)
{
	const uint64_t deadline_ns = gn_deadline_us(WAIT_US);
	int err;

	do {
		err = gn_chan_wait(end->chan, deadline_ns, ev);
		/* A crashed client reconnects: there is one more qp. */
		if (!err && ev->type == GN_EVENT_CONNECT_REQUEST && ev->type != want)
			gn_reject(ev->req, NULL, 0);
	} while (!err && (ev->type == GN_EVENT_CQ ||
			  (ev->type == GN_EVENT_CONNECT_REQUEST && ev->type != want)));
	if (err && err != -ETIMEDOUT)
		return wrong(end, "gn_chan_wait: %s", gn_strerror(err));
	if (!err && (unsigned)ev->type >= GN_EVENTS)
		return wrong(end, "an event of type %d", (int)ev->type);
	return !err && ev->type == want;
}

static void await_leaving(struct end *end)
{
	struct gn_event ev;

	if (next_event(end, GN_EVENT_DISCONNECTED, &ev))
		*end->did |= POINT_LEFT;
}

/* ---- the server ---- */

static bool post_datagrams(struct end *end)
{
	for (uint64_t i = 0; end->ud && i < UD_RECVS; i++) {
		struct gn_sge sge = {end->buf + UD_AT + i * UD_BYTES, UD_BYTES,
				     gn_mr_lkey(end->mr)};
		struct gn_recv_wr wr = {.id = i, .sge = &sge, .n_sge = 1};

		if (!went_well(end, "gn_post_recv", gn_post_recv(end->ud, &wr, NULL)))
			return false;
	}
	return true;
}

/* They may be lost, doubled or out of order, but are what was sent. */
static void take_datagrams(struct end *end)
{
	unsigned seen = 0;
	struct gn_wc wc;

	while (end->ud && gn_cq_poll(end->ud_cq, &wc, 1) == 1) {
		const uint8_t *data = end->buf + UD_AT + wc.id * UD_BYTES + GN_GRH_BYTES;

		if (wc.status != GN_WC_OK || wc.id >= UD_RECVS || wc.len_bytes != UD_BYTES ||
		    data[0] >= DATAGRAMS || !filled(data, MSG_BYTES, data[0])) {
			wrong(end, "datagram %llu is %s", (unsigned long long)wc.id,
			      gn_wc_status_str(wc.status));
			return;
		}
		seen |= 1u << data[0];
	}
	if (end->ud && seen == (1u << DATAGRAMS) - 1)
		*end->did |= POINT_DATAGRAMS;
}

static bool greet(struct end *end, struct gn_conn_req *req)
{
	struct greeting greeting;
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &greeting, .private_len = sizeof(greeting)};
	struct gn_event ev;
	bool ok;

	memset(&greeting, 0, sizeof(greeting));
	ok = went_well(end, "gn_mr_remote", gn_mr_remote(end->mr, &greeting.remote)) &&
	     (!end->ud || went_well(end, "gn_qp_ud_addr", gn_qp_ud_addr(end->ud, &greeting.ud)));
	if (!ok) {
		gn_reject(req, NULL, 0);
		return false;
	}
	if (!went_well(end, "gn_accept", gn_accept(req, end->qp, &opts)) ||
	    !next_event(end, GN_EVENT_ESTABLISHED, &ev))
		return false;
	*end->did |= POINT_CONNECTED;
	return true;
}

static void serve(struct end *end)
{
	struct gn_event ev;

	if (!post_receive(end) || !post_datagrams(end) ||
	    !went_well(end, "gn_listener_create",
		       gn_listener_create(end->ctx, ADDR, end->chan, 0, &end->listener)) ||
	    !next_event(end, GN_EVENT_CONNECT_REQUEST, &ev) || !greet(end, ev.req))
		return;
	if (!hear_message(end, 'c'))
		return;
	for (unsigned i = 0; i < WRITES; i++) /* the message came after them on the same qp */
		if (!filled(end->buf + AREA_AT + i * PIECE, PIECE, (uint8_t)i))
			wrong(end, "WRITE %u is not there", i);
	if (send_message(end, 's'))
		await_leaving(end);
}

int point_server(struct gn_env *env, int argc, char **argv)
{
	struct end end = {.point = env->arg, .who = "server"};

	(void)argc;
	(void)argv;
	end.did = &end.point->server;
	if (end_open(&end, env)) {
		serve(&end);
		take_datagrams(&end);
	}
	flush(&end);
	end_close(&end);
	return 0;
}

/* ---- the client ---- */

/* The server may not listen yet. */
static bool meet(struct end *end, struct greeting *greeting)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = WAIT_US / 2};
	struct gn_event ev;

	if (!went_well(end, "gn_connect_wait", gn_connect_wait(end->qp, ADDR, &opts, &ev)))
		return false;
	if (ev.private_len < sizeof(*greeting))
		return wrong(end, "a greeting of %u bytes", ev.private_len);
	memcpy(greeting, ev.private_data, sizeof(*greeting));
	*end->did |= POINT_CONNECTED;
	return true;
}

static bool write_and_read(struct end *end, const struct gn_remote *remote)
{
	struct gn_wr wr;

	for (unsigned i = 0; i < WRITES; i++) {
		fill(end->buf + AREA_AT + i * PIECE, PIECE, (uint8_t)i);
		gn_wr_rdma(&wr, GN_OP_WRITE, 0, NULL, remote, AREA_AT + i * PIECE, 0);
		if (!do_one(end, &wr, AREA_AT + i * PIECE, PIECE))
			return false;
	}
	*end->did |= POINT_WROTE;
	gn_wr_rdma(&wr, GN_OP_READ, 0, NULL, remote, AREA_AT, 0);
	if (!do_one(end, &wr, BACK_AT, AREA_BYTES))
		return false;
	if (memcmp(end->buf + AREA_AT, end->buf + BACK_AT, AREA_BYTES) != 0)
		return wrong(end, "the READ does not bring what was written");
	*end->did |= POINT_READ;
	return true;
}

static bool add(struct end *end, const struct gn_remote *remote)
{
	uint64_t old = 1;
	struct gn_wr wr;

	if (!(end->attr.caps & GN_CAP_ATOMICS))
		return true;
	memcpy(end->buf + COUNTER_AT, &old, sizeof(old));
	gn_wr_faa(&wr, 0, NULL, remote, COUNTER_AT, 1, 0);
	if (!do_one(end, &wr, COUNTER_AT, sizeof(old)))
		return false;
	memcpy(&old, end->buf + COUNTER_AT, sizeof(old));
	if (old != 0)
		return wrong(end, "an FAA of 0 found %llu", (unsigned long long)old);
	*end->did |= POINT_ADDED;
	return true;
}

static bool send_datagrams(struct end *end, const struct gn_ud_addr *to)
{
	struct gn_sge sge = {end->buf + UD_AT, MSG_BYTES, gn_mr_lkey(end->mr)};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct gn_wr wr;
	struct gn_wc wc;
	int n;

	if (!end->ud)
		return true;
	if (!went_well(end, "gn_ah_create", gn_ah_create(end->ud, to, &end->ah)))
		return false;
	for (unsigned i = 0; i < DATAGRAMS; i++) {
		gn_charge(GN_WORK_NS, STEP_NS);
		fill(sge.addr, MSG_BYTES, (uint8_t)i);
		gn_wr_ud(&wr, i, &sge, end->ah, to->qpn, to->qkey, GN_SIGNALED);
		if (!went_well(end, "gn_post_send", gn_post_send(end->ud, &wr, NULL)))
			return false;
		n = gn_cq_wait(end->ud_cq, &wc, 1, gn_deadline_us(WAIT_US), "a datagram to leave");
		if (n != 1 || wc.id != i || (unsigned)wc.status >= GN_WC_STATUSES)
			return wrong(end, "datagram %u does not complete: %d", i, n);
		if (wc.status == GN_WC_OK)
			continue;
		if (gn_qp_query(end->ud, &attr) || attr.state != GN_QP_ERROR)
			return wrong(end, "%s, but the qp is not in error",
				     gn_wc_status_str(wc.status));
		return false;
	}
	*end->did |= POINT_DATAGRAMS;
	return true;
}

static void talk(struct end *end)
{
	struct greeting greeting;

	if (!post_receive(end) || !meet(end, &greeting))
		return;
	if (write_and_read(end, &greeting.remote) && add(end, &greeting.remote) &&
	    send_datagrams(end, &greeting.ud) && send_message(end, 'c') && hear_message(end, 's')) {
		if (went_well(end, "gn_disconnect", gn_disconnect(end->qp)))
			await_leaving(end);
	}
}

int point_client(struct gn_env *env, int argc, char **argv)
{
	struct end end = {.point = env->arg, .who = "client"};

	(void)argc;
	(void)argv;
	end.did = &end.point->client;
	gn_charge(GN_WORK_NS, STEP_NS); /* the server listens first */
	if (end_open(&end, env))
		talk(&end);
	flush(&end);
	end_close(&end);
	return 0;
}
