/* SPDX-License-Identifier: MIT */
/*
 * A server that speaks the RPC protocol without the library's server: it accepts connections and
 * writes the results that a test tells it to. It has no thread, so a test can run it and a client
 * in turns on one thread.
 */
#ifndef GN_TESTS_HOSTILE_RPC_RAW_SERVER_H
#define GN_TESTS_HOSTILE_RPC_RAW_SERVER_H

#include <string.h>

#include "rpc/wire.h"
#include "rpc_world.h"

#define RAW_SERVER_SENDS 64u
#define RAW_SERVER_RECVS 8u
#define RAW_LARGE_BYTES	 (1u << 20)

enum raw_mem { RAW_REQUESTS, RAW_RESULTS, RAW_FAR, RAW_MEMS };

struct raw_server {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_listener *listener;
};

struct raw_conn {
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *mem[RAW_MEMS];
	struct gn_mr *mr[RAW_MEMS];
	struct rpc_hello hello;
	struct rpc_welcome welcome;
	uint32_t published, seen; /* the last result published, the last request seen */
	bool up;
};

static inline int raw_server_begin(struct raw_server *s, const char *addr)
{
	EXPECT(gn_ctx_create(s->fabric, &s->ctx) == 0);
	EXPECT(gn_chan_create(s->ctx, &s->chan) == 0);
	EXPECT(gn_cq_create(s->ctx,
			    &(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts),
						 .depth = 1024,
						 .chan = s->chan},
			    &s->cq) == 0);
	EXPECT(gn_listener_create(s->ctx, addr, s->chan, 0, &s->listener) == 0);
	return 0;
}

static inline int raw_server_end(struct raw_server *s)
{
	EXPECT(gn_listener_destroy(s->listener) == 0);
	EXPECT(gn_cq_destroy(s->cq) == 0);
	EXPECT(gn_chan_destroy(s->chan) == 0);
	EXPECT(gn_ctx_destroy(s->ctx) == 0);
	return 0;
}

static inline void raw_conn_end(struct raw_conn *c)
{
	if (c->qp && c->up)
		gn_disconnect(c->qp);
	gn_qp_destroy(c->qp);
	for (unsigned i = 0; i < RAW_MEMS; i++) {
		gn_mr_deregister(c->mr[i]);
		gn_mem_free(c->mem[i]);
	}
	gn_pd_destroy(c->pd);
	*c = (struct raw_conn){0};
}

/* Creates memory and a qp, and in c->welcome the response of an honest server. */
static inline int raw_conn_make(struct raw_server *s, struct raw_conn *c,
				const struct gn_event *event)
{
	const unsigned rights[RAW_MEMS] = {GN_REMOTE_WRITE, GN_REMOTE_READ, GN_REMOTE_READ};
	const struct gn_qp_opts qp = {.size = sizeof(qp),
				      .type = GN_QP_RC,
				      .send_cq = s->cq,
				      .recv_cq = s->cq,
				      .chan = s->chan,
				      .max_send_wr = RAW_SERVER_SENDS,
				      .max_recv_wr = RAW_SERVER_RECVS,
				      .user = c};
	uint64_t bytes[RAW_MEMS] = {[RAW_FAR] = RAW_LARGE_BYTES};
	struct gn_remote remote[2];

	memcpy(&c->hello, event->private_data, sizeof(c->hello));
	c->welcome = (struct rpc_welcome){.magic = RPC_MAGIC,
					  .version = RPC_VERSION,
					  .bytes = sizeof(c->welcome),
					  .slots = c->hello.slots,
					  .max_request = c->hello.max_request,
					  .max_result = c->hello.max_result,
					  .epoch = 1,
					  .window = c->hello.window,
					  .max_large = GN_RPC_LARGE_MAX,
					  .park_us = 1000};
	bytes[RAW_REQUESTS] = rpc_abandoned_at(rpc_stride(c->welcome.max_request), c->welcome.slots,
					       c->welcome.window);
	bytes[RAW_RESULTS] = rpc_stride(c->welcome.max_result) * c->welcome.slots;
	EXPECT(gn_pd_create(s->ctx, &c->pd) == 0);
	for (unsigned i = 0; i < RAW_MEMS; i++) {
		EXPECT(gn_mem_alloc(s->fabric, bytes[i], rights[i], &c->mem[i]) == 0);
		EXPECT(gn_mr_register(c->pd, c->mem[i], 0, bytes[i], GN_LOCAL_WRITE | rights[i],
				      &c->mr[i]) == 0);
	}
	EXPECT(gn_qp_create(c->pd, &qp, &c->qp) == 0);
	for (unsigned i = 0; i < RAW_SERVER_RECVS; i++)
		EXPECT(gn_post_recv(c->qp, &(struct gn_recv_wr){.id = 1}, NULL) == 0);
	gn_mr_remote(c->mr[RAW_REQUESTS], &remote[0]);
	gn_mr_remote(c->mr[RAW_RESULTS], &remote[1]);
	c->welcome.request_key = remote[0].key;
	c->welcome.result_key = remote[1].key;
	return 0;
}

/* The request message of this number, or NULL. */
static inline const uint8_t *raw_find_request(const struct raw_conn *c, uint32_t number,
					      struct rpc_head *head)
{
	const uint64_t stride = rpc_stride(c->welcome.max_request);
	const uint8_t *slot = (uint8_t *)gn_mem_addr(c->mem[RAW_REQUESTS]) +
			      (number & (c->welcome.slots - 1)) * stride;
	const uint64_t seq = rpc_seq(c->welcome.epoch, number);

	return rpc_message_find(slot, stride, seq, c->hello.nonce,
				rpc_max_request(c->welcome.max_request), false, head) == RPC_FOUND ?
		       slot :
		       NULL;
}

/* Offset of the slot of the next result message. */
static inline uint64_t raw_result_at(const struct raw_conn *c)
{
	return ((c->published + 1) & (c->welcome.slots - 1)) * rpc_stride(c->welcome.max_result);
}

static inline uint8_t *raw_result(const struct raw_conn *c)
{
	return (uint8_t *)gn_mem_addr(c->mem[RAW_RESULTS]) + raw_result_at(c);
}

#endif
