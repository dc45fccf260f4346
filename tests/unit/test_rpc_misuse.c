/* SPDX-License-Identifier: MIT */
/*
 * Mistakes of programs that the library tells and survives: a request that is answered twice, and
 * clients and servers that a forked child has inherited.
 */
#include <sys/wait.h>

#include "rpc_world.h"
#include "unit_shm.h"

/* ---- answered twice ---- */

enum { TWICE = 100, TWICE_LATER, TWICE_ROOM, TWICE_MEM };

static unsigned told; /* atomic */

static void count_told(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	if (level == GN_LOG_ERROR && strstr(line, "answered twice"))
		__atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
}

static void twice(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, "one", 3);
	gn_rpc_answer(request, GN_RPC_FAILED, "two", 3);
}

static void twice_room(struct gn_rpc_request *request, void *arg)
{
	uint32_t room;
	char *to = gn_rpc_request_room(request, &room);

	(void)arg;
	if (to && room >= 3)
		memcpy(to, "one", 3);
	gn_rpc_answer(request, GN_RPC_OK, to && room >= 3 ? to : "one", 3);
	if (gn_rpc_request_room(request, &room))
		gn_log(GN_LOG_WARN, "there is room for a request that was answered");
	gn_rpc_answer(request, GN_RPC_FAILED, "two", 3);
}

static void count_released(void *arg)
{
	__atomic_fetch_add((unsigned *)arg, 1, __ATOMIC_RELAXED);
}

struct lender {
	struct gn_mem *mem;
	unsigned released;
};

static void twice_mem(struct gn_rpc_request *request, void *arg)
{
	struct lender *l = arg;

	gn_rpc_answer(request, GN_RPC_OK, "one", 3);
	gn_rpc_answer_mem(request, GN_RPC_OK, l->mem, 0, 3, count_released, &l->released);
}

struct later {
	struct gn_rpc_request *request; /* atomic */
	bool stop;
};

static void put_later(struct gn_rpc_request *request, void *arg)
{
	__atomic_store_n(&((struct later *)arg)->request, request, __ATOMIC_RELEASE);
}

static void answer_twice(void *arg)
{
	struct later *l = arg;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		struct gn_rpc_request *request =
			__atomic_exchange_n(&l->request, NULL, __ATOMIC_ACQ_REL);

		if (request)
			twice(request, NULL);
		gn_sleep_us(50);
	}
}

static void test_answered_twice(void **state)
{
	struct lender lender = {0};
	struct later later = {0};
	struct gn_rpc_client *client;
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	struct gn_thread *thread;
	char addr[UNIT_ADDR], result[8];
	unsigned calls = 0;

	(void)state;
	fabric = unit_shm(addr);
	assert_int_equal(gn_mem_alloc(fabric, GN_PAGE, GN_REMOTE_READ, &lender.mem), 0);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_handle(server, TWICE, twice, NULL), 0);
	assert_int_equal(gn_rpc_server_handle(server, TWICE_ROOM, twice_room, NULL), 0);
	assert_int_equal(gn_rpc_server_handle(server, TWICE_MEM, twice_mem, &lender), 0);
	assert_int_equal(gn_rpc_server_handle(server, TWICE_LATER, put_later, &later), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_thread_start("later", answer_twice, &later, &thread), 0);
	assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &client), 0);
	gn_log_to(count_told, NULL);
	for (unsigned method = TWICE; method <= TWICE_MEM; method++)
		/* The second answer of another thread races with the next call: that is the mistake. */
		for (unsigned i = THREADS_WATCHED && method == TWICE_LATER ? 40 : 0; i < 40;
		     i++, calls++) {
			unsigned status = GN_RPC_FAILED;
			uint32_t len = 0;

			assert_int_equal(gn_rpc_call(client, method, NULL, 0, result,
						     sizeof(result), &len,
						     gn_deadline_us(UNIT_PATIENCE_US), &status),
					 0);
			assert_int_equal(status, GN_RPC_OK);
			assert_true(len == 3 && !memcmp(result, "one", 3));
		}
	__atomic_store_n(&later.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_int_equal(gn_rpc_client_close(client), 0);
	gn_rpc_server_destroy(server);
	gn_log_to(NULL, NULL);
	assert_int_equal(told, calls);
	assert_int_equal(lender.released, 40);
	assert_int_equal(gn_mem_free(lender.mem), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static void answer_once(struct gn_rpc_request *request, void *arg)
{
	*(struct gn_rpc_request **)arg = request;
	gn_rpc_answer(request, GN_RPC_OK, "one", 3);
}

/* A second answer after the result was sent is told, and does not touch the sent result. */
static void test_answered_again(void **state)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_request *request = NULL;
	struct gn_rpc_client *client = NULL;
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	struct flight f;
	char addr[UNIT_ADDR];
	uint32_t room;
	int rc;

	(void)state;
	told = 0;
	fabric = unit_shm(addr);
	assert_int_equal(gn_rpc_server_create(fabric, addr, &opts, &server), 0);
	assert_int_equal(gn_rpc_server_handle(server, TWICE, answer_once, &request), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_rpc_client_open_begin(fabric, addr, NULL, &client), 0);
	do {
		assert_true(gn_rpc_server_poll(server) >= 0);
		rc = gn_rpc_client_open_wait(client, GN_NO_WAIT);
	} while (rc == -EAGAIN && gn_now_ns() < deadline_ns);
	assert_int_equal(rc, 0);
	flight_make(&f, TWICE, 0, 0, deadline_ns);
	assert_int_equal(gn_rpc_submit(client, &f.op), 0);
	assert_int_equal(gn_rpc_flush(client), 0);
	while (!request && gn_now_ns() < deadline_ns)
		assert_true(gn_rpc_server_poll(server) >= 0);
	assert_non_null(request);
	gn_log_to(count_told, NULL);
	assert_null(gn_rpc_request_room(request, &room));
	gn_rpc_answer(request, GN_RPC_FAILED, "two", 3);
	gn_log_to(NULL, NULL);
	while (!f.ended) {
		assert_true(gn_rpc_poll(client) >= 0);
		assert_true(gn_rpc_server_poll(server) >= 0);
	}
	assert_int_equal(f.op.status, GN_RPC_OK);
	assert_true(f.op.result_len == 3 && !memcmp(f.result, "one", 3));
	assert_int_equal(told, 1);
	assert_int_equal(gn_rpc_client_close(client), 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- inherited ---- */

static unsigned inherited;

static void count_inherited(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	if (level == GN_LOG_ERROR && strstr(line, "fork"))
		inherited++;
}

struct parent {
	struct gn_rpc_client *client;
	struct gn_rpc_server *server, *polled;
};

static int child(struct parent *p)
{
	struct gn_rpc_op op = {.method = ECHO};

	gn_log_to(count_inherited, NULL);
	EXPECT(gn_rpc_call(p->client, ECHO, NULL, 0, NULL, 0, NULL, GN_FOREVER, NULL) == -EPERM);
	EXPECT(inherited == 1);
	EXPECT(gn_rpc_submit(p->client, &op) == -EPERM);
	EXPECT(gn_rpc_poll(p->client) == -EPERM);
	EXPECT(gn_rpc_wait(p->client, GN_FOREVER) == -EPERM);
	EXPECT(gn_rpc_client_close(p->client) == -EPERM);
	EXPECT(gn_rpc_server_poll(p->polled) == -EPERM);
	EXPECT(gn_rpc_server_drain(p->server, GN_FOREVER) == -EPERM);
	gn_rpc_server_destroy(p->server); /* is told, and does nothing */
	gn_rpc_server_destroy(p->polled);
	EXPECT(inherited == 9);
	return 0;
}

/* The child may begin anew. */
static int child_begins(const char *addr)
{
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;

	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(gn_rpc_client_open(fabric, addr, NULL, &client) == 0);
	EXPECT(call_echo(client, ECHO, 100, 1) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static int inherits(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_server_opts polled = {.size = sizeof(polled), .flags = GN_RPC_POLLED};
	struct parent p = {.server = w->service.server};
	char addr[UNIT_ADDR];
	int status;
	pid_t pid;

	snprintf(addr, sizeof(addr), "shm:test-polled-%llx", (unsigned long long)gn_random());
	EXPECT(gn_rpc_client_open(fabric, w->addr, NULL, &p.client) == 0);
	EXPECT(gn_rpc_server_create(fabric, addr, &polled, &p.polled) == 0);
	EXPECT(gn_rpc_server_start(p.polled) == 0);
	EXPECT(call_echo(p.client, ECHO, 100, 1) == 0);
	pid = fork();
	if (!pid)
		_exit(child(&p) || child_begins(w->addr));
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	EXPECT(call_echo(p.client, ECHO, 100, 1) == 0); /* all is as it was */
	EXPECT(gn_rpc_client_close(p.client) == 0);
	gn_rpc_server_destroy(p.polled);
	return 0;
}

static void test_inherited(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->program = inherits;
	run_shm(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answered_twice),
		cmocka_unit_test(test_answered_again),
		cmocka_unit_test(test_inherited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
