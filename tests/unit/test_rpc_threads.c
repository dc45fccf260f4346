/* SPDX-License-Identifier: MIT */
/*
 * Several server threads: a client connects while a handler takes long, and handlers of two threads
 * answer each other's requests, more than any queue can hold.
 */
#include "rpc_world.h"
#include "unit_shm.h"

#define CALLS 1500u /* of a client, answered at once by the other client's thread */

enum { HOLD = 1, LEAVE, ANSWER_ALL };

static bool held, release;

static void hold(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	__atomic_store_n(&held, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&release, __ATOMIC_ACQUIRE))
		gn_sleep_us(100);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

/* Requests of each thread, to be answered by the other. */
static struct {
	struct gn_rpc_request *left[CALLS];
	unsigned n;
	bool here;
} side[2];

static void leave(struct gn_rpc_request *request, void *arg)
{
	const unsigned i = gn_rpc_request_thread(request);

	(void)arg;
	side[i].left[side[i].n++] = request;
}

/* Both threads arrive before the first starts: neither takes what the other posts. */
static void answer_all(struct gn_rpc_request *request, void *arg)
{
	const unsigned i = gn_rpc_request_thread(request), other = 1 - i;

	(void)arg;
	__atomic_store_n(&side[i].here, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&side[other].here, __ATOMIC_ACQUIRE))
		gn_yield();
	for (unsigned k = 0; k < CALLS; k++)
		gn_rpc_answer(side[other].left[k], GN_RPC_OK, &k, sizeof(k));
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static struct gn_rpc_server *serve(struct gn_fabric *fabric, const char *addr, unsigned threads,
				   uint32_t max_clients)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts),
						.threads = threads,
						.max_window = 4096,
						.max_clients = max_clients};
	struct gn_rpc_server *server;

	assert_int_equal(gn_rpc_server_create(fabric, addr, &opts, &server), 0);
	assert_int_equal(gn_rpc_server_handle(server, HOLD, hold, NULL), 0);
	assert_int_equal(gn_rpc_server_handle(server, LEAVE, leave, NULL), 0);
	assert_int_equal(gn_rpc_server_handle(server, ANSWER_ALL, answer_all, NULL), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	return server;
}

static void test_connect_beside_handler(void **state)
{
	struct gn_rpc_op op = {.method = HOLD};
	struct gn_rpc_client *first, *second[3];
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	unsigned status;
	char addr[UNIT_ADDR];

	(void)state;
	fabric = unit_shm(addr);
	server = serve(fabric, addr, 1, 0);
	assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &first), 0);
	assert_int_equal(gn_rpc_submit(first, &op), 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		gn_rpc_poll(first);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &second[i]), 0);
	__atomic_store_n(&release, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(gn_rpc_call(second[i], GN_RPC_PING, NULL, 0, NULL, 0, NULL,
					     gn_deadline_us(UNIT_PATIENCE_US), &status),
				 0);
		assert_int_equal(status, GN_RPC_OK);
		assert_int_equal(gn_rpc_client_close(second[i]), 0);
	}
	while (op.client)
		assert_true(gn_rpc_wait(first, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	assert_int_equal(op.status, GN_RPC_OK);
	assert_int_equal(gn_rpc_client_close(first), 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* More than may be half open: they are valid, only their thread is busy. */
#define NEWCOMERS 40u

static int newcomers(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = {.size = sizeof(opts), .slots = 1};
	struct gn_rpc_client *first, *client[NEWCOMERS];
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_op op = {.method = HOLD};
	struct gn_rpc_server *server;
	unsigned status;
	char addr[96] = "sim:n1:7001";

	held = release = false;
	if (!w->simulated)
		snprintf(addr, sizeof(addr), "%s-more", w->addr);
	server = serve(fabric, addr, 1, NEWCOMERS + 1);
	EXPECT(gn_rpc_client_open(fabric, addr, NULL, &first) == 0);
	EXPECT(gn_rpc_submit(first, &op) == 0 && gn_rpc_flush(first) == 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE)) {
		EXPECT(gn_now_ns() < until_ns);
		gn_sleep_us(10);
	}
	for (unsigned i = 0; i < NEWCOMERS; i++)
		EXPECT(gn_rpc_client_open(fabric, addr, &opts, &client[i]) == 0);
	__atomic_store_n(&release, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < NEWCOMERS; i++) {
		EXPECT(gn_rpc_call(client[i], GN_RPC_PING, NULL, 0, NULL, 0, NULL, until_ns,
				   &status) == 0);
		EXPECT(status == GN_RPC_OK);
		EXPECT(gn_rpc_client_close(client[i]) == 0);
	}
	while (op.client)
		EXPECT(gn_rpc_wait(first, until_ns) >= 0);
	EXPECT(op.status == GN_RPC_OK && gn_rpc_client_close(first) == 0);
	gn_rpc_server_destroy(server);
	return 0;
}

static void test_answer_each_other(void **state)
{
	static struct gn_rpc_op ops[2][CALLS + 1];
	static unsigned results[2][CALLS];
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_client *client[2];
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	char addr[UNIT_ADDR];

	(void)state;
	fabric = unit_shm(addr);
	server = serve(fabric, addr, 2, 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct gn_rpc_client_opts opts = {
			.size = sizeof(opts), .thread = i + 1, .batch.entries = 128};

		assert_int_equal(gn_rpc_client_open(fabric, addr, &opts, &client[i]), 0);
		for (unsigned k = 0; k <= CALLS; k++) {
			ops[i][k] = (struct gn_rpc_op){.method = k < CALLS ? LEAVE : ANSWER_ALL,
						       .result = &results[i][k % CALLS],
						       .result_room = k < CALLS ? 4 : 0};
			assert_int_equal(gn_rpc_submit(client[i], &ops[i][k]), 0);
		}
		assert_int_equal(gn_rpc_flush(client[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k <= CALLS; k++) {
			while (ops[i][k].client && gn_now_ns() < deadline_ns) {
				gn_rpc_poll(client[0]);
				gn_rpc_poll(client[1]);
			}
			assert_null(ops[i][k].client);
			assert_int_equal(ops[i][k].status, GN_RPC_OK);
			assert_true(k == CALLS || results[i][k] == k);
		}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gn_rpc_client_close(client[i]), 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect_beside_handler),
		RPC_TEST(test_newcomers, newcomers, NULL, 1),
		cmocka_unit_test(test_answer_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
