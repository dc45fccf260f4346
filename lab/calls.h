/* SPDX-License-Identifier: MIT */
/*
 * What the loads of the layers rpc and kv have in common: servers on node 0, and on each of the
 * other nodes one process whose threads are clients, or a process for each client. Clients call all
 * the time; phases and counting are those of load.h.
 */
#ifndef GN_LAB_CALLS_H
#define GN_LAB_CALLS_H

#include <gannet/rpc.h>

#include "lab.h"
#include "trial.h"

/* The keys that call_load_read() takes. */
#define CALL_KEYS                                                                                \
	"server_threads", "client_machines", "clients_per_machine", "mode", "batch", "limit_us", \
		"alpha_pct", "fetch_size", "retries"

struct call_load {
	bool paper; /* the papers' way, or the library's own */
	enum gn_rpc_mode mode;
	bool bypass;				    /* mode=bypass; mode is what is called with */
	unsigned server_threads, machines, clients; /* clients of each machine */
	uint32_t fetch_bytes, retries;		    /* 0: the library's choice */
	/*
	 * Calls that a client makes at once and waits for; 0: one by one. With chosen, as many as
	 * the library finds right for limit_ns and alpha_pct, up to batch.
	 */
	uint32_t batch;
	bool chosen;
	uint64_t limit_ns; /* 0: none */
	uint32_t alpha_pct;
};

int call_load_read(const struct config *config, const char *preset, struct call_load *out,
		   struct lab_error *error);

/* What clients add when they are through; means are of what they counted. */
struct call_sums {
	uint64_t ops; /* that the load asked for; several may be in a call */
	uint64_t calls, fetches, failed_fetches, second_reads;
	uint64_t late;	      /* ops longer than limit_ns */
	uint64_t quick;	      /* … and below 7 us */
	uint64_t switches;    /* since the beginning */
	uint64_t batches;     /* the sizes that clients have chosen in the end */
	uint64_t connections; /* … of so many */
};

struct caller;

struct call_run {
	struct load_run load;
	const struct call_load *opts;
	unsigned method; /* the one whose choices are asked for */
	/* A client's thread: connects, calls until load_stops(), closes. */
	void (*call)(struct caller *caller);
	uint64_t min_ops; /* to measure, at effort 1 */
	bool each;	  /* client processes: one for each client, or for each machine */
	struct call_sums sums;
	unsigned client_procs, clients_gone;
};

/* ---- for the programs ---- */

/* A process with n clients, from the one numbered first on. */
struct call_site {
	struct call_run *run;
	unsigned first, n;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx; /* the papers have one to a process; else NULL */
};

struct caller {
	struct call_run *run;
	struct call_site *site;
	unsigned number; /* of all clients */
	struct gn_thread *thread;
	struct gn_rpc_client **to; /* what it calls over: set by call() before it begins */
	unsigned n_to;
	uint64_t began_ns;	 /* the operations under way */
	struct call_sums count;	 /* of its own */
	struct call_sums before; /* when it first called in the phase MEASURED */
	bool counts;
};

/* False, and the run fails, if rc is an error. */
bool call_ok(struct call_run *run, int rc, const char *what);
/* Until the common start; false when there will be none. */
bool caller_starts(struct caller *caller);
/* n operations, under way since began_ns, have ended well. */
void caller_count(struct caller *caller, unsigned n);
/* All of a call has ended, and the next has not begun. */
void caller_note(struct caller *caller);
/* It has called for the last time. */
void caller_ends(struct caller *caller);

/* The process of clients. env->arg: its struct call_site. */
gn_node_main call_client_program;

/* A server is ready; returns when it is not needed any more. */
void call_server_waits(struct call_run *run);

/* ---- for the layers ---- */

struct call_result {
	struct trial_result trial;
	struct call_sums sums;
};

/* servers: starts the processes of node 0. */
int calls_run(struct call_run *run, const struct lab_setup *setup,
	      int (*servers)(struct gn_sim *sim, struct call_run *run), struct call_result *out,
	      struct lab_error *error);
void call_metrics(const struct call_load *load, const struct call_result *result,
		  struct lab_metrics *out);

#endif
