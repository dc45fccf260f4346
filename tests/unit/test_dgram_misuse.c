/* SPDX-License-Identifier: MIT */
/*
 * Programming errors that datagram calls report and survive: NULLs and wrong values, other threads,
 * handlers and done functions that wait, ops that are used twice, peers of another endpoint, and
 * endpoints that are destroyed with calls outstanding.
 */
#include "dgram_world.h"

#define OP(to, m, room)                                                                         \
	(struct gn_dgram_op)                                                                    \
	{                                                                                       \
		.peer = to, .method = m, .request = "misuse", .request_len = 6, .result = room, \
		.result_room = sizeof(room)                                                     \
	}

static void run(int (*program)(struct dgram_world *w, struct gn_dgram_endpoint *ep,
			       struct gn_dgram_peer *server, unsigned me))
{
	struct dgram_world w = {.program = program, .nodes = 2};

	dgram_run(&w, NULL);
}

/* ---- arguments ---- */

static int arguments(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		     struct gn_dgram_peer *server, unsigned me)
{
	struct gn_dgram_stats small = {.size = 0};
	struct gn_dgram_peer *peer = NULL;
	char result[16], addr[2 * GN_DGRAM_ADDR_MAX];
	struct gn_dgram_op op = OP(NULL, ECHO, result);

	(void)me;
	memset(addr, 'x', sizeof(addr));
	addr[sizeof(addr) - 1] = 0;
	EXPECT(gn_dgram_call(NULL) == -EINVAL && gn_dgram_submit(NULL) == -EINVAL);
	EXPECT(gn_dgram_cancel(NULL) == -EINVAL && gn_dgram_call_all(NULL, 1) == -EINVAL);
	EXPECT(gn_dgram_submit(&op) == -EINVAL && op.status == GN_RPC_CANCELED);
	op.status = GN_RPC_OK;
	EXPECT(gn_dgram_call(&op) == -EINVAL && op.status == GN_RPC_CANCELED);
	EXPECT(gn_dgram_poll(NULL) == -EINVAL && gn_dgram_wait(NULL, GN_NO_WAIT) == -EINVAL);
	EXPECT(gn_dgram_run(NULL, 0) == -EINVAL && gn_dgram_flush(NULL) == -EINVAL);
	EXPECT(gn_dgram_spawn(NULL, NULL, NULL) == -EINVAL);
	EXPECT(gn_dgram_spawn(ep, NULL, NULL) == -EINVAL);
	EXPECT(!gn_dgram_source(NULL) && gn_dgram_workers(NULL) == 0);
	EXPECT(gn_dgram_endpoint_destroy(NULL) == 0 && gn_dgram_node_destroy(NULL) == 0);
	EXPECT(gn_dgram_endpoint_stats(NULL, &small) == -EINVAL);
	EXPECT(gn_dgram_endpoint_stats(ep, NULL) == -EINVAL);
	EXPECT(gn_dgram_peer_gone(NULL) == -EINVAL);
	EXPECT(gn_dgram_peer_open(ep, NULL, 0, &peer) == -EINVAL);
	EXPECT(gn_dgram_peer_open(ep, "", 0, &peer) == -EINVAL);
	EXPECT(gn_dgram_peer_open(ep, addr, 0, &peer) == -EINVAL);
	EXPECT(gn_dgram_peer_open(ep, w->addr[0], GN_DGRAM_THREADS_MAX, &peer) == -EINVAL);
	EXPECT(gn_dgram_peer_open(ep, w->addr[0], 0, NULL) == -EINVAL && !peer);
	EXPECT(gn_dgram_peer_open(ep, w->addr[0], 0, &peer) == 0 && peer == server);
	op = OP(server, GN_DGRAM_METHODS_MAX, result);
	EXPECT(gn_dgram_submit(&op) == -EINVAL);
	op = OP(server, ECHO, result);
	op.request_len = GN_DGRAM_BYTES_MAX + 1;
	EXPECT(gn_dgram_submit(&op) == -EMSGSIZE && op.status == GN_RPC_CANCELED);
	op.status = GN_RPC_OK;
	EXPECT(gn_dgram_call(&op) == -EMSGSIZE && op.status == GN_RPC_CANCELED);
	op = OP(server, ECHO, result);
	op.request = NULL;
	EXPECT(gn_dgram_submit(&op) == -EINVAL);
	op = OP(server, ECHO, result);
	op.result = NULL;
	EXPECT(gn_dgram_submit(&op) == -EINVAL);
	op = OP(server, ECHO, result);
	EXPECT(gn_dgram_call(&op) == 0 && op.status == GN_RPC_OK);
	EXPECT(gn_dgram_cancel(&op) == -ESRCH);
	return 0;
}

static void test_arguments(void **state)
{
	(void)state;
	run(arguments);
}

static unsigned no_handler(void *arg, struct gn_dgram_request *request)
{
	(void)arg, (void)request;
	return GN_RPC_OK;
}

static void test_options(void **state)
{
	struct gn_dgram_opts opts = {.size = sizeof(opts)};
	struct gn_dgram_endpoint *ep, *other = NULL;
	struct gn_dgram_node *node;
	struct gn_fabric *fabric;

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_dgram_node_create(NULL, NULL, NULL, &node), -EINVAL);
	assert_int_equal(gn_dgram_node_create(fabric, NULL, NULL, NULL), -EINVAL);
	opts.threads = GN_DGRAM_THREADS_MAX + 1;
	assert_int_equal(gn_dgram_node_create(fabric, NULL, &opts, &node), -EINVAL);
	opts = (struct gn_dgram_opts){.size = sizeof(opts), .datagram_bytes = 8};
	assert_int_equal(gn_dgram_node_create(fabric, NULL, &opts, &node), -EINVAL);
	opts = (struct gn_dgram_opts){.size = sizeof(opts), .receives = 1};
	assert_int_equal(gn_dgram_node_create(fabric, NULL, &opts, &node), -EINVAL);
	opts = (struct gn_dgram_opts){.size = sizeof(opts), .receives = 64, .calls = 64};
	assert_int_equal(gn_dgram_node_create(fabric, NULL, &opts, &node), -EINVAL);
	assert_int_equal(gn_dgram_node_create(fabric, NULL, NULL, &node), 0);
	assert_int_equal(gn_dgram_handle(node, 1, NULL, NULL, NULL, 0), -EINVAL);
	assert_int_equal(gn_dgram_handle(node, GN_DGRAM_METHODS_MAX, no_handler, NULL, NULL, 0),
			 -EINVAL);
	assert_int_equal(gn_dgram_handle(node, 1, no_handler, NULL, NULL, 0), 0);
	assert_int_equal(gn_dgram_handle(node, 1, no_handler, NULL, NULL, 0), -EEXIST);
	assert_int_equal(gn_dgram_endpoint_create(node, 1, &ep), -EINVAL);
	assert_int_equal(gn_dgram_endpoint_create(NULL, 0, &ep), -EINVAL);
	assert_int_equal(gn_dgram_endpoint_create(node, 0, &ep), 0);
	assert_int_equal(gn_dgram_endpoint_create(node, 0, &other), -EEXIST);
	assert_null(other);
	assert_int_equal(gn_dgram_handle(node, 2, no_handler, NULL, NULL, 0), -EBUSY);
	assert_int_equal(gn_dgram_node_destroy(node), -EBUSY);
	assert_int_equal(gn_dgram_endpoint_destroy(ep), 0);
	assert_int_equal(gn_dgram_node_destroy(node), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- other threads ---- */

struct stranger {
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_peer *server;
	int failed;
};

static int stranger_try(const struct stranger *s)
{
	char result[16];
	struct gn_dgram_op op = OP(s->server, ECHO, result);
	struct gn_dgram_peer *peer;
	struct gn_dgram_stats stats = {.size = sizeof(stats)};

	EXPECT(gn_dgram_poll(s->ep) == -EPERM && gn_dgram_wait(s->ep, GN_NO_WAIT) == -EPERM);
	EXPECT(gn_dgram_run(s->ep, GN_NO_WAIT) == -EPERM && gn_dgram_flush(s->ep) == -EPERM);
	EXPECT(gn_dgram_submit(&op) == -EPERM && gn_dgram_call(&op) == -EPERM);
	EXPECT(gn_dgram_call_all(&op, 1) == -EPERM && gn_dgram_cancel(&op) == -EPERM);
	EXPECT(gn_dgram_peer_open(s->ep, "sim:n0:1", 0, &peer) == -EPERM);
	EXPECT(gn_dgram_peer_gone(s->server) == -EPERM);
	EXPECT(gn_dgram_yield(s->ep) == -EPERM);
	EXPECT(gn_dgram_endpoint_destroy(s->ep) == -EPERM);
	EXPECT(gn_dgram_endpoint_stats(s->ep, &stats) == 0); /* any thread may */
	return 0;
}

static void stranger_main(void *arg)
{
	struct stranger *s = arg;

	s->failed = stranger_try(s);
}

static int other_thread(struct dgram_world *w, struct gn_dgram_endpoint *ep,
			struct gn_dgram_peer *server, unsigned me)
{
	struct stranger s = {.ep = ep, .server = server};
	struct gn_thread *thread;

	(void)w, (void)me;
	EXPECT(gn_thread_start("stranger", stranger_main, &s, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	return s.failed;
}

static void test_other_thread(void **state)
{
	(void)state;
	run(other_thread);
}

/* ---- done functions and workers that must not wait ---- */

struct doer {
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_op op, next;
	char result[16];
	int rc[4];
	unsigned done;
	bool canceled;
};

static void next_done(struct gn_dgram_op *op)
{
	struct doer *d = op->arg;

	d->done++;
}

static void first_done(struct gn_dgram_op *op)
{
	struct doer *d = op->arg;
	struct gn_dgram_op call = OP(op->peer, ECHO, d->result);

	d->rc[0] = gn_dgram_call(&call);
	d->canceled = call.status == GN_RPC_CANCELED;
	d->rc[1] = gn_dgram_poll(d->ep);
	d->rc[2] = gn_dgram_endpoint_destroy(d->ep);
	d->next = OP(op->peer, ECHO, d->result);
	d->next.done = next_done;
	d->next.arg = d;
	d->rc[3] = gn_dgram_submit(&d->next);
	d->done++;
}

static void worker_polls(void *arg)
{
	struct doer *d = arg;

	d->rc[0] = gn_dgram_poll(d->ep);
	d->rc[1] = gn_dgram_endpoint_destroy(d->ep);
	d->done++;
}

static int waits_wrongly(struct dgram_world *w, struct gn_dgram_endpoint *ep,
			 struct gn_dgram_peer *server, unsigned me)
{
	struct doer d = {.ep = ep};

	(void)w, (void)me;
	d.op = OP(server, ECHO, d.result);
	d.op.done = first_done;
	d.op.arg = &d;
	EXPECT(gn_dgram_submit(&d.op) == 0);
	while (d.done < 2)
		EXPECT(gn_dgram_wait(ep, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	EXPECT(d.rc[0] == -EDEADLK && d.rc[1] == -EDEADLK && d.rc[2] == -EDEADLK && !d.rc[3]);
	EXPECT(d.next.status == GN_RPC_OK && d.canceled);
	d.done = 0;
	EXPECT(gn_dgram_spawn(ep, worker_polls, &d) == 0);
	EXPECT(gn_dgram_run(ep, gn_deadline_us(UNIT_PATIENCE_US)) == 0);
	EXPECT(d.done == 1 && d.rc[0] == -EDEADLK && d.rc[1] == -EDEADLK);
	return 0;
}

static void test_waits_wrongly(void **state)
{
	(void)state;
	run(waits_wrongly);
}

/* ---- peers of another endpoint ---- */

static int other_endpoint(struct dgram_world *w, struct gn_dgram_endpoint *ep,
			  struct gn_dgram_peer *server, unsigned me)
{
	struct gn_fabric *fabric = w->fabric;
	struct gn_dgram_endpoint *own;
	struct gn_dgram_node *node;
	struct gn_dgram_op ops[2];
	struct gn_dgram_peer *peer;
	char result[2][16];

	(void)me, (void)ep;
	if (w->simulated)
		return 0;
	EXPECT(gn_dgram_node_create(fabric, NULL, NULL, &node) == 0);
	EXPECT(gn_dgram_endpoint_create(node, 0, &own) == 0);
	EXPECT(gn_dgram_peer_open(own, w->addr[0], 0, &peer) == 0);
	ops[0] = OP(server, ECHO, result[0]);
	ops[1] = OP(peer, ECHO, result[1]);
	EXPECT(gn_dgram_call_all(ops, 2) == -EINVAL);
	EXPECT(ops[0].status == GN_RPC_OK && ops[1].status == GN_RPC_CANCELED);
	EXPECT(gn_dgram_call(&ops[1]) == 0 && ops[1].status == GN_RPC_OK);
	EXPECT(gn_dgram_endpoint_destroy(own) == 0);
	EXPECT(gn_dgram_node_destroy(node) == 0);
	return 0;
}

static void test_other_endpoint(void **state)
{
	(void)state;
	run(other_endpoint);
}

/* ---- an op that is under way ---- */

static int used_twice(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		      struct gn_dgram_peer *server, unsigned me)
{
	struct doer d = {.ep = ep};

	(void)me;
	d.op = OP(server, SLOW, d.result);
	d.op.done = next_done;
	d.op.arg = &d;
	EXPECT(gn_dgram_submit(&d.op) == 0);
	EXPECT(gn_dgram_submit(&d.op) == -EBUSY && gn_dgram_call(&d.op) == -EBUSY);
	STORE(w->release, true);
	while (!d.done)
		EXPECT(gn_dgram_wait(ep, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	EXPECT(d.op.status == GN_RPC_OK && d.done == 1);
	EXPECT(gn_dgram_submit(&d.op) == 0);
	while (d.done < 2)
		EXPECT(gn_dgram_wait(ep, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	return 0;
}

static void test_used_twice(void **state)
{
	(void)state;
	run(used_twice);
}

/* ---- destroyed with calls ---- */

static void worker_calls(void *arg)
{
	struct doer *d = arg;
	struct gn_dgram_op op = OP(d->op.peer, SLOW, d->result);

	gn_dgram_call(&op);
	d->done += 100; /* never: it is discarded */
}

static int destroyed(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		     struct gn_dgram_peer *server, unsigned me)
{
	struct doer d = {.done = 0};
	struct gn_dgram_node *node;
	struct gn_dgram_peer *peer;

	(void)me, (void)ep, (void)server;
	if (w->simulated)
		return 0;
	EXPECT(gn_dgram_node_create(w->fabric, NULL, NULL, &node) == 0);
	EXPECT(gn_dgram_endpoint_create(node, 0, &d.ep) == 0);
	EXPECT(gn_dgram_peer_open(d.ep, w->addr[0], 0, &peer) == 0);
	d.op = OP(peer, SLOW, d.result);
	d.op.done = next_done;
	d.op.arg = &d;
	EXPECT(gn_dgram_submit(&d.op) == 0);
	for (unsigned i = 0; i < 3; i++)
		EXPECT(gn_dgram_spawn(d.ep, worker_calls, &d) == 0);
	for (const uint64_t until_ns = gn_deadline_us(20000); gn_now_ns() < until_ns;)
		EXPECT(gn_dgram_poll(d.ep) >= 0);
	EXPECT(gn_dgram_workers(d.ep) == 3 && gn_dgram_node_destroy(node) == -EBUSY);
	EXPECT(gn_dgram_endpoint_destroy(d.ep) == 0);
	EXPECT(d.done == 1 && d.op.status == GN_RPC_CANCELED);
	EXPECT(gn_dgram_node_destroy(node) == 0);
	STORE(w->release, true);
	return 0;
}

static void test_destroyed(void **state)
{
	(void)state;
	run(destroyed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arguments),      cmocka_unit_test(test_options),
		cmocka_unit_test(test_other_thread),   cmocka_unit_test(test_waits_wrongly),
		cmocka_unit_test(test_other_endpoint), cmocka_unit_test(test_used_twice),
		cmocka_unit_test(test_destroyed),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
