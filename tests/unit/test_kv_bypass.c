/* SPDX-License-Identifier: MIT */
/*
 * GETs that read the server's memory: the table that they read, what they find there while others
 * write, how many reads they take, and their order among calls.
 */
#include "kv/cuckoo.h"
#include "kv_world.h"

#ifdef __SANITIZE_THREAD__
#define THREADS_WATCHED true
#else
#define THREADS_WATCHED false
#endif

#define LONG_US 30000000u

/* The room is more than a key needs: what computes hashes looks at it in blocks. */
#define ROOM 256u

static uint32_t key_of(char key[ROOM], uint32_t n)
{
	return (uint32_t)snprintf(key, ROOM, "key-%u", n);
}

/* ---- the table by itself ---- */

/* As a client finds it: in how many entries is the item of this key, and are they whole? */
static unsigned entries_with(const struct gn_kv_store *s, const char *key, uint32_t key_len)
{
	const struct kv_table *t = kv_cuckoo_table(s->cuckoo);
	const uint64_t tag = kv_tag(kv_hash(key, key_len, s->seed));
	unsigned found = 0;

	for (unsigned way = 0; way < KV_WAYS; way++) {
		const struct kv_entry *e = &t->entries[kv_entry_at(tag, way, t->bits)];
		const struct kv_item *item = kv_at(s, kv_entry_place(e));

		assert_true(e->crc == kv_entry_crc(e));
		if (!kv_entry_place(e) || kv_entry_tag(e) != tag)
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

/* Sets and deletes against what should be there, while it grows from 16 Ki entries to 64 Ki. */
static void test_table(void **state)
{
	enum { KEYS = 50000 };
	bool *there = calloc(KEYS, sizeof(*there));
	uint64_t random = unit_seed(), n_there = 0;
	struct gn_kv_stats stats;
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

/* It grows as long as there is memory; then what there is makes room, and the limit holds. */
static void test_growth(void **state)
{
	enum { KEYS = 200000 };
	struct gn_kv_stats stats = {0};
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
	gn_kv_store_flush(s, 0);
	gn_kv_store_stats(s, &stats);
	assert_int_equal(stats.items, 0);
	assert_int_equal(store_op(s, GN_KV_GET, 1, 0), GN_KV_MISS);
	assert_int_equal(store_op(s, GN_KV_SET, 1, 8), GN_KV_OK);
	assert_int_equal(store_op(s, GN_KV_GET, 1, 0), GN_KV_OK);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* No entry has the same words twice, whatever is done to it. */
/* Keys that are alike to the table do not make it grow: one of them is forgotten. */
static void test_alike(void **state)
{
	struct gn_fabric *fabric;
	struct gn_kv_store *s;

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	make_store(fabric, 1u << 20, &s);
	for (uint32_t n = 0; n < 10; n++) {
		const uint32_t lengths = kv_lengths(8, 0);
		const uint32_t place = kv_log_add(s, kv_item_bytes(lengths));

		kv_at(s, place)->lengths = lengths;
		kv_at(s, place)->used = n << KV_ITEM_BITS;
		kv_cuckoo_link(s, 42, place);
	}
	assert_int_equal(s->stats.splits, 0);
	assert_int_equal(s->stats.items, KV_WAYS);
	gn_kv_store_destroy(s);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static void test_numbers(void **state)
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

/* ---- what a client finds ---- */

static int set(struct gn_kv_client *client, const char *key, const void *value, uint32_t len,
	       uint32_t ttl_s)
{
	return gn_kv_set(client, key, (uint32_t)strlen(key), value, len, ttl_s,
			 gn_deadline_us(LONG_US));
}

static int get(struct gn_kv_client *client, const char *key, void *room, uint32_t bytes,
	       uint32_t *len)
{
	return gn_kv_get(client, key, (uint32_t)strlen(key), room, bytes, len,
			 gn_deadline_us(LONG_US));
}

static int sizes(struct gn_kv_client *client, uint32_t max_value)
{
	static const uint32_t lens[] = {0, 1, 8, 32, 1000, 4000, 4096, 5000, 100000, 300000};
	uint8_t *value = gn_alloc(max_value, 0), *room = gn_alloc(max_value + 8, 0);
	uint32_t len;

	EXPECT(value && room);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]) && lens[i] <= max_value; i++) {
		memset(value, (int)i + 1, lens[i]);
		memset(room, 0xee, max_value + 8);
		EXPECT(set(client, "sizes", value, lens[i], 0) == 0);
		EXPECT(get(client, "sizes", room, lens[i], &len) == 0 && len == lens[i]);
		EXPECT(!memcmp(room, value, len) && room[len] == 0xee);
		if (len)
			EXPECT(get(client, "sizes", room, len - 1, &len) == -EFBIG &&
			       len == lens[i]);
	}
	gn_free(value);
	gn_free(room);
	return 0;
}

static int details(struct gn_kv_client *client)
{
	struct gn_kv_op put = {.verb = GN_KV_SET,
			       .key = "details",
			       .key_len = 7,
			       .value = "abc",
			       .value_len = 3,
			       .flags = 77,
			       .ttl_s = 1000};
	char room[8];
	struct gn_kv_op op = {.verb = GN_KV_GET,
			      .how = GN_KV_DETAILS,
			      .key = "details",
			      .key_len = 7,
			      .room = room,
			      .room_bytes = sizeof(room)};

	EXPECT(gn_kv_do(client, &put, 1, gn_deadline_us(LONG_US)) == 0 && put.status == GN_KV_OK);
	EXPECT(gn_kv_do(client, &op, 1, gn_deadline_us(LONG_US)) == 0 && op.status == GN_KV_OK);
	EXPECT(op.flags == 77 && op.cas == put.cas && op.len == 3 && !memcmp(room, "abc", 3));
	EXPECT(op.ttl_s >= 998 && op.ttl_s <= 1000);
	op.how |= GN_KV_NO_VALUE;
	op.room_bytes = 0;
	EXPECT(gn_kv_do(client, &op, 1, gn_deadline_us(LONG_US)) == 0 && op.status == GN_KV_OK);
	EXPECT(op.flags == 77 && op.len == 3);
	return 0;
}

/* What may be dead is asked for; what must be is not there. */
static int ages(const struct kv_world *w, struct gn_kv_client *client)
{
	struct gn_kv_counters before, after;
	char room[8];
	uint32_t len;

	EXPECT(set(client, "short", "s", 1, 1) == 0);
	EXPECT(set(client, "longer", "l", 1, 100) == 0);
	EXPECT(gn_kv_counters(client, &before) == 0);
	EXPECT(get(client, "short", room, 8, &len) == 0);
	EXPECT(get(client, "longer", room, 8, &len) == 0);
	EXPECT(gn_kv_counters(client, &after) == 0);
	EXPECT(after.fell_back == before.fell_back + 1);
	if (!w->simulated)
		return 0;
	gn_sleep_us(5000000);
	EXPECT(get(client, "short", room, 8, &len) == -ENOENT);
	EXPECT(get(client, "longer", room, 8, &len) == 0);
	EXPECT(gn_kv_counters(client, &after) == 0);
	EXPECT(after.fell_back == before.fell_back + 1);
	return 0;
}

static int found(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	struct gn_kv_client *client;
	struct gn_kv_counters count;
	struct gn_kv_limits limits;
	struct gn_kv_stats stats;
	uint8_t room[64];
	uint32_t len;

	(void)number;
	EXPECT(gn_kv_connect(fabric, w->addr, NULL, &client) == 0);
	EXPECT(gn_kv_limits(client, &limits) == 0 && limits.bypass);
	EXPECT(get(client, "nothing", room, sizeof(room), &len) == -ENOENT);
	EXPECT(set(client, "one", "1", 1, 0) == 0);
	EXPECT(get(client, "one", room, sizeof(room), &len) == 0 && len == 1 && room[0] == '1');
	EXPECT(gn_kv_del(client, "one", 3, gn_deadline_us(LONG_US)) == 0);
	EXPECT(get(client, "one", room, sizeof(room), &len) == -ENOENT);
	EXPECT(sizes(client, limits.max_value) == 0);
	EXPECT(details(client) == 0);
	EXPECT(gn_kv_counters(client, &count) == 0);
	EXPECT(count.fell_back == 0 && count.torn == 0 && count.bypass_gets > 10);
	EXPECT(gn_kv_stats(client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)) == 0);
	EXPECT(stats.gets == 0 && stats.sets > 5);
	EXPECT(ages(w, client) == 0);
	EXPECT(gn_kv_clear(client, 0, gn_deadline_us(LONG_US)) == 0);
	EXPECT(get(client, "longer", room, sizeof(room), &len) == -ENOENT);
	EXPECT(gn_kv_close(client) == 0);
	return 0;
}

static void test_found(void **state)
{
	struct kv_world w = {.program = found, .clients = 1};

	(void)state;
	w.opts = (struct gn_kv_server_opts){.bypass = true, .threads = 2, .memory = 16u << 20};
	kv_run_everywhere(&w);
}

/* ---- order ---- */

/* What is begun together is done in its order, though some of it is calls. */
static int order(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	enum { N = 200 };
	struct gn_kv_op *ops = gn_alloc(N * sizeof(*ops), 0);
	uint32_t *values = gn_alloc(2 * N * sizeof(*values), 0), last[3] = {0};
	const char *const keys[3] = {"a", "b", "c"};
	struct gn_kv_client *client;

	(void)number;
	EXPECT(ops && values);
	EXPECT(gn_kv_connect(fabric, w->addr, NULL, &client) == 0);
	for (unsigned i = 0; i < 3; i++)
		EXPECT(set(client, keys[i], &last[i], sizeof(last[i]), 0) == 0);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < N; i++) {
			values[i] = round * N + i + 1;
			ops[i] = (struct gn_kv_op){
				.verb = gn_random() % 4 ? GN_KV_GET : GN_KV_SET,
				.key = keys[i % 3],
				.key_len = 1,
				.value = &values[i],
				.value_len = sizeof(values[i]),
				.room = &values[N + i],
				.room_bytes = sizeof(values[i]),
			};
		}
		EXPECT(gn_kv_do(client, ops, N, gn_deadline_us(LONG_US)) == 0);
		for (unsigned i = 0; i < N; i++) {
			EXPECT(ops[i].status == GN_KV_OK);
			if (ops[i].verb == GN_KV_SET)
				last[i % 3] = values[i];
			else
				EXPECT(values[N + i] == last[i % 3]);
		}
	}
	EXPECT(gn_kv_close(client) == 0);
	gn_free(ops);
	gn_free(values);
	return 0;
}

static void test_order(void **state)
{
	struct kv_world w = {.program = order, .clients = 1};

	(void)state;
	w.opts = (struct gn_kv_server_opts){.bypass = true, .memory = 1u << 20};
	kv_run_everywhere(&w);
}

/* ---- reads of a GET ---- */

static int fill_up(struct gn_kv_client *client, uint32_t from, uint32_t to)
{
	enum { BATCH = 64 };
	struct gn_kv_op ops[BATCH];
	char keys[BATCH][ROOM];

	for (uint32_t n = from; n < to; n += BATCH) {
		const unsigned batch = to - n < BATCH ? to - n : BATCH;

		for (unsigned i = 0; i < batch; i++) {
			ops[i] = (struct gn_kv_op){
				.verb = GN_KV_SET, .key = keys[i], .value = keys[i]};
			ops[i].key_len = ops[i].value_len = key_of(keys[i], n + i);
		}
		EXPECT(gn_kv_do(client, ops, batch, gn_deadline_us(LONG_US)) == 0);
		for (unsigned i = 0; i < batch; i++)
			EXPECT(ops[i].status == GN_KV_OK);
	}
	return 0;
}

/* Every value is its key. */
static int get_all(struct gn_kv_client *client, uint32_t from, uint32_t to, uint32_t *missing)
{
	enum { BATCH = 64 };
	struct gn_kv_op ops[BATCH];
	char keys[BATCH][ROOM], rooms[BATCH][ROOM];

	*missing = 0;
	for (uint32_t n = from; n < to; n += BATCH) {
		const unsigned batch = to - n < BATCH ? to - n : BATCH;

		for (unsigned i = 0; i < batch; i++) {
			ops[i] = (struct gn_kv_op){.verb = GN_KV_GET,
						   .key = keys[i],
						   .room = rooms[i],
						   .room_bytes = sizeof(rooms[i])};
			ops[i].key_len = key_of(keys[i], n + i);
		}
		EXPECT(gn_kv_do(client, ops, batch, gn_deadline_us(LONG_US)) == 0);
		for (unsigned i = 0; i < batch; i++) {
			EXPECT(ops[i].status == GN_KV_OK || ops[i].status == GN_KV_MISS);
			*missing += ops[i].status == GN_KV_MISS;
			if (ops[i].status == GN_KV_OK)
				EXPECT(ops[i].len == ops[i].key_len &&
				       !memcmp(rooms[i], keys[i], ops[i].len));
		}
	}
	return 0;
}

static int reads_of(struct kv_world *w, struct gn_fabric *fabric, unsigned flags, uint32_t keys,
		    unsigned *percent)
{
	const struct gn_kv_client_opts opts = {.flags = flags};
	struct gn_kv_client *client;
	struct gn_kv_counters count;
	uint32_t missing;

	EXPECT(gn_kv_connect(fabric, w->addr, &opts, &client) == 0);
	EXPECT(get_all(client, 0, keys, &missing) == 0 && !missing);
	EXPECT(gn_kv_counters(client, &count) == 0);
	EXPECT(count.bypass_gets == keys && count.fell_back == 0 && count.torn == 0);
	*percent = (unsigned)((count.entry_reads + count.value_reads) * 100 / keys);
	EXPECT(gn_kv_close(client) == 0);
	return 0;
}

/* Pilaf's figure: 3.2 reads for a GET with three ways, 75 per cent full. */
static int reads(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	const uint32_t entries = (uint32_t)(w->opts.memory / 256), keys = entries / 4 * 3;
	struct gn_kv_client *client;
	struct gn_kv_stats stats;
	unsigned paper, ours;

	(void)number;
	EXPECT(gn_kv_connect(fabric, w->addr, NULL, &client) == 0);
	EXPECT(fill_up(client, 0, keys) == 0);
	EXPECT(gn_kv_stats(client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)) == 0);
	EXPECT(stats.buckets == entries && stats.items == keys);
	EXPECT(gn_kv_close(client) == 0);
	EXPECT(reads_of(w, fabric, GN_KV_PAPER, keys, &paper) == 0);
	EXPECT(reads_of(w, fabric, 0, keys, &ours) == 0);
	print_message("# reads of a GET at 75 %% of %u entries: %u.%02u as in the paper, %u.%02u "
		      "by default\n",
		      entries, paper / 100, paper % 100, ours / 100, ours % 100);
	EXPECT(paper >= 288 && paper <= 352);
	EXPECT(ours < paper);
	return 0;
}

static void test_reads(void **state)
{
	struct kv_world w = {.program = reads, .clients = 1};

	(void)state;
	w.opts = (struct gn_kv_server_opts){.bypass = true, .memory = 4u << 20};
	kv_run_shm(&w);
	w.opts.memory = 1u << 20;
	kv_run_everywhere(&w);
}

/* ---- while others write ---- */

#define WRITERS	    2u
#define STEADY	    200u /* keys that are always there */
#define OWN_KEYS    40u	 /* of each writer, with numbers that only grow */
#define VALUE_WORDS 12u
#define GUESTS	    2000u /* that come and go, for each writer: half of them are there */

/* A value that tells by itself whether it is whole. */
static void make_value(uint64_t value[VALUE_WORDS], uint32_t key, uint64_t version)
{
	for (unsigned i = 0; i < VALUE_WORDS; i++)
		value[i] = (uint64_t)key << 32 | version;
}

static bool value_ok(const uint64_t *value, uint32_t len, uint32_t key)
{
	if (!len || len % 8)
		return false;
	for (unsigned i = 0; i < len / 8; i++)
		if (value[i] != value[0] || value[0] >> 32 != key)
			return false;
	return true;
}

static int write_one(struct gn_kv_client *client, uint32_t key, uint64_t version)
{
	uint64_t value[VALUE_WORDS];
	char name[ROOM];

	key_of(name, key);
	make_value(value, key, version);
	return set(client, name, value, 8 * (1 + (uint32_t)(gn_random() % VALUE_WORDS)), 0);
}

/* So many keys that it grows; then they come and go, and what lives long is moved. */
static int writer(struct kv_world *w, struct gn_kv_client *client, unsigned number)
{
	const uint32_t own = 1000 * (number + 1), guests = 100000 * (number + 1);
	const uint32_t rounds = w->simulated ? 3500 : 20000;
	bool there[GUESTS];
	char name[ROOM];

	for (uint32_t guest = 0; guest < GUESTS; guest++) {
		EXPECT(write_one(client, guests + guest, 1) == 0);
		there[guest] = true;
	}
	__atomic_fetch_add(&w->step, 1, __ATOMIC_ACQ_REL);
	world_await(w, 1 + WRITERS);
	for (uint32_t i = 0; i < rounds; i++) {
		const uint32_t guest = (uint32_t)(gn_random() % GUESTS);

		if (i % 4 == 0)
			EXPECT(write_one(client, own + i / 4 % OWN_KEYS, i + 1) == 0);
		key_of(name, guests + guest);
		if (there[guest])
			EXPECT(gn_kv_del(client, name, (uint32_t)strlen(name),
					 gn_deadline_us(LONG_US)) == 0);
		else
			EXPECT(write_one(client, guests + guest, 1) == 0);
		there[guest] = !there[guest];
	}
	return 0;
}

static int reader(struct kv_world *w, struct gn_kv_client *client)
{
	uint64_t seen[WRITERS][OWN_KEYS] = {{0}}, value[VALUE_WORDS];
	char name[ROOM];
	uint32_t len;
	int rc;

	while (world_before(w, 1 + 2 * WRITERS)) {
		const uint32_t steady = (uint32_t)(gn_random() % STEADY);
		const unsigned of = (unsigned)(gn_random() % WRITERS);
		const unsigned k = (unsigned)(gn_random() % OWN_KEYS);

		key_of(name, steady);
		EXPECT(get(client, name, value, sizeof(value), &len) == 0);
		EXPECT(value_ok(value, len, steady));
		key_of(name, 1000 * (of + 1) + k);
		rc = get(client, name, value, sizeof(value), &len);
		EXPECT(rc == 0 || (rc == -ENOENT && !seen[of][k]));
		if (rc)
			continue;
		EXPECT(value_ok(value, len, 1000 * (of + 1) + k));
		EXPECT((value[0] & UINT32_MAX) >= seen[of][k]);
		seen[of][k] = value[0] & UINT32_MAX;
	}
	return 0;
}

static int storm(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	const struct gn_kv_client_opts opts = {.flags = number % 2 ? GN_KV_PAPER : 0};
	struct gn_kv_client *client;
	struct gn_kv_counters count;
	struct gn_kv_stats stats;
	int rc = 0;

	EXPECT(gn_kv_connect(fabric, w->addr, &opts, &client) == 0);
	if (!number) {
		for (uint32_t key = 0; key < STEADY; key++)
			EXPECT(write_one(client, key, 1) == 0);
		world_go(w, 1);
	}
	world_await(w, 1);
	if (number < WRITERS) {
		rc = writer(w, client, number);
		__atomic_fetch_add(&w->step, 1, __ATOMIC_ACQ_REL);
	} else {
		rc = reader(w, client);
	}
	EXPECT(rc == 0);
	EXPECT(gn_kv_counters(client, &count) == 0);
	EXPECT(number < WRITERS || count.bypass_gets > count.fell_back);
	EXPECT(gn_kv_stats(client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)) == 0);
	EXPECT(stats.splits >= 1 && stats.kicks > 0 && stats.moved > 0);
	EXPECT(stats.evicted_bucket + stats.evicted_log == 0);
	EXPECT(gn_kv_close(client) == 0);
	return 0;
}

static void test_storm(void **state)
{
	struct kv_world w = {.program = storm, .clients = WRITERS + 2};

	(void)state;
	w.opts = (struct gn_kv_server_opts){.bypass = true, .memory = 1100u << 10};
	kv_run_everywhere(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),	cmocka_unit_test(test_growth),
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_found),
		cmocka_unit_test(test_order),	cmocka_unit_test(test_reads),
		cmocka_unit_test(test_storm),	cmocka_unit_test(test_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
