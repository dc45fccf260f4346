/* SPDX-License-Identifier: MIT */
/*
 * Calls: results of every size and status, many outstanding, early completion, misuse. The same
 * programs run over shared memory and on simulated cards.
 */
#include "rpc/client.h"
#include "rpc_world.h"

#define ROUNDS 300u

static const struct gn_rpc_server_opts small = {.size = sizeof(small),
						.threads = 2,
						.max_slots = SLOTS,
						.max_request = MAX,
						.max_result = MAX};

/* ---- one call at a time ---- */

static int sizes_and_statuses(struct gn_rpc_client *client)
{
	static const uint32_t sizes[] = {0,  1,	 7,  8,	  9,   31,  32,	  33,
					 63, 64, 65, 255, 256, 257, 4000, MAX};
	uint8_t request[MAX + 1], result[MAX];
	const struct two big = {2 * MAX, 1};
	uint32_t len;
	unsigned status;

	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			EXPECT(call_echo(client, ECHO, sizes[i], round * 100 + i) == 0);
	memset(request, 3, sizeof(request));
	EXPECT(gn_rpc_call(client, SUM, request, 1000, result, MAX, &len, GN_FOREVER, &status) ==
	       0);
	EXPECT(status == GN_RPC_OK && len == 8 && *(uint64_t *)(void *)result == 3000);
	EXPECT(gn_rpc_call(client, NEVER, NULL, 0, NULL, 0, &len, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_NO_METHOD && len == 0);
	EXPECT(gn_rpc_call(client, BLOB, &big, sizeof(big), result, MAX, NULL, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG);
	EXPECT(gn_rpc_call(client, ECHO, request, 100, result, 99, NULL, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG);
	EXPECT(gn_rpc_call(client, OWN_STATUS, NULL, 0, result, 2, &len, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_FAILED + 34 && len == 2 && !memcmp(result, "no", 2));
	EXPECT(gn_rpc_call(client, ECHO, request, MAX + 1, result, MAX, &len, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG && len == MAX + 1);
	EXPECT(gn_rpc_call(client, ECHO, request, GN_RPC_LARGE_MAX + 1, result, MAX, &len,
			   GN_FOREVER, &status) == -EMSGSIZE);
	EXPECT(gn_rpc_call(client, GN_RPC_BUILTIN_END, NULL, 0, NULL, 0, NULL, GN_FOREVER, NULL) ==
	       -EINVAL);
	EXPECT(gn_rpc_call(client, ECHO, NULL, 1, NULL, 0, NULL, GN_FOREVER, NULL) == -EINVAL);
	EXPECT(gn_rpc_call(client, ECHO, NULL, 0, NULL, 1, NULL, GN_FOREVER, NULL) == -EINVAL);
	EXPECT(gn_rpc_call(client, GN_RPC_PING, NULL, 0, NULL, 0, &len, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_OK && len == 0);
	return 0;
}

/* ---- a full window, answered in any order ---- */

static int go_on(struct gn_rpc_client *client, struct async_call *f, unsigned begun)
{
	int rc = submit_echo(client, f, begun % 3 ? ECHO : LATER, 0);

	/* Slots are used in turn: the next one may belong to a slower call. */
	while (rc == -EAGAIN) {
		EXPECT(gn_rpc_poll(client) >= 0);
		gn_yield();
		rc = gn_rpc_submit(client, &f->op);
	}
	return rc;
}

static int async_calls(struct gn_rpc_client *client)
{
	struct async_call flights[SLOTS + 1];
	unsigned begun = 0, ended = 0;

	for (unsigned i = 0; i < SLOTS; i++, begun++)
		EXPECT(submit_echo(client, &flights[i], i % 2 ? ECHO : LATER, 0) == 0);
	EXPECT(submit_echo(client, &flights[SLOTS], ECHO, 0) == -EAGAIN);
	while (ended < begun) {
		/* 0: no call has completed, but the refused call can be submitted now. */
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
		for (unsigned i = 0; i < SLOTS; i++) {
			if (!flights[i].ended)
				continue;
			EXPECT(async_call_check(&flights[i]) == 0);
			ended++;
			flights[i].ended = 0;
			if (begun >= ROUNDS)
				continue;
			EXPECT(go_on(client, &flights[i], begun) == 0);
			begun++;
		}
	}
	EXPECT(gn_rpc_wait(client, GN_FOREVER) == 0); /* none is left */
	return 0;
}

/* ---- early completion ---- */

static int call_when_free(struct gn_rpc_client *client)
{
	char result[3];
	unsigned status;
	int rc;

	do {
		rc = gn_rpc_call(client, ECHO, "abc", 3, result, 3, NULL, GN_FOREVER, &status);
		if (rc == -EAGAIN) {
			gn_rpc_poll(client);
			gn_yield();
		}
	} while (rc == -EAGAIN);
	EXPECT(rc == 0 && status == GN_RPC_OK && !memcmp(result, "abc", 3));
	return 0;
}

static int ends_early(struct gn_rpc_client *client)
{
	struct async_call late, canceled;
	const uint64_t before = gn_now_ns();

	/* LATER takes at least 20 us. */
	EXPECT(submit_echo(client, &late, LATER, gn_deadline_us(1)) == 0);
	EXPECT(wait_all(client, &late, 1) == 0);
	EXPECT(late.op.status == GN_RPC_TIMEOUT || late.op.status == GN_RPC_OK);
	EXPECT(gn_now_ns() > before);
	EXPECT(submit_echo(client, &canceled, LATER, 0) == 0);
	EXPECT(gn_rpc_cancel(&canceled.op) == 0);
	EXPECT(canceled.ended == 1 && canceled.op.status == GN_RPC_CANCELED);
	EXPECT(gn_rpc_cancel(&canceled.op) == -ESRCH);
	EXPECT(gn_rpc_cancel(NULL) == -EINVAL);
	memset(canceled.result, 0xaa, sizeof(canceled.result));
	/* Their slots are freed when the server has processed them, and calls continue. */
	for (unsigned i = 0; i < 3 * SLOTS; i++)
		EXPECT(call_when_free(client) == 0);
	EXPECT(canceled.ended == 1 && late.ended == 1);
	for (unsigned i = 0; i < sizeof(canceled.result); i++)
		EXPECT(canceled.result[i] == 0xaa); /* not touched */
	return 0;
}

/* ---- misuse ---- */

struct elsewhere {
	struct gn_rpc_client *client;
	bool refused;
};

static void try_from_elsewhere(void *arg)
{
	struct elsewhere *e = arg;
	struct gn_rpc_op op = {.method = ECHO};

	e->refused =
		gn_rpc_submit(e->client, &op) == -EPERM && gn_rpc_poll(e->client) == -EPERM &&
		gn_rpc_wait(e->client, GN_NO_WAIT) == -EPERM && gn_rpc_flush(e->client) == -EPERM &&
		gn_rpc_client_close(e->client) == -EPERM && gn_rpc_reconnect(e->client) == -EPERM &&
		gn_rpc_call_all(e->client, &op, 1) == -EPERM &&
		gn_rpc_call(e->client, ECHO, NULL, 0, NULL, 0, NULL, 0, NULL) == -EPERM &&
		gn_rpc_client_metrics(e->client, GN_RPC_JSON, NULL, 0) == -EPERM;
}

static int wrong_thread(struct gn_rpc_client *client)
{
	struct elsewhere elsewhere = {.client = client};
	struct gn_thread *thread;

	EXPECT(gn_thread_start("other", try_from_elsewhere, &elsewhere, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(elsewhere.refused);
	return 0;
}

/* Functions that wait or close the client are refused within a poll; submitting is not. */
struct nested {
	struct gn_rpc_client *client;
	struct async_call next;
	bool refused;
	unsigned n;
};

static void try_from_done(struct gn_rpc_op *op)
{
	struct nested *n = op->arg;
	struct gn_rpc_client *c = n->client;

	n->refused = gn_rpc_call(c, ECHO, NULL, 0, NULL, 0, NULL, 0, NULL) == -EDEADLK &&
		     gn_rpc_wait(c, GN_NO_WAIT) == -EDEADLK && gn_rpc_poll(c) == -EDEADLK &&
		     gn_rpc_client_close(c) == -EDEADLK && gn_rpc_reconnect(c) == -EDEADLK &&
		     gn_rpc_call_all(c, &n->next.op, 1) == -EDEADLK &&
		     submit_echo(c, &n->next, ECHO, 0) == 0 && gn_rpc_flush(c) == 0;
	n->n++;
}

static int from_done(struct gn_rpc_client *client)
{
	struct nested n = {.client = client};
	struct gn_rpc_op op = {.method = ECHO, .done = try_from_done, .arg = &n};

	EXPECT(gn_rpc_submit(client, &op) == 0);
	while (!n.n)
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	EXPECT(n.refused);
	EXPECT(wait_all(client, &n.next, 1) == 0);
	return async_call_check(&n.next);
}

/* ---- programs ---- */

static int all_calls(struct gn_fabric *fabric, const char *addr, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_rpc_limits limits = {.size = sizeof(limits)};

	opts.slots = 2 * SLOTS;
	opts.max_request = opts.max_result = 2 * MAX;
	EXPECT(gn_rpc_client_open(fabric, addr, &opts, &client) == 0);
	EXPECT(gn_rpc_client_limits(client, &limits) == 0);
	EXPECT(limits.slots == SLOTS && limits.max_request == MAX && limits.max_result == MAX);
	EXPECT(sizes_and_statuses(client) == 0);
	EXPECT(async_calls(client) == 0);
	EXPECT(ends_early(client) == 0);
	EXPECT(from_done(client) == 0);
	EXPECT(wrong_thread(client) == 0);
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(mode == GN_RPC_REPLY || count.fetches > 0);
	/* Replies are not fetched, but probes may find a result. */
	EXPECT(mode != GN_RPC_REPLY || count.fetches <= count.probes + count.second_reads);
	EXPECT(mode != GN_RPC_FETCH || count.second_reads > 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int every_mode(struct world *w, struct gn_fabric *fabric)
{
	EXPECT(all_calls(fabric, w->addr, GN_RPC_FETCH) == 0);
	EXPECT(all_calls(fabric, w->addr, GN_RPC_REPLY) == 0);
	EXPECT(all_calls(fabric, w->addr, GN_RPC_HYBRID) == 0);
	return 0;
}

/* A window that is always full: the work per poll does not grow with the number of calls so far. */
static int full_window(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;

	opts.slots = 1;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		EXPECT(call_echo(client, ECHO, 4, i) == 0);
		EXPECT(client->n_fetch == 0 && client->n_reply == 0);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- options, and no server ---- */

static void test_client_options(void **state)
{
	struct gn_rpc_client_opts bad[9] = {0};
	struct gn_rpc_tuning tuning = {.size = sizeof(tuning), .n_sizes = GN_RPC_TUNING_SIZES + 1};
	struct gn_rpc_client *client = NULL;
	struct gn_fabric *fabric;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		bad[i].size = sizeof(bad[i]);
	bad[0].mode = GN_RPC_MODES;
	bad[1].slots = GN_RPC_SLOTS_MAX + 1;
	bad[2].max_request = GN_RPC_BYTES_MAX + 1;
	bad[3].max_result = GN_RPC_BYTES_MAX + 1;
	bad[4].fetch_bytes = GN_RPC_BYTES_MAX + 1;
	bad[5].max_large = GN_RPC_LARGE_MAX + 1;
	bad[6].batch.entries = GN_RPC_BATCH_MAX + 1;
	bad[7].batch.alpha_pct = 101;
	bad[8].tuning = &tuning;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(gn_rpc_client_open(fabric, "shm:nobody", &bad[i], &client),
				 -EINVAL);
	assert_int_equal(gn_rpc_client_open(fabric, "shm:nobody", NULL, &client), -ECONNREFUSED);
	assert_non_null(strstr(gn_error(), "shm:nobody"));
	assert_non_null(strstr(gn_error(), "looked in /"));
	assert_int_equal(gn_rpc_client_open(NULL, "shm:nobody", NULL, &client), -EINVAL);
	assert_int_equal(gn_rpc_client_open(fabric, NULL, NULL, &client), -EINVAL);
	assert_int_equal(gn_rpc_client_open(fabric, "shm:nobody", NULL, NULL), -EINVAL);
	assert_null(client);
	assert_int_equal(gn_rpc_client_close(NULL), 0);
	assert_int_equal(gn_rpc_client_limits(NULL, NULL), -EINVAL);
	assert_int_equal(gn_rpc_client_counters(NULL, NULL), -EINVAL);
	assert_int_equal(gn_rpc_client_choice(NULL, 0, NULL), -EINVAL);
	assert_int_equal(gn_rpc_submit(NULL, NULL), -EINVAL);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static void test_server_options(void **state)
{
	struct gn_rpc_server_opts bad[6] = {0};
	struct gn_rpc_server *server = NULL, *second = NULL;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_fabric *fabric;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:test-rpc-%llx", (unsigned long long)gn_random());
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		bad[i].size = sizeof(bad[i]);
	bad[0].threads = 257;
	bad[1].max_slots = GN_RPC_SLOTS_MAX + 1;
	bad[2].max_request = GN_RPC_BYTES_MAX + 1;
	bad[3].max_result = GN_RPC_BYTES_MAX + 1;
	bad[4].max_large = GN_RPC_LARGE_MAX + 1;
	bad[5].threads = 2;
	bad[5].flags = GN_RPC_POLLED;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(gn_rpc_server_create(fabric, addr, &bad[i], &server), -EINVAL);
	assert_null(server);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_handle(server, ECHO, echo, NULL), 0);
	assert_int_equal(gn_rpc_server_handle(server, ECHO, echo, NULL), -EEXIST);
	assert_int_equal(gn_rpc_server_handle(server, GN_RPC_METHODS_MAX, echo, NULL), -EINVAL);
	assert_int_equal(gn_rpc_server_handle(server, 77, NULL, NULL), -EINVAL);
	assert_int_equal(gn_rpc_server_drain(server, GN_NO_WAIT), -EINVAL);
	assert_int_equal(gn_rpc_server_poll(server), -EINVAL);
	assert_int_equal(gn_rpc_server_wait(server, GN_NO_WAIT), -EINVAL);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_rpc_server_start(server), -EINVAL);
	assert_int_equal(gn_rpc_server_handle(server, 77, echo, NULL), -EBUSY);
	assert_int_equal(gn_rpc_server_poll(server), -EINVAL); /* not GN_RPC_POLLED */
	assert_int_equal(gn_rpc_server_counters(server, NULL), -EINVAL);
	assert_int_equal(gn_rpc_server_counters(server, &count), 0);
	assert_int_equal(count.clients, 0);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &second), 0);
	assert_int_equal(gn_rpc_server_start(second), -EADDRINUSE);
	gn_rpc_server_destroy(second);
	gn_rpc_server_destroy(server);
	gn_rpc_server_destroy(NULL);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST(test_every_mode, every_mode, &small, 3),
		RPC_TEST_MODES(test_full_window, full_window, &small, 3),
		cmocka_unit_test(test_client_options),
		cmocka_unit_test(test_server_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
