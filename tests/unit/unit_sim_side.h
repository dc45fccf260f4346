/* SPDX-License-Identifier: MIT */
/*
 * Programs of two connected nodes: one side of a connection, with a buffer that its peer may do
 * anything with, and how the two find each other. Programs return the line that failed.
 */
#ifndef GN_TESTS_UNIT_SIM_SIDE_H
#define GN_TESTS_UNIT_SIM_SIDE_H

#include <errno.h>
#include <string.h>

#include "gannet/fabric.h"
#include "unit_world.h"

#define BUF 4096u

static bool quiet; /* programs are expected to fail */

#undef EXPECT
#define EXPECT(cond)                                                                           \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			if (!quiet)                                                            \
				print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			return __LINE__;                                                       \
		}                                                                              \
	} while (0)

/* Everything one side needs: a connection, and a buffer that its peer may do anything with. */
struct side {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *buf;
	struct gn_remote peer;
};

static inline int side_open_type(struct side *s, const char *name, enum gn_qp_type type)
{
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC;
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 64};
	struct gn_qp_opts qp = {.size = sizeof(qp), .type = type, .max_inline = 64};

	memset(s, 0, sizeof(*s));
	EXPECT(gn_fabric_open(name, &s->fabric) == 0);
	EXPECT(gn_ctx_create(s->fabric, &s->ctx) == 0);
	EXPECT(gn_pd_create(s->ctx, &s->pd) == 0);
	EXPECT(gn_chan_create(s->ctx, &s->chan) == 0);
	EXPECT(gn_chan_fd(s->chan) == -EOPNOTSUPP);
	EXPECT(gn_cq_create(s->ctx, &cq, &s->cq) == 0);
	qp.send_cq = qp.recv_cq = s->cq;
	qp.chan = type == GN_QP_RC ? s->chan : NULL;
	EXPECT(gn_qp_create(s->pd, &qp, &s->qp) == 0);
	EXPECT(gn_mem_alloc(s->fabric, BUF, rights, &s->mem) == 0);
	EXPECT(gn_mr_register(s->pd, s->mem, 0, BUF, GN_LOCAL_WRITE | rights, &s->mr) == 0);
	s->buf = gn_mem_addr(s->mem);
	return 0;
}

static inline int side_open(struct side *s, const char *name)
{
	return side_open_type(s, name, GN_QP_RC);
}

static inline int side_close(struct side *s)
{
	EXPECT(gn_qp_destroy(s->qp) == 0);
	EXPECT(gn_cq_destroy(s->cq) == 0);
	EXPECT(gn_chan_destroy(s->chan) == 0);
	EXPECT(gn_mr_deregister(s->mr) == 0);
	EXPECT(gn_mem_free(s->mem) == 0);
	EXPECT(gn_pd_destroy(s->pd) == 0);
	EXPECT(gn_ctx_destroy(s->ctx) == 0);
	EXPECT(gn_fabric_close(s->fabric) == 0);
	return 0;
}

static inline int side_recv(struct side *s, uint64_t id, uint32_t at, uint32_t len)
{
	struct gn_sge sge = {s->buf + at, len, gn_mr_lkey(s->mr)};
	struct gn_recv_wr wr = {.id = id, .sge = &sge, .n_sge = 1};

	return gn_post_recv(s->qp, &wr, NULL);
}

static inline int side_expect(struct side *s, uint64_t id, enum gn_wc_status status,
			      struct gn_wc *wc)
{
	EXPECT(gn_cq_wait(s->cq, wc, 1, gn_deadline_us(1000000), "a completion") == 1);
	EXPECT(wc->id == id);
	EXPECT(wc->status == status);
	return 0;
}

static inline int server_connect(struct side *s, const char *addr)
{
	struct gn_listener *listener;
	struct gn_conn_opts opts = {.size = sizeof(opts), .rnr_retry = 6};
	struct gn_remote remote;
	struct gn_event ev;

	EXPECT(gn_listener_create(s->ctx, addr, s->chan, 0, &listener) == 0);
	EXPECT(gn_chan_wait(s->chan, GN_FOREVER, &ev) == 0);
	EXPECT(ev.type == GN_EVENT_CONNECT_REQUEST && ev.listener == listener);
	EXPECT(ev.private_len >= sizeof(s->peer));
	memcpy(&s->peer, ev.private_data, sizeof(s->peer));
	EXPECT(gn_mr_remote(s->mr, &remote) == 0);
	opts.private_data = &remote;
	opts.private_len = sizeof(remote);
	EXPECT(gn_accept(ev.req, s->qp, &opts) == 0);
	EXPECT(gn_chan_wait(s->chan, GN_FOREVER, &ev) == 0);
	EXPECT(ev.type == GN_EVENT_ESTABLISHED);
	EXPECT(gn_listener_destroy(listener) == 0);
	return 0;
}

static inline int client_connect(struct side *s, const char *addr)
{
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .rnr_retry = 6, .private_len = sizeof(struct gn_remote)};
	struct gn_remote remote;
	struct gn_event ev;

	EXPECT(gn_mr_remote(s->mr, &remote) == 0);
	opts.private_data = &remote;
	EXPECT(gn_connect_wait(s->qp, addr, &opts, &ev) == 0);
	memcpy(&s->peer, ev.private_data, sizeof(s->peer));
	return 0;
}

#define OR_RETURN(call)                 \
	do {                            \
		const int rc_ = (call); \
		if (rc_)                \
			return rc_;     \
	} while (0)

/* Opens a side and connects it, after its server has begun to listen. */
static inline int client_open(struct side *s, const char *name, const char *addr)
{
	OR_RETURN(side_open(s, name));
	gn_sleep_us(10);
	return client_connect(s, addr);
}

#endif
