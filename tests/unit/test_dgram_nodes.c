/* SPDX-License-Identifier: MIT */
/*
 * Nodes of datagram calls that come and go: goodbyes, eviction of idle ones, threads that a node does
 * not have, handshakes that are refused, and fairness between large and small calls.
 */
#include "dgram_pair.h"

#define MAX_PEERS 4u
#define CALLERS	  20u
#define IDLE_NS	  1100000000ull /* after which an association may be evicted */
#define NOTICE_NS 50000000ull	/* until the node that was evicted knows */

/* A caller without an address. */
struct caller {
	struct gn_dgram_node *node;
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_peer *peer;
};

static void caller_open(struct caller *c, const struct pair *p, uint32_t thread)
{
	assert_int_equal(gn_dgram_node_create(p->fabric, NULL, NULL, &c->node), 0);
	assert_int_equal(gn_dgram_endpoint_create(c->node, 0, &c->ep), 0);
	assert_int_equal(gn_dgram_peer_open(c->ep, p->addr, thread, &c->peer), 0);
}

static void caller_close(struct caller *c)
{
	assert_int_equal(gn_dgram_endpoint_destroy(c->ep), 0);
	assert_int_equal(gn_dgram_node_destroy(c->node), 0);
}

static unsigned caller_call(struct caller *c, struct pair *p, uint64_t deadline_ns)
{
	unsigned n = 0;
	struct gn_dgram_op op = {.peer = c->peer,
				 .method = PAIR_ECHO,
				 .deadline_ns = deadline_ns,
				 .done = pair_count,
				 .arg = &n};

	assert_int_equal(gn_dgram_submit(&op), 0);
	while (!n) {
		assert_true(gn_dgram_poll(c->ep) >= 0);
		pair_poll(p);
	}
	return op.status;
}

static struct gn_dgram_node_stats node_stats(struct gn_dgram_node *node)
{
	struct gn_dgram_node_stats stats = {.size = sizeof(stats)};

	assert_int_equal(gn_dgram_node_stats_read(node, &stats), 0);
	return stats;
}

/* ---- nodes that go ---- */

/* More callers than max_peers, one after the other: each says goodbye. */
static void test_goodbye(void **state)
{
	struct pair p = {.opts = {.max_peers = MAX_PEERS}};

	(void)state;
	pair_open(&p);
	for (unsigned i = 0; i < CALLERS; i++) {
		struct caller c;

		caller_open(&c, &p, 0);
		assert_int_equal(caller_call(&c, &p, gn_deadline_us(PAIR_LIMIT_US)), GN_RPC_OK);
		caller_close(&c);
	}
	assert_in_range(node_stats(p.server_node).nodes, 0, MAX_PEERS);
	pair_close(&p);
}

/* A server that goes ends the calls to it at once, however long check_us is. */
static void test_goodbye_of_server(void **state)
{
	struct pair p = {.hold = NULL};
	struct gn_dgram_node *caller_node;
	struct gn_dgram_opts slow = {.size = sizeof(slow), .check_us = 60000000};
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_peer *peer;
	struct gn_dgram_op op = {.method = PAIR_ECHO};
	unsigned n = 0;
	char addr[80];

	(void)state;
	pair_open(&p);
	snprintf(addr, sizeof(addr), "%s-caller", p.addr);
	assert_int_equal(gn_dgram_node_create(p.fabric, addr, &slow, &caller_node), 0);
	assert_int_equal(gn_dgram_endpoint_create(caller_node, 0, &ep), 0);
	assert_int_equal(gn_dgram_peer_open(ep, p.addr, 0, &peer), 0);
	op = (struct gn_dgram_op){.peer = peer, .method = PAIR_ECHO, .done = pair_count, .arg = &n};
	assert_int_equal(gn_dgram_submit(&op), 0);
	while (!n) {
		gn_dgram_poll(ep);
		pair_poll(&p);
	}
	assert_int_equal(op.status, GN_RPC_OK);
	assert_int_equal(gn_dgram_submit(&op), 0);
	gn_dgram_poll(ep);
	assert_int_equal(gn_dgram_endpoint_destroy(p.server_ep), 0);
	assert_int_equal(gn_dgram_node_destroy(p.server_node), 0);
	p.server_ep = NULL;
	p.server_node = NULL;
	while (n < 2)
		assert_true(gn_dgram_wait(ep, gn_deadline_us(PAIR_LIMIT_US)) >= 0);
	assert_int_equal(op.status, GN_RPC_PEER_GONE);
	assert_int_equal(gn_dgram_endpoint_destroy(ep), 0);
	assert_int_equal(gn_dgram_node_destroy(caller_node), 0);
	pair_close(&p);
}

/* ---- eviction ---- */

static void callers_poll(struct caller *c, unsigned n, struct pair *p, uint64_t ns)
{
	const uint64_t until_ns = gn_now_ns() + ns;

	while (gn_now_ns() < until_ns)
		for (unsigned i = 0; i < n; i++) {
			assert_true(gn_dgram_poll(c[i].ep) >= 0);
			pair_poll(p);
		}
}

/*
 * The server knows as many nodes as it may. A further one takes the place of one that is idle, which
 * notices nothing but a new epoch. A node that the server's program has named stays.
 */
static void test_evict_idle(void **state)
{
	struct pair p = {.opts = {.max_peers = MAX_PEERS}};
	struct caller c[MAX_PEERS];
	struct gn_dgram_peer *named;
	struct pair other = {.hold = NULL};
	struct gn_dgram_op op;
	unsigned n = 0;
	uint64_t epoch;

	(void)state;
	pair_open(&p);
	pair_open(&other);
	assert_int_equal(gn_dgram_peer_open(p.server_ep, other.addr, 0, &named), 0);
	op = (struct gn_dgram_op){
		.peer = named, .method = PAIR_ECHO, .done = pair_count, .arg = &n};
	assert_int_equal(gn_dgram_submit(&op), 0);
	while (!n) {
		pair_poll(&p);
		pair_poll(&other);
	}
	assert_int_equal(op.status, GN_RPC_OK);
	epoch = gn_dgram_peer_epoch(named);
	for (unsigned i = 0; i < MAX_PEERS - 1; i++) {
		caller_open(&c[i], &p, 0);
		assert_int_equal(caller_call(&c[i], &p, gn_deadline_us(PAIR_LIMIT_US)), GN_RPC_OK);
	}
	callers_poll(c, MAX_PEERS - 1, &p, IDLE_NS);
	caller_open(&c[MAX_PEERS - 1], &p, 0);
	assert_int_equal(caller_call(&c[MAX_PEERS - 1], &p, gn_deadline_us(PAIR_LIMIT_US)),
			 GN_RPC_OK);
	callers_poll(c, MAX_PEERS, &p, IDLE_NS); /* the newest one is idle, too */
	for (unsigned i = 0; i < MAX_PEERS; i++) {
		assert_int_equal(caller_call(&c[i], &p, gn_deadline_us(PAIR_LIMIT_US)), GN_RPC_OK);
		callers_poll(c, MAX_PEERS, &p, NOTICE_NS);
	}
	assert_true(gn_dgram_peer_epoch(named) == epoch);
	for (unsigned i = 0; i < MAX_PEERS; i++)
		caller_close(&c[i]);
	pair_close(&p);
	pair_close(&other);
}

/* ---- handshakes ---- */

/* Calls to a thread that the node does not have end at once, the first and later ones. */
static void test_no_such_thread(void **state)
{
	struct pair p = {.hold = NULL};
	struct caller c;

	(void)state;
	pair_open(&p);
	caller_open(&c, &p, 5);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(caller_call(&c, &p, gn_deadline_us(PAIR_LIMIT_US)),
				 GN_RPC_NO_METHOD);
	assert_int_equal(p.executed, 0);
	caller_close(&c);
	pair_close(&p);
}

/* A node that is not ready is asked again less and less often. */
static void test_busy_node(void **state)
{
	struct pair p = {.opts = {.threads = 2}}; /* and one endpoint */
	struct caller c;

	(void)state;
	pair_open(&p);
	caller_open(&c, &p, 0);
	assert_int_equal(caller_call(&c, &p, gn_deadline_us(300000)), GN_RPC_TIMEOUT);
	assert_in_range(node_stats(c.node).attempts, 1, 12);
	assert_int_equal(
		gn_dgram_endpoint_create(p.server_node, 1, &(struct gn_dgram_endpoint *){NULL}), 0);
	assert_int_equal(caller_call(&c, &p, gn_deadline_us(PAIR_LIMIT_US)), GN_RPC_OK);
	caller_close(&c);
	assert_int_equal(gn_dgram_endpoint_destroy(p.server_node->endpoints[1]), 0);
	pair_close(&p);
}

/* ---- large and small calls ---- */

#define SMALL_OPS 15u

struct load {
	struct gn_dgram_op small[SMALL_OPS];
	unsigned ended;
	bool stop;
};

static void small_again(struct gn_dgram_op *op)
{
	struct load *load = op->arg;

	load->ended++;
	if (!load->stop)
		assert_int_equal(gn_dgram_submit(op), 0);
}

/*
 * An endpoint with few receives, all of them in use by small calls that never cease: a call with a
 * large result to another node gets its turn.
 */
static void test_large_among_small(void **state)
{
	static uint8_t result[GN_DGRAM_BYTES_MAX], request[64 << 10];
	const struct gn_dgram_opts few = {.size = sizeof(few), .receives = 64, .calls = 16};
	struct pair p = {.hold = NULL}, other = {.hold = NULL};
	struct gn_dgram_peer *near, *far;
	struct load load = {.ended = 0};
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_node *node;
	unsigned n = 0, before;
	struct gn_dgram_op op;

	(void)state;
	pair_open(&p);
	pair_open(&other);
	assert_int_equal(gn_dgram_node_create(p.fabric, NULL, &few, &node), 0);
	assert_int_equal(gn_dgram_endpoint_create(node, 0, &ep), 0);
	assert_int_equal(gn_dgram_peer_open(ep, p.addr, 0, &near), 0);
	assert_int_equal(gn_dgram_peer_open(ep, other.addr, 0, &far), 0);
	for (unsigned i = 0; i < SMALL_OPS; i++) {
		load.small[i] = (struct gn_dgram_op){
			.peer = near, .method = PAIR_ECHO, .done = small_again, .arg = &load};
		assert_int_equal(gn_dgram_submit(&load.small[i]), 0);
	}
	while (load.ended < 1000) {
		gn_dgram_poll(ep);
		pair_poll(&p);
	}
	op = (struct gn_dgram_op){.peer = far,
				  .method = PAIR_ECHO,
				  .request = request,
				  .request_len = sizeof(request),
				  .result = result,
				  .result_room = sizeof(result),
				  .deadline_ns = gn_deadline_us(PAIR_LIMIT_US),
				  .done = pair_count,
				  .arg = &n};
	before = load.ended;
	assert_int_equal(gn_dgram_submit(&op), 0);
	while (!n) {
		gn_dgram_poll(ep);
		pair_poll(&p);
		pair_poll(&other);
	}
	assert_int_equal(op.status, GN_RPC_OK);
	assert_in_range(load.ended - before, 1, UINT32_MAX);
	load.stop = true;
	while (ep->n_ops)
		gn_dgram_poll(ep), pair_poll(&p);
	assert_int_equal(gn_dgram_endpoint_destroy(ep), 0);
	assert_int_equal(gn_dgram_node_destroy(node), 0);
	pair_close(&p);
	pair_close(&other);
}

/* ---- results and cancels ---- */

#define FIRST_BYTES 20000u

/* A second gn_dgram_result() that fails leaves the first buffer as it is. */
static unsigned hold_results(void *arg, struct gn_dgram_request *request)
{
	uint8_t *first = gn_dgram_result(request, FIRST_BYTES);

	(void)arg;
	if (!first)
		return GN_RPC_FAILED;
	memset(first, 7, FIRST_BYTES);
	if (gn_dgram_result(request, GN_DGRAM_BYTES_MAX + 1) || request->result != first ||
	    request->room < FIRST_BYTES)
		return GN_RPC_DENIED;
	request->result_len = FIRST_BYTES;
	return GN_RPC_OK;
}

static void test_second_result(void **state)
{
	static uint8_t result[FIRST_BYTES];
	struct pair p = {.hold = hold_results};
	unsigned n = 0;
	struct gn_dgram_op op;

	(void)state;
	pair_open(&p);
	op = (struct gn_dgram_op){.peer = p.peer,
				  .method = PAIR_HOLD,
				  .result = result,
				  .result_room = sizeof(result),
				  .done = pair_count,
				  .arg = &n};
	assert_int_equal(gn_dgram_submit(&op), 0);
	pair_until(&p, n);
	assert_int_equal(op.status, GN_RPC_OK);
	assert_int_equal(op.result_len, FIRST_BYTES);
	for (unsigned i = 0; i < FIRST_BYTES; i++)
		assert_int_equal(result[i], 7);
	pair_close(&p);
}

/* An op that was never submitted, whatever its private members are, or that has ended. */
static void test_cancel_nothing(void **state)
{
	struct pair p = {.hold = NULL};
	struct gn_dgram_op op, held = {.method = PAIR_ECHO};
	unsigned n = 0;

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	held = (struct gn_dgram_op){
		.peer = p.peer, .method = PAIR_ECHO, .done = pair_count, .arg = &n};
	assert_int_equal(gn_dgram_submit(&held), 0);
	for (unsigned byte = 0; byte < 256; byte++) {
		memset(&op, (int)byte, sizeof(op));
		op.peer = p.peer;
		op.slot = (uint16_t)(byte % 2 ? held.slot : op.slot);
		op.state = (uint8_t)(byte % (DGRAM_OP_ENDED + 2));
		assert_int_equal(gn_dgram_cancel(&op), -ESRCH);
	}
	assert_int_equal(n, 0);
	pair_until(&p, n);
	assert_int_equal(held.status, GN_RPC_OK);
	assert_int_equal(gn_dgram_cancel(&held), -ESRCH);
	pair_close(&p);
}

/* ---- counters ---- */

struct reader {
	struct pair *p;
	bool stop; /* atomic */
};

static void read_counters(void *arg)
{
	struct reader *r = arg;
	struct gn_dgram_stats stats = {.size = sizeof(stats)};

	while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
		assert_int_equal(gn_dgram_endpoint_stats(r->p->ep, &stats), 0);
		assert_int_equal(gn_dgram_endpoint_stats(r->p->server_ep, &stats), 0);
		node_stats(r->p->server_node);
		gn_sleep_us(20);
	}
}

/* Any thread may read them; the thread sanitizer looks. */
static void test_counters(void **state)
{
	struct pair p = {.hold = NULL};
	struct reader r = {.p = &p};
	struct gn_thread *thread;

	(void)state;
	pair_open(&p);
	assert_int_equal(gn_thread_start("reader", read_counters, &r, &thread), 0);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(pair_call(&p, i % 8 ? 100 : 30000), GN_RPC_OK);
	for (unsigned i = 0; i < 3; i++) {
		struct caller c;

		caller_open(&c, &p, 0);
		assert_int_equal(caller_call(&c, &p, gn_deadline_us(PAIR_LIMIT_US)), GN_RPC_OK);
		caller_close(&c);
	}
	__atomic_store_n(&r.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_join(thread), 0);
	pair_close(&p);
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goodbye),	      cmocka_unit_test(test_goodbye_of_server),
		cmocka_unit_test(test_evict_idle),    cmocka_unit_test(test_no_such_thread),
		cmocka_unit_test(test_busy_node),     cmocka_unit_test(test_large_among_small),
		cmocka_unit_test(test_second_result), cmocka_unit_test(test_cancel_nothing),
		cmocka_unit_test(test_counters),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
