/* SPDX-License-Identifier: MIT */
/*
 * Clients that go from thread to thread: released when they are idle, adopted by whoever is first,
 * closed by any thread once they are released; and what is told to those who do it wrongly.
 */
#include "event_loop.h"
#include "gannet/exec.h"
#include "gannet/kv.h"
#include "rpc_world.h"
#include "unit_shm.h"

#define ROUNDS	   100u
#define ROUNDS_SIM 20u
#define RACERS	   3u

/* ---- two threads, one client ---- */

struct pass {
	struct gn_rpc_client *rpc;
	struct gn_kv_client *kv;
	struct nap *nap;
	unsigned turn; /* atomic: whose it is, by its lowest bit */
	unsigned rounds;
	int failed;
};

static int use(struct pass *p, unsigned round)
{
	uint32_t key = round % 7, value = round, got = 0, len = 0;

	if (p->rpc) {
		struct async_call f;

		EXPECT(call_echo(p->rpc, ECHO, 100 + round % 50, round) == 0);
		EXPECT(submit_echo(p->rpc, &f, ECHO, gn_deadline_us(UNIT_PATIENCE_US)) == 0);
		while (!f.ended) { /* the same fd in another thread */
			EXPECT(nap(p->nap, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
			EXPECT(gn_rpc_poll(p->rpc) >= 0);
		}
		EXPECT(async_call_check(&f) == 0);
	}
	if (p->kv) {
		EXPECT(gn_kv_set(p->kv, &key, sizeof(key), &value, sizeof(value), 0,
				 gn_deadline_us(UNIT_PATIENCE_US)) == 0);
		EXPECT(gn_kv_get(p->kv, &key, sizeof(key), &got, sizeof(got), &len,
				 gn_deadline_us(UNIT_PATIENCE_US)) == 0);
		EXPECT(got == value && len == sizeof(value));
	}
	return 0;
}

static int take_turns(struct pass *p, unsigned who)
{
	for (unsigned round = who; round < p->rounds; round += 2) {
		while (__atomic_load_n(&p->turn, __ATOMIC_RELAXED) != round) {
			if (__atomic_load_n(&p->failed, __ATOMIC_RELAXED))
				return 0;
			gn_sleep_us(10);
		}
		/* What the other did is known by the adoption alone: the turn is relaxed. */
		EXPECT(!p->rpc || gn_rpc_client_adopt(p->rpc) == 0);
		EXPECT(!p->kv || gn_kv_client_adopt(p->kv) == 0);
		EXPECT(use(p, round) == 0);
		EXPECT(!p->rpc || gn_rpc_client_release(p->rpc) == 0);
		EXPECT(!p->kv || gn_kv_client_release(p->kv) == 0);
		EXPECT(!p->rpc || gn_rpc_poll(p->rpc) == -EPERM);
		__atomic_store_n(&p->turn, round + 1, __ATOMIC_RELAXED);
	}
	return 0;
}

static void second_thread(void *arg)
{
	struct pass *p = arg;
	const int rc = take_turns(p, 1);

	if (rc)
		__atomic_store_n(&p->failed, rc, __ATOMIC_RELAXED);
}

static int pass_on(struct pass *p)
{
	struct gn_thread *thread;
	int rc;

	EXPECT(gn_thread_start("second", second_thread, p, &thread) == 0);
	rc = take_turns(p, 0);
	if (rc)
		__atomic_store_n(&p->failed, rc, __ATOMIC_RELAXED);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(p->failed == 0);
	return 0;
}

static int rpc_to_and_fro(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	const struct gn_rpc_client_opts opts = in_mode(mode);
	struct pass p = {.rounds = w->simulated ? ROUNDS_SIM : ROUNDS};
	struct nap n;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &p.rpc) == 0);
	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_rpc_client_source(p.rpc)) == 0);
	p.nap = &n;
	EXPECT(pass_on(&p) == 0);
	nap_close(&n);
	/* Any thread may close it now. */
	EXPECT(gn_rpc_client_close(p.rpc) == 0);
	return 0;
}

static void test_kv_to_and_fro(void **state)
{
	const struct gn_kv_server_opts opts = {.size = sizeof(opts), .threads = 2};
	struct pass p = {.rounds = ROUNDS};
	struct gn_kv_server *server;
	struct gn_fabric *fabric;
	char addr[UNIT_ADDR];

	(void)state;
	fabric = unit_shm(addr);
	assert_int_equal(gn_kv_server_create(fabric, addr, &opts, &server), 0);
	assert_int_equal(gn_kv_server_start(server), 0);
	assert_int_equal(gn_kv_client_open(fabric, addr, NULL, &p.kv), 0);
	assert_int_equal(pass_on(&p), 0);
	assert_int_equal(gn_kv_client_close(p.kv), 0);
	gn_kv_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- misuse ---- */

struct other {
	struct gn_rpc_client *client;
	int adopt, poll, close, release;
	bool stop;	 /* atomic */
	unsigned *tried; /* atomic: racers */
};

static void other_thread(void *arg)
{
	struct other *o = arg;

	o->adopt = gn_rpc_client_adopt(o->client);
	o->poll = gn_rpc_poll(o->client);
	o->release = gn_rpc_client_release(o->client);
	o->close = gn_rpc_client_close(o->client);
}

static int ask_other(struct other *o)
{
	struct gn_thread *thread;

	EXPECT(gn_thread_start("other", other_thread, o, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	return 0;
}

static void tries_all_the_time(void *arg)
{
	struct other *o = arg;

	while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE)) {
		if (gn_rpc_client_adopt(o->client) != -EBUSY)
			o->adopt++;
		if (gn_rpc_client_close(o->client) != -EPERM)
			o->close++;
		gn_sleep_us(10);
	}
}

/* Has it until all have tried. */
static void racer_thread(void *arg)
{
	struct other *o = arg;

	o->adopt = gn_rpc_client_adopt(o->client);
	__atomic_fetch_add(o->tried, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(o->tried, __ATOMIC_RELAXED) < RACERS)
		gn_sleep_us(10);
	if (!o->adopt)
		o->release = gn_rpc_client_release(o->client);
}

static int in_done_rc;

static void release_in_done(struct gn_rpc_op *op)
{
	in_done_rc = gn_rpc_client_release(op->arg);
}

static int misuse(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct other o = {.stop = false}, racers[RACERS];
	struct gn_thread *thread[RACERS];
	struct async_call f, call;
	unsigned won = 0, tried = 0;

	EXPECT(gn_rpc_client_adopt(NULL) == -EINVAL && gn_rpc_client_release(NULL) == -EINVAL);
	EXPECT(gn_kv_client_adopt(NULL) == -EINVAL && gn_kv_client_release(NULL) == -EINVAL);
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &o.client) == 0);
	EXPECT(gn_rpc_client_adopt(o.client) == 0); /* its own */
	EXPECT(ask_other(&o) == 0);
	EXPECT(o.adopt == -EBUSY && o.poll == -EPERM && o.release == -EPERM && o.close == -EPERM);
	/* Something is under way; and while another thread is in it, all the time. */
	shut(&w->service, true);
	EXPECT(submit_echo(o.client, &f, LATER, 0) == 0);
	EXPECT(gn_rpc_client_release(o.client) == -EBUSY);
	EXPECT(gn_thread_start("tries", tries_all_the_time, &o, &thread[0]) == 0);
	o.adopt = o.close = 0;
	EXPECT(gn_rpc_wait(o.client, gn_deadline_us(20000)) == -ETIMEDOUT);
	shut(&w->service, false);
	EXPECT(wait_all(o.client, &f, 1) == 0);
	for (unsigned i = 0; i < 50; i++)
		EXPECT(call_echo(o.client, ECHO, 50, i) == 0);
	__atomic_store_n(&o.stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(thread[0]) == 0);
	EXPECT(o.adopt == 0 && o.close == 0);
	flight_make(&call, ECHO, 8, 1, 0);
	call.op.done = release_in_done;
	call.op.arg = o.client;
	EXPECT(gn_rpc_call_all(o.client, &call.op, 1) == 0 && in_done_rc == -EDEADLK);
	/* Whoever is first has it. */
	EXPECT(gn_rpc_client_release(o.client) == 0 && gn_rpc_client_release(o.client) == -EPERM);
	for (unsigned i = 0; i < RACERS; i++) {
		racers[i] = (struct other){.client = o.client, .tried = &tried};
		EXPECT(gn_thread_start("racer", racer_thread, &racers[i], &thread[i]) == 0);
	}
	for (unsigned i = 0; i < RACERS; i++) {
		EXPECT(gn_thread_join(thread[i]) == 0);
		EXPECT(racers[i].adopt == 0 || racers[i].adopt == -EBUSY);
		EXPECT(racers[i].release == 0);
		won += racers[i].adopt == 0;
	}
	EXPECT(won == 1);
	EXPECT(gn_rpc_client_close(o.client) == 0);
	return 0;
}

static int any_thread_closes(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct other o = {.stop = false};

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &o.client) == 0);
	EXPECT(gn_rpc_client_release(o.client) == 0);
	EXPECT(ask_other(&o) == 0); /* adopts, polls, releases, closes */
	EXPECT(o.adopt == 0 && o.poll == 0 && o.release == 0 && o.close == 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST_MODES(test_rpc_to_and_fro, rpc_to_and_fro, NULL, 1),
		cmocka_unit_test(test_kv_to_and_fro),
		RPC_TEST(test_misuse, misuse, NULL, 1),
		RPC_TEST(test_any_thread_closes, any_thread_closes, NULL, 1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
