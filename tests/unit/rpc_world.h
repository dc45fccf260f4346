/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of calls: a service with a method for everything, and environments ("worlds")
 * to call it in: shared memory, with server and client as threads of one process, and simulated
 * cards that give every ordering guarantee or none. A test is a program for a client, which runs in
 * each of them.
 */
#ifndef GN_TESTS_RPC_WORLD_H
#define GN_TESTS_RPC_WORLD_H

#include <errno.h>
#include <string.h>

#include "gannet/rpc.h"
#include "gannet/sim.h"
#include "unit.h"
#include "unit_sim_run.h"
#include "unit_world.h"

#define MAX	  4096u
#define SLOTS	  8u
#define SIM_ADDR  "sim:n0:7000"
#define MEM_BYTES (2u << 20)

enum method {
	ECHO = 1,
	LATER = 2,	/* echo, from another thread and in any order */
	BLOB = 3,	/* {bytes, seed}: that many bytes, filled from the seed */
	OWN_STATUS = 4, /* "no", and a status of its own */
	MEM = 5,	/* {bytes, offset} of the service's memory */
	SLOW = 6,	/* {us}: takes that long */
	ROOM_LATER = 7, /* LATER, but asks for a result buffer first */
	SHOW = 8,	/* {which}: exposes memory */
	SHOW_LATER = 9, /* … after its handler has returned */
	MEM_LATER = 10, /* MEM, from another thread */
	WATCH = 11,	/* answered when its caller stops waiting, with its state */
	COUNT = 12,	/* counts its executions */
	SUM = 700,	/* of its bytes, built in the slot */
	NEVER = 60000,
};

struct two {
	uint32_t bytes, arg;
};

/*
 * Which memory to expose: 0 the service's, n the n-th besides, or this one, which is not readable.
 */
#define SHOW_OWN UINT32_MAX

struct shown {
	int rc;
	struct gn_rpc_view view;
};

/* ---- the service ---- */

struct service {
	struct gn_rpc_server *server;
	struct gn_thread *answerer;
	struct gn_mutex lock;
	struct gn_rpc_request *aside[1024];
	unsigned n_aside;
	bool shut; /* deferred requests stay deferred */
	bool stop;
	unsigned came, went;
	unsigned watching, abandoned[GN_RPC_CALLER_GONE + 1], counted, blobs; /* atomic */
	struct gn_rpc_request *watched;				       /* the last; atomic */
	struct gn_mem *mem;
	unsigned lent, released;
	uint64_t answerer_id;	     /* gn_thread_id(); atomic */
	unsigned released_by_caller; /* release runs on the server's threads: none */
	struct gn_fabric *fabric;
	struct gn_mem *more[GN_RPC_VIEWS_MAX + 1], *own;
};

static inline void echo(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static inline void sum(struct gn_rpc_request *request, void *arg)
{
	uint32_t len, room;
	const uint8_t *data = gn_rpc_request_data(request, &len);
	uint64_t *total = gn_rpc_request_room(request, &room);
	uint64_t own = 0;

	(void)arg;
	for (uint32_t i = 0; i < len; i++)
		own += data[i];
	/* there is no buffer while other results wait for a slot */
	if (!total || room < sizeof(own)) {
		gn_rpc_answer(request, GN_RPC_OK, &own, sizeof(own));
		return;
	}
	memcpy(total, &own, sizeof(own));
	gn_rpc_answer(request, GN_RPC_OK, total, sizeof(own));
}

/* arg: the service that counts them, or NULL. */
static inline void blob(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	struct two want = {0};
	uint8_t *bytes;

	memcpy(&want, data, len < sizeof(want) ? len : sizeof(want));
	bytes = gn_alloc(want.bytes + 1, 0);
	if (!bytes) {
		gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
		return;
	}
	fill(bytes, want.bytes, want.arg);
	gn_rpc_answer(request, GN_RPC_OK, bytes, want.bytes);
	if (arg)
		__atomic_fetch_add(&((struct service *)arg)->blobs, 1, __ATOMIC_RELEASE);
	gn_free(bytes);
}

static inline void own_status(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	gn_rpc_answer(request, GN_RPC_FAILED + 34, "no", 2);
}

static inline void mem_released(void *arg)
{
	struct service *s = arg;

	if (gn_thread_id() == __atomic_load_n(&s->answerer_id, __ATOMIC_RELAXED))
		s->released_by_caller++;
	__atomic_fetch_add(&s->released, 1, __ATOMIC_RELAXED);
}

static inline void mem(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	struct two want;
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	memcpy(&want, data, sizeof(want));
	__atomic_fetch_add(&s->lent, 1, __ATOMIC_RELAXED);
	gn_rpc_answer_mem(request, GN_RPC_OK, s->mem, want.arg, want.bytes, mem_released, s);
}

static inline void slow(struct gn_rpc_request *request, void *arg)
{
	uint32_t us = 0, len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	memcpy(&us, data, len < sizeof(us) ? len : sizeof(us));
	if (us)
		gn_sleep_us(us);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static inline void show(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	uint32_t which = 0, len;
	const void *data = gn_rpc_request_data(request, &len);
	struct shown out = {0};
	struct gn_mem **mem;

	memcpy(&which, data, len < sizeof(which) ? len : sizeof(which));
	mem = which == SHOW_OWN ? &s->own : which ? &s->more[which - 1] : &s->mem;
	if (!*mem)
		out.rc = gn_mem_alloc(s->fabric, GN_PAGE, which == SHOW_OWN ? 0 : GN_REMOTE_READ,
				      mem);
	if (!out.rc)
		out.rc = gn_rpc_request_show(request, *mem, &out.view);
	gn_rpc_answer(request, GN_RPC_OK, &out, sizeof(out));
}

static inline void abandoned(struct gn_rpc_request *request, enum gn_rpc_caller state, void *arg)
{
	struct service *s = arg;

	__atomic_fetch_add(&s->abandoned[state], 1, __ATOMIC_RELAXED);
	__atomic_store_n(&s->watched, NULL, __ATOMIC_RELEASE);
	gn_rpc_answer(request, GN_RPC_FAILED, NULL, 0);
	__atomic_fetch_sub(&s->watching, 1, __ATOMIC_RELEASE);
}

static inline void watch_caller(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;

	if (gn_rpc_request_state(request) != GN_RPC_CALLER_WAITS ||
	    gn_rpc_request_on_abandon(request, abandoned, s)) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return;
	}
	__atomic_store_n(&s->watched, request, __ATOMIC_RELEASE);
	__atomic_fetch_add(&s->watching, 1, __ATOMIC_RELEASE);
}

static inline void count(struct gn_rpc_request *request, void *arg)
{
	__atomic_fetch_add(&((struct service *)arg)->counted, 1, __ATOMIC_RELAXED);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static inline void put_aside(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;

	gn_mutex_lock(&s->lock);
	s->aside[s->n_aside++] = request;
	gn_mutex_unlock(&s->lock);
}

static inline void room_later(struct gn_rpc_request *request, void *arg)
{
	uint32_t room;
	uint8_t *to = gn_rpc_request_room(request, &room);

	if (to && room)
		to[0] = 0x5a; /* unused */
	put_aside(request, arg);
}

static inline void answer_later(void *arg)
{
	struct service *s = arg;

	__atomic_store_n(&s->answerer_id, gn_thread_id(), __ATOMIC_RELAXED);
	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		struct gn_rpc_request *request = NULL;

		gn_mutex_lock(&s->lock);
		if (s->n_aside && !__atomic_load_n(&s->shut, __ATOMIC_ACQUIRE)) {
			const unsigned i = (unsigned)(gn_random() % s->n_aside);

			request = s->aside[i];
			s->aside[i] = s->aside[--s->n_aside];
		}
		gn_mutex_unlock(&s->lock);
		if (request && gn_rpc_request_method(request) == SHOW_LATER)
			show(request, s);
		else if (request && gn_rpc_request_method(request) == MEM_LATER)
			mem(request, s);
		else if (request)
			echo(request, NULL);
		else
			gn_sleep_us(__atomic_load_n(&s->shut, __ATOMIC_ACQUIRE) ? 2000 : 20);
	}
}

static inline void shut(struct service *s, bool is)
{
	__atomic_store_n(&s->shut, is, __ATOMIC_RELEASE);
}

static inline unsigned aside(struct service *s)
{
	unsigned n;

	gn_mutex_lock(&s->lock);
	n = s->n_aside;
	gn_mutex_unlock(&s->lock);
	return n;
}

static inline void service_peer(void *arg, uint64_t client, bool came)
{
	struct service *s = arg;

	(void)client;
	__atomic_fetch_add(came ? &s->came : &s->went, 1, __ATOMIC_RELAXED);
}

/* Methods of a test, which defines this before the header is included. */
#ifdef SERVICE_METHODS
static int SERVICE_METHODS(struct service *s);
#else
#define SERVICE_METHODS(s) 0
#endif

static inline int service_start(struct service *s, struct gn_fabric *fabric, const char *addr,
				const struct gn_rpc_server_opts *given)
{
	struct gn_rpc_server_opts opts = *given;

	memset(s, 0, sizeof(*s));
	s->fabric = fabric;
	gn_mutex_init(&s->lock);
	opts.size = sizeof(opts);
	opts.peer = service_peer;
	opts.peer_arg = s;
	EXPECT(gn_mem_alloc(fabric, MEM_BYTES, GN_REMOTE_READ, &s->mem) == 0);
	fill(gn_mem_addr(s->mem), MEM_BYTES, 1);
	EXPECT(gn_rpc_server_create(fabric, addr, &opts, &s->server) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, SUM, sum, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, LATER, put_aside, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ROOM_LATER, room_later, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, BLOB, blob, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, MEM, mem, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, SLOW, slow, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, SHOW, show, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, SHOW_LATER, put_aside, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, MEM_LATER, put_aside, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, OWN_STATUS, own_status, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, WATCH, watch_caller, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, COUNT, count, s) == 0);
	EXPECT(SERVICE_METHODS(s) == 0);
	EXPECT(gn_rpc_server_start(s->server) == 0);
	EXPECT(gn_thread_start("answerer", answer_later, s, &s->answerer) == 0);
	return 0;
}

static inline int service_stop(struct service *s)
{
	shut(s, false);
	gn_rpc_server_destroy(s->server);
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(s->answerer) == 0);
	gn_mutex_fini(&s->lock);
	EXPECT(s->came == s->went);
	EXPECT(s->lent == s->released);
	EXPECT(!s->released_by_caller);
	EXPECT(gn_mem_free(s->mem) == 0);
	for (unsigned i = 0; i < GN_RPC_VIEWS_MAX + 1; i++)
		EXPECT(gn_mem_free(s->more[i]) == 0);
	EXPECT(gn_mem_free(s->own) == 0);
	return 0;
}

/* ---- worlds ---- */

struct world {
	struct gn_rpc_server_opts opts;
	const char *addr;
	struct gn_fabric *fabric; /* the server's */
	struct service service;
	int (*program)(struct world *w, struct gn_fabric *fabric);
	int (*mode_program)(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode);
	bool simulated;
	const char *faults;	       /* of the simulator, or NULL */
	unsigned arg;		       /* the program's */
	unsigned asked, done, running; /* restarts; clients */
	int failed;
};

/* The server ends and starts again; its clients are not told. */
static inline int world_restart(struct world *w)
{
	if (w->simulated) {
		const unsigned want = ++w->asked;

		while (w->done != want && !w->failed)
			gn_sleep_us(100);
		return w->failed;
	}
	EXPECT(service_stop(&w->service) == 0);
	EXPECT(service_start(&w->service, w->fabric, w->addr, &w->opts) == 0);
	return 0;
}

static inline int sim_server(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &w->fabric) == 0);
	rc = service_start(&w->service, w->fabric, w->addr, &w->opts);
	while (!rc && w->running) {
		gn_sleep_us(100);
		if (w->done == w->asked)
			continue;
		rc = service_stop(&w->service);
		if (!rc)
			rc = service_start(&w->service, w->fabric, w->addr, &w->opts);
		w->failed = rc;
		w->done++;
	}
	if (!rc)
		rc = service_stop(&w->service);
	EXPECT(gn_fabric_close(w->fabric) == 0);
	return rc;
}

static inline int sim_client(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(20);
	rc = w->program(w, fabric);
	w->running--;
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

/* One server and so many clients that all run the program. */
static inline void simulate(struct world *w, const char *profile, uint64_t caps_off, uint64_t seed,
			    unsigned clients)
{
	const struct sim_run run = {.profile = profile,
				    .caps_off = caps_off,
				    .seed = seed,
				    .limit_ns = 60000000000u,
				    .faults = w->faults,
				    .server = sim_server,
				    .client = sim_client,
				    .clients = clients,
				    .arg = w};

	w->simulated = true;
	w->addr = SIM_ADDR;
	w->running = clients;
	sim_run(&run);
}

/* An address of a server in another process, instead of shared memory; or NULL. */
static inline const char *given_addr(void)
{
	return getenv("GANNET_RPC_ADDR");
}

static inline void run_shm(struct world *w)
{
	const char *given = given_addr();
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:test-rpc-%llx", (unsigned long long)gn_random());
	if (given)
		snprintf(addr, sizeof(addr), "%s", given);
	w->addr = addr;
	w->simulated = false;
	assert_int_equal(gn_fabric_open(given ? "verbs" : "shm", &w->fabric), 0);
	assert_int_equal(service_start(&w->service, w->fabric, addr, &w->opts), 0);
	assert_int_equal(w->program(w, w->fabric), 0);
	assert_int_equal(service_stop(&w->service), 0);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

static inline void run_sim(struct world *w, unsigned clients)
{
	const uint64_t seed = unit_seed();

	for (unsigned k = 0; k < 2; k++) {
		simulate(w, "ideal", k ? SIM_CAPS : 0, seed, 1);
		simulate(w, "cx3", k ? SIM_CAPS : 0, seed + 1, clients);
		simulate(w, "connect-ib", k ? SIM_CAPS : 0, seed + 2, 1);
	}
}

static inline int run_each_mode(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(w->mode_program(w, fabric, mode) == 0);
	return 0;
}

/* A client's program, run once or in each mode; the server's options, or NULL. */
struct rpc_test {
	int (*program)(struct world *w, struct gn_fabric *fabric);
	int (*mode_program)(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode);
	const struct gn_rpc_server_opts *opts;
	unsigned clients;
};

/* In turn: shared memory, and simulated cards, one kind with several clients. */
static inline void rpc_test_run(void **state)
{
	const struct rpc_test *test = *state;
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->program = test->program ? test->program : run_each_mode;
	w->mode_program = test->mode_program;
	if (test->opts)
		w->opts = *test->opts;
	run_shm(w);
	if (!given_addr() && !THREADS_WATCHED)
		run_sim(w, test->clients);
	free(w);
}

static inline void run_everywhere(int (*program)(struct world *, struct gn_fabric *),
				  const struct gn_rpc_server_opts *opts, unsigned clients)
{
	struct rpc_test test = {.program = program, .opts = opts, .clients = clients};
	void *state = &test;

	rpc_test_run(&state);
}

/* Elements of the list of tests. */
#define RPC_TEST(name, client_program, server_opts, n_clients)                               \
	{                                                                                    \
#name, rpc_test_run, NULL, NULL, &(struct rpc_test)                          \
		{                                                                            \
			.program = client_program, .opts = server_opts, .clients = n_clients \
		}                                                                            \
	}
#define RPC_TEST_MODES(name, client_program, server_opts, n_clients)                              \
	{                                                                                         \
#name, rpc_test_run, NULL, NULL, &(struct rpc_test)                               \
		{                                                                                 \
			.mode_program = client_program, .opts = server_opts, .clients = n_clients \
		}                                                                                 \
	}

/* ---- calls ---- */

/* Options of a client that waits for its server if necessary, in this mode. */
static inline struct gn_rpc_client_opts in_mode(enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = {.size = sizeof(opts)};

	opts.mode = mode;
	opts.timeout_us = UNIT_PATIENCE_US;
	return opts;
}

static inline int call_echo(struct gn_rpc_client *client, unsigned method, uint32_t len,
			    uint32_t seed)
{
	uint8_t request[MAX], result[MAX];
	uint32_t got = 0;
	unsigned status = GN_RPC_FAILED;

	fill(request, len, seed);
	EXPECT(gn_rpc_call(client, method, request, len, result, sizeof(result), &got,
			   gn_deadline_us(UNIT_PATIENCE_US), &status) == 0);
	EXPECT(status == GN_RPC_OK && got == len && is_filled(result, got, seed));
	return 0;
}

/* An asynchronous call of a method that echoes, and its outcome. */
struct async_call {
	struct gn_rpc_op op;
	uint8_t request[600], result[600];
	uint32_t seed;
	unsigned ended;
};

static inline void async_call_done(struct gn_rpc_op *op)
{
	((struct async_call *)op->arg)->ended++;
}

static inline void flight_make(struct async_call *f, unsigned method, uint32_t len, uint32_t seed,
			       uint64_t deadline_ns)
{
	fill(f->request, len, seed);
	memset(f->result, 0xee, sizeof(f->result));
	f->seed = seed;
	f->ended = 0;
	f->op = (struct gn_rpc_op){.method = method,
				   .request = f->request,
				   .request_len = len,
				   .result = f->result,
				   .result_room = sizeof(f->result),
				   .deadline_ns = deadline_ns,
				   .done = async_call_done,
				   .arg = f};
}

static inline int submit_echo(struct gn_rpc_client *client, struct async_call *f, unsigned method,
		      uint64_t deadline_ns)
{
	flight_make(f, method, (uint32_t)(gn_random() % sizeof(f->request)), (uint32_t)gn_random(),
		    deadline_ns);
	return gn_rpc_submit(client, &f->op);
}

/* It completed once, successfully, with its own bytes and no others. */
static inline int async_call_check(const struct async_call *f)
{
	EXPECT(f->ended == 1);
	EXPECT(f->op.status == GN_RPC_OK && f->op.result_len == f->op.request_len);
	EXPECT(is_filled(f->result, f->op.result_len, f->seed));
	for (uint32_t i = f->op.result_len; i < sizeof(f->result); i++)
		EXPECT(f->result[i] == 0xee);
	return 0;
}

static inline int wait_all(struct gn_rpc_client *client, const struct async_call *flights, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		while (!flights[i].ended)
			EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	return 0;
}

#endif
