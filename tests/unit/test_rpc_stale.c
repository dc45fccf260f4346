/* SPDX-License-Identifier: MIT */
/* After a client has reconnected, no request of its earlier connection is started. */
#include "rpc_world.h"
#include "unit_shm.h"

#define RECORD	 41u
#define HOLD_US	 20000u
#define RECORDED 64u

/* What was executed, in order. */
static struct {
	struct gn_mutex lock;
	uint32_t what[RECORDED];
	unsigned n;
} record;

static void take_record(struct gn_rpc_request *request, void *arg)
{
	uint32_t len, what = 0;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	memcpy(&what, data, len < sizeof(what) ? len : sizeof(what));
	gn_mutex_lock(&record.lock);
	if (record.n < RECORDED)
		record.what[record.n++] = what;
	gn_mutex_unlock(&record.lock);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static int serve_records(struct gn_fabric *fabric, const char *addr, unsigned threads,
			 struct gn_rpc_server **out)
{
	const struct gn_rpc_server_opts opts = {
		.size = sizeof(opts), .threads = threads, .park_us = 1000000};

	EXPECT(gn_rpc_server_create(fabric, addr, &opts, out) == 0);
	EXPECT(gn_rpc_server_handle(*out, RECORD, take_record, NULL) == 0);
	EXPECT(gn_rpc_server_handle(*out, SLOW, slow, NULL) == 0);
	EXPECT(gn_rpc_server_start(*out) == 0);
	return 0;
}

static int connect_to(struct gn_fabric *fabric, const char *addr, uint32_t thread,
		      struct gn_rpc_client **out)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);

	opts.thread = thread;
	return gn_rpc_client_open(fabric, addr, &opts, out);
}

static void submit(struct gn_rpc_client *client, struct gn_rpc_op *op, unsigned method,
		   const uint32_t *data)
{
	*op = (struct gn_rpc_op){.method = method, .request = data, .request_len = sizeof(*data)};
	assert_int_equal(gn_rpc_submit(client, op), 0);
	assert_int_equal(gn_rpc_flush(client), 0);
}

/* … or is closed, and another client replaces it. */
static int connect_again(struct gn_fabric *fabric, const char *addr, bool anew,
			 struct gn_rpc_client **client)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_rpc_limits limits = {.size = sizeof(limits)};

	if (!anew)
		return gn_rpc_reconnect(*client);
	EXPECT(gn_rpc_client_limits(*client, &limits) == 0);
	EXPECT(gn_rpc_client_close(*client) == 0);
	opts.previous = limits.conn;
	return gn_rpc_client_open(fabric, addr, &opts, client);
}

/*
 * The thread that serves the client runs another client's handler, and a request of the client is
 * in its slot. The client reconnects, to another thread or the same, and calls.
 */
static void test_stale(void **state)
{
	static const uint32_t hold = HOLD_US;
	struct gn_rpc_client *first, *blocker, *client;
	struct gn_rpc_op blocked, old;
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	unsigned status, stale = 0;
	char addr[UNIT_ADDR];

	(void)state;
	gn_mutex_init(&record.lock);
	record.n = 0;
	fabric = unit_shm(addr);
	assert_int_equal(serve_records(fabric, addr, 2, &server), 0);
	for (uint32_t i = 0; i < 8; i++) {
		const uint32_t before = 2 * i + 1, after = 2 * i + 2;

		record.n = 0;
		/* Threads are chosen in turn: the client is on the held one every other time. */
		assert_int_equal(connect_to(fabric, addr, 0, &first), 0);
		assert_int_equal(connect_to(fabric, addr, 0, &client), 0);
		assert_int_equal(connect_to(fabric, addr, 2, &blocker), 0);
		submit(blocker, &blocked, SLOW, &hold);
		gn_sleep_us(HOLD_US / 4);
		submit(client, &old, RECORD, &before);
		assert_int_equal(connect_again(fabric, addr, i & 2, &client), 0);
		assert_int_equal(gn_rpc_call(client, RECORD, &after, sizeof(after), NULL, 0, NULL,
					     gn_deadline_us(UNIT_PATIENCE_US), &status),
				 0);
		assert_int_equal(status, GN_RPC_OK);
		while (gn_rpc_wait(blocker, gn_deadline_us(UNIT_PATIENCE_US)) > 0)
			;
		gn_sleep_us(HOLD_US / 4);
		gn_mutex_lock(&record.lock);
		assert_true(record.n > 0);
		stale += record.what[record.n - 1] == before;
		gn_mutex_unlock(&record.lock);
		assert_int_equal(gn_rpc_client_close(client), 0);
		assert_int_equal(gn_rpc_client_close(blocker), 0);
		assert_int_equal(gn_rpc_client_close(first), 0);
	}
	print_message("# of 8 reconnections, requests of an earlier connection were executed after "
		      "%u\n",
		      stale);
	assert_int_equal(stale, 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_mutex_fini(&record.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
