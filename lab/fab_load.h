/* SPDX-License-Identifier: MIT */
/*
 * Load programs: processes whose threads post requests to the memory of others as fast as their
 * window lets them. They are written against gannet/base.h and gannet/fabric.h only; what they
 * share for bookkeeping (struct fab_run) is plain memory of the measuring side, which is possible
 * because all of them run on one OS thread.
 *
 * Everyone listens, everyone connects, all begin at one instant. After a warm-up the operations are
 * counted until there are enough of them, and everyone stops.
 */
#ifndef GN_LAB_LOAD_H
#define GN_LAB_LOAD_H

#include <signal.h>

#include <gannet/exec.h>
#include <gannet/fabric.h>

#include "config.h"

#define FAB_CHAIN_MAX  64u
#define FAB_WINDOW_MAX 4096u
#define FAB_ADDR_MAX   48u

/* What every requesting thread of a run does. */
struct fab_opts {
	enum gn_op op;
	bool ud;	     /* datagrams */
	bool inlined;	     /* the payload goes with the request */
	uint32_t size_bytes; /* of one request */
	/*
	 * One buffer has lead_bytes (a key) before what is moved; the requesters' and the targets'
	 * buffers lie one behind the other, by connection and by request under way.
	 */
	uint32_t lead_bytes, buffer_bytes;
	uint64_t region_bytes; /* atomics: of the target, which they hit at random; else 0 */
	/*
	 * Requests under way on each connection (per_qp), or of a thread, which picks a connection
	 * at random for each.
	 */
	unsigned window;
	bool per_qp;
	/*
	 * Of so many requests one is signaled. They are posted together, and come back together;
	 * with stream they are posted one by one without a window, and after so many the
	 * completion of the first of them is waited for.
	 */
	unsigned signal_every;
	bool stream;
	unsigned requests_per_op; /* made one after the other */
	unsigned shared_by;	  /* threads that share their connections and their cq */
	unsigned receivers;	  /* ud: qps of each process that receives */
};

/* A process: it may be reached by others, have requesting threads, or both. */
struct fab_proc {
	struct fab_run *run;
	unsigned node;
	char addr[FAB_ADDR_MAX]; /* where it listens */
	unsigned expected; /* connections that others will make to it; 0: it does not listen */
	unsigned n_threads;
	unsigned *windows; /* of each thread, instead of opts.window; NULL: the same for all */
	unsigned *targets; /* a connection to each of these processes, for every thread */
	unsigned n_targets;
};

enum fab_phase { FAB_SETUP, FAB_WARM, FAB_MEASURED, FAB_OVER };

/* How long a run is. */
struct fab_length {
	uint64_t warm_ops, min_ops, max_ops;
	uint64_t warm_ns, min_ns, max_ns;
};

struct fab_run {
	struct fab_opts opts;
	struct fab_length length;
	/* Told when the phase becomes MEASURED and OVER. */
	void (*mark)(struct fab_run *run, enum fab_phase phase);
	void *mark_arg;
	const volatile sig_atomic_t *interrupted; /* not 0: give up; may be NULL */

	struct fab_proc *procs;
	unsigned n_procs;
	unsigned n_listeners, n_threads; /* of all processes */

	/* bookkeeping */
	enum fab_phase phase;
	bool failed;
	struct lab_error error; /* the first */
	unsigned listening, connected;
	uint64_t start_ns; /* the common instant; 0: not known yet */
	uint64_t ops;	   /* done so far */
	uint64_t begin_ns, end_ns, begin_ops, end_ops;
	struct gn_hist *latency_ns; /* of operations in the phase MEASURED */
};

/* For the programs: the first cause is kept, and everyone stops. */
void fab_fail(struct fab_run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool fab_stops(const struct fab_run *run)
{
	return run->failed || run->phase == FAB_OVER;
}
/* A caller is ready. Returns at the common start; false when there will be none. */
bool fab_starts(struct fab_run *run);
/* n operations are done; they took since began_ns (0: unknown). Moves the phases on. */
void fab_count(struct fab_run *run, uint64_t n, uint64_t began_ns);

/* A connection of a requester. */
struct fab_link {
	struct gn_qp *qp;
	struct gn_remote remote;
	struct gn_ah *ah; /* ud */
	uint32_t qpn, qkey;
};

/* What a thread posts through, alone or with others. */
struct fab_end {
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp *ud;
	struct fab_link *links;
	unsigned n_links;
	bool up;
	struct fab_thread *threads; /* that use it, in a row */
	unsigned n_threads;
};

/* One chain under way. */
struct fab_slot {
	unsigned left;	  /* requests of its operation still to make, this one included */
	uint64_t post_ns; /* when the operation began */
};

struct fab_side; /* a process's own */

struct fab_thread {
	struct fab_proc *proc;
	struct fab_side *side;
	struct fab_end *end;
	struct gn_thread *thread;
	unsigned in_end; /* its number there */
	uint8_t *buffer;
	uint32_t lkey;
	unsigned n_slots, under_way;
	struct fab_slot *slots;
	uint32_t *ready;  /* slots to post again */
	uint64_t n_ready; /* also a word that the thread waits for while others poll for it */
};

/* The process (process.c). env->arg: its struct fab_proc. */
gn_node_main fab_main;
/* A requesting thread's work between the common start and the stop (loop.c). */
void fab_loop(struct fab_thread *thread);

#endif
