/* SPDX-License-Identifier: MIT */
/* What a client can make a key-value server keep besides its items. */
#include "gannet/kv.h"
#include "heap.h"
#include "kv/wire.h"
#include "rpc_raw.h"

#define MIB	     (1u << 20)
#define MEMORY_BYTES (64u * MIB)
#define CONNS_BYTES  (128u * MIB) /* what connections may cost besides, by default */
#define SLACK_BYTES  (unit_slow() ? 384u * MIB : 16u * MIB) /* a sanitizer keeps freed memory */
#define VALUE_BYTES  (1000u << 10)
#define PAGE_BYTES   3900u /* fills a slot */
#define HOSTILE	     4u

static int serve(const char *addr, int ready, int stop, void *arg)
{
	const struct gn_kv_server_opts opts = {.size = sizeof(opts), .memory = MEMORY_BYTES};
	struct gn_kv_server *server;
	struct gn_fabric *fabric;

	(void)arg;
	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(gn_kv_server_create(fabric, addr, &opts, &server) == 0);
	EXPECT(gn_kv_server_start(server) == 0);
	victim_wait(ready, stop);
	gn_kv_server_destroy(server);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static struct gn_kv_client *honest_connect(struct gn_fabric *fabric, const char *addr)
{
	struct gn_kv_client *client;

	assert_int_equal(gn_kv_client_open(fabric, addr, NULL, &client), 0);
	return client;
}

static uint64_t honest_get_ns(struct gn_kv_client *client, const char *key)
{
	const uint64_t begin_ns = gn_now_ns();
	char room[64];
	struct gn_kv_op op = {.verb = GN_KV_GET,
			      .key = key,
			      .key_len = (uint32_t)strlen(key),
			      .room = room,
			      .room_bytes = sizeof(room)};

	assert_int_equal(gn_kv_do(client, &op, 1, gn_deadline_us(UNIT_PATIENCE_US)), 0);
	assert_int_equal(op.status, GN_KV_OK);
	return gn_now_ns() - begin_ns;
}

static void store(struct gn_kv_client *client, const char *key, const void *value, uint32_t len)
{
	struct gn_kv_op op = {.verb = GN_KV_SET,
			      .key = key,
			      .key_len = (uint32_t)strlen(key),
			      .value = value,
			      .value_len = len};

	assert_int_equal(gn_kv_do(client, &op, 1, gn_deadline_us(UNIT_PATIENCE_US)), 0);
	assert_int_equal(op.status, GN_KV_OK);
}

/* All result slots are in use, then GETs of a large value come; nothing is ever acknowledged. */
static void test_never_acknowledged(void **state)
{
	struct raw_client raw[HOSTILE] = {0};
	struct gn_kv_client *client, *newcomer;
	struct gn_fabric *fabric;
	struct victim victim;
	uint8_t request[64], fill_slots[64];
	const struct gn_kv_op page = {
		.verb = GN_KV_GET, .key = "page", .key_len = 4, .room_bytes = PAGE_BYTES};
	const struct gn_kv_op get = {
		.verb = GN_KV_GET, .key = "large", .key_len = 5, .room_bytes = VALUE_BYTES};
	uint64_t most = 0, slowest_ns = 0;
	uint8_t *value = calloc(1, VALUE_BYTES);

	(void)state;
	assert_non_null(value);
	victim_start(&victim, "kv", serve, NULL);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	client = honest_connect(fabric, victim.addr);
	store(client, "large", value, VALUE_BYTES);
	store(client, "page", value, PAGE_BYTES);
	store(client, "small", "s", 1);
	kv_request_write(fill_slots, &page);
	kv_request_write(request, &get);
	for (unsigned i = 0; i < HOSTILE; i++) {
		raw[i].fabric = fabric;
		assert_int_equal(raw_connect(&raw[i], victim.addr, raw_hello(GN_RPC_WINDOW_MAX)),
				 0);
		assert_int_equal(
			raw_send(&raw[i], KV_DO, fill_slots, kv_request_bytes(&page), 32, 0), 0);
		for (unsigned k = 0; k < 2; k++) {
			uint64_t ns, cost;

			if (raw_send(&raw[i], KV_DO, request, kv_request_bytes(&get), UINT32_MAX,
				     0))
				break;
			ns = honest_get_ns(client, "small");
			slowest_ns = ns > slowest_ns ? ns : slowest_ns;
			cost = cost_rss_bytes(victim.pid);
			most = cost > most ? cost : most;
		}
	}
	print_message("# with --memory %u MiB the server holds %.1f MiB; the slowest GET beside "
		      "took %.1f ms\n",
		      MEMORY_BYTES / MIB, (double)most / MIB, (double)slowest_ns * 1e-6);
	honest_get_ns(client, "small");
	newcomer = honest_connect(fabric, victim.addr);
	honest_get_ns(newcomer, "small");
	assert_int_equal(gn_kv_client_close(newcomer), 0);
	for (unsigned i = 0; i < HOSTILE; i++)
		raw_end(&raw[i]);
	honest_get_ns(client, "small");
	assert_true(most < MEMORY_BYTES + CONNS_BYTES + SLACK_BYTES);
	assert_int_equal(gn_kv_client_close(client), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
	victim_stop(&victim);
	free(value);
}

/* ---- large buffers claimed by clients ---- */

#define CLAIMS	   256u /* operations; more than a group has */
#define ALLOCS_MAX 16u	/* for all of them */

struct claimer {
	const char *addr;
	struct gn_fabric *fabric;
	bool connected, go, done; /* atomic */
	int rc;
};

static void await(const bool *flag)
{
	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		gn_sleep_us(100);
}

/* GETs that change something, of missing keys, with room for the largest value. */
static int claim(struct claimer *c)
{
	struct raw_client raw = {.fabric = c->fabric};
	struct gn_kv_op get = {.verb = GN_KV_GET,
			       .how = GN_KV_AND_TOUCH,
			       .ttl_s = 100,
			       .key = "none",
			       .key_len = 4,
			       .room_bytes = MIB};
	unsigned how[] = {GN_KV_AND_TOUCH, GN_KV_VIVIFY, GN_KV_AND_TOUCH | GN_KV_NO_VALUE};
	uint8_t request[64];

	EXPECT(raw_connect(&raw, c->addr, raw_hello(GN_RPC_WINDOW_MAX)) == 0);
	__atomic_store_n(&c->connected, true, __ATOMIC_RELEASE);
	await(&c->go);
	for (unsigned i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		get.how = how[i];
		kv_request_write(request, &get);
		/* There are as many slots as the results of all messages need. */
		EXPECT(raw_send(&raw, KV_DO, request, kv_request_bytes(&get), CLAIMS / 4, 0) == 0);
	}
	await(&c->done);
	raw_end(&raw);
	return 0;
}

static void claim_main(void *arg)
{
	struct claimer *c = arg;

	c->rc = claim(c);
}

/*
 * … cost no memory: the server checks the length of a value before it reserves memory for its copy.
 */
static void test_claims(void **state)
{
	const struct gn_kv_server_opts opts = {
		.size = sizeof(opts), .memory = 8 * MIB, .rpc = {.flags = GN_RPC_POLLED}};
	const unsigned calls = 3 * CLAIMS / 4;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct claimer claimer = {0};
	struct gn_kv_server *server;
	struct gn_rpc_server *rpc;
	struct gn_thread *thread;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:hostile-claims-%llx", (unsigned long long)gn_random());
	claimer.addr = addr;
	assert_int_equal(gn_fabric_open("shm", &claimer.fabric), 0);
	assert_int_equal(gn_kv_server_create(claimer.fabric, addr, &opts, &server), 0);
	rpc = gn_kv_server_rpc(server);
	assert_int_equal(gn_kv_server_start(server), 0);
	assert_int_equal(gn_thread_start("claimer", claim_main, &claimer, &thread), 0);
	while (!__atomic_load_n(&claimer.connected, __ATOMIC_ACQUIRE))
		assert_true(gn_rpc_server_poll(rpc) >= 0);
	heap_watch();
	__atomic_store_n(&claimer.go, true, __ATOMIC_RELEASE);
	while (count.calls < calls && !claimer.rc) {
		gn_rpc_server_poll(rpc);
		gn_rpc_server_counters(rpc, &count);
	}
	heap_most();
	__atomic_store_n(&claimer.done, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_int_equal(claimer.rc, 0);
	print_message("# %u operations that claim room for 1 MiB each: %llu allocations\n", calls,
		      (unsigned long long)heap.allocs);
	assert_true(heap.allocs <= ALLOCS_MAX);
	gn_kv_server_destroy(server);
	assert_int_equal(gn_fabric_close(claimer.fabric), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_never_acknowledged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
