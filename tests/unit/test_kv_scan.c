/* SPDX-License-Identifier: MIT */
/*
 * Scans: a key that exists all the time is returned, while buckets are split, entries move, the
 * table grows and items are rewritten; of a local store, and of a server's partitions.
 */
#include <stdlib.h>

#include "kv/cuckoo.h"
#include "kv/scan.h"
#include "kv_world.h"

#define KEY_ROOM 256u
#define LONG_US	 10000000u

enum { OTHERS = 100000, KEYS = 200000 };

struct scanned {
	uint8_t *told; /* how often each key was returned */
	uint8_t *ever; /* it existed at some time since the scan began */
	uint32_t wrong;
};

static uint32_t key_of(char key[KEY_ROOM], uint32_t n)
{
	/* Of all lengths, so that pages have different sizes. */
	return (uint32_t)snprintf(key, KEY_ROOM, "%u:%0*u", n, (int)(n % 97 ? 4 : 230), n);
}

static void tell(struct scanned *s, const struct gn_kv_key *key)
{
	char room[KEY_ROOM], text[32] = {0};
	uint32_t n;

	memcpy(text, key->key, key->key_len < 31 ? key->key_len : 31);
	n = (uint32_t)strtoul(text, NULL, 10);
	if (n >= KEYS || key_of(room, n) != key->key_len || memcmp(room, key->key, key->key_len) ||
	    !s->ever[n])
		s->wrong++;
	else if (s->told[n] < UINT8_MAX)
		s->told[n]++;
}

static unsigned change(struct gn_kv_store *s, enum gn_kv_verb verb, uint32_t n, uint32_t len)
{
	static const uint8_t value[256];
	char key[KEY_ROOM];
	struct gn_kv_op op = {.verb = verb, .key = key, .value = value, .value_len = len};

	op.key_len = key_of(key, n);
	gn_kv_store_do(s, &op, 1);
	return op.status;
}

/* Reads the next page; true if more follow. */
static bool page(struct gn_kv_store *s, struct gn_kv_cursor *cursor, struct scanned *out,
		 unsigned *status)
{
	static uint8_t room[GN_KV_PAGE_MIN];
	struct gn_kv_op op = {.verb = GN_KV_SCAN,
			      .key = cursor,
			      .key_len = sizeof(*cursor),
			      .room = room,
			      .room_bytes = sizeof(room)};
	struct gn_kv_cursor next;
	struct gn_kv_key key;
	uint32_t at = 0;
	bool more;

	gn_kv_store_do(s, &op, 1);
	*status = op.status;
	while (gn_kv_page_next(&op, &at, &key))
		tell(out, &key);
	more = gn_kv_page_more(&op, &next);
	if (more)
		*cursor = next;
	return more;
}

struct plan {
	uint32_t stay; /* keys that exist all the time */
	uint32_t most; /* others, at a time */
	unsigned each; /* changes between two pages */
	uint64_t memory;
	bool table;
};

/* Other keys are stored and deleted, and the permanent ones are rewritten. */
static void disturb(struct gn_kv_store *s, const struct plan *plan, struct scanned *out,
		    uint64_t *random, bool *there, uint32_t *n_there)
{
	for (unsigned i = 0; i < plan->each; i++) {
		const uint32_t n = OTHERS + (uint32_t)(unit_next(random) % (KEYS - OTHERS));
		const uint32_t len = (uint32_t)(unit_next(random) % 60);

		if (unit_next(random) % 8 == 0) {
			assert_int_equal(change(s, GN_KV_SET, n % plan->stay, len), GN_KV_OK);
		} else if (there[n] || *n_there >= plan->most) {
			*n_there -= there[n];
			there[n] = false;
			change(s, GN_KV_DELETE, n, 0);
		} else {
			*n_there += 1;
			there[n] = true;
			out->ever[n] = true;
			assert_int_equal(change(s, GN_KV_SET, n, len), GN_KV_OK);
		}
	}
}

static void scan_changing(const struct plan *plan, struct gn_kv_stats *during)
{
	struct kv_store_opts opts = {.open = {.memory = plan->memory, .seed = 5}};
	struct gn_kv_cursor cursor = {{0}};
	struct gn_kv_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct scanned out = {calloc(KEYS, 1), calloc(KEYS, 1), 0};
	bool *there = calloc(KEYS, sizeof(*there)), more;
	uint64_t random = unit_seed();
	uint32_t n_there = 0, pages = 0, missed = 0;
	struct gn_kv_store *s;
	unsigned status;

	assert_true(out.told && out.ever && there);
	if (plan->table)
		assert_int_equal(gn_fabric_open("shm", &opts.fabric), 0);
	assert_int_equal(kv_store_make(&opts, &s), 0);
	for (uint32_t n = 0; n < plan->stay; n++) {
		assert_int_equal(change(s, GN_KV_SET, n, n % 50), GN_KV_OK);
		out.ever[n] = true;
	}
	for (uint32_t n = 50; n < 90; n++) /* deleted before the scan begins */
		change(s, GN_KV_DELETE, OTHERS + n, 0);
	gn_kv_store_stats(s, &before);
	do {
		more = page(s, &cursor, &out, &status);
		assert_int_equal(status, GN_KV_OK);
		if (more)
			disturb(s, plan, &out, &random, there, &n_there);
		assert_true(++pages < 100000);
	} while (more);
	gn_kv_store_stats(s, &after);
	assert_int_equal(after.evicted_bucket + after.evicted_log, 0);
	assert_int_equal(out.wrong, 0);
	for (uint32_t n = 0; n < plan->stay; n++)
		missed += !out.told[n];
	assert_int_equal(missed, 0);
	*during = (struct gn_kv_stats){.size = sizeof(struct gn_kv_stats),
				       .splits = after.splits - before.splits,
				       .kicks = after.kicks - before.kicks,
				       .moved = after.moved - before.moved};
	gn_kv_store_destroy(s);
	if (plan->table)
		assert_int_equal(gn_fabric_close(opts.fabric), 0);
	free(out.told);
	free(out.ever);
	free(there);
}

static void test_buckets(void **state)
{
	const struct plan plan = {
		.stay = 9000, .most = 40000, .each = 400, .memory = 12u << 20, .table = false};
	struct gn_kv_stats during = {.size = sizeof(during)};

	(void)state;
	scan_changing(&plan, &during);
	assert_true(during.splits > 1000);
}

static void test_moved_entries(void **state)
{
	const struct plan plan = {
		.stay = 22000, .most = 5600, .each = 300, .memory = 8u << 20, .table = true};
	struct gn_kv_stats during = {.size = sizeof(during)};

	(void)state;
	scan_changing(&plan, &during);
	assert_true(during.kicks > 1000 && !during.splits);
}

static void test_grown_table(void **state)
{
	const struct plan plan = {
		.stay = 22000, .most = 20000, .each = 300, .memory = 16u << 20, .table = true};
	const struct plan grows = {
		.stay = 22000, .most = 12000, .each = 300, .memory = 8u << 20, .table = true};
	struct gn_kv_stats during = {.size = sizeof(during)};

	(void)state;
	scan_changing(&plan, &during);
	scan_changing(&grows, &during);
	assert_true(during.splits > 0);
}

/*
 * A table that changes faster than it is scanned: the scan starts over several times, and then
 * fails.
 */
static void test_too_fast(void **state)
{
	struct kv_store_opts opts = {.open = {.memory = 8u << 20, .seed = 5}};
	struct scanned out = {calloc(KEYS, 1), calloc(KEYS, 1), 0};
	struct gn_kv_cursor cursor = {{0}};
	struct gn_kv_store *s;
	unsigned status, pages = 0;

	(void)state;
	assert_true(out.told && out.ever);
	assert_int_equal(gn_fabric_open("shm", &opts.fabric), 0);
	assert_int_equal(kv_store_make(&opts, &s), 0);
	for (uint32_t n = 0; n < 20000; n++) {
		assert_int_equal(change(s, GN_KV_SET, n, 8), GN_KV_OK);
		out.ever[n] = true;
	}
	while (page(s, &cursor, &out, &status)) {
		s->cuckoo->moves += KV_MOVES_LOGGED + 1;
		assert_true(++pages <= KV_SCAN_RESTARTS + 1);
	}
	assert_int_equal(status, GN_KV_FAILED);
	assert_int_equal(pages, KV_SCAN_RESTARTS + 1);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(opts.fabric), 0);
	free(out.told);
	free(out.ever);
}

/* ---- by a server ---- */

enum { SERVED = 2000 };

static void told_by_server(const struct gn_kv_key *key, void *arg)
{
	struct scanned *out = arg;

	tell(out, key);
	out->wrong += key->len != key->key_len || key->flags != 7 || key->cas == 0 ||
		      key->ttl_s < 900 || key->ttl_s > 1000 || key->found & GN_KV_STALE;
}

static int wrong_scans(struct gn_kv_client *client)
{
	uint8_t room[GN_KV_PAGE_MIN], value[8];
	struct gn_kv_cursor cursor = {{0}}, beyond = {{77}};
	struct gn_kv_op ops[5] = {
		{.verb = GN_KV_GET, .key = "none", .key_len = 4},
		{.verb = GN_KV_SCAN,
		 .key = &cursor,
		 .key_len = sizeof(cursor),
		 .room = room,
		 .room_bytes = GN_KV_PAGE_MIN - 1},
		{.verb = GN_KV_SCAN,
		 .key = &cursor,
		 .key_len = 5,
		 .room = room,
		 .room_bytes = sizeof(room)},
		{.verb = GN_KV_SCAN,
		 .key = &beyond,
		 .key_len = sizeof(beyond),
		 .room = room,
		 .room_bytes = sizeof(room)},
		{.verb = GN_KV_SET, .key = "none", .key_len = 4, .value = value, .value_len = 0},
	};
	struct scanned out = {0};

	EXPECT(gn_kv_do(client, ops, 5, gn_deadline_us(LONG_US)) == 0);
	EXPECT(ops[0].status == GN_KV_MISS && ops[4].status == GN_KV_OK);
	EXPECT(ops[1].status == GN_KV_INVALID && ops[2].status == GN_KV_INVALID);
	EXPECT(ops[3].status == GN_KV_INVALID);
	EXPECT(gn_kv_scan(client, &beyond, told_by_server, &out, GN_FOREVER) == -EINVAL);
	EXPECT(gn_kv_del(client, "none", 4, gn_deadline_us(LONG_US)) == 0);
	return 0;
}

static int served(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	struct scanned out = {gn_alloc(KEYS, 0), gn_alloc(KEYS, 0), 0};
	struct gn_kv_cursor cursor = {{0}};
	struct gn_kv_client *client;
	char key[KEY_ROOM];
	int rc;

	(void)number;
	EXPECT(out.told && out.ever);
	EXPECT(gn_kv_client_open(fabric, w->addr, NULL, &client) == 0);
	EXPECT(gn_kv_scan(client, &cursor, told_by_server, &out, GN_FOREVER) >= 0);
	cursor = (struct gn_kv_cursor){{0}};
	for (uint32_t n = 0; n < SERVED; n++) {
		struct gn_kv_op op = {
			.verb = GN_KV_SET, .key = key, .value = key, .flags = 7, .ttl_s = 1000};

		op.key_len = op.value_len = key_of(key, n);
		out.ever[n] = true;
		EXPECT(gn_kv_do(client, &op, 1, gn_deadline_us(LONG_US)) == 0);
		EXPECT(op.status == GN_KV_OK);
	}
	EXPECT(wrong_scans(client) == 0);
	do {
		rc = gn_kv_scan(client, &cursor, told_by_server, &out, gn_deadline_us(LONG_US));
	} while (rc == 1);
	EXPECT(rc == 0 && !out.wrong);
	for (uint32_t n = 0; n < SERVED; n++)
		EXPECT(out.told[n] == 1);
	EXPECT(gn_kv_client_close(client) == 0);
	gn_free(out.told);
	gn_free(out.ever);
	return 0;
}

static void test_served(void **state)
{
	struct kv_world w = {
		.opts = {.threads = 3, .memory = 24u << 20}, .program = served, .clients = 1};

	(void)state;
	kv_run_everywhere(&w);
	w.opts.bypass = true;
	kv_run_everywhere(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),	    cmocka_unit_test(test_moved_entries),
		cmocka_unit_test(test_grown_table), cmocka_unit_test(test_too_fast),
		cmocka_unit_test(test_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
