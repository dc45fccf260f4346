/* SPDX-License-Identifier: MIT */
/*
 * What tests of programs under faults share: a run of a simulated cluster for each seed, what is
 * said of one that failed and how to have it again, faults at every point, and the command line. A
 * test's own world begins with a struct seeds, and is what its functions get.
 */
#ifndef GN_TESTS_SIM_SEEDS_H
#define GN_TESTS_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/exec.h"
#include "gannet/fabric.h"
#include "gannet/sim.h"

#define KINDS_MAX 32u /* of faults */

struct seeds {
	uint64_t seed;
	bool verbose;
	struct gn_sim *sim; /* of the run that is under way */
	char failure[512];  /* the first one; empty: none */
	char log[8192];
	uint64_t faults[KINDS_MAX]; /* that happened, in all runs */
};

/* A test, which also defines the functions test_…() below. */
struct seeds_test {
	const char *program;  /* "sim-rpc" */
	const char *what;     /* has seeds: "calls" */
	unsigned seconds_max; /* that a run may take */
	unsigned more;	      /* times as many seeds as others have: they are short */
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

/* All of it: what main() returns. */
int seeds_main(int argc, char **argv, const struct seeds_test *test, struct seeds *w);

/* The first failure counts. */
__attribute__((format(printf, 2, 3))) void seeds_fail(struct seeds *w, const char *fmt, ...);
/* If one wants to know. */
__attribute__((format(printf, 2, 3))) void seeds_say(const struct seeds *w, const char *fmt, ...);

/* A process of a run, on the node of its own number. */
struct seeds_process {
	gn_node_main *program;
	void *arg;
};

/*
 * Runs the processes, and has check look at the run with what it ended with, before it is gone. That
 * it ended, nobody left anything behind, and with all_return that all returned 0, is checked here.
 */
void seeds_simulate(struct seeds *w, const struct gn_sim_opts *opts,
		    const struct seeds_process *process, unsigned n, bool all_return,
		    void (*check)(struct seeds *w));

/* Opens the fabric of a process: again after pause_us when a fault makes this fail. 0 or -errno. */
int seeds_fabric_open(const struct gn_env *env, unsigned attempts, uint32_t pause_us,
		      struct gn_fabric **out);
/* It is a failure of the test if an object of the fabric is left. owner: "a client", … */
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

/* The n-th time on a node, for every n: until a run has fewer than that. who: "client, …". */
void seeds_points(struct seeds *w, const char *kind, unsigned node, const char *who);

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
