/* SPDX-License-Identifier: MIT */
/*
 * The benchmarks' loads: keys are asked for as often as they should be, are all different, and have
 * values that no other key has.
 */
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"

#define DRAWS 2000000u
#define SEED  4711

static int by_count(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* How often each of n was drawn, the most frequent first. */
static uint32_t *draw_many(uint32_t n, double s)
{
	uint32_t *count = calloc(n, sizeof(*count));
	struct choice c;

	assert_non_null(count);
	choice_init(&c, n, n, s, SEED);
	for (uint32_t i = 0; i < DRAWS; i++) {
		const uint32_t number = choice_draw(&c);

		assert_true(number < n);
		count[number]++;
	}
	qsort(count, n, sizeof(*count), by_count);
	return count;
}

static void test_uniform(void **state)
{
	uint32_t *count = draw_many(1000, 0);

	(void)state;
	/* 2000 of each, and a standard deviation of 45. */
	assert_in_range(count[0], 2000, 2000 + 6 * 45);
	assert_in_range(count[999], 2000 - 6 * 45, 2000);
	free(count);
}

static void check_zipf(uint32_t n, double s)
{
	static const uint32_t ranks[] = {1, 2, 3, 10, 50};
	uint32_t *count = draw_many(n, s);
	double sum = 0;

	for (uint32_t i = 1; i <= n; i++)
		sum += pow(i, -s);
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		const double want = DRAWS * pow(ranks[i], -s) / sum;

		/* Ranks that are close to each other may have changed places. */
		assert_true(fabs(count[ranks[i] - 1] - want) < 0.02 * want + 6 * sqrt(want));
	}
	free(count);
}

static void test_zipf(void **state)
{
	(void)state;
	check_zipf(1000, 0.5);
	check_zipf(1000000, 0.99);
	check_zipf(1000, 1);
	check_zipf(1000, 1.3);
}

/* What is asked for most is not all in one place. */
static void test_zipf_is_spread(void **state)
{
	const uint32_t n = 1000000;
	uint32_t low = 0;
	struct choice c;

	(void)state;
	choice_init(&c, n, n, 0.99, SEED);
	for (uint32_t i = 0; i < 100000; i++)
		low += choice_draw(&c) < n / 2;
	assert_in_range(low, 20000, 80000);
}

static void test_few(void **state)
{
	(void)state;
	for (uint32_t n = 1; n < 5; n++)
		for (double s = 0; s < 2.1; s += 0.5)
			free(draw_many(n, s));
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static void check_names(uint32_t key_bytes)
{
	enum { N = 200000 };
	char(*names)[16] = calloc(N, sizeof(*names));
	char name[251];

	assert_non_null(names);
	for (uint32_t i = 0; i < N; i++) {
		memset(name, '\n', sizeof(name));
		keys_name(name, key_bytes, i);
		assert_int_equal(name[key_bytes], '\n');
		for (uint32_t at = 0; at < key_bytes; at++)
			assert_in_range(name[at], '!', '~');
		memcpy(names[i], name, key_bytes < 16 ? key_bytes : 16);
	}
	qsort(names, N, sizeof(*names), by_bytes);
	for (uint32_t i = 1; i < N; i++)
		assert_memory_not_equal(names[i - 1], names[i], 16);
	free(names);
}

static void test_names(void **state)
{
	(void)state;
	check_names(8);
	check_names(16);
	check_names(250);
}

static void check_values(uint32_t bytes)
{
	uint8_t *value = malloc(bytes + 1);
	struct choice c;

	assert_non_null(value);
	choice_init(&c, 1000, 1000, 0, SEED);
	for (uint32_t i = 0; i < 1000; i++) {
		value[bytes] = 0xa5;
		keys_value_fill(value, bytes, i, (uint32_t)choice_word(&c));
		assert_int_equal(value[bytes], 0xa5);
		assert_true(keys_value_is_right(value, bytes, i));
		assert_true(bytes < 4 || !keys_value_is_right(value, bytes, i + 1));
		value[i % bytes] ^= (uint8_t)(1 << i % 8);
		assert_false(keys_value_is_right(value, bytes, i));
	}
	free(value);
}

/* Thousands of keys stand for millions: the hottest has the share that it has among those. */
static void test_population(void **state)
{
	enum { STORED = 16384, POPULATION = 128000000 };
	uint32_t *count = calloc(STORED, sizeof(*count));
	struct choice c;

	(void)state;
	assert_non_null(count);
	choice_init(&c, STORED, POPULATION, 0.99, SEED);
	for (uint32_t i = 0; i < DRAWS; i++)
		count[choice_draw(&c)]++;
	qsort(count, STORED, sizeof(*count), by_count);
	/* 1 / H(128 M, 0.99) is 0.0474; the rest is spread over all. */
	assert_in_range(count[0], (uint32_t)(0.0465 * DRAWS), (uint32_t)(0.0483 * DRAWS));
	assert_true(count[STORED - 1] > 0);
	free(count);
}

static void test_values(void **state)
{
	(void)state;
	check_values(1);
	check_values(7);
	check_values(15);
	check_values(16);
	check_values(32);
	check_values(1001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uniform),	       cmocka_unit_test(test_zipf),
		cmocka_unit_test(test_zipf_is_spread), cmocka_unit_test(test_few),
		cmocka_unit_test(test_names),	       cmocka_unit_test(test_values),
		cmocka_unit_test(test_population),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
