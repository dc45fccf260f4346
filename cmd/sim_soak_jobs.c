/* SPDX-License-Identifier: MIT */
/*
 * The processes of gannet sim soak. Each gets a seed at a time through a pipe and answers through
 * another, so one that crashes or hangs takes only its seed along; another takes its place.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim_soak.h"

#define SEED_SECONDS 60 /* the longest that a seed may take */
#define LOOK_MS	     250

struct job {
	pid_t pid;    /* 0: none */
	int to, from; /* pipes, this side's ends */
	bool busy;
	uint64_t seed;
};

struct jobs {
	struct soak *soak;
	struct job job[SOAK_JOBS_MAX];
	uint64_t next; /* seed to give out */
	uint64_t began_ms, ran;
};

struct answer {
	int rc;
	struct swarm_result result;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- in a worker ---- */

static void __attribute__((noreturn)) work(const struct soak *soak, int from, int to)
{
	struct swarm_opts opts = soak->swarm;
	struct answer answer;

	signal(SIGINT, SIG_IGN); /* the parent decides */
	signal(SIGTERM, SIG_IGN);
	while (read(from, &opts.seed, sizeof(opts.seed)) == (ssize_t)sizeof(opts.seed)) {
		alarm(SEED_SECONDS);
		answer.rc = swarm_run(&opts, &answer.result);
		alarm(0);
		if (write(to, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
			break;
	}
	_exit(0);
}

/* ---- in the parent ---- */

static void close_job(struct job *job)
{
	close(job->to);
	close(job->from);
	job->pid = 0;
	job->busy = false;
}

static int start_job(struct jobs *jobs, struct job *job)
{
	int to[2], from[2];

	if (pipe(to))
		return -errno;
	if (pipe(from)) {
		close(to[0]);
		close(to[1]);
		return -EMFILE;
	}
	fflush(NULL);
	job->pid = fork();
	if (job->pid == 0) {
		for (unsigned i = 0; i < jobs->soak->jobs; i++)
			if (&jobs->job[i] != job && jobs->job[i].pid > 0) {
				close(jobs->job[i].to);
				close(jobs->job[i].from);
			}
		close(to[1]);
		close(from[0]);
		work(jobs->soak, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	job->to = to[1];
	job->from = from[0];
	if (job->pid > 0)
		return 0;
	close_job(job);
	return -EAGAIN;
}

static bool skip_done(struct jobs *jobs)
{
	const struct soak *soak = jobs->soak;

	while (jobs->next <= soak->last && jobs->next >= soak->first &&
	       soak->seed[jobs->next - soak->first].done)
		jobs->next++;
	return jobs->next <= soak->last && jobs->next >= soak->first;
}

static int feed(struct jobs *jobs, struct job *job)
{
	if (job->pid == 0) {
		int rc = start_job(jobs, job);

		if (rc)
			return rc;
	}
	job->seed = jobs->next++;
	job->busy = true;
	/* If it died meanwhile, its answer will be that. */
	return write(job->to, &job->seed, sizeof(job->seed)) < 0 && errno != EPIPE ? -errno : 0;
}

static int record(struct jobs *jobs, uint64_t seed, const struct swarm_result *result)
{
	jobs->ran++;
	soak_add(jobs->soak, seed, result, false);
	return soak_state_add(jobs->soak, seed, result);
}

/* A worker that ended instead of answering. */
static int bury(struct jobs *jobs, struct job *job)
{
	struct swarm_result result = {.failed = true};
	const uint64_t seed = job->seed;
	int status = 0;

	waitpid(job->pid, &status, 0);
	close_job(job);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(result.what, sizeof(result.what), "to end within %d s", SEED_SECONDS);
	else if (WIFSIGNALED(status))
		snprintf(result.what, sizeof(result.what), "with signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(result.what, sizeof(result.what), "with exit status %d",
			 WEXITSTATUS(status));
	return record(jobs, seed, &result);
}

static int take(struct jobs *jobs, struct job *job)
{
	struct answer answer;
	const ssize_t n = read(job->from, &answer, sizeof(answer));

	if (n < 0 && errno == EINTR)
		return 0;
	if (n != (ssize_t)sizeof(answer))
		return bury(jobs, job);
	job->busy = false;
	if (answer.rc) {
		fprintf(stderr, "gannet: seed %" PRIu64 " cannot be run: %s\n", job->seed,
			gn_strerror(answer.rc));
		soak_print_replay(jobs->soak, job->seed);
		return answer.rc;
	}
	return record(jobs, job->seed, &answer.result);
}

static void show_progress(const struct jobs *jobs)
{
	const struct soak *soak = jobs->soak;
	const uint64_t all = soak->last - soak->first + 1, left = all - soak->n_done;
	const uint64_t ms = now_ms() - jobs->began_ms;
	const uint64_t left_s = jobs->ran ? left * ms / jobs->ran / 1000 : 0;

	fprintf(stderr,
		"\r%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 "/s, %" PRIu64 " failed, %" PRIu64
		":%02" PRIu64 " left \033[K",
		soak->n_done, all, ms ? jobs->ran * 1000 / ms : 0, soak->n_failed, left_s / 60,
		left_s % 60);
}

static unsigned busy_fds(struct jobs *jobs, struct pollfd *fd, struct job **job)
{
	unsigned n = 0;

	for (unsigned i = 0; i < jobs->soak->jobs; i++) {
		if (!jobs->job[i].busy)
			continue;
		job[n] = &jobs->job[i];
		fd[n++] = (struct pollfd){.fd = jobs->job[i].from, .events = POLLIN};
	}
	return n;
}

/* One look: gives out seeds, takes answers. 1 while there is more to do. */
static int turn(struct jobs *jobs)
{
	struct pollfd fd[SOAK_JOBS_MAX];
	struct job *job[SOAK_JOBS_MAX];
	unsigned n;
	int rc = 0;

	for (unsigned i = 0; i < jobs->soak->jobs && !interrupted && !rc; i++)
		if (!jobs->job[i].busy && skip_done(jobs))
			rc = feed(jobs, &jobs->job[i]);
	n = busy_fds(jobs, fd, job);
	if (rc || n == 0)
		return rc;
	if (poll(fd, n, LOOK_MS) > 0)
		for (unsigned i = 0; i < n && !rc; i++)
			if (fd[i].revents)
				rc = take(jobs, job[i]);
	return rc ? rc : 1;
}

static void end_jobs(struct jobs *jobs)
{
	for (unsigned i = 0; i < jobs->soak->jobs; i++) {
		struct job *job = &jobs->job[i];

		if (job->pid == 0)
			continue;
		if (job->busy) /* only after an error */
			kill(job->pid, SIGKILL);
		close(job->to);
		close(job->from);
		waitpid(job->pid, NULL, 0);
	}
}

int soak_run(struct soak *soak)
{
	struct sigaction on = {.sa_handler = on_interrupt}, old_int, old_term;
	struct jobs *jobs = calloc(1, sizeof(*jobs));
	const bool show = isatty(STDERR_FILENO) && !soak->swarm.verbose;
	int rc;

	if (!jobs)
		return -ENOMEM;
	jobs->soak = soak;
	jobs->next = soak->first;
	jobs->began_ms = now_ms();
	interrupted = 0;
	sigaction(SIGINT, &on, &old_int);
	sigaction(SIGTERM, &on, &old_term);
	do {
		rc = turn(jobs);
		if (show)
			show_progress(jobs);
	} while (rc > 0);
	if (show)
		fputs("\r\033[K", stderr);
	end_jobs(jobs);
	if (!rc && interrupted && soak->n_done <= soak->last - soak->first)
		rc = -EINTR;
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: sim soak stops: %s\n", gn_strerror(rc));
	sigaction(SIGINT, &old_int, NULL);
	sigaction(SIGTERM, &old_term, NULL);
	free(jobs);
	return rc;
}
