/* SPDX-License-Identifier: MIT */
/*
 * A connected pair of RC qps, one on each side, and requests on their buffers.
 */
#include <errno.h>
#include <string.h>

#include "harness.h"

#define BUF_BYTES 65536u
#define MARK	  UINT64_C(0x6d61726b) /* id of what cf_publish() and cf_observe() post */

unsigned cf_all_rights(const struct cf *cf)
{
	unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;

	return cf->attr.caps & GN_CAP_ATOMICS ? rights | GN_REMOTE_ATOMIC : rights;
}

/* ---- making one ---- */

/* A side that the machine is too busy for may be late with its receives. */
static const struct gn_conn_opts default_conn = {
	.size = sizeof(default_conn), .rnr_retry = GN_RNR_RETRY_DEFAULT, .rnr_timer_us = 40000};

static bool make_buffer(struct cf *cf, const struct cf_rc_opts *opts, struct cf_rc *rc)
{
	const unsigned remote = GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC;
	unsigned access = opts->access ? opts->access : GN_LOCAL_WRITE | cf_all_rights(cf);

	if (opts->buf_of) {
		rc->mem = opts->buf_of->mem;
		rc->mr = opts->buf_of->mr;
	} else {
		rc->own_buf = true;
		rc->mem = cf_make_mem(cf, opts->buf_bytes ? opts->buf_bytes : BUF_BYTES,
				      access & remote);
		rc->mr = rc->mem ? cf_make_mr(cf, rc->pd, rc->mem, access) : NULL;
		if (!rc->mr)
			return false;
	}
	rc->buf = gn_mr_addr(rc->mr);
	rc->buf_bytes = gn_mr_length(rc->mr);
	rc->lkey = gn_mr_lkey(rc->mr);
	return true;
}

static struct gn_cq *make_cq(struct cf *cf, const struct cf_rc_opts *opts, struct gn_chan *chan)
{
	const uint32_t default_wr = 128;
	uint32_t send_wr = opts->send_wr ? opts->send_wr : default_wr;
	uint32_t recv_wr = opts->recv_wr ? opts->recv_wr : default_wr;
	struct gn_cq_opts cq_opts = {
		.size = sizeof(cq_opts),
		.depth = opts->cq_depth ? opts->cq_depth : send_wr + recv_wr,
		.chan = opts->events ? chan : NULL,
		.flags = opts->flags,
	};
	struct gn_cq *cq;
	int err = gn_cq_create(cf->ctx, &cq_opts, &cq);

	if (err) {
		cf_why(cf, "cannot create a cq: %s", gn_strerror(err));
		return NULL;
	}
	cf_own(cf, CF_CQ, cq);
	return cq;
}

static bool make_endpoint(struct cf *cf, const struct cf_rc_opts *opts, struct cf_rc *rc)
{
	struct gn_qp_opts qp_opts = {
		.size = sizeof(qp_opts),
		.type = GN_QP_RC,
		.max_send_wr = opts->send_wr,
		.max_recv_wr = opts->recv_wr,
		.max_send_sge = opts->send_sge,
		.max_recv_sge = opts->recv_sge,
		.max_inline = opts->inline_bytes,
		.flags = opts->flags,
	};

	rc->pd = opts->pd ? opts->pd : cf->pd;
	if (!make_buffer(cf, opts, rc))
		return false;
	rc->own_chan = !opts->chan;
	rc->chan = opts->chan ? opts->chan : cf_make_chan(cf);
	if (!rc->chan)
		return false;
	rc->own_cqs = !opts->send_cq;
	rc->send_cq = opts->send_cq ? opts->send_cq : make_cq(cf, opts, rc->chan);
	rc->recv_cq = opts->recv_cq ? opts->recv_cq : make_cq(cf, opts, rc->chan);
	if (!rc->send_cq || !rc->recv_cq)
		return false;
	qp_opts.send_cq = rc->send_cq;
	qp_opts.recv_cq = rc->recv_cq;
	qp_opts.chan = rc->chan;
	rc->qp = cf_make_qp(cf, rc->pd, &qp_opts);
	return rc->qp;
}

static bool listen_once(struct cf *cf)
{
	char addr[CF_ADDR_MAX];

	if (cf->listener)
		return true;
	cf->listen_chan = cf_make_chan(cf);
	if (!cf->listen_chan)
		return false;
	cf->listener = cf_make_listener(cf, cf_addr(cf, CF_A, 0, addr), cf->listen_chan);
	return cf->listener;
}

static bool accept_it(struct cf *cf, const struct gn_conn_opts *conn, struct cf_rc *rc)
{
	struct gn_event event;
	int err;

	if (!cf_expect_event(cf, cf->listen_chan, GN_EVENT_CONNECT_REQUEST, &event))
		return false;
	err = gn_accept(event.req, rc->qp, conn);
	if (err)
		return cf_why(cf, "gn_accept: %s", gn_strerror(err));
	return cf_expect_event(cf, rc->chan, GN_EVENT_ESTABLISHED, NULL);
}

static bool connect_it(struct cf *cf, const struct gn_conn_opts *conn, struct cf_rc *rc)
{
	char addr[CF_ADDR_MAX];
	int err = gn_connect_wait(rc->qp, cf_addr(cf, CF_A, 0, addr), conn, NULL);

	return !err || cf_why(cf, "gn_connect_wait: %s", gn_strerror(err));
}

bool cf_rc_pair(struct cf *cf, const struct cf_rc_opts *opts, struct cf_rc *out)
{
	static const struct cf_rc_opts defaults;
	const struct gn_conn_opts *conn;
	struct gn_remote mine;

	opts = opts ? opts : &defaults;
	conn = opts->conn ? opts->conn : &default_conn;
	memset(out, 0, sizeof(*out));
	memset(&mine, 0, sizeof(mine));
	if (!make_endpoint(cf, opts, out) || (cf->role == CF_A && !listen_once(cf)))
		return false;
	if (opts->early && !opts->early(cf, out))
		return false;
	if (!cf_sync(cf))
		return false;
	if (!(cf->role == CF_A ? accept_it(cf, conn, out) : connect_it(cf, conn, out)))
		return false;
	gn_mr_remote(out->mr, &mine); /* stays zero for a buffer without remote rights */
	return cf_swap(cf, &mine, &out->peer, sizeof(mine));
}

bool cf_rc_close(struct cf *cf, struct cf_rc *rc)
{
	bool ok = cf_destroy(cf, rc->qp);

	if (ok && rc->own_cqs)
		ok = cf_destroy(cf, rc->send_cq) && cf_destroy(cf, rc->recv_cq);
	if (ok && rc->own_chan)
		ok = cf_destroy(cf, rc->chan);
	if (ok && rc->own_buf)
		ok = cf_destroy(cf, rc->mr) && cf_destroy(cf, rc->mem);
	return ok;
}

/* ---- requests ---- */

struct gn_sge cf_sge(const struct cf_rc *rc, size_t offset, uint32_t len_bytes)
{
	return (struct gn_sge){rc->buf + offset, len_bytes, rc->lkey};
}

bool cf_post(struct cf *cf, struct gn_qp *qp, const struct gn_wr *wr)
{
	const struct gn_wr *bad = NULL;
	int err = gn_post_send(qp, wr, &bad);

	return !err || cf_why(cf, "gn_post_send: %s at request %llu", gn_strerror(err),
			      (unsigned long long)(bad ? bad->id : 0));
}

/* No bytes are no SGE: to some devices an SGE of length 0 is 2 GiB long. */
static uint32_t n_sge(uint32_t len_bytes)
{
	return len_bytes ? 1 : 0;
}

bool cf_recv(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t offset, uint32_t len_bytes)
{
	struct gn_sge sge = cf_sge(rc, offset, len_bytes);
	struct gn_recv_wr wr = {.id = id, .sge = &sge, .n_sge = n_sge(len_bytes)};
	int err = gn_post_recv(rc->qp, &wr, NULL);

	return !err || cf_why(cf, "gn_post_recv: %s", gn_strerror(err));
}

bool cf_send(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t offset, uint32_t len_bytes,
	     uint32_t flags)
{
	struct gn_sge sge = cf_sge(rc, offset, len_bytes);
	struct gn_wr wr;

	gn_wr_init(&wr, GN_OP_SEND, id, &sge, n_sge(len_bytes), flags);
	return cf_post(cf, rc->qp, &wr);
}

static bool post_rdma(struct cf *cf, struct cf_rc *rc, enum gn_op op, uint64_t id, size_t local,
		      size_t remote, uint32_t len_bytes, uint32_t flags)
{
	struct gn_sge sge = cf_sge(rc, local, len_bytes);
	struct gn_wr wr;

	gn_wr_rdma(&wr, op, id, &sge, &rc->peer, remote, flags);
	wr.n_sge = n_sge(len_bytes);
	return cf_post(cf, rc->qp, &wr);
}

bool cf_write(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t from, size_t to,
	      uint32_t len_bytes, uint32_t flags)
{
	return post_rdma(cf, rc, GN_OP_WRITE, id, from, to, len_bytes, flags);
}

bool cf_read(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t into, size_t from,
	     uint32_t len_bytes, uint32_t flags)
{
	return post_rdma(cf, rc, GN_OP_READ, id, into, from, len_bytes, flags);
}

bool cf_publish(struct cf *cf, struct cf_rc *rc)
{
	return cf_sync(cf) && cf_send(cf, rc, MARK, 0, 0, GN_SIGNALED) &&
	       cf_expect_wc(cf, rc->send_cq, MARK, GN_WC_OK);
}

bool cf_observe(struct cf *cf, struct cf_rc *rc)
{
	return cf_recv(cf, rc, MARK, 0, 0) && cf_sync(cf) &&
	       cf_expect_wc(cf, rc->recv_cq, MARK, GN_WC_OK);
}

bool cf_idle_peer(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_observe(cf, &rc));
	return true;
}
