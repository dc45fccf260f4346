/* SPDX-License-Identifier: MIT */
/*
 * Message numbers have 32 bits: a client that sends ten million messages per second wraps around
 * every seven minutes. Client and server take turns on one thread, and are set just before the wrap
 * by adding the same to all their numbers.
 */
#include "rpc/client.h"
#include "rpc/server.h"
#include "rpc_world.h"
#include "unit_shm.h"

#define SHIFT  (0u - 64u) /* a multiple of the slots */
#define ROUNDS 160u
#define CALLS  4u /* of a round */

enum { ONE = 1, MANY = 2, LARGE = 3 };

struct pair {
	struct gn_fabric *fabric;
	struct gn_rpc_server *server;
	struct gn_rpc_client *client;
};

static void echo_one(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static void echo_many(struct gn_rpc_group *group, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < gn_rpc_group_size(group); i++) {
		uint32_t len;
		const void *data = gn_rpc_group_data(group, i, &len);

		gn_rpc_group_answer(group, i, GN_RPC_OK, data, len);
	}
}

static void take_turns(const struct pair *p)
{
	assert_true(gn_rpc_server_poll(p->server) >= 0);
	assert_true(gn_rpc_poll(p->client) >= 0);
}

/* Some calls of one method, together; all have a distant deadline. */
static void round_of(const struct pair *p, unsigned method, unsigned round)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	const uint32_t len = method == LARGE ? 10000 : 8;
	uint8_t request[10000], result[CALLS][10000];
	struct gn_rpc_op op[CALLS];

	memset(request, (int)round, len);
	for (unsigned i = 0; i < CALLS; i++) {
		op[i] = (struct gn_rpc_op){.method = method == LARGE ? ONE : method,
					   .request = request,
					   .request_len = len,
					   .result = result[i],
					   .result_room = len,
					   .deadline_ns = deadline_ns};
		assert_int_equal(gn_rpc_submit(p->client, &op[i]), 0);
	}
	assert_int_equal(gn_rpc_flush(p->client), 0);
	for (unsigned i = 0; i < CALLS; i++) {
		while (op[i].client) {
			assert_true(gn_now_ns() < deadline_ns);
			take_turns(p);
		}
		if (op[i].status)
			print_message("# round %u, call %u: %s\n", round, i,
				      gn_rpc_status_str(op[i].status));
		assert_int_equal(op[i].status, GN_RPC_OK);
		assert_memory_equal(request, result[i], len);
	}
}

static void shift(const struct pair *p)
{
	struct rpc_conn *s = p->server->threads[0].conns;
	struct gn_rpc_client *c = p->client;

	assert_non_null(s);
	s->taken += SHIFT;
	s->taken_published += SHIFT;
	s->published += SHIFT;
	s->acked += SHIFT;
	rpc_conn_next(s, s->number + SHIFT);
	*(uint64_t *)(uintptr_t)rpc_conn_ack_at(s) = rpc_seq(s->epoch, s->acked);
	c->number += SHIFT;
	c->taken += SHIFT;
	c->expected += SHIFT;
	c->consumed += SHIFT;
	c->acked += SHIFT;
}

static void wrap(enum gn_rpc_mode mode, uint32_t batch, unsigned method)
{
	const struct gn_rpc_server_opts opts = {
		.size = sizeof(opts), .flags = GN_RPC_POLLED, .park_us = 10 * UNIT_PATIENCE_US};
	struct gn_rpc_client_opts own = in_mode(mode);
	char addr[UNIT_ADDR];
	struct pair p;
	uint32_t first;
	int rc;

	own.batch.entries = batch;
	p.fabric = unit_shm(addr);
	assert_int_equal(gn_rpc_server_create(p.fabric, addr, &opts, &p.server), 0);
	assert_int_equal(gn_rpc_server_handle(p.server, ONE, echo_one, NULL), 0);
	assert_int_equal(gn_rpc_server_handle_group(p.server, MANY, echo_many, NULL, 0), 0);
	assert_int_equal(gn_rpc_server_start(p.server), 0);
	assert_int_equal(gn_rpc_client_open_begin(p.fabric, addr, &own, &p.client), 0);
	do {
		assert_true(gn_rpc_server_poll(p.server) >= 0);
		rc = gn_rpc_client_open_wait(p.client, GN_NO_WAIT);
	} while (rc == -EAGAIN);
	assert_int_equal(rc, 0);
	round_of(&p, method, 0);
	take_turns(&p);
	shift(&p);
	first = p.client->number;
	for (unsigned i = 1; i <= ROUNDS; i++)
		round_of(&p, method, i);
	assert_true(first > UINT32_MAX / 2 && p.client->number < UINT32_MAX / 2);
	assert_true(p.client->expected < UINT32_MAX / 2);
	assert_int_equal(gn_rpc_client_close(p.client), 0);
	gn_rpc_server_destroy(p.server);
	assert_int_equal(gn_fabric_close(p.fabric), 0);
}

static void test_wrap(void **state)
{
	(void)state;
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		for (unsigned method = ONE; method <= LARGE; method++)
			for (uint32_t batch = 1; batch <= CALLS; batch += CALLS - 1)
				wrap(mode, batch, method);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
