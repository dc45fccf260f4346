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
	*adapt = (struct io_auto){.good = IO_WINDOW_DEFAULT, .rest = 1, .backoff = 1};
	io_window_init(window, IO_WINDOW_DEFAULT);
}

static uint64_t auto_rest(struct io_auto *adapt)
{
	adapt->phase = IO_AUTO_REST;
	adapt->rest = adapt->backoff;
	if (adapt->backoff < IO_AUTO_REST_MAX)
		adapt->backoff *= 2;
	return adapt->good;
}

static uint64_t auto_try(struct io_auto *adapt, enum io_auto_phase phase)
{
	adapt->phase = phase;
	return phase == IO_AUTO_UP ? adapt->good * 2 : adapt->good - adapt->good / 8;
}

/* The window of the next epoch, after one with this window and throughput. */
static uint64_t auto_next(struct io_auto *adapt, uint64_t limit, uint64_t rate)
{
	const bool held = rate >= adapt->best - adapt->best / 20;
	const bool better = rate > adapt->best + adapt->best / 32;

	/* At rest the best follows a load that has become slower. */
	if (rate > adapt->best)
		adapt->best = rate;
	else if (adapt->phase == IO_AUTO_REST)
		adapt->best -= (adapt->best - rate) / 8;
	if (adapt->phase == IO_AUTO_REST) {
		if (adapt->rest && --adapt->rest)
			return adapt->good;
		return auto_try(adapt, adapt->trials++ % 4 ? IO_AUTO_DOWN : IO_AUTO_UP);
	}
	if (adapt->phase == IO_AUTO_UP ? !better : !held)
		return auto_rest(adapt);
	adapt->good = limit;
	adapt->backoff = 1;
	return auto_try(adapt, adapt->phase);
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
		limit = auto_bounded(auto_next(adapt, limit, adapt->bytes * NS_PER_MS / took_ns));
	__atomic_store_n(&window->limit, limit, __ATOMIC_RELAXED);
	adapt->since_ns = now_ns;
	adapt->bytes = adapt->ended = 0;
	adapt->limited = false;
}
