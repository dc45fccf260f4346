/* SPDX-License-Identifier: MIT */
/* Datagram calls: deadlines, cancels, restarts, peers that are gone, busy handlers, misuse. */
#include "dgram_world.h"

#define OP(server, m, req, len, res, room)                                                      \
	(struct gn_dgram_op)                                                                    \
	{                                                                                       \
		.peer = server, .method = m, .request = req, .request_len = len, .result = res, \
		.result_room = room                                                             \
	}

static void op_done(struct gn_dgram_op *op)
{
	++*(unsigned *)op->arg;
}

static int poll_until(struct gn_dgram_endpoint *ep, const unsigned *n, unsigned wanted)
{
	const uint64_t end_ns = gn_deadline_us(5000000);

	while (*n < wanted && gn_now_ns() < end_ns) {
		const int rc = gn_dgram_wait(ep, gn_deadline_us(1000));

		EXPECT(rc >= 0 || rc == -ETIMEDOUT);
	}
	EXPECT(*n == wanted);
	return 0;
}

/* ---- deadlines and cancels ---- */

static int deadlines(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		     struct gn_dgram_peer *server, unsigned me)
{
	struct gn_dgram_op op, ops[8];
	unsigned n = 0;
	char result[16];

	(void)me;
	op = OP(server, SLOW, "slow", 4, result, sizeof(result));
	op.deadline_ns = gn_deadline_us(20000);
	EXPECT(gn_dgram_call(&op) == 0);
	EXPECT(op.status == GN_RPC_TIMEOUT);
	EXPECT(LOAD(w->slow) == 1 || !w->simulated);
	for (unsigned i = 0; i < 8; i++) {
		ops[i] = OP(server, SLOW, "slow", 4, result, sizeof(result));
		ops[i].done = op_done;
		ops[i].arg = &n;
		EXPECT(gn_dgram_submit(&ops[i]) == 0);
	}
	EXPECT(gn_dgram_flush(ep) == 0);
	for (unsigned i = 0; i < 8; i += 2)
		EXPECT(gn_dgram_cancel(&ops[i]) == 0);
	EXPECT(n == 4);
	EXPECT(gn_dgram_cancel(&ops[0]) == -ESRCH);
	STORE(w->release, true);
	EXPECT(poll_until(ep, &n, 8) == 0);
	for (unsigned i = 0; i < 8; i++)
		EXPECT(ops[i].status == (i % 2 ? GN_RPC_OK : GN_RPC_CANCELED));
	op = OP(server, ECHO, "after", 5, result, sizeof(result));
	EXPECT(gn_dgram_call(&op) == 0);
	EXPECT(op.status == GN_RPC_OK);
	return 0;
}

static void test_deadlines(void **state)
{
	struct dgram_world w = {.nodes = 2, .program = deadlines};

	(void)state;
	dgram_run(&w, NULL);
}

/* ---- a handlers' pool that is full ---- */

static int busy(struct dgram_world *w, struct gn_dgram_endpoint *ep, struct gn_dgram_peer *server,
		unsigned me)
{
	struct gn_dgram_op ops[6];
	unsigned n = 0, refused = 0;
	char result[16];

	(void)me;
	for (unsigned i = 0; i < 6; i++) {
		ops[i] = OP(server, SLOW, "slow", 4, result, sizeof(result));
		ops[i].done = op_done;
		ops[i].arg = &n;
		EXPECT(gn_dgram_submit(&ops[i]) == 0);
	}
	EXPECT(poll_until(ep, &n, 2) == 0);
	STORE(w->release, true);
	EXPECT(poll_until(ep, &n, 6) == 0);
	for (unsigned i = 0; i < 6; i++)
		refused += ops[i].status == GN_RPC_BUSY;
	EXPECT(refused == 2);
	return 0;
}

static void test_busy(void **state)
{
	struct dgram_world w = {.nodes = 2, .program = busy, .opts = {.handler_workers = 4}};

	(void)state;
	dgram_run(&w, NULL);
}

/* ---- a peer that is gone ---- */

static int gone(struct dgram_world *w, struct gn_dgram_endpoint *ep, struct gn_dgram_peer *server,
		unsigned me)
{
	struct gn_dgram_op op;
	unsigned n = 0;
	char result[16];
	uint64_t epoch;

	(void)me;
	op = OP(server, SLOW, "slow", 4, result, sizeof(result));
	op.done = op_done;
	op.arg = &n;
	EXPECT(gn_dgram_submit(&op) == 0);
	while (!LOAD(w->slow))
		gn_dgram_poll(ep);
	epoch = gn_dgram_peer_epoch(server);
	EXPECT(epoch != 0);
	EXPECT(gn_dgram_peer_gone(server) == 0);
	EXPECT(poll_until(ep, &n, 1) == 0);
	EXPECT(op.status == GN_RPC_PEER_GONE);
	STORE(w->release, true);
	op = OP(server, ECHO, "after", 5, result, sizeof(result));
	EXPECT(gn_dgram_call(&op) == 0);
	EXPECT(op.status == GN_RPC_OK);
	EXPECT(gn_dgram_peer_epoch(server) != epoch);
	return 0;
}

static void test_gone(void **state)
{
	struct dgram_world w = {.nodes = 2, .program = gone};

	(void)state;
	dgram_run(&w, NULL);
}

/* ---- a server that restarts ---- */

struct restart {
	struct gn_fabric *fabric;
	const char *addr;
	unsigned starts;
};

static int restart_server(struct dgram_world *w, struct gn_fabric *fabric, unsigned ms)
{
	const uint64_t end_ns = gn_deadline_us(ms * 1000ull);
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_node *node;

	EXPECT(gn_dgram_node_create(fabric, w->addr[0], &w->opts, &node) == 0);
	EXPECT(dgram_handlers(w, node) == 0);
	EXPECT(gn_dgram_endpoint_create(node, 0, &ep) == 0);
	STORE(w->up, true);
	while (gn_now_ns() < end_ns && !LOAD(w->stop))
		gn_dgram_wait(ep, gn_deadline_us(500));
	EXPECT(gn_dgram_endpoint_destroy(ep) == 0);
	EXPECT(gn_dgram_node_destroy(node) == 0);
	return 0;
}

static int restart_node(struct gn_env *env, int argc, char **argv)
{
	struct dgram_world *w = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = restart_server(w, fabric, 30);
	if (!rc)
		rc = restart_server(w, fabric, 100000);
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static int restart_caller(struct dgram_world *w, struct gn_dgram_endpoint *ep,
			  struct gn_dgram_peer *server, unsigned me)
{
	unsigned lost = 0, ok = 0;
	uint64_t epoch = 0;
	uint32_t key = 0;

	(void)w, (void)ep, (void)me;
	for (; ok < 3000 && key < DGRAM_KEYS; key++) {
		uint32_t result;
		struct gn_dgram_op op = OP(server, COUNT, &key, 4, &result, 4);

		EXPECT(gn_dgram_call(&op) == 0);
		EXPECT(op.status == GN_RPC_OK || op.status == GN_RPC_PEER_GONE);
		lost += op.status == GN_RPC_PEER_GONE;
		ok += lost && op.status == GN_RPC_OK;
		if (!epoch)
			epoch = gn_dgram_peer_epoch(server);
		if (!lost)
			gn_sleep_us(20);
	}
	EXPECT(lost == 1);
	EXPECT(gn_dgram_peer_epoch(server) != epoch);
	for (uint32_t i = 0; i < key; i++)
		EXPECT(w->counts[i] <= 1);
	return 0;
}

static void test_restart(void **state)
{
	struct dgram_world w = {.nodes = 2, .program = restart_caller};
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = "cx3-fdr",
					 .seed = 3,
					 .nodes = 2,
					 .limit_ns = DGRAM_LIMIT_NS};
	struct gn_sim *sim;
	int status;

	(void)state;
	dgram_begin(&w);
	w.opts.size = sizeof(w.opts);
	snprintf(w.addr[0], sizeof(w.addr[0]), "sim:n0:7000");
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, restart_node, 0, NULL, &w, NULL), 0);
	assert_int_equal(gn_sim_spawn(sim, 1, dgram_sim_main, 0, NULL, &w, NULL), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

/* ---- both sides call ---- */

static void both_worker(void *arg)
{
	struct gn_dgram_peer *peer = arg;

	for (uint32_t i = 0; i < 100; i++) {
		uint32_t result = 0;
		struct gn_dgram_op op = OP(peer, ECHO, &i, 4, &result, 4);

		if (gn_dgram_call(&op) || op.status || result != i)
			*(unsigned *)gn_dgram_peer_user(peer) += 1;
	}
}

/* Every client calls every other node. */
static int everyone(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		    struct gn_dgram_peer *server, unsigned me)
{
	unsigned failed = 0;

	(void)server;
	for (unsigned i = 0; i < w->nodes; i++) {
		struct gn_dgram_peer *peer;

		if (i == me)
			continue;
		EXPECT(gn_dgram_peer_open(ep, w->addr[i], 0, &peer) == 0);
		gn_dgram_peer_set_user(peer, &failed);
		for (unsigned k = 0; k < 4; k++)
			EXPECT(gn_dgram_spawn(ep, both_worker, peer) == 0);
	}
	EXPECT(gn_dgram_run(ep, GN_FOREVER) == 0);
	EXPECT(failed == 0);
	__atomic_fetch_add(&w->slow, 1, __ATOMIC_ACQ_REL);
	while (LOAD(w->slow) < w->nodes - 1)
		gn_dgram_wait(ep, gn_deadline_us(200));
	return 0;
}

static void test_everyone(void **state)
{
	struct dgram_world w = {.nodes = 5, .program = everyone, .all_listen = true};

	(void)state;
	dgram_run(&w, NULL);
	dgram_run(&w, "ud-loss=10%,ud-dup=10%");
}

/* ---- an event loop ---- */

static int by_source(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		     struct gn_dgram_peer *server, unsigned me)
{
	struct gn_wait_item item = gn_wait_on(gn_dgram_source(ep));
	char result[16];

	(void)w, (void)me;
	for (unsigned i = 0; i < 20; i++) {
		struct gn_dgram_op op = OP(server, ECHO, "wait", 4, result, sizeof(result));
		unsigned n = 0;

		op.done = op_done;
		op.arg = &n;
		EXPECT(gn_dgram_submit(&op) == 0);
		while (!n) {
			EXPECT(gn_dgram_poll(ep) >= 0);
			if (!n)
				EXPECT(gn_wait(&item, 1, gn_deadline_us(1000000), "a call") >= 0);
		}
		EXPECT(op.status == GN_RPC_OK);
	}
	return 0;
}

static void test_source(void **state)
{
	struct dgram_world w = {.nodes = 2, .program = by_source};

	(void)state;
	dgram_run(&w, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadlines), cmocka_unit_test(test_busy),
		cmocka_unit_test(test_gone),	  cmocka_unit_test(test_restart),
		cmocka_unit_test(test_everyone),  cmocka_unit_test(test_source),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
