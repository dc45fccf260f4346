/* SPDX-License-Identifier: MIT */
/* Datagram calls: blocking, asynchronous, in workers; large ones; with loss. */
#include "dgram_world.h"

#define WORKERS 20u
#define ROUNDS	200u

static int call_echo(struct gn_dgram_peer *server, uint32_t len, uint32_t seed)
{
	uint8_t request[512], result[512];
	struct gn_dgram_op op = {.peer = server,
				 .method = ECHO,
				 .request = request,
				 .request_len = len,
				 .result = result,
				 .result_room = sizeof(result)};

	fill(request, len, seed);
	EXPECT(gn_dgram_call(&op) == 0);
	EXPECT(op.status == GN_RPC_OK);
	EXPECT(op.result_len == len);
	EXPECT(is_filled(result, len, seed));
	return 0;
}

/* ---- blocking ---- */

static int blocking(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		    struct gn_dgram_peer *server, unsigned me)
{
	uint8_t result[8];
	struct gn_dgram_op op = {.peer = server, .method = NOTHING};

	(void)w, (void)ep, (void)me;
	for (uint32_t i = 0; i < 100; i++)
		EXPECT(call_echo(server, i, i) == 0);
	EXPECT(gn_dgram_call(&op) == 0);
	EXPECT(op.status == GN_RPC_NO_METHOD);
	op = (struct gn_dgram_op){.peer = server,
				  .method = ECHO,
				  .request = "0123456789",
				  .request_len = 10,
				  .result = result,
				  .result_room = sizeof(result)};
	EXPECT(gn_dgram_call(&op) == 0);
	EXPECT(op.status == GN_RPC_TOO_BIG);
	return 0;
}

static void test_blocking(void **state)
{
	struct dgram_world w = {.nodes = 2, .program = blocking};

	(void)state;
	dgram_run(&w, NULL);
}

/* ---- workers ---- */

struct job {
	struct gn_dgram_peer *server;
	uint32_t me, worker, rounds;
	int failed;
};

static void worker_count(void *arg)
{
	struct job *job = arg;

	for (uint32_t i = 0; i < job->rounds && !job->failed; i++) {
		uint32_t key = (job->me * WORKERS + job->worker) * ROUNDS + i, result = 0;
		struct gn_dgram_op op = {.peer = job->server,
					 .method = COUNT,
					 .request = &key,
					 .request_len = sizeof(key),
					 .result = &result,
					 .result_room = sizeof(result)};

		if (gn_dgram_call(&op) || op.status != GN_RPC_OK || result != key)
			job->failed = __LINE__;
	}
}

static int workers(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		   struct gn_dgram_peer *server, unsigned me)
{
	struct job jobs[WORKERS];

	for (uint32_t i = 0; i < WORKERS; i++) {
		jobs[i] = (struct job){.server = server, .me = me, .worker = i, .rounds = ROUNDS};
		EXPECT(gn_dgram_spawn(ep, worker_count, &jobs[i]) == 0);
	}
	EXPECT(gn_dgram_run(ep, GN_FOREVER) == 0);
	EXPECT(gn_dgram_workers(ep) == 0);
	for (uint32_t i = 0; i < WORKERS; i++) {
		EXPECT(jobs[i].failed == 0);
		for (uint32_t k = 0; k < ROUNDS; k++)
			EXPECT(LOAD(w->counts[(me * WORKERS + i) * ROUNDS + k]) == 1);
	}
	return 0;
}

static void test_workers(void **state)
{
	struct dgram_world w = {.nodes = 4, .program = workers};

	(void)state;
	dgram_run(&w, NULL);
	w.opts.flags = GN_DGRAM_NO_BATCH | GN_DGRAM_NO_COALESCE | GN_DGRAM_NO_ANSWER_BATCH |
		       GN_DGRAM_NO_CHEAP_RECV | GN_DGRAM_SIGNAL_ALL | GN_DGRAM_NO_PREFETCH;
	dgram_run(&w, NULL);
}

static void test_loss(void **state)
{
	struct dgram_world w = {.nodes = 4, .program = workers};

	(void)state;
	dgram_run(&w, "ud-loss=20%,ud-dup=10%,ud-reorder=10%,ud-delay=5%");
}

/* ---- large ---- */

static int large(struct dgram_world *w, struct gn_dgram_endpoint *ep, struct gn_dgram_peer *server,
		 unsigned me)
{
	static const uint32_t sizes[] = {8, 4000, 4048, 4049, 4096, 10000, 65536, 256 << 10};
	uint8_t *request = gn_alloc(256 << 10, 0), *result = gn_alloc(256 << 10, 0);

	(void)w, (void)ep, (void)me;
	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 0; k < 8; k++) {
			const uint32_t ask[2] = {i * 8 + k, sizes[k]};
			struct gn_dgram_op op = {.peer = server,
						 .method = FILL,
						 .request = request,
						 .request_len = sizes[i],
						 .result = result,
						 .result_room = 256 << 10};

			memcpy(request, ask, 8);
			fill(request + 8, sizes[i] - 8, ask[0]);
			EXPECT(gn_dgram_call(&op) == 0);
			EXPECT(op.status == GN_RPC_OK);
			EXPECT(op.result_len == sizes[k]);
			EXPECT(is_filled(result, sizes[k], ask[0] + 1));
		}
	gn_free(request);
	gn_free(result);
	return 0;
}

static void test_large(void **state)
{
	struct dgram_world w = {.nodes = 3, .program = large};

	(void)state;
	dgram_run(&w, NULL);
	dgram_run(&w, "ud-loss=10%,ud-dup=10%");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking),
		cmocka_unit_test(test_workers),
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
