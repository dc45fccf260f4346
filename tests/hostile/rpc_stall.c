/* SPDX-License-Identifier: MIT */
/*
 * Clients that make an RPC server wait for them: their busy word claims for ever that they copy
 * under one of the server's keys (src/fabric/shm/post.c). The server closes their connections and
 * reclaims its memory, on the thread that serves an honest client, whose calls must not be delayed.
 */
#include <poll.h>
#include <sys/mman.h>

#include "fabric/shm/shm.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "rpc_raw.h"
#include "rpc_raw_server.h"

#define HOSTILE	 12u
#define MOST_NS	 (unit_slow() ? 2000000000u : 800000000u) /* longest honest call */
#define WATCH_US 1500000u				  /* longer than a copy is waited for */

struct attack {
	struct victim victim;
	struct gn_fabric *fabric;
	struct raw_client raw[HOSTILE];
	struct gn_rpc_client *honest;
	unsigned fds;
};

static void begin(struct attack *a, const char *name)
{
	struct gn_rpc_server_opts opts = {.size = sizeof(opts)};

	*a = (struct attack){0};
	victim_start(&a->victim, name, victim_serve, &opts);
	assert_int_equal(gn_fabric_open("shm", &a->fabric), 0);
	assert_int_equal(gn_rpc_client_open(a->fabric, a->victim.addr, NULL, &a->honest), 0);
	/* Only then has the server opened everything that it needs for a client. */
	assert_int_equal(call_echo(a->honest, ECHO, 10, 1), 0);
	a->fds = cost_fds(a->victim.pid);
	for (unsigned i = 0; i < HOSTILE; i++) {
		a->raw[i].fabric = a->fabric;
		assert_int_equal(raw_connect(&a->raw[i], a->victim.addr, raw_hello(16)), 0);
	}
}

/* Sets the busy word that its library would set. Nothing is posted from now on. */
static void say_busy(struct raw_client *r)
{
	uint64_t *word = &((struct shm_qp *)r->ep.raw.qp)->conn.own_area->busy.posting;

	__atomic_store_n(word, *word | 1, __ATOMIC_SEQ_CST);
}

/* The server does nothing else for a while: it finds everything written now at once. */
static void hold_thread(struct attack *a)
{
	const uint32_t us = 50000;

	assert_int_equal(raw_send(&a->raw[0], SLOW, &us, sizeof(us), 1, 0), 0);
}

/* The slowest honest call during so long. */
static uint64_t watch(struct attack *a)
{
	const uint64_t end_ns = gn_deadline_us(WATCH_US);
	uint64_t slowest_ns = 0;

	for (unsigned i = 0; gn_now_ns() < end_ns; i++) {
		const struct cost_call call = cost_call_begin(a->victim.pid);
		uint64_t ns;

		assert_int_equal(call_echo(a->honest, ECHO, i % 1000, i), 0);
		ns = cost_call_ns(&call);
		slowest_ns = ns > slowest_ns ? ns : slowest_ns;
	}
	return slowest_ns;
}

/* What the server opens once, when a client is woken: a timer and what watches its sockets. */
#define LAZY_FDS 2u

/* Nothing is left of them at the server. */
static void finish(struct attack *a)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (cost_fds(a->victim.pid) > a->fds + LAZY_FDS) {
		assert_true(gn_now_ns() < deadline_ns);
		gn_sleep_us(1000);
	}
	for (unsigned i = 0; i < HOSTILE; i++)
		raw_end(&a->raw[i]);
	assert_int_equal(gn_rpc_client_close(a->honest), 0);
	assert_int_equal(gn_fabric_close(a->fabric), 0);
	victim_stop(&a->victim);
}

static void watch_and_finish(struct attack *a, const char *what)
{
	const uint64_t slowest_ns = watch(a);

	print_message("# %u %s: the slowest honest call took %.1f ms\n", HOSTILE, what,
		      (double)slowest_ns * 1e-6);
	assert_true(slowest_ns < MOST_NS);
	finish(a);
}

/* Each hostile client acknowledges this result, and claims to copy from then on. */
static void ack_and_stay_busy(struct attack *a, uint32_t ack)
{
	hold_thread(a);
	for (unsigned i = 0; i < HOSTILE; i++) {
		assert_int_equal(raw_send(&a->raw[i], ECHO, "", 0, 1, ack), 0);
		say_busy(&a->raw[i]);
	}
}

/* The server closes their connections, for protocol violations, while they copy. */
static void test_ended(void **state)
{
	struct attack a;

	(void)state;
	begin(&a, "stall-end");
	ack_and_stay_busy(&a, 12345);
	watch_and_finish(&a, "connections end while their clients copy");
}

/* They acknowledge large results, so that the server reclaims the memory, while they copy. */
static void test_exported(void **state)
{
	const struct two want = {100000, 3};
	struct attack a;

	(void)state;
	begin(&a, "stall-lent");
	for (unsigned i = 0; i < HOSTILE; i++)
		assert_int_equal(raw_send(&a.raw[i], BLOB, &want, sizeof(want), 1, 0), 0);
	assert_int_equal(call_echo(a.honest, ECHO, 10, 1), 0);
	ack_and_stay_busy(&a, 1);
	watch_and_finish(&a, "clients give memory back and copy on");
}

/* ---- a server with a busy word ---- */

enum { BUSY_SERVER = 1 };

static void stay_busy(struct gn_rpc_request *request, void *arg)
{
	uint64_t *word = &((struct shm_qp *)request->conn->link.qp)->conn.own_area->busy.posting;
	uint32_t len;

	(void)arg;
	gn_rpc_request_data(request, &len);
	__atomic_store_n(word, *word | 1, __ATOMIC_SEQ_CST);
	gn_rpc_answer(request, GN_RPC_OK, &len, sizeof(len));
}

static int serve_busy(const char *addr, int ready, int stop, void *arg)
{
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;

	(void)arg;
	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(gn_rpc_server_create(fabric, addr, NULL, &server) == 0);
	EXPECT(gn_rpc_server_handle(server, BUSY_SERVER, stay_busy, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	victim_wait(ready, stop);
	gn_rpc_server_destroy(server);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

/* Duration of a call with a request of this size. */
static uint64_t call_busy_ns(struct gn_rpc_client *client, uint32_t bytes)
{
	const uint64_t begin_ns = gn_now_ns();
	uint8_t *request = calloc(1, bytes + 1);
	uint32_t got = 0;
	unsigned status;

	assert_non_null(request);
	assert_int_equal(gn_rpc_call(client, BUSY_SERVER, request, bytes, &got, sizeof(got), NULL,
				     gn_deadline_us(200000), &status),
			 0);
	assert_int_equal(status, GN_RPC_OK);
	assert_int_equal(got, bytes);
	free(request);
	return gn_now_ns() - begin_ns;
}

/* A client meets its deadlines whatever its server copies. */
static void test_busy_server(void **state)
{
	const struct gn_rpc_client_opts opts = {
		.size = sizeof(opts), .mode = GN_RPC_FETCH, .timeout_us = 300000};
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;
	struct victim victim;
	uint64_t begin_ns, reconnect_ns, most_ns = 0;
	unsigned refused = 0;
	int status;

	(void)state;
	victim_start(&victim, "stall-server", serve_busy, NULL);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_rpc_client_open(fabric, victim.addr, &opts, &client), 0);
	for (uint32_t bytes = 50000; bytes <= 500000; bytes *= 2) { /* smaller memory is freed */
		const uint64_t ns = call_busy_ns(client, bytes);

		most_ns = ns > most_ns ? ns : most_ns;
	}
	/* A stopped process closes no connection either. */
	assert_int_equal(kill(victim.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(victim.pid, &status, WUNTRACED), victim.pid);
	assert_true(WIFSTOPPED(status));
	begin_ns = gn_now_ns();
	assert_int_equal(gn_rpc_reconnect(client), -ETIMEDOUT);
	reconnect_ns = gn_now_ns() - begin_ns;
	assert_int_equal(kill(victim.pid, SIGCONT), 0);
	print_message(
		"# a server copies for ever: the slowest call took %.1f ms; one that is stopped "
		"too: a reconnection with 300 ms took %.1f ms\n",
		(double)most_ns * 1e-6, (double)reconnect_ns * 1e-6);
	assert_true(most_ns < MOST_NS && reconnect_ns < MOST_NS);
	/* Each closed connection is kept for a second, and at most one beside the next. */
	for (unsigned i = 0; i < 3; i++) {
		const uint64_t until_ns = gn_deadline_us(3000000);
		int rc;

		while ((rc = gn_rpc_reconnect(client)) == -EAGAIN && gn_now_ns() < until_ns) {
			refused++;
			gn_sleep_us(1000);
		}
		assert_int_equal(rc, 0);
		assert_true(client->loop.n_closing <= 1);
		call_busy_ns(client, 50000);
	}
	print_message("# %u reconnections were refused meanwhile\n", refused);
	assert_int_equal(gn_rpc_client_close(client), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
	victim_stop(&victim);
}

/* ---- two connections under which a server copies ---- */

#define COPYING 2u /* connections */

static int accept_one(struct raw_server *s, struct raw_conn *c, const struct gn_event *event,
		      bool copying)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts),
					  .private_data = &c->welcome,
					  .private_len = sizeof(c->welcome)};

	EXPECT(raw_conn_make(s, c, event) == 0);
	EXPECT(gn_accept(event->req, c->qp, &opts) == 0);
	c->up = true;
	if (copying)
		((struct shm_qp *)c->qp)->conn.own_area->busy.posting |= 1;
	return 0;
}

/*
 * Accepts, claims for the first two that it copies, and never notices disconnects. arg: counts them,
 * in memory that the test shares.
 */
static int serve_copying(const char *addr, int ready, int stop, void *arg)
{
	unsigned *claimed = arg;
	struct raw_conn conns[COPYING + 1] = {0};
	struct raw_server server = {0}, blind;
	struct gn_event event;
	struct pollfd end = {.fd = stop, .events = POLLIN};
	unsigned n = 0;

	EXPECT(gn_fabric_open("shm", &server.fabric) == 0);
	EXPECT(raw_server_begin(&server, addr) == 0);
	blind = server;
	EXPECT(gn_chan_create(server.ctx, &blind.chan) == 0);
	EXPECT(write(ready, "", 1) == 1);
	while (!poll(&end, 1, 1)) {
		if (gn_chan_next(server.chan, &event) || event.type != GN_EVENT_CONNECT_REQUEST)
			continue;
		EXPECT(n <= COPYING);
		EXPECT(accept_one(&blind, &conns[n], &event, n < COPYING) == 0);
		n++;
		__atomic_store_n(claimed, n, __ATOMIC_RELEASE);
	}
	for (unsigned i = 0; i < n; i++)
		raw_conn_end(&conns[i]);
	EXPECT(gn_chan_destroy(blind.chan) == 0);
	EXPECT(raw_server_end(&server) == 0);
	EXPECT(gn_fabric_close(server.fabric) == 0);
	return 0;
}

#define COPY_TIME_NS 900000000u /* a copy is taken for over after 1 s */

/* A connection is established before the server claims to copy under it. */
static void await_claims(const unsigned *claimed, unsigned n)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (__atomic_load_n(claimed, __ATOMIC_ACQUIRE) < n) {
		assert_true(gn_now_ns() < deadline_ns);
		gn_sleep_us(100);
	}
}

/*
 * A client cannot connect while its server copies under two earlier connections. It can when those
 * are over, whether anything else is done with the client meanwhile or not.
 */
static void test_reconnect_again(void **state)
{
	const struct gn_rpc_client_opts opts = {.size = sizeof(opts), .mode = GN_RPC_FETCH};
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	uint64_t began_ns, tried_ns;
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;
	struct victim victim;
	unsigned refused = 0, *claimed = mmap(NULL, sizeof(*claimed), PROT_READ | PROT_WRITE,
					      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc;

	(void)state;
	assert_ptr_not_equal(claimed, MAP_FAILED);
	victim_start(&victim, "stall-again", serve_copying, claimed);
	began_ns = gn_now_ns();
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_rpc_client_open(fabric, victim.addr, &opts, &client), 0);
	await_claims(claimed, 1);
	assert_int_equal(gn_rpc_reconnect(client), 0);
	await_claims(claimed, 2);
	rc = gn_rpc_reconnect(client);
	tried_ns = gn_now_ns();
	for (; rc == -EAGAIN && gn_now_ns() < deadline_ns; rc = gn_rpc_reconnect(client)) {
		refused++;
		gn_sleep_us(10000);
	}
	print_message("# a server copies under two connections: refused %u times\n", refused);
	assert_int_equal(rc, 0);
	/* Unless this process got no processor until the copies were over. */
	assert_true(refused || tried_ns - began_ns > COPY_TIME_NS);
	assert_int_equal(gn_rpc_client_close(client), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
	victim_stop(&victim);
	munmap(claimed, sizeof(*claimed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_exported),
		cmocka_unit_test(test_busy_server),
		cmocka_unit_test(test_reconnect_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
