/* SPDX-License-Identifier: MIT */
/*
 * Hellos of nodes that are not what they say, or vanish: addresses of others, addresses where nobody
 * is, floods of them, handshakes that never end, restarts, and more nodes than max_peers that are
 * killed. All of it over shared memory, with the nodes' endpoints in one thread.
 */
#include "dgram_raw.h"

#include "dgram_pair.h"

#define FAST_NS	   1000000000ull
#define KILLED	   12u
#define MAX_PEERS  8u
#define FLOOD	   120u
#define FLOOD_RATE 20u /* verifications of one address in 200 ms */

/* ---- nodes ---- */

struct host {
	char addr[64];
	struct gn_dgram_node *node;
	struct gn_dgram_endpoint *ep;
	unsigned executed;
	char from[GN_DGRAM_ADDR_MAX]; /* the last caller's address */
};

static struct gn_fabric *fabric;

static unsigned host_handle(void *arg, struct gn_dgram_request *request)
{
	struct host *h = arg;

	h->executed++;
	snprintf(h->from, sizeof(h->from), "%s", gn_dgram_peer_addr(request->peer));
	return GN_RPC_OK;
}

static void host_start(struct host *h, const struct gn_dgram_opts *opts)
{
	assert_int_equal(gn_dgram_node_create(fabric, h->addr, opts, &h->node), 0);
	assert_int_equal(gn_dgram_handle(h->node, ECHO, host_handle, NULL, h, 0), 0);
	assert_int_equal(gn_dgram_endpoint_create(h->node, 0, &h->ep), 0);
}

static void host_open(struct host *h, const struct gn_dgram_opts *opts)
{
	*h = (struct host){.executed = 0};
	snprintf(h->addr, sizeof(h->addr), "shm:test-dgram-%llx", (unsigned long long)gn_random());
	host_start(h, opts);
}

static void host_close(struct host *h)
{
	assert_int_equal(gn_dgram_endpoint_destroy(h->ep), 0);
	assert_int_equal(gn_dgram_node_destroy(h->node), 0);
}

/* As if it was killed: nobody is told. */
static void host_kill(struct host *h)
{
	assert_int_equal(gn_dgram_endpoint_destroy(h->ep), 0);
	gn_mutex_lock(&h->node->lock);
	for (struct dgram_assoc *a = h->node->assocs; a; a = a->next)
		a->bye = true;
	gn_mutex_unlock(&h->node->lock);
	assert_int_equal(gn_dgram_node_destroy(h->node), 0);
}

static struct gn_dgram_peer *host_peer(struct host *h, const char *addr)
{
	struct gn_dgram_peer *peer;

	assert_int_equal(gn_dgram_peer_open(h->ep, addr, 0, &peer), 0);
	return peer;
}

static void poll_both(struct host *a, struct host *b)
{
	assert_true(gn_dgram_poll(a->ep) >= 0);
	if (b)
		assert_true(gn_dgram_poll(b->ep) >= 0);
}

/* Calls ECHO while both nodes are polled; other may be NULL. Returns the status. */
static unsigned host_call(struct host *h, struct gn_dgram_peer *peer, struct host *other,
			  uint64_t deadline_us)
{
	unsigned n = 0;
	struct gn_dgram_op op = {.peer = peer,
				 .method = ECHO,
				 .deadline_ns = gn_deadline_us(deadline_us),
				 .done = pair_count,
				 .arg = &n};

	assert_int_equal(gn_dgram_submit(&op), 0);
	while (!n)
		poll_both(h, other);
	return op.status;
}

static struct gn_dgram_node_stats host_stats(const struct host *h)
{
	struct gn_dgram_node_stats stats = {.size = sizeof(stats)};

	assert_int_equal(gn_dgram_node_stats_read(h->node, &stats), 0);
	return stats;
}

/* A hello at h that names addr; the kind of the reply. */
static uint32_t raw_claim(struct raw *raw, const struct host *h, const char *addr)
{
	assert_int_equal(raw_make(raw, fabric), 0);
	snprintf(raw->hello.addr, sizeof(raw->hello.addr), "%s", addr);
	assert_int_equal(raw_greet(raw, h->addr, DGRAM_HELLO_BYTES(1)), 0);
	return raw->reply.kind;
}

/* A request of a raw peer whose hello was accepted. */
static void raw_request(struct raw *raw)
{
	const struct dgram_msg msg = {.type = DGRAM_REQUEST, .code = ECHO};

	assert_int_equal(gn_ah_create(raw->ud, &raw->reply.thread[0], &raw->ah), 0);
	raw->head = (struct dgram_head){.version = DGRAM_VERSION,
					.count = 1,
					.peer = DGRAM_PEER(raw->reply.index, 0),
					.epoch = dgram_epoch(raw->hello.random, raw->reply.random),
					.granted = DGRAM_GRANT_MIN};
	assert_int_equal(raw_say(raw, &msg, NULL), 0);
}

/* ---- addresses of others ---- */

/* A hello that names the address of a node that is there ends nothing, and gets no calls. */
static void test_false_address(void **state)
{
	struct host a, x;
	struct gn_dgram_peer *to_x, *to_a;
	uint64_t epoch;
	struct raw raw;

	(void)state;
	host_open(&a, NULL);
	host_open(&x, NULL);
	to_a = host_peer(&x, a.addr);
	assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	assert_string_equal(a.from, x.addr);
	epoch = gn_dgram_peer_epoch(to_a);
	assert_int_equal(raw_claim(&raw, &a, x.addr), DGRAM_HELLO_REFUSED);
	raw_free(&raw);
	assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	assert_true(gn_dgram_peer_epoch(to_a) == epoch);
	to_x = host_peer(&a, x.addr);
	assert_int_equal(host_call(&a, to_x, &x, PAIR_LIMIT_US), GN_RPC_OK);
	assert_int_equal(x.executed, 1);
	assert_int_equal(a.executed, 2);
	host_close(&a);
	host_close(&x);
}

/* Nobody is at the address: its sender is answered, but has no address and gets no calls to it. */
static void test_nobody_there(void **state)
{
	struct gn_dgram_peer *nobody;
	struct host a;
	struct raw raw;
	struct gn_wc wc;

	(void)state;
	host_open(&a, NULL);
	assert_int_equal(raw_claim(&raw, &a, "shm:test-dgram-nobody"), DGRAM_HELLO_OK);
	assert_int_equal(gn_post_recv(raw.ud,
				      &(struct gn_recv_wr){
					      .sge = &(struct gn_sge){raw_at(&raw, RAW_IN), 4200,
								      gn_mr_lkey(raw.ep.mr)},
					      .n_sge = 1},
				      NULL),
			 0);
	raw_request(&raw);
	while (!a.executed)
		poll_both(&a, NULL);
	assert_string_equal(a.from, "");
	assert_int_equal(raw_await(&raw, raw.ud, GN_OP_RECV, &wc), 0);
	nobody = host_peer(&a, "shm:test-dgram-nobody");
	assert_int_equal(host_call(&a, nobody, NULL, 50000), GN_RPC_TIMEOUT);
	assert_true(gn_dgram_peer_epoch(nobody) == 0);
	raw_free(&raw);
	host_close(&a);
}

/* A flood of false hellos: the node at the address is asked a bounded number of times. */
static void test_flood(void **state)
{
	const uint64_t since_ns = gn_now_ns();
	struct host a, x;
	uint64_t checks, windows;
	struct raw raw;

	(void)state;
	host_open(&a, NULL);
	host_open(&x, NULL);
	for (unsigned i = 0; i < FLOOD; i++) {
		raw_claim(&raw, &a, x.addr);
		raw_free(&raw);
	}
	checks = host_stats(&a).checks;
	windows = (gn_now_ns() - since_ns) / 200000000u + 1;
	assert_in_range(checks, 1, windows * FLOOD_RATE);
	assert_int_equal(host_call(&x, host_peer(&x, a.addr), &a, PAIR_LIMIT_US), GN_RPC_OK);
	assert_int_equal(host_call(&a, host_peer(&a, x.addr), &x, PAIR_LIMIT_US), GN_RPC_OK);
	assert_int_equal(x.executed, 1);
	host_close(&a);
	host_close(&x);
}

/* ---- restarts ---- */

/*
 * A node that was killed and comes again ends its old epochs with its first hello, long before it
 * would be asked, although the hello has a lower number than those of its earlier life.
 */
static void test_killed_node(void **state)
{
	const struct gn_dgram_opts slow = {.size = sizeof(slow), .check_us = 60000000};
	struct gn_dgram_peer *to_x, *to_a;
	struct gn_dgram_op op;
	struct host a, x;
	uint64_t epoch, since_ns;
	unsigned n = 0;

	(void)state;
	host_open(&a, &slow);
	host_open(&x, NULL);
	to_a = host_peer(&x, a.addr);
	assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	for (unsigned i = 0; i < 5; i++) {
		epoch = gn_dgram_peer_epoch(to_a);
		assert_int_equal(gn_dgram_peer_gone(to_a), 0);
		while (gn_dgram_peer_epoch(to_a) == epoch)
			poll_both(&x, &a);
		assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	}
	to_x = host_peer(&a, x.addr);
	assert_int_equal(host_call(&a, to_x, &x, PAIR_LIMIT_US), GN_RPC_OK);
	host_kill(&x);
	op = (struct gn_dgram_op){.peer = to_x, .method = ECHO, .done = pair_count, .arg = &n};
	assert_int_equal(gn_dgram_submit(&op), 0);
	poll_both(&a, NULL);
	host_start(&x, NULL);
	since_ns = gn_now_ns();
	to_a = host_peer(&x, a.addr);
	assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	while (!n)
		poll_both(&a, &x);
	assert_int_equal(op.status, GN_RPC_PEER_GONE);
	if (!unit_slow())
		assert_in_range(gn_now_ns() - since_ns, 0, FAST_NS);
	assert_int_equal(host_stats(&x).attempts, 1);
	assert_int_equal(host_call(&a, to_x, &x, PAIR_LIMIT_US), GN_RPC_OK);
	host_close(&a);
	host_close(&x);
}

/* ---- more nodes than max_peers ---- */

/* Raw peers call and vanish: a node that comes later is served nevertheless. */
static void test_killed_callers(void **state)
{
	const struct gn_dgram_opts few = {.size = sizeof(few), .max_peers = MAX_PEERS};
	unsigned joined = 0;
	struct host a, x;

	(void)state;
	host_open(&a, &few);
	host_open(&x, NULL);
	for (unsigned i = 0; i < KILLED; i++) {
		struct raw raw;

		if (raw_claim(&raw, &a, "") == DGRAM_HELLO_OK) {
			raw_request(&raw);
			joined++;
			while (a.executed < joined)
				poll_both(&a, NULL);
		}
		raw_free(&raw);
	}
	assert_in_range(joined, 1, MAX_PEERS);
	assert_int_equal(host_call(&x, host_peer(&x, a.addr), &a, PAIR_LIMIT_US), GN_RPC_OK);
	assert_in_range(host_stats(&a).nodes, 1, MAX_PEERS);
	host_close(&a);
	host_close(&x);
}

/* A peer that says that its epoch has ended ends its own, and no other. */
static void test_says_gone(void **state)
{
	struct gn_dgram_peer *to_a;
	struct host a, x;
	uint64_t epoch;
	struct raw raw;

	(void)state;
	host_open(&a, NULL);
	host_open(&x, NULL);
	to_a = host_peer(&x, a.addr);
	assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	epoch = gn_dgram_peer_epoch(to_a);
	assert_int_equal(raw_claim(&raw, &a, ""), DGRAM_HELLO_OK);
	assert_int_equal(host_stats(&a).nodes, 2);
	raw_request(&raw);
	raw.head.flags = DGRAM_GONE;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(
			raw_say(&raw, &(struct dgram_msg){.type = DGRAM_CANCEL, .number = i}, NULL),
			0);
	while (host_stats(&a).replaced == 0)
		poll_both(&a, &x);
	assert_int_equal(host_call(&x, to_a, &a, PAIR_LIMIT_US), GN_RPC_OK);
	assert_true(gn_dgram_peer_epoch(to_a) == epoch);
	assert_int_equal(host_stats(&a).replaced, 1);
	raw_free(&raw);
	host_close(&a);
	host_close(&x);
}

/* ---- handshakes that never end ---- */

/* They take what they can get; the node can connect to others nevertheless. */
static void test_own_share(void **state)
{
	const struct gn_dgram_opts few = {.size = sizeof(few), .max_handshakes = 8};
	const struct gn_conn_opts conn = {.size = sizeof(conn)};
	static struct raw raw[16];
	struct host a, x;

	(void)state;
	host_open(&a, &few);
	host_open(&x, NULL);
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(raw_make(&raw[i], fabric), 0);
		gn_connect_wait(raw[i].ep.qp, a.addr, &conn, NULL);
	}
	assert_int_equal(host_call(&a, host_peer(&a, x.addr), &x, 500000), GN_RPC_OK);
	for (unsigned i = 0; i < 16; i++)
		raw_free(&raw[i]);
	host_close(&a);
	host_close(&x);
}

static int setup(void **state)
{
	(void)state;
	gn_log_to(fuzz_be_silent, NULL);
	return gn_fabric_open("shm", &fabric);
}

static int teardown(void **state)
{
	(void)state;
	gn_log_to(NULL, NULL);
	return gn_fabric_close(fabric);
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_false_address),  cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_flood),	       cmocka_unit_test(test_killed_node),
		cmocka_unit_test(test_killed_callers), cmocka_unit_test(test_own_share),
		cmocka_unit_test(test_says_gone),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, setup, teardown);
}
