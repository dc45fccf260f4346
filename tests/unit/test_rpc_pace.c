/* SPDX-License-Identifier: MIT */
/*
 * Programs that poll at their own pace, with a sleep between two polls: whatever a poll can find
 * waits for at most one period, however long. In simulated time, so the bounds are exact.
 */
#include <errno.h>

#include "gannet/kv.h"
#include "gannet/msg.h"
#include "rpc_world.h"
#include "unit_sim_run.h"

#define SETUP_NS    300000u /* for connecting and waking: the client's own waits */
#define CALLS	    12u
#define HEARD_AFTER 3u /* polls after the end of a server */

enum layer { OF_RPC, OF_KV, OF_MSG };

struct pace {
	enum layer layer;
	bool served_slowly; /* the server polls at the pace; otherwise the client does */
	enum gn_rpc_mode mode;
	unsigned period_us;
	uint64_t seed;
	unsigned up, stop, end; /* atomic */
	uint64_t ended_ns;	/* atomic: when the server ended */
};

static unsigned load(const unsigned *what)
{
	return __atomic_load_n(what, __ATOMIC_ACQUIRE);
}

static void store(unsigned *what, unsigned to)
{
	__atomic_store_n(what, to, __ATOMIC_RELEASE);
}

/* ---- servers ---- */

static int serve_rpc(struct pace *p, struct gn_fabric *fabric)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts),
						.flags = p->served_slowly ? GN_RPC_POLLED : 0};
	struct gn_rpc_server *server;

	EXPECT(gn_rpc_server_create(fabric, SIM_ADDR, &opts, &server) == 0);
	EXPECT(gn_rpc_server_handle(server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	store(&p->up, 1);
	while (!load(&p->end)) {
		while (p->served_slowly && gn_rpc_server_poll(server) > 0)
			;
		gn_sleep_us(p->period_us);
	}
	gn_rpc_server_destroy(server);
	return 0;
}

static int serve_kv(struct pace *p, struct gn_fabric *fabric)
{
	struct gn_kv_server_opts opts = {.size = sizeof(opts), .threads = 1};
	struct gn_kv_server *server;

	opts.rpc.size = sizeof(opts.rpc);
	opts.rpc.flags = p->served_slowly ? GN_RPC_POLLED : 0;
	EXPECT(gn_kv_server_create(fabric, SIM_ADDR, &opts, &server) == 0);
	EXPECT(gn_kv_server_start(server) == 0);
	store(&p->up, 1);
	while (!load(&p->end)) {
		while (p->served_slowly && gn_rpc_server_poll(gn_kv_server_rpc(server)) > 0)
			;
		gn_sleep_us(p->period_us);
	}
	gn_kv_server_destroy(server);
	return 0;
}

static int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	(void)arg;
	memcpy(value, request, len < max ? len : max);
	return (int)(len < max ? len : max);
}

static int serve_msg(struct pace *p, struct gn_fabric *fabric)
{
	const struct gn_msg_responder_opts opts = {.size = sizeof(opts), .answer = answer};
	struct gn_msg_responder *responder;

	EXPECT(gn_msg_responder_create(fabric, SIM_ADDR, &opts, &responder) == 0);
	store(&p->up, 1);
	while (!load(&p->end)) {
		while (gn_msg_respond(responder,
				      p->served_slowly ? GN_NO_WAIT : gn_deadline_us(100)) > 0)
			;
		if (p->served_slowly)
			gn_sleep_us(p->period_us);
	}
	gn_msg_responder_destroy(responder);
	return 0;
}

static int server_main(struct gn_env *env, int argc, char **argv)
{
	static int (*const serve[])(struct pace *, struct gn_fabric *) = {serve_rpc, serve_kv,
									  serve_msg};
	struct pace *p = env->arg;
	struct gn_fabric *fabric;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	EXPECT(serve[p->layer](p, fabric) == 0);
	__atomic_store_n(&p->ended_ns, gn_now_ns(), __ATOMIC_RELEASE);
	while (!load(&p->stop))
		gn_sleep_us(1000);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

/* ---- clients ---- */

/* At most so many periods have passed since begin_ns, and a little. */
static int in_periods(const struct pace *p, const char *what, uint64_t begin_ns, unsigned periods)
{
	const uint64_t took_ns = gn_now_ns() - begin_ns;
	const uint64_t most_ns = periods * p->period_us * 1000ull + SETUP_NS;

	if (took_ns > most_ns)
		print_message("# layer %d, mode %d: at %u us a poll %s took %llu us\n", p->layer,
			      p->mode, p->period_us, what, (unsigned long long)took_ns / 1000);
	EXPECT(took_ns <= most_ns);
	return 0;
}

static bool server_ended(const struct pace *p)
{
	return __atomic_load_n(&p->ended_ns, __ATOMIC_ACQUIRE);
}

/* At once after another call, and after pauses in which the server parks the client. */
static void pause_before(unsigned call)
{
	if (call >= CALLS / 2)
		gn_sleep_us(call * 7001);
}

static int use_rpc(struct pace *p, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(p->mode);
	uint64_t begin_ns = gn_now_ns();
	struct gn_rpc_client *client;

	EXPECT(gn_rpc_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	EXPECT(in_periods(p, "gn_rpc_client_open()", begin_ns, p->served_slowly ? 3 : 0) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		pause_before(i);
		begin_ns = gn_now_ns();
		EXPECT(call_echo(client, ECHO, 20, i) == 0);
		EXPECT(in_periods(p, "a call", begin_ns, p->served_slowly ? 2 : 0) == 0);
	}
	for (unsigned i = 0; i < 20; i++) {
		EXPECT(gn_rpc_poll(client) == 0);
		gn_sleep_us(p->period_us);
	}
	store(&p->end, 1);
	while (!server_ended(p))
		gn_sleep_us(100);
	for (unsigned i = 0; i < HEARD_AFTER; i++) {
		gn_sleep_us(p->period_us);
		EXPECT(gn_rpc_poll(client) == 0);
	}
	EXPECT(gn_rpc_flush(client) == -ENOTCONN);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int use_kv(struct pace *p, struct gn_fabric *fabric)
{
	const struct gn_kv_client_opts opts = {.size = sizeof(opts)};
	uint64_t begin_ns = gn_now_ns();
	struct gn_kv_client *client;
	struct gn_kv_op op = {.verb = GN_KV_DELETE, .key = "y", .key_len = 1};

	EXPECT(gn_kv_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	/* It also requests the layout, with a call. */
	EXPECT(in_periods(p, "gn_kv_client_open()", begin_ns, p->served_slowly ? 5 : 0) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		pause_before(i);
		begin_ns = gn_now_ns();
		EXPECT(gn_kv_set(client, &i, sizeof(i), "x", 1, 0, GN_FOREVER) == 0);
		EXPECT(in_periods(p, "a SET", begin_ns, p->served_slowly ? 2 : 0) == 0);
	}
	store(&p->end, 1);
	while (!server_ended(p))
		gn_sleep_us(100);
	for (unsigned i = 0; i < HEARD_AFTER; i++) {
		gn_sleep_us(p->period_us);
		EXPECT(gn_kv_poll(client) == 0);
	}
	EXPECT(gn_kv_submit(client, &op) == -ENOTCONN);
	EXPECT(gn_kv_client_close(client) == 0);
	return 0;
}

static int use_msg(struct pace *p, struct gn_fabric *fabric)
{
	const struct gn_msg_requester_opts opts = {.size = sizeof(opts)};
	uint64_t begin_ns = gn_now_ns();
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_conn *conn;

	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, SIM_ADDR, NULL, &conn) == 0);
	EXPECT(in_periods(p, "gn_msg_conn_open()", begin_ns, p->served_slowly ? 3 : 0) == 0);
	for (unsigned i = 0; i < CALLS; i++) {
		pause_before(i);
		begin_ns = gn_now_ns();
		EXPECT(gn_msg_ask(conn, &i, sizeof(i), i) == 0);
		EXPECT(gn_msg_take(requester, &result, 1, GN_FOREVER) == 1);
		EXPECT(result.status == GN_MSG_OK);
		EXPECT(in_periods(p, "a request", begin_ns, p->served_slowly ? 2 : 0) == 0);
	}
	store(&p->end, 1);
	while (!server_ended(p))
		gn_sleep_us(100);
	for (unsigned i = 0; i < HEARD_AFTER; i++) {
		gn_sleep_us(p->period_us);
		EXPECT(gn_msg_take(requester, &result, 1, GN_NO_WAIT) == 0);
	}
	EXPECT(gn_msg_ask(conn, "", 0, 0) == -ENOTCONN);
	gn_msg_conn_close(conn);
	gn_msg_requester_destroy(requester);
	return 0;
}

static int client_main(struct gn_env *env, int argc, char **argv)
{
	static int (*const use[])(struct pace *, struct gn_fabric *) = {use_rpc, use_kv, use_msg};
	struct pace *p = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	while (!load(&p->up))
		gn_sleep_us(20);
	gn_sleep_us((unsigned)(p->seed % 997)); /* anywhere in the server's period */
	rc = use[p->layer](p, fabric);
	store(&p->end, 1);
	store(&p->stop, 1);
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static void run(struct pace p, const char *profile, uint64_t caps_off)
{
	const struct sim_run pair = {.profile = profile,
				     .caps_off = caps_off,
				     .seed = p.seed,
				     .limit_ns = 60000000000u,
				     .server = server_main,
				     .client = client_main,
				     .clients = 1,
				     .arg = &p};

	sim_run(&pair);
}

static void run_periods(struct pace p)
{
	static const unsigned periods_us[] = {1000, 5000, 20000};

	p.seed = unit_seed();
	for (unsigned i = 0; i < 3; i++) {
		p.period_us = periods_us[i];
		run(p, "ideal", 0);
		p.seed++;
		run(p, "cx3", SIM_CAPS);
		p.seed++;
	}
}

static void test_pace(void **state)
{
	struct pace p = *(const struct pace *)*state;

	for (p.mode = GN_RPC_HYBRID; p.mode < (p.layer == OF_RPC ? GN_RPC_MODES : 1); p.mode++)
		run_periods(p);
}

#define PACE_TEST(name, of_layer, slowly)                          \
	{                                                          \
#name, test_pace, NULL, NULL, &(struct pace)       \
		{                                                  \
			.layer = of_layer, .served_slowly = slowly \
		}                                                  \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PACE_TEST(test_rpc_server, OF_RPC, true), PACE_TEST(test_rpc_client, OF_RPC, false),
		PACE_TEST(test_kv_server, OF_KV, true),	  PACE_TEST(test_kv_client, OF_KV, false),
		PACE_TEST(test_responder, OF_MSG, true),  PACE_TEST(test_requester, OF_MSG, false),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
