/* SPDX-License-Identifier: MIT */
/*
 * The table behind the calls of gannet/exec.h, and behind time and waiting of gannet/base.h. A
 * process uses exec_real. The simulator installs its own table on its OS thread while it runs.
 */
#ifndef GN_BASE_EXEC_H
#define GN_BASE_EXEC_H

#include "base/source.h"
#include "gannet/exec.h"

struct fail_state;

struct exec_ops {
	const char *name;
	uint64_t (*now_ns)(void);
	uint64_t (*random)(void);
	void *(*alloc)(size_t size, size_t align);
	void (*free)(void *ptr);
	void (*charge)(enum gn_work kind, uint64_t n);
	void (*preempt)(void); /* base/preempt.h */
	uint64_t (*memory_available)(void); /* base/memory.h; NULL: not known */

	int (*thread_start)(const char *name, void (*fn)(void *), void *arg,
			    struct gn_thread **out);
	int (*thread_join)(struct gn_thread *thread);
	uint64_t (*thread_id)(void);
	const char *(*node_name)(void);
	struct fail_state *(*error)(void); /* of this thread */
	/* Optional: head of the process's list of fibers; NULL: no list. */
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

	/* spin: poll for a while before sleeping */
	int (*wait)(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
		    const char *reason, bool spin);
};

extern const struct exec_ops exec_real;

/* The table of this OS thread: exec_real unless a simulation runs here. */
const struct exec_ops *exec_current(void);
/* Returns the previous table. */
const struct exec_ops *exec_install(const struct exec_ops *ops);

#endif
