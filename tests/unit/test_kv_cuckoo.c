/* SPDX-License-Identifier: MIT */
/*
 * The table that clients READ: consistent after every change, growing, and never with the same
 * words twice.
 */
#include <string.h>

#include "kv/cuckoo.h"
#include "unit.h"

/* Larger than a key needs: the hash function reads in blocks. */
#define ROOM 256u

static uint32_t key_of(char key[ROOM], uint32_t n)
{
	return (uint32_t)snprintf(key, ROOM, "key-%u", n);
}

/* As a client sees it: in how many entries is this key's item, and are they intact? */
static unsigned entries_with(const struct gn_kv_store *s, const char *key, uint32_t key_len)
{
	const struct kv_table *t = kv_cuckoo_table(s->cuckoo);
	const uint64_t tag = kv_tag(kv_hash(key, key_len, s->seed));
	uint32_t at[KV_WAYS];
	unsigned found = 0;

	for (unsigned way = 0; way < KV_WAYS; way++)
		at[way] = kv_entry_index(tag, way, t->bits);
	for (unsigned way = 0; way < KV_WAYS; way++) {
		const struct kv_entry *e = &t->entries[at[way]];
		const struct kv_item *item = kv_item_at(s, kv_entry_loc(e));

		/* Two ways of a key are sometimes the same. */
		if ((way > 0 && at[way] == at[0]) || (way > 1 && at[way] == at[1]))
			continue;

		assert_true(e->crc == kv_entry_crc(e));
		if (!kv_entry_loc(e) || kv_entry_tag(e) != tag)
			continue;
		assert_int_equal(kv_entry_size(e), kv_item_bytes(item->lengths));
		assert_true(e->sum == kv_item_sum(item));
		found += kv_key_is(item, key, key_len);
	}
	return found;
}

static unsigned store_op(struct gn_kv_store *s, enum gn_kv_verb verb, uint32_t n, uint32_t len)
{
	uint8_t value[512];
	char key[ROOM];
	struct gn_kv_op op = {.verb = verb,
			      .key = key,
			      .value = value,
			      .room = value,
			      .room_bytes = sizeof(value)};

	op.key_len = key_of(key, n);
	memset(value, (int)n, len);
	op.value_len = verb == GN_KV_SET ? len : 0;
	gn_kv_store_do(s, &op, 1);
	if (verb == GN_KV_GET && op.status == GN_KV_OK)
		for (uint32_t i = 0; i < op.len; i++)
			assert_int_equal(value[i], (uint8_t)n);
	return op.status;
}

static void make_store(struct gn_fabric *fabric, uint64_t memory, struct gn_kv_store **out)
{
	const struct kv_store_opts opts = {.open = {.memory = memory, .seed = 7}, .fabric = fabric};

	assert_int_equal(kv_store_make(&opts, out), 0);
}

/* Sets and deletes against a model, while the table grows from 16 Ki entries to 64 Ki. */
static void test_table(void **state)
{
	enum { KEYS = 50000 };
	bool *there = calloc(KEYS, sizeof(*there));
	uint64_t random = unit_seed(), n_there = 0;
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct gn_fabric *fabric;
	struct gn_kv_store *s;
	char key[ROOM];

	(void)state;
	assert_non_null(there);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	make_store(fabric, 32u << 20, &s);
	gn_kv_store_stats(s, &stats);
	assert_int_equal(stats.buckets, (32u << 20) / 256);
	assert_int_equal(stats.splits, 0);
	for (unsigned i = 0; i < 4 * KEYS; i++) {
		uint32_t n;

		random = random * 6364136223846793005u + 1442695040888963407u;
		n = (uint32_t)(random >> 33) % KEYS;
		if (random >> 60 < 5) {
			assert_int_equal(store_op(s, GN_KV_DELETE, n, 0),
					 there[n] ? GN_KV_OK : GN_KV_MISS);
			there[n] = false;
		} else {
			assert_int_equal(store_op(s, GN_KV_SET, n, (uint32_t)(random >> 40) % 100),
					 GN_KV_OK);
			there[n] = true;
		}
	}
	for (uint32_t n = 0; n < KEYS; n++) {
		const uint32_t len = key_of(key, n);

		n_there += there[n];
		assert_int_equal(entries_with(s, key, len), there[n]);
		assert_int_equal(store_op(s, GN_KV_GET, n, 0), there[n] ? GN_KV_OK : GN_KV_MISS);
	}
	gn_kv_store_stats(s, &stats);
	assert_int_equal(stats.items, n_there);
	assert_int_equal(stats.evicted_bucket + stats.evicted_log, 0);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(fabric), 0);
	free(there);
}

/* The table grows as long as there is memory; then items are evicted, and the limit holds. */
static void test_growth(void **state)
{
	enum { KEYS = 200000 };
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct gn_fabric *fabric;
	const struct kv_table *first;
	struct gn_kv_store *s;
	uint64_t found = 0;

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	make_store(fabric, 8u << 20, &s);
	first = kv_cuckoo_table(s->cuckoo);
	for (uint32_t n = 0; n < KEYS; n++) {
		assert_int_equal(store_op(s, GN_KV_SET, n, 8), GN_KV_OK);
		assert_int_equal(store_op(s, GN_KV_GET, n, 0), GN_KV_OK);
		if (n % 1000)
			continue;
		gn_kv_store_stats(s, &stats);
		assert_true(stats.used <= stats.memory);
		assert_true(stats.items <= stats.buckets);
	}
	assert_true(stats.splits >= 1 && stats.kicks > 0);
	assert_true(stats.evicted_bucket + stats.evicted_log > 0);
	for (uint32_t n = 0; n < KEYS; n++)
		found += store_op(s, GN_KV_GET, n, 0) == GN_KV_OK;
	gn_kv_store_stats(s, &stats);
	assert_int_equal(found, stats.items);
	for (uint64_t i = 0; i < 1ull << first->bits; i++) {
		assert_true(kv_entry_moved(&first->entries[i]));
		assert_true(first->entries[i].crc == kv_entry_crc(&first->entries[i]));
	}
	gn_kv_store_clear(s, 0);
	gn_kv_store_stats(s, &stats);
	assert_int_equal(stats.items, 0);
	assert_int_equal(store_op(s, GN_KV_GET, 1, 0), GN_KV_MISS);
	assert_int_equal(store_op(s, GN_KV_SET, 1, 8), GN_KV_OK);
	assert_int_equal(store_op(s, GN_KV_GET, 1, 0), GN_KV_OK);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* Keys with equal tags do not make the table grow: one of them is evicted. */
static void test_equal_tags(void **state)
{
	struct gn_fabric *fabric;
	struct gn_kv_store *s;

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	make_store(fabric, 1u << 20, &s);
	for (uint32_t n = 0; n < 10; n++) {
		const uint32_t lengths = kv_lengths(8, 0);
		const uint32_t place = kv_log_add(s, kv_item_bytes(lengths));

		kv_item_at(s, place)->lengths = lengths;
		kv_item_at(s, place)->used = n << KV_ITEM_BITS;
		kv_cuckoo_link(s, 42, place);
	}
	assert_int_equal(s->stats.splits, 0);
	assert_int_equal(s->stats.items, KV_WAYS);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* No entry has the same words twice, whatever is done to it. */
static void test_serial_numbers(void **state)
{
	enum { WATCHED = 64, SEEN = 4096 };
	struct gn_fabric *fabric;
	struct gn_kv_store *s;
	uint64_t *seen = calloc(WATCHED * SEEN, sizeof(*seen));
	unsigned n_seen[WATCHED] = {0}, changes = 0;

	(void)state;
	assert_non_null(seen);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	make_store(fabric, GN_KV_MEMORY_MIN, &s);
	for (uint32_t i = 0; i < 20000; i++) {
		store_op(s, i % 3 == 2 ? GN_KV_DELETE : GN_KV_SET, i * 2654435761u % 860, 4);
		for (unsigned k = 0; k < WATCHED; k++) {
			const uint64_t crc = kv_cuckoo_table(s->cuckoo)->entries[k].crc;
			uint64_t *of = &seen[k * SEEN];

			if (n_seen[k] && of[n_seen[k] - 1] == crc)
				continue;
			for (unsigned j = 0; j < n_seen[k]; j++)
				assert_true(of[j] != crc);
			assert_true(n_seen[k] < SEEN);
			of[n_seen[k]++] = crc;
			changes++;
		}
	}
	assert_true(changes > 100 * WATCHED / 10);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(fabric), 0);
	free(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_tags),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_serial_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
