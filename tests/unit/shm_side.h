/* SPDX-License-Identifier: MIT */
/* One end of a connection over shared memory with everything it needs, for tests that look inside. */
#ifndef GN_TESTS_SHM_SIDE_H
#define GN_TESTS_SHM_SIDE_H

#include "unit.h"

#include "gannet/fabric.h"

#define SIDE_BYTES  (1u << 20)
#define SIDE_RIGHTS (GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)

struct side {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *buf;
};

static inline void side_make(struct side *s)
{
	struct gn_cq_opts cq = {.depth = 1024};

	assert_int_equal(gn_fabric_open("shm", &s->fabric), 0);
	assert_int_equal(gn_ctx_create(s->fabric, &s->ctx), 0);
	assert_int_equal(gn_chan_create(s->ctx, &s->chan), 0);
	cq.chan = s->chan;
	assert_int_equal(gn_cq_create(s->ctx, &cq, &s->cq), 0);
	assert_int_equal(gn_pd_create(s->ctx, &s->pd), 0);
	assert_int_equal(gn_mem_alloc(s->fabric, SIDE_BYTES, SIDE_RIGHTS, &s->mem), 0);
	assert_int_equal(
		gn_mr_register(s->pd, s->mem, 0, SIDE_BYTES, SIDE_RIGHTS | GN_LOCAL_WRITE, &s->mr),
		0);
	s->buf = gn_mem_addr(s->mem);
}

static inline void side_free(struct side *s)
{
	assert_int_equal(gn_mr_deregister(s->mr), 0);
	assert_int_equal(gn_mem_free(s->mem), 0);
	assert_int_equal(gn_pd_destroy(s->pd), 0);
	assert_int_equal(gn_cq_destroy(s->cq), 0);
	assert_int_equal(gn_chan_destroy(s->chan), 0);
	assert_int_equal(gn_ctx_destroy(s->ctx), 0);
	assert_int_equal(gn_fabric_close(s->fabric), 0);
}

static inline struct gn_qp *side_qp(struct side *s, enum gn_qp_type type)
{
	struct gn_qp_opts opts = {
		.type = type, .send_cq = s->cq, .recv_cq = s->cq, .chan = s->chan, .qkey = 0x1234};
	struct gn_qp *qp;

	assert_int_equal(gn_qp_create(s->pd, &opts, &qp), 0);
	return qp;
}

static inline int side_recv(struct side *s, struct gn_qp *qp, uint64_t id, size_t at, uint32_t len)
{
	struct gn_sge sge = {s->buf + at, len, gn_mr_lkey(s->mr)};
	struct gn_recv_wr wr = {.id = id, .sge = &sge, .n_sge = 1};

	return gn_post_recv(qp, &wr, NULL);
}

static inline int side_send(struct side *s, struct gn_qp *qp, uint64_t id, size_t at, uint32_t len)
{
	struct gn_sge sge = {s->buf + at, len, gn_mr_lkey(s->mr)};
	struct gn_wr wr;

	gn_wr_send(&wr, id, &sge, GN_SIGNALED);
	return gn_post_send(qp, &wr, NULL);
}

/* Connect a new qp of each side through the server's listener. */
static inline void side_connect(struct side *client, struct side *server, const char *addr,
				struct gn_qp **c, struct gn_qp **s)
{
	struct gn_event ev;

	*c = side_qp(client, GN_QP_RC);
	*s = side_qp(server, GN_QP_RC);
	assert_int_equal(gn_connect(*c, addr, NULL), 0);
	do {
		assert_int_equal(gn_chan_wait(server->chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
		if (ev.type == GN_EVENT_CONNECT_REQUEST && ev.private_len)
			gn_reject(ev.req, NULL, 0); /* one of the hostile ones */
	} while (ev.type != GN_EVENT_CONNECT_REQUEST || ev.private_len);
	assert_int_equal(gn_accept(ev.req, *s, NULL), 0);
	do {
		assert_int_equal(gn_chan_wait(client->chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
	} while (ev.qp != *c);
	assert_int_equal(ev.type, GN_EVENT_ESTABLISHED);
}

#endif
