/* SPDX-License-Identifier: MIT */
/* What can become ready, and wake a wait: queues, cqs, channels, a loop's inbox. */
#ifndef GN_BASE_SOURCE_H
#define GN_BASE_SOURCE_H

#include "gannet/exec.h"

/*
 * Something a wait can be woken by. The kinds embed this.
 *
 * In a process: ready() looks without side effects that matter; arm() prepares a wake-up and
 * returns the fd to sleep on, or -EOPNOTSUPP when nothing would wake it, or -EAGAIN when it is
 * ready after all; disarm() ends that, and is called once for each arm() that returned an fd. In a
 * simulation: wait parks the thread on the waiters list of each member, and whoever makes a source
 * ready calls source_wake().
 */
struct gn_source;

struct source_ops {
	bool (*ready)(struct gn_source *source);
	int (*arm)(struct gn_source *source);
	void (*disarm)(struct gn_source *source); /* optional */
};

struct gn_source {
	const struct source_ops *ops;
	struct gn_wait_item *waiters; /* simulation only */
	void (*wake)(struct gn_wait_item *waiters);
	bool wakes; /* something would wake a thread that sleeps on it */
};

static inline void source_init(struct gn_source *source, const struct source_ops *ops)
{
	source->ops = ops;
	source->waiters = NULL;
	source->wake = NULL;
	source->wakes = true;
}

/* The source became ready. Does nothing unless a simulated thread is parked on it. */
static inline void source_wake(struct gn_source *source)
{
	if (source->waiters)
		source->wake(source->waiters);
}

/*
 * gn_wait() without a text for gn_error(): a wait that times out is mostly no failure of the call
 * that waits. Where it is one, exec_wait_failed() says so, and returns rc.
 */
int exec_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason);
int exec_wait_failed(int rc, uint64_t deadline_ns, const char *reason) __attribute__((cold));

#endif
