/* SPDX-License-Identifier: MIT */
/*
 * Jobs in several processes. A simulation fills one core; runs that do not depend on each other
 * fill as many as there are.
 */
#ifndef GN_LAB_WORKERS_H
#define GN_LAB_WORKERS_H

#include <signal.h>
#include <stddef.h>

#define WORKERS_MAX	  256u
#define WORKER_RESULT_MAX 2048u

struct workers_job {
	unsigned n;		/* jobs 0 to n - 1 */
	const unsigned *groups; /* of each; jobs of one group run in one process, in order */
	size_t result_bytes;	/* at most WORKER_RESULT_MAX */
	/* In some worker: fill result. -EINTR: stop. */
	int (*run)(void *arg, unsigned job, void *result);
	/* In the caller's process: the result has come, in any order of jobs. */
	void (*done)(void *arg, unsigned job, const void *result);
	void *arg;
	const volatile sig_atomic_t *interrupted;
};

/* With one worker everything runs in the caller's process. 0, -EINTR, or -errno. */
int workers_run(const struct workers_job *job, unsigned n_workers);

#endif
