/* SPDX-License-Identifier: MIT */
/*
 * Worker processes. Each has a socket to the parent: it gets the number of a job, and returns the
 * result. A worker that dies takes one job along, and another worker takes its place.
 */
#include "workers.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define INTERRUPT_POLL_MS 50 /* a signal just before poll() does not end it */
#define NO_JOB		  UINT_MAX

struct worker {
	pid_t pid; /* 0: not started */
	int fd;
	bool busy;
	unsigned job; /* the last one, or NO_JOB */
};

struct pool {
	const struct workers_job *job;
	struct worker worker[WORKERS_MAX];
	unsigned n_workers;
	unsigned next; /* job that no worker had */
};

struct result {
	int rc;
	_Alignas(max_align_t) uint8_t bytes[WORKER_RESULT_MAX];
};

static int run_alone(const struct workers_job *job)
{
	struct result result;

	for (unsigned i = 0; i < job->n; i++) {
		int rc = *job->interrupted ? -EINTR : job->run(job->arg, i, result.bytes);

		if (rc)
			return rc;
		job->done(job->arg, i, result.bytes);
	}
	return 0;
}

/* ---- in a worker ---- */

static void __attribute__((noreturn)) worker_main(const struct workers_job *job, int fd)
{
	struct result result;
	unsigned i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the parent decides */
	signal(SIGTERM, SIG_IGN);
	while (recv(fd, &i, sizeof(i), 0) == (ssize_t)sizeof(i)) {
		const size_t len = offsetof(struct result, bytes) + job->result_bytes;

		memset(&result, 0, len);
		alarm(job->seconds_max);
		result.rc = job->run(job->arg, i, result.bytes);
		alarm(0);
		if (send(fd, &result, len, MSG_NOSIGNAL) != (ssize_t)len)
			break;
	}
	_exit(0); /* without the stdio buffers, which are the parent's */
}

/* ---- in the parent ---- */

static int worker_start(struct pool *pool, struct worker *w)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return -errno;
	fflush(NULL);
	w->pid = fork();
	if (w->pid == 0) {
		close(fd[0]);
		worker_main(pool->job, fd[1]);
	}
	close(fd[1]);
	w->fd = fd[0];
	if (w->pid > 0)
		return 0;
	close(fd[0]);
	w->pid = 0;
	return -EAGAIN;
}

static int worker_end(struct worker *w)
{
	int status = 0;

	kill(w->pid, SIGKILL);
	while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(w->fd);
	w->pid = 0;
	w->busy = false;
	return status;
}

static bool is_first_of_group(const struct workers_job *job, unsigned i)
{
	for (unsigned k = 0; job->groups && k < i; k++)
		if (job->groups[k] == job->groups[i])
			return false;
	return true;
}

/* The next job of this worker's group, or the first job of another group. False: none is left. */
static bool next_job(struct pool *pool, const struct worker *w, unsigned *out)
{
	const struct workers_job *job = pool->job;

	for (unsigned i = w->job + 1; job->groups && w->job != NO_JOB && i < job->n; i++)
		if (job->groups[i] == job->groups[w->job]) {
			*out = i;
			return true;
		}
	while (pool->next < job->n && !is_first_of_group(job, pool->next))
		pool->next++;
	*out = pool->next;
	return pool->next < job->n && ++pool->next;
}

static int give_jobs(struct pool *pool)
{
	int rc = 0;

	for (unsigned i = 0; i < pool->n_workers && !rc; i++) {
		struct worker *w = &pool->worker[i];
		unsigned job;

		if (w->busy || !next_job(pool, w, &job))
			continue;
		if (!w->pid)
			rc = worker_start(pool, w);
		if (rc)
			break;
		w->job = job;
		w->busy = true;
		send(w->fd, &job, sizeof(job), MSG_NOSIGNAL); /* if it died: take_result() */
	}
	return rc;
}

static int take_result(struct pool *pool, struct worker *w)
{
	const struct workers_job *job = pool->job;
	struct result result;

	if (recv(w->fd, &result, sizeof(result), 0) <= 0) {
		const int status = worker_end(w);

		if (!job->died)
			return -ECHILD;
		job->died(job->arg, w->job, status);
		return 0;
	}
	w->busy = false;
	if (!result.rc)
		job->done(job->arg, w->job, result.bytes);
	return result.rc;
}

static int pool_run(struct pool *pool)
{
	struct pollfd fd[WORKERS_MAX];
	struct worker *busy[WORKERS_MAX];
	int rc;

	while (!(rc = *pool->job->interrupted ? -EINTR : give_jobs(pool))) {
		unsigned n = 0;

		for (unsigned i = 0; i < pool->n_workers; i++) {
			if (!pool->worker[i].busy)
				continue;
			busy[n] = &pool->worker[i];
			fd[n++] = (struct pollfd){.fd = pool->worker[i].fd, .events = POLLIN};
		}
		if (!n)
			return 0;
		if (poll(fd, n, INTERRUPT_POLL_MS) <= 0)
			continue;
		for (unsigned i = 0; i < n && !rc; i++)
			if (fd[i].revents)
				rc = take_result(pool, busy[i]);
		if (rc)
			break;
	}
	return rc;
}

int workers_run(const struct workers_job *job, unsigned n_workers)
{
	struct pool pool = {.job = job, .n_workers = n_workers};
	int rc;

	assert(job->result_bytes <= WORKER_RESULT_MAX && n_workers <= WORKERS_MAX);
	if (n_workers < 2 && !job->died)
		return run_alone(job);
	for (unsigned i = 0; i < n_workers; i++)
		pool.worker[i].job = NO_JOB;
	rc = pool_run(&pool);
	for (unsigned i = 0; i < n_workers; i++)
		if (pool.worker[i].pid)
			worker_end(&pool.worker[i]);
	return rc;
}
