/* SPDX-License-Identifier: MIT */
/*
 * A client that waits for a slow call sleeps, and is woken when its result is there: in every mode,
 * beside fast calls, repeatedly.
 */
#include <time.h>

#include "rpc_world.h"

#define LONG_US	    100000u
#define ROUNDS	    7u
#define CPU_US	    1000000u /* length of a wait whose CPU time is measured */
#define CPU_SHARE   100u     /* at most this fraction */
#define LATE_NS	    2500000u /* of the median; on a shared machine */
#define LATE_SIM_NS 100000u
#define UNPOLLED    8u	  /* calls that are submitted without a poll */
#define IN_VAIN	    1000u /* polls of a call whose server is gone */

struct answerer {
	struct service *service;
	uint32_t us;
	uint64_t ns; /* when it answered; atomic */
	struct gn_thread *thread;
};

/* Answers the one deferred request when its time has come. */
static void answer_one(void *arg)
{
	struct answerer *a = arg;
	struct gn_rpc_request *request;

	gn_sleep_us(a->us);
	while (!aside(a->service))
		gn_sleep_us(10);
	gn_mutex_lock(&a->service->lock);
	request = a->service->aside[--a->service->n_aside];
	gn_mutex_unlock(&a->service->lock);
	a->ns = gn_now_ns();
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static int wait_long(struct world *w, struct gn_rpc_client *client, uint32_t us, uint64_t *late_ns)
{
	struct answerer a = {.service = &w->service, .us = us};
	unsigned status = GN_RPC_FAILED;
	uint64_t now_ns;

	EXPECT(gn_thread_start("answerer", answer_one, &a, &a.thread) == 0);
	EXPECT(gn_rpc_call(client, LATER, NULL, 0, NULL, 0, NULL, gn_deadline_us(UNIT_PATIENCE_US),
			   &status) == 0);
	now_ns = gn_now_ns();
	EXPECT(gn_thread_join(a.thread) == 0);
	EXPECT(status == GN_RPC_OK && now_ns >= a.ns);
	*late_ns = now_ns - a.ns;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int sleeps_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	uint64_t late_ns[ROUNDS], spent_ns;
	struct gn_rpc_client *client;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	shut(&w->service, true);
	for (unsigned i = 0; i < ROUNDS; i++) {
		EXPECT(wait_long(w, client, LONG_US + 997 * i, &late_ns[i]) == 0);
		EXPECT(call_echo(client, ECHO, 100, i) == 0);
	}
	qsort(late_ns, ROUNDS, sizeof(late_ns[0]), by_value);
	print_message("# mode %d: woken %llu us late at the median, %llu us at most\n", mode,
		      (unsigned long long)late_ns[ROUNDS / 2] / 1000,
		      (unsigned long long)late_ns[ROUNDS - 1] / 1000);
	EXPECT(late_ns[ROUNDS / 2] < (w->simulated ? LATE_SIM_NS : LATE_NS));
	if (!w->simulated) {
		spent_ns = cpu_ns();
		EXPECT(wait_long(w, client, CPU_US, &late_ns[0]) == 0);
		spent_ns = cpu_ns() - spent_ns;
		print_message("# mode %d: %llu us of the processor in a second\n", mode,
			      (unsigned long long)spent_ns / 1000);
		EXPECT(spent_ns < CPU_US * 1000ull / CPU_SHARE);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/*
 * While the client sleeps for one call, a deadline passes and another server disconnects: each
 * wakes it.
 */
static int others_wake(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct async_call lock, late;
	uint64_t now_ns;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	shut(&w->service, true);
	EXPECT(submit_echo(client, &lock, LATER, 0) == 0);
	EXPECT(submit_echo(client, &late, LATER, gn_deadline_us(20000)) == 0);
	now_ns = gn_now_ns();
	EXPECT(wait_all(client, &late, 1) == 0);
	EXPECT(late.op.status == GN_RPC_TIMEOUT);
	EXPECT(!w->simulated || gn_now_ns() - now_ns < 21000000);
	EXPECT(gn_rpc_wait(client, gn_deadline_us(10000)) == -ETIMEDOUT);
	EXPECT(world_restart(w) == 0);
	EXPECT(wait_all(client, &lock, 1) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/*
 * A result that waits for a slot, of a client that acknowledged the last one without a request
 * while it was parked: the server must check whether the slot is free.
 */
static int held_while_parked(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct answerer a = {.service = &w->service, .us = 10000};
	struct gn_rpc_client *client;
	struct async_call f[2];
	uint64_t late_ns;

	opts.slots = 1;
	opts.batch.entries = 2; /* two outstanding calls */
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	shut(&w->service, true);
	for (unsigned i = 0; i < 2; i++) {
		flight_make(&f[i], LATER, 0, i, 0);
		while (gn_rpc_submit(client, &f[i].op))
			gn_rpc_poll(client);
		EXPECT(gn_rpc_flush(client) == 0);
		while (aside(&w->service) <= i)
			gn_sleep_us(20);
	}
	for (unsigned i = 0; i < 2; i++) { /* each while the client sleeps and is parked */
		EXPECT(gn_thread_start("answerer", answer_one, &a, &a.thread) == 0);
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
		late_ns = gn_now_ns();
		EXPECT(gn_thread_join(a.thread) == 0);
		late_ns -= a.ns;
		EXPECT(!w->simulated || late_ns < LATE_SIM_NS);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/*
 * A request sent right after connecting, or after a pause, reaches its handler although the server
 * has parked the client and the client does not poll.
 */
static int unpolled(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct async_call f;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < 4; i++) {
		const uint64_t deadline_ns =
			gn_deadline_us(w->simulated ? 10000 : UNIT_PATIENCE_US);

		gn_sleep_us(i * w->opts.park_us);
		shut(&w->service, true);
		EXPECT(submit_echo(client, &f, LATER, 0) == 0);
		while (!aside(&w->service)) {
			EXPECT(gn_now_ns() < deadline_ns);
			gn_sleep_us(20);
		}
		shut(&w->service, false);
		EXPECT(wait_all(client, &f, 1) == 0 && async_call_check(&f) == 0);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/*
 * Several requests with pauses in which the server parks the client: all reach their handler
 * although the client does not poll.
 */
static int unpolled_many(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct async_call f[UNPOLLED];

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	shut(&w->service, true);
	for (unsigned i = 0; i < UNPOLLED; i++) {
		const uint64_t deadline_ns =
			gn_deadline_us(w->simulated ? 10000 : UNIT_PATIENCE_US);

		gn_sleep_us(4 * w->opts.park_us);
		EXPECT(submit_echo(client, &f[i], LATER, 0) == 0);
		while (aside(&w->service) <= i) {
			EXPECT(gn_now_ns() < deadline_ns);
			gn_sleep_us(20);
		}
	}
	shut(&w->service, false);
	EXPECT(wait_all(client, f, UNPOLLED) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- a server that vanishes ---- */

/* A fetch that must wait for its request's completion does not poll meanwhile. */
static int vanishes(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_counters before = {.size = sizeof(before)}, after = before;
	struct gn_rpc_client *client;
	unsigned status = GN_RPC_OK;

	(void)w;
	opts.flags = GN_RPC_SIGNALED;
	EXPECT(gn_rpc_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	while (status == GN_RPC_OK) {
		EXPECT(gn_fabric_counters(fabric, &before) == 0);
		EXPECT(gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, GN_FOREVER, &status) == 0);
	}
	EXPECT(status == GN_RPC_PEER_GONE);
	EXPECT(gn_fabric_counters(fabric, &after) == 0);
	print_message("# the last call polled its cq in vain %llu times\n",
		      (unsigned long long)(after.polls_empty - before.polls_empty));
	EXPECT(after.polls_empty - before.polls_empty < IN_VAIN);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* At ten times, some between a request and its completion. */
static void test_server_vanishes(void **state)
{
	const uint64_t seed = unit_seed();

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		struct world w = {.program = vanishes};
		char faults[64];

		snprintf(faults, sizeof(faults), "partition@%uns:n0", 1000000 + 500 * i);
		w.faults = faults;
		simulate(&w, "connect-ib", 0, seed, 1);
	}
}

static const struct gn_rpc_server_opts parks_200us = {.size = sizeof(parks_200us), .park_us = 200};
static const struct gn_rpc_server_opts parks_300us = {.size = sizeof(parks_300us), .park_us = 300};

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST_MODES(test_unpolled, unpolled, &parks_200us, 1),
		RPC_TEST_MODES(test_unpolled_many, unpolled_many, &parks_200us, 1),
		cmocka_unit_test(test_server_vanishes),
		RPC_TEST(test_held_while_parked, held_while_parked, &parks_300us, 1),
		RPC_TEST_MODES(test_sleeps, sleeps_in, NULL, 1),
		RPC_TEST_MODES(test_other_wakeups, others_wake, NULL, 1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
