/* SPDX-License-Identifier: MIT */
/* The automatic window: shrinks while the throughput holds. */
#include "io/core/window.h"

#define NS_PER_MS 1000000u

static uint64_t auto_bounded(uint64_t limit)
{
	return limit < IO_AUTO_MIN ? IO_AUTO_MIN : limit > IO_AUTO_MAX ? IO_AUTO_MAX : limit;
}

void io_auto_init(struct io_auto *adapt, struct io_window *window)
{
	*adapt = (struct io_auto){.good = IO_WINDOW_DEFAULT};
	io_window_init(window, IO_WINDOW_DEFAULT);
}

/* The window of the next epoch, after one with this throughput. */
static uint64_t auto_next(struct io_auto *adapt, uint64_t limit, uint64_t rate)
{
	const bool held = rate >= adapt->best - adapt->best / 20;

	adapt->best -= adapt->best / 64;
	if (rate > adapt->best)
		adapt->best = rate;
	if (!held) {
		/* Too small: go back to the last window that was not, or further up. */
		if (adapt->good <= limit)
			adapt->good = limit + limit / 4;
		return adapt->good;
	}
	/* A larger window than the good one must be better, not as good. */
	if (limit > adapt->good && rate <= adapt->best - adapt->best / 20)
		return adapt->good;
	if (limit < adapt->good || rate > adapt->best - adapt->best / 64)
		adapt->good = limit;
	if (++adapt->epochs % IO_AUTO_PROBE == 0)
		return adapt->good * 2;
	return adapt->epochs < 8 ? adapt->good / 2 : adapt->good - adapt->good / 4;
}

void io_auto_ended(struct io_auto *adapt, struct io_window *window, uint64_t bytes, uint32_t ended,
		   uint64_t now_ns)
{
	uint64_t limit, took_ns;

	if (!adapt->since_ns)
		adapt->since_ns = now_ns;
	adapt->bytes += bytes;
	adapt->ended += ended;
	took_ns = now_ns - adapt->since_ns;
	if (took_ns < IO_AUTO_EPOCH_NS || adapt->ended < IO_AUTO_EPOCH_ENDED)
		return;
	limit = __atomic_load_n(&window->limit, __ATOMIC_RELAXED);
	/* An epoch in which the window held nothing back says nothing about the window. */
	if (adapt->limited)
		limit = auto_bounded(
			auto_next(adapt, limit, adapt->bytes * NS_PER_MS / took_ns));
	__atomic_store_n(&window->limit, limit, __ATOMIC_RELAXED);
	adapt->since_ns = now_ns;
	adapt->bytes = adapt->ended = 0;
	adapt->limited = false;
}
