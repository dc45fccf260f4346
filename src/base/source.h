/* SPDX-License-Identifier: MIT */
/* What can become ready, and wake a wait: queues, cqs, channels, clients and servers. */
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
 *
 * An *object* (a client, a server) is a source with members: it is ready when one of them is, or
 * when it is due. Its ready, arm and disarm are source_object_…(); what it has of its own is
 * prepare(), called in either world before a sleep: it asks peers to wake the object, sets due_ns
 * to the time at which the object must be polled in any case, and answers 0, or -EAGAIN when the
 * object should be polled instead. source_rest() ends what it began.
 */
struct gn_source;
struct source_poller;

struct source_ops {
	bool (*ready)(struct gn_source *source);
	int (*arm)(struct gn_source *source);
	void (*disarm)(struct gn_source *source); /* optional */
	int (*prepare)(struct gn_source *source); /* of objects */
};

struct gn_source {
	const struct source_ops *ops;
	struct gn_wait_item *waiters; /* simulation only */
	void (*wake)(struct gn_wait_item *waiters);
	bool wakes; /* something would wake a thread that sleeps on it */
	bool armed; /* by gn_source_arm(), or as a member */
	bool mute;  /* an object whose members say nothing any more: prepare() sets it */
	struct gn_source *parent; /* the object that it is a member of */
	struct gn_source *members, *next;
	struct gn_wait_item item; /* simulation: for a wait on the object */
	uint64_t due_ns;	  /* of an object that is prepared; else GN_FOREVER */
	/* The fd of gn_source_fd(), and where its own fd is entered. */
	struct source_poller *poller, *entered;
	uint32_t entered_at;
	int fd;
};

static inline void source_init(struct gn_source *source, const struct source_ops *ops)
{
	*source = (struct gn_source){.ops = ops, .wakes = true, .due_ns = GN_FOREVER, .fd = -1};
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

/* ---- poller.c ---- */

int source_object_arm(struct gn_source *object);
void source_object_disarm(struct gn_source *object);
void source_poller_fini(struct gn_source *source);

/* ---- source.c ---- */

bool source_object_ready(struct gn_source *object);

/* Its owner's thread: member is part of object from now on; until source_fini(). */
void source_join(struct gn_source *object, struct gn_source *member);
/* Before a source goes: it is no member any more, has none, and its fd is closed. */
void source_fini(struct gn_source *source);

static inline bool source_is_object(const struct gn_source *source)
{
	return source->ops->prepare;
}

/* 0; -EAGAIN: poll it; or an error. */
int source_prepare(struct gn_source *source);
void source_rest(struct gn_source *source);
/* When it, or an object that is a member of it, is due. */
uint64_t source_due_ns(const struct gn_source *source);

/*
 * For a wait: prepares the objects among items. 0, or how many should be polled instead (they are
 * marked ready), or an error. *deadline_ns becomes the time at which the first is due, if that is
 * earlier. source_rest_items() follows in any case.
 */
int source_prepare_items(struct gn_wait_item *items, unsigned n, uint64_t *deadline_ns);
void source_rest_items(const struct gn_wait_item *items, unsigned n);

/* An earlier time at which an object that is being prepared must be polled. */
static inline void source_due(struct gn_source *source, uint64_t ns)
{
	if (ns < source->due_ns)
		source->due_ns = ns;
}

#endif
