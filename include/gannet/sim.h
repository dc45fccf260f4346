/* SPDX-License-Identifier: MIT */
/*
 * gannet/sim.h - a simulated cluster in one OS thread and in virtual time.
 *
 * Programs written against gannet/base.h and gannet/fabric.h run on its nodes unchanged. Each
 * program is a process with its own threads, heap and fabric ("sim:n3"), and accesses the memory of
 * other processes only through the fabric. Time passes only while every thread waits or works.
 * Threads that could run at the same instant run in an order drawn from the seed. The same seed and
 * programs give the same run, event by event.
 *
 * A simulation belongs to the OS thread that created it. Only that thread may call these functions,
 * before, between or after runs, or one of the simulated threads during a run. The functions return
 * 0 or a negative errno; an invalid value returns -EINVAL and is named in the log.
 *
 * A simulated program must not block the OS thread, and must not share memory with other processes:
 * its heap is freed when it ends. Reading the clock or a variable in a loop lets no time pass:
 * wait, or yield.
 */
#ifndef GANNET_SIM_H
#define GANNET_SIM_H

#include <signal.h>

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
	 * Costs of machines and network cards: "ideal" (or NULL; only empty polls and yields take
	 * time), "cx3", "cx3-fdr", "cx3-roce", "cx4", "connect-ib", or a file: a name with a '/' in
	 * it (docs/simulator.md).
	 */
	const char *profile;
	uint64_t seed;	    /* of all random choices */
	unsigned nodes;	    /* 1 to GN_SIM_NODES_MAX; their names are n0, n1, … */
	size_t stack_bytes; /* per thread; 0: GN_SIM_STACK_DEFAULT */
	uint64_t limit_ns;  /* virtual time at which a run ends with -ETIMEDOUT; 0: none */
	/*
	 * enum gn_cap: guarantees of the profile that this run does not give, and violates where
	 * possible: the cache lines of a WRITE become visible in any order, READs are torn, and so
	 * on.
	 */
	uint64_t caps_off;
	const char *faults; /* faults to inject, see gn_sim_inject(); NULL: none */
	/* A run ends with -EINTR when a signal handler has set this. NULL: no signal ends a run. */
	const volatile sig_atomic_t *interrupted;
};

GN_API int gn_sim_create(const struct gn_sim_opts *opts, struct gn_sim **out);
/* Kills all running processes. Not from inside the simulation. */
GN_API void gn_sim_destroy(struct gn_sim *sim);

/*
 * Starts a process on a node. The program gets "sim:nI" in env->fabric, "nI" in env->node, arg in
 * env->arg, and a copy of argv; it may start at once. When the program returns, its other threads
 * end. out (may be NULL) gets the process number: 0, 1, … in the order of calls. -EHOSTDOWN: the
 * node has crashed and has not restarted.
 */
GN_API int gn_sim_spawn(struct gn_sim *sim, unsigned node, gn_node_main *program, int argc,
			char **argv, void *arg, unsigned *out);

#define GN_SIM_KILLED 137 /* exit status of a killed process, as in a shell */

/*
 * Kills a process: its connections break, its heap is freed. A process may kill itself. -ESRCH: it
 * has ended already.
 */
GN_API int gn_sim_kill(struct gn_sim *sim, unsigned process);

/*
 * Runs until every process has ended: 0. -EDEADLK: no thread can run any more (faults still to
 * come do not count, except a scheduled crash), or a thread polls for ever (a million empty polls
 * without a wait); the log names each thread and the reason of its wait. -EFAULT: a program
 * changed or deregistered the buffer of a send before its completion; the log names it.
 * -ETIMEDOUT: limit_ns. -EINTR: *interrupted is set. -EBUSY: called from inside a simulation.
 * Processes that have not ended stay as they are: kill or spawn some, and run again.
 */
GN_API int gn_sim_run(struct gn_sim *sim);

/*
 * Gets the exit status of a process, of its last start if its node crashed in between. -EAGAIN: it
 * is running, or will be restarted.
 */
GN_API int gn_sim_status(const struct gn_sim *sim, unsigned process, int *out);

GN_API uint64_t gn_sim_now_ns(const struct gn_sim *sim);
/* Returns a hash of all events and their times. Equal for equal runs, also of other builds. */
GN_API uint64_t gn_sim_trace_hash(const struct gn_sim *sim);
/* Returns the number of events processed. */
GN_API uint64_t gn_sim_events(const struct gn_sim *sim);

/*
 * Injects faults: a list separated by commas or blanks, added to the current faults; all of it or,
 * on an error, nothing. Random choices are drawn from the seed.
 *
 *     KIND=RATE                                 at random; replaces the kind's rate
 *     KIND@TIME[+DURATION][:WHERE][:AMOUNT]     on schedule
 *
 * RATE is 1%, 0.25% or 50ppm: for operations the share that fails, for nodes the probability per
 * node and virtual millisecond. TIME is virtual time since the start; a time in the past means now.
 * TIME and DURATION are written as 5ms, 0.2us, 100ns, 3s. WHERE is a node (n3); without it, the
 * first operation of any node, or a random node.
 *
 * Faults of operations happen at the first opportunity from TIME on, or at each one for DURATION;
 * AMOUNT #17 skips the first 16:
 *     ud-loss ud-dup ud-reorder ud-delay     a datagram that the node sends
 *     qp-error ack-loss late-completion late-visibility lines torn-read     a posted request
 *     rnr     an arriving message finds no receive
 *     late-established     ESTABLISHED arrives at the acceptor after the client's first messages
 *     alloc register     gn_alloc() returns NULL, a registration fails
 *     preempt     a thread is preempted between two loads of memory that peers may write
 * Faults of nodes last for DURATION or, without it, for good; at random for 0.1 to 12.8 ms, rarely
 * for longer:
 *     crash       the node vanishes without notice; after DURATION the processes that
 *                 gn_sim_spawn() had started and that had not returned start again
 *     kill        the processes end in the same way, but the node stays up: peers are notified,
 *                 and connect requests are refused
 *     pause       threads stop (DURATION is required); the network card does not
 *     slow-node   work takes AMOUNT times as long (20x, 1.5x)
 *     slow-link   so do bytes on the node's link
 *     partition   WHERE n0+n1|n2: these two and n2 cannot reach each other; n0>n2: n2 receives
 *                 nothing from n0; an empty side (n1, n1>, >n1) means all other nodes
 *     drift       the clock runs AMOUNT fast (200ppm) or slow (-200ppm), always for good
 *     low-memory  the system has no available memory: a donor asks for slabs, then takes them;
 *                 gn_alloc() does not fail
 *
 * -EINVAL: a syntax error or an unknown node; the log names it.
 */
GN_API int gn_sim_inject(struct gn_sim *sim, const char *faults);
/* Returns the name of fault kind 0, 1, …; NULL past the last. */
GN_API const char *gn_sim_fault_name(unsigned kind);
/* Returns how often the fault happened. */
GN_API uint64_t gn_sim_fault_count(const struct gn_sim *sim, unsigned kind);

/* Statistics of a node's network card and CPUs. */
struct gn_sim_stats {
	size_t size; /* sizeof(struct gn_sim_stats) */
	uint64_t requests; /* processed from send queues */
	uint64_t packets_out, packets_in;
	uint64_t bytes_out, bytes_in;	   /* on the wire, with headers */
	uint64_t cache_hits, cache_misses; /* of the context and translation cache */
	uint64_t wqe_misses;		   /* requests fetched a second time */
	uint64_t inbound;		   /* requests of peers that the card served */
	uint64_t inbound_misses;	   /* cache_misses of these */
	uint64_t interrupts;
	uint64_t tx_busy_ns, rx_busy_ns, link_out_busy_ns, link_in_busy_ns, cpu_busy_ns;
};

GN_API int gn_sim_node_stats(const struct gn_sim *sim, unsigned node, struct gn_sim_stats *out);

/* Returns the name of profile 0, 1, …; NULL past the last. */
GN_API const char *gn_sim_profile_name(unsigned i);
/* Returns a profile as the text of its file; NULL: unknown name. */
GN_API const char *gn_sim_profile_text(const char *name);

/*
 * Returns the number of allocations that programs had not freed when they returned; the log names
 * the processes.
 */
GN_API uint64_t gn_sim_leaks(const struct gn_sim *sim);

#ifdef __cplusplus
}
#endif

#endif
