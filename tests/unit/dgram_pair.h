/* SPDX-License-Identifier: MIT */
/* A caller and a server of datagram calls in one thread, over shared memory. */
#ifndef GN_TESTS_UNIT_DGRAM_PAIR_H
#define GN_TESTS_UNIT_DGRAM_PAIR_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dgram/endpoint.h"
#include "unit.h"

#define PAIR_LIMIT_US 5000000u

enum pair_method { PAIR_ECHO = 1, PAIR_HOLD, PAIR_POLLED };

struct pair {
	struct gn_dgram_opts opts; /* of the server */
	gn_dgram_handler *hold;	   /* PAIR_HOLD, in a worker; NULL: none */
	gn_dgram_handler *polled;  /* PAIR_POLLED, within the poll; NULL: none */
	struct gn_fabric *fabric;
	char addr[64];
	struct gn_dgram_node *node, *server_node; /* the caller's and the server's */
	struct gn_dgram_endpoint *ep, *server_ep;
	struct gn_dgram_peer *peer; /* the server, at the caller */
	unsigned executed;
	void *arg;
};

static unsigned pair_echo(void *arg, struct gn_dgram_request *request)
{
	struct pair *p = arg;
	void *to = gn_dgram_result(request, request->len);

	p->executed++;
	if (!to)
		return GN_RPC_BUSY;
	memcpy(to, request->data, request->len);
	request->result_len = request->len;
	return GN_RPC_OK;
}

static inline void pair_open(struct pair *p)
{
	p->opts.size = sizeof(p->opts);
	snprintf(p->addr, sizeof(p->addr), "shm:test-dgram-pair-%llx",
		 (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &p->fabric), 0);
	assert_int_equal(gn_dgram_node_create(p->fabric, p->addr, &p->opts, &p->server_node), 0);
	assert_int_equal(gn_dgram_handle(p->server_node, PAIR_ECHO, pair_echo, NULL, p, 0), 0);
	if (p->hold)
		assert_int_equal(gn_dgram_handle(p->server_node, PAIR_HOLD, p->hold, NULL, p,
						 GN_DGRAM_IN_WORKER),
				 0);
	if (p->polled)
		assert_int_equal(
			gn_dgram_handle(p->server_node, PAIR_POLLED, p->polled, NULL, p, 0), 0);
	assert_int_equal(gn_dgram_endpoint_create(p->server_node, 0, &p->server_ep), 0);
	assert_int_equal(gn_dgram_node_create(p->fabric, NULL, NULL, &p->node), 0);
	assert_int_equal(gn_dgram_endpoint_create(p->node, 0, &p->ep), 0);
	assert_int_equal(gn_dgram_peer_open(p->ep, p->addr, 0, &p->peer), 0);
}

static inline void pair_close(struct pair *p)
{
	assert_int_equal(gn_dgram_endpoint_destroy(p->ep), 0);
	assert_int_equal(gn_dgram_node_destroy(p->node), 0);
	assert_int_equal(gn_dgram_endpoint_destroy(p->server_ep), 0);
	assert_int_equal(gn_dgram_node_destroy(p->server_node), 0);
	assert_int_equal(gn_fabric_close(p->fabric), 0);
}

static inline void pair_poll(struct pair *p)
{
	if (p->ep)
		assert_true(gn_dgram_poll(p->ep) >= 0);
	if (p->server_ep)
		assert_true(gn_dgram_poll(p->server_ep) >= 0);
}

/* Polls both until the condition holds. */
#define pair_until(p, condition)                                               \
	do {                                                                   \
		const uint64_t until_limit_ns = gn_deadline_us(PAIR_LIMIT_US); \
		while (!(condition) && gn_now_ns() < until_limit_ns)           \
			pair_poll(p);                                          \
		assert_true(condition);                                        \
	} while (0)

static void pair_count(struct gn_dgram_op *op)
{
	++*(unsigned *)op->arg;
}

/* A call of len bytes to PAIR_ECHO; returns its status. */
static inline unsigned pair_call(struct pair *p, uint32_t len)
{
	static uint8_t request[GN_DGRAM_BYTES_MAX], result[GN_DGRAM_BYTES_MAX];
	unsigned n = 0;
	struct gn_dgram_op op = {.peer = p->peer,
				 .method = PAIR_ECHO,
				 .request = request,
				 .request_len = len,
				 .result = result,
				 .result_room = len,
				 .deadline_ns = gn_deadline_us(PAIR_LIMIT_US / 2),
				 .done = pair_count,
				 .arg = &n};

	assert_int_equal(gn_dgram_submit(&op), 0);
	pair_until(p, n);
	return op.status;
}

/* The server's peer object of the caller. */
static inline struct gn_dgram_peer *pair_caller(const struct pair *p)
{
	const struct gn_dgram_endpoint *ep = p->server_ep;

	for (uint32_t i = 0; i <= ep->hash_mask; i++)
		if (ep->hash[i])
			return ep->hash[i];
	return NULL;
}

#endif
