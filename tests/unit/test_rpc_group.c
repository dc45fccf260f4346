/* SPDX-License-Identifier: MIT */
/*
 * Groups: every call is executed once, in order, and has its own result, whatever the result's
 * size: in a slot, held until one is free, or read by the client. A large request of an ordered
 * method keeps its order. A call that the handler does not answer has failed.
 */
#define SERVICE_METHODS group_methods
#include "rpc_world.h"

#define SLOT  512u /* bytes per slot */
#define N     64u  /* entries of a batch */
#define LARGE 40000u

enum { GROUP = 100, GROUP_TOO, OTHER_ARG, UNORDERED };

/* What a request tells its handler to do. */
enum how { IN_ROOM, ROOM_AND_COPY, COPY, OWN_MEM, PUT, FORGET, TWICE, HOWS, NOTHING_YET };
struct ask {
	uint32_t number, bytes;
	uint32_t how, sleep_us;
};

/* What the handlers have done. They run on one thread. */
#define LOG_MAX 4096u
static struct {
	uint32_t number[LOG_MAX];
	uint32_t n; /* atomic */
	uint32_t largest, told, put;
} done_log;

static void forget_log(void)
{
	__atomic_store_n(&done_log.n, 0, __ATOMIC_RELEASE);
	done_log.largest = 0;
}

static uint32_t n_done(void)
{
	return __atomic_load_n(&done_log.n, __ATOMIC_ACQUIRE);
}

static void execute(struct gn_rpc_group *group, unsigned i, const struct ask *ask,
		    struct service *s)
{
	static uint8_t own[2 * LARGE];
	uint8_t *room = NULL;

	if (ask->how == IN_ROOM || ask->how == ROOM_AND_COPY || ask->how == TWICE) {
		room = gn_rpc_group_room(group, i, ask->bytes);
		if (!room) /* it is answered already */
			return;
	}
	done_log.number[done_log.n % LOG_MAX] = ask->number;
	__atomic_store_n(&done_log.n, done_log.n + 1, __ATOMIC_RELEASE);
	if (ask->sleep_us)
		gn_sleep_us(ask->sleep_us);
	fill(ask->how == IN_ROOM || ask->how == TWICE ? room : own, ask->bytes, ask->number);
	switch (ask->how) {
	case IN_ROOM:
	case TWICE:
		gn_rpc_group_answer(group, i, GN_RPC_OK, room, ask->bytes);
		if (ask->how == TWICE)
			gn_rpc_group_answer(group, i, GN_RPC_DENIED, NULL, 0);
		return;
	case PUT:
		room = gn_rpc_group_put(group, i, GN_RPC_OK, ask->bytes);
		if (room)
			memcpy(room, own, ask->bytes);
		else
			gn_rpc_group_answer(group, i, GN_RPC_OK, own, ask->bytes);
		done_log.put += room != NULL;
		return;
	case ROOM_AND_COPY:
	case COPY:
		gn_rpc_group_answer(group, i, GN_RPC_OK, own, ask->bytes);
		memset(own, 0xee, ask->bytes);
		return;
	case OWN_MEM:
		__atomic_fetch_add(&s->lent, 1, __ATOMIC_RELAXED);
		gn_rpc_group_answer_mem(group, i, GN_RPC_OK, s->mem, 0, ask->bytes, mem_released,
					s);
		return;
	default:
		return;
	}
}

static void group_handler(struct gn_rpc_group *group, void *arg)
{
	const unsigned n = gn_rpc_group_size(group);

	if (n > done_log.largest)
		done_log.largest = n;
	for (unsigned i = 0; i < n; i++) {
		uint32_t len;
		const uint8_t *data = gn_rpc_group_data(group, i, &len);
		struct ask ask;

		if (len < sizeof(ask) || gn_rpc_group_thread(group) ||
		    !gn_rpc_group_client(group)) {
			gn_rpc_group_answer(group, i, GN_RPC_DENIED, NULL, 0);
			continue;
		}
		memcpy(&ask, data, sizeof(ask));
		if (!is_filled(data + sizeof(ask), len - (uint32_t)sizeof(ask), ask.number))
			gn_rpc_group_answer(group, i, GN_RPC_DENIED, NULL, 0);
		else
			execute(group, i, &ask, arg);
	}
}

static int group_methods(struct service *s)
{
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP, group_handler, s, GN_RPC_ORDERED) == 0);
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP_TOO, group_handler, s, GN_RPC_ORDERED) ==
	       0);
	EXPECT(gn_rpc_server_handle_group(s->server, UNORDERED, group_handler, s, 0) == 0);
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP, group_handler, s, 0) == -EEXIST);
	EXPECT(gn_rpc_server_handle(s->server, GROUP, echo, s) == -EEXIST);
	EXPECT(gn_rpc_server_handle_group(s->server, OTHER_ARG, NULL, s, 0) == -EINVAL);
	EXPECT(gn_rpc_server_handle_group(s->server, OTHER_ARG, group_handler, s, GN_RPC_POLLED) ==
	       -EINVAL);
	return 0;
}

/* ---- calls ---- */

struct call {
	struct gn_rpc_op op;
	struct ask ask;
	uint8_t *request, *result;
	unsigned ended;
};

static void call_ended(struct gn_rpc_op *op)
{
	((struct call *)op->arg)->ended++;
}

static int call_make(struct call *c, unsigned method, struct ask ask, uint32_t len)
{
	c->ask = ask;
	c->ended = 0;
	c->request = gn_alloc(sizeof(ask) + len, 0);
	c->result = gn_alloc(ask.bytes + 1, 0);
	EXPECT(c->request && c->result);
	memcpy(c->request, &ask, sizeof(ask));
	fill(c->request + sizeof(ask), len, ask.number);
	c->op = (struct gn_rpc_op){.method = method,
				   .request = c->request,
				   .request_len = (uint32_t)sizeof(ask) + len,
				   .result = c->result,
				   .result_room = ask.bytes,
				   .deadline_ns =
					   gn_random() % 2 ? 0 : gn_deadline_us(UNIT_PATIENCE_US),
				   .done = call_ended,
				   .arg = c};
	return 0;
}

static int submit(struct gn_rpc_client *client, struct call *c)
{
	int rc;

	while ((rc = gn_rpc_submit(client, &c->op)) == -EAGAIN)
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	EXPECT(rc == 0);
	return 0;
}

static int wait_calls(struct gn_rpc_client *client, struct call *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		while (!c[i].ended)
			EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	return 0;
}

static int call_check(struct call *c, unsigned status)
{
	const uint32_t seed = c->ask.how == OWN_MEM ? 1 : c->ask.number;

	EXPECT(c->ended == 1);
	EXPECT(c->op.status == status);
	EXPECT(c->op.result_len == (status ? 0 : c->ask.bytes));
	EXPECT(is_filled(c->result, c->op.result_len, seed));
	gn_free(c->request);
	gn_free(c->result);
	return 0;
}

static int connect_to(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		      struct gn_rpc_client **out)
{
	struct gn_rpc_client_opts opts = in_mode(mode);

	opts.slots = SLOTS;
	opts.max_result = SLOT;
	opts.batch = (struct gn_rpc_batch){.entries = N, .wait_us = 1000000};
	return gn_rpc_client_open(fabric, w->addr, &opts, out);
}

/* Executed once each, in order. */
static int in_order(uint32_t n)
{
	EXPECT(n_done() == n);
	for (uint32_t i = 0; i < n; i++)
		EXPECT(done_log.number[i] == i);
	return 0;
}

/* ---- results of every size ---- */

static int sizes_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	static struct call c[4 * N];
	struct gn_rpc_client *client;

	EXPECT(connect_to(w, fabric, mode, &client) == 0);
	for (unsigned round = 0; round < 4; round++) {
		forget_log();
		for (uint32_t i = 0; i < 4 * N; i++) {
			uint32_t bytes = (uint32_t)gn_random() % (SLOT + 1);

			if (round == 0)
				bytes = SLOT; /* one result per message */
			else if (round > 1 && gn_random() % 16 == 0)
				bytes = SLOT + 1 + (uint32_t)gn_random() % LARGE;
			EXPECT(call_make(&c[i], gn_random() % 4 ? GROUP : GROUP_TOO,
					 (struct ask){i, bytes,
						      (uint32_t)gn_random() % (PUT + 1), 0},
					 (uint32_t)gn_random() % 32) == 0);
			EXPECT(submit(client, &c[i]) == 0);
		}
		EXPECT(wait_calls(client, c, 4 * N) == 0);
		EXPECT(in_order(4 * N) == 0);
		EXPECT(done_log.largest <= N && (!w->simulated || done_log.largest > 1));
		for (uint32_t i = 0; i < 4 * N; i++)
			EXPECT(call_check(&c[i], GN_RPC_OK) == 0);
	}
	/* A group that is slow on a busy machine starts without an open message. */
	EXPECT(done_log.put || !w->simulated);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- one message whose results together exceed a slot ---- */

static int whole_group(struct world *w, struct gn_fabric *fabric)
{
	static struct call c[N];
	struct gn_rpc_client *client;
	struct gn_rpc_counters before = {.size = sizeof(before)}, after = before;

	EXPECT(connect_to(w, fabric, GN_RPC_FETCH, &client) == 0);
	/* A slow group is split into single calls until the method is known to be fast. */
	for (unsigned round = 0; round < 8; round++) {
		forget_log();
		EXPECT(gn_rpc_server_counters(w->service.server, &before) == 0);
		for (uint32_t i = 0; i < N; i++) {
			EXPECT(call_make(&c[i], GROUP, (struct ask){i, 200, IN_ROOM, 0}, 0) == 0);
			EXPECT(gn_rpc_submit(client, &c[i].op) == 0);
		}
		EXPECT(wait_calls(client, c, N) == 0);
		EXPECT(in_order(N) == 0);
		for (uint32_t i = 0; i < N; i++)
			EXPECT(call_check(&c[i], GN_RPC_OK) == 0);
		EXPECT(gn_rpc_server_counters(w->service.server, &after) == 0);
		EXPECT(after.batches - before.batches == 1 && after.calls - before.calls == N);
		EXPECT(after.results - before.results >= N / 2);
		if (w->simulated)
			EXPECT(done_log.largest == N);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- order ---- */

/* A large request among small ones, and in messages between others. */
static int ordered(struct world *w, struct gn_fabric *fabric)
{
	static struct call c[3 * N];
	struct gn_rpc_client *client;

	EXPECT(connect_to(w, fabric, GN_RPC_HYBRID, &client) == 0);
	for (unsigned round = 0; round < 6; round++) {
		forget_log();
		for (uint32_t i = 0; i < 3 * N; i++) {
			const bool large = round ? gn_random() % 20 == 0 : i == N / 2;

			EXPECT(call_make(&c[i], gn_random() % 4 ? GROUP : GROUP_TOO,
					 (struct ask){i, (uint32_t)gn_random() % 64, IN_ROOM, 0},
					 large ? 5000 + (uint32_t)gn_random() % LARGE : 8) == 0);
			EXPECT(submit(client, &c[i]) == 0);
		}
		EXPECT(wait_calls(client, c, 3 * N) == 0);
		EXPECT(in_order(3 * N) == 0);
		for (uint32_t i = 0; i < 3 * N; i++)
			EXPECT(call_check(&c[i], GN_RPC_OK) == 0);
	}
	/* Without the flag no call waits for it, and all are executed. */
	forget_log();
	for (uint32_t i = 0; i < N; i++) {
		EXPECT(call_make(&c[i], UNORDERED, (struct ask){i, 8, IN_ROOM, 0},
				 i == 3 ? 1u << 20 : 8) == 0);
		EXPECT(submit(client, &c[i]) == 0);
	}
	EXPECT(wait_calls(client, c, N) == 0);
	EXPECT(n_done() == N);
	EXPECT(!w->simulated || done_log.number[N - 1] == 3);
	for (uint32_t i = 0; i < N; i++)
		EXPECT(call_check(&c[i], GN_RPC_OK) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* The client disconnects while the server reads its large request, or just after. */
static int ordered_disconnect(struct world *w, struct gn_fabric *fabric)
{
	static struct call c[8];
	struct gn_rpc_client *client;

	for (unsigned round = 0; round < 6; round++) {
		EXPECT(connect_to(w, fabric, GN_RPC_HYBRID, &client) == 0);
		for (uint32_t i = 0; i < 8; i++) {
			EXPECT(call_make(&c[i], GROUP, (struct ask){i, 8, IN_ROOM, 0},
					 i % 4 == 1 ? 1u << 20 : 8) == 0);
			EXPECT(submit(client, &c[i]) == 0);
		}
		EXPECT(gn_rpc_flush(client) == 0);
		gn_sleep_us(round * 20);
		EXPECT(gn_rpc_client_close(client) == 0);
		for (uint32_t i = 0; i < 8; i++)
			EXPECT(call_check(&c[i], c[i].op.status) == 0);
	}
	return 0;
}

/* ---- errors of a handler, and limits ---- */

static void count_told(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	if (level == GN_LOG_ERROR && strstr(line, "answered twice"))
		__atomic_fetch_add(&done_log.told, 1, __ATOMIC_RELAXED);
}

static int mistakes(struct world *w, struct gn_fabric *fabric)
{
	static struct call c[N];
	struct gn_rpc_client *client;
	unsigned twice = 0;

	EXPECT(connect_to(w, fabric, GN_RPC_HYBRID, &client) == 0);
	gn_log_to(count_told, NULL);
	done_log.told = 0;
	for (uint32_t i = 0; i < N; i++) {
		const uint32_t how = i % 3 ? (i % 3 == 1 ? FORGET : TWICE) : IN_ROOM;

		twice += how == TWICE;
		EXPECT(call_make(&c[i], GROUP, (struct ask){i, i * 7, how, 0}, 0) == 0);
		EXPECT(submit(client, &c[i]) == 0);
	}
	EXPECT(wait_calls(client, c, N) == 0);
	gn_log_to(NULL, NULL);
	EXPECT(__atomic_load_n(&done_log.told, __ATOMIC_RELAXED) == twice);
	for (uint32_t i = 0; i < N; i++)
		EXPECT(call_check(&c[i], i % 3 == 1 ? GN_RPC_FAILED : GN_RPC_OK) == 0);
	/* Larger than max_large. */
	EXPECT(call_make(&c[0], GROUP, (struct ask){0, (1u << 20) + 1, IN_ROOM, 0}, 0) == 0);
	forget_log();
	EXPECT(submit(client, &c[0]) == 0);
	EXPECT(wait_calls(client, c, 1) == 0);
	EXPECT(call_check(&c[0], GN_RPC_TOO_BIG) == 0);
	EXPECT(n_done() == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- a client that does not acknowledge ---- */

/*
 * Fills its slots and never polls: what is held for it is bounded, and a call whose result cannot
 * be held is not executed.
 */
static int never_acks(struct world *w, struct gn_fabric *fabric)
{
	static struct call c[SLOTS * N];
	struct gn_rpc_counters count = {.size = sizeof(count)};
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_client *client;
	uint32_t n = 0, held = 0;

	forget_log();
	EXPECT(connect_to(w, fabric, GN_RPC_FETCH, &client) == 0);
	for (; n < SLOTS * N; n++) {
		EXPECT(call_make(&c[n], GROUP, (struct ask){n, SLOT, IN_ROOM, 0}, 0) == 0);
		c[n].op.deadline_ns = 0;
		if (gn_rpc_submit(client, &c[n].op)) {
			gn_free(c[n].request);
			gn_free(c[n].result);
			break;
		}
	}
	EXPECT(n > N);
	EXPECT(gn_rpc_flush(client) == 0);
	do {
		gn_sleep_us(100);
		EXPECT(gn_now_ns() < until_ns);
		EXPECT(gn_rpc_server_counters(w->service.server, &count) == 0);
		EXPECT(count.bytes <= w->opts.max_client_bytes);
	} while (count.calls < n);
	EXPECT(wait_calls(client, c, n) == 0);
	for (uint32_t i = 0; i < n; i++) {
		held += c[i].op.status == GN_RPC_OK;
		EXPECT(c[i].op.status == GN_RPC_OK || c[i].op.status == GN_RPC_BUSY);
		EXPECT(call_check(&c[i], c[i].op.status) == 0);
	}
	EXPECT(held < n && held > SLOTS && held == n_done());
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- abandoned calls ---- */

static int abandoned_calls(struct world *w, struct gn_fabric *fabric)
{
	static struct call slow, c[8];
	struct gn_rpc_client *client, *other;

	EXPECT(connect_to(w, fabric, GN_RPC_FETCH, &client) == 0);
	EXPECT(connect_to(w, fabric, GN_RPC_FETCH, &other) == 0);
	forget_log();
	EXPECT(call_make(&slow, GROUP, (struct ask){99, 0, COPY, 20000}, 0) == 0);
	EXPECT(submit(other, &slow) == 0);
	EXPECT(gn_rpc_flush(other) == 0);
	while (!n_done()) /* its handler runs */
		gn_sleep_us(20);
	for (uint32_t i = 0; i < 8; i++) {
		EXPECT(call_make(&c[i], GROUP, (struct ask){i, 8, IN_ROOM, 0}, 0) == 0);
		c[i].op.deadline_ns = i % 2 ? gn_deadline_us(100) : 0;
		EXPECT(submit(client, &c[i]) == 0);
	}
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(wait_calls(client, c, 8) == 0);
	EXPECT(wait_calls(other, &slow, 1) == 0);
	EXPECT(call_check(&slow, GN_RPC_OK) == 0);
	EXPECT(call_echo(client, ECHO, 1, 1) == 0);
	for (uint32_t i = 0; i < 8; i++)
		EXPECT(c[i].op.status == GN_RPC_OK || i % 2);
	if (w->simulated) { /* else this machine may have been slower than the handler */
		EXPECT(n_done() == 5);
		for (uint32_t i = 0; i < 4; i++)
			EXPECT(done_log.number[1 + i] == 2 * i);
	}
	for (uint32_t i = 0; i < 8; i++)
		EXPECT(call_check(&c[i], c[i].op.status) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	EXPECT(gn_rpc_client_close(other) == 0);
	return 0;
}

static const struct gn_rpc_server_opts usual = {
	.size = sizeof(usual), .max_large = 1u << 20, .park_us = 300};

static void test_ordered(void **state)
{
	struct gn_rpc_server_opts opts = usual;

	(void)state;
	opts.max_large = 4u << 20;
	run_everywhere(ordered, &opts, 1);
}

static void test_ordered_disconnect(void **state)
{
	struct gn_rpc_server_opts opts = usual;

	(void)state;
	opts.max_large = 4u << 20;
	run_everywhere(ordered_disconnect, &opts, 1);
}

static void test_never_acks(void **state)
{
	struct gn_rpc_server_opts opts = usual;

	(void)state;
	opts.max_window = SLOTS * N;
	opts.max_large = 4096;
	opts.max_client_bytes = 384u << 10;
	/* a client that does not poll cannot see that it is parked */
	opts.park_us = UNIT_PATIENCE_US;
	run_everywhere(never_acks, &opts, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST_MODES(test_sizes, sizes_in, &usual, 1),
		RPC_TEST(test_whole_group, whole_group, &usual, 1),
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_ordered_disconnect),
		RPC_TEST(test_mistakes, mistakes, &usual, 1),
		cmocka_unit_test(test_never_acks),
		RPC_TEST(test_abandoned, abandoned_calls, &usual, 1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
