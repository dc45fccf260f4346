/* SPDX-License-Identifier: MIT */
/*
 * The histogram against sorted values: exact where it says so, within 0.4 % elsewhere.
 */
#include "unit.h"

#include <string.h>

#define TOP (UINT64_C(1) << 42)

static struct gn_hist hist, other;

static int set_up(void **state)
{
	(void)state;
	gn_hist_init(&hist);
	gn_hist_init(&other);
	return 0;
}

static void assert_close(uint64_t reported, uint64_t exact)
{
	uint64_t off = reported > exact ? reported - exact : exact - reported;

	if (exact < 256)
		assert_int_equal(off, 0);
	else
		assert_true(off * 1000 <= exact * 4);
}

static void test_empty(void **state)
{
	(void)state;
	assert_int_equal(gn_hist_percentile(&hist, 50), 0);
	assert_true(gn_hist_mean(&hist) == 0);
	gn_hist_add(&hist, 7, 0);
	assert_int_equal(hist.count, 0);
	gn_hist_merge(&hist, &other);
	assert_int_equal(hist.count, 0);
	gn_hist_add(&hist, 7, 1);
	assert_int_equal(hist.min, 7);
}

static void test_exact_below_256(void **state)
{
	(void)state;
	for (uint64_t v = 0; v < 256; v++)
		gn_hist_add(&hist, v, 1);
	for (int p = 1; p <= 100; p++)
		assert_int_equal(gn_hist_percentile(&hist, p), (256 * p + 99) / 100 - 1);
	assert_int_equal(gn_hist_percentile(&hist, 0), 0);
	assert_int_equal(hist.min, 0);
	assert_int_equal(hist.max, 255);
	assert_true(gn_hist_mean(&hist) == 127.5);
}

/* Each octave's ends, alone with a smaller and a larger value so that min and max do not help. */
static void test_bucket_ends(void **state)
{
	(void)state;
	for (unsigned octave = 1; octave < 42; octave++) {
		for (int64_t d = -1; d <= 1; d++) {
			uint64_t v = (uint64_t)((INT64_C(1) << octave) + d);

			gn_hist_init(&hist);
			gn_hist_add(&hist, 0, 1);
			gn_hist_add(&hist, v, 1);
			gn_hist_add(&hist, TOP, 1);
			assert_close(gn_hist_percentile(&hist, 50), v);
		}
	}
}

static void test_clamps(void **state)
{
	(void)state;
	gn_hist_add(&hist, UINT64_MAX, 1);
	gn_hist_add(&hist, TOP, 1);
	gn_hist_add(&hist, TOP - 1, 1);
	assert_int_equal(hist.bucket[GN_HIST_BUCKETS - 1], 3);
	assert_int_equal(hist.min, TOP - 1);
	assert_int_equal(hist.max, TOP - 1);
	gn_hist_add(&hist, TOP, UINT64_MAX / 2);
	assert_int_equal(hist.sum, UINT64_MAX);
}

static void test_percent_of_1000(void **state)
{
	(void)state;
	for (uint64_t v = 1; v <= 200; v++)
		gn_hist_add(&hist, v, 5);
	assert_int_equal(gn_hist_percentile(&hist, 99.5), 199);
	assert_int_equal(gn_hist_percentile(&hist, 99.51), 200);
	gn_hist_init(&hist);
	gn_hist_add(&hist, 1, 999);
	gn_hist_add(&hist, 2, 1);
	assert_int_equal(gn_hist_percentile(&hist, 99.9), 1);
	assert_int_equal(gn_hist_percentile(&hist, 99.95), 2);
	assert_int_equal(gn_hist_percentile(&hist, 1000), 2);
	assert_int_equal(gn_hist_percentile(&hist, -1), 1);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#define VALUES 10000

static void test_random_values(void **state)
{
	static uint64_t values[VALUES];
	static const double percents[] = {0.01, 1, 10, 50, 90, 99, 99.9, 99.99, 100};
	uint64_t seed = unit_seed();

	(void)state;
	for (size_t i = 0; i < VALUES; i++) {
		uint64_t wide = (uint64_t)unit_next(&seed) << 32 | unit_next(&seed);

		values[i] = wide >> (22 + unit_next(&seed) % 42);
		gn_hist_add(i % 3 ? &hist : &other, values[i], 1);
	}
	gn_hist_merge(&hist, &other);
	qsort(values, VALUES, sizeof(values[0]), by_value);
	assert_int_equal(hist.count, VALUES);
	assert_int_equal(hist.min, values[0]);
	assert_int_equal(hist.max, values[VALUES - 1]);
	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		size_t rank = (size_t)(percents[i] / 100 * VALUES + 0.5);

		assert_close(gn_hist_percentile(&hist, percents[i]), values[rank - 1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_empty, set_up),
		cmocka_unit_test_setup(test_exact_below_256, set_up),
		cmocka_unit_test_setup(test_bucket_ends, set_up),
		cmocka_unit_test_setup(test_clamps, set_up),
		cmocka_unit_test_setup(test_percent_of_1000, set_up),
		cmocka_unit_test_setup(test_random_values, set_up),
	};

	return cmocka_run_group_tests_name("hist", tests, NULL, NULL);
}
