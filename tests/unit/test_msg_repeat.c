/* SPDX-License-Identifier: MIT */
/*
 * Datagrams to responders that are slow, become slow or quick, lose datagrams, or die: requests are
 * repeated as often as it takes, no more often than the peer's own round trip asks for, and end
 * without an answer only when the peer is gone or their time is over.
 */
#include "msg_world.h"

#define PEERS_MAX 3u
#define SLOW_US	  13000u
#define MS_NS	  1000000u

/* A responder that works on every request for some time. */
struct peer {
	struct gn_fabric *fabric;
	char addr[64];
	unsigned work_us, executed;
	bool up, stop;
	int failed;
};

struct cast {
	struct peer peer[PEERS_MAX];
	unsigned peers;
	bool simulated;
	struct gn_fabric *fabric;
	struct gn_msg_requester_opts opts;
	int (*program)(struct cast *cast);
	int failed;
	/* the program's */
	unsigned loss_percent;
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn[PEERS_MAX];
	uint64_t id;
};

static int work(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	struct peer *p = arg;
	const unsigned us = LOAD(p->work_us);

	(void)max;
	__atomic_fetch_add(&p->executed, 1, __ATOMIC_RELAXED);
	if (us)
		gn_sleep_us(us);
	memcpy(value, request, len);
	return (int)len;
}

static int respond(struct peer *p)
{
	const struct gn_msg_responder_opts opts = {.size = sizeof(opts), .answer = work, .arg = p};
	struct gn_msg_responder *r;

	EXPECT(gn_msg_responder_create(p->fabric, p->addr, &opts, &r) == 0);
	STORE(p->up, true);
	while (!LOAD(p->stop))
		EXPECT(gn_msg_respond(r, gn_deadline_us(500)) >= 0);
	gn_msg_responder_destroy(r);
	return 0;
}

static void peer_thread(void *arg)
{
	struct peer *p = arg;

	p->failed = respond(p);
	STORE(p->up, true);
}

static int ask_all(struct cast *cast)
{
	cast->opts.size = sizeof(cast->opts);
	cast->opts.protocol = GN_MSG_UD;
	cast->opts.timeout_us = UNIT_PATIENCE_US;
	EXPECT(gn_msg_requester_create(cast->fabric, &cast->opts, &cast->requester) == 0);
	for (unsigned i = 0; i < cast->peers; i++) {
		while (!LOAD(cast->peer[i].up))
			gn_sleep_us(20);
		EXPECT(gn_msg_conn_open(cast->requester, cast->peer[i].addr, NULL,
					&cast->conn[i]) == 0);
	}
	EXPECT(cast->program(cast) == 0);
	gn_msg_requester_destroy(cast->requester);
	return 0;
}

static void requester_thread(void *arg)
{
	struct cast *cast = arg;

	cast->failed = ask_all(cast);
	for (unsigned i = 0; i < cast->peers; i++)
		STORE(cast->peer[i].stop, true);
}

/* ---- where they run ---- */

static int sim_peer(struct gn_env *env, int argc, char **argv)
{
	struct peer *p = env->arg;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &p->fabric) == 0);
	peer_thread(p);
	EXPECT(p->failed || gn_fabric_close(p->fabric) == 0);
	return p->failed;
}

static int sim_requester_of(struct gn_env *env, int argc, char **argv)
{
	struct cast *cast = env->arg;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &cast->fabric) == 0);
	requester_thread(cast);
	EXPECT(cast->failed || gn_fabric_close(cast->fabric) == 0);
	return cast->failed;
}

static void in_sim(struct cast *cast, uint64_t seed, const char *faults)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = "cx3-fdr",
					 .seed = seed,
					 .nodes = 1 + cast->peers,
					 .faults = faults,
					 .limit_ns = MSG_LIMIT_NS};
	struct gn_sim *sim;
	int status;

	cast->simulated = true;
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	for (unsigned i = 0; i < cast->peers; i++) {
		snprintf(cast->peer[i].addr, sizeof(cast->peer[i].addr), "sim:n%u:7000", i + 1);
		assert_int_equal(gn_sim_spawn(sim, i + 1, sim_peer, 0, NULL, &cast->peer[i], NULL),
				 0);
	}
	assert_int_equal(gn_sim_spawn(sim, 0, sim_requester_of, 0, NULL, cast, NULL), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_status(sim, cast->peers, &status), 0);
	assert_int_equal(status, 0);
	gn_sim_destroy(sim);
}

static void in_threads(struct cast *cast)
{
	struct gn_thread *requester, *peer[PEERS_MAX];

	cast->simulated = false;
	assert_int_equal(gn_fabric_open("shm", &cast->fabric), 0);
	for (unsigned i = 0; i < cast->peers; i++) {
		struct peer *p = &cast->peer[i];

		p->fabric = cast->fabric;
		snprintf(p->addr, sizeof(p->addr), "shm:test-repeat-%llx",
			 (unsigned long long)gn_random());
		assert_int_equal(gn_thread_start("responder", peer_thread, p, &peer[i]), 0);
	}
	assert_int_equal(gn_thread_start("requester", requester_thread, cast, &requester), 0);
	assert_int_equal(gn_thread_join(requester), 0);
	for (unsigned i = 0; i < cast->peers; i++) {
		assert_int_equal(gn_thread_join(peer[i]), 0);
		assert_int_equal(cast->peer[i].failed, 0);
	}
	assert_int_equal(cast->failed, 0);
	assert_int_equal(gn_fabric_close(cast->fabric), 0);
}

/* ---- requests ---- */

struct tally {
	unsigned ok, lost, gone;
	uint64_t longest_ns;
};

/* n requests of a connection, one after the other. */
static int ask_in_turn(struct cast *cast, unsigned peer, unsigned n, struct tally *t)
{
	*t = (struct tally){0};
	for (unsigned i = 0; i < n; i++) {
		const uint64_t id = cast->id++, begun_ns = gn_now_ns();
		struct gn_msg_result result;
		uint64_t took_ns;

		EXPECT(gn_msg_ask(cast->conn[peer], &id, sizeof(id), id) == 0);
		EXPECT(gn_msg_take(cast->requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) ==
		       1);
		EXPECT(result.id == id && result.conn == cast->conn[peer]);
		t->ok += result.status == GN_MSG_OK;
		t->lost += result.status == GN_MSG_LOST;
		t->gone += result.status == GN_MSG_GONE;
		if (result.status == GN_MSG_OK)
			EXPECT(result.len == sizeof(id) && !memcmp(result.value, &id, sizeof(id)));
		took_ns = gn_now_ns() - begun_ns;
		t->longest_ns = took_ns > t->longest_ns ? took_ns : t->longest_ns;
	}
	return 0;
}

static uint64_t repeats(const struct cast *cast)
{
	struct gn_msg_stats stats = {.size = sizeof(stats)};

	gn_msg_requester_stats(cast->requester, &stats);
	return stats.repeats;
}

/* ---- a responder that becomes slow ---- */

static int becomes_slow(struct cast *cast)
{
	const unsigned n = cast->simulated ? 200 : 30;
	struct peer *p = &cast->peer[0];
	uint64_t before;
	struct tally t;

	EXPECT(ask_in_turn(cast, 0, 50, &t) == 0);
	EXPECT(t.ok == 50);
	STORE(p->work_us, SLOW_US);
	before = repeats(cast);
	EXPECT(ask_in_turn(cast, 0, n, &t) == 0);
	print_message("# slow: %u answered, %u lost, %llu repeats\n", t.ok, t.lost,
		      (unsigned long long)(repeats(cast) - before));
	EXPECT(t.lost == 0 && t.gone == 0 && t.ok == n);
	/* The time-out doubles from 100 us to beyond 13 ms, once; then the round trip is known. */
	if (cast->simulated)
		EXPECT(repeats(cast) - before <= 10);
	EXPECT(LOAD(p->executed) == 50 + n);
	return 0;
}

static void test_becomes_slow(void **state)
{
	struct cast cast = {.program = becomes_slow, .peers = 1};

	(void)state;
	in_threads(&cast);
	if (THREADS_WATCHED)
		return;
	cast = (struct cast){.program = becomes_slow, .peers = 1};
	in_sim(&cast, 1, NULL);
}

/* Slow from the first request on, with many in flight: each waits for those before it. */
static int slow_with_many(struct cast *cast)
{
	const unsigned n = 200;
	unsigned asked = 0, taken = 0;
	uint64_t before = 0;

	while (taken < n) {
		struct gn_msg_result result;

		while (asked < n && !gn_msg_ask(cast->conn[0], &asked, sizeof(asked), asked))
			asked++;
		EXPECT(gn_msg_take(cast->requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) ==
		       1);
		EXPECT(result.status == GN_MSG_OK);
		if (++taken == 100)
			before = repeats(cast);
	}
	print_message("# %llu repeats of the first 100, %llu of the others\n",
		      (unsigned long long)before, (unsigned long long)(repeats(cast) - before));
	EXPECT(before <= 100 && repeats(cast) == before);
	EXPECT(cast->peer[0].executed == n);
	return 0;
}

static void test_slow_with_many(void **state)
{
	struct cast cast = {.program = slow_with_many, .peers = 1, .peer[0].work_us = SLOW_US};

	(void)state;
	if (!THREADS_WATCHED)
		in_sim(&cast, 1, NULL);
}

/* Slow, and quick again: the time-out follows, so a lost datagram is repeated soon. */
static int slow_and_quick(struct cast *cast)
{
	struct tally t;

	for (unsigned round = 0; round < 3; round++) {
		STORE(cast->peer[0].work_us, SLOW_US);
		EXPECT(ask_in_turn(cast, 0, 40, &t) == 0);
		EXPECT(t.ok == 40);
		STORE(cast->peer[0].work_us, 0);
		EXPECT(ask_in_turn(cast, 0, 60, &t) == 0); /* to forget */
		EXPECT(t.ok == 60);
		EXPECT(ask_in_turn(cast, 0, 200, &t) == 0);
		print_message("# quick again: the longest of 200 took %llu us\n",
			      (unsigned long long)t.longest_ns / 1000);
		/* Ten copies lost in a row would take longer. */
		EXPECT(t.ok == 200 && t.longest_ns < 100 * MS_NS);
	}
	EXPECT(cast->peer[0].executed == 3 * 300);
	return 0;
}

static void test_slow_and_quick(void **state)
{
	const uint64_t seed = unit_seed();
	struct cast cast = {.program = slow_and_quick, .peers = 1};

	(void)state;
	if (!THREADS_WATCHED)
		in_sim(&cast, seed, "ud-loss=10%");
}

/* ---- loss ---- */

static int lossy(struct cast *cast)
{
	struct tally t;

	EXPECT(ask_in_turn(cast, 0, 1000, &t) == 0);
	print_message("# %u answered, %u lost, %llu repeats, the longest took %llu us\n", t.ok,
		      t.lost, (unsigned long long)repeats(cast),
		      (unsigned long long)t.longest_ns / 1000);
	EXPECT(t.ok == 1000 && cast->peer[0].executed == 1000);
	/* Thirteen copies lost in a row would take longer, if no time-out is kept for ever. */
	EXPECT(cast->loss_percent > 10 || t.longest_ns < 1000 * MS_NS);
	return 0;
}

static void test_lossy(void **state)
{
	const uint64_t seed = unit_seed();

	(void)state;
	for (unsigned k = 0; k < 6 && !THREADS_WATCHED; k++) {
		struct cast cast = {.program = lossy, .peers = 1};
		char faults[32];

		cast.loss_percent = 10 * (1 + k % 3);
		cast.peer[0].work_us = k < 3 ? 0 : 300;
		snprintf(faults, sizeof(faults), "ud-loss=%u%%", cast.loss_percent);
		in_sim(&cast, seed + k, faults);
	}
}

/* ---- peers of different speed ---- */

/*
 * A quick one beside slow ones: its lost datagrams are repeated after its own round trip, and those
 * of the slow ones not before theirs.
 */
static int different(struct cast *cast)
{
	struct tally t;
	uint64_t before;

	for (unsigned round = 0; round < 3; round++) {
		EXPECT(ask_in_turn(cast, 0, 100, &t) == 0);
		EXPECT(t.ok == 100);
		before = repeats(cast);
		for (unsigned i = 1; i < cast->peers; i++) {
			EXPECT(ask_in_turn(cast, i, 20, &t) == 0);
			EXPECT(t.ok == 20);
		}
		print_message("# round %u: %llu repeats to the slow ones\n", round,
			      (unsigned long long)(repeats(cast) - before));
		/* The first round finds out how slow they are, from 10 ms on. */
		EXPECT(repeats(cast) - before <= (round ? 0 : 8));
	}
	return 0;
}

static int different_lossy(struct cast *cast)
{
	struct tally t, slow;

	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 1; i < cast->peers; i++) {
			EXPECT(ask_in_turn(cast, i, 10, &slow) == 0);
			EXPECT(slow.ok == 10);
		}
		EXPECT(ask_in_turn(cast, 0, 100, &t) == 0);
		/* The first time-out is long. */
		EXPECT(t.ok == 100 && (!round || t.longest_ns < 30 * MS_NS));
	}
	return 0;
}

static void test_different(void **state)
{
	const uint64_t seed = unit_seed();
	const struct cast all = {
		.peers = 3, .peer[1].work_us = SLOW_US, .peer[2].work_us = 5 * SLOW_US};
	struct cast cast = all;

	(void)state;
	if (THREADS_WATCHED)
		return;
	cast.program = different;
	in_sim(&cast, 1, NULL);
	cast = all;
	cast.program = different_lossy;
	in_sim(&cast, seed, "ud-loss=5%");
}

/* ---- ends ---- */

/* The peer dies while a request is in flight: it ends, and so do later ones. */
static int dies(struct cast *cast)
{
	struct tally t = {0};

	for (unsigned i = 0; i < 1000 && !t.gone; i++) {
		EXPECT(ask_in_turn(cast, 0, 1, &t) == 0);
		EXPECT(t.lost == 0);
	}
	EXPECT(t.gone == 1 && t.longest_ns < 1000 * MS_NS);
	EXPECT(gn_msg_ask(cast->conn[0], "x", 1, 0) == -ENOTCONN);
	return 0;
}

static void test_dies(void **state)
{
	static const char *const faults[] = {"kill@50ms:n1", "crash@50ms:n1", "partition@50ms:n1"};

	(void)state;
	for (unsigned i = 0; i < 3 && !THREADS_WATCHED; i++) {
		struct cast cast = {.program = dies, .peers = 1, .peer[0].work_us = 1000};

		in_sim(&cast, 1, faults[i]);
	}
}

/* It lives and never answers: what was asked ends when its time is over, and not before. */
static int never_answers(struct cast *cast)
{
	struct tally t;

	for (unsigned i = 0; i < 3; i++) {
		const uint64_t before = repeats(cast);

		EXPECT(ask_in_turn(cast, 0, 1, &t) == 0);
		print_message("# lost after %llu us, %llu repeats\n",
			      (unsigned long long)t.longest_ns / 1000,
			      (unsigned long long)(repeats(cast) - before));
		EXPECT(t.lost == 1);
		EXPECT(t.longest_ns >= 10000 * (uint64_t)MS_NS);
		EXPECT(t.longest_ns < 10100 * (uint64_t)MS_NS);
		/* From 10 ms to 2 s, then every 2 s; the second begins with what the first knew. */
		EXPECT(repeats(cast) - before <= (i ? 5 : 12));
	}
	return 0;
}

static void test_never_answers(void **state)
{
	struct cast cast = {
		.program = never_answers, .peers = 1, .opts.request_timeout_us = 10000000};

	(void)state;
	if (!THREADS_WATCHED)
		in_sim(&cast, 1, "ud-loss=100%");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_becomes_slow),   cmocka_unit_test(test_slow_with_many),
		cmocka_unit_test(test_slow_and_quick), cmocka_unit_test(test_lossy),
		cmocka_unit_test(test_different),      cmocka_unit_test(test_dies),
		cmocka_unit_test(test_never_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
