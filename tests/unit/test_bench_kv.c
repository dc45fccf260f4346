/* SPDX-License-Identifier: MIT */
/*
 * The load of bench kv: its keys differ, its shares are those that were asked for, and a value that
 * is wrong in any byte, or another key's, does not pass.
 */
#include "unit.h"

#include <errno.h>

#include "kv_hall.h"

#define KEYS 50000u

static const struct bench_kv_opts usual = {.threads = 1,
					   .clients = 1,
					   .keys = KEYS,
					   .key_bytes = 16,
					   .value_bytes = 32,
					   .get_percent = 95,
					   .batch = 8,
					   .inflight = 8,
					   .seconds = 1};

/* A load, and a store that has all its keys. */
struct fixture {
	struct bench_kv_opts opts;
	struct kv_tally tally;
	struct kv_load load;
	struct kv_errands errands;
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
	assert_int_equal(kv_load_create(&f->load, &f->opts, 42, &f->tally), 0);
	assert_int_equal(kv_errands_make(&f->errands, &f->opts, opts->batch), 0);
	assert_int_equal(gn_kv_store_create(&store, &f->store), 0);
	assert_int_equal(kv_fill(&f->load, do_some, f->store), 0);
}

static void unmake(struct fixture *f)
{
	gn_kv_store_destroy(f->store);
	kv_errands_free(&f->errands);
	kv_load_destroy(&f->load);
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
		for (uint32_t i = 0; i < f->opts.batch; i++)
			kv_errand_next(&f->load, &f->errands, i);
		gn_kv_store_do(f->store, f->errands.ops, f->opts.batch);
		for (uint32_t i = 0; i < f->opts.batch; i++)
			if (f->errands.ops[i].verb == GN_KV_GET)
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
			for (uint32_t k = 0; k < opts.batch; k++)
				kv_errand_next(&f.load, &f.errands, k);
			gn_kv_store_do(f.store, f.errands.ops, opts.batch);
			for (uint32_t k = 0; k < opts.batch; k++)
				assert_int_equal(kv_errand_check(&f.load, &f.errands, k), 0);
		}
		assert_int_equal(f.tally.gets + f.tally.puts, 2000 * opts.batch);
		assert_int_equal(f.tally.hits, f.tally.gets);
		assert_in_range(f.tally.puts, 600, 1000); /* of 16000: 800 and 28 either way */
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
		value = f.errands.values + get * f.errands.value_stride;
		assert_int_equal(kv_errand_check(&f.load, &f.errands, get), 0);
		for (uint32_t bit = 0; bit < 8 * lengths[i]; bit++) {
			value[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(kv_errand_check(&f.load, &f.errands, get), -EBADMSG);
			value[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		assert_int_equal(kv_errand_check(&f.load, &f.errands, get), 0);
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
	op = &f.errands.ops[get];
	f.errands.numbers[get] ^= 1;
	assert_int_equal(kv_errand_check(&f.load, &f.errands, get), -EBADMSG);
	f.errands.numbers[get] ^= 1;
	op->len--;
	assert_int_equal(kv_errand_check(&f.load, &f.errands, get), -EBADMSG);
	op->len++;
	op->status = GN_KV_TIMEOUT;
	assert_int_equal(kv_errand_check(&f.load, &f.errands, get), -EBADMSG);
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
	assert_int_equal(f.errands.ops[get].status, GN_KV_MISS);
	assert_int_equal(kv_errand_check(&f.load, &f.errands, get), 0);
	assert_int_equal(f.tally.gets, 1);
	assert_int_equal(f.tally.hits, 0);
	unmake(&f);
}

/* What could not be begun is asked for again. */
static void undone(void **state)
{
	struct fixture f;
	uint32_t first;

	(void)state;
	make(&f, &usual);
	kv_errand_next(&f.load, &f.errands, 0);
	first = f.errands.numbers[0];
	kv_errand_undo(&f.load);
	kv_errand_next(&f.load, &f.errands, 1);
	assert_int_equal(f.errands.numbers[1], first);
	for (uint32_t i = 1; i < f.load.n; i++) /* all around */
		kv_errand_next(&f.load, &f.errands, 2);
	kv_errand_next(&f.load, &f.errands, 2);
	assert_int_equal(f.errands.numbers[2], first);
	unmake(&f);
}

/* Each wrong value is, and there are many. */
static void not_told(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	(void)line;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_differ),	    cmocka_unit_test(all_is_found_and_right),
		cmocka_unit_test(one_wrong_bit),    cmocka_unit_test(anothers_and_other_lengths),
		cmocka_unit_test(a_miss_is_no_hit), cmocka_unit_test(undone),
	};

	gn_log_to(not_told, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
