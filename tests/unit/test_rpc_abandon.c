/* SPDX-License-Identifier: MIT */
/*
 * Abandoned calls: a handler learns, by query or callback, that the deadline passed, the call was
 * canceled or the client disconnected; and a call that is abandoned before it starts is not
 * executed.
 */
#define SERVICE_METHODS own_methods
#include "rpc_world.h"

#define TOLD_NS 20000000u /* in simulated time: how soon a handler knows */

enum { HOLD = 100 };

static struct {
	bool runs, release; /* atomic */
} held;

/* Its thread does nothing else until it is released. */
static void hold(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	__atomic_store_n(&held.runs, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&held.release, __ATOMIC_ACQUIRE))
		gn_sleep_us(100);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static int own_methods(struct service *s)
{
	return gn_rpc_server_handle(s->server, HOLD, hold, NULL);
}

static unsigned handlers_told(struct world *w, enum gn_rpc_caller state)
{
	return __atomic_load_n(&w->service.abandoned[state], __ATOMIC_ACQUIRE);
}

static int wait_watching(struct world *w, unsigned n)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (__atomic_load_n(&w->service.watching, __ATOMIC_ACQUIRE) != n) {
		EXPECT(gn_now_ns() < until_ns);
		gn_sleep_us(20);
	}
	return 0;
}

/* The handlers of n abandoned calls have been told, in time. */
static int all_handlers_told(struct world *w, unsigned n, unsigned before)
{
	const uint64_t from_ns = gn_now_ns();

	EXPECT(wait_watching(w, 0) == 0);
	EXPECT(!w->simulated || gn_now_ns() - from_ns < TOLD_NS);
	EXPECT(handlers_told(w, GN_RPC_CALLER_EXPIRED) + handlers_told(w, GN_RPC_CALLER_CANCELED) == before + n);
	return 0;
}

static int cancelled(struct world *w, struct gn_rpc_client *client)
{
	const unsigned before = handlers_told(w, GN_RPC_CALLER_EXPIRED) + handlers_told(w, GN_RPC_CALLER_CANCELED);
	const unsigned expired = handlers_told(w, GN_RPC_CALLER_EXPIRED);
	struct gn_rpc_request *request;
	struct async_call f[3];

	for (unsigned i = 0; i < 3; i++)
		EXPECT(submit_echo(client, &f[i], WATCH, 0) == 0);
	EXPECT(wait_watching(w, 3) == 0);
	request = __atomic_load_n(&w->service.watched, __ATOMIC_ACQUIRE);
	EXPECT(gn_rpc_request_state(request) == GN_RPC_CALLER_WAITS);
	gn_sleep_us(5000); /* the server's thread sleeps by now, and perhaps the client */
	for (unsigned i = 0; i < 3; i++)
		EXPECT(gn_rpc_cancel(&f[i].op) == 0);
	EXPECT(all_handlers_told(w, 3, before) == 0);
	EXPECT(handlers_told(w, GN_RPC_CALLER_EXPIRED) == expired); /* they had no deadline */
	return 0;
}

/* Two watched calls; false: their handlers ran too late, on a busy machine. */
static int submit_watched(struct world *w, struct gn_rpc_client *client, struct async_call f[2],
		       uint64_t us, bool *watched)
{
	const uint64_t first_ns = gn_deadline_us(us), second_ns = gn_deadline_us(us + us / 10);

	EXPECT(submit_echo(client, &f[0], WATCH, first_ns) == 0);
	EXPECT(submit_echo(client, &f[1], WATCH, second_ns) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	do {
		gn_sleep_us(20);
		*watched = __atomic_load_n(&w->service.watching, __ATOMIC_ACQUIRE) == 2;
	} while (!*watched && gn_now_ns() < second_ns);
	return 0;
}

/* The server's own clock tells it, even if the client does not. */
static int expired(struct world *w, struct gn_rpc_client *client)
{
	unsigned before, attempts = 0;
	struct async_call f[2];
	bool watched;

	do {
		EXPECT(attempts < (w->simulated ? 1 : 5));
		if (attempts) {
			EXPECT(wait_watching(w, 0) == 0);
			EXPECT(wait_all(client, f, 2) == 0);
		}
		before = handlers_told(w, GN_RPC_CALLER_EXPIRED) + handlers_told(w, GN_RPC_CALLER_CANCELED);
		EXPECT(submit_watched(w, client, f, 1000000ull << attempts++, &watched) == 0);
	} while (!watched);
	/* The client does nothing. */
	EXPECT(wait_watching(w, 0) == 0);
	EXPECT(handlers_told(w, GN_RPC_CALLER_EXPIRED) + handlers_told(w, GN_RPC_CALLER_CANCELED) == before + 2);
	EXPECT(handlers_told(w, GN_RPC_CALLER_EXPIRED) >= 2);
	EXPECT(wait_all(client, f, 2) == 0);
	return 0;
}

/* Calls for a busy thread: when it is free, their callers no longer wait. */
static int not_begun(struct world *w, struct gn_fabric *fabric, struct gn_rpc_client *client)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_op slow = {.method = HOLD};
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	const unsigned counted = __atomic_load_n(&w->service.counted, __ATOMIC_RELAXED);
	struct gn_rpc_client *other;
	unsigned status = GN_RPC_OK;

	__atomic_store_n(&held.runs, false, __ATOMIC_RELAXED);
	__atomic_store_n(&held.release, false, __ATOMIC_RELAXED);
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &other) == 0);
	EXPECT(call_echo(client, ECHO, 1, 1) == 0);
	EXPECT(gn_rpc_submit(other, &slow) == 0);
	EXPECT(gn_rpc_flush(other) == 0);
	while (!__atomic_load_n(&held.runs, __ATOMIC_ACQUIRE)) {
		EXPECT(gn_now_ns() < until_ns);
		gn_sleep_us(20);
	}
	EXPECT(gn_rpc_call(client, COUNT, NULL, 0, NULL, 0, NULL, gn_deadline_us(5000), &status) ==
	       0);
	EXPECT(status == GN_RPC_TIMEOUT);
	__atomic_store_n(&held.release, true, __ATOMIC_RELEASE);
	while (slow.client)
		EXPECT(gn_rpc_wait(other, until_ns) >= 0);
	EXPECT(call_echo(client, ECHO, 1, 1) == 0);
	EXPECT(__atomic_load_n(&w->service.counted, __ATOMIC_RELAXED) == counted);
	/* A call with time left is executed. */
	EXPECT(gn_rpc_call(client, COUNT, NULL, 0, NULL, 0, NULL, gn_deadline_us(UNIT_PATIENCE_US),
			   &status) == 0);
	EXPECT(status == GN_RPC_OK);
	EXPECT(__atomic_load_n(&w->service.counted, __ATOMIC_RELAXED) > counted);
	EXPECT(gn_rpc_client_close(other) == 0);
	return 0;
}

static int gone(struct world *w, struct gn_rpc_client *client)
{
	const unsigned before = handlers_told(w, GN_RPC_CALLER_GONE);
	struct async_call f[2];

	for (unsigned i = 0; i < 2; i++)
		EXPECT(submit_echo(client, &f[i], WATCH, 0) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(wait_watching(w, 2) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	EXPECT(wait_watching(w, 0) == 0);
	EXPECT(handlers_told(w, GN_RPC_CALLER_GONE) == before + 2);
	return 0;
}

/* Sizes up to the largest, in batches, with and without a deadline. */
static int sizes(struct gn_rpc_client *client)
{
	static const uint32_t len[] = {0, 1, 8, 100, 4095, 4096};
	static uint8_t request[4096], result[6][4096];
	struct gn_rpc_op ops[6];

	fill(request, sizeof(request), 5);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < 6; i++)
			ops[i] = (struct gn_rpc_op){
				.method = ECHO,
				.request = request,
				.request_len = len[i],
				.result = result[i],
				.result_room = sizeof(result[i]),
				.deadline_ns = (round + i) % 3 ? gn_deadline_us(UNIT_PATIENCE_US) :
								 0,
			};
		EXPECT(gn_rpc_call_all(client, ops, 6) == 0);
		for (unsigned i = 0; i < 6; i++)
			EXPECT(ops[i].status == GN_RPC_OK && ops[i].result_len == len[i] &&
			       !memcmp(result[i], request, len[i]));
	}
	return 0;
}

static int abandoned_calls(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;

	opts.batch.entries = mode == GN_RPC_REPLY ? 3 : 1;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(sizes(client) == 0);
	EXPECT(cancelled(w, client) == 0);
	EXPECT(expired(w, client) == 0);
	EXPECT(not_begun(w, fabric, client) == 0);
	EXPECT(gone(w, client) == 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST_MODES(test_abandoned, abandoned_calls, NULL, 1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
