/* SPDX-License-Identifier: MIT */
/*
 * Clients that ask for pages of keys in ways that no library does: a message full of scans, rooms
 * that are larger than any page, cursors that nobody gave. A message makes one page at most, of at
 * most KV_PAGE_MAX bytes, and an honest client is served all the time.
 */
#include <string.h>

#include "fuzz.h"
#include "kv/scan.h"
#include "kv/wire.h"
#include "kv_world.h"

#define LONG_US 10000000u
#define SCANS	1024u
#define KEYS	4000u

struct results {
	uint32_t n, pages, invalid, bytes;
};

/* Each result of an answer, and whether it is one. */
static int read_results(const uint8_t *from, uint32_t bytes, struct results *out)
{
	static uint8_t room[1u << 20];

	*out = (struct results){.bytes = bytes};
	for (uint32_t at = 0; at < bytes;) {
		struct gn_kv_op op = {.verb = GN_KV_SCAN, .room = room, .room_bytes = sizeof(room)};
		const uint32_t used = kv_tell_read(from + at, bytes - at, &op);

		EXPECT(used);
		out->n++;
		out->pages += op.status == GN_KV_OK;
		out->invalid += op.status != GN_KV_OK;
		EXPECT(op.len <= KV_PAGE_MAX);
		at += used;
	}
	return 0;
}

static uint32_t write_scan(uint8_t *to, const struct kv_cursor *cursor, uint32_t key_len,
			   uint32_t room)
{
	const struct gn_kv_op op = {
		.verb = GN_KV_SCAN, .key = cursor, .key_len = key_len, .room_bytes = room};

	return (uint32_t)(kv_ask_write(to, &op) - to);
}

static int honest(struct gn_kv_client *client)
{
	uint32_t len;
	char room[8];

	EXPECT(gn_kv_get(client, "key-1", 5, room, sizeof(room), &len, gn_deadline_us(LONG_US)) ==
	       0);
	EXPECT(len == 5);
	return 0;
}

/* A message of nothing but scans: the first is done, the others are to be asked for again. */
static int many(struct gn_rpc_client *rpc, uint8_t *request, uint8_t *result, uint32_t room)
{
	const struct kv_cursor cursor = {0};
	unsigned status = GN_RPC_OK;
	struct results results;
	uint32_t bytes = 0, len;

	for (unsigned i = 0; i < SCANS; i++)
		bytes += write_scan(request + bytes, &cursor, sizeof(cursor), 1u << 20);
	EXPECT(gn_rpc_call(rpc, KV_DO, request, bytes, result, room, &len, gn_deadline_us(LONG_US),
			   &status) == 0);
	EXPECT(status == GN_RPC_OK);
	EXPECT(read_results(result, len, &results) == 0);
	EXPECT(results.n == 1 && results.pages == 1);
	EXPECT(results.bytes <= KV_PAGE_MAX + KV_TELL_MAX);
	return 0;
}

static int strange(struct gn_rpc_client *rpc, uint8_t *request, uint8_t *result, uint32_t room)
{
	const struct kv_cursor cursor = {.partition = fuzz_pick(3) ? 0 : fuzz_any(),
					 .restarts = fuzz_any(),
					 .at = (uint64_t)fuzz_strange() << fuzz_pick(33),
					 .mark = (uint64_t)fuzz_strange() << fuzz_pick(33)};
	const uint32_t key_len = fuzz_pick(4) ? (uint32_t)sizeof(cursor) : 1 + fuzz_pick(24);
	const uint32_t want = fuzz_pick(4) ? GN_KV_PAGE_MIN + fuzz_pick(1u << 20) :
					     fuzz_pick(GN_KV_PAGE_MIN);
	const uint32_t bytes = write_scan(request, &cursor, key_len, want);
	unsigned status = GN_RPC_OK;
	struct results results;
	uint32_t len;

	EXPECT(gn_rpc_call(rpc, KV_DO, request, bytes, result, room, &len, gn_deadline_us(LONG_US),
			   &status) == 0);
	EXPECT(status == GN_RPC_OK && read_results(result, len, &results) == 0);
	EXPECT(results.n == 1);
	EXPECT((key_len == sizeof(cursor) && !cursor.partition && want >= GN_KV_PAGE_MIN) ||
	       results.invalid);
	return 0;
}

static int program(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	const uint32_t room = 2u << 20;
	uint8_t *request = gn_alloc(1u << 20, 0), *result = gn_alloc(room, 0);
	struct gn_rpc_client_opts opts = {.thread = 1};
	struct gn_kv_client *client;
	struct gn_rpc_client *rpc;
	char key[32];

	(void)number;
	EXPECT(request && result);
	EXPECT(gn_kv_client_open(fabric, w->addr, NULL, &client) == 0);
	for (unsigned i = 0; i < KEYS; i++) {
		const int len = snprintf(key, sizeof(key), "key-%u", i);

		EXPECT(gn_kv_set(client, key, (uint32_t)len, "value", 5, 0,
				 gn_deadline_us(LONG_US)) == 0);
	}
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &rpc) == 0);
	for (unsigned i = 0; i < 20; i++)
		EXPECT(many(rpc, request, result, room) == 0 && honest(client) == 0);
	for (unsigned i = 0; i < 800; i++)
		EXPECT(strange(rpc, request, result, room) == 0);
	EXPECT(honest(client) == 0);
	gn_rpc_client_close(rpc);
	EXPECT(gn_kv_client_close(client) == 0);
	gn_free(request);
	gn_free(result);
	return 0;
}

static void test_scans(void **state)
{
	struct kv_world w = {
		.opts = {.threads = 1, .memory = 16u << 20}, .program = program, .clients = 1};

	(void)state;
	fuzz_begin();
	kv_run_shm(&w);
	w.opts.bypass = true;
	kv_run_shm(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_scans)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
