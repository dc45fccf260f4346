/* SPDX-License-Identifier: MIT */
/*
 * Lifecycle: servers that restart, drain, or are polled; clients that were idle for long; and the
 * papers' interface.
 */
#include "rpc_world.h"
#include "unit_shm.h"

/* ---- a server restarts ---- */

static int comes_back_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct async_call f[3];

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned round = 0; round < 3; round++) {
		EXPECT(call_echo(client, ECHO, 100, round) == 0);
		for (unsigned i = 0; i < 3; i++)
			EXPECT(submit_echo(client, &f[i], i ? ECHO : LATER, 0) == 0);
		EXPECT(world_restart(w) == 0);
		EXPECT(wait_all(client, f, 3) == 0);
		for (unsigned i = 0; i < 3; i++)
			EXPECT(f[i].ended == 1 &&
			       (f[i].op.status == GN_RPC_PEER_GONE || f[i].op.status == GN_RPC_OK));
		/* From then on every call fails at once, until the client is connected again. */
		while (gn_rpc_poll(client) || submit_echo(client, &f[0], ECHO, 0) != -ENOTCONN)
			gn_sleep_us(100);
		EXPECT(gn_rpc_wait(client, GN_FOREVER) == 0);
		EXPECT(gn_rpc_flush(client) == -ENOTCONN);
		EXPECT(gn_rpc_reconnect(client) == 0);
	}
	EXPECT(call_echo(client, LATER, 100, 7) == 0);
	EXPECT(gn_rpc_client_counters(client, &count) == 0 && count.reconnects == 3);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* GN_RPC_RECONNECT: a call reconnects, but no call is sent twice. */
static int by_itself(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	unsigned status = GN_RPC_OK, gone = 0;
	char result[4];

	opts.flags = GN_RPC_RECONNECT;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned round = 0; round < 5; round++) {
		EXPECT(call_echo(client, ECHO, 100, round) == 0);
		EXPECT(world_restart(w) == 0);
		do {
			EXPECT(gn_rpc_call(client, ECHO, "abc", 3, result, 4, NULL,
					   gn_deadline_us(UNIT_PATIENCE_US), &status) == 0);
			gone += status == GN_RPC_PEER_GONE;
		} while (status == GN_RPC_PEER_GONE);
		EXPECT(status == GN_RPC_OK && !memcmp(result, "abc", 3));
	}
	EXPECT(gone <= 5);
	EXPECT(gn_rpc_client_counters(client, &count) == 0 && count.reconnects == 5);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* The server does not return: the call ends at its deadline, not earlier. */
static void test_reconnect_deadline(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_rpc_client *client;
	uint64_t before_ns;
	char addr[UNIT_ADDR];
	int rc;

	(void)state;
	assert_non_null(w);
	w->fabric = unit_shm(addr);
	opts.flags = GN_RPC_RECONNECT;
	assert_int_equal(service_start(&w->service, w->fabric, addr, &w->opts), 0);
	assert_int_equal(gn_rpc_client_open(w->fabric, addr, &opts, &client), 0);
	assert_int_equal(call_echo(client, ECHO, 1, 1), 0);
	assert_int_equal(service_stop(&w->service), 0);
	do { /* the first call may not have noticed */
		before_ns = gn_now_ns();
		rc = gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, gn_deadline_us(50000), NULL);
	} while (!rc);
	assert_int_equal(rc, -ENOTCONN);
	assert_true(gn_now_ns() - before_ns >= 50000000);
	assert_int_equal(gn_rpc_reconnect(client), -ECONNREFUSED);
	assert_int_equal(gn_rpc_reconnect(client), -ECONNREFUSED);
	assert_int_equal(gn_rpc_poll(client), 0);
	assert_int_equal(gn_rpc_submit(client, &(struct gn_rpc_op){.method = ECHO}), -ENOTCONN);
	assert_int_equal(service_start(&w->service, w->fabric, addr, &w->opts), 0);
	assert_int_equal(gn_rpc_reconnect(client), 0);
	assert_int_equal(call_echo(client, ECHO, 1, 1), 0);
	assert_int_equal(gn_rpc_client_close(client), 0);
	assert_int_equal(service_stop(&w->service), 0);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
	free(w);
}

/* A callback within the end of all calls must not close the client, whoever ends them. */
struct closer {
	struct gn_rpc_client *client;
	int said;
	unsigned n;
};

static void close_from_done(struct gn_rpc_op *op)
{
	struct closer *c = op->arg;

	c->said = gn_rpc_client_close(c->client);
	c->n++;
}

static int close_in_close(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct closer c = {0};
	struct gn_rpc_op ops[3];

	shut(&w->service, true);
	for (unsigned way = 0; way < 2; way++) {
		c.n = 0;
		EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &c.client) == 0);
		for (unsigned i = 0; i < 3; i++) {
			ops[i] = (struct gn_rpc_op){
				.method = LATER, .done = close_from_done, .arg = &c};
			EXPECT(gn_rpc_submit(c.client, &ops[i]) == 0);
		}
		if (way) {
			EXPECT(gn_rpc_reconnect(c.client) == 0);
			EXPECT(c.n == 3 && ops[2].status == GN_RPC_PEER_GONE);
		}
		EXPECT(gn_rpc_client_close(c.client) == 0);
		EXPECT(c.n == 3 && c.said == -EDEADLK);
	}
	shut(&w->service, false);
	return 0;
}

/* Nor must the peer callback. */
static void close_from_peer(void *arg, uint64_t server, bool came)
{
	struct closer *c = arg;

	(void)server;
	if (!came || !c->client) /* before open has returned there is no client */
		return;
	c->said = gn_rpc_client_close(c->client);
	c->n++;
}

static int close_when_it_came(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct closer c = {0};

	opts.peer = close_from_peer;
	opts.peer_arg = &c;
	EXPECT(gn_rpc_client_open_begin(fabric, w->addr, &opts, &c.client) == 0);
	EXPECT(gn_rpc_client_open_wait(c.client, GN_FOREVER) == 0);
	EXPECT(c.n == 1 && c.said == -EDEADLK);
	EXPECT(gn_rpc_reconnect(c.client) == 0);
	EXPECT(c.n == 2 && c.said == -EDEADLK);
	EXPECT(call_echo(c.client, ECHO, 8, 8) == 0);
	EXPECT(gn_rpc_client_close(c.client) == 0);
	return 0;
}

/* No deadline means no deadline, even if only an event can end the wait. */
static int open_without_deadline(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client *client;

	EXPECT(gn_rpc_client_open_begin(fabric, w->addr, NULL, &client) == 0);
	EXPECT(gn_rpc_client_open_wait(client, 0) == 0);
	EXPECT(call_echo(client, ECHO, 8, 8) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- drain ---- */

/* gn_rpc_server_destroy() waits for answers, and logs this after a second. */
struct ending {
	struct service *service;
	unsigned warned;
	char line[200];
};

static void let_answer(void *arg, enum gn_log_level level, const char *line)
{
	struct ending *e = arg;

	if (level != GN_LOG_WARN || !strstr(line, "gn_rpc_server_destroy()"))
		return;
	e->warned++;
	snprintf(e->line, sizeof(e->line), "%s", line);
	shut(e->service, false);
}

static void test_destroy_waits(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct ending e = {.service = &w->service};
	struct gn_rpc_client *client;
	struct async_call f[2];
	uint64_t before_ns;
	char addr[UNIT_ADDR];

	(void)state;
	assert_non_null(w);
	w->fabric = unit_shm(addr);
	assert_int_equal(service_start(&w->service, w->fabric, addr, &w->opts), 0);
	shut(&w->service, true);
	assert_int_equal(gn_rpc_client_open(w->fabric, addr, NULL, &client), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(submit_echo(client, &f[i], LATER, 0), 0);
	while (aside(&w->service) < 2)
		gn_rpc_poll(client);
	assert_int_equal(gn_rpc_client_close(client), 0);
	assert_int_equal(
		gn_rpc_server_drain(w->service.server, gn_deadline_us(UNIT_PATIENCE_US)), 0);
	gn_log_to(let_answer, &e);
	before_ns = gn_now_ns();
	gn_rpc_server_destroy(w->service.server);
	gn_log_to(NULL, NULL);
	w->service.server = NULL;
	assert_true(gn_now_ns() - before_ns >= 1000000000);
	assert_int_equal(e.warned, 1);
	assert_non_null(strstr(e.line, addr));
	assert_non_null(strstr(e.line, "2 requests are not answered"));
	assert_int_equal(service_stop(&w->service), 0);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
	free(w);
}

static int drain_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client, *late;
	struct async_call f[4];
	int rc;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(call_echo(client, ECHO, 8, 8) == 0);
	shut(&w->service, true);
	for (unsigned i = 0; i < 4; i++)
		EXPECT(submit_echo(client, &f[i], LATER, 0) == 0);
	while (aside(&w->service) < 4)
		EXPECT(gn_rpc_poll(client) == 0);
	EXPECT(gn_rpc_server_drain(w->service.server, gn_deadline_us(20000)) == -ETIMEDOUT);
	for (unsigned i = 0; i < 8; i++)
		EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &late) == -ECONNREFUSED);
	EXPECT(gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, GN_FOREVER, &f[0].ended) == 0);
	EXPECT(f[0].ended == GN_RPC_BUSY);
	f[0].ended = 0;
	shut(&w->service, false);
	EXPECT(wait_all(client, f, 4) == 0);
	for (unsigned i = 0; i < 4; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	/* The server knows when its client has acknowledged them. */
	do {
		EXPECT(gn_rpc_poll(client) == 0);
		rc = gn_rpc_server_drain(w->service.server, gn_deadline_us(5000));
	} while (rc == -ETIMEDOUT);
	EXPECT(rc == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int drain(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		EXPECT(drain_in(w, fabric, mode) == 0);
		EXPECT(world_restart(w) == 0);
	}
	return 0;
}

static void test_drain(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->program = drain; /* the server's functions are called here: in one process only */
	run_shm(w);
	w->opts.threads = 3;
	run_shm(w);
	free(w);
}

/* ---- idle clients ---- */

/*
 * A call works after any idle time, including one that ends just when the server parks the client.
 */
static int parked_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		     uint32_t batch)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	unsigned slow = 0;
	const unsigned rounds = w->simulated ? 200 : 60;

	opts.batch.entries = batch;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t ns;

		gn_sleep_us(i % 3 ? gn_random() % 700 : 200 + gn_random() % 20);
		ns = gn_now_ns();
		EXPECT(call_echo(client, i % 4 ? ECHO : LATER, 32, i) == 0);
		slow += gn_now_ns() - ns > 50000000;
	}
	EXPECT(slow <= (w->simulated ? 0 : rounds / 4)); /* a real machine may stall for a while */
	gn_sleep_us(5000);
	EXPECT(call_echo(client, ECHO, 32, 1) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int parked(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_counters count = {.size = sizeof(count)};

	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		EXPECT(parked_in(w, fabric, mode, 1) == 0);
		EXPECT(parked_in(w, fabric, mode, 4) == 0);
	}
	EXPECT(gn_rpc_server_counters(w->service.server, &count) == 0);
	EXPECT(count.parks >= 6 && count.wakes >= 6);
	return 0;
}

static void test_parked(void **state)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .park_us = 200};

	(void)state;
	run_everywhere(parked, &opts, 3);
}

/* ---- polled servers, and the papers' interface ---- */

/* A thread that polls a server. */
struct poller {
	const char *addr;
	struct gn_fabric *fabric;
	struct gn_rpc_server *server;
	bool ready, stop;
	int failed;
};

static int poll_server(struct poller *p)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	int rc;

	EXPECT(gn_rpc_server_create(p->fabric, p->addr, &opts, &p->server) == 0);
	EXPECT(gn_rpc_server_handle(p->server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_start(p->server) == 0);
	EXPECT(gn_rpc_server_poll(p->server) == 0);
	EXPECT(gn_rpc_server_wait(p->server, gn_deadline_us(2000)) == -ETIMEDOUT);
	__atomic_store_n(&p->ready, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		EXPECT(gn_rpc_server_poll(p->server) >= 0);
		rc = gn_rpc_server_wait(p->server, gn_deadline_us(10000));
		EXPECT(rc == 0 || rc == -ETIMEDOUT || rc == -EINTR);
	}
	EXPECT(gn_rpc_server_drain(p->server, gn_deadline_us(UNIT_PATIENCE_US)) == 0);
	gn_rpc_server_destroy(p->server);
	return 0;
}

static void poller_main(void *arg)
{
	struct poller *p = arg;

	p->failed = poll_server(p);
}

static void test_polled(void **state)
{
	struct gn_rpc_client *client;
	struct gn_thread *thread;
	struct poller p = {0};
	char addr[UNIT_ADDR];

	(void)state;
	p.fabric = unit_shm(addr);
	p.addr = addr;
	assert_int_equal(gn_thread_start("poller", poller_main, &p, &thread), 0);
	while (!__atomic_load_n(&p.ready, __ATOMIC_ACQUIRE) && !p.failed)
		gn_sleep_us(100);
	assert_int_equal(p.failed, 0);
	assert_int_equal(gn_rpc_server_poll(p.server), -EPERM);
	assert_int_equal(gn_rpc_server_wait(p.server, GN_NO_WAIT), -EPERM);
	assert_int_equal(gn_rpc_server_drain(p.server, GN_NO_WAIT), -EPERM);
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		const struct gn_rpc_client_opts opts = in_mode(mode);

		assert_int_equal(gn_rpc_client_open(p.fabric, addr, &opts, &client), 0);
		for (unsigned i = 0; i < 100; i++) {
			if (i % 20 == 0)
				gn_sleep_us(3000); /* the client is parked meanwhile */
			assert_int_equal(call_echo(client, ECHO, i, i), 0);
		}
		assert_int_equal(gn_rpc_client_close(client), 0);
	}
	__atomic_store_n(&p.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_int_equal(p.failed, 0);
	assert_int_equal(gn_fabric_close(p.fabric), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST_MODES(test_server_restarts, comes_back_in, NULL, 1),
		RPC_TEST(test_reconnect_flag, by_itself, NULL, 1),
		cmocka_unit_test(test_reconnect_deadline),
		RPC_TEST(test_close_in_close, close_in_close, NULL, 1),
		RPC_TEST(test_close_in_peer, close_when_it_came, NULL, 1),
		RPC_TEST(test_open_without_deadline, open_without_deadline, NULL, 1),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_destroy_waits),
		cmocka_unit_test(test_parked),
		cmocka_unit_test(test_polled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
