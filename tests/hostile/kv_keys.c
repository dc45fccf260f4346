/* SPDX-License-Identifier: MIT */
/*
 * A client of the store that chooses its keys and looks at its versions: it learns nothing about
 * the server's secrets, and cannot make the server evict others' items while memory is free, except
 * those of a bucket whose keys a scan has listed.
 */
#include <string.h>

#include "kv/client.h"
#include "unit.h"

#define LONG_US	     10000000u
#define FLOOD	     64u
#define LOW_BITS     14u /* bits of the hash that select a bucket, in a store of 64 MiB */
#define VERSION_2_53 (1ull << 53)

struct world {
	struct gn_fabric *fabric;
	char addr[64];
	struct gn_kv_server *server;
	struct gn_kv_client *client;
};

static void world_up(struct world *w, const struct gn_kv_server_opts *opts)
{
	snprintf(w->addr, sizeof(w->addr), "shm:hostile-kv-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &w->fabric), 0);
	assert_int_equal(gn_kv_server_create(w->fabric, w->addr, opts, &w->server), 0);
	assert_int_equal(gn_kv_server_start(w->server), 0);
	assert_int_equal(gn_kv_client_open(w->fabric, w->addr, NULL, &w->client), 0);
}

static void world_down(struct world *w)
{
	assert_int_equal(gn_kv_client_close(w->client), 0);
	gn_kv_server_destroy(w->server);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

static uint64_t set(struct world *w, const void *key, uint32_t key_len)
{
	struct gn_kv_op op = {
		.verb = GN_KV_SET, .key = key, .key_len = key_len, .value = "v", .value_len = 1};

	assert_int_equal(gn_kv_do(w->client, &op, 1, gn_deadline_us(LONG_US)), 0);
	assert_int_equal(op.status, GN_KV_OK);
	op.verb = GN_KV_GET;
	op.how = GN_KV_DETAILS | GN_KV_NO_VALUE;
	assert_int_equal(gn_kv_do(w->client, &op, 1, gn_deadline_us(LONG_US)), 0);
	assert_int_equal(op.status, GN_KV_OK);
	return op.cas;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/*
 * No version is near a number that clients know, or bits of it, nor near a version of the server
 * before: by chance this fails in one of 2^20 runs.
 */
static void test_versions(void **state)
{
	static const struct gn_kv_server_opts opts[] = {{.size = sizeof(opts[0]), .threads = 1},
							{.size = sizeof(opts[0]), .threads = 3},
							{.size = sizeof(opts[0]), .bypass = true}};

	uint64_t last = 0; /* of the server before */

	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		struct world w = {.client = NULL};
		uint64_t version;

		world_up(&w, &opts[i % 3]);
		version = set(&w, "key", 3);
		for (unsigned shift = 0; shift < 24; shift++) {
			assert_true(distance(version, w.client->layout.seed >> shift) > 1u << 20);
			assert_true(distance(version, w.client->layout.epoch >> shift) > 1u << 20);
		}
		assert_in_range(version, 1, VERSION_2_53 - 1);
		assert_true(distance(version, last) > 1u << 20);
		last = version;
		world_down(&w);
	}
}

/* Keys with equal hashes, by all that a client knows, and in one partition. */
static void test_flood(void **state)
{
	static const struct gn_kv_server_opts opts[] = {{.size = sizeof(opts[0]), .threads = 1},
							{.size = sizeof(opts[0]), .threads = 2}};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t keys[FLOOD], n = 0, there = 0;
		struct world w = {.client = NULL};
		struct gn_kv_stats stats = {.size = sizeof(stats)};

		world_up(&w, &opts[i]);
		for (uint32_t key = 1; n < FLOOD; key++)
			if (!(kv_hash(&key, sizeof(key), w.client->layout.seed) &
			      ((1u << LOW_BITS) - 1)))
				keys[n++] = key;
		for (unsigned k = 0; k < FLOOD; k++)
			set(&w, &keys[k], sizeof(keys[k]));
		for (unsigned k = 0; k < FLOOD; k++) {
			struct gn_kv_op op = {.verb = GN_KV_GET,
					      .how = GN_KV_NO_VALUE,
					      .key = &keys[k],
					      .key_len = sizeof(keys[k])};

			assert_int_equal(gn_kv_do(w.client, &op, 1, gn_deadline_us(LONG_US)), 0);
			there += op.status == GN_KV_OK;
		}
		assert_int_equal(
			gn_kv_client_stats(w.client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)),
			0);
		print_message("# %u of %u chosen keys are there, %llu were evicted\n", there, FLOOD,
			      (unsigned long long)stats.evicted_bucket);
		assert_int_equal(there, FLOOD);
		assert_int_equal(stats.evicted_bucket + stats.evicted_log, 0);
		world_down(&w);
	}
}

/* ---- keys that a scan lists side by side ---- */

#define BATCH	     900u /* keys, so few that no bucket of a store of 1 MiB is split */
#define HONEST	     500u
#define BUCKET_ITEMS 29u /* of four lines */

struct listed {
	uint32_t keys[FLOOD], n, most;
};

static void list_key(const struct gn_kv_key *key, void *arg)
{
	struct listed *l = arg;

	if (l->n < l->most)
		memcpy(&l->keys[l->n++], key->key, sizeof(l->keys[0]));
}

static unsigned count_there(struct world *w, const uint32_t *keys, unsigned n)
{
	unsigned there = 0;

	for (unsigned i = 0; i < n; i++)
		there += !gn_kv_get(w->client, &keys[i], sizeof(keys[i]), &(char){0}, 1, NULL,
				    gn_deadline_us(LONG_US));
	return there;
}

/*
 * A scan begins with the keys of the first bucket. A client that collects such keys and stores all
 * of them evicts the other items of that bucket, and no more.
 */
static void test_listed(void **state)
{
	const struct gn_kv_server_opts opts = {.size = sizeof(opts), .memory = 1u << 20};
	struct world w = {.client = NULL};
	struct listed l = {.n = 0};
	uint32_t key = 0, honest[HONEST];
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	(void)state;
	world_up(&w, &opts);
	while (l.n < FLOOD) {
		struct gn_kv_cursor cursor = {{0}};

		assert_int_equal(gn_kv_clear(w.client, 0, gn_deadline_us(LONG_US)), 0);
		for (unsigned i = 0; i < BATCH; i++, key++)
			assert_int_equal(gn_kv_set(w.client, &key, sizeof(key), "v", 1, 0,
						   gn_deadline_us(LONG_US)),
					 0);
		l.most = l.n + 2;
		assert_true(gn_kv_scan(w.client, &cursor, list_key, &l, gn_deadline_us(LONG_US)) >=
			    0);
	}
	assert_int_equal(gn_kv_clear(w.client, 0, gn_deadline_us(LONG_US)), 0);
	for (unsigned i = 0; i < HONEST; i++) {
		honest[i] = key++;
		set(&w, &honest[i], sizeof(honest[i]));
	}
	for (unsigned i = 0; i < FLOOD; i++)
		set(&w, &l.keys[i], sizeof(l.keys[i]));
	assert_int_equal(gn_kv_client_stats(w.client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)),
			 0);
	print_message("# %u of %u listed keys are there, and %u of %u others\n",
		      count_there(&w, l.keys, FLOOD), FLOOD, count_there(&w, honest, HONEST),
		      HONEST);
	assert_true(stats.evicted_bucket > 0 && stats.evicted_log == 0);
	assert_true(count_there(&w, l.keys, FLOOD) >= BUCKET_ITEMS);
	assert_true(count_there(&w, honest, HONEST) >= HONEST - BUCKET_ITEMS);
	world_down(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
