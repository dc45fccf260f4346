/* SPDX-License-Identifier: MIT */
/*
 * gannet/exec.h - threads, locks, queues, fibers, randomness and memory for programs that run in a
 * process and in a simulation.
 *
 * The simulator replaces the implementation of these calls. A program that uses only these, and the
 * clock and waits of gannet/base.h, runs unchanged in virtual time. Unless a comment says
 * otherwise, any thread may call these functions, and they return 0 or a negative errno.
 */
#ifndef GANNET_EXEC_H
#define GANNET_EXEC_H

#include <gannet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- randomness, memory, work ---- */

/* Returns 64 random bits: unpredictable in a process, drawn from the seed in a simulation. */
GN_API uint64_t gn_random(void);

/*
 * Returns zeroed memory from the node's heap, or NULL: out of memory, or align is not a power of
 * two. align 0 means malloc's alignment.
 */
GN_API void *gn_alloc(size_t size, size_t align) __attribute__((malloc, warn_unused_result));
GN_API void gn_free(void *ptr);

/*
 * Charges CPU work to virtual time: n units of a kind, at the cost given by the simulated machine's
 * profile. Does nothing in a process.
 */
enum gn_work {
	GN_WORK_NS,	  /* n nanoseconds */
	GN_WORK_COPY,	  /* n bytes copied */
	GN_WORK_CHECKSUM, /* n bytes checksummed */
	GN_WORK_SCAN,	  /* n empty slots polled */
	GN_WORK_FOUND,	  /* n messages found in memory that a device has written */
	GN_WORK_KINDS
};
GN_API void gn_charge(enum gn_work kind, uint64_t n);

/* ---- threads and locks ---- */

struct gn_thread;

GN_API int gn_thread_start(const char *name, void (*fn)(void *arg), void *arg,
			   struct gn_thread **out);
/* Waits until the thread ends, and frees it. */
GN_API int gn_thread_join(struct gn_thread *thread);
/* Returns a unique id of the calling thread, never 0. */
GN_API uint64_t gn_thread_id(void);
/* Returns the name of the node that this thread runs on: the host's, or the simulated node's. */
GN_API const char *gn_node_name(void);

/* Storage for locks. Initialise before use. Mutexes are not recursive. */
struct gn_mutex {
	uint64_t opaque[6];
};
struct gn_cond {
	uint64_t opaque[8];
};
struct gn_once {
	uint32_t opaque[2]; /* zero-initialised is ready for use */
};

GN_API void gn_mutex_init(struct gn_mutex *mutex);
GN_API void gn_mutex_lock(struct gn_mutex *mutex);
GN_API void gn_mutex_unlock(struct gn_mutex *mutex);
GN_API void gn_mutex_fini(struct gn_mutex *mutex);

GN_API void gn_cond_init(struct gn_cond *cond);
/* Returns 0, or -ETIMEDOUT past the deadline (see GN_FOREVER). Spurious wake-ups are possible. */
GN_API int gn_cond_wait(struct gn_cond *cond, struct gn_mutex *mutex, uint64_t deadline_ns,
			const char *reason);
GN_API void gn_cond_signal(struct gn_cond *cond);
GN_API void gn_cond_broadcast(struct gn_cond *cond);
GN_API void gn_cond_fini(struct gn_cond *cond);

/* Runs fn once. Every call returns after fn has returned. fn must not use the same once. */
GN_API void gn_once_run(struct gn_once *once, void (*fn)(void *arg), void *arg);

/*
 * Thread-local storage: one pointer per thread and slot. destroy (may be NULL) is called with a
 * thread's non-NULL value when the thread ends.
 */
struct gn_slot;
GN_API int gn_slot_create(void (*destroy)(void *value), struct gn_slot **out);
GN_API void *gn_slot_get(const struct gn_slot *slot);
GN_API int gn_slot_set(struct gn_slot *slot, void *value);
GN_API void gn_slot_destroy(struct gn_slot *slot);

/*
 * A bounded queue of pointers: any thread pushes, one thread pops. capacity is rounded up to a
 * power of two between 2 and 2^24. gn_queue_push() returns -EAGAIN when the queue is full and
 * -EINVAL for NULL; gn_queue_pop() returns NULL when it is empty. A push wakes a consumer that
 * waits on gn_queue_source(). Destroy a queue only when no thread can push any more; items still in
 * the queue are dropped.
 */
struct gn_queue;
GN_API int gn_queue_create(uint32_t capacity, struct gn_queue **out);
GN_API int gn_queue_push(struct gn_queue *queue, void *item);
GN_API void *gn_queue_pop(struct gn_queue *queue);
GN_API void gn_queue_destroy(struct gn_queue *queue);
/* Ready when there is an item to pop; for gn_wait(). */
GN_API struct gn_source *gn_queue_source(struct gn_queue *queue);

/* ---- fibers ---- */

/*
 * Stacks that a thread switches between explicitly. A fiber never leaves the thread that created
 * it. A struct gn_fiber stores a saved context, so schedulers may nest: a simulated thread can
 * itself run fibers.
 */
struct gn_fiber;

#define GN_FIBER_STACK_MIN 16384u

/*
 * fn must not return: it ends with a switch to another fiber, which may then destroy this one.
 * -EINVAL: the stack is below the minimum. -ENOMEM: no stack could be mapped.
 */
GN_API int gn_fiber_create(void (*fn)(void *arg), void *arg, size_t stack_bytes,
			   struct gn_fiber **out);
/* Creates a fiber for the calling thread's own stack. */
GN_API int gn_fiber_adopt(struct gn_fiber **out);
/* Saves the running context in from and continues to. */
GN_API void gn_fiber_switch(struct gn_fiber *from, struct gn_fiber *to);
GN_API void gn_fiber_destroy(struct gn_fiber *fiber);

/* ---- programs for process and simulation ---- */

/* Passed to a program when it starts. */
struct gn_env {
	const char *fabric; /* for gn_fabric_open(): "shm", "verbs:mlx5_0", "sim:n3" */
	const char *node;   /* the node's name */
	void *arg;	    /* the caller's argument */
};

/* A program that runs as a process or on a simulated node; returns its exit status. */
typedef int gn_node_main(struct gn_env *env, int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
