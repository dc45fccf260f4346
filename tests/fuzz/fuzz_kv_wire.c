/* SPDX-License-Identifier: MIT */
/*
 * What takes apart bytes that a peer of a store wrote: operations as a server reads them, results
 * as a client does, and items that a client finds in the server's memory. They are fed with ours,
 * changed at random, cut off, and with lies about lengths: they must not look or write outside of
 * what they are given, and of an item with a checksum no changed one passes. Then a server is
 * called with such requests, beside a client that means well.
 */
#include <errno.h>
#include <string.h>

#include "fuzz.h"
#include "kv/bypass.c" /* item_check() is static */

#define VALUE_MAX 300u
#define GUARD	  16u
#define EVIL_MAX  12u /* calls in a message */

/* ---- bytes ---- */

/* As long as it is, to the byte: whoever looks further is caught. */
static uint8_t *exactly(const uint8_t *from, uint32_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	if (len)
		memcpy(copy, from, len);
	return copy;
}

static void change(uint8_t *bytes, uint32_t len)
{
	const uint32_t word = fuzz_strange();
	const uint32_t at = fuzz_pick(2) && len > 32 ? fuzz_pick(32) : fuzz_pick(len);

	switch (fuzz_pick(4)) {
	case 0:
		bytes[at] ^= (uint8_t)(1u << fuzz_pick(8));
		break;
	case 1:
		memcpy(bytes + at, &word, len - at < 4 ? len - at : 4);
		break;
	case 2:
		bytes[at] = (uint8_t)word;
		break;
	default:
		memmove(bytes + at, bytes + fuzz_pick(at + 1), (len - at) / 2);
		break;
	}
}

/* ---- operations ---- */

struct given {
	uint8_t key[GN_KV_KEY_MAX], value[VALUE_MAX];
};

static struct gn_kv_op draw_op(struct given *g)
{
	struct gn_kv_op op = {.verb = (enum gn_kv_verb)fuzz_pick(GN_KV_VERBS),
			      .how = fuzz_pick(2) ? 0 : fuzz_any() & 0x3ff,
			      .key = g->key,
			      .key_len = 1 + fuzz_pick(fuzz_pick(4) ? 30 : GN_KV_KEY_MAX),
			      .value = g->value,
			      .value_len = fuzz_pick(VALUE_MAX),
			      .room_bytes = fuzz_pick(VALUE_MAX),
			      .flags = fuzz_pick(2) ? 0 : fuzz_any(),
			      .ttl_s = fuzz_pick(2) ? 0 : fuzz_any(),
			      .create_s = fuzz_any(),
			      .recache_s = fuzz_any(),
			      .cas = fuzz_any(),
			      .new_cas = fuzz_any(),
			      .number = fuzz_any(),
			      .initial = fuzz_any()};

	for (uint32_t i = 0; i < op.key_len; i++)
		g->key[i] = (uint8_t)fuzz_any();
	for (uint32_t i = 0; i < op.value_len; i++)
		g->value[i] = (uint8_t)fuzz_any();
	return op;
}

static void check_request(const struct gn_kv_op *op, const struct gn_kv_op *got)
{
	const bool stores = op->verb >= GN_KV_SET && op->verb <= GN_KV_PREPEND;
	const bool has_ttl = stores || op->verb == GN_KV_TOUCH || op->how & GN_KV_AND_TOUCH;

	assert_int_equal(got->verb, op->verb);
	assert_int_equal(got->how, op->how);
	assert_int_equal(got->key_len, op->key_len);
	assert_memory_equal(got->key, op->key, op->key_len);
	assert_int_equal(got->ttl_s, has_ttl ? op->ttl_s : 0);
	if (stores) {
		assert_int_equal(got->value_len, op->value_len);
		assert_memory_equal(got->value, op->value, op->value_len);
	}
	if (op->how & GN_KV_IF_CAS)
		assert_true(got->cas == op->cas);
	if (op->how & GN_KV_SET_CAS)
		assert_true(got->new_cas == op->new_cas);
	if (op->verb == GN_KV_INCR || op->verb == GN_KV_DECR)
		assert_true(got->number == op->number);
}

/* Every byte that it says there is, is there. */
static uint32_t touch_request(const struct gn_kv_op *op)
{
	const bool stores = op->verb >= GN_KV_SET && op->verb <= GN_KV_PREPEND;
	const uint8_t *key = op->key, *value = op->value;
	uint32_t sum = 0;

	assert_true(op->key_len && op->key_len <= GN_KV_KEY_MAX && op->verb < GN_KV_VERBS);
	for (uint32_t i = 0; i < op->key_len; i++)
		sum += key[i];
	for (uint32_t i = 0; stores && i < op->value_len; i++)
		sum += value[i];
	return sum;
}

static void test_requests(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	unsigned taken = 0, refused = 0;
	uint32_t sum = 0;

	(void)state;
	while (gn_now_ns() < end_ns) {
		struct given given;
		struct gn_kv_op op = draw_op(&given), got = {0};
		const uint32_t len = kv_request_bytes(&op);
		const bool stores = op.verb >= GN_KV_SET && op.verb <= GN_KV_PREPEND;
		uint8_t key[GN_KV_KEY_MAX], *bytes = malloc(len + GUARD), *part;
		uint32_t cut;
		bool is_one;

		assert_non_null(bytes);
		memset(bytes, 0x5a, len + GUARD);
		kv_request_write(bytes, &op);
		for (uint32_t i = len; i < len + GUARD; i++)
			assert_int_equal(bytes[i], 0x5a);
		assert_true(kv_request_read(bytes, len, &got, key));
		check_request(&op, &got);
		/* Less than all of it is nothing, or a shorter value; more is not an operation. */
		cut = fuzz_pick(len);
		part = exactly(bytes, cut);
		is_one = kv_request_read(part, cut, &got, key);
		assert_int_equal(is_one, stores && len - cut <= op.value_len);
		assert_true(!is_one || got.value_len == op.value_len - (len - cut));
		free(part);
		assert_int_equal(kv_request_read(bytes, len + 1, &got, key), stores);
		for (unsigned i = fuzz_pick(4); i < 4; i++)
			change(bytes, len);
		part = exactly(bytes, len);
		is_one = kv_request_read(part, len, &got, key);
		if (is_one)
			sum += touch_request(&got);
		taken += is_one;
		refused += !is_one;
		free(part);
		free(bytes);
	}
	print_message("# taken %u, refused %u (%u)\n", taken, refused, sum & 1);
	assert_true(taken && refused);
}

/* ---- results ---- */

static struct kv_item *draw_item(uint32_t *len)
{
	const uint32_t key = 1 + fuzz_pick(GN_KV_KEY_MAX), value = fuzz_pick(VALUE_MAX);
	const uint32_t lengths = kv_lengths(key, value) | (fuzz_pick(2) ? KV_EXT : 0);
	struct kv_item *item;

	*len = kv_item_bytes(lengths);
	item = calloc(1, *len);
	assert_non_null(item);
	item->lengths = lengths;
	item->cas = fuzz_any();
	for (uint32_t i = 0; i < kv_item_end(lengths) - KV_ITEM_HEAD; i++)
		item->bytes[i] = (uint8_t)fuzz_any();
	if (kv_ext(item))
		kv_ext(item)->expires = 0;
	return item;
}

static void test_responses(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	unsigned taken = 0, refused = 0;

	(void)state;
	while (gn_now_ns() < end_ns) {
		uint32_t item_len, len, cut;
		struct kv_response_parts result;
		bool is_one;
		struct kv_item *item = draw_item(&item_len);
		struct gn_kv_op op = {.verb = (enum gn_kv_verb)fuzz_pick(GN_KV_VERBS),
				      .how = fuzz_any() & 0x3ff,
				      .key_len = kv_key_len(item),
				      .status = fuzz_pick(2) ? 0 : fuzz_pick(GN_KV_STATUSES),
				      .found = fuzz_pick(32),
				      .flags = fuzz_pick(2) ? 0 : fuzz_any(),
				      .len = kv_value_len(item),
				      .room_bytes = fuzz_pick(VALUE_MAX)};
		const bool value = op.verb == GN_KV_GET && op.status == GN_KV_OK;
		struct gn_kv_op got = op;
		uint8_t *bytes, *part, *room = malloc(op.room_bytes + GUARD);

		assert_non_null(room);
		memset(room, 0x5a, op.room_bytes + GUARD);
		kv_response_make(&result, &op, value ? item : NULL);
		len = result.bytes;
		assert_true(len <= KV_RESPONSE_MAX + op.room_bytes);
		bytes = malloc(len + GUARD);
		assert_non_null(bytes);
		memset(bytes, 0x5a, len + GUARD);
		kv_response_write(bytes, &result, &op);
		for (uint32_t i = len; i < len + GUARD; i++)
			assert_int_equal(bytes[i], 0x5a);
		got.room = room;
		assert_true(kv_response_read(bytes, len, &got));
		assert_int_equal(got.len, op.len);
		assert_int_equal(got.status,
				 value && op.len > op.room_bytes ? GN_KV_TOO_BIG : op.status);
		if (value && op.len <= op.room_bytes)
			assert_memory_equal(room, kv_value(item), op.len);
		cut = fuzz_pick(len);
		part = exactly(bytes, cut);
		assert_false(kv_response_read(part, cut, &got));
		free(part);
		assert_false(kv_response_read(bytes, len + 1, &got));
		for (unsigned i = fuzz_pick(4); i < 4; i++)
			change(bytes, len);
		part = exactly(bytes, len);
		is_one = kv_response_read(part, len, &got);
		taken += is_one;
		refused += !is_one;
		for (uint32_t i = op.room_bytes; i < op.room_bytes + GUARD; i++)
			assert_int_equal(room[i], 0x5a);
		free(part);
		free(bytes);
		free(room);
		free(item);
	}
	print_message("# taken %u, refused %u\n", taken, refused);
	assert_true(taken && refused);
}

/* ---- items ---- */

/* As it lies in memory that is read: all that is read has the length that the entry says. */
static enum item_verdict check_bytes(struct kv_bypass *b, const struct kv_entry *e,
				     struct gn_kv_op *op, const uint8_t *bytes, uint32_t len)
{
	uint8_t *copy = exactly(bytes, len);
	struct kv_lookup look = {.bypass = b, .op = op, .way = 1};
	enum item_verdict verdict;

	look.entry[1] = *e;
	verdict = item_check(&look, (const struct kv_item *)(const void *)copy);
	free(copy);
	return verdict;
}

static struct kv_entry entry_of(const struct kv_item *item, uint32_t len)
{
	struct kv_entry e = {.where = 1 | (uint64_t)(len / KV_UNIT) << 32};

	e.sum = kv_item_sum(item);
	e.crc = kv_entry_crc(&e);
	return e;
}

static void test_items(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	struct kv_bypass *b = calloc(1, sizeof(*b));
	unsigned torn = 0, found = 0;

	(void)state;
	assert_non_null(b);
	while (gn_now_ns() < end_ns) {
		uint32_t len;
		struct kv_item *item = draw_item(&len);
		const struct kv_entry e = entry_of(item, len);
		struct gn_kv_op op = {
			.verb = GN_KV_GET, .key = kv_key(item), .key_len = kv_key_len(item)};
		uint8_t *bytes = exactly((uint8_t *)item, len);
		const uint32_t summed = kv_item_end(item->lengths);
		enum item_verdict verdict;

		assert_int_equal(check_bytes(b, &e, &op, bytes, len), FOUND);
		for (unsigned i = fuzz_pick(4); i < 4; i++)
			change(bytes, len);
		verdict = check_bytes(b, &e, &op, bytes, len);
		torn += verdict == TORN;
		found += verdict == FOUND;
		if (verdict != TORN &&
		    memcmp(bytes + KV_ITEM_UNSUMMED, (uint8_t *)item + KV_ITEM_UNSUMMED,
			   summed - KV_ITEM_UNSUMMED))
			fail_msg("a changed item passed its checksum");
		free(bytes);
		free(item);
	}
	free(b);
	print_message("# torn %u, found %u\n", torn, found);
	assert_true(torn && found);
}

/* An entry that lies about its item leads nowhere outside of the server's memory. */
static void test_entries(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	unsigned passed = 0;

	(void)state;
	while (gn_now_ns() < end_ns) {
		struct kv_entry e = {.id = fuzz_any(), .where = fuzz_any(), .sum = fuzz_any()};
		struct kv_entry was;

		e.crc = kv_entry_crc(&e);
		was = e;
		for (unsigned i = fuzz_pick(4); i < 4; i++)
			change((uint8_t *)&e, sizeof(e));
		assert_true(kv_entry_size(&e) <= (1u << KV_ENTRY_SIZE_BITS) * KV_UNIT);
		if (kv_entry_crc(&e) == e.crc && memcmp(&e, &was, sizeof(e)))
			fail_msg("a changed entry passed its checksum");
		passed += kv_entry_crc(&e) == e.crc;
	}
	print_message("# unchanged %u\n", passed);
}

/* ---- a server that is called so ---- */

struct target {
	struct gn_fabric *fabric;
	struct gn_kv_server *server;
	struct gn_kv_client *honest;
	struct gn_rpc_client *evil;
	char addr[64];
	unsigned under_way, ok, denied; /* calls of evil */
};

static void target_start(struct target *t, bool bypass)
{
	const struct gn_kv_server_opts opts = {
		.size = sizeof(opts), .threads = 1, .memory = 8u << 20, .bypass = bypass};
	struct gn_rpc_client_opts rpc = {
		.size = sizeof(rpc), .timeout_us = UNIT_PATIENCE_US, .batch.entries = EVIL_MAX};
	struct gn_kv_client_opts kv = {.size = sizeof(kv), .rpc = rpc};

	snprintf(t->addr, sizeof(t->addr), "shm:fuzz-kv-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &t->fabric), 0);
	assert_int_equal(gn_kv_server_create(t->fabric, t->addr, &opts, &t->server), 0);
	assert_int_equal(gn_kv_server_start(t->server), 0);
	assert_int_equal(gn_kv_client_open(t->fabric, t->addr, &kv, &t->honest), 0);
	assert_int_equal(gn_rpc_client_open(t->fabric, t->addr, &rpc, &t->evil), 0);
}

static void target_stop(struct target *t)
{
	assert_int_equal(gn_rpc_client_close(t->evil), 0);
	assert_int_equal(gn_kv_client_close(t->honest), 0);
	gn_kv_server_destroy(t->server);
	assert_int_equal(gn_fabric_close(t->fabric), 0);
}

/* An operation, changed or not, or anything. */
static uint32_t draw_request(uint8_t *to)
{
	uint32_t len = fuzz_pick(200);
	struct given given;
	struct gn_kv_op op;

	if (!fuzz_pick(8)) {
		for (uint32_t i = 0; i < len; i++)
			to[i] = (uint8_t)fuzz_any();
		return len;
	}
	op = draw_op(&given);
	given.key[0] = 'E'; /* no key of the other's */
	op.room_bytes = fuzz_pick(8) ? op.room_bytes : fuzz_strange();
	len = kv_request_bytes(&op);
	kv_request_write(to, &op);
	for (unsigned i = fuzz_pick(4); i < 3; i++)
		change(to, len);
	return fuzz_pick(8) ? len : fuzz_pick(len);
}

static void evil_ended(struct gn_rpc_op *op)
{
	struct target *t = op->arg;

	assert_true(op->status != GN_RPC_TIMEOUT && op->status != GN_RPC_PEER_GONE);
	t->ok += op->status == GN_RPC_OK;
	t->denied += op->status == GN_RPC_DENIED;
	t->under_way--;
}

/* Several of them in a message: the server handles them together. */
static void call_evil(struct target *t)
{
	static uint8_t request[4000], result[EVIL_MAX][1u << 16];
	static struct gn_rpc_op ops[EVIL_MAX];

	for (unsigned n = fuzz_pick(EVIL_MAX) + 1; n--; t->under_way++) {
		const unsigned method = fuzz_pick(8) ? KV_DO : fuzz_pick(8);

		ops[n] = (struct gn_rpc_op){
			/* To clear it is not ill, but the other would not find its keys. */
			.method = method == KV_CLEAR ? KV_DO : method,
			.request = request,
			.request_len = draw_request(request),
			.result = result[n],
			.result_room = fuzz_pick(4) ? (uint32_t)sizeof(result[n]) : fuzz_pick(100),
			.deadline_ns = gn_deadline_us(UNIT_PATIENCE_US),
			.done = evil_ended,
			.arg = t,
		};
		assert_int_equal(gn_rpc_submit(t->evil, &ops[n]), 0);
	}
	while (t->under_way)
		assert_true(gn_rpc_wait(t->evil, GN_FOREVER) > 0);
}

static void call_honest(struct target *t, uint32_t n)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	uint32_t key[2] = {'H', n % 64}, value[16], room[16], len = 0;

	for (unsigned i = 0; i < 16; i++)
		value[i] = n * 16 + i;
	assert_int_equal(
		gn_kv_set(t->honest, key, sizeof(key), value, sizeof(value), 0, deadline_ns), 0);
	assert_int_equal(
		gn_kv_get(t->honest, key, sizeof(key), room, sizeof(room), &len, deadline_ns), 0);
	assert_int_equal(len, sizeof(value));
	assert_memory_equal(value, room, sizeof(value));
}

static void run_server(bool bypass)
{
	const uint64_t end_ns = fuzz_begin();
	unsigned n = 0;
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct target t = {.ok = 0};

	gn_log_to(fuzz_be_silent, NULL);
	target_start(&t, bypass);
	for (; gn_now_ns() < end_ns; n++) {
		call_evil(&t);
		if (n % 8 == 0)
			call_honest(&t, n);
	}
	assert_int_equal(
		gn_kv_client_stats(t.honest, GN_KV_ALL, &stats, gn_deadline_us(UNIT_PATIENCE_US)),
		0);
	assert_true(stats.used <= stats.memory);
	target_stop(&t);
	gn_log_to(NULL, NULL);
	print_message("# %u messages: ok %u, denied %u\n", n, t.ok, t.denied);
	assert_true(t.ok && t.denied);
}

static void test_server(void **state)
{
	(void)state;
	run_server(false);
}

static void test_bypassed_server(void **state)
{
	(void)state;
	run_server(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests), cmocka_unit_test(test_responses),
		cmocka_unit_test(test_items),	 cmocka_unit_test(test_entries),
		cmocka_unit_test(test_server),	 cmocka_unit_test(test_bypassed_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
