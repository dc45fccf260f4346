/* SPDX-License-Identifier: MIT */
/*
 * Limits on what a client can make a server keep. Each test measures the resident memory of the
 * server's process and checks it; beside the hostile clients an honest one calls, and is served.
 */
#include "rpc/server.h"
#include "rpc_raw.h"

#define MIB (1u << 20)
/* Of the allocator and the threads; a sanitizer keeps freed memory, up to 256 MiB. */
#define SLACK_BYTES (unit_slow() ? 384u * MIB : 8u * MIB)
#define STALL_NS    (unit_slow() ? 5000000000u : 1000000000u)

struct attack {
	struct victim victim;
	struct gn_fabric *fabric;
	uint64_t before_bytes;
	uint64_t slowest_ns;
};

static void begin(struct attack *a, const char *name, const struct gn_rpc_server_opts *opts)
{
	struct gn_rpc_server_opts own = *opts;

	*a = (struct attack){0};
	victim_start(&a->victim, name, victim_serve, &own);
	assert_int_equal(gn_fabric_open("shm", &a->fabric), 0);
	a->before_bytes = cost_rss_bytes(a->victim.pid);
}

static void end(struct attack *a)
{
	assert_int_equal(gn_fabric_close(a->fabric), 0);
	victim_stop(&a->victim);
}

static uint64_t cost_bytes(const struct attack *a)
{
	const uint64_t now = cost_rss_bytes(a->victim.pid);

	return now > a->before_bytes ? now - a->before_bytes : 0;
}

/* An honest client connects, calls and closes: served in time. */
static void honest(struct attack *a)
{
	struct gn_rpc_client *client;

	assert_int_equal(gn_rpc_client_open(a->fabric, a->victim.addr, NULL, &client), 0);
	for (unsigned i = 0; i < 50; i++) {
		const struct cost_call call = cost_call_begin(a->victim.pid);
		uint64_t ns;

		assert_int_equal(call_echo(client, ECHO, i * 20, i), 0);
		ns = cost_call_ns(&call);
		a->slowest_ns = ns > a->slowest_ns ? ns : a->slowest_ns;
	}
	assert_int_equal(gn_rpc_client_close(client), 0);
	assert_true(a->slowest_ns < STALL_NS);
}

/* ---- hello ---- */

#define HELLOS 200u

/* The largest possible window, many times: the server decides what it grants. */
static void test_window(void **state)
{
	struct raw_client *clients = calloc(HELLOS, sizeof(*clients));
	struct gn_rpc_server_opts opts = {.size = sizeof(opts)};
	struct attack a;
	uint64_t cost;

	(void)state;
	assert_non_null(clients);
	begin(&a, "window", &opts);
	for (unsigned i = 0; i < HELLOS; i++) {
		clients[i].fabric = a.fabric;
		assert_int_equal(
			raw_connect(&clients[i], a.victim.addr, raw_hello(GN_RPC_WINDOW_MAX)), 0);
	}
	cost = cost_bytes(&a);
	print_message("# %u hellos cost the server %.1f MiB, %.1f KiB each\n", HELLOS,
		      (double)cost / MIB, (double)cost / HELLOS / 1024);
	honest(&a);
	for (unsigned i = 0; i < HELLOS; i++)
		raw_end(&clients[i]);
	assert_true(cost < HELLOS * 64u * 1024 + SLACK_BYTES);
	end(&a);
	free(clients);
}

/* ---- results that are not acknowledged ---- */

/* All result slots are in use, then calls with large results come; nothing is ever acknowledged. */
static void test_held(void **state)
{
	const struct two page = {4000, 7}, want = {256u << 10, 7};
	struct gn_rpc_server_opts opts = {.size = sizeof(opts), .max_large = 4 * MIB};
	struct raw_client raw = {0};
	uint64_t cost, most = 0;
	struct attack a;

	(void)state;
	begin(&a, "held", &opts);
	raw.fabric = a.fabric;
	assert_int_equal(raw_connect(&raw, a.victim.addr, raw_hello(GN_RPC_WINDOW_MAX)), 0);
	assert_int_equal(raw_send(&raw, BLOB, &page, sizeof(page), 2 * raw.welcome.slots, 0), 0);
	for (unsigned i = 1; i < raw.welcome.slots && raw.up; i++) {
		if (raw_send(&raw, BLOB, &want, sizeof(want), 100, 0))
			break;
		honest(&a);
		cost = cost_bytes(&a);
		most = cost > most ? cost : most;
	}
	print_message("# results that nobody takes cost the server %.1f MiB; the slowest of the "
		      "others' calls took %.1f ms\n",
		      (double)most / MIB, (double)a.slowest_ns * 1e-6);
	raw_end(&raw);
	honest(&a);
	/* large results: four times max_large, beside slots and window */
	assert_true(most < 16 * MIB + SLACK_BYTES);
	end(&a);
}

/* ---- tiny result slots ---- */

/* The length of the reply with this number, when it has arrived. */
static uint32_t reply_len(const struct raw_client *r, uint32_t number)
{
	const uint64_t at = (number & (r->welcome.slots - 1)) * rpc_stride(r->welcome.max_result);
	const struct rpc_head *head = (const void *)((const uint8_t *)gn_mem_addr(r->reply) + at);
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (__atomic_load_n(&head->seq, __ATOMIC_ACQUIRE) != rpc_seq(r->welcome.epoch, number)) {
		assert_true(gn_now_ns() < deadline_ns);
		gn_yield();
	}
	return head->len;
}

/*
 * Slots that hardly fit the descriptor of a large result, and a message with many requests: every
 * result message stays in its slot.
 */
static void test_tiny_slots(void **state)
{
	struct gn_rpc_server_opts opts = {.size = sizeof(opts)};
	const uint8_t bytes[24] = {1};
	struct attack a;

	(void)state;
	begin(&a, "tiny", &opts);
	for (uint32_t max = 0; max < sizeof(bytes); max++) {
		struct raw_client raw = {.fabric = a.fabric, .flags = RPC_REPLY};
		struct rpc_hello hello = raw_hello(GN_RPC_WINDOW_MAX);
		uint32_t len;

		hello.max_result = max;
		assert_int_equal(raw_connect(&raw, a.victim.addr, hello), 0);
		assert_int_equal(raw_send(&raw, ECHO, bytes, max + 1, UINT16_MAX, 0), 0);
		len = reply_len(&raw, 1);
		if (rpc_message_bytes(len) > rpc_stride(max))
			fail_msg(
				"a message of %u bytes for slots of %u, which are for results of %u",
				(unsigned)rpc_message_bytes(len), (unsigned)rpc_stride(max), max);
		raw_end(&raw);
	}
	/* The library's own client has the same slots, and gets its results. */
	for (uint32_t max = 1; max < sizeof(bytes); max++) {
		const struct gn_rpc_client_opts tiny = {
			.size = sizeof(tiny), .max_request = max, .max_result = max};
		struct gn_rpc_client *client;

		assert_int_equal(gn_rpc_client_open(a.fabric, a.victim.addr, &tiny, &client), 0);
		for (uint32_t len = 0; len < 2 * sizeof(bytes); len++)
			assert_int_equal(call_echo(client, ECHO, len, len), 0);
		assert_int_equal(gn_rpc_client_close(client), 0);
	}
	honest(&a);
	end(&a);
}

#define BATCH 150u /* requests per message */

/* Results just too large for a slot, one per slot: each has its own memory. */
static void test_small_large_results(void **state)
{
	const struct two want = {GN_RPC_BYTES_DEFAULT + 8, 7};
	struct gn_rpc_server_opts opts = {.size = sizeof(opts)};
	struct raw_client raw = {0};
	unsigned before, fds;
	struct attack a;

	(void)state;
	begin(&a, "small", &opts);
	honest(&a);
	before = cost_fds(a.victim.pid);
	raw.fabric = a.fabric;
	assert_int_equal(raw_connect(&raw, a.victim.addr, raw_hello(GN_RPC_WINDOW_MAX)), 0);
	for (unsigned sent = 0; sent + BATCH <= raw.welcome.window; sent += BATCH)
		assert_int_equal(raw_send(&raw, BLOB, &want, sizeof(want), BATCH, 0), 0);
	honest(&a);
	fds = cost_fds(a.victim.pid);
	print_message("# large results that nobody takes cost the server %u descriptors\n",
		      fds - before);
	raw_end(&raw);
	honest(&a);
	end(&a);
	assert_true(fds > before && fds - before < 2 * RPC_EXPORTS_MAX);
}

/* ---- connections ---- */

#define CLIENTS_MAX 32u

/* As many as allowed, and one more; when one disconnects, another can connect. */
static void test_clients(void **state)
{
	struct gn_rpc_server_opts opts = {.size = sizeof(opts), .max_clients = CLIENTS_MAX};
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct raw_client clients[CLIENTS_MAX + 1] = {0};
	struct attack a;
	int rc;

	(void)state;
	begin(&a, "clients", &opts);
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		clients[i].fabric = a.fabric;
		assert_int_equal(raw_connect(&clients[i], a.victim.addr, raw_hello(16)), 0);
	}
	clients[CLIENTS_MAX].fabric = a.fabric;
	assert_int_equal(raw_connect(&clients[CLIENTS_MAX], a.victim.addr, raw_hello(16)),
			 -ECONNREFUSED);
	raw_end(&clients[0]);
	do {
		raw_end(&clients[CLIENTS_MAX]);
		rc = raw_connect(&clients[CLIENTS_MAX], a.victim.addr, raw_hello(16));
		assert_true(gn_now_ns() < deadline_ns);
	} while (rc == -ECONNREFUSED);
	assert_int_equal(rc, 0);
	for (unsigned i = 1; i <= CLIENTS_MAX; i++)
		raw_end(&clients[i]);
	end(&a);
}

/* ---- large requests ---- */

/* Readable large requests that are not answered: they complete with BUSY. */
static void test_large_requests(void **state)
{
	struct gn_rpc_server_opts opts = {
		.size = sizeof(opts), .max_large = 4 * MIB, .max_client_bytes = 2 * MIB};
	struct raw_client raw = {0};
	struct gn_remote mine;
	struct rpc_large_ref ref;
	struct attack a;
	uint64_t cost;

	(void)state;
	begin(&a, "large", &opts);
	raw.fabric = a.fabric;
	assert_int_equal(raw_connect(&raw, a.victim.addr, raw_hello(GN_RPC_WINDOW_MAX)), 0);
	assert_int_equal(gn_mr_remote(raw.ep.mr, &mine), 0);
	ref = (struct rpc_large_ref){.offset = mine.offset, .key = mine.key, .len = RAW_BYTES};
	raw.index = RPC_LARGE;
	for (unsigned i = 1; i < raw.welcome.slots && raw.up; i++)
		assert_int_equal(raw_send(&raw, LATER, &ref, sizeof(ref), 10, 0), 0);
	honest(&a);
	cost = cost_bytes(&a);
	print_message("# large requests cost the server %.1f MiB\n", (double)cost / MIB);
	raw_end(&raw);
	honest(&a);
	assert_true(cost < 2 * MIB + SLACK_BYTES);
	end(&a);
}

/* ---- charges are undone ---- */

#define COMERS 60u

/* Some of what a client can leave behind: nothing acknowledged, half read, too large. */
static void misbehave(struct raw_client *raw)
{
	struct gn_remote mine;
	struct rpc_large_ref ref;

	assert_int_equal(gn_mr_remote(raw->ep.mr, &mine), 0);
	for (unsigned i = 1; i < raw->welcome.slots && raw->up; i++) {
		const uint64_t what = gn_random();
		const struct two want = {(uint32_t)(what >> 8) % (64u << 10), 7};

		ref = (struct rpc_large_ref){.offset = mine.offset,
					     .key = what & 0x30 ? mine.key : 5,
					     .len = (uint32_t)(what >> 8) % (2 * RAW_BYTES)};
		raw->index = what & 1 ? RPC_LARGE : 0;
		if (what & 1)
			raw_send(raw, what & 2 ? ECHO : BLOB, &ref, sizeof(ref), what >> 2 & 3, 0);
		else
			raw_send(raw, BLOB, &want, sizeof(want), what >> 2 & 15,
				 what & 64 ? i / 2 : 0);
	}
}

/* Clients connect, misbehave and disconnect: afterwards nothing is charged. */
static void test_given_back(void **state)
{
	struct gn_rpc_server_opts opts = {
		.size = sizeof(opts), .max_large = MIB, .max_client_bytes = MIB};
	struct gn_rpc_counters counters = {.size = sizeof(counters)};
	struct gn_fabric *fabric;
	uint64_t deadline_ns;
	struct service s;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:back-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(service_start(&s, fabric, addr, &opts), 0);
	for (unsigned i = 0; i < COMERS; i++) {
		struct raw_client raw = {.fabric = fabric, .flags = gn_random() & RPC_REPLY};
		struct rpc_hello hello = raw_hello(1u << gn_random() % 14);

		hello.slots = 1u << gn_random() % 8;
		hello.max_result = (uint32_t)gn_random() % GN_RPC_BYTES_DEFAULT;
		hello.reply_key = (uint32_t)(gn_random() % 4 ? 0 : gn_random());
		hello.previous = gn_random();
		hello.previous_thread = (uint32_t)gn_random() % 4;
		if (!raw_connect(&raw, addr, hello))
			misbehave(&raw);
		raw_end(&raw);
	}
	deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	do {
		assert_true(gn_now_ns() < deadline_ns);
		gn_sleep_us(1000);
		assert_int_equal(gn_rpc_server_counters(s.server, &counters), 0);
	} while (counters.bytes || counters.clients);
	assert_int_equal(service_stop(&s), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- continuous requests for notification ---- */

#define NOTIFIES 5000u

/* Of results that are there, and that never will be; without receives for the notifications. */
static void test_notifies(void **state)
{
	struct gn_rpc_server_opts opts = {.size = sizeof(opts)};
	struct raw_client raw = {0};
	struct attack a;
	uint64_t cost;
	unsigned i;

	(void)state;
	begin(&a, "notifies", &opts);
	raw.fabric = a.fabric;
	assert_int_equal(raw_connect(&raw, a.victim.addr, raw_hello(16)), 0);
	assert_int_equal(raw_send(&raw, ECHO, "abc", 3, 1, 0), 0);
	for (i = 0; i < NOTIFIES && raw.up; i++) {
		struct gn_wr wr;

		gn_wr_init(&wr, GN_OP_WRITE_IMM, 0, NULL, 0, GN_SOLICITED);
		wr.imm = i % 3 ? 1 : (uint32_t)gn_random();
		raw_post(&raw, &wr);
		if (i % 500 == 0)
			honest(&a);
	}
	cost = cost_bytes(&a);
	print_message("# %u times asked to be notified: %.1f MiB; the slowest of the others' calls "
		      "took %.1f ms\n",
		      i, (double)cost / MIB, (double)a.slowest_ns * 1e-6);
	raw_end(&raw);
	honest(&a);
	assert_true(cost < SLACK_BYTES);
	end(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),	       cmocka_unit_test(test_held),
		cmocka_unit_test(test_tiny_slots),     cmocka_unit_test(test_small_large_results),
		cmocka_unit_test(test_clients),	       cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_large_requests), cmocka_unit_test(test_notifies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
