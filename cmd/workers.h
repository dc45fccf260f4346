/* SPDX-License-Identifier: MIT */
/*
 * A pool of worker processes. A simulation fills one core; jobs that do not depend on each other
 * fill as many cores as there are.
 */
#ifndef GN_CMD_WORKERS_H
#define GN_CMD_WORKERS_H

#include <signal.h>
#include <stddef.h>

#define WORKERS_MAX	  256u
#define WORKER_RESULT_MAX 2048u

struct workers_job {
	unsigned n; /* jobs 0 to n - 1 */
	const unsigned
		*groups;      /* jobs of one group run in one process, in order; NULL: no groups */
	size_t result_bytes;  /* at most WORKER_RESULT_MAX */
	unsigned seconds_max; /* SIGALRM ends a worker whose job takes longer; 0: no limit */
	/* In a worker: fills in result. Anything but 0 ends the pool. */
	int (*run)(void *arg, unsigned job, void *result);
	/* In the caller's process, in the order in which the jobs end. */
	void (*done)(void *arg, unsigned job, const void *result);
	/*
	 * In the caller's process: the worker of this job died, with this status of waitpid(). The
	 * pool starts another worker and goes on. NULL: the pool ends with -ECHILD.
	 */
	void (*died)(void *arg, unsigned job, int status);
	void *arg;
	const volatile sig_atomic_t *interrupted;
};

/*
 * 0; -EINTR after an interrupt, which kills the workers; what run() returned; or -errno. With one
 * worker and without died() the jobs run in the caller's process.
 */
int workers_run(const struct workers_job *job, unsigned n_workers);

#endif
