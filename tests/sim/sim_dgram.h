/* SPDX-License-Identifier: MIT */
/*
 * Datagram calls under faults: shared by the files of this test. The world is the test's own memory,
 * outside of the heap of any simulated process: calls, executions and statuses are recorded there,
 * whichever process crashes. All nodes are alike: each calls the others and serves them. One more node
 * has the conductor, which ends the faults.
 */
#ifndef GN_TESTS_SIM_DGRAM_H
#define GN_TESTS_SIM_DGRAM_H

#include "cluster_plan.h"
#include "gannet/dgram.h"
#include "pattern.h"
#include "seeds.h"

#define DG_NODES_MAX   5u
#define DG_THREADS_MAX 3u
#define DG_PEERS_MAX   (DG_NODES_MAX * DG_THREADS_MAX)
#define DG_WORKERS_MAX 8u
#define DG_BATCH_MAX   16u /* calls of a gn_dgram_call_all() */
#define DG_CALLS_MAX   32768u
#define DG_STATUSES    (GN_RPC_FAILED + 1)
#define DG_OWN_CODE    4711u			    /* a handler's own status */
#define DG_HEAD	       ((uint32_t)sizeof(uint32_t)) /* of a request: the number of the call */
#define DG_SLOW_CALLS  200u
#define DG_PORT	       9u

enum dg_method {
	DG_INLINE,
	DG_IN_WORKER,
	DG_NESTED,  /* in a worker: calls another node */
	DG_EMPTY,   /* a request of no bytes: has no number */
	DG_MISSING, /* has no handler */
	DG_METHODS
};

struct plan {
	struct cluster_plan cluster;
	bool faultless, incast, slow;
	unsigned n_nodes, n_threads;
	struct gn_dgram_opts opts[DG_NODES_MAX];
	bool silent[DG_NODES_MAX];	   /* the node has no address: nobody can call it first */
	uint32_t restart_us[DG_NODES_MAX]; /* the process ends and begins again; 0: never */
	unsigned workers, window;	   /* of a thread */
	unsigned calls;			   /* of a worker, and of a thread */
	unsigned rounds;		   /* of these calls, with a nap behind each */
	uint32_t until_us, heal_us, think_us, nap_us, work_us;
	uint32_t large; /* one request or result in so many is large */
	/* of 1000 steps */
	unsigned batches, sleeps, thinks, cancels, gones, deadlines, nested, in_worker;
};

/* A call as the test knows it. */
struct call {
	uint8_t node, thread, to_node, to_thread; /* the caller, and the called peer */
	uint8_t method;
	uint16_t refuse; /* the status that the handler is to return; 0: OK */
	uint32_t life;	 /* of the calling process */
	uint32_t len, value_len, room;
	uint64_t start_ns, deadline_ns; /* by the caller's clock; 0: none */
	bool canceled, nested;
	uint32_t executed, ended;
	unsigned status;
	uint32_t executed_by; /* life of the executing process */
};

/* How far a thread is. Threads wait for each other from PHASE_CALM on. */
enum phase {
	PHASE_ACTIVE,
	PHASE_DRAINED, /* all calls have ended; waits for the end of the faults */
	PHASE_HEALED,  /* all peers have answered since */
	PHASE_STABLE,  /* … once more, without the end of an epoch */
	PHASE_IDLE,    /* nothing is kept */
	PHASE_OVER
};

struct node_world {
	uint32_t lives;
	bool restarted; /* by itself */
	enum phase phase[DG_THREADS_MAX];
	unsigned gones[DG_NODES_MAX]; /* gn_dgram_peer_gone() for this node */
};

struct sums {
	uint64_t statuses[DG_STATUSES], methods[DG_METHODS], prefetched, executed, repeats,
		answers_repeated, duplicates, late, pieces, pieces_repeated, credit_waits, busy,
		wrong_epoch, resets, epochs, gone, lives, restarts, canceled, gones, batches,
		submitted, called, large_requests, large_results, again, healed, checks,
		never_executed, max_ms;
};

struct world {
	struct seeds run;
	struct plan plan;
	struct call *calls;
	uint32_t n_calls;
	uint32_t empty_started, empty_executed, empty_ok;
	struct node_world nodes[DG_NODES_MAX];
	bool calm; /* no faults any more */
	uint64_t calm_ns;
	struct sums sums;
};

/* ---- processes ---- */

struct node_arg {
	struct world *w;
	unsigned index;
};
gn_node_main dgram_node_main, dgram_conductor_main;

struct thread;

/* A process. */
struct node {
	struct world *w;
	unsigned index;
	uint32_t life;
	struct gn_fabric *fabric;
	struct gn_dgram_node *node;
	struct thread *threads;
	bool ending; /* it restarts */
};

/* Calls of one gn_dgram_call_all(), or a single one, with their buffers behind it. */
struct job {
	struct thread *t;
	struct job *next, **prev;
	unsigned n, left;
	bool worker; /* a worker waits for it */
	struct gn_dgram_op op[DG_BATCH_MAX];
	uint32_t number[DG_BATCH_MAX];
	uint8_t bytes[];
};

struct thread {
	struct node *node;
	unsigned index;
	struct gn_thread *os;
	struct gn_dgram_endpoint *endpoint;
	struct gn_dgram_peer *peers[DG_PEERS_MAX]; /* by node * n_threads + thread; may be NULL */
	struct job *jobs;			   /* under way */
	unsigned under_way;			   /* calls of gn_dgram_submit() */
	unsigned left;				   /* calls still to make */
	unsigned handlers;			   /* in workers */
	bool in_done;
	int rc; /* of its start */
};

void dgram_thread_main(void *arg);

/* ---- calls ---- */

/* What to call; a member that is -1 is drawn. */
struct wish {
	int node, thread, method;
	bool small, sure; /* sure: no deadline, no refusal, no cancel */
	bool nested;
};

/* A job of n calls, or NULL: there is no peer, or no memory. */
struct job *job_create(struct thread *t, unsigned n, const struct wish *wish);
/* Frees a job whose calls have ended, or were not made. */
void job_free(struct job *job);
/* The calls were refused with rc: forget them. */
void job_refused(struct job *job, int rc);
/* Records the end of a call, and checks it. */
void job_call_ended(struct job *job, unsigned i, int rc);
/* A restarted process has other calls. */
void jobs_discard(struct thread *t);
/* Makes the calls and waits for them: gn_dgram_call() or gn_dgram_call_all(). 0 or -errno. */
int job_run(struct job *job);
/* Starts a job of one call. */
int job_submit(struct job *job);
/* Cancels a call of a random job. */
void job_cancel_one(struct thread *t);

struct gn_dgram_peer *thread_peer(struct thread *t, unsigned node, unsigned thread);
bool thread_goes_on(const struct thread *t);

/* ---- executions ---- */

int handlers_register(struct node *node);

#endif
