/* SPDX-License-Identifier: MIT */
/*
 * Lifetimes of datagram calls: done functions that submit and cancel while an epoch or an endpoint
 * ends, peers that the program has not opened, endpoints that are created again, and memory of
 * handlers whose workers are discarded.
 */
#include <malloc.h>

#include "dgram_pair.h"

#define UNREACHABLE "shm:test-dgram-nobody"

static struct gn_dgram_op op_to(struct gn_dgram_peer *peer, void (*done)(struct gn_dgram_op *op),
				void *arg)
{
	return (struct gn_dgram_op){.peer = peer,
				    .method = PAIR_ECHO,
				    .request = "done",
				    .request_len = 4,
				    .done = done,
				    .arg = arg};
}

/* ---- done functions ---- */

struct siblings {
	struct gn_dgram_op ops[3];
	unsigned done;
	int rc[3];
};

static void cancel_siblings(struct gn_dgram_op *op)
{
	struct siblings *s = op->arg;

	s->done++;
	for (unsigned i = 0; i < 3; i++)
		if (&s->ops[i] != op)
			gn_dgram_cancel(&s->ops[i]);
}

/* The first call that ends with its epoch cancels those that wait. */
static void test_cancel_siblings(void **state)
{
	struct pair p = {.hold = NULL};
	struct siblings s = {.done = 0};

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	for (unsigned i = 0; i < 3; i++) {
		s.ops[i] = op_to(p.peer, cancel_siblings, &s);
		assert_int_equal(gn_dgram_submit(&s.ops[i]), 0);
	}
	assert_true(p.peer->session->n_waiting > 0);
	assert_int_equal(gn_dgram_peer_gone(p.peer), 0);
	while (!s.done)
		gn_dgram_wait(p.ep, gn_deadline_us(1000));
	assert_int_equal(s.done, 3);
	assert_int_equal(s.ops[0].status, GN_RPC_PEER_GONE);
	assert_int_equal(s.ops[1].status, GN_RPC_CANCELED);
	assert_int_equal(s.ops[2].status, GN_RPC_CANCELED);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	pair_close(&p);
}

static void submit_again(struct gn_dgram_op *op)
{
	unsigned *n = op->arg;

	if (++*n < 1000000)
		assert_int_equal(gn_dgram_submit(op), 0);
}

/* A done function that submits a call whose deadline has passed does not keep the poll busy. */
static void test_expired_again(void **state)
{
	struct pair p = {.hold = NULL};
	struct gn_dgram_peer *nobody;
	struct gn_dgram_op op;
	unsigned n = 0;

	(void)state;
	pair_open(&p);
	assert_int_equal(gn_dgram_peer_open(p.ep, UNREACHABLE, 0, &nobody), 0);
	op = op_to(nobody, submit_again, &n);
	op.deadline_ns = gn_deadline_us(100);
	assert_int_equal(gn_dgram_submit(&op), 0);
	for (unsigned polls = 0; !n; polls++)
		assert_true(gn_dgram_poll(p.ep) >= 0);
	assert_true(n < 10000);
	n = 1000000;
	while (op.state != DGRAM_OP_ENDED)
		gn_dgram_poll(p.ep);
	pair_close(&p);
}

static void use_siblings(struct gn_dgram_op *op)
{
	struct siblings *s = op->arg;

	for (unsigned i = 0; i < 3; i++) {
		struct gn_dgram_op again = op_to(s->ops[i].peer, NULL, NULL);

		if (&s->ops[i] != op)
			assert_int_equal(gn_dgram_cancel(&s->ops[i]), -ESHUTDOWN);
		assert_int_equal(gn_dgram_submit(&again), -ESHUTDOWN);
	}
	s->done++;
}

/* Peers stay valid until all calls of the endpoint have ended. */
static void test_destroy(void **state)
{
	struct pair p = {.hold = NULL};
	struct siblings s = {.done = 0};

	(void)state;
	pair_open(&p);
	for (unsigned i = 0; i < 3; i++) {
		char addr[64];
		struct gn_dgram_peer *peer;

		snprintf(addr, sizeof(addr), UNREACHABLE "-%u", i);
		assert_int_equal(gn_dgram_peer_open(p.ep, addr, 0, &peer), 0);
		s.ops[i] = op_to(peer, use_siblings, &s);
		assert_int_equal(gn_dgram_submit(&s.ops[i]), 0);
	}
	assert_int_equal(gn_dgram_endpoint_destroy(p.ep), 0);
	p.ep = NULL;
	assert_int_equal(s.done, 3);
	pair_close(&p);
}

static void read_stats(struct gn_dgram_op *op)
{
	struct pair *p = op->arg;
	struct gn_dgram_node_stats stats = {.size = sizeof(stats)};

	assert_int_equal(gn_dgram_node_stats_read(p->node, &stats), 0);
	p->executed = 1000;
}

/* An epoch's end that destroy finds in the inbox: done functions run without the node's lock. */
static void test_destroy_gone(void **state)
{
	struct pair p = {.hold = NULL};
	struct gn_dgram_node_stats stats = {.size = sizeof(stats)};
	struct gn_dgram_op op;

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	op = op_to(p.peer, read_stats, &p);
	assert_int_equal(gn_dgram_submit(&op), 0);
	assert_int_equal(gn_dgram_peer_gone(p.peer), 0);
	do
		assert_int_equal(gn_dgram_node_stats_read(p.node, &stats), 0);
	while (!stats.replaced);
	assert_int_equal(gn_dgram_endpoint_destroy(p.ep), 0);
	p.ep = NULL;
	assert_int_equal(p.executed, 1000);
	assert_int_equal(op.status, GN_RPC_PEER_GONE);
	pair_close(&p);
}

static void yield_in_done(struct gn_dgram_op *op)
{
	*(int *)op->arg = gn_dgram_yield(op->peer->ep);
}

static void cancel_in_worker(void *arg)
{
	struct pair *p = arg;
	int rc = 0;
	struct gn_dgram_op op = op_to(p->peer, yield_in_done, &rc);

	if (!gn_dgram_submit(&op) && !gn_dgram_cancel(&op) && rc == -EDEADLK)
		p->executed = 1000;
}

static void test_yield_in_done(void **state)
{
	struct pair p = {.hold = NULL};

	(void)state;
	pair_open(&p);
	assert_int_equal(gn_dgram_spawn(p.ep, cancel_in_worker, &p), 0);
	assert_int_equal(gn_dgram_run(p.ep, gn_deadline_us(PAIR_LIMIT_US)), 0);
	assert_int_equal(p.executed, 1000);
	pair_close(&p);
}

/* ---- peers ---- */

/* Membership knows that a node is gone which was never reached. */
static void test_never_reached(void **state)
{
	struct pair p = {.hold = NULL};
	struct gn_dgram_peer *nobody;
	struct gn_dgram_op op;
	unsigned n = 0;

	(void)state;
	pair_open(&p);
	assert_int_equal(gn_dgram_peer_open(p.ep, UNREACHABLE, 0, &nobody), 0);
	op = op_to(nobody, pair_count, &n);
	assert_int_equal(gn_dgram_submit(&op), 0);
	for (unsigned i = 0; i < 100; i++)
		pair_poll(&p);
	assert_int_equal(gn_dgram_peer_gone(nobody), 0);
	pair_until(&p, n == 1);
	assert_int_equal(op.status, GN_RPC_PEER_GONE);
	/* A later call waits again. */
	assert_int_equal(gn_dgram_submit(&op), 0);
	op.deadline_ns = gn_deadline_us(20000);
	assert_int_equal(gn_dgram_cancel(&op), 0);
	op.deadline_ns = gn_deadline_us(20000);
	assert_int_equal(gn_dgram_submit(&op), 0);
	pair_until(&p, n == 3);
	assert_int_equal(op.status, GN_RPC_TIMEOUT);
	pair_close(&p);
}

/* Both directions work after an endpoint was created again. */
static void test_created_again(void **state)
{
	struct pair p = {.hold = NULL};
	unsigned status = GN_RPC_PEER_GONE;

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	assert_int_equal(gn_dgram_endpoint_destroy(p.ep), 0);
	assert_int_equal(gn_dgram_endpoint_create(p.node, 0, &p.ep), 0);
	assert_int_equal(gn_dgram_peer_open(p.ep, p.addr, 0, &p.peer), 0);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	assert_int_equal(gn_dgram_endpoint_destroy(p.server_ep), 0);
	assert_int_equal(gn_dgram_endpoint_create(p.server_node, 0, &p.server_ep), 0);
	for (unsigned i = 0; i < 3 && status == GN_RPC_PEER_GONE; i++)
		status = pair_call(&p, 4);
	assert_int_equal(status, GN_RPC_OK);
	pair_close(&p);
}

struct callback {
	struct gn_dgram_op op;
	struct gn_dgram_peer *peer;
	unsigned done, handlers;
	unsigned status[2];
	bool release;
};

static void callback_done(struct gn_dgram_op *op)
{
	struct callback *c = op->arg;

	assert_true(c->done < 2);
	c->status[c->done] = op->status;
	if (!c->done++)
		assert_int_equal(gn_dgram_submit(op), 0);
}

/* Calls its caller, which has no address and does not answer. */
static unsigned callback_start(void *arg, struct gn_dgram_request *request)
{
	struct callback *c = ((struct pair *)arg)->arg;

	c->peer = request->peer;
	c->op = op_to(request->peer, callback_done, c);
	if (gn_dgram_submit(&c->op))
		return GN_RPC_FAILED;
	return GN_RPC_OK;
}

/*
 * The epoch of a peer without an address ends while there is a call to it, and done submits another:
 * the peer object lives until that has ended, too.
 */
static void test_callback(void **state)
{
	struct callback c = {.done = 0};
	struct pair p = {.hold = callback_start, .arg = &c};
	struct gn_dgram_op op;

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	op = op_to(p.peer, NULL, NULL);
	op.method = PAIR_HOLD;
	assert_int_equal(gn_dgram_submit(&op), 0);
	assert_int_equal(gn_dgram_flush(p.ep), 0);
	while (!c.peer)
		gn_dgram_wait(p.server_ep, gn_deadline_us(1000));
	assert_int_equal(gn_dgram_peer_gone(c.peer), 0);
	while (!c.done)
		gn_dgram_wait(p.server_ep, gn_deadline_us(1000));
	assert_int_equal(c.status[0], GN_RPC_PEER_GONE);
	for (struct gn_dgram_peer *f = p.server_ep->free_peers; f; f = f->next_in_hash)
		assert_null(f->session);
	while (c.done < 2)
		gn_dgram_wait(p.server_ep, gn_deadline_us(1000));
	assert_int_equal(c.status[1], GN_RPC_PEER_GONE);
	pair_until(&p, op.state == DGRAM_OP_ENDED);
	/* The caller may learn of the end of the epoch only now. */
	if (pair_call(&p, 4) == GN_RPC_PEER_GONE)
		assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	pair_close(&p);
}

static unsigned hold(void *arg, struct gn_dgram_request *request)
{
	struct callback *c = ((struct pair *)arg)->arg;

	gn_dgram_result(request, GN_DGRAM_BYTES_MAX);
	c->peer = request->peer;
	c->handlers++;
	while (!c->release)
		gn_dgram_yield(request->endpoint);
	assert_string_equal(gn_dgram_peer_addr(request->peer), "");
	c->handlers--;
	return GN_RPC_OK;
}

/* The epoch of a handler's caller ends: the caller's name stays valid until the handler returns. */
static void test_held_peer(void **state)
{
	struct callback c = {.done = 0};
	struct pair p = {.hold = hold, .arg = &c};
	struct gn_dgram_op op;

	(void)state;
	pair_open(&p);
	op = op_to(p.peer, NULL, NULL);
	op.method = PAIR_HOLD;
	assert_int_equal(gn_dgram_submit(&op), 0);
	pair_until(&p, c.handlers == 1);
	assert_int_equal(gn_dgram_peer_gone(c.peer), 0);
	pair_until(&p, op.state == DGRAM_OP_ENDED);
	assert_int_equal(op.status, GN_RPC_PEER_GONE);
	assert_true(p.server_node->n_remotes >= 1);
	c.release = true;
	pair_until(&p, c.handlers == 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
		assert_int_equal(gn_dgram_peer_gone(p.peer), 0);
		pair_until(&p, !p.peer->epoch);
	}
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	assert_true(p.server_node->n_remotes <= 2);
	pair_close(&p);
}

/* ---- memory ---- */

/* Results of handlers whose workers are discarded are freed. */
static void test_discarded(void **state)
{
	const struct mallinfo2 info = mallinfo2();
	const size_t before = info.uordblks + info.hblkhd;
	struct callback c = {.done = 0};
	struct pair p = {.hold = hold, .arg = &c};
	struct gn_dgram_op ops[16];

	(void)state;
	pair_open(&p);
	for (unsigned i = 0; i < 16; i++) {
		ops[i] = op_to(p.peer, NULL, NULL);
		ops[i].method = PAIR_HOLD;
		assert_int_equal(gn_dgram_submit(&ops[i]), 0);
	}
	pair_until(&p, c.handlers == 16);
	pair_close(&p);
	assert_true(mallinfo2().uordblks + mallinfo2().hblkhd < before + 8 * GN_DGRAM_BYTES_MAX);
}

static size_t heap_bytes(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

#define ANSWERS_MAX (64u << 10)

/* 64 calls at the same time with so many bytes of request and result; returns how many are OK. */
static unsigned burst(struct pair *p, unsigned method, uint32_t len)
{
	static uint8_t request[GN_DGRAM_BYTES_MAX], result[GN_DGRAM_BYTES_MAX];
	struct gn_dgram_op ops[GN_DGRAM_SLOTS];
	unsigned n = 0, ok = 0;

	for (unsigned i = 0; i < GN_DGRAM_SLOTS; i++) {
		ops[i] = op_to(p->peer, pair_count, &n);
		ops[i].method = method;
		ops[i].request = request;
		ops[i].result = result;
		ops[i].request_len = ops[i].result_room = len;
		assert_int_equal(gn_dgram_submit(&ops[i]), 0);
	}
	pair_until(p, n == GN_DGRAM_SLOTS);
	for (unsigned i = 0; i < GN_DGRAM_SLOTS; i++) {
		assert_true(ops[i].status == GN_RPC_OK || ops[i].status == GN_RPC_BUSY);
		ok += ops[i].status == GN_RPC_OK;
	}
	return ok;
}

/* max_answer_bytes bounds the memory of kept answers, also of those that were freed since. */
static void test_kept_memory(void **state)
{
	struct pair p = {.opts = {.max_answer_bytes = ANSWERS_MAX}};
	size_t before;

	(void)state;
	pair_open(&p);
	assert_int_equal(burst(&p, PAIR_ECHO, 16), GN_DGRAM_SLOTS);
	before = heap_bytes();
	assert_int_equal(burst(&p, PAIR_ECHO, 80), GN_DGRAM_SLOTS);
	assert_true(burst(&p, PAIR_ECHO, 1025) > 0);
	assert_int_equal(burst(&p, PAIR_ECHO, 16), GN_DGRAM_SLOTS);
	assert_true(burst(&p, PAIR_ECHO, 300) > 0);
	assert_in_range(heap_bytes(), 0, before + ANSWERS_MAX + ANSWERS_MAX / 4);
	assert_int_equal(burst(&p, PAIR_ECHO, 16), GN_DGRAM_SLOTS);
	assert_int_equal(p.server_ep->kept_bytes, 0);
	pair_close(&p);
}

static unsigned echo_in_worker(void *arg, struct gn_dgram_request *request)
{
	struct callback *c = ((struct pair *)arg)->arg;

	c->handlers++;
	while (c->handlers < 3) /* as many as the window allows */
		gn_dgram_yield(request->endpoint);
	return pair_echo(arg, request);
}

/* Workers do not keep the copies of large requests. */
static void test_worker_memory(void **state)
{
	struct callback c = {.done = 0};
	struct pair p = {.hold = echo_in_worker, .arg = &c, .opts = {.max_peer_bytes = 16u << 20}};
	size_t before;

	(void)state;
	pair_open(&p);
	assert_true(burst(&p, PAIR_HOLD, 16) > 0);
	before = heap_bytes();
	c.handlers = 0;
	assert_true(burst(&p, PAIR_HOLD, 128u << 10) > 0);
	assert_true(burst(&p, PAIR_HOLD, 16) > 0);
	assert_in_range(heap_bytes(), 0, before + (200u << 10));
	pair_close(&p);
}

/* ---- a failed qp ---- */

/* A server without calls of its own, whose qp fails twice within a millisecond, is not asleep. */
static void test_reset_asleep(void **state)
{
	struct pair p = {.hold = NULL};
	struct gn_dgram_stats stats = {.size = sizeof(stats)};
	uint64_t since_ns;

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(gn_qp_error(p.server_ep->port.qp), 0);
		p.server_ep->port.broken = true; /* as its completions say */
		since_ns = gn_now_ns();
		if (i == 2)
			p.server_ep->port.reset_ns = since_ns + 1000000;
		gn_dgram_wait(p.server_ep, gn_deadline_us(300000));
		assert_int_equal(gn_dgram_endpoint_stats(p.server_ep, &stats), 0);
		assert_int_equal(stats.resets, i);
		assert_true(p.server_ep->port.reset_ns < since_ns + 200000000);
	}
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	pair_close(&p);
}

/* ---- a peer that is silent ---- */

#define SILENT_US	400000u
#define SILENT_CALLS	40u
#define SILENT_SENT_MAX 100u /* repeats and requests for credits, twice as far apart each time */

static void test_silent_peer(void **state)
{
	struct gn_dgram_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct gn_dgram_op ops[SILENT_CALLS];
	struct pair p = {.executed = 0};
	unsigned n = 0;
	uint64_t end_ns;

	(void)state;
	pair_open(&p);
	assert_int_equal(pair_call(&p, 4), GN_RPC_OK);
	assert_int_equal(gn_dgram_endpoint_stats(p.ep, &before), 0);
	for (unsigned i = 0; i < SILENT_CALLS; i++) {
		ops[i] = op_to(p.peer, pair_count, &n);
		ops[i].request_len = 0;
		assert_int_equal(gn_dgram_submit(&ops[i]), 0);
	}
	end_ns = gn_deadline_us(SILENT_US);
	while (gn_now_ns() < end_ns) /* the server's thread computes meanwhile */
		gn_dgram_wait(p.ep, end_ns);
	assert_int_equal(gn_dgram_endpoint_stats(p.ep, &after), 0);
	assert_int_equal(n, 0);
	assert_in_range(after.sent - before.sent, 1, SILENT_SENT_MAX);
	pair_until(&p, n == SILENT_CALLS);
	for (unsigned i = 0; i < SILENT_CALLS; i++)
		assert_int_equal(ops[i].status, GN_RPC_OK);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cancel_siblings), cmocka_unit_test(test_expired_again),
		cmocka_unit_test(test_destroy),		cmocka_unit_test(test_destroy_gone),
		cmocka_unit_test(test_yield_in_done),	cmocka_unit_test(test_never_reached),
		cmocka_unit_test(test_created_again),	cmocka_unit_test(test_callback),
		cmocka_unit_test(test_held_peer),	cmocka_unit_test(test_discarded),
		cmocka_unit_test(test_reset_asleep),	cmocka_unit_test(test_kept_memory),
		cmocka_unit_test(test_worker_memory),	cmocka_unit_test(test_silent_peer),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
