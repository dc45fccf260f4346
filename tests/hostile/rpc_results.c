/* SPDX-License-Identifier: MIT */
/*
 * A server that violates the protocol of results and notifications, step by step: server and client
 * take turns on one thread. docs/limits.md states what the client may allocate meanwhile.
 */
#include <errno.h>
#include <string.h>

#include "heap.h"
#include "rpc_raw_server.h"

#define CALLS 8u
#define SMALL (64u << 10) /* bytes that everything except large results may take */

/* ---- client and server ---- */

struct stage {
	struct raw_server server;
	struct raw_conn conn;
	struct gn_rpc_client *client;
};

static int stage_begin(struct stage *s, struct gn_rpc_client_opts opts, uint32_t park_us)
{
	char addr[64];
	int rc = -EAGAIN;

	*s = (struct stage){0};
	opts.size = sizeof(opts);
	snprintf(addr, sizeof(addr), "shm:hostile-results-%llx", (unsigned long long)gn_random());
	EXPECT(gn_fabric_open("shm", &s->server.fabric) == 0);
	EXPECT(raw_server_begin(&s->server, addr) == 0);
	EXPECT(gn_rpc_client_open_begin(s->server.fabric, addr, &opts, &s->client) == 0);
	while (rc == -EAGAIN) {
		struct gn_conn_opts conn = {.size = sizeof(conn),
					    .private_data = &s->conn.welcome,
					    .private_len = sizeof(s->conn.welcome)};
		struct gn_event event;

		if (!gn_chan_next(s->server.chan, &event) &&
		    event.type == GN_EVENT_CONNECT_REQUEST) {
			EXPECT(raw_conn_make(&s->server, &s->conn, &event) == 0);
			s->conn.welcome.park_us = park_us;
			EXPECT(gn_accept(event.req, s->conn.qp, &conn) == 0);
			s->conn.up = true;
		}
		rc = gn_rpc_client_open_wait(s->client, gn_deadline_us(100));
	}
	return rc;
}

static int stage_end(struct stage *s)
{
	EXPECT(gn_rpc_client_close(s->client) == 0);
	raw_conn_end(&s->conn);
	EXPECT(raw_server_end(&s->server) == 0);
	EXPECT(gn_fabric_close(s->server.fabric) == 0);
	return 0;
}

/* Builds a result message in the next slot, entry by entry, … */
static void add_result(struct stage *s, uint32_t *len, uint16_t index, const void *data,
		       uint32_t bytes)
{
	const struct rpc_entry entry = {.len = bytes, .code = GN_RPC_OK, .index = index};
	uint8_t *to = raw_result(&s->conn) + sizeof(struct rpc_head) + *len;

	memcpy(to, &entry, sizeof(entry));
	memcpy(to + sizeof(entry), data, bytes);
	*len += (uint32_t)sizeof(entry) + rpc_align8(bytes);
}

/* … and publishes it. */
static void publish_results(struct stage *s, uint32_t len, uint32_t taken)
{
	struct raw_conn *c = &s->conn;
	const struct rpc_seal seal = {.seq = rpc_seq(c->welcome.epoch, c->published + 1),
				      .nonce = c->hello.nonce,
				      .len = len,
				      .flags = RPC_RESULT,
				      .ack = rpc_taken_ack(taken, 0)};

	rpc_seal(raw_result(c), &seal);
	c->published++;
}

/* ---- large results ---- */

struct large {
	struct gn_rpc_op op;
	unsigned ended;
	bool right; /* its bytes were right */
};

static void large_done(struct gn_rpc_op *op)
{
	struct large *l = op->arg;
	const uint8_t *data = op->data;

	l->ended++;
	l->right = op->status == GN_RPC_OK && op->result_len == RAW_LARGE_BYTES && data &&
		   data[0] == 0x5a && data[RAW_LARGE_BYTES - 1] == 0x5a;
}

/* All calls are in one message, and so are their results, all of which are large. */
static int answer_large(struct stage *s)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	unsigned ended = 0;
	struct gn_remote mine;
	struct rpc_head head;
	uint32_t len = 0;

	memset(gn_mem_addr(s->conn.mem[RAW_FAR]), 0x5a, RAW_LARGE_BYTES);
	EXPECT(gn_mr_remote(s->conn.mr[RAW_FAR], &mine) == 0);
	EXPECT(raw_find_request(&s->conn, 1, &head) && head.aux == CALLS);
	for (unsigned i = 0; i < CALLS; i++) {
		const struct rpc_large_ref ref = {
			.offset = mine.offset, .key = mine.key, .len = RAW_LARGE_BYTES};

		add_result(s, &len, (uint16_t)(i | RPC_LARGE), &ref, sizeof(ref));
	}
	publish_results(s, len, 1);
	while (ended < CALLS && gn_now_ns() < deadline_ns)
		ended += (unsigned)gn_rpc_poll(s->client);
	EXPECT(ended == CALLS);
	return 0;
}

/* … and are used in place. */
static int many_large(struct stage *s, struct large *large)
{
	for (unsigned i = 0; i < CALLS; i++) {
		large[i].op = (struct gn_rpc_op){.method = 1,
						 .result_room = RAW_LARGE_BYTES,
						 .done = large_done,
						 .arg = &large[i],
						 .flags = GN_RPC_IN_PLACE};
		EXPECT(gn_rpc_submit(s->client, &large[i].op) == 0);
	}
	EXPECT(answer_large(s) == 0);
	for (unsigned i = 0; i < CALLS; i++)
		EXPECT(large[i].ended == 1);
	return 0;
}

static const struct gn_rpc_client_opts all_at_once = {
	.mode = GN_RPC_FETCH, .slots = 2, .batch = {.entries = CALLS}};

/*
 * The most bytes that the calls allocate at once. Allocations of refused_from bytes or more fail; 0:
 * none does.
 */
static uint64_t heap_of_many_large(struct stage *s, struct large *large, size_t refused_from)
{
	uint64_t most;
	int rc;

	assert_int_equal(stage_begin(s, all_at_once, 1000), 0);
	heap_watch();
	heap.refused_from = refused_from;
	rc = many_large(s, large);
	most = heap_most();
	assert_int_equal(rc, 0);
	return most;
}

/* A client has memory for one large result at a time, however many a server announces. */
static void test_one_large_at_a_time(void **state)
{
	struct large large[CALLS] = {0};
	struct stage s;
	uint64_t most;

	(void)state;
	most = heap_of_many_large(&s, large, 0);
	for (unsigned i = 0; i < CALLS; i++)
		assert_true(large[i].right);
	print_message("# %u results of %u KiB: %.0f KiB at once\n", CALLS, RAW_LARGE_BYTES >> 10,
		      (double)most / 1024);
	assert_true(most >= RAW_LARGE_BYTES); /* or it was not counted */
	assert_true(most < RAW_LARGE_BYTES + SMALL);
	assert_int_equal(stage_end(&s), 0);
}

/*
 * … and if there is no memory for one, its call completes with TOO_BIG, and the client continues.
 */
static void test_no_memory_for_large(void **state)
{
	struct large large[CALLS] = {0};
	struct stage s;
	uint64_t most;

	(void)state;
	most = heap_of_many_large(&s, large, RAW_LARGE_BYTES);
	for (unsigned i = 0; i < CALLS; i++) {
		assert_int_equal(large[i].op.status, GN_RPC_TOO_BIG);
		assert_int_equal(large[i].op.result_len, RAW_LARGE_BYTES);
	}
	assert_true(most < SMALL);
	/* Nothing is left of them after the next polls, and the window is free. */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gn_rpc_poll(s.client), 0);
	for (unsigned i = 0; i < CALLS; i++)
		assert_int_equal(gn_rpc_submit(s.client, &large[i].op), 0);
	assert_int_equal(stage_end(&s), 0);
}

/* ---- one slot ---- */

struct single {
	struct stage *stage;
	struct gn_rpc_op first, second, next;
	uint8_t before, after; /* a byte of the first result */
	int rc;
	unsigned ended;
};

static void single_ended(struct gn_rpc_op *op)
{
	((struct single *)op->arg)->ended++;
}

/*
 * The server changes the result meanwhile. A canceled call has just woken the server, so the new
 * call probes with a READ; with one slot, that is the slot of the result.
 */
static void single_done(struct gn_rpc_op *op)
{
	struct single *t = op->arg;
	uint8_t *at = (uint8_t *)gn_mem_addr(t->stage->conn.mem[RAW_RESULTS]) +
		      sizeof(struct rpc_head) + sizeof(struct rpc_entry);

	t->ended++;
	if (op->status != GN_RPC_OK || op->result_len != 8)
		return;
	t->before = *(const uint8_t *)op->data;
	memset(at, 0xee, 8);
	t->rc = gn_rpc_cancel(&t->second);
	if (!t->rc)
		t->rc = gn_rpc_submit(t->stage->client, &t->next);
	if (!t->rc)
		t->rc = gn_rpc_flush(t->stage->client);
	t->after = *(const uint8_t *)op->data;
}

/* A checked result is not read from the server again while its caller uses it. */
static void test_one_slot(void **state)
{
	const struct gn_rpc_client_opts opts = {
		.mode = GN_RPC_REPLY, .slots = 1, .batch = {.entries = 4}};
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct single t = {.rc = -1};
	const uint64_t data = 0x5a5a5a5a5a5a5a5a;
	struct stage s;
	uint32_t len = 0;

	(void)state;
	/* Parked at once: each request comes after an idle time. */
	assert_int_equal(stage_begin(&s, opts, 0), 0);
	t.stage = &s;
	t.first = (struct gn_rpc_op){.method = 1,
				     .result_room = 64,
				     .done = single_done,
				     .arg = &t,
				     .flags = GN_RPC_IN_PLACE};
	t.second = t.next = (struct gn_rpc_op){.method = 1, .done = single_ended, .arg = &t};
	assert_int_equal(gn_rpc_submit(s.client, &t.first), 0);
	assert_int_equal(gn_rpc_submit(s.client, &t.second), 0);
	assert_int_equal(gn_rpc_flush(s.client), 0);
	/* The message is taken and its slot free; then the first result is published. */
	((struct rpc_head *)(void *)raw_result(&s.conn))->ack = rpc_taken_ack(1, 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(gn_rpc_poll(s.client), 0);
	add_result(&s, &len, 0, &data, sizeof(data));
	publish_results(&s, len, 1);
	while (!t.ended && gn_now_ns() < deadline_ns)
		gn_rpc_poll(s.client);
	assert_int_equal(t.rc, 0);
	assert_int_equal(t.before, 0x5a);
	assert_int_equal(t.after, 0x5a);
	assert_int_equal(stage_end(&s), 0);
	assert_int_equal(t.ended, 3);
}

/* ---- notifications ---- */

static int notify(struct stage *s)
{
	struct gn_wr wr;

	gn_wr_init(&wr, GN_OP_WRITE_IMM, 0, NULL, 0, GN_SIGNALED | GN_SOLICITED);
	return gn_post_send(s->conn.qp, &wr, NULL);
}

/* Polls until the client has processed its completions, which it does now and then. */
static bool gone_after(struct stage *s, unsigned polls)
{
	struct gn_rpc_op op = {.method = 1};
	int rc = 0;

	for (unsigned i = 0; i < polls; i++)
		gn_rpc_poll(s->client);
	rc = gn_rpc_submit(s->client, &op);
	if (!rc)
		gn_rpc_cancel(&op);
	return rc == -ENOTCONN;
}

/* An unsolicited notification ends the connection: a correct server sends none. */
static void test_unsolicited(void **state)
{
	const struct gn_rpc_client_opts opts = {.mode = GN_RPC_FETCH};
	struct stage s;

	(void)state;
	assert_int_equal(stage_begin(&s, opts, 1000), 0);
	assert_false(gone_after(&s, 1000));
	assert_int_equal(notify(&s), 0);
	assert_true(gone_after(&s, 1000));
	assert_int_equal(stage_end(&s), 0);
}

/* … and so does a second one for one request. */
static void test_notified_twice(void **state)
{
	const struct gn_rpc_client_opts opts = {.mode = GN_RPC_FETCH};
	struct gn_rpc_op op = {.method = 1};
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct stage s;

	(void)state;
	assert_int_equal(stage_begin(&s, opts, 1000), 0);
	assert_int_equal(gn_rpc_submit(s.client, &op), 0);
	/* The client sleeps, and has requested a notification. */
	assert_int_equal(gn_rpc_wait(s.client, gn_deadline_us(20000)), -ETIMEDOUT);
	assert_int_equal(gn_rpc_client_counters(s.client, &count), 0);
	assert_int_equal(count.notifies, 1);
	assert_int_equal(notify(&s), 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(gn_rpc_poll(s.client), 0);
	assert_int_equal(notify(&s), 0);
	assert_true(gone_after(&s, 1000));
	assert_int_equal(op.status, GN_RPC_PEER_GONE);
	assert_int_equal(stage_end(&s), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_large_at_a_time),
		cmocka_unit_test(test_no_memory_for_large),
		cmocka_unit_test(test_one_slot),
		cmocka_unit_test(test_unsolicited),
		cmocka_unit_test(test_notified_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
