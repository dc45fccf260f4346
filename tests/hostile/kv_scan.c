/* SPDX-License-Identifier: MIT */
/*
 * Clients that request pages of keys in ways that no library does: messages full of scans, several
 * operations in one request, buffers larger than any page, invented cursors. A page has at most
 * KV_PAGE_MAX bytes, and an honest client is always served.
 */
#include <string.h>

#include "fuzz.h"
#include "kv/scan.h"
#include "kv/wire.h"
#include "kv_world.h"

#define LONG_US 10000000u
#define SCANS	64u /* per message */
#define KEYS	4000u

/* The result of a scan: its status, or a line number. */
static int read_page(const void *from, uint32_t bytes, unsigned *status)
{
	static uint8_t room[1u << 20];
	struct gn_kv_op op = {.verb = GN_KV_SCAN, .room = room, .room_bytes = sizeof(room)};

	EXPECT(bytes <= KV_PAGE_MAX + KV_RESPONSE_MAX);
	EXPECT(kv_response_read(from, bytes, &op));
	EXPECT(op.len <= KV_PAGE_MAX);
	*status = op.status;
	return 0;
}

static uint32_t write_scan(uint8_t *to, const struct kv_cursor *cursor, uint32_t key_len,
			   uint32_t room)
{
	const struct gn_kv_op op = {
		.verb = GN_KV_SCAN, .key = cursor, .key_len = key_len, .room_bytes = room};

	kv_request_write(to, &op);
	return kv_request_bytes(&op);
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

struct scan {
	struct gn_rpc_op rpc;
	int error;
	unsigned status;
};

static void scan_ended(struct gn_rpc_op *rpc)
{
	struct scan *scan = rpc->arg;

	scan->error = rpc->status == GN_RPC_OK ?
			      read_page(rpc->data, rpc->result_len, &scan->status) :
			      __LINE__;
}

/* A message of scans only: each has its page, and others are served meanwhile. */
static int many(struct gn_rpc_client *rpc, struct gn_kv_client *client)
{
	const struct kv_cursor cursor = {0};
	static struct scan scans[SCANS];
	uint8_t request[64];
	const uint32_t len = write_scan(request, &cursor, sizeof(cursor), 1u << 20);

	for (unsigned i = 0; i < SCANS; i++) {
		scans[i] = (struct scan){.rpc = {.method = KV_SCAN,
						 .request = request,
						 .request_len = len,
						 .result_room = UINT32_MAX,
						 .deadline_ns = gn_deadline_us(LONG_US),
						 .done = scan_ended,
						 .arg = &scans[i],
						 .flags = GN_RPC_IN_PLACE},
					 .error = -1};
		EXPECT(gn_rpc_submit(rpc, &scans[i].rpc) == 0);
	}
	EXPECT(gn_rpc_flush(rpc) == 0);
	EXPECT(honest(client) == 0);
	for (unsigned i = 0; i < SCANS; i++) {
		while (scans[i].error < 0)
			EXPECT(gn_rpc_wait(rpc, gn_deadline_us(LONG_US)) > 0);
		EXPECT(scans[i].error == 0 && scans[i].status == GN_KV_OK);
	}
	return 0;
}

/* Several operations in one request are invalid; so is a scan sent as an ordinary operation. */
static int misplaced(struct gn_rpc_client *rpc, uint8_t *request)
{
	const struct kv_cursor cursor = {0};
	uint32_t len = write_scan(request, &cursor, sizeof(cursor), 1u << 20);
	unsigned status = GN_RPC_OK;

	EXPECT(gn_rpc_call(rpc, KV_DO, request, len, NULL, 0, NULL, gn_deadline_us(LONG_US),
			   &status) == 0);
	EXPECT(status == GN_RPC_DENIED);
	len += write_scan(request + len, &cursor, sizeof(cursor), 1u << 20);
	EXPECT(gn_rpc_call(rpc, KV_SCAN, request, len, NULL, 0, NULL, gn_deadline_us(LONG_US),
			   &status) == 0);
	EXPECT(status == GN_RPC_DENIED);
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
	uint32_t len;

	EXPECT(gn_rpc_call(rpc, KV_SCAN, request, bytes, result, room, &len,
			   gn_deadline_us(LONG_US), &status) == 0);
	EXPECT(status == GN_RPC_OK && read_page(result, len, &status) == 0);
	EXPECT((key_len == sizeof(cursor) && !cursor.partition && want >= GN_KV_PAGE_MIN) ||
	       status != GN_KV_OK);
	return 0;
}

static int program(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	const uint32_t room = 2u << 20;
	uint8_t *request = gn_alloc(1u << 20, 0), *result = gn_alloc(room, 0);
	struct gn_rpc_client_opts opts = {
		.size = sizeof(opts), .thread = 1, .batch.entries = SCANS};
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
		EXPECT(many(rpc, client) == 0 && honest(client) == 0);
	EXPECT(misplaced(rpc, request) == 0);
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
