/* SPDX-License-Identifier: MIT */
/*
 * What the tests of messages share: a responder that answers what it is asked for and checks how it
 * is asked, and worlds to ask it in: shared memory, with a thread for each side, and simulated cards
 * that keep every promise or none. A test is a program for a requester; it is run in each of them,
 * with every protocol, as the paper does it and not.
 */
#ifndef GN_TESTS_MSG_WORLD_H
#define GN_TESTS_MSG_WORLD_H

#include <errno.h>

#include "gannet/msg.h"
#include "gannet/sim.h"
#include "unit_world.h"

#define MSG_SIM_ADDR	"sim:n0:7000"
#define MSG_CLIENTS_MAX 4u
#define MSG_DATA_BYTES	(64u << 10)
#define MSG_LIMIT_NS	60000000000u

struct world {
	/* what a test chooses */
	struct gn_msg_responder_opts opts; /* answer, arg, data and flags are set here */
	int (*program)(struct world *w, struct gn_fabric *fabric, unsigned client);
	unsigned clients;  /* that run it at the same time */
	size_t data_bytes; /* of what READs may see */
	bool mute;	   /* the responder answers nothing */
	/* What the responder's thread does while it is wanted; NULL: gn_msg_respond(). */
	int (*respond)(struct world *w, struct gn_msg_responder *r);
	/* where it runs, and how */
	enum gn_msg_protocol protocol;
	unsigned flags; /* GN_MSG_PAPER */
	const char *addr, *profile;
	bool simulated;
	/* the responder, as its thread has it; what others look at is atomic */
	struct gn_fabric *fabric;
	struct gn_mem *data;
	struct gn_msg_stats stats; /* of the last one that ended */
	unsigned executed, refused, wrong;
	bool wanted, up, stop;	/* it is to be there; it is; all is over */
	unsigned still, stills; /* it is to do nothing, if odd; and so it is */
	unsigned conns;
	unsigned next, running, finished; /* clients */
	unsigned step;			  /* the program's */
	int failed[MSG_CLIENTS_MAX], responder_failed;
};

#define LOAD(x)	     __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, to) __atomic_store_n(&(x), to, __ATOMIC_RELEASE)

/* ---- the side that answers ---- */

/*
 * A request of 8 bytes or more says how long its answer is to be, and is checked: {seed, bytes} and
 * what the seed gives. A shorter one is echoed.
 */
struct ask {
	uint32_t seed, value_len;
};

#define REFUSE UINT32_MAX /* as value_len */

static inline int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	struct world *w = arg;
	struct ask ask;

	__atomic_fetch_add(&w->executed, 1, __ATOMIC_RELAXED);
	if (len < sizeof(ask)) {
		memcpy(value, request, len);
		return (int)len;
	}
	memcpy(&ask, request, sizeof(ask));
	if (!is_filled((const uint8_t *)request + sizeof(ask), len - (uint32_t)sizeof(ask),
		       ask.seed)) {
		print_error("a request of %u bytes is not whole\n", len);
		__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
	}
	if (ask.value_len > max) {
		__atomic_fetch_add(&w->refused, 1, __ATOMIC_RELAXED);
		return -EPERM;
	}
	fill(value, ask.value_len, ask.seed + 1);
	return (int)ask.value_len;
}

static inline int responder_once(struct world *w)
{
	struct gn_msg_responder_opts opts = w->opts;
	struct gn_msg_responder *r;

	opts.size = sizeof(opts);
	opts.answer = w->mute ? NULL : opts.answer ? opts.answer : answer;
	opts.arg = w;
	opts.data = w->data;
	opts.flags = w->flags;
	EXPECT(gn_msg_responder_create(w->fabric, w->addr, &opts, &r) == 0);
	STORE(w->up, true);
	if (w->respond)
		EXPECT(w->respond(w, r) == 0);
	while (LOAD(w->wanted)) {
		const unsigned still = LOAD(w->still);

		if (still % 2)
			gn_sleep_us(100);
		else
			EXPECT(gn_msg_respond(r, gn_deadline_us(500)) >= 0);
		STORE(w->stills, still);
		STORE(w->conns, gn_msg_responder_conns(r));
	}
	w->stats.size = sizeof(w->stats);
	gn_msg_responder_stats(r, &w->stats);
	gn_msg_responder_destroy(r);
	STORE(w->up, false);
	return 0;
}

/* It is there while it is wanted, until all is over. */
static inline int responder_main(struct world *w)
{
	int rc = 0;

	if (w->data_bytes) {
		EXPECT(gn_mem_alloc(w->fabric, w->data_bytes, GN_REMOTE_READ, &w->data) == 0);
		fill(gn_mem_addr(w->data), (uint32_t)w->data_bytes, 1);
	}
	while (!rc && !LOAD(w->stop)) {
		if (LOAD(w->wanted))
			rc = responder_once(w);
		else
			gn_sleep_us(50);
	}
	EXPECT(gn_mem_free(w->data) == 0);
	w->data = NULL;
	EXPECT(w->wrong == 0);
	return rc;
}

static inline void responder_thread(void *arg)
{
	struct world *w = arg;

	w->responder_failed = responder_main(w);
	STORE(w->up, w->responder_failed);
}

/* There it is, or gone, when these return. */
static inline void world_up(struct world *w)
{
	STORE(w->wanted, true);
	while (!LOAD(w->up))
		gn_sleep_us(20);
}

static inline void world_down(struct world *w)
{
	STORE(w->wanted, false);
	while (LOAD(w->up) && !w->responder_failed)
		gn_sleep_us(20);
}

/* It does nothing any more, or goes on. */
static inline void world_still(struct world *w)
{
	const unsigned still = LOAD(w->still) + 1;

	STORE(w->still, still);
	while (LOAD(w->stills) != still && !w->responder_failed)
		gn_sleep_us(20);
}

/* Others wait for this one, who does not come if it failed. */
static inline void world_await(struct world *w, const unsigned *what, unsigned n)
{
	while (LOAD(*what) != n && !LOAD(w->failed[0]))
		gn_sleep_us(20);
}

static inline void world_await_least(struct world *w, const unsigned *what, unsigned n)
{
	while (LOAD(*what) < n && !LOAD(w->failed[0]))
		gn_sleep_us(20);
}

/* ---- worlds ---- */

static inline void world_begin(struct world *w)
{
	w->executed = w->refused = w->wrong = w->conns = 0;
	w->next = w->step = w->finished = 0;
	w->wanted = true;
	w->up = w->stop = false;
	w->still = w->stills = 0;
	w->running = w->clients;
	w->responder_failed = 0;
	memset(w->failed, 0, sizeof(w->failed));
}

static inline int client_main(struct world *w, struct gn_fabric *fabric)
{
	const unsigned client = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);
	int rc;

	while (!LOAD(w->up))
		gn_sleep_us(20);
	rc = w->program(w, fabric, client);
	STORE(w->failed[client], rc);
	__atomic_fetch_add(&w->finished, 1, __ATOMIC_ACQ_REL);
	if (!__atomic_sub_fetch(&w->running, 1, __ATOMIC_ACQ_REL)) {
		STORE(w->stop, true);
		STORE(w->wanted, false);
	}
	return rc;
}

static inline int sim_responder(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &w->fabric) == 0);
	w->responder_failed = responder_main(w);
	if (w->responder_failed) {
		w->up = true;
		return w->responder_failed;
	}
	EXPECT(gn_fabric_close(w->fabric) == 0);
	return 0;
}

static inline int sim_requester(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = client_main(w, fabric);
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static inline void say_where(const struct world *w, int rc)
{
	fail_msg("%s, %s%s: %d", w->profile, gn_msg_protocol_str(w->protocol),
		 w->flags ? " as in the paper" : "", rc);
}

static inline void simulate(struct world *w, const char *profile, uint64_t caps_off, uint64_t seed,
			    const char *faults)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = profile,
					 .seed = seed,
					 .nodes = 1 + w->clients,
					 .caps_off = caps_off,
					 .faults = faults,
					 .limit_ns = MSG_LIMIT_NS};
	struct gn_sim *sim;
	int rc, status;

	w->simulated = true;
	w->addr = MSG_SIM_ADDR;
	w->profile = caps_off ? "sim without promises" : profile;
	world_begin(w);
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, sim_responder, 0, NULL, w, NULL), 0);
	for (unsigned i = 1; i <= w->clients; i++)
		assert_int_equal(gn_sim_spawn(sim, i, sim_requester, 0, NULL, w, NULL), 0);
	rc = gn_sim_run(sim);
	if (rc)
		say_where(w, rc);
	for (unsigned i = 0; i <= w->clients; i++)
		if (gn_sim_status(sim, i, &status) || status)
			say_where(w, status);
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

/* Where else than over shared memory, in a process of its own: an address, or NULL. */
static inline const char *given_addr(void)
{
	return getenv("GANNET_MSG_ADDR");
}

static inline void client_thread(void *arg)
{
	struct world *w = arg;

	client_main(w, w->fabric);
}

static inline void run_threads(struct world *w)
{
	struct gn_thread *responder, *client[MSG_CLIENTS_MAX];
	const char *given = given_addr();
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:test-msg-%llx", (unsigned long long)gn_random());
	if (given)
		snprintf(addr, sizeof(addr), "%s", given);
	w->addr = addr;
	w->simulated = false;
	w->profile = given ? "verbs" : "shm";
	world_begin(w);
	assert_int_equal(gn_fabric_open(w->profile, &w->fabric), 0);
	assert_int_equal(gn_thread_start("responder", responder_thread, w, &responder), 0);
	for (unsigned i = 0; i < w->clients; i++)
		assert_int_equal(gn_thread_start("requester", client_thread, w, &client[i]), 0);
	for (unsigned i = 0; i < w->clients; i++)
		assert_int_equal(gn_thread_join(client[i]), 0);
	assert_int_equal(gn_thread_join(responder), 0);
	for (unsigned i = 0; i < w->clients; i++)
		if (w->failed[i])
			say_where(w, w->failed[i]);
	if (w->responder_failed)
		say_where(w, w->responder_failed);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

enum where {
	REAL = 1,      /* shared memory, or verbs if an address is given */
	SIMULATED = 2, /* cards, with all promises and without any */
	EVERYWHERE = REAL | SIMULATED,
};

static inline void run_where(struct world *w, unsigned where)
{
	if (where & REAL)
		run_threads(w);
	if (!(where & SIMULATED) || given_addr() || THREADS_WATCHED)
		return;
	for (unsigned k = 0; k < 2; k++) {
		simulate(w, "ideal", k ? SIM_CAPS : 0, 7 + k, NULL);
		simulate(w, "cx3-fdr", k ? SIM_CAPS : 0, 8 + k, NULL);
	}
}

/* Of the protocols in the set; RC_ALL and so on, below. */
static inline void run_protocols(struct world *w, unsigned where, unsigned protocols)
{
	for (unsigned p = 0; p < GN_MSG_PROTOCOLS; p++)
		for (unsigned paper = 0; paper < 2 && protocols & 1u << p; paper++) {
			w->protocol = (enum gn_msg_protocol)p;
			w->flags = paper ? GN_MSG_PAPER : 0;
			run_where(w, where);
		}
}

struct msg_test {
	unsigned where, protocols;
	struct world world;
};

static inline void msg_test_run(void **state)
{
	const struct msg_test *test = *state;
	struct world w = test->world;

	run_protocols(&w, test->where, test->protocols);
}

/* An element of the list of tests; the rest are members of its world. */
#define MSG_TEST(name, in_where, of_protocols, ...)                 \
	{                                                           \
#name, msg_test_run, NULL, NULL, &(struct msg_test) \
		{                                                   \
			in_where, of_protocols,                     \
			{                                           \
				__VA_ARGS__                         \
			}                                           \
		}                                                   \
	}

#define ALL	 ((1u << GN_MSG_PROTOCOLS) - 1)
#define BUT_READ (ALL & ~(1u << GN_MSG_READ))
#define BUT_UD	 (ALL & ~(1u << GN_MSG_UD))
#define RC_ASKS	 (BUT_READ & BUT_UD)

/* ---- the side that asks ---- */

/*
 * The words for a requester of this world. Real threads may not run for a while, and are not to be
 * asked again for that.
 */
static inline struct gn_msg_requester_opts requester_opts(const struct world *w)
{
	struct gn_msg_requester_opts opts = {
		.size = sizeof(opts), .protocol = w->protocol, .flags = w->flags};

	opts.timeout_us = UNIT_PATIENCE_US;
	if (!w->simulated)
		opts.repeat_us = 200000;
	return opts;
}

/* Bytes that a connection can read. */
static inline uint64_t readable(const struct world *w)
{
	return w->protocol == GN_MSG_READ ? w->data_bytes : 0;
}

/* What was asked, to know its answer by. */
struct want {
	uint32_t seed, len, value_len;
	uint64_t offset; /* READ */
	enum gn_msg_status status;
	uint64_t number; /* on its connection */
	unsigned conn;
	bool taken;
};

/* Asks, or reads, which is up to the world's protocol. room: for want->len bytes. */
static inline int begin(const struct world *w, struct gn_msg_conn *conn, const struct want *want,
			uint64_t id, uint8_t *room)
{
	const struct ask ask = {want->seed, want->value_len};

	if (w->protocol == GN_MSG_READ)
		return gn_msg_read(conn, want->offset, want->value_len, id);
	if (want->len >= sizeof(ask)) {
		memcpy(room, &ask, sizeof(ask));
		fill(room + sizeof(ask), want->len - (uint32_t)sizeof(ask), want->seed);
	} else {
		fill(room, want->len, want->seed);
	}
	return gn_msg_ask(conn, room, want->len, id);
}

/* The value is that of the request, all of it. data: what READs see. */
static inline int check(const struct world *w, const struct gn_msg_result *result,
			const struct want *want, const uint8_t *data)
{
	EXPECT(result->status == want->status);
	if (result->status != GN_MSG_OK)
		return 0;
	if (w->protocol == GN_MSG_READ) {
		EXPECT(result->len == want->value_len);
		EXPECT(!memcmp(result->value, data + want->offset, result->len));
	} else if (want->len < sizeof(struct ask)) {
		EXPECT(result->len == want->len);
		EXPECT(is_filled(result->value, result->len, want->seed));
	} else {
		EXPECT(result->len == want->value_len);
		EXPECT(is_filled(result->value, result->len, want->seed + 1));
	}
	return 0;
}

/* One request and its result. */
static inline int one(const struct world *w, struct gn_msg_requester *requester,
		      struct gn_msg_conn *conn, const struct want *want, const uint8_t *data)
{
	uint8_t *room = gn_alloc(want->len + 1, 0);
	struct gn_msg_result result;

	EXPECT(room);
	EXPECT(begin(w, conn, want, want->seed, room) == 0);
	EXPECT(gn_msg_pending(conn) == 1);
	EXPECT(gn_msg_take(requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(result.id == want->seed && result.conn == conn);
	EXPECT(gn_msg_pending(conn) == 0);
	EXPECT(check(w, &result, want, data) == 0);
	gn_free(room);
	return 0;
}

/* Of this many bytes both ways. */
static inline int echo(const struct world *w, struct gn_msg_requester *requester,
		       struct gn_msg_conn *conn, uint32_t len, uint32_t seed, const uint8_t *data)
{
	const struct want want = {.seed = seed, .len = len, .value_len = len};

	return one(w, requester, conn, &want, data);
}

/* The responder's data as it is in the beginning; the caller's to free. */
static inline uint8_t *data_of(const struct world *w)
{
	uint8_t *data = gn_alloc(w->data_bytes + 1, 0);

	if (data)
		fill(data, (uint32_t)w->data_bytes, 1);
	return data;
}

#endif
