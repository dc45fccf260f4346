/* SPDX-License-Identifier: MIT */
/*
 * Prometheus' text format: each line as the format wants it, escapes, short buffers. And the
 * histogram of calls of which only some are timed: each call is in a bucket once it has ended, and
 * buckets only grow.
 */
#include <string.h>

#include "unit.h"

#include "base/prometheus.h"
#include "rpc/times.h"

static void test_lines(void **state)
{
	const struct prom_label odd = {"name", "a\\b \"c\"\nd"};
	const double le[] = {1e-7, 0.25};
	const uint64_t bucket[] = {1, 0, 2};
	char text[1024];
	struct prom p;

	(void)state;
	prom_init(&p, "x_", text, sizeof(text));
	prom_single(&p, PROM_COUNTER, "a_total", "Back\\slash,\nnew line, \"quotes\".", UINT64_MAX);
	prom_family(&p, PROM_GAUGE, "b_seconds", "B.");
	prom_real(&p, &odd, 0.1);
	prom_family(&p, PROM_HISTOGRAM, "c", "C.");
	prom_histogram(&p, NULL, &(struct prom_histogram){2, le, bucket, 1.5});
	assert_string_equal(text, "# HELP x_a_total Back\\\\slash,\\nnew line, \"quotes\".\n"
				  "# TYPE x_a_total counter\n"
				  "x_a_total 18446744073709551615\n"
				  "# HELP x_b_seconds B.\n"
				  "# TYPE x_b_seconds gauge\n"
				  "x_b_seconds{name=\"a\\\\b \\\"c\\\"\\nd\"} 0.1\n"
				  "# HELP x_c C.\n"
				  "# TYPE x_c histogram\n"
				  "x_c_bucket{le=\"1e-07\"} 1\n"
				  "x_c_bucket{le=\"0.25\"} 1\n"
				  "x_c_bucket{le=\"+Inf\"} 3\n"
				  "x_c_sum 1.5\n"
				  "x_c_count 3\n");
	assert_int_equal(p.len, strlen(text));
}

/* As much as fits, a NUL, nothing behind it, and the whole length. */
static void test_short_buffer(void **state)
{
	char whole[256], text[256];
	struct prom p;
	size_t len;

	(void)state;
	prom_init(&p, "x_", whole, sizeof(whole));
	prom_single(&p, PROM_GAUGE, "a", "\\A\n", 12345);
	len = p.len;
	for (size_t room = 0; room <= len + 1; room++) {
		memset(text, '#', sizeof(text));
		prom_init(&p, "x_", room ? text : NULL, room);
		prom_single(&p, PROM_GAUGE, "a", "\\A\n", 12345);
		assert_int_equal(p.len, len);
		assert_true(!room || (strlen(text) == room - 1 && !memcmp(text, whole, room - 1)));
		assert_int_equal(text[room], '#');
	}
}

static uint64_t in_buckets(const struct rpc_histogram *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		n += h->bucket[i];
	return n;
}

static void test_each_call_once(void **state)
{
	const struct rpc_times none = {0};
	uint64_t seed = unit_seed();

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		struct rpc_histogram h = {0}, before;
		struct rpc_times t = {0};

		for (unsigned look = 0; look < 20; look++) {
			for (unsigned i = unit_next(&seed) % 50; i; i--) {
				t.calls += unit_next(&seed) % 20;
				if (unit_next(&seed) % 2)
					rpc_times_add(&t, unit_next(&seed) >> unit_next(&seed) % 32,
						      1 + unit_next(&seed) % 3);
			}
			t.open = unit_next(&seed) % 5;
			before = h;
			rpc_histogram_update(&h, &t, &none);
			assert_int_equal(in_buckets(&h), h.calls);
			for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
				assert_true(h.bucket[i] >= before.bucket[i]);
			assert_true(h.sum_ns >= before.sum_ns);
		}
		t.open = 0;
		rpc_histogram_update(&h, &t, &none);
		assert_true(h.calls == t.calls || !t.count);
	}
}

/* So many calls, each n-th of which was timed. */
static void make_calls(struct rpc_times *t, unsigned calls, unsigned n, uint64_t ns)
{
	for (unsigned i = 1; i <= calls; i++) {
		t->calls++;
		if (i % n == 0)
			rpc_times_add(t, ns, 1);
	}
}

static void test_in_proportion(void **state)
{
	struct rpc_histogram h = {0};
	struct rpc_times t = {0};

	(void)state;
	/* Of the short ones one in ten is timed, of the long ones all: none weighs more. */
	make_calls(&t, 900, 10, 100);
	make_calls(&t, 100, 1, 1000000);
	rpc_histogram_update(&h, &t, &t);
	assert_int_equal(h.bucket[rpc_times_bucket(100)], 900);
	assert_int_equal(h.bucket[rpc_times_bucket(1000000)], 100);
	assert_int_equal(h.sum_ns, 900 * 100 + 100 * 1000000);
	/* Since then all were long, as far as is known. */
	make_calls(&t, 75, 10, 1000000);
	rpc_histogram_update(&h, &t, &t);
	assert_int_equal(h.bucket[rpc_times_bucket(100)], 900);
	assert_int_equal(h.bucket[rpc_times_bucket(1000000)], 175);
	/* None was timed since: as all before. */
	t.calls += 1070;
	rpc_histogram_update(&h, &t, &t);
	assert_int_equal(in_buckets(&h), 2145);
	assert_in_range(h.bucket[rpc_times_bucket(100)], 900 + 890, 900 + 905);
}

/* Calls that are deferred are answered out of order: each has its own time, and no other's. */
static void test_deferred(void **state)
{
	struct rpc_histogram h = {0};
	struct rpc_times t = {.calls = 10, .open = 10};

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		t.open--;
		rpc_times_add(&t, i < 9 ? 1000 : 5000000, 1);
	}
	rpc_histogram_update(&h, &t, &t);
	assert_int_equal(h.bucket[rpc_times_bucket(1000)], 9);
	assert_int_equal(h.bucket[rpc_times_bucket(5000000)], 1);
}

/* A method without a time of its own: not counted, until something is known of others. */
static void test_never_timed(void **state)
{
	const struct rpc_times none = {0};
	struct rpc_histogram h = {0};
	struct rpc_times t = {.calls = 5, .open = 1}, others = {0};

	(void)state;
	rpc_histogram_update(&h, &t, &none);
	assert_int_equal(h.calls, 0);
	rpc_times_add(&others, 3000, 1);
	rpc_histogram_update(&h, &t, &others);
	assert_int_equal(h.calls, 4);
	assert_int_equal(h.bucket[rpc_times_bucket(3000)], 4);
	t.open = 0;
	rpc_histogram_update(&h, &t, &others);
	assert_int_equal(h.calls, 5);
}

/* What is below the first bound and above the last is counted too, and bounds are a quarter apart. */
static void test_bounds(void **state)
{
	struct rpc_histogram h = {.method = 7};
	struct rpc_times t = {0};
	char text[16384];
	struct prom p;

	(void)state;
	make_calls(&t, 1, 1, 1);
	make_calls(&t, 1, 1, 1000);
	make_calls(&t, 1, 1, 100000000000);
	rpc_histogram_update(&h, &t, &t);
	prom_init(&p, "", text, sizeof(text));
	prom_family(&p, PROM_HISTOGRAM, "h", "H.");
	rpc_histogram_put(&p, &h);
	assert_true(p.len < sizeof(text));
	assert_non_null(strstr(text, "\nh_bucket{method=\"7\",le=\"9.6e-08\"} 1\n"));
	assert_non_null(strstr(text, "\nh_bucket{method=\"7\",le=\"8.96e-07\"} 1\n"));
	assert_non_null(strstr(text, "\nh_bucket{method=\"7\",le=\"1.024e-06\"} 2\n"));
	assert_non_null(strstr(text, "\nh_bucket{method=\"7\",le=\"10.73741824\"} 2\n"));
	assert_non_null(strstr(text, "\nh_bucket{method=\"7\",le=\"+Inf\"} 3\n"));
	assert_non_null(strstr(text, "\nh_count{method=\"7\"} 3\n"));
	for (unsigned i = RPC_EXPORT_FIRST + 1; i <= RPC_EXPORT_LAST; i++)
		assert_true(4 * rpc_times_end(i) <= 5 * rpc_times_end(i - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),	       cmocka_unit_test(test_short_buffer),
		cmocka_unit_test(test_each_call_once), cmocka_unit_test(test_in_proportion),
		cmocka_unit_test(test_deferred),       cmocka_unit_test(test_never_timed),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
