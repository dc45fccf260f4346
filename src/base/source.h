/* SPDX-License-Identifier: MIT */
/* Sources of readiness that can wake a wait: queues, cqs, channels, clients and servers. */
#ifndef GN_BASE_SOURCE_H
#define GN_BASE_SOURCE_H

#include "gannet/exec.h"

/*
 * A source; the kinds embed this struct.
 *
 * In a process: ready() polls without lasting side effects. arm() prepares a wake-up and returns
 * the fd to sleep on; -EOPNOTSUPP: no event would wake the sleep; -EAGAIN: ready after all.
 * disarm() undoes arm(), once for each arm() that returned an fd. In a simulation: a wait parks the
 * thread on the waiters list of each item, and source_wake() wakes it.
 *
 * An *object* (a client, a server) is a source with members: it is ready when a member is ready or
 * when it is due. Its ready, arm and disarm are source_object_…(). Its own operation is prepare(),
 * called before a sleep in process and simulation: it asks peers to wake the object, sets due_ns to
 * the time at which the object must be polled in any case, and returns 0, or -EAGAIN: poll the
 * object first. source_rest() undoes prepare().
 */
struct gn_source;
struct source_epoll;

struct source_ops {
	bool (*ready)(struct gn_source *source);
	int (*arm)(struct gn_source *source);
	void (*disarm)(struct gn_source *source); /* optional */
	int (*prepare)(struct gn_source *source); /* objects only */
	/* optional; simulation: a thread waits for an event of it; a process would arm it */
	void (*armed)(struct gn_source *source);
};

struct gn_source {
	const struct source_ops *ops;
	struct gn_wait_item *waiters; /* simulation only */
	void (*wake)(struct gn_wait_item *waiters);
	bool wakes; /* an event would wake a thread that sleeps on it */
	bool armed; /* by gn_source_arm(), or as a member */
	bool mute;  /* an object whose members will raise no more events: set by prepare() */
	struct gn_source *parent; /* the object it is a member of */
	struct gn_source *members, *next;
	struct gn_wait_item item; /* simulation: for a wait on the object */
	uint64_t due_ns;	  /* while prepared; else GN_FOREVER */
	/* The epoll set of gn_source_fd(), and the set that contains this source's fd. */
	struct source_epoll *epoll, *entered;
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
 * gn_wait() without a text for gn_error(): a timeout is usually not a failure of the calling
 * function. If it is, call exec_wait_failed(), which returns rc.
 */
int exec_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason);
int exec_wait_failed(int rc, uint64_t deadline_ns, const char *reason) __attribute__((cold));

/* ---- source_fd.c ---- */

int source_object_arm(struct gn_source *object);
void source_object_disarm(struct gn_source *object);
void source_poller_fini(struct gn_source *source);

/* ---- source.c ---- */

bool source_object_ready(struct gn_source *object);

/* Owner thread: adds member to object, until source_fini(). */
void source_join(struct gn_source *object, struct gn_source *member);
/* Before a source is freed: removes it from its object, removes its members, closes its fd. */
void source_fini(struct gn_source *source);

static inline bool source_is_object(const struct gn_source *source)
{
	return source->ops->prepare;
}

/* 0; -EAGAIN: poll the object; or an error. */
int source_prepare(struct gn_source *source);
void source_rest(struct gn_source *source);
/* When the source, or an object among its members, is due. */
uint64_t source_due_ns(const struct gn_source *source);

/*
 * For a wait: prepares the objects among items. Returns 0, or the number of objects to poll first
 * (marked ready), or an error. Lowers *deadline_ns to the first due time. Call source_rest_items()
 * afterwards in any case.
 */
int source_prepare_items(struct gn_wait_item *items, unsigned n, uint64_t *deadline_ns);
void source_rest_items(const struct gn_wait_item *items, unsigned n);

/* Sets an earlier due time of an object that is being prepared. */
static inline void source_due(struct gn_source *source, uint64_t ns)
{
	if (ns < source->due_ns)
		source->due_ns = ns;
}

#endif
