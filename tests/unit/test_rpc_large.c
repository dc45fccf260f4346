/* SPDX-License-Identifier: MIT */
/*
 * Large requests and results: of every size, more than limits allow, completed early, in a
 * handler's own memory.
 */
#include "rpc_world.h"

#define SLOT	256u /* bytes per slot: nearly everything is large */
#define LIM	(UNIT_SANITIZED ? 1u << 18 : 1u << 20)
#define LARGEST (UNIT_SANITIZED ? 4 * LIM : GN_RPC_LARGE_MAX)

static const struct gn_rpc_server_opts tiny = {
	.size = sizeof(tiny), .max_request = SLOT, .max_result = SLOT, .park_us = 300};

static int link_up(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		   struct gn_rpc_client **out)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);

	return gn_rpc_client_open(fabric, w->addr, &opts, out);
}

/* ---- sizes ---- */

/* Echo; bytes around the result must not change. */
static int large_echo(struct gn_rpc_client *client, unsigned method, uint32_t len)
{
	uint8_t *request = gn_alloc(len, 0), *result = gn_alloc(len + 64, 0);
	unsigned status = GN_RPC_FAILED;
	uint32_t got = 0;

	EXPECT(request && result);
	fill(request, len, len);
	memset(result, 0xee, len + 64);
	EXPECT(gn_rpc_call(client, method, request, len, result, len, &got, GN_FOREVER, &status) ==
	       0);
	EXPECT(status == GN_RPC_OK && got == len && is_filled(result, len, len));
	for (unsigned i = 0; i < 64; i++)
		EXPECT(result[len + i] == 0xee);
	gn_free(request);
	gn_free(result);
	return 0;
}

static int large_blob(struct gn_rpc_client *client, uint32_t len)
{
	const struct two want = {len, len ^ 77};
	uint8_t *result = gn_alloc(len + 1, 0);
	unsigned status = GN_RPC_FAILED;
	uint32_t got = 0;

	EXPECT(result);
	EXPECT(gn_rpc_call(client, BLOB, &want, sizeof(want), result, len, &got, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_OK && got == len && is_filled(result, len, want.arg));
	gn_free(result);
	return 0;
}

static int sizes_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	static const uint32_t sizes[] = {
		SLOT,	    SLOT + 1,	      SLOT + 8, 4095, 4096,    4097,	   (256u << 10) - 1,
		256u << 10, (256u << 10) + 1, LIM - 1,	LIM,  LIM + 1, 3 * LIM + 5};
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};

	EXPECT(link_up(w, fabric, mode, &client) == 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		EXPECT(large_echo(client, ECHO, sizes[i]) == 0);
		EXPECT(large_blob(client, sizes[i]) == 0);
		EXPECT(large_echo(client, LATER, sizes[i]) == 0);
		EXPECT(call_echo(client, ECHO, i, i) == 0);
	}
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(count.large == 5 * (sizeof(sizes) / sizeof(sizes[0]) - 1));
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int sizes(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client *client;

	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(sizes_in(w, fabric, mode) == 0);
	if (w->simulated)
		return 0;
	EXPECT(link_up(w, fabric, GN_RPC_HYBRID, &client) == 0);
	/* A guest copies a hundred times slower: there the largest goes one way only. */
	EXPECT(large_echo(client, ECHO, given_addr() ? 4 * LIM : LARGEST) == 0);
	EXPECT(large_blob(client, LARGEST) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- limits ---- */

/* Limits of a result: of the caller, the client, the server. */
static int too_big(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	uint8_t *buf = gn_alloc(2 * LIM, 0);
	struct two want = {LIM + 1, 1};
	struct gn_rpc_client *client;
	unsigned status;
	uint32_t len;

	EXPECT(buf);
	memset(buf, 0xee, 2 * LIM);
	opts.max_large = LIM / 2;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(gn_rpc_call(client, ECHO, buf, LIM + 1, NULL, 0, &len, GN_FOREVER, &status) ==
	       -EMSGSIZE);
	EXPECT(gn_rpc_call(client, BLOB, &want, sizeof(want), buf, 2 * LIM, &len, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG && len == 0);
	want.bytes = LIM / 2 + 1;
	EXPECT(gn_rpc_call(client, BLOB, &want, sizeof(want), buf, 2 * LIM, &len, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG && len == LIM / 2 + 1);
	want.bytes = 1000;
	EXPECT(gn_rpc_call(client, BLOB, &want, sizeof(want), buf, 999, &len, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG && len == 1000);
	for (uint32_t i = 0; i < 2 * LIM; i++)
		EXPECT(buf[i] == 0xee);
	EXPECT(call_echo(client, ECHO, 9, 9) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(buf);
	return 0;
}

/* At most max_large of requests at once, and four times that of results. */
static int busy(struct world *w, struct gn_fabric *fabric)
{
	enum { CALLS = 8 };
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	uint8_t *buf = gn_alloc(CALLS * LIM, 0);
	struct two want = {LIM, 1};
	struct gn_rpc_op ops[CALLS];
	struct gn_rpc_client *client;
	unsigned ok = 0, blobs, status;

	EXPECT(buf);
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	shut(&w->service, true);
	ops[0] = (struct gn_rpc_op){.method = LATER,
				    .request = buf,
				    .request_len = LIM - 8,
				    .result = buf,
				    .result_room = LIM};
	EXPECT(gn_rpc_submit(client, &ops[0]) == 0);
	while (!aside(&w->service)) {
		EXPECT(gn_rpc_poll(client) == 0);
		gn_sleep_us(100);
	}
	EXPECT(gn_rpc_call(client, ECHO, buf, SLOT + 1, NULL, 0, NULL, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_BUSY);
	shut(&w->service, false);
	while (ops[0].client)
		EXPECT(gn_rpc_wait(client, GN_FOREVER) >= 0);
	EXPECT(ops[0].status == GN_RPC_OK && ops[0].result_len == LIM - 8);
	/* Results that are not fetched. */
	blobs = __atomic_load_n(&w->service.blobs, __ATOMIC_ACQUIRE);
	for (unsigned i = 0; i < CALLS; i++) {
		ops[i] = (struct gn_rpc_op){.method = BLOB,
					    .request = &want,
					    .request_len = sizeof(want),
					    .result = buf + i * LIM,
					    .result_room = LIM};
		EXPECT(gn_rpc_submit(client, &ops[i]) == 0);
	}
	/* None is fetched before all are answered: pairs with the release in blob(). */
	while (__atomic_load_n(&w->service.blobs, __ATOMIC_ACQUIRE) < blobs + CALLS)
		gn_sleep_us(100);
	for (unsigned i = 0; i < CALLS; i++) {
		while (ops[i].client)
			EXPECT(gn_rpc_wait(client, GN_FOREVER) >= 0);
		ok += ops[i].status == GN_RPC_OK;
		EXPECT(ops[i].status == (i < 4 ? GN_RPC_OK : GN_RPC_BUSY));
		EXPECT(ops[i].status || is_filled(buf + i * LIM, LIM, 1));
	}
	EXPECT(ok == 4);
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(buf);
	return 0;
}

static int limits(struct world *w, struct gn_fabric *fabric)
{
	EXPECT(too_big(w, fabric) == 0);
	EXPECT(busy(w, fabric) == 0);
	return 0;
}

static void test_limits(void **state)
{
	struct gn_rpc_server_opts opts = tiny;

	(void)state;
	opts.max_large = LIM;
	opts.max_window = GN_RPC_SLOTS_DEFAULT; /* a larger one would leave bytes over */
	run_everywhere(limits, &opts, 1);
}

/* More large requests than the queue can read at once, with small ones between them. */
static int crowd_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		    uint32_t slots, uint32_t len)
{
	enum { CALLS = 64 };
	struct gn_rpc_client_opts opts = in_mode(mode);
	uint8_t *requests = gn_alloc(CALLS * len, 0), *results = gn_alloc(CALLS * len, 0);
	struct gn_rpc_client *client;
	struct gn_rpc_op ops[CALLS];

	EXPECT(requests && results);
	opts.slots = slots;
	opts.batch.entries = CALLS / slots;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		const uint32_t bytes = i % 3 == 1 ? 16 : len - i;

		fill(requests + i * len, bytes, i);
		ops[i] = (struct gn_rpc_op){.method = i % 5 == 4 ? LATER : ECHO,
					    .request = requests + i * len,
					    .request_len = bytes,
					    .result = results + i * len,
					    .result_room = len};
	}
	EXPECT(gn_rpc_call_all(client, ops, CALLS) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		EXPECT(ops[i].status == GN_RPC_OK && ops[i].result_len == ops[i].request_len);
		EXPECT(is_filled(results + i * len, ops[i].result_len, i));
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(requests);
	gn_free(results);
	return 0;
}

static int crowd(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		EXPECT(crowd_in(w, fabric, mode, 1, 2000) == 0);
		EXPECT(crowd_in(w, fabric, mode, 4, 2000) == 0);
		EXPECT(crowd_in(w, fabric, mode, 16, 300000) == 0);
	}
	EXPECT(crowd_in(w, fabric, GN_RPC_REPLY, 2, LIM + 1000) == 0);
	return 0;
}

/* More large results than a connection may have unacknowledged. */
static int many_results_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	enum { CALLS = 320, LEN = SLOT + 50 };
	struct gn_rpc_client_opts opts = in_mode(mode);
	uint8_t *results = gn_alloc(CALLS * LEN, 0);
	struct gn_rpc_client *client;
	struct gn_rpc_op *ops = gn_alloc(CALLS * sizeof(*ops), 0);
	struct two *want = gn_alloc(CALLS * sizeof(*want), 0);

	EXPECT(results && ops && want);
	opts.slots = 16;
	opts.batch.entries = CALLS / opts.slots;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		want[i] = (struct two){LEN - i % 20, i};
		ops[i] = (struct gn_rpc_op){.method = BLOB,
					    .request = &want[i],
					    .request_len = sizeof(want[i]),
					    .result = results + i * LEN,
					    .result_room = LEN};
	}
	EXPECT(gn_rpc_call_all(client, ops, CALLS) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		EXPECT(ops[i].status == GN_RPC_OK && ops[i].result_len == want[i].bytes);
		EXPECT(is_filled(results + i * LEN, want[i].bytes, i));
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(results);
	gn_free(ops);
	gn_free(want);
	return 0;
}

/* ---- early completion ---- */

/* After the deadline the caller's memory must not change, whenever the deadline comes. */
static int late_by(struct gn_rpc_client *client, uint8_t *buf, uint32_t bytes, uint64_t us,
		   bool cancel, unsigned *status)
{
	struct gn_rpc_op op = {.method = ECHO,
			       .request = buf,
			       .request_len = bytes,
			       .result = buf + bytes,
			       .result_room = bytes,
			       .deadline_ns = cancel ? 0 : gn_deadline_us(us)};
	const uint64_t end_ns = gn_deadline_us(us);
	int rc;

	while ((rc = gn_rpc_submit(client, &op)) == -EAGAIN)
		EXPECT(gn_rpc_poll(client) >= 0);
	EXPECT(rc == 0);
	while (op.client && (!cancel || gn_now_ns() < end_ns)) {
		EXPECT(gn_rpc_poll(client) >= 0);
		gn_yield();
	}
	if (op.client)
		EXPECT(gn_rpc_cancel(&op) == 0);
	*status = op.status;
	if (op.status == GN_RPC_OK)
		EXPECT(is_filled(buf + bytes, bytes, 5));
	memset(buf, 0xaa, 2 * bytes); /* including the request */
	EXPECT(call_echo(client, ECHO, 100, 1) == 0);
	for (unsigned i = 0; i < 50; i++) {
		EXPECT(gn_rpc_poll(client) >= 0);
		gn_sleep_us(20);
	}
	for (uint32_t i = 0; i < 2 * bytes; i++)
		EXPECT(buf[i] == 0xaa);
	return 0;
}

static int in_the_middle_of(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
			    bool cancel)
{
	const uint32_t bytes = (THREADS_WATCHED ? LIM / 4 : 2 * LIM) + 3;
	uint8_t *buf = gn_alloc(2 * bytes, 0);
	unsigned status = GN_RPC_FAILED, ended = 0;
	struct gn_rpc_client *client;

	EXPECT(buf);
	EXPECT(link_up(w, fabric, mode, &client) == 0);
	for (uint64_t us = 1; status != GN_RPC_OK; us += us / 2 + 1) {
		fill(buf, bytes, 5);
		EXPECT(late_by(client, buf, bytes, us, cancel, &status) == 0);
		EXPECT(status == GN_RPC_OK ||
		       status == (cancel ? GN_RPC_CANCELED : GN_RPC_TIMEOUT));
		ended += status != GN_RPC_OK;
	}
	EXPECT(ended > 3 || w->simulated); /* some cards take no time */
	EXPECT(large_echo(client, ECHO, bytes) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(buf);
	return 0;
}

static int in_the_middle(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	EXPECT(in_the_middle_of(w, fabric, mode, false) == 0);
	EXPECT(in_the_middle_of(w, fabric, mode, true) == 0);
	return 0;
}

/* A client disconnects while large messages are being read, in either direction. */
static int client_leaves(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *buf = gn_alloc(4 * LIM, 0);
	struct two want = {MEM_BYTES, 0};
	struct gn_rpc_client *client;
	struct gn_rpc_op ops[6];

	EXPECT(buf);
	for (unsigned round = 0; round < 30; round++) {
		EXPECT(link_up(w, fabric, (enum gn_rpc_mode)(round % 3), &client) == 0);
		for (unsigned i = 0; i < 6; i++) {
			ops[i] = (struct gn_rpc_op){.method = i % 2 ? MEM :
							      i % 4 ? LATER :
								      ECHO,
						    .request = i % 2 ? (void *)&want : buf,
						    .request_len = i % 2 ? sizeof(want) : 2 * LIM,
						    .result = buf + 2 * LIM,
						    .result_room = 2 * LIM};
			EXPECT(gn_rpc_submit(client, &ops[i]) == 0);
		}
		for (unsigned i = 0; i < round; i++) {
			EXPECT(gn_rpc_poll(client) >= 0);
			gn_sleep_us(i % 7 * 10);
		}
		EXPECT(gn_rpc_client_close(client) == 0);
		for (unsigned i = 0; i < 6; i++)
			EXPECT(!ops[i].client && ops[i].status != GN_RPC_PEER_GONE);
	}
	gn_free(buf);
	return 0;
}

/* ---- a handler's own memory ---- */

static int await_release(struct service *s)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (__atomic_load_n(&s->released, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&s->lent, __ATOMIC_RELAXED)) {
		EXPECT(gn_now_ns() < deadline_ns);
		gn_sleep_us(100);
	}
	return 0;
}

static int mem_call(struct gn_rpc_client *client, enum method method, struct two want,
		    const uint8_t *all, unsigned expected)
{
	uint8_t *result = gn_alloc(want.bytes + 1, 0);
	unsigned status = GN_RPC_FAILED;
	uint32_t len = 0;

	EXPECT(result);
	EXPECT(gn_rpc_call(client, method, &want, sizeof(want), result, want.bytes, &len,
			   GN_FOREVER, &status) == 0);
	EXPECT(status == expected);
	if (status == GN_RPC_OK)
		EXPECT(len == want.bytes && !memcmp(result, all + want.arg, len));
	gn_free(result);
	return 0;
}

/* The bytes are released after the client has read them, without any further message. */
static int own_memory_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	static const struct two good[] = {
		{0, 0},	      {1, 5},	    {SLOT, 77},	    {SLOT + 1, 4095},
		{5000, 4096}, {LIM, 12345}, {MEM_BYTES, 0}, {300, MEM_BYTES - 300}};
	static const struct two bad[] = {
		{1, MEM_BYTES}, {301, MEM_BYTES - 300}, {10, MEM_BYTES + 4096}};
	uint8_t *all = gn_alloc(MEM_BYTES, 0);
	struct gn_rpc_client *client;

	EXPECT(all);
	fill(all, MEM_BYTES, 1);
	EXPECT(link_up(w, fabric, mode, &client) == 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
			EXPECT(mem_call(client, MEM, good[i], all, GN_RPC_OK) == 0);
			EXPECT(await_release(&w->service) == 0);
		}
		for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			EXPECT(mem_call(client, MEM, bad[i], all, GN_RPC_TOO_BIG) == 0);
			EXPECT(await_release(&w->service) == 0);
		}
		/* the same index in the window, with a copy */
		EXPECT(large_blob(client, 5000) == 0);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(all);
	return 0;
}

/* Answers from another thread: within the limits, and beyond max_client_bytes. */
static int own_memory_later(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *all = gn_alloc(MEM_BYTES, 0);
	struct gn_rpc_client *client;

	EXPECT(all);
	fill(all, MEM_BYTES, 1);
	EXPECT(link_up(w, fabric, GN_RPC_HYBRID, &client) == 0);
	for (unsigned i = 0; i < 20; i++) {
		const struct two want = {i % 2 ? SLOT + 1 : LIM, i};

		EXPECT(mem_call(client, MEM_LATER, want, all, i % 2 ? GN_RPC_OK : GN_RPC_BUSY) ==
		       0);
		EXPECT(await_release(&w->service) == 0);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(all);
	return 0;
}

static void test_own_memory_later(void **state)
{
	struct gn_rpc_server_opts opts = tiny;

	(void)state;
	opts.max_client_bytes = LIM / 2;
	run_everywhere(own_memory_later, &opts, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST(test_sizes, sizes, &tiny, 2),
		cmocka_unit_test(test_limits),
		RPC_TEST(test_more_than_queue, crowd, &tiny, 2),
		RPC_TEST_MODES(test_ends_early, in_the_middle, &tiny, 1),
		RPC_TEST(test_client_leaves, client_leaves, &tiny, 2),
		RPC_TEST_MODES(test_own_memory, own_memory_in, &tiny, 1),
		cmocka_unit_test(test_own_memory_later),
		RPC_TEST_MODES(test_many_results, many_results_in, &tiny, 2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
