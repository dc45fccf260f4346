/* SPDX-License-Identifier: MIT */
/*
 * The table behind gannet/base.h's calls on time, threads, locks and waiting. A process uses
 * exec_real; the simulator installs its own on the one OS thread it runs on, for as long as it
 * runs.
 */
#ifndef GN_BASE_EXEC_H
#define GN_BASE_EXEC_H

#include "gannet/base.h"

struct exec_ops {
	const char *name;
	uint64_t (*now_ns)(void);
	uint64_t (*random)(void);
	void *(*alloc)(size_t size, size_t align);
	void (*free)(void *ptr);
	void (*charge)(enum gn_work kind, uint64_t n);
	void (*preempt)(void); /* base/preempt.h */

	int (*thread_start)(const char *name, void (*fn)(void *), void *arg,
			    struct gn_thread **out);
	int (*thread_join)(struct gn_thread *thread);
	uint64_t (*thread_id)(void);
	const char *(*node_name)(void);
	/* Where the process keeps the list of its fibers; NULL: it keeps none. Optional. */
	struct gn_fiber **(*fibers)(void);
	void (*yield)(void);
	void (*sleep_us)(uint64_t us);

	void (*mutex_init)(struct gn_mutex *mutex);
	void (*mutex_lock)(struct gn_mutex *mutex);
	void (*mutex_unlock)(struct gn_mutex *mutex);
	void (*mutex_fini)(struct gn_mutex *mutex);
	void (*cond_init)(struct gn_cond *cond);
	int (*cond_wait)(struct gn_cond *cond, struct gn_mutex *mutex, uint64_t deadline_ns,
			 const char *reason);
	void (*cond_wake)(struct gn_cond *cond, bool all);
	void (*cond_fini)(struct gn_cond *cond);

	int (*slot_create)(void (*destroy)(void *), struct gn_slot **out);
	void *(*slot_get)(const struct gn_slot *slot);
	int (*slot_set)(struct gn_slot *slot, void *value);
	void (*slot_destroy)(struct gn_slot *slot);

	int (*wait)(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
		    const char *reason);
};

extern const struct exec_ops exec_real;

/* The table in force on this OS thread: exec_real unless a simulation runs here. */
const struct exec_ops *exec_current(void);
/* Returns the table that was in force. */
const struct exec_ops *exec_install(const struct exec_ops *ops);

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

#endif
