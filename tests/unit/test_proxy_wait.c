/* SPDX-License-Identifier: MIT */
/*
 * A thread of the proxy that the store's client cannot wake, because gn_source_arm() fails: it
 * neither spins nor misses responses. The proxy is the real one, with a store in this process.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"
#include "unit.h"

#define IDLE_US	   200000u /* longer than a thread takes to be idle */
#define WATCHED_US 300000u
#define ARMS_A_MS  1u /* a thread that spins arms hundreds of times */

struct world {
	struct gn_fabric *fabric;
	char addr[64];
	struct gn_thread *thread; /* of the store */
	struct proxy *proxy;
	int fd;			  /* a client's */
	bool stop, pause, paused; /* atomic */
};

/* ---- gn_source_arm() fails ---- */

static unsigned arms; /* atomic */

int __wrap_gn_source_arm(struct gn_source *source);

int __wrap_gn_source_arm(struct gn_source *source)
{
	(void)source;
	__atomic_fetch_add(&arms, 1, __ATOMIC_RELAXED);
	return -ENOSPC;
}

/* ---- a store that can be paused ---- */

static void serve(void *arg)
{
	const struct gn_kv_server_opts opts = {.size = sizeof(opts), .rpc.flags = GN_RPC_POLLED};
	struct world *w = arg;
	struct gn_kv_server *server;

	assert_int_equal(gn_kv_server_create(w->fabric, w->addr, &opts, &server), 0);
	assert_int_equal(gn_kv_server_start(server), 0);
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		const bool pause = __atomic_load_n(&w->pause, __ATOMIC_ACQUIRE);

		__atomic_store_n(&w->paused, pause, __ATOMIC_RELEASE);
		if (!pause)
			gn_rpc_server_poll(gn_kv_server_rpc(server));
		gn_sleep_us(100);
	}
	gn_kv_server_destroy(server);
}

static void pause_store(struct world *w, bool pause)
{
	__atomic_store_n(&w->pause, pause, __ATOMIC_RELEASE);
	while (__atomic_load_n(&w->paused, __ATOMIC_ACQUIRE) != pause)
		gn_sleep_us(100);
}

static void open_world(struct world *w)
{
	struct proxy_opts opts = {.server = w->addr,
				  .timeout_ms = UNIT_PATIENCE_US / 1000,
				  .memory = PROXY_MEMORY_MIN};
	int fds[2], rc;

	snprintf(w->addr, sizeof(w->addr), "shm:test-proxy-wait-%llx",
		 (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &w->fabric), 0);
	assert_int_equal(gn_thread_start("store", serve, w, &w->thread), 0);
	while ((rc = proxy_create(w->fabric, &opts, &w->proxy)) && proxy_may_retry(rc))
		gn_sleep_us(1000);
	assert_int_equal(rc, 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	assert_true(px_thread_add_conn(&w->proxy->threads[0], fds[1]));
	w->fd = fds[0];
}

static void close_world(struct world *w)
{
	close(w->fd);
	proxy_destroy(w->proxy);
	__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
	gn_thread_join(w->thread);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

/* ---- a client ---- */

static void say(const struct world *w, const char *text)
{
	assert_int_equal(send(w->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void hear(const struct world *w, const char *text)
{
	struct pollfd ready = {.fd = w->fd, .events = POLLIN};
	char got[64] = "";

	assert_int_equal(poll(&ready, 1, UNIT_PATIENCE_US / 1000), 1);
	assert_true(recv(w->fd, got, sizeof(got) - 1, 0) > 0);
	assert_string_equal(got, text);
}

/* It has armed, and not more often than its poll interval allows. */
static void assert_rests(void)
{
	const uint64_t begin_ns = gn_now_ns();
	const unsigned before = __atomic_load_n(&arms, __ATOMIC_RELAXED);
	unsigned more;

	gn_sleep_us(WATCHED_US);
	more = __atomic_load_n(&arms, __ATOMIC_RELAXED) - before;
	assert_in_range(more, 1, (gn_now_ns() - begin_ns) / 1000000u * ARMS_A_MS);
}

static void test_no_wake(void **state)
{
	struct world w = {0};

	(void)state;
	open_world(&w);
	say(&w, "set k 0 0 1\r\nv\r\n");
	hear(&w, "STORED\r\n");
	gn_sleep_us(IDLE_US);
	assert_rests();
	pause_store(&w, true);
	say(&w, "get k\r\n");
	assert_rests();
	pause_store(&w, false);
	hear(&w, "VALUE k 0 1\r\nv\r\nEND\r\n");
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_wake)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
