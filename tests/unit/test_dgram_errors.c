/* SPDX-License-Identifier: MIT */
/*
 * What a program learns of its errors with datagram calls: texts that name the value and its limit,
 * handlers that break their contract, and lines in the log about nodes that are not reached.
 */
#include "dgram_pair.h"

#define EXPECT_TEXT(call, rc, part)                                    \
	do {                                                           \
		assert_int_equal(call, rc);                            \
		if (!strstr(gn_error(), part))                         \
			fail_msg("'%s' lacks '%s'", gn_error(), part); \
	} while (0)

/* ---- arguments ---- */

static void expect_options(struct gn_fabric *fabric, struct gn_dgram_opts opts, const char *part)
{
	struct gn_dgram_node *node = NULL;

	opts.size = sizeof(opts);
	EXPECT_TEXT(gn_dgram_node_create(fabric, NULL, &opts, &node), -EINVAL, part);
	assert_null(node);
}

static void test_options(void **state)
{
	struct gn_dgram_endpoint *ep = NULL;
	struct gn_dgram_opts opts = {.size = sizeof(opts), .threads = 3, .flags = GN_DGRAM_MAPPED};
	struct gn_dgram_node *node;
	struct gn_fabric *fabric;
	struct gn_dgram_peer *peer;

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	expect_options(fabric, (struct gn_dgram_opts){.flags = 0x300}, "0x300");
	expect_options(fabric, (struct gn_dgram_opts){.threads = 65}, "GN_DGRAM_THREADS_MAX (64)");
	expect_options(fabric, (struct gn_dgram_opts){.datagram_bytes = 100},
		       "is 100, less than GN_DGRAM_BYTES_MIN (256)");
	assert_int_equal(gn_dgram_node_create(fabric, NULL, &opts, &node), 0);
	EXPECT_TEXT(gn_dgram_handle(node, 1, pair_echo, NULL, NULL, 6), -EINVAL, "0x6");
	EXPECT_TEXT(gn_dgram_handle(node, 256, pair_echo, NULL, NULL, 0), -EINVAL, "(256)");
	EXPECT_TEXT(gn_dgram_endpoint_create(node, 7, &ep), -EINVAL, "thread 7");
	assert_non_null(strstr(gn_error(), "opts.threads of the node (3)"));
	assert_int_equal(gn_dgram_endpoint_create(node, 2, &ep), 0);
	EXPECT_TEXT(gn_dgram_peer_open(ep, "shm:x", 1, &peer), -EINVAL, "GN_DGRAM_MAPPED");
	EXPECT_TEXT(gn_dgram_peer_open(ep, "shm:x", 64, &peer), -EINVAL, "THREADS_MAX (64)");
	assert_int_equal(gn_dgram_endpoint_destroy(ep), 0);
	assert_int_equal(gn_dgram_node_destroy(node), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static void no_log(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

static void test_addresses(void **state)
{
	struct pair p = {.executed = 0};
	struct gn_dgram_peer *peer = NULL;
	struct gn_dgram_node *node;

	(void)state;
	gn_log_to(no_log, NULL);
	pair_open(&p);
	EXPECT_TEXT(gn_dgram_peer_open(p.server_ep, p.addr, 0, &peer), -EINVAL, "own address");
	EXPECT_TEXT(gn_dgram_peer_open(p.ep, "foo", 0, &peer), -EINVAL, "start with 'shm:'");
	EXPECT_TEXT(gn_dgram_peer_open(p.ep, "verbs:h:1", 0, &peer), -EINVAL, "provider shm");
	EXPECT_TEXT(gn_dgram_peer_open(p.ep, "shm:a/b", 0, &peer), -EINVAL, "is not a name");
	assert_null(peer);
	EXPECT_TEXT(gn_dgram_node_create(p.fabric, "foo", NULL, &node), -EINVAL,
		    "start with 'shm:'");
	assert_int_equal(pair_call(&p, 8), GN_RPC_OK);
	pair_close(&p);
	gn_log_to(NULL, NULL);
}

static void test_calls(void **state)
{
	struct pair p = {.opts = {.calls = 0}};
	struct gn_dgram_op op = {.peer = NULL};

	(void)state;
	pair_open(&p);
	EXPECT_TEXT(gn_dgram_submit(NULL), -EINVAL, "op is NULL");
	EXPECT_TEXT(gn_dgram_submit(&op), -EINVAL, "peer is NULL");
	op = (struct gn_dgram_op){.peer = p.peer, .request_len = 7};
	EXPECT_TEXT(gn_dgram_submit(&op), -EINVAL, "request_len is 7");
	op = (struct gn_dgram_op){.peer = p.peer, .result_room = 9};
	EXPECT_TEXT(gn_dgram_submit(&op), -EINVAL, "result_room is 9");
	op = (struct gn_dgram_op){.peer = p.peer, .method = 300};
	EXPECT_TEXT(gn_dgram_call(&op), -EINVAL, "method 300");
	assert_int_equal(op.status, GN_RPC_CANCELED);
	pair_close(&p);
}

/* ---- waits ---- */

struct waiter {
	struct gn_dgram_endpoint *ep;
	bool stop;
};

static void worker_waits(void *arg)
{
	struct waiter *w = arg;

	EXPECT_TEXT(gn_dgram_wait(w->ep, GN_NO_WAIT), -EDEADLK, "gn_dgram_wait()");
	EXPECT_TEXT(gn_dgram_run(w->ep, GN_NO_WAIT), -EDEADLK, "gn_dgram_run()");
	while (!w->stop)
		gn_dgram_yield(w->ep);
}

static void test_waits(void **state)
{
	struct pair p = {.executed = 0};
	struct waiter w;

	(void)state;
	pair_open(&p);
	w = (struct waiter){.ep = p.ep};
	EXPECT_TEXT(gn_dgram_wait(p.ep, gn_deadline_us(1000)), -ETIMEDOUT, "gn_dgram_wait()");
	assert_int_equal(gn_dgram_spawn(p.ep, worker_waits, &w), 0);
	EXPECT_TEXT(gn_dgram_run(p.ep, gn_deadline_us(1000)), -ETIMEDOUT, "1 workers");
	w.stop = true;
	assert_int_equal(gn_dgram_run(p.ep, gn_deadline_us(PAIR_LIMIT_US)), 0);
	pair_close(&p);
}

/* ---- handlers ---- */

static unsigned lines; /* of the log that are about it */

static void count_handler(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	lines += level == GN_LOG_ERROR && strstr(line, "the handler of method") != NULL;
}

struct ask {
	uint32_t status, result_len; /* result_len UINT32_MAX: one more than there is room for */
};

static unsigned wrong(void *arg, struct gn_dgram_request *request)
{
	struct ask ask;

	(void)arg;
	memcpy(&ask, request->data, sizeof(ask));
	request->result_len = ask.result_len == UINT32_MAX ? request->room + 1 : ask.result_len;
	return ask.status;
}

static unsigned ask_wrong(struct pair *p, unsigned method, struct ask ask, uint32_t *len)
{
	static uint8_t result[8192];
	unsigned n = 0;
	struct gn_dgram_op op = {.peer = p->peer,
				 .method = method,
				 .request = &ask,
				 .request_len = sizeof(ask),
				 .result = result,
				 .result_room = sizeof(result),
				 .done = pair_count,
				 .arg = &n};

	assert_int_equal(gn_dgram_submit(&op), 0);
	pair_until(p, n);
	*len = op.result_len;
	return op.status;
}

static void expect_failed(struct pair *p, unsigned method)
{
	static const unsigned library[] = {GN_RPC_TIMEOUT,   GN_RPC_CANCELED, GN_RPC_PEER_GONE,
					   GN_RPC_NO_METHOD, GN_RPC_TOO_BIG,  65536};
	static const unsigned handlers[] = {GN_RPC_OK,	   GN_RPC_DENIED,     GN_RPC_BUSY,
					    GN_RPC_FAILED, GN_RPC_FAILED + 1, 65535};
	uint32_t len;

	lines = 0;
	assert_int_equal(ask_wrong(p, method, (struct ask){GN_RPC_OK, UINT32_MAX}, &len),
			 GN_RPC_FAILED);
	assert_int_equal(len, 0);
	assert_int_equal(lines, 1);
	for (unsigned i = 0; i < sizeof(library) / sizeof(library[0]); i++)
		assert_int_equal(ask_wrong(p, method, (struct ask){library[i], 4}, &len),
				 GN_RPC_FAILED);
	assert_int_equal(lines, 1); /* a caller cannot fill the log */
	for (unsigned i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		assert_int_equal(ask_wrong(p, method, (struct ask){handlers[i], 4}, &len),
				 handlers[i]);
		assert_int_equal(len, 4);
	}
}

static void test_handlers(void **state)
{
	struct pair p = {.hold = wrong, .polled = wrong};

	(void)state;
	gn_log_to(count_handler, NULL);
	pair_open(&p);
	expect_failed(&p, PAIR_HOLD);
	expect_failed(&p, PAIR_POLLED);
	pair_close(&p);
	gn_log_to(NULL, NULL);
}

static unsigned too_long(void *arg, struct gn_dgram_request *request)
{
	void *result = gn_dgram_result(request, GN_DGRAM_BYTES_MAX + 1);

	(void)arg;
	return !result && strstr(gn_error(), "GN_DGRAM_BYTES_MAX") ? GN_RPC_OK : GN_RPC_FAILED;
}

static unsigned too_many(void *arg, struct gn_dgram_request *request)
{
	void *result = gn_dgram_result(request, GN_DGRAM_BYTES_MAX);

	(void)arg;
	return !result && strstr(gn_error(), "max_answer_bytes") ? GN_RPC_OK : GN_RPC_FAILED;
}

static void test_result(void **state)
{
	struct pair p = {.opts = {.max_answer_bytes = 8192}, .hold = too_many, .polled = too_long};
	struct ask none = {0, 0};
	uint32_t len;

	(void)state;
	pair_open(&p);
	assert_int_equal(ask_wrong(&p, PAIR_HOLD, none, &len), GN_RPC_OK);
	assert_int_equal(ask_wrong(&p, PAIR_POLLED, none, &len), GN_RPC_OK);
	pair_close(&p);
}

/* ---- nodes that are not reached ---- */

static unsigned warnings; /* atomic */

static void count_warnings(void *arg, enum gn_log_level level, const char *line)
{
	const char *part = arg;

	if (level <= GN_LOG_WARN && strstr(line, "dgram: ") && strstr(line, part))
		__atomic_add_fetch(&warnings, 1, __ATOMIC_RELAXED);
}

static unsigned warned(void)
{
	return __atomic_load_n(&warnings, __ATOMIC_RELAXED);
}

/* A call that waits that long for its peer. */
static void call_in_vain(struct pair *p, uint32_t us)
{
	unsigned n = 0;
	struct gn_dgram_op op = {.peer = p->peer,
				 .method = PAIR_ECHO,
				 .deadline_ns = gn_deadline_us(us),
				 .done = pair_count,
				 .arg = &n};

	assert_int_equal(gn_dgram_submit(&op), 0);
	pair_until(p, n);
	assert_int_equal(op.status, GN_RPC_TIMEOUT);
}

static void server_stop(struct pair *p)
{
	assert_int_equal(gn_dgram_endpoint_destroy(p->server_ep), 0);
	p->server_ep = NULL;
	assert_int_equal(gn_dgram_node_destroy(p->server_node), 0);
	p->server_node = NULL;
}

static void server_start(struct pair *p)
{
	assert_int_equal(gn_dgram_node_create(p->fabric, p->addr, &p->opts, &p->server_node), 0);
	assert_int_equal(gn_dgram_handle(p->server_node, PAIR_ECHO, pair_echo, NULL, p, 0), 0);
	assert_int_equal(gn_dgram_endpoint_create(p->server_node, 0, &p->server_ep), 0);
}

static void test_nobody_listens(void **state)
{
	struct pair p = {.executed = 0};

	(void)state;
	warnings = 0;
	gn_log_to(count_warnings, "no server answers at shm:test-dgram-pair-");
	pair_open(&p);
	server_stop(&p);
	call_in_vain(&p, 700000);
	assert_int_equal(warned(), 1);
	call_in_vain(&p, 300000);
	assert_int_equal(warned(), 1);
	server_start(&p);
	assert_int_equal(pair_call(&p, 8), GN_RPC_OK);
	server_stop(&p); /* not reached again: another line */
	call_in_vain(&p, 700000);
	assert_int_equal(warned(), 2);
	server_start(&p);
	pair_close(&p);
	gn_log_to(NULL, NULL);
}

/* A node with fewer endpoints than threads is busy. */
static void test_busy(void **state)
{
	struct pair p = {.opts = {.threads = 2}};
	struct gn_dgram_endpoint *second;

	(void)state;
	warnings = 0;
	gn_log_to(count_warnings, "is busy");
	pair_open(&p);
	call_in_vain(&p, 500000);
	assert_int_equal(warned(), 0); /* it may only be starting */
	call_in_vain(&p, 1200000);
	assert_int_equal(warned(), 1);
	assert_int_equal(gn_dgram_endpoint_create(p.server_node, 1, &second), 0);
	assert_int_equal(pair_call(&p, 8), GN_RPC_OK);
	assert_int_equal(warned(), 1);
	assert_int_equal(gn_dgram_endpoint_destroy(second), 0);
	pair_close(&p);
	gn_log_to(NULL, NULL);
}

/* A node that calls itself by another name of its address is refused, and makes no epoch. */
static void test_own_other_name(void **state)
{
	struct pair p = {.executed = 0};
	struct gn_dgram_node_stats stats = {.size = sizeof(stats)};

	(void)state;
	warnings = 0;
	gn_log_to(count_warnings, "refuses this node");
	pair_open(&p);
	snprintf(p.server_node->addr, sizeof(p.server_node->addr), "shm:test-dgram-other-name");
	assert_int_equal(gn_dgram_peer_open(p.server_ep, p.addr, 0, &p.peer), 0);
	call_in_vain(&p, 1500000);
	assert_int_equal(warned(), 1);
	assert_int_equal(gn_dgram_node_stats_read(p.server_node, &stats), 0);
	assert_int_equal(stats.epochs, 0);
	pair_close(&p);
	gn_log_to(NULL, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),	       cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_calls),	       cmocka_unit_test(test_waits),
		cmocka_unit_test(test_handlers),       cmocka_unit_test(test_result),
		cmocka_unit_test(test_nobody_listens), cmocka_unit_test(test_busy),
		cmocka_unit_test(test_own_other_name),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
