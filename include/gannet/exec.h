/* SPDX-License-Identifier: MIT */
/*
 * gannet/exec.h - what a program needs to run in a simulation too.
 *
 * Threads, locks, queues, fibers, randomness and memory come from here and from nowhere else: the
 * simulator replaces the table behind these calls, and code that uses only them and the clock and
 * waits of gannet/base.h runs unchanged in virtual time. Unless a call says otherwise it may be
 * made from any thread, and returns 0 or a negative errno.
 */
#ifndef GANNET_EXEC_H
#define GANNET_EXEC_H

#include <gannet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- randomness, memory, work ---- */

/* 64 random bits. Unpredictable in a process; drawn from the run's seed in a simulation. */
GN_API uint64_t gn_random(void);

/*
 * Zeroed memory from the node's heap; NULL when there is none, or align is neither a power of two
 * nor 0 for malloc's.
 */
GN_API void *gn_alloc(size_t size, size_t align) __attribute__((malloc, warn_unused_result));
GN_API void gn_free(void *ptr);

/*
 * Account CPU work in virtual time: n units of a kind, priced by the simulated machine's profile.
 * In a process this does nothing.
 */
enum gn_work {
	GN_WORK_NS,	  /* n nanoseconds */
	GN_WORK_COPY,	  /* n bytes copied */
	GN_WORK_CHECKSUM, /* n bytes checksummed */
	GN_WORK_SCAN,	  /* n slots looked at and found empty */
	GN_WORK_FOUND,	  /* n messages found in memory where a device has put them */
	GN_WORK_KINDS
};
GN_API void gn_charge(enum gn_work kind, uint64_t n);

/* ---- threads and locks ---- */

struct gn_thread;

GN_API int gn_thread_start(const char *name, void (*fn)(void *arg), void *arg,
			   struct gn_thread **out);
/* Waits for the thread's end and frees it. */
GN_API int gn_thread_join(struct gn_thread *thread);
/* A value that tells threads apart, never 0. */
GN_API uint64_t gn_thread_id(void);
/* The name of the node this thread runs on: the host's name, or the simulated node's. */
GN_API const char *gn_node_name(void);

/* Storage for a lock of either world; initialise before use. Not recursive. */
struct gn_mutex {
	uint64_t opaque[6];
};
struct gn_cond {
	uint64_t opaque[8];
};
struct gn_once {
	uint32_t opaque[2]; /* zero is ready for use */
};

GN_API void gn_mutex_init(struct gn_mutex *mutex);
GN_API void gn_mutex_lock(struct gn_mutex *mutex);
GN_API void gn_mutex_unlock(struct gn_mutex *mutex);
GN_API void gn_mutex_fini(struct gn_mutex *mutex);

GN_API void gn_cond_init(struct gn_cond *cond);
/*
 * -ETIMEDOUT past the deadline (see GN_FOREVER). Like every condition, it may return for no reason.
 */
GN_API int gn_cond_wait(struct gn_cond *cond, struct gn_mutex *mutex, uint64_t deadline_ns,
			const char *reason);
GN_API void gn_cond_signal(struct gn_cond *cond);
GN_API void gn_cond_broadcast(struct gn_cond *cond);
GN_API void gn_cond_fini(struct gn_cond *cond);

/* Runs fn once; every call returns after it has. fn must not come back to the same once. */
GN_API void gn_once_run(struct gn_once *once, void (*fn)(void *arg), void *arg);

/*
 * One pointer per thread and slot. destroy (may be NULL) gets a thread's non-NULL value when the
 * thread ends.
 */
struct gn_slot;
GN_API int gn_slot_create(void (*destroy)(void *value), struct gn_slot **out);
GN_API void *gn_slot_get(const struct gn_slot *slot);
GN_API int gn_slot_set(struct gn_slot *slot, void *value);
GN_API void gn_slot_destroy(struct gn_slot *slot);

/*
 * Bounded queue of pointers: any thread pushes, one thread pops. capacity is rounded up to a power
 * of two, at least 2 and at most 2^24. push: -EAGAIN when full, -EINVAL for NULL; pop: NULL when
 * empty. A push wakes the popping thread when that waits on gn_queue_source(). Destroy a queue when
 * no push can be under way any more; what is still in it is forgotten.
 */
struct gn_queue;
GN_API int gn_queue_create(uint32_t capacity, struct gn_queue **out);
GN_API int gn_queue_push(struct gn_queue *queue, void *item);
GN_API void *gn_queue_pop(struct gn_queue *queue);
GN_API void gn_queue_destroy(struct gn_queue *queue);
/* Ready when there is something to pop; for gn_wait(). */
GN_API struct gn_source *gn_queue_source(struct gn_queue *queue);

/* ---- fibers ---- */

/*
 * Stacks a thread switches between by hand. A fiber never leaves the thread that created it. A
 * struct gn_fiber is a place to save a context in, so schedulers may nest: a simulated thread can
 * itself run fibers, and whichever of them runs when it parks is saved in the thread's struct.
 */
struct gn_fiber;

#define GN_FIBER_STACK_MIN 16384u

/*
 * fn must not return: its last act is a switch away, after which the fiber may be destroyed.
 * -EINVAL for a stack below the minimum, -ENOMEM when none can be mapped.
 */
GN_API int gn_fiber_create(void (*fn)(void *arg), void *arg, size_t stack_bytes,
			   struct gn_fiber **out);
/* The place to save the context of a thread that has its own stack. */
GN_API int gn_fiber_adopt(struct gn_fiber **out);
/* Save the running context in from, continue to. */
GN_API void gn_fiber_switch(struct gn_fiber *from, struct gn_fiber *to);
GN_API void gn_fiber_destroy(struct gn_fiber *fiber);

/* ---- programs for both worlds ---- */

/* What a program is told about where it runs. */
struct gn_env {
	const char *fabric; /* for gn_fabric_open(): "shm", "verbs:mlx5_0", "sim:n3" */
	const char *node;   /* the node's name */
	void *arg;	    /* the caller's */
};

/* A program that runs as a process of its own and on a simulated node alike; returns its status. */
typedef int gn_node_main(struct gn_env *env, int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
