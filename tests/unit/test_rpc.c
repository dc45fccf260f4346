/* SPDX-License-Identifier: MIT */
/*
 * Calls: the same programs over shared memory, server and client as threads of one process, and on
 * simulated cards that keep to every promise, or to none.
 */
#include <errno.h>
#include <string.h>

#include "gannet/rpc.h"
#include "gannet/sim.h"
#include "rpc/client.h"
#include "unit.h"

#define EXPECT(cond)                                                                   \
	do {                                                                           \
		if (!(cond)) {                                                         \
			print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			return __LINE__;                                               \
		}                                                                      \
	} while (0)

#define MAX    4096u
#define SLOTS  8u
#define ROUNDS 300u

enum { ECHO = 1, SUM = 700, LATER = 2, BIG = 3, OWN_STATUS = 4, NEVER = 60000 };

/* ---- the service ---- */

/* Requests that are put aside, and answered in another order by another thread. */
struct service {
	struct gn_rpc_server *server;
	struct gn_thread *answerer;
	struct gn_mutex lock;
	struct gn_rpc_request *aside[64];
	unsigned n_aside, came, went;
	bool stop;
};

static void echo(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static void sum(struct gn_rpc_request *request, void *arg)
{
	uint32_t len, room;
	const uint8_t *data = gn_rpc_request_data(request, &len);
	uint64_t *total = gn_rpc_request_room(request, &room);
	uint64_t sum = 0;

	(void)arg;
	for (uint32_t i = 0; i < len; i++)
		sum += data[i];
	memcpy(total, &sum, sizeof(sum));
	gn_rpc_answer(request, room >= sizeof(sum) ? GN_RPC_OK : GN_RPC_FAILED, total, sizeof(sum));
}

static void big(struct gn_rpc_request *request, void *arg)
{
	static const uint8_t zeros[2 * MAX];

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, zeros, sizeof(zeros));
}

static void own_status(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	gn_rpc_answer(request, GN_RPC_FAILED + 34, "no", 2);
}

static void put_aside(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;

	gn_mutex_lock(&s->lock);
	s->aside[s->n_aside++] = request;
	gn_mutex_unlock(&s->lock);
}

static void answer_later(void *arg)
{
	struct service *s = arg;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		struct gn_rpc_request *request = NULL;

		gn_mutex_lock(&s->lock);
		if (s->n_aside) {
			const unsigned i = (unsigned)(gn_random() % s->n_aside);

			request = s->aside[i];
			s->aside[i] = s->aside[--s->n_aside];
		}
		gn_mutex_unlock(&s->lock);
		if (request)
			echo(request, NULL);
		gn_sleep_us(20);
	}
}

static void peer(void *arg, uint64_t client, bool came)
{
	struct service *s = arg;

	(void)client;
	__atomic_fetch_add(came ? &s->came : &s->went, 1, __ATOMIC_RELAXED);
}

static int service_start(struct service *s, struct gn_fabric *fabric, const char *addr,
			 unsigned threads)
{
	const struct gn_rpc_server_opts opts = {.threads = threads,
						.max_slots = SLOTS,
						.max_request = MAX,
						.max_result = MAX,
						.peer = peer,
						.peer_arg = s};

	memset(s, 0, sizeof(*s));
	gn_mutex_init(&s->lock);
	EXPECT(gn_rpc_server_create(fabric, addr, &opts, &s->server) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ECHO, echo, NULL) == -EEXIST);
	EXPECT(gn_rpc_server_handle(s->server, GN_RPC_METHODS_MAX, echo, NULL) == -EINVAL);
	EXPECT(gn_rpc_server_handle(s->server, SUM, sum, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, LATER, put_aside, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, BIG, big, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, OWN_STATUS, own_status, NULL) == 0);
	EXPECT(gn_rpc_server_start(s->server) == 0);
	EXPECT(gn_rpc_server_handle(s->server, 77, echo, NULL) == -EBUSY);
	EXPECT(gn_thread_start("answerer", answer_later, s, &s->answerer) == 0);
	return 0;
}

static int service_stop(struct service *s)
{
	gn_rpc_server_destroy(s->server);
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(s->answerer) == 0);
	gn_mutex_fini(&s->lock);
	EXPECT(s->came == s->went);
	return 0;
}

/* ---- the client's programs ---- */

static void fill(uint8_t *bytes, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static int sync_calls(struct gn_rpc_client *client)
{
	static const uint32_t sizes[] = {0,  1,	 7,  8,	  9,   31,  32,	  33,
					 63, 64, 65, 255, 256, 257, 4000, MAX};
	uint8_t request[MAX + 1], result[MAX];
	uint32_t len;
	unsigned status;

	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			fill(request, sizes[i], round * 100 + i);
			EXPECT(gn_rpc_call(client, ECHO, request, sizes[i], result, MAX, &len,
					   GN_FOREVER, &status) == 0);
			EXPECT(status == GN_RPC_OK && len == sizes[i]);
			EXPECT(!memcmp(request, result, len));
		}
	memset(request, 3, sizeof(request));
	EXPECT(gn_rpc_call(client, SUM, request, 1000, result, MAX, &len, GN_FOREVER, &status) ==
	       0);
	EXPECT(status == GN_RPC_OK && len == 8 && *(uint64_t *)(void *)result == 3000);
	EXPECT(gn_rpc_call(client, NEVER, NULL, 0, NULL, 0, &len, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_NO_METHOD && len == 0);
	EXPECT(gn_rpc_call(client, BIG, NULL, 0, result, MAX, NULL, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG);
	EXPECT(gn_rpc_call(client, ECHO, request, 100, result, 99, NULL, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG);
	EXPECT(gn_rpc_call(client, OWN_STATUS, NULL, 0, result, 2, &len, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_FAILED + 34 && len == 2 && !memcmp(result, "no", 2));
	EXPECT(gn_rpc_call(client, ECHO, request, MAX + 1, result, MAX, &len, GN_FOREVER,
			   &status) == 0);
	EXPECT(status == GN_RPC_TOO_BIG && len == MAX + 1);
	EXPECT(gn_rpc_call(client, ECHO, request, GN_RPC_LARGE_MAX + 1, result, MAX, &len,
			   GN_FOREVER, &status) == -EMSGSIZE);
	EXPECT(gn_rpc_call(client, GN_RPC_BUILTIN_END, NULL, 0, NULL, 0, NULL, GN_FOREVER, NULL) ==
	       -EINVAL);
	return 0;
}

struct flight {
	struct gn_rpc_op op;
	uint8_t request[600], result[600];
	bool ended;
};

static void flight_done(struct gn_rpc_op *op)
{
	((struct flight *)op->arg)->ended = true;
}

static int fly(struct gn_rpc_client *client, struct flight *f, unsigned method,
	       uint64_t deadline_ns)
{
	const uint32_t len = (uint32_t)(gn_random() % sizeof(f->request));

	fill(f->request, len, (uint32_t)gn_random());
	f->ended = false;
	f->op = (struct gn_rpc_op){.method = method,
				   .request = f->request,
				   .request_len = len,
				   .result = f->result,
				   .result_room = sizeof(f->result),
				   .deadline_ns = deadline_ns,
				   .done = flight_done,
				   .arg = f};
	return gn_rpc_submit(client, &f->op);
}

/* As many as fit, answered in any order. */
static int async_calls(struct gn_rpc_client *client)
{
	struct flight flights[SLOTS + 1];
	unsigned begun = 0, ended = 0;

	for (unsigned i = 0; i < SLOTS; i++, begun++)
		EXPECT(fly(client, &flights[i], i % 2 ? ECHO : LATER, 0) == 0);
	EXPECT(fly(client, &flights[SLOTS], ECHO, 0) == -EAGAIN);
	while (ended < begun) {
		const int n = gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US));

		EXPECT(n > 0);
		for (unsigned i = 0; i < SLOTS; i++) {
			struct flight *f = &flights[i];
			int rc;

			if (!f->ended)
				continue;
			ended++;
			EXPECT(f->op.status == GN_RPC_OK && f->op.result_len == f->op.request_len);
			EXPECT(!memcmp(f->request, f->result, f->op.result_len));
			f->ended = false;
			if (begun >= ROUNDS)
				continue;
			rc = fly(client, f, begun % 3 ? ECHO : LATER, 0);
			/* Slots go round: the next one may belong to a call that takes longer. */
			while (rc == -EAGAIN) {
				EXPECT(gn_rpc_poll(client) >= 0);
				gn_yield();
				rc = gn_rpc_submit(client, &f->op);
			}
			EXPECT(rc == 0);
			begun++;
		}
	}
	EXPECT(gn_rpc_wait(client, GN_FOREVER) == 0); /* none is left */
	return 0;
}

struct elsewhere {
	struct gn_rpc_client *client;
	bool refused;
};

static void try_from_elsewhere(void *arg)
{
	struct elsewhere *e = arg;
	struct gn_rpc_op op = {.method = ECHO};

	e->refused = gn_rpc_submit(e->client, &op) == -EPERM && gn_rpc_poll(e->client) == -EPERM &&
		     gn_rpc_close(e->client) == -EPERM;
}

static int ends_early(struct gn_rpc_client *client)
{
	struct flight late, canceled;
	struct elsewhere elsewhere = {.client = client};
	struct gn_thread *thread;
	unsigned status;
	uint64_t before;

	/* LATER takes its 20 us at least. */
	before = gn_now_ns();
	EXPECT(fly(client, &late, LATER, gn_deadline_us(1)) == 0);
	while (!late.ended)
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	EXPECT(late.op.status == GN_RPC_TIMEOUT || late.op.status == GN_RPC_OK);
	EXPECT(gn_now_ns() > before);
	EXPECT(fly(client, &canceled, LATER, 0) == 0);
	EXPECT(gn_rpc_cancel(&canceled.op) == 0);
	EXPECT(canceled.ended && canceled.op.status == GN_RPC_CANCELED);
	EXPECT(gn_rpc_cancel(&canceled.op) == -ESRCH);
	memset(canceled.result, 0xaa, sizeof(canceled.result));
	/* Their slots come back when the server is through with them, and all goes on. */
	for (unsigned i = 0; i < 3 * SLOTS; i++) {
		int rc;

		do {
			rc = gn_rpc_call(client, ECHO, "abc", 3, late.result, 3, NULL, GN_FOREVER,
					 &status);
			if (rc == -EAGAIN) {
				gn_rpc_poll(client);
				gn_yield();
			}
		} while (rc == -EAGAIN);
		EXPECT(rc == 0 && status == GN_RPC_OK && !memcmp(late.result, "abc", 3));
	}
	EXPECT(canceled.result[0] == 0xaa); /* nobody has touched it */
	EXPECT(gn_thread_start("other", try_from_elsewhere, &elsewhere, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(elsewhere.refused);
	return 0;
}

static int client_program(struct gn_fabric *fabric, const char *addr, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = {0};
	struct gn_rpc_client *client;
	struct gn_rpc_counters count;
	struct gn_rpc_limits limits;
	int rc;

	opts.mode = mode;
	opts.slots = 2 * SLOTS;
	opts.max_request = opts.max_result = 2 * MAX;
	opts.timeout_us = UNIT_PATIENCE_US;
	EXPECT(gn_rpc_connect(fabric, addr, &opts, &client) == 0);
	EXPECT(gn_rpc_limits(client, &limits) == 0);
	EXPECT(limits.slots == SLOTS && limits.max_request == MAX && limits.max_result == MAX);
	rc = sync_calls(client);
	if (!rc)
		rc = async_calls(client);
	if (!rc)
		rc = ends_early(client);
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(rc || mode == GN_RPC_REPLY || count.fetches > 0);
	EXPECT(rc || mode == GN_RPC_REPLY || count.second_reads > 0);
	EXPECT(gn_rpc_close(client) == 0);
	return rc;
}

/* A window that is always full: what is looked at does not grow with the calls there were. */
static int full_window(struct gn_fabric *fabric, const char *addr, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = {0};
	struct gn_rpc_client *client;
	unsigned status = 0;
	uint32_t len, got;

	opts.mode = mode;
	opts.slots = 1;
	EXPECT(gn_rpc_connect(fabric, addr, &opts, &client) == 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		EXPECT(gn_rpc_call(client, ECHO, &i, sizeof(i), &got, sizeof(got), &len, GN_FOREVER,
				   &status) == 0);
		EXPECT(status == GN_RPC_OK && len == sizeof(i) && got == i);
		EXPECT(client->n_sent == 0);
	}
	EXPECT(gn_rpc_close(client) == 0);
	return 0;
}

/* ---- over shared memory ---- */

static void test_shm(void **state)
{
	struct gn_fabric *fabric;
	struct service service;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:test-rpc-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(service_start(&service, fabric, addr, 2), 0);
	assert_int_equal(client_program(fabric, addr, GN_RPC_FETCH), 0);
	assert_int_equal(client_program(fabric, addr, GN_RPC_REPLY), 0);
	assert_int_equal(full_window(fabric, addr, GN_RPC_FETCH), 0);
	assert_int_equal(full_window(fabric, addr, GN_RPC_REPLY), 0);
	assert_int_equal(service_stop(&service), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static void test_gone(void **state)
{
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;
	struct service service;
	struct flight flight;
	unsigned status;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:test-rpc-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_rpc_connect(fabric, addr, NULL, &client), -ECONNREFUSED);
	assert_int_equal(service_start(&service, fabric, addr, 1), 0);
	assert_int_equal(gn_rpc_connect(fabric, addr, NULL, &client), 0);
	assert_int_equal(
		gn_rpc_call(client, ECHO, "x", 1, flight.result, 1, NULL, GN_FOREVER, &status), 0);
	assert_int_equal(status, GN_RPC_OK);
	assert_int_equal(fly(client, &flight, ECHO, 0), 0);
	assert_int_equal(service_stop(&service), 0);
	while (!flight.ended)
		assert_true(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	assert_true(flight.op.status == GN_RPC_PEER_GONE || flight.op.status == GN_RPC_OK);
	while (!gn_rpc_submit(client, &flight.op))
		gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US));
	assert_int_equal(flight.op.status, GN_RPC_PEER_GONE);
	assert_int_equal(gn_rpc_close(client), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- on simulated clusters ---- */

#define CLIENTS 3u
#define SIM_CAPS                                                                              \
	(GN_CAP_ATOMIC_CPU | GN_CAP_INORDER_WRITE | GN_CAP_INORDER_128 | GN_CAP_WRITE_ORDER | \
	 GN_CAP_READ_HEAD_FIRST)

struct world {
	unsigned running; /* clients */
};

static int sim_server(struct gn_env *env, int argc, char **argv)
{
	struct world *world = env->arg;
	struct gn_fabric *fabric;
	struct service service;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = service_start(&service, fabric, "sim:n0:7000", 2);
	while (!rc && world->running)
		gn_sleep_us(100);
	if (!rc)
		rc = service_stop(&service);
	EXPECT(gn_fabric_close(fabric) == 0);
	return rc;
}

static int sim_client(struct gn_env *env, int argc, char **argv)
{
	struct world *world = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(10);
	rc = client_program(fabric, "sim:n0:7000", argc ? GN_RPC_REPLY : GN_RPC_FETCH);
	EXPECT(gn_fabric_close(fabric) == 0);
	world->running--;
	return rc;
}

static void simulate(const char *profile, uint64_t caps_off, uint64_t seed)
{
	const struct gn_sim_opts opts = {.profile = profile,
					 .seed = seed,
					 .nodes = 1 + CLIENTS,
					 .caps_off = caps_off,
					 .limit_ns = 10000000000u};
	struct world world = {.running = CLIENTS};
	char reply[] = "reply", *argv[] = {reply, NULL};
	struct gn_sim *sim;
	int status;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, sim_server, 0, NULL, &world, NULL), 0);
	for (unsigned i = 1; i <= CLIENTS; i++)
		assert_int_equal(gn_sim_spawn(sim, i, sim_client, i % 2, argv, &world, NULL), 0);
	if (gn_sim_run(sim))
		fail_msg("profile %s, seed %llu: the run did not end", profile,
			 (unsigned long long)seed);
	for (unsigned i = 0; i <= CLIENTS; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		if (status)
			fail_msg("profile %s, seed %llu, process %u: line %d", profile,
				 (unsigned long long)seed, i, status);
	}
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

static void test_sim(void **state)
{
	const uint64_t seed = unit_seed();

	(void)state;
	for (unsigned i = 0; gn_sim_profile_name(i); i++)
		for (unsigned k = 0; k < 3; k++) {
			simulate(gn_sim_profile_name(i), 0, seed + k);
			simulate(gn_sim_profile_name(i), SIM_CAPS, seed + k);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_sim),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
