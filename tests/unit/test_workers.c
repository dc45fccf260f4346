/* SPDX-License-Identifier: MIT */
/* The pool of worker processes (cmd/workers.h). */
#include "unit.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workers.h"

#define JOBS 12u

static volatile sig_atomic_t interrupted;

struct seen {
	unsigned n_done, n_died;
	pid_t pid[JOBS];
	unsigned order[JOBS]; /* in which the results came */
	int status[JOBS];     /* of the worker, if it died */
};

static int run_pid(void *arg, unsigned job, void *result)
{
	const pid_t pid = getpid();

	(void)arg;
	(void)job;
	memcpy(result, &pid, sizeof(pid));
	return 0;
}

static void note_done(void *arg, unsigned job, const void *result)
{
	struct seen *seen = arg;

	memcpy(&seen->pid[job], result, sizeof(pid_t));
	seen->order[job] = seen->n_done++;
}

static void note_died(void *arg, unsigned job, int status)
{
	struct seen *seen = arg;

	seen->status[job] = status;
	seen->n_died++;
}

/* A group has one process, and its jobs run in order. */
static void groups(void **state)
{
	static const unsigned group[JOBS] = {0, 1, 0, 2, 1, 0, 3, 2, 0, 1, 3, 0};
	struct seen seen = {0};
	const struct workers_job job = {
		.n = JOBS,
		.groups = group,
		.result_bytes = sizeof(pid_t),
		.run = run_pid,
		.done = note_done,
		.arg = &seen,
		.interrupted = &interrupted,
	};

	(void)state;
	assert_int_equal(workers_run(&job, 3), 0);
	assert_int_equal(seen.n_done, JOBS);
	for (unsigned i = 0; i < JOBS; i++) {
		assert_int_not_equal(seen.pid[i], getpid());
		for (unsigned k = i + 1; k < JOBS; k++)
			if (group[k] == group[i]) {
				assert_int_equal(seen.pid[k], seen.pid[i]);
				assert_true(seen.order[k] > seen.order[i]);
			}
	}
}

static int run_some_die(void *arg, unsigned job, void *result)
{
	if (job == 3)
		raise(SIGUSR1);
	while (job == 5) /* SIGALRM ends it */
		pause();
	if (job == 7)
		_exit(9);
	return run_pid(arg, job, result);
}

/* A worker that dies or takes too long costs one job. */
static void died(void **state)
{
	struct seen seen = {0};
	struct workers_job job = {
		.n = JOBS,
		.result_bytes = sizeof(pid_t),
		.seconds_max = 1,
		.run = run_some_die,
		.done = note_done,
		.died = note_died,
		.arg = &seen,
		.interrupted = &interrupted,
	};

	(void)state;
	for (unsigned n = 1; n <= 2; n++) {
		seen = (struct seen){0};
		assert_int_equal(workers_run(&job, n), 0);
		assert_int_equal(seen.n_done, JOBS - 3);
		assert_int_equal(seen.n_died, 3);
		assert_true(WIFSIGNALED(seen.status[3]) && WTERMSIG(seen.status[3]) == SIGUSR1);
		assert_true(WIFSIGNALED(seen.status[5]) && WTERMSIG(seen.status[5]) == SIGALRM);
		assert_true(WIFEXITED(seen.status[7]) && WEXITSTATUS(seen.status[7]) == 9);
	}
	job.died = NULL;
	assert_int_equal(workers_run(&job, 2), -ECHILD);
}

static int run_fails(void *arg, unsigned job, void *result)
{
	return job == 4 ? -ENOSPC : run_pid(arg, job, result);
}

/* What run() returns ends the pool, with one process or several. */
static void failed(void **state)
{
	struct seen seen = {0};
	const struct workers_job job = {
		.n = JOBS,
		.result_bytes = sizeof(pid_t),
		.run = run_fails,
		.done = note_done,
		.arg = &seen,
		.interrupted = &interrupted,
	};

	(void)state;
	assert_int_equal(workers_run(&job, 1), -ENOSPC);
	assert_int_equal(seen.n_done, 4);
	assert_int_equal(seen.pid[0], getpid());
	assert_int_equal(workers_run(&job, 2), -ENOSPC);
}

/* The first is done at once; the others wait until they are killed. */
static int run_first_returns(void *arg, unsigned job, void *result)
{
	(void)arg;
	(void)result;
	while (job)
		pause();
	return 0;
}

static void interrupt_at_first(void *arg, unsigned job, const void *result)
{
	(void)arg;
	(void)job;
	(void)result;
	interrupted = 1;
}

/* An interrupt while a result is taken ends the wait for the others. */
static void interrupt(void **state)
{
	const struct workers_job job = {
		.n = 2,
		.result_bytes = 1,
		.run = run_first_returns,
		.done = interrupt_at_first,
		.interrupted = &interrupted,
	};

	(void)state;
	alarm(20); /* without an interrupt it waits for ever */
	assert_int_equal(workers_run(&job, 2), -EINTR);
	alarm(0);
	interrupted = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups),
		cmocka_unit_test(died),
		cmocka_unit_test(failed),
		cmocka_unit_test(interrupt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
