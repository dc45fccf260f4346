/* SPDX-License-Identifier: MIT */
/*
 * Clients that try to keep a polled server awake, which sleeps in an event loop: half a request
 * that is never completed, results that are never acknowledged. The server sleeps anyway, and an
 * honest client is served.
 */
#include <poll.h>

#include "event_loop.h"
#include "rpc_raw.h"

#define HOSTILE	 6u
#define WATCH_US 1000000u
#define CPU_NS	 100000000u /* CPU time of the server meanwhile */

static int serve(const char *addr, int ready, int stop, void *arg)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	struct epoll_event event = {.events = EPOLLIN};
	struct pollfd fd = {.fd = stop, .events = POLLIN};
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	const char byte = 1;
	struct nap n;

	(void)arg;
	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(gn_rpc_server_create(fabric, addr, &opts, &server) == 0);
	EXPECT(gn_rpc_server_handle(server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_handle(server, BLOB, blob, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	nap_open(&n, false);
	EXPECT(nap_add(&n, gn_rpc_server_source(server)) == 0);
	EXPECT(epoll_ctl(n.epoll_fd, EPOLL_CTL_ADD, stop, &event) == 0);
	EXPECT(write(ready, &byte, 1) == 1);
	while (poll(&fd, 1, 0) == 0) {
		while (gn_rpc_server_poll(server) > 0)
			;
		EXPECT(nap(&n, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	}
	nap_close(&n);
	gn_rpc_server_destroy(server);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static uint64_t ran_ns(pid_t pid)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid); /* it has one thread */
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu", &ns), 1);
	fclose(f);
	return ns;
}

/* The beginning of a message, and nothing behind it. */
static int send_half(struct raw_client *r)
{
	const uint64_t seq = rpc_seq(r->welcome.epoch, r->number);

	memcpy(r->buf, &seq, sizeof(seq));
	return raw_write(r,
			 (r->number & (r->welcome.slots - 1)) * rpc_stride(r->welcome.max_request),
			 sizeof(seq));
}

static void attack(const char *name, int (*act)(struct raw_client *r))
{
	struct raw_client raw[HOSTILE] = {0};
	struct gn_rpc_client *honest;
	struct gn_fabric *fabric;
	struct victim victim;
	uint64_t used_ns;

	victim_start(&victim, name, serve, NULL);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	for (unsigned i = 0; i < HOSTILE; i++) {
		raw[i].fabric = fabric;
		assert_int_equal(raw_connect(&raw[i], victim.addr, raw_hello(16)), 0);
		assert_int_equal(act(&raw[i]), 0);
	}
	assert_int_equal(gn_rpc_client_open(fabric, victim.addr, NULL, &honest), 0);
	assert_int_equal(call_echo(honest, ECHO, 100, 1), 0);
	gn_sleep_us(300000); /* until the server knows that they are idle */
	used_ns = ran_ns(victim.pid);
	gn_sleep_us(WATCH_US);
	used_ns = ran_ns(victim.pid) - used_ns;
	print_message("# %s: the server used %.1f ms of the processor in a second\n", name,
		      (double)used_ns * 1e-6);
	assert_true(unit_slow() || used_ns < CPU_NS);
	assert_int_equal(call_echo(honest, ECHO, 100, 2), 0);
	assert_int_equal(gn_rpc_client_close(honest), 0);
	for (unsigned i = 0; i < HOSTILE; i++)
		raw_end(&raw[i]);
	assert_int_equal(gn_fabric_close(fabric), 0);
	victim_stop(&victim);
}

static void test_half(void **state)
{
	(void)state;
	attack("half", send_half);
}

/* Large results, which the server keeps until they are acknowledged. */
static int never_acknowledge(struct raw_client *r)
{
	const struct two want = {100000, 3};

	return raw_send(r, BLOB, &want, sizeof(want), 1, 0);
}

static void test_unacknowledged(void **state)
{
	(void)state;
	attack("unacknowledged", never_acknowledge);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_half),
		cmocka_unit_test(test_unacknowledged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
