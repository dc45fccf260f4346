/* SPDX-License-Identifier: MIT */
/*
 * Programming errors that the library reports and survives: requests and groups that are answered
 * twice or too late, calls that are prepared and never committed, and clients and servers inherited
 * by a forked child.
 */
#include <sys/wait.h>

#include "error_check.h"
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
		/*
		 * The second answer of another thread races with the next call: that is the error.
		 */
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

/* ---- a polled server and its client, which take turns on one thread ---- */

struct pair {
	struct gn_fabric *fabric;
	struct gn_rpc_server *server;
	struct gn_rpc_client *client;
	uint64_t deadline_ns;
	char addr[UNIT_ADDR];
};

static int pair_connect(struct pair *p)
{
	int rc;

	do {
		assert_true(gn_rpc_server_poll(p->server) >= 0);
		rc = gn_rpc_client_open_wait(p->client, GN_NO_WAIT);
	} while (rc == -EAGAIN && gn_now_ns() < p->deadline_ns);
	return rc;
}

/* The server with a handler for method TWICE: for single calls or for groups. */
static void pair_open(struct pair *p, gn_rpc_handler *fn, gn_rpc_group_handler *group, void *arg)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	const struct gn_rpc_client_opts batches = {.size = sizeof(batches), .batch.entries = 8};

	*p = (struct pair){.deadline_ns = gn_deadline_us(UNIT_PATIENCE_US)};
	p->fabric = unit_shm(p->addr);
	assert_int_equal(gn_rpc_server_create(p->fabric, p->addr, &opts, &p->server), 0);
	if (fn)
		assert_int_equal(gn_rpc_server_handle(p->server, TWICE, fn, arg), 0);
	else
		assert_int_equal(gn_rpc_server_handle_group(p->server, TWICE, group, arg, 0), 0);
	assert_int_equal(gn_rpc_server_start(p->server), 0);
	assert_int_equal(gn_rpc_client_open_begin(p->fabric, p->addr, &batches, &p->client), 0);
	assert_int_equal(pair_connect(p), 0);
}

static void pair_close(struct pair *p)
{
	assert_int_equal(gn_rpc_client_close(p->client), 0);
	gn_rpc_server_destroy(p->server);
	assert_int_equal(gn_fabric_close(p->fabric), 0);
}

/* So many calls, which complete. */
static void pair_call(struct pair *p, struct async_call *f, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		flight_make(&f[i], TWICE, 8, i, p->deadline_ns);
		assert_int_equal(gn_rpc_submit(p->client, &f[i].op), 0);
	}
	assert_int_equal(gn_rpc_flush(p->client), 0);
	for (unsigned i = 0; i < n; i++)
		while (!f[i].ended) {
			assert_true(gn_rpc_poll(p->client) >= 0);
			assert_true(gn_rpc_server_poll(p->server) >= 0);
		}
}

/* A second answer after the result was sent is reported, and does not change the sent result. */
static void test_answered_again(void **state)
{
	struct gn_rpc_request *request = NULL;
	struct async_call f;
	struct pair p;
	uint32_t room;

	(void)state;
	told = 0;
	pair_open(&p, answer_once, NULL, &request);
	flight_make(&f, TWICE, 0, 0, p.deadline_ns);
	assert_int_equal(gn_rpc_submit(p.client, &f.op), 0);
	assert_int_equal(gn_rpc_flush(p.client), 0);
	while (!request && gn_now_ns() < p.deadline_ns)
		assert_true(gn_rpc_server_poll(p.server) >= 0);
	assert_non_null(request);
	gn_log_to(count_told, NULL);
	assert_null(gn_rpc_request_room(request, &room));
	gn_rpc_answer(request, GN_RPC_FAILED, "two", 3);
	CHECK(gn_rpc_request_on_abandon(request, NULL, NULL), -EINVAL, "answered already");
	gn_log_to(NULL, NULL);
	while (!f.ended) {
		assert_true(gn_rpc_poll(p.client) >= 0);
		assert_true(gn_rpc_server_poll(p.server) >= 0);
	}
	assert_int_equal(f.op.status, GN_RPC_OK);
	assert_true(f.op.result_len == 3 && !memcmp(f.result, "one", 3));
	assert_int_equal(told, 1);
	pair_close(&p);
}

/* ---- groups ---- */

#define GROUP_CALLS 6u

static void wrong_group(struct gn_rpc_group *group, void *arg)
{
	struct lender *l = arg;
	const unsigned n = gn_rpc_group_size(group);
	uint8_t *to;

	if (n != GROUP_CALLS) /* all must come in one batch */
		return;
	gn_rpc_group_answer(group, 0, GN_RPC_OK, "one", 3);
	gn_rpc_group_answer(group, 0, GN_RPC_FAILED, "two", 3);
	to = gn_rpc_group_put(group, 1, GN_RPC_OK, 3);
	if (to)
		memcpy(to, "one", 3);
	else /* never in place under the thread sanitizer */
		gn_rpc_group_answer(group, 1, GN_RPC_OK, "one", 3);
	if (gn_rpc_group_put(group, 1, GN_RPC_OK, 3) || gn_rpc_group_room(group, 1, 3))
		gn_log(GN_LOG_WARN, "there is room for a call that was answered");
	gn_rpc_group_answer_mem(group, 1, GN_RPC_OK, l->mem, 0, 3, count_released, &l->released);
	/* Longer than the buffer; of the wrong call; of no call. */
	to = gn_rpc_group_room(group, 2, 3);
	gn_rpc_group_answer(group, 2, GN_RPC_OK, to, 1u << 20);
	to = gn_rpc_group_room(group, 3, GN_RPC_LARGE_MAX + 1);
	gn_rpc_group_answer(group, 3, GN_RPC_OK, to, 0);
	gn_rpc_group_answer(group, n, GN_RPC_OK, NULL, 0);
	gn_rpc_group_answer(group, UINT32_MAX, GN_RPC_OK, NULL, 0);
	gn_rpc_group_answer_mem(group, 4, GN_RPC_OK, l->mem, GN_PAGE, 1, count_released,
				&l->released);
	gn_rpc_group_room(group, 5, 100); /* and not answered */
}

/* Errors of a group's handler are reported, and end only its own calls. */
static void test_wrong_group(void **state)
{
	struct async_call f[GROUP_CALLS];
	struct lender lender = {0};
	struct pair p;

	(void)state;
	told = 0;
	pair_open(&p, NULL, wrong_group, &lender);
	assert_int_equal(gn_mem_alloc(p.fabric, GN_PAGE, GN_REMOTE_READ, &lender.mem), 0);
	gn_log_to(count_told, NULL);
	pair_call(&p, f, GROUP_CALLS);
	gn_log_to(NULL, NULL);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(f[i].op.status, GN_RPC_OK);
		assert_true(f[i].op.result_len == 3 && !memcmp(f[i].result, "one", 3));
	}
	assert_int_equal(f[2].op.status, GN_RPC_FAILED);
	assert_int_equal(f[3].op.status, GN_RPC_TOO_BIG);
	assert_int_equal(f[4].op.status, GN_RPC_TOO_BIG);
	assert_int_equal(f[5].op.status, GN_RPC_FAILED);
	for (unsigned i = 0; i < GROUP_CALLS; i++)
		assert_int_equal(f[i].ended, 1);
	assert_int_equal(told, 5); /* 0, 1, 3 again; n; UINT32_MAX */
	assert_int_equal(lender.released, 2);
	assert_int_equal(gn_mem_free(lender.mem), 0);
	pair_close(&p);
}

struct keeper {
	struct gn_rpc_group *group;
};

static void keep_group(struct gn_rpc_group *group, void *arg)
{
	((struct keeper *)arg)->group = group;
	for (unsigned i = 1; i < gn_rpc_group_size(group); i++)
		gn_rpc_group_answer(group, i, GN_RPC_OK, NULL, 0);
}

/* A group that is used after its handler has returned, and after its client disconnected. */
static void test_kept_group(void **state)
{
	struct gn_rpc_counters count = {.size = sizeof(count), .clients = 1};
	struct keeper keeper = {0};
	struct async_call f[GROUP_CALLS];
	struct lender lender = {0};
	struct pair p;

	(void)state;
	told = 0;
	pair_open(&p, NULL, keep_group, &keeper);
	assert_int_equal(gn_mem_alloc(p.fabric, GN_PAGE, GN_REMOTE_READ, &lender.mem), 0);
	pair_call(&p, f, GROUP_CALLS);
	assert_int_equal(f[0].op.status, GN_RPC_FAILED);
	assert_int_equal(f[GROUP_CALLS - 1].op.status, GN_RPC_OK);
	gn_log_to(count_told, NULL);
	for (unsigned gone = 0; gone < 2; gone++) {
		gn_rpc_group_answer(keeper.group, 0, GN_RPC_OK, "late", 4);
		gn_rpc_group_answer_mem(keeper.group, 0, GN_RPC_OK, lender.mem, 0, 8,
					count_released, &lender.released);
		assert_null(gn_rpc_group_room(keeper.group, 0, 8));
		assert_null(gn_rpc_group_put(keeper.group, 0, GN_RPC_OK, 8));
		assert_int_equal(told, 2 * (gone + 1));
		if (gone)
			break;
		assert_int_equal(gn_rpc_client_close(p.client), 0);
		p.client = NULL;
		while (count.clients && gn_now_ns() < p.deadline_ns) {
			assert_true(gn_rpc_server_poll(p.server) >= 0);
			assert_int_equal(gn_rpc_server_counters(p.server, &count), 0);
		}
		assert_int_equal(count.clients, 0);
		for (unsigned i = 0; i < 1000; i++) /* its memory is freed */
			assert_true(gn_rpc_server_poll(p.server) >= 0);
	}
	gn_log_to(NULL, NULL);
	assert_int_equal(lender.released, 2);
	assert_int_equal(gn_mem_free(lender.mem), 0);
	pair_close(&p);
}

/* ---- methods ---- */

static void no_group(struct gn_rpc_group *group, void *arg)
{
	(void)group, (void)arg;
}

/* An error names the function that was called, and the one cause. */
static void test_handle_errors(void **state)
{
	struct gn_rpc_request *request = NULL;
	struct pair p;

	(void)state;
	CHECK(gn_rpc_server_handle_group(NULL, 1, no_group, NULL, 0), -EINVAL,
	      "gn_rpc_server_handle_group(): server is NULL");
	CHECK(gn_rpc_server_handle(NULL, 1, answer_once, NULL), -EINVAL,
	      "gn_rpc_server_handle(): server is NULL");
	pair_open(&p, answer_once, NULL, &request);
	CHECK(gn_rpc_server_handle_group(p.server, 1, NULL, NULL, 0), -EINVAL,
	      "handle_group(): fn is NULL");
	CHECK(gn_rpc_server_handle_group(p.server, GN_RPC_PING, no_group, NULL, 0), -EINVAL,
	      "handle_group(): method 65280");
	CHECK(gn_rpc_server_handle_group(p.server, 1, no_group, NULL, 1), -EINVAL,
	      "handle_group(): flags 0x1");
	CHECK(gn_rpc_server_handle_group(p.server, 1, no_group, NULL, 0), -EBUSY,
	      "handle_group(): the server has started");
	pair_close(&p);
}

/* ---- prepared calls ---- */

/* Prepared, and then the client is closed, or its server restarts. */
static void test_prepared_then_closed(void **state)
{
	struct gn_rpc_request *request = NULL;
	struct async_call f, other;
	struct pair p;
	void *to;

	(void)state;
	pair_open(&p, answer_once, NULL, &request);
	flight_make(&f, TWICE, 8, 1, p.deadline_ns);
	assert_int_equal(gn_rpc_prepare(p.client, &f.op, &to), 0);
	memset(to, 1, 8);
	CHECK(gn_rpc_client_release(p.client), -EBUSY, "prepared");
	gn_rpc_server_destroy(p.server);
	while (gn_rpc_submit(p.client, (flight_make(&other, TWICE, 0, 0, 0), &other.op)) !=
	       -ENOTCONN)
		assert_true(gn_rpc_poll(p.client) >= 0);
	CHECK(gn_rpc_commit(p.client, &f.op), -ENOTCONN, "broke");
	CHECK(gn_rpc_prepare(p.client, &f.op, &to), -ENOTCONN, "broke");
	CHECK(gn_rpc_reconnect(p.client), -ECONNREFUSED, p.addr);
	CHECK(gn_rpc_commit(p.client, &f.op), -ENOTCONN, "broke");
	assert_int_equal(f.ended, 0);
	assert_int_equal(gn_rpc_client_close(p.client), 0);
	assert_int_equal(gn_fabric_close(p.fabric), 0);
	pair_open(&p, answer_once, NULL, &request);
	assert_int_equal(gn_rpc_prepare(p.client, &f.op, &to), 0);
	pair_close(&p); /* a prepared call has not started, and does not complete */
	assert_int_equal(f.ended, 0);
}

/* ---- a status that is too large ---- */

#define TOO_LARGE 70000u /* 4464 if its high bits are lost */

static void large_status(struct gn_rpc_request *request, void *arg)
{
	struct lender *lender = arg;

	if (lender->mem)
		gn_rpc_answer_mem(request, TOO_LARGE, lender->mem, 0, 8, count_released,
				  &lender->released);
	else
		gn_rpc_answer(request, TOO_LARGE, "no", 2);
	lender->mem = NULL;
}

static void large_status_group(struct gn_rpc_group *group, void *arg)
{
	struct lender *lender = arg;

	for (unsigned i = 0; i < gn_rpc_group_size(group); i++) {
		if (i % 3 == 1)
			gn_rpc_group_answer_mem(group, i, TOO_LARGE, lender->mem, 0, 8,
						count_released, &lender->released);
		else if (i % 3 == 2 || !gn_rpc_group_put(group, i, TOO_LARGE, 0))
			gn_rpc_group_answer(group, i, TOO_LARGE, "no", 2);
	}
}

/* The call completes with GN_RPC_FAILED, not with the truncated status. */
static void test_large_status(void **state)
{
	struct gn_mem *mem;
	struct pair p;

	(void)state;
	for (unsigned group = 0; group < 2; group++) {
		struct lender lender = {0};
		struct async_call f[GROUP_CALLS];

		pair_open(&p, group ? NULL : large_status, large_status_group, &lender);
		assert_int_equal(gn_mem_alloc(p.fabric, GN_PAGE, GN_REMOTE_READ, &mem), 0);
		lender.mem = mem;
		pair_call(&p, f, GROUP_CALLS);
		for (unsigned i = 0; i < GROUP_CALLS; i++)
			assert_int_equal(f[i].op.status, GN_RPC_FAILED);
		assert_int_equal(gn_rpc_client_close(p.client), 0);
		p.client = NULL;
		gn_rpc_server_destroy(p.server);
		p.server = NULL;
		assert_int_equal(gn_mem_free(mem), 0);
		pair_close(&p);
	}
}

/* ---- forked children ---- */

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
	gn_rpc_server_destroy(p->server); /* is reported, and does nothing */
	gn_rpc_server_destroy(p->polled);
	EXPECT(inherited == 9);
	return 0;
}

/* The child may create its own. */
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
	EXPECT(call_echo(p.client, ECHO, 100, 1) == 0); /* nothing has changed */
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
		cmocka_unit_test(test_answered_twice), cmocka_unit_test(test_answered_again),
		cmocka_unit_test(test_wrong_group),    cmocka_unit_test(test_kept_group),
		cmocka_unit_test(test_handle_errors),  cmocka_unit_test(test_prepared_then_closed),
		cmocka_unit_test(test_inherited),      cmocka_unit_test(test_large_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
