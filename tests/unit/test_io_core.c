/* SPDX-License-Identifier: MIT */
/* The freestanding core: merge plans, windows, polling. */
#include "io/core/plan.h"
#include "io/core/poll.h"
#include "io/core/window.h"
#include "unit.h"

/* ---- plans ---- */

#define PIECES 200u

static const struct io_plan_limits wide = {.wrs = 64, .sges = 32, .bytes = 1 << 20, .merge = true};

static void check_planned(const struct io_planned *wr, const struct io_plan_limits *limits)
{
	uint64_t at = wr->start;
	uint32_t n_sge = 0, pieces = 0;

	for (const struct io_piece *piece = wr->first; piece; piece = piece->next) {
		assert_int_equal(piece->start, at);
		assert_int_equal(piece->key, wr->key);
		at += piece->len_bytes;
		n_sge += piece->n_sge;
		pieces++;
		assert_true(piece->next || piece == wr->last);
	}
	assert_int_equal(at - wr->start, wr->len_bytes);
	assert_int_equal(n_sge, wr->n_sge);
	assert_true(pieces == 1 || (wr->len_bytes <= limits->bytes && n_sge <= limits->sges));
	assert_true(pieces == 1 || limits->merge);
}

/* Every piece is in one work request, and those are ranges without a gap. */
static void test_plan_random(void **state)
{
	uint64_t random = unit_seed();
	static struct io_piece pieces[PIECES];
	static struct io_plan plan;

	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		const struct io_plan_limits limits = {.wrs = 1 + unit_next(&random) % 64,
						      .sges = 1 + unit_next(&random) % 32,
						      .bytes = 512 << unit_next(&random) % 8,
						      .merge = unit_next(&random) % 4};
		unsigned taken = 0, found = 0;

		io_plan_init(&plan);
		for (; taken < PIECES; taken++) {
			struct io_piece *piece = &pieces[taken];

			*piece = (struct io_piece){.start = 512ull * (unit_next(&random) % 128),
						   .key = 5 + unit_next(&random) % 2,
						   .len_bytes = 512,
						   .n_sge = 1 + unit_next(&random) % 2};
			if (!io_plan_add(&plan, piece, &limits))
				break;
		}
		assert_true(plan.n <= limits.wrs);
		for (unsigned i = 0; i < plan.n; i++) {
			for (struct io_piece *p = plan.wr[i].first; p; p = p->next)
				found++;
			if (plan.wr[i].first)
				check_planned(&plan.wr[i], &limits);
		}
		assert_int_equal(found, taken);
	}
}

static unsigned plan_of(struct io_plan *plan, const unsigned *blocks, unsigned n)
{
	static struct io_piece pieces[64];
	unsigned wrs = 0;

	io_plan_init(plan);
	for (unsigned i = 0; i < n; i++) {
		pieces[i] = (struct io_piece){
			.start = 4096ull * blocks[i], .key = 1, .len_bytes = 4096, .n_sge = 1};
		assert_true(io_plan_add(plan, &pieces[i], &wide));
	}
	for (unsigned i = 0; i < plan->n; i++)
		wrs += plan->wr[i].first != NULL;
	return wrs;
}

/* Adjacent pieces meet in any order; a gap or an overlap keeps them apart. */
static void test_plan_merges(void **state)
{
	struct io_plan plan;

	(void)state;
	assert_int_equal(plan_of(&plan, (unsigned[]){1}, 1), 1);
	assert_int_equal(plan_of(&plan, (unsigned[]){1, 2}, 2), 1);
	assert_int_equal(plan_of(&plan, (unsigned[]){2, 1}, 2), 1);
	assert_int_equal(plan_of(&plan, (unsigned[]){1, 3}, 2), 2);
	assert_int_equal(plan_of(&plan, (unsigned[]){1, 3, 2}, 3), 1);
	assert_int_equal(plan_of(&plan, (unsigned[]){3, 1, 2}, 3), 1);
	assert_int_equal(plan_of(&plan, (unsigned[]){7, 9, 1, 8, 2}, 5), 2);
	assert_int_equal(plan_of(&plan, (unsigned[]){1, 1}, 2), 2);
	assert_int_equal(plan_of(&plan, (unsigned[]){9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, 10), 1);
}

/* ---- windows ---- */

static void test_window(void **state)
{
	struct io_window window;

	(void)state;
	io_window_init(&window, 1000);
	assert_true(io_window_take(&window, 600, 0));
	assert_false(io_window_take(&window, 401, 0));
	assert_true(io_window_take(&window, 400, 0));
	assert_false(io_window_take(&window, 1, 0));
	io_window_put(&window, 1000);
	assert_true(io_window_take(&window, 5000, 0)); /* alone */
	assert_false(io_window_take(&window, 1, 0));
	assert_int_equal(window.in_flight_max, 5000);
	io_window_init(&window, IO_WINDOW_NONE);
	assert_true(io_window_take(&window, UINT64_C(1) << 40, 0));
	assert_true(io_window_take(&window, UINT64_C(1) << 40, 0));
}

/*
 * A device that is fastest with `knee` bytes in flight, and slower with more by `slower` percent: the
 * window settles near the knee, and the throughput stays within 5 % of the best.
 */
static uint64_t device_rate(uint64_t window, uint64_t knee, unsigned slower)
{
	if (window < knee)
		return 6000000 * window / knee; /* bytes per ms */
	return 6000000 - (window > 2 * knee ? 60000ull * slower : 0);
}

static void test_auto(void **state)
{
	const uint64_t knees[] = {128 << 10, 1 << 20, 5 << 20, 20 << 20};

	(void)state;
	for (unsigned k = 0; k < 4; k++)
		for (unsigned slower = 0; slower <= 30; slower += 30) {
			struct io_window window;
			struct io_auto adapt;
			uint64_t now_ns = 1, bytes = 0, windows = 0;

			io_auto_init(&adapt, &window);
			for (unsigned ms = 0; ms < 4000; ms++) {
				const uint64_t rate = device_rate(window.limit, knees[k], slower);

				adapt.limited = true;
				now_ns += 1000000;
				io_auto_ended(&adapt, &window, rate, 64, now_ns);
				if (ms >= 2000) {
					bytes += rate;
					windows += window.limit;
				}
			}
			printf("# knee %llu: window %llu on average, %llu %% of the best\n",
			       (unsigned long long)knees[k], (unsigned long long)windows / 2000,
			       (unsigned long long)bytes / 2000 * 100 / 6000000);
			assert_true(bytes / 2000 >= 6000000 / 100 * 94);
			assert_true(windows / 2000 <= knees[k] * 5 / 4);
		}
}

/* ---- polling ---- */

static void test_poll(void **state)
{
	struct io_poll poll;

	(void)state;
	io_poll_init(&poll, IO_POLL_ADAPTIVE, 3, 16);
	/* Each success resets the retries (the published code never did). */
	for (unsigned round = 0; round < 5; round++) {
		assert_int_equal(io_poll_next(&poll, 0), IO_POLL_AGAIN);
		assert_int_equal(io_poll_next(&poll, 0), IO_POLL_AGAIN);
		assert_int_equal(io_poll_next(&poll, 1), IO_POLL_AGAIN);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(io_poll_next(&poll, 0), IO_POLL_AGAIN);
	assert_int_equal(io_poll_next(&poll, 0), IO_POLL_ARM);
	assert_int_equal(io_poll_next(&poll, 2), IO_POLL_AGAIN); /* found after arming */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(io_poll_next(&poll, 0), IO_POLL_AGAIN);
	assert_int_equal(io_poll_next(&poll, 0), IO_POLL_ARM);
	assert_int_equal(io_poll_next(&poll, 0), IO_POLL_SLEEP);

	io_poll_init(&poll, IO_POLL_BUSY, 3, 16);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(io_poll_next(&poll, 0), IO_POLL_AGAIN);
	io_poll_init(&poll, IO_POLL_NAIVE_HYBRID, 3, 16);
	assert_int_equal(io_poll_next(&poll, 1), IO_POLL_AGAIN);
	assert_int_equal(io_poll_next(&poll, 0), IO_POLL_ARM);
	assert_int_equal(io_poll_next(&poll, 0), IO_POLL_SLEEP);
	io_poll_init(&poll, IO_POLL_EVENT, 3, 16);
	assert_int_equal(poll.batch, 1);
	assert_int_equal(io_poll_next(&poll, 1), IO_POLL_ARM);
	assert_int_equal(io_poll_next(&poll, 0), IO_POLL_SLEEP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan_random), cmocka_unit_test(test_plan_merges),
		cmocka_unit_test(test_window),	    cmocka_unit_test(test_auto),
		cmocka_unit_test(test_poll),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
