/* SPDX-License-Identifier: MIT */
/*
 * Worker processes. One pipe holds the groups still to do, from which each worker takes the next;
 * the other brings results back. Both carry records so short that the kernel never splits them.
 */
#include "workers.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 50

struct record {
	uint32_t job;
	_Alignas(max_align_t) uint8_t result[WORKER_RESULT_MAX];
};

static_assert(sizeof(struct record) <= PIPE_BUF, "a record is written at once");

static size_t record_bytes(const struct workers_job *job)
{
	return offsetof(struct record, result) + job->result_bytes;
}

static int run_alone(const struct workers_job *job)
{
	struct record record;

	for (unsigned i = 0; i < job->n; i++) {
		int rc = *job->interrupted ? -EINTR : job->run(job->arg, i, record.result);

		if (rc)
			return rc;
		job->done(job->arg, i, record.result);
	}
	return 0;
}

/* ---- in a worker ---- */

static int run_group(const struct workers_job *job, unsigned group, int results)
{
	struct record record;

	for (unsigned i = 0; i < job->n; i++) {
		int rc;

		if (job->groups[i] != group)
			continue;
		rc = *job->interrupted ? -EINTR : job->run(job->arg, i, record.result);
		if (rc)
			return rc;
		record.job = i;
		if (write(results, &record, record_bytes(job)) != (ssize_t)record_bytes(job))
			return -EPIPE; /* nobody wants it any more */
	}
	return 0;
}

static void worker(const struct workers_job *job, int todo, int results)
{
	unsigned group;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	while (read(todo, &group, sizeof(group)) == (ssize_t)sizeof(group))
		if (run_group(job, group, results))
			break;
	_exit(0); /* what stdio holds is the parent's to write */
}

/* ---- in the parent ---- */

/* Groups are numbers; each goes into the pipe once, in the order of its first job. */
static int fill_todo(const struct workers_job *job, int todo)
{
	for (unsigned i = 0; i < job->n; i++) {
		unsigned k = 0;

		while (k < i && job->groups[k] != job->groups[i])
			k++;
		if (k == i && write(todo, &job->groups[i], sizeof(job->groups[i])) !=
				      (ssize_t)sizeof(job->groups[i]))
			return errno ? -errno : -EIO;
	}
	return 0;
}

/*
 * Waits in short pieces: an interrupt between a look at the flag and the wait would be slept over.
 * 0: it came, or there is no more.
 */
static ssize_t read_result(const struct workers_job *job, int results, void *to, size_t bytes)
{
	struct pollfd ready = {.fd = results, .events = POLLIN};

	while (!*job->interrupted)
		if (poll(&ready, 1, LOOK_MS) > 0)
			return read(results, to, bytes);
	return 0;
}

static int collect(const struct workers_job *job, int results)
{
	struct record record;
	unsigned got = 0;
	ssize_t n;

	for (;;) {
		size_t have = 0;

		while (have < record_bytes(job)) {
			n = read_result(job, results, (char *)&record + have,
					record_bytes(job) - have);
			if (n <= 0)
				goto ended;
			have += (size_t)n;
		}
		job->done(job->arg, record.job, record.result);
		got++;
	}
ended:
	if (*job->interrupted)
		return -EINTR;
	return got == job->n ? 0 : -ECHILD;
}

static unsigned start(const struct workers_job *job, unsigned n, const int todo[2],
		      const int results[2], pid_t *pids)
{
	unsigned started = 0;

	for (unsigned i = 0; i < n; i++) {
		const pid_t pid = fork();

		if (pid == 0) {
			close(todo[1]);
			close(results[0]);
			worker(job, todo[0], results[1]);
		}
		if (pid > 0)
			pids[started++] = pid;
	}
	return started;
}

int workers_run(const struct workers_job *job, unsigned n_workers)
{
	pid_t pids[WORKERS_MAX];
	int todo[2], results[2], rc;
	unsigned started = 0;

	assert(job->result_bytes <= WORKER_RESULT_MAX && n_workers <= WORKERS_MAX);
	if (n_workers < 2)
		return run_alone(job);
	if (pipe(todo))
		return -errno;
	if (pipe(results)) {
		rc = -errno;
		close(todo[0]);
		close(todo[1]);
		return rc;
	}
	rc = fill_todo(job, todo[1]);
	if (!rc) {
		started = start(job, n_workers, todo, results, pids);
		rc = started ? 0 : -EAGAIN;
	}
	/* Workers alone hold these ends now: a pipe ends when there is no more, or they do. */
	close(todo[1]);
	close(results[1]);
	if (!rc)
		rc = collect(job, results[0]);
	close(results[0]);
	for (unsigned i = 0; rc && i < started; i++)
		kill(pids[i], SIGTERM);
	for (unsigned i = 0; i < started; i++)
		while (waitpid(pids[i], NULL, 0) < 0 && errno == EINTR)
			;
	close(todo[0]);
	return rc;
}
