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

#include <gannet/exec.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_sim;

#define GN_SIM_NODES_MAX     4096u
#define GN_SIM_STACK_DEFAULT (256u * 1024u)

struct gn_sim_opts {
	size_t size; /* sizeof(struct gn_sim_opts) */
	/*
	 * What the machines and their network cards cost: "ideal" (or NULL; only polling in vain
	 * and yielding take time), "cx3", "cx3-fdr", "cx3-roce", "cx4", "connect-ib", or a file of
	 * one's own, which is a name with a '/' in it (docs/simulator.md).
	 */
	const char *profile;
	uint64_t seed;	    /* of everything that is left to chance */
	unsigned nodes;	    /* 1 to GN_SIM_NODES_MAX; they are called n0, n1, … */
	size_t stack_bytes; /* of each thread; 0: GN_SIM_STACK_DEFAULT */
	uint64_t limit_ns;  /* virtual time at which a run gives up; 0: none */
	/*
	 * enum gn_cap: promises of the profile that this run does not make, and breaks where it
	 * can: lines of a WRITE become visible in any order, READs are torn, and so on.
	 */
	uint64_t caps_off;
	const char *faults; /* what goes wrong, see gn_sim_inject(); NULL: nothing */
};

GN_API int gn_sim_create(const struct gn_sim_opts *opts, struct gn_sim **out);
/* Kills what still runs. Not from inside. */
GN_API void gn_sim_destroy(struct gn_sim *sim);

/*
 * Start a process on a node. Its program finds "sim:nI" in env->fabric, "nI" in env->node, arg in
 * env->arg, and a copy of argv; it may begin at once. When it returns, its other threads end with
 * it. out (may be NULL) gets the process's number: 0, 1, … in the order of spawning. -EHOSTDOWN on
 * a node that has crashed and is not up again.
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
 * Run until every process has ended: 0. -EDEADLK when nothing can run any more (faults that are
 * still to come do not count, but for a crash on schedule) or a thread looks in vain for ever (a
 * million empty polls without a wait), having logged who waits for what; -EFAULT when a program
 * changed the buffer of a send, or deregistered it, before that had completed, having logged which;
 * -ETIMEDOUT at the limit; -EBUSY from inside a simulation. Processes that did not end stay as they
 * are: one may kill or spawn some, and run on.
 */
GN_API int gn_sim_run(struct gn_sim *sim);

/*
 * What a process's program returned, the last time if its node crashed in between; -EAGAIN while it
 * runs, or is to start again.
 */
GN_API int gn_sim_status(const struct gn_sim *sim, unsigned process, int *out);

GN_API uint64_t gn_sim_now_ns(const struct gn_sim *sim);
/* Of everything that happened so far, and when. Equal for equal runs, also of other builds. */
GN_API uint64_t gn_sim_trace_hash(const struct gn_sim *sim);
/* How many events were taken from the queue. */
GN_API uint64_t gn_sim_events(const struct gn_sim *sim);

/*
 * Let things go wrong: a list of faults, separated by commas or blanks, added to those there are,
 * all of it or nothing. What happens at random is drawn from the seed.
 *
 *     KIND=RATE                                 at random, a new rate in place of the last
 *     KIND@TIME[+DURATION][:WHERE][:AMOUNT]     on schedule
 *
 * RATE is 1%, 0.25% or 50ppm: of single operations that share of them, of nodes the probability
 * with which it happens to each in each virtual millisecond. TIME is virtual time since the
 * beginning, what has passed means now; it and DURATION are 5ms, 0.2us, 100ns, 3s. WHERE is a node
 * (n3); without it, whichever comes first, or a node that is drawn.
 *
 * Of single operations, at the first chance from TIME on, or at every one for DURATION; AMOUNT #17:
 * not before the 17th:
 *     ud-loss ud-dup ud-reorder ud-delay     a datagram that the node sends
 *     qp-error ack-loss late-completion late-visibility lines torn-read     a request that it posts
 *     rnr     a message that arrives at it finds no receive
 *     late-established     a connection that it accepted: its client's messages come before that
 *     alloc register     its gn_alloc() gives NULL, its registration fails
 *     preempt     a thread of it, between two loads of memory that peers may write
 * Of nodes, for DURATION or, without, for good; at random for 0.1 to 12.8 ms, seldom for longer:
 *     crash       all of it is gone without a word, and silent; after DURATION what gn_sim_spawn()
 *                 had started there and had not returned starts again
 *     kill        its programs end in the same way, but the node lives: peers are told, and whoever
 *                 connects is refused
 *     pause       its threads stand still (DURATION is needed); its network card does not
 *     slow-node   work takes AMOUNT times as long (20x, 1.5x)
 *     slow-link   so do bytes on its link
 *     partition   WHERE n0+n1|n2: those two and n2 do not hear each other; n0>n2: n2 does not hear
 *                 n0; one side left out (n1, n1>, >n1) is all the others
 *     drift       its clock runs AMOUNT fast (200ppm) or slow (-200ppm), always for good
 *
 * -EINVAL for what does not parse or names a node that is not there, with a line in the log that
 * says which.
 */
GN_API int gn_sim_inject(struct gn_sim *sim, const char *faults);
/* The name of a kind of fault, 0 and on; NULL: there are no more. */
GN_API const char *gn_sim_fault_name(unsigned kind);
/* How often it happened. */
GN_API uint64_t gn_sim_fault_count(const struct gn_sim *sim, unsigned kind);

/* What a node's network card and processors did so far. */
struct gn_sim_stats {
	size_t size; /* sizeof(struct gn_sim_stats) */
	uint64_t requests; /* taken from send queues */
	uint64_t packets_out, packets_in;
	uint64_t bytes_out, bytes_in;	   /* on the wire, with headers */
	uint64_t cache_hits, cache_misses; /* of its memory of qps and translations */
	uint64_t wqe_misses;		   /* requests it had to fetch once more */
	uint64_t inbound;		   /* requests of others that it served */
	uint64_t inbound_misses;	   /* cache_misses while it did */
	uint64_t interrupts;
	uint64_t tx_busy_ns, rx_busy_ns, link_out_busy_ns, link_in_busy_ns, cpu_busy_ns;
};

GN_API int gn_sim_node_stats(const struct gn_sim *sim, unsigned node, struct gn_sim_stats *out);

/* The names of the profiles there are, 0 and on; NULL: there are no more. */
GN_API const char *gn_sim_profile_name(unsigned i);
/* A profile as the text of its file; NULL if there is none of that name. */
GN_API const char *gn_sim_profile_text(const char *name);

/* Allocations left behind by programs that returned; the log names the processes. */
GN_API uint64_t gn_sim_leaks(const struct gn_sim *sim);

#ifdef __cplusplus
}
#endif

#endif
