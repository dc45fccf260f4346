/* SPDX-License-Identifier: MIT */
/* One end of a connection over shared memory with everything it needs, for tests that look inside. */
#ifndef GN_TESTS_SHM_SIDE_H
#define GN_TESTS_SHM_SIDE_H

#include "unit.h"

#include "gannet/fabric.h"

#include <dirent.h>
#include <unistd.h>

#define SIDE_BYTES  (1u << 20)
#define SIDE_QKEY   0x1234u
#define SIDE_RIGHTS (GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)

/*
 * Set-up and tear-down of a case or of all: a directory of its own, which no other process sweeps
 * or uses. A failed case may leave files in it.
 */
static inline int side_folder_make(void **state)
{
	char dir[] = "/tmp/gannet-unit-XXXXXX";

	(void)state;
	return mkdtemp(dir) ? setenv("GANNET_SHM_DIR", dir, 1) : -1;
}

static inline int side_folder_remove(void **state)
{
	const char *dir = getenv("GANNET_SHM_DIR");
	DIR *entries = opendir(dir);
	struct dirent *entry;
	int rc;

	(void)state;
	if (!entries)
		return -1;
	while ((entry = readdir(entries)))
		unlinkat(dirfd(entries), entry->d_name, 0); /* the dots stay */
	closedir(entries);
	rc = rmdir(dir);
	unsetenv("GANNET_SHM_DIR");
	return rc;
}

struct side {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan, *cq_chan; /* usually the same one */
	struct gn_cq *cq;
	unsigned flags; /* of cq and qps */
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *buf;
};

/* cq_apart: the cq's events go to a channel of their own. */
static inline void side_make_as(struct side *s, unsigned flags, bool cq_apart)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 1024, .flags = flags};

	s->flags = flags;
	assert_int_equal(gn_fabric_open("shm", &s->fabric), 0);
	assert_int_equal(gn_ctx_create(s->fabric, &s->ctx), 0);
	assert_int_equal(gn_chan_create(s->ctx, &s->chan), 0);
	s->cq_chan = s->chan;
	if (cq_apart)
		assert_int_equal(gn_chan_create(s->ctx, &s->cq_chan), 0);
	cq.chan = s->cq_chan;
	assert_int_equal(gn_cq_create(s->ctx, &cq, &s->cq), 0);
	assert_int_equal(gn_pd_create(s->ctx, &s->pd), 0);
	assert_int_equal(gn_mem_alloc(s->fabric, SIDE_BYTES, SIDE_RIGHTS, &s->mem), 0);
	assert_int_equal(
		gn_mr_register(s->pd, s->mem, 0, SIDE_BYTES, SIDE_RIGHTS | GN_LOCAL_WRITE, &s->mr),
		0);
	s->buf = gn_mem_addr(s->mem);
}

static inline void side_make(struct side *s)
{
	side_make_as(s, 0, false);
}

static inline void side_free(struct side *s)
{
	assert_int_equal(gn_mr_deregister(s->mr), 0);
	assert_int_equal(gn_mem_free(s->mem), 0);
	assert_int_equal(gn_pd_destroy(s->pd), 0);
	assert_int_equal(gn_cq_destroy(s->cq), 0);
	if (s->cq_chan != s->chan)
		assert_int_equal(gn_chan_destroy(s->cq_chan), 0);
	assert_int_equal(gn_chan_destroy(s->chan), 0);
	assert_int_equal(gn_ctx_destroy(s->ctx), 0);
	assert_int_equal(gn_fabric_close(s->fabric), 0);
}

static inline struct gn_qp *side_qp(struct side *s, enum gn_qp_type type)
{
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = type,
				  .send_cq = s->cq,
				  .recv_cq = s->cq,
				  .chan = s->chan,
				  .flags = s->flags,
				  .qkey = SIDE_QKEY};
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

/* The next completion is this one. */
static inline void side_expect(struct gn_cq *cq, uint64_t id, enum gn_wc_status status)
{
	struct gn_wc wc;

	assert_int_equal(gn_cq_wait(cq, &wc, 1, gn_deadline_us(UNIT_PATIENCE_US), "a completion"),
			 1);
	assert_int_equal(wc.id, id);
	assert_int_equal(wc.status, status);
}

/* Take what has happened so far; it is of no interest. */
static inline void side_drain(struct gn_chan *chan)
{
	struct gn_event ev;

	while (gn_chan_next(chan, &ev) == 0)
		;
}

/* Connect a new qp of each side through the server's listener. opts are the client's. */
static inline void side_connect_as(struct side *client, struct side *server, const char *addr,
				   const struct gn_conn_opts *opts, struct gn_qp **c,
				   struct gn_qp **s)
{
	struct gn_event ev;

	*c = side_qp(client, GN_QP_RC);
	*s = side_qp(server, GN_QP_RC);
	assert_int_equal(gn_connect(*c, addr, opts), 0);
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

static inline void side_connect(struct side *client, struct side *server, const char *addr,
				struct gn_qp **c, struct gn_qp **s)
{
	side_connect_as(client, server, addr, NULL, c, s);
}

/* Two sides and a connection between them, quiet: everything that happened has been taken. */
struct pair {
	struct side client, server;
	struct gn_listener *listener;
	struct gn_qp *c, *s; /* may be destroyed, and then set to NULL, by the test */
};

static inline void pair_connect(struct pair *p, const char *addr, const struct gn_conn_opts *opts)
{
	assert_int_equal(gn_listener_create(p->server.ctx, addr, p->server.chan, 0, &p->listener),
			 0);
	side_connect_as(&p->client, &p->server, addr, opts, &p->c, &p->s);
	side_drain(p->client.chan);
	side_drain(p->server.chan);
}

static inline void pair_make(struct pair *p, const char *addr, const struct gn_conn_opts *opts)
{
	side_make(&p->client);
	side_make(&p->server);
	pair_connect(p, addr, opts);
}

static inline void pair_free(struct pair *p)
{
	assert_int_equal(gn_qp_destroy(p->c), 0);
	assert_int_equal(gn_qp_destroy(p->s), 0);
	assert_int_equal(gn_listener_destroy(p->listener), 0);
	side_free(&p->client);
	side_free(&p->server);
}

#endif
