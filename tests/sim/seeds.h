/* SPDX-License-Identifier: MIT */
/*
 * Common parts of the tests of programs under faults: a run of a simulated cluster for each seed, the
 * report of a failed run and the command that repeats it, faults at every point, and the command
 * line. A test's own struct world begins with a struct seeds and is passed to the test's functions.
 */
#ifndef GN_TESTS_SIM_SEEDS_H
#define GN_TESTS_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/exec.h"
#include "gannet/fabric.h"
#include "gannet/sim.h"

#define KINDS_MAX 32u /* of faults */
#define NODES_MAX 8u  /* of seeds_simulate_clients() */

struct seeds {
	uint64_t seed;
	bool verbose;
	struct gn_sim *sim; /* the present run's */
	char failure[512];  /* the first one; empty: none */
	uint64_t active_ns; /* when a client last did something */
	unsigned clients_over;
	uint64_t submitted, ended; /* requests */
	char log[8192];
	uint64_t faults[KINDS_MAX]; /* counts over all runs */
};

/* A test, which also defines the functions test_…() below. */
struct seeds_test {
	const char *program;  /* "sim-rpc" */
	const char *what;     /* what is tested: "calls" */
	unsigned seconds_max; /* of a run */
	unsigned more;	      /* factor for the number of seeds, if runs are short */
};

/* Draws the plan of w->seed. */
void test_plan(struct seeds *w);
/* A small and regular plan, for one scheduled fault. */
void test_plan_small(struct seeds *w, const char *faults);
void test_print(const struct seeds *w);
/* Runs the plan: see seeds_simulate(). */
void test_run(struct seeds *w);
void test_points(struct seeds *w);  /* calls seeds_points() */
void test_breadth(struct seeds *w); /* checks what must have happened in the runs of all seeds */

/* Runs the whole test; returns the exit status. */
int seeds_main(int argc, char **argv, const struct seeds_test *test, struct seeds *w);

/* Records the first failure of a run. */
__attribute__((format(printf, 2, 3))) void seeds_fail(struct seeds *w, const char *fmt, ...);
/* Prints with --verbose. */
__attribute__((format(printf, 2, 3))) void seeds_log(const struct seeds *w, const char *fmt, ...);

/* The same for a test's struct world, whose struct seeds is called run. */
#define world_fail(w, ...) seeds_fail(&(w)->run, __VA_ARGS__)
#define world_log(w, ...)  seeds_log(&(w)->run, __VA_ARGS__)

/* The argument of a client's process. */
struct client_arg {
	struct world *w;
	unsigned index;
};

/* A process of a run; process i runs on node i. */
struct seeds_process {
	gn_node_main *program;
	void *arg;
};

/*
 * Runs the processes and calls check() before the simulation is destroyed. Checks itself that the run
 * ended, that no process leaked and, with all_return, that all processes returned 0.
 */
void seeds_simulate(struct seeds *w, const struct gn_sim_opts *opts,
		    const struct seeds_process *process, unsigned n, bool all_return,
		    void (*check)(struct seeds *w));

/* Every request that was submitted has ended. */
void seeds_check_requests(struct seeds *w);
/*
 * As above, with one server and clients on all other nodes: their arg is a struct seeds_client, the
 * server's is w.
 */
struct seeds_client {
	struct seeds *run;
	unsigned index;
};
void seeds_simulate_clients(struct seeds *w, const struct gn_sim_opts *opts, gn_node_main *server,
			    gn_node_main *client, bool all_return, void (*check)(struct seeds *w));

/* All clients have ended, or have done nothing for quiet_ns: they may have crashed. */
bool seeds_over(const struct seeds *w, unsigned clients, uint64_t quiet_ns);

/* What a client does next: one of n actions, each with a share of 1000; n: none of them. */
unsigned seeds_draw_action(const unsigned *per_mille, unsigned n);

/* Opens the fabric of a process; retries after pause_us if a fault makes it fail. 0 or -errno. */
int seeds_fabric_open(const struct gn_env *env, unsigned attempts, uint32_t pause_us,
		      struct gn_fabric **out);
/* The test fails if an object of the fabric still exists. owner: "a client", … */
void seeds_fabric_close(struct seeds *w, struct gn_fabric *fabric, const char *owner);

/* A process that serves, ends, and serves again, until all its clients have ended. */
struct seeds_server {
	int (*serve_once)(struct seeds *w, struct gn_fabric *fabric, uint32_t stop_us);
	bool (*all_over)(const struct seeds *w);
	uint32_t stop_us;     /* when the first server ends; 0: with the run */
	unsigned attempts;    /* at most so many servers */
	uint32_t pause_us;    /* after a failed attempt, at least */
	uint32_t max_down_us; /* between one server and the next, in addition */
	bool no_memory;	      /* the fabric may fail to open */
};
/* Returns the status of the process. */
int seeds_serve(struct seeds *w, const struct gn_env *env, const struct seeds_server *server);

/*
 * Lets the n-th allocation on a node fail, and then the n-th registration, for every n until a run
 * has fewer. label: "client", …, for the output.
 */
void seeds_points(struct seeds *w, unsigned node, const char *label);

/* A line of TAP. */
void seeds_result(bool ok, const char *name);

struct seeds_sum {
	const char *what;
	uint64_t n;
};
/* Prints them; false if one is 0. */
bool seeds_all_there(const struct seeds_sum *sum, unsigned n);
/*
 * A line of TAP: every kind of fault has happened, except those that begin with one of but (a list
 * that ends with NULL, or NULL).
 */
void seeds_all_faults(const struct seeds *w, const char *const *but);

#endif
