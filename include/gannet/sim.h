/* SPDX-License-Identifier: MIT */
/*
 * gannet/sim.h - a cluster in one OS thread and in virtual time.
 *
 * Programs written against gannet/base.h and gannet/fabric.h run on its nodes unchanged: each is a
 * process with its own threads, heap and fabric ("sim:n3"), and reaches another's memory only
 * through the fabric. Time passes only while every thread waits or works; threads that could run at
 * the same instant run in an order drawn from the seed. The same seed and programs give the same
 * run to the last event.
 *
 * A simulation belongs to the OS thread that created it: every call here is made by that thread,
 * before, between or after runs, or by one of the simulated threads while it runs. Calls return 0
 * or a negative errno; a value that is impossible is refused with -EINVAL and a line in the log
 * that names it.
 *
 * Inside, a program must not block the OS thread, and must not share memory with other processes:
 * what it allocates is freed when it ends. Reading the clock or a variable in a loop lets no time
 * pass: wait, or yield.
 */
#ifndef GANNET_SIM_H
#define GANNET_SIM_H

#include <gannet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_sim;

#define GN_SIM_NODES_MAX     4096u
#define GN_SIM_STACK_DEFAULT (256u * 1024u)

struct gn_sim_opts {
	const char *profile; /* "ideal" (or NULL): only polling in vain and yielding take time */
	uint64_t seed;	     /* of everything that is left to chance */
	unsigned nodes;	     /* 1 to GN_SIM_NODES_MAX; they are called n0, n1, … */
	size_t stack_bytes;  /* of each thread; 0: GN_SIM_STACK_DEFAULT */
	uint64_t limit_ns;   /* virtual time at which a run gives up; 0: none */
};

GN_API int gn_sim_create(const struct gn_sim_opts *opts, struct gn_sim **out);
/* Kills what still runs. Not from inside. */
GN_API void gn_sim_destroy(struct gn_sim *sim);

/*
 * Start a process on a node. Its program finds "sim:nI" in env->fabric, "nI" in env->node, arg in
 * env->arg, and a copy of argv; it may begin at once. When it returns, its other threads end with
 * it. out (may be NULL) gets the process's number: 0, 1, … in the order of spawning.
 */
GN_API int gn_sim_spawn(struct gn_sim *sim, unsigned node, gn_node_main *program, int argc,
			char **argv, void *arg, unsigned *out);

#define GN_SIM_KILLED 137 /* the exit status of a killed process, as a shell reports it */

/*
 * End a process where it stands: connections break, its heap is freed. It may be one's own. -ESRCH
 * when it has ended already.
 */
GN_API int gn_sim_kill(struct gn_sim *sim, unsigned process);

/*
 * Run until every process has ended: 0. -EDEADLK when nothing can run any more or a thread looks in
 * vain for ever (a million empty polls without a wait), having logged who waits for what;
 * -ETIMEDOUT at the limit; -EBUSY from inside a simulation. Processes that did not end stay as they
 * are: one may kill or spawn some, and run on.
 */
GN_API int gn_sim_run(struct gn_sim *sim);

/* What a process's program returned; -EAGAIN while it runs. */
GN_API int gn_sim_status(const struct gn_sim *sim, unsigned process, int *out);

GN_API uint64_t gn_sim_now_ns(const struct gn_sim *sim);
/* Of everything that happened so far, and when. Equal for equal runs, also of other builds. */
GN_API uint64_t gn_sim_trace_hash(const struct gn_sim *sim);
/* How many events were taken from the queue. */
GN_API uint64_t gn_sim_events(const struct gn_sim *sim);
/* Allocations left behind by programs that returned; the log names the processes. */
GN_API uint64_t gn_sim_leaks(const struct gn_sim *sim);

#ifdef __cplusplus
}
#endif

#endif
