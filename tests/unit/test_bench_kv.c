/* SPDX-License-Identifier: MIT */
/*
 * The load of bench kv: its keys differ, its shares are those that were asked for, and a value that
 * is wrong in any byte, or another key's, does not pass.
 */
#include "unit.h"

#include <errno.h>

#include "kv_load.h"

#define KEYS 50000u

static char why[KV_WHY_MAX];

static const struct bench_kv_opts usual = {
	.keys = KEYS,
	.key_bytes = 16,
	.value_bytes = 32,
	.get_percent = 95,
	.load = {.threads = 1, .clients = 1, .batch = 8, .inflight = 8, .seconds = 1}};

/* A load, and a store that has all its keys. */
struct fixture {
	struct bench_kv_opts opts;
	struct load_sums sums;
	struct kv_draws draws;
	struct kv_ops ops;
	struct gn_kv_store *store;
};

static int do_some(void *arg, struct gn_kv_op *ops, unsigned n)
{
	gn_kv_store_do(arg, ops, n);
	return 0;
}

static void make(struct fixture *f, const struct bench_kv_opts *opts)
{
	const struct gn_kv_store_opts store = {.size = sizeof(store), .memory = 64u << 20};

	*f = (struct fixture){.opts = *opts};
	assert_int_equal(kv_draws_create(&f->draws, &f->opts, opts->keys, 42, &f->sums), 0);
	assert_int_equal(kv_ops_make(&f->ops, &f->opts, opts->load.batch), 0);
	assert_int_equal(gn_kv_store_create(&store, &f->store), 0);
	assert_int_equal(kv_fill(&f->opts, 0, opts->keys, do_some, f->store, why), 0);
}

static void unmake(struct fixture *f)
{
	gn_kv_store_destroy(f->store);
	kv_ops_free(&f->ops);
	kv_draws_destroy(&f->draws);
}

static uint64_t items(struct fixture *f)
{
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	gn_kv_store_stats(f->store, &stats);
	return stats.items;
}

/* The first of a batch of operations that is a GET. */
static uint32_t do_until_get(struct fixture *f)
{
	for (;;) {
		for (uint32_t i = 0; i < f->opts.load.batch; i++)
			kv_op_next(&f->draws, &f->ops, i, 0);
		gn_kv_store_do(f->store, f->ops.ops, f->opts.load.batch);
		for (uint32_t i = 0; i < f->opts.load.batch; i++)
			if (f->ops.ops[i].verb == GN_KV_GET)
				return i;
	}
}

static void keys_differ(void **state)
{
	static const uint32_t lengths[] = {4, 5, 8, 13, 16, 250};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct bench_kv_opts opts = usual;
		struct fixture f;

		opts.key_bytes = lengths[i];
		make(&f, &opts);
		assert_int_equal(items(&f), KEYS);
		unmake(&f);
	}
}

static void all_is_found_and_right(void **state)
{
	static const uint32_t lengths[] = {0, 1, 7, 8, 9, 15, 16, 32, 33, 1000};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct bench_kv_opts opts = usual;
		struct fixture f;

		opts.keys = 1000;
		opts.value_bytes = lengths[i];
		make(&f, &opts);
		for (unsigned n = 0; n < 2000; n++) {
			for (uint32_t k = 0; k < opts.load.batch; k++)
				kv_op_next(&f.draws, &f.ops, k, 0);
			gn_kv_store_do(f.store, f.ops.ops, opts.load.batch);
			for (uint32_t k = 0; k < opts.load.batch; k++)
				assert_int_equal(kv_op_check(&f.draws, &f.ops, k, why), 0);
		}
		assert_int_equal(f.sums.gets + f.sums.puts, 2000 * opts.load.batch);
		assert_int_equal(f.sums.hits, f.sums.gets);
		assert_in_range(f.sums.puts, 600, 1000); /* of 16000: 800 and 28 either way */
		assert_int_equal(items(&f), 1000);
		unmake(&f);
	}
}

static void one_wrong_bit(void **state)
{
	static const uint32_t lengths[] = {1, 7, 8, 9, 16, 32, 37};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct bench_kv_opts opts = usual;
		struct fixture f;
		uint32_t get;
		uint8_t *value;

		opts.keys = 100;
		opts.value_bytes = lengths[i];
		make(&f, &opts);
		get = do_until_get(&f);
		value = f.ops.values + get * f.ops.value_stride;
		assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), 0);
		for (uint32_t bit = 0; bit < 8 * lengths[i]; bit++) {
			value[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), -EBADMSG);
			value[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), 0);
		unmake(&f);
	}
}

static void anothers_and_other_lengths(void **state)
{
	struct fixture f;
	struct gn_kv_op *op;
	uint32_t get;

	(void)state;
	make(&f, &usual);
	get = do_until_get(&f);
	op = &f.ops.ops[get];
	f.ops.numbers[get] ^= 1;
	assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), -EBADMSG);
	f.ops.numbers[get] ^= 1;
	op->len--;
	assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), -EBADMSG);
	op->len++;
	op->status = GN_KV_TIMEOUT;
	assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), -EBADMSG);
	unmake(&f);
}

static void a_miss_is_no_hit(void **state)
{
	struct fixture f;
	uint32_t get;

	(void)state;
	make(&f, &usual);
	gn_kv_store_clear(f.store, 0);
	get = do_until_get(&f);
	assert_int_equal(f.ops.ops[get].status, GN_KV_MISS);
	assert_int_equal(kv_op_check(&f.draws, &f.ops, get, why), 0);
	assert_int_equal(f.sums.gets, 1);
	assert_int_equal(f.sums.hits, 0);
	unmake(&f);
}

/* What could not be begun is asked for again. */
static void undone(void **state)
{
	struct fixture f;
	uint32_t first;

	(void)state;
	make(&f, &usual);
	kv_op_next(&f.draws, &f.ops, 0, 0);
	first = f.ops.numbers[0];
	kv_op_undo(&f.draws);
	kv_op_next(&f.draws, &f.ops, 1, 0);
	assert_int_equal(f.ops.numbers[1], first);
	for (uint32_t i = 1; i < f.draws.n; i++) /* all around */
		kv_op_next(&f.draws, &f.ops, 2, 0);
	kv_op_next(&f.draws, &f.ops, 2, 0);
	assert_int_equal(f.ops.numbers[2], first);
	unmake(&f);
}

/* --memory is of all servers together, however many there are. */
static void memory_is_shared(void **state)
{
	struct bench_kv_opts o = usual;
	struct gn_kv_server_opts server;

	(void)state;
	o.memory = 64u << 20;
	o.load.threads = 4;
	kv_server_opts(&o, &server);
	assert_int_equal(server.threads, 4);
	assert_int_equal(server.memory, 64u << 20);
	o.split = true;
	kv_server_opts(&o, &server);
	assert_int_equal(server.threads, 1);
	assert_int_equal(server.memory, 16u << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_differ),	    cmocka_unit_test(all_is_found_and_right),
		cmocka_unit_test(one_wrong_bit),    cmocka_unit_test(anothers_and_other_lengths),
		cmocka_unit_test(a_miss_is_no_hit), cmocka_unit_test(undone),
		cmocka_unit_test(memory_is_shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
