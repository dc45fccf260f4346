/* SPDX-License-Identifier: MIT */
/*
 * The records of a partition against a trivial model: changes, locks, versions, tombstones, scans
 * while the table grows, and the limit of memory.
 */
#include <errno.h>
#include <string.h>

#include "tx/store.h"
#include "unit.h"

#define KEYS	  700u
#define ROUNDS	  60000u
#define SEED	  77u
#define MAX_BYTES (8u << 20)

struct model_key {
	char name[TX_KEY_MAX];
	uint32_t table, len;
	uint64_t version, lock;
	bool record, present;
	uint32_t value_len;
	uint8_t fill;
	bool visited;
};

struct world {
	struct tx_store *store;
	struct model_key keys[KEYS];
	uint64_t floor, rng;
};

static struct tx_key key_of(const struct model_key *k)
{
	return (struct tx_key){.data = k->name,
			       .table = k->table,
			       .len = k->len,
			       .hash = tx_key_hash(k->table, k->name, k->len, SEED)};
}

static void world_open(struct world *w)
{
	*w = (struct world){.rng = unit_seed()};
	assert_int_equal(tx_store_create(MAX_BYTES, &w->store), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		struct model_key *k = &w->keys[i];

		k->table = i % 3; /* the same name in several tables is several keys */
		k->len = (uint32_t)snprintf(k->name, sizeof(k->name), "%u", i / 3);
		if (i % 5 == 0)
			k->len = TX_KEY_MAX;
	}
}

static void check_key(const struct world *w, const struct model_key *k)
{
	const struct tx_key key = key_of(k);
	const struct tx_record *r = tx_store_find(w->store, &key);

	assert_int_equal(r != NULL, k->record);
	if (!r) {
		assert_int_equal(tx_store_floor(w->store), w->floor);
		return;
	}
	assert_int_equal(r->version, k->version);
	assert_int_equal(r->lock, k->lock);
	assert_int_equal(r->state == TX_PRESENT, k->present);
	assert_int_equal(r->value_len, k->present ? k->value_len : 0);
	for (uint32_t i = 0; k->present && i < k->value_len; i++)
		assert_int_equal(((const uint8_t *)tx_record_value(r))[i], k->fill);
}

static uint64_t version_of(const struct world *w, const struct model_key *k)
{
	return k->record ? k->version : w->floor;
}

static void do_lock(struct world *w, struct model_key *k)
{
	const enum tx_op op = unit_next(&w->rng) % 3;
	const uint64_t id = 1 + unit_next(&w->rng) % 3;
	const struct tx_key key = key_of(k);
	struct tx_record *r;
	const enum tx_found found = tx_store_lock(w->store, &key, op, id, &r);

	if (k->lock && k->lock != id) {
		assert_int_equal(found, TX_LOCKED);
		return;
	}
	if (op == TX_INSERT ? k->present : !k->present) {
		assert_int_equal(found, op == TX_INSERT ? TX_EXISTS : TX_ABSENT);
		return;
	}
	assert_int_equal(found, TX_FOUND);
	k->version = version_of(w, k);
	k->record = true;
	k->lock = id;
	assert_int_equal(r->version, k->version);
}

static void do_unlock(struct world *w, struct model_key *k)
{
	const uint64_t id = 1 + unit_next(&w->rng) % 3;
	const struct tx_key key = key_of(k);

	assert_int_equal(tx_store_unlock(w->store, &key, id), k->lock == id);
	if (k->lock != id)
		return;
	k->lock = 0;
	if (!k->present && k->value_len == UINT32_MAX)
		k->record = true; /* a tombstone stays */
	else if (!k->present)
		k->record = false;
}

/* value_len UINT32_MAX marks a tombstone of the model. */
static void do_apply(struct world *w, struct model_key *k)
{
	static uint8_t value[TX_VALUE_MAX];
	const bool delete = unit_next(&w->rng) % 3 == 0;
	const uint32_t len = unit_next(&w->rng) % (unit_next(&w->rng) % 8 ? 100 : TX_VALUE_MAX + 1);
	const uint64_t version = version_of(w, k) + unit_next(&w->rng) % 3;
	const uint8_t fill = (uint8_t)unit_next(&w->rng);
	const struct tx_key key = key_of(k);
	int rc;

	memset(value, fill, len);
	rc = tx_store_apply(w->store, &key, delete ? TX_DELETE : TX_UPDATE, version,
			    delete ? NULL : value, len);
	assert_int_equal(rc, version <= version_of(w, k));
	if (rc)
		return;
	k->record = true;
	k->present = !delete;
	k->version = version;
	k->value_len = delete ? UINT32_MAX : len;
	k->fill = fill;
}

static void do_drop(struct world *w)
{
	const uint64_t floor = tx_store_droppable(w->store);
	uint64_t newest = 0, bound = UINT64_MAX;

	for (unsigned i = 0; i < KEYS; i++) {
		struct model_key *k = &w->keys[i];

		if (!k->record || k->present)
			continue;
		if (k->lock && k->version < bound)
			bound = k->version;
		else if (!k->lock && k->version > newest)
			newest = k->version;
	}
	assert_int_equal(floor, newest < bound ? newest : bound);
	tx_store_drop_tombstones(w->store, floor);
	if (w->floor < floor)
		w->floor = floor;
	for (unsigned i = 0; i < KEYS; i++) {
		struct model_key *k = &w->keys[i];

		if (k->record && !k->present && !k->lock && k->version <= floor) {
			k->record = false;
			k->value_len = 0;
		}
	}
}

static bool keep_odd(void *arg, uint64_t id)
{
	(void)arg;
	return id & 1;
}

static void do_unlock_all(struct world *w)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < KEYS; i++) {
		struct model_key *k = &w->keys[i];

		if (!k->lock || k->lock & 1)
			continue;
		k->lock = 0;
		n++;
		k->record = k->present || k->value_len == UINT32_MAX;
	}
	assert_int_equal(tx_store_unlock_all(w->store, keep_odd, NULL), n);
}

static void check_counts(const struct world *w)
{
	struct tx_store_stats want = {0}, s;

	for (unsigned i = 0; i < KEYS; i++) {
		const struct model_key *k = &w->keys[i];

		want.records += k->present;
		want.tombstones += k->record && !k->present && k->value_len == UINT32_MAX;
		want.locked += k->lock != 0;
	}
	tx_store_query(w->store, &s);
	assert_int_equal(s.records, want.records);
	assert_int_equal(s.tombstones, want.tombstones);
	assert_int_equal(s.locked, want.locked);
	assert_true(s.bytes <= MAX_BYTES);
}

static void test_model(void **state)
{
	static struct world w;

	(void)state;
	world_open(&w);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct model_key *k = &w.keys[unit_next(&w.rng) % (1 + i * KEYS / ROUNDS)];
		const uint32_t what = unit_next(&w.rng) % 1000;

		if (what < 300)
			do_lock(&w, k);
		else if (what < 600)
			do_unlock(&w, k);
		else if (what < 990)
			do_apply(&w, k);
		else if (what < 995)
			do_drop(&w);
		else
			do_unlock_all(&w);
		check_key(&w, k);
		if (i % 1000 == 0)
			check_counts(&w);
	}
	for (unsigned i = 0; i < KEYS; i++)
		check_key(&w, &w.keys[i]);
	check_counts(&w);
	tx_store_destroy(w.store);
}

/* ---- scans ---- */

static void mark_visited(void *arg, const struct tx_record *r)
{
	bool *visited = arg;
	uint32_t number;

	memcpy(&number, tx_record_key(r), sizeof(number));
	visited[number] = true;
}

static struct tx_key number_key(const uint32_t *number)
{
	return (struct tx_key){.data = number,
			       .len = sizeof(*number),
			       .hash = tx_key_hash(0, number, sizeof(*number), SEED)};
}

/* Records that were there before the scan are visited although the table grows meanwhile. */
static void test_scan(void **state)
{
	enum { BEFORE = 500, ALL = 20000 };
	static bool visited[ALL];
	struct tx_store *store;
	uint64_t cursor = 0;
	uint32_t n = 0;
	bool more = true;

	(void)state;
	assert_int_equal(tx_store_create(MAX_BYTES, &store), 0);
	while (more) {
		const uint32_t end = n < BEFORE ? BEFORE : n + 300;

		for (; n < end && n < ALL; n++) {
			const struct tx_key key = number_key(&n);

			assert_int_equal(tx_store_apply(store, &key, TX_INSERT, 1, "x", 1), 0);
		}
		more = tx_store_scan(store, &cursor, mark_visited, visited);
	}
	assert_int_equal(n, ALL);
	for (uint32_t i = 0; i < BEFORE; i++)
		assert_true(visited[i]);
	tx_store_destroy(store);
}

static void test_limit(void **state)
{
	static const uint8_t value[1000];
	struct tx_store_stats s;
	struct tx_store *store;
	struct tx_record *r;
	uint32_t n = 0;
	int rc = 0;

	(void)state;
	assert_int_equal(tx_store_create(1u << 20, &store), 0);
	while (!rc) {
		const struct tx_key key = number_key(&n);

		rc = tx_store_apply(store, &key, TX_INSERT, 1, value, sizeof(value));
		n += !rc;
	}
	assert_int_equal(rc, -ENOMEM);
	assert_in_range(n, 700, 1000);
	{
		const struct tx_key key = number_key(&n);

		assert_null(tx_store_find(store, &key));
	}
	/* A delete needs no memory; that of deleted records is used again. */
	for (uint32_t i = 0; i < n; i++) {
		const struct tx_key key = number_key(&i);

		assert_int_equal(tx_store_apply(store, &key, TX_DELETE, 2, NULL, 0), 0);
	}
	tx_store_drop_tombstones(store, tx_store_droppable(store));
	tx_store_query(store, &s);
	assert_int_equal(s.records, 0);
	assert_int_equal(s.tombstones, 0);
	assert_int_equal(tx_store_floor(store), 2);
	n = 0;
	{
		const struct tx_key key = number_key(&n);

		assert_int_equal(tx_store_apply(store, &key, TX_INSERT, 2, value, 1000), 1);
		assert_int_equal(tx_store_lock(store, &key, TX_INSERT, 9, &r), TX_FOUND);
		assert_int_equal(r->version, 2);
		assert_int_equal(tx_store_apply(store, &key, TX_INSERT, 3, value, 1000), 0);
	}
	tx_store_destroy(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
