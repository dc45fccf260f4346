/* SPDX-License-Identifier: MIT */
/*
 * When a thread that waits for completions polls, arms and sleeps: the six ways that RDMAbox
 * compares. Adaptive is its Algorithm 3, with the retry counter that each success resets.
 * Freestanding.
 *
 *     poll ── found: handle, poll again (event modes: arm)
 *       └──── nothing: poll again, or arm ── poll once more ── found: handle, as above
 *                                                  └────────── nothing: sleep ── event: poll
 */
#ifndef GN_IO_CORE_POLL_H
#define GN_IO_CORE_POLL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mutant.h"

enum io_poll_mode {
	IO_POLL_ADAPTIVE,
	IO_POLL_BUSY,
	IO_POLL_EVENT,
	IO_POLL_EVENT_BATCH,
	IO_POLL_NAIVE_HYBRID,
	IO_POLL_SHARED_CQ, /* as busy; the completion queue is shared */
	IO_POLL_MODES
};

enum io_poll_step {
	IO_POLL_AGAIN, /* poll */
	IO_POLL_ARM,   /* request an event, then poll */
	IO_POLL_SLEEP, /* until an event, then poll */
};

struct io_poll {
	enum io_poll_mode mode;
	uint32_t max_retry;
	uint32_t batch; /* completions per poll */
	uint32_t retry; /* empty polls since the last success */
	bool armed;	/* the last step was IO_POLL_ARM */
};

static inline void io_poll_init(struct io_poll *poll, enum io_poll_mode mode, uint32_t max_retry,
				uint32_t batch)
{
	*poll = (struct io_poll){
		.mode = mode, .max_retry = max_retry, .batch = mode == IO_POLL_EVENT ? 1 : batch};
}

/* One event for each batch: completions that are left are not polled before the next event. */
static inline bool io_poll_by_event(const struct io_poll *poll)
{
	return poll->mode == IO_POLL_EVENT || poll->mode == IO_POLL_EVENT_BATCH;
}

static inline enum io_poll_step io_poll_arm(struct io_poll *poll)
{
	poll->armed = true;
	return IO_POLL_ARM;
}

/* What comes next after a poll that found so many completions. */
static inline enum io_poll_step io_poll_next(struct io_poll *poll, uint32_t found)
{
	const bool armed = poll->armed;

	poll->armed = false;
	if (found) {
		if (!mutant("io-retry-kept", MUTANT_ALWAYS))
			poll->retry = 0;
		if (!io_poll_by_event(poll))
			return IO_POLL_AGAIN;
	} else if (armed) {
		poll->retry = 0;
		return IO_POLL_SLEEP;
	} else if (poll->mode == IO_POLL_BUSY || poll->mode == IO_POLL_SHARED_CQ) {
		return IO_POLL_AGAIN;
	} else if (poll->mode == IO_POLL_ADAPTIVE && poll->retry < poll->max_retry) {
		poll->retry++;
		return IO_POLL_AGAIN;
	}
	return io_poll_arm(poll);
}

#endif
