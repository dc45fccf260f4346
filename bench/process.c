/* SPDX-License-Identifier: MIT */
/*
 * The second process and the signals that end a run: it is spawned, never forked, and dies with its
 * parent whatever becomes of that.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <gannet/base.h>

#include "bench.h"

#define GRACE_S	  2 /* for tidying up after a signal; then the process is ended */
#define WORDS_MAX 16

extern char **environ;

static volatile sig_atomic_t stopped;

static void on_stop_signal(int signo)
{
	(void)signo;
	stopped = 1;
}

/* The parent has ended: no other process ends this one if its cleanup hangs. */
static void on_stop_soon_signal(int signo)
{
	on_stop_signal(signo);
	alarm(GRACE_S);
}

void bench_stop(void)
{
	stopped = 1;
}

bool bench_stopped(void)
{
	return stopped;
}

const volatile sig_atomic_t *bench_stop_flag(void)
{
	return &stopped;
}

static void set_signal_handler(int signo, void (*handler)(int))
{
	const struct sigaction action = {.sa_handler = handler};

	sigaction(signo, &action, NULL);
}

void bench_stop_on_signals(void)
{
	set_signal_handler(SIGINT, on_stop_signal);
	set_signal_handler(SIGTERM, on_stop_signal);
	set_signal_handler(SIGHUP, on_stop_signal);
}

/* With a descriptor of ours as another of the child's. */
static int process_spawn(const char *file, char *const *argv, int from, int to, int *pid)
{
	posix_spawn_file_actions_t actions;
	int child, rc = posix_spawn_file_actions_init(&actions);

	if (rc)
		return -rc;
	rc = posix_spawn_file_actions_adddup2(&actions, from, to);
	if (!rc)
		rc = posix_spawnp(&child, file, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc)
		return -rc;
	*pid = child;
	return 0;
}

static int spawn_self(char *const *argv, int from, int to, int *pid)
{
	const int rc = process_spawn("/proc/self/exe", argv, from, to, pid);

	if (rc)
		gn_log(GN_LOG_ERROR, "cannot start the second process: %s", gn_strerror(rc));
	return rc;
}

int bench_spawn(const char *hidden_arg, int fd, int *pid)
{
	char arg[32], parent[16];
	char *const argv[] = {"gannet", arg, parent, NULL};

	snprintf(arg, sizeof(arg), "%s", hidden_arg);
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	return spawn_self(argv, fd, BENCH_PEER_FD, pid);
}

int bench_spawn_words(const char *const *words, int out_fd, int *pid)
{
	char *argv[WORDS_MAX] = {"gannet", "--child"}, parent[16];
	unsigned n = 2;

	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	argv[n++] = parent;
	for (; *words; words++) {
		if (n + 1 == WORDS_MAX)
			return -E2BIG;
		argv[n++] = (char *)*words;
	}
	return spawn_self(argv, out_fd, STDOUT_FILENO, pid);
}

int bench_spawn_file(const char *file, char *const *argv, int fd, int *pid)
{
	return process_spawn(file, argv, fd, BENCH_PEER_FD, pid);
}

/*
 * A terminal's interrupt goes to both processes. The parent then stops this process, so that
 * outstanding operations end in order.
 */
int bench_die_with_parent(const char *parent)
{
	char now[16];

	set_signal_handler(SIGINT, SIG_IGN);
	set_signal_handler(SIGHUP, SIG_IGN);
	set_signal_handler(SIGTERM, on_stop_soon_signal);
	prctl(PR_SET_NAME, "gannet-peer"); /* not the "exe" we were started as */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM))
		return -errno;
	snprintf(now, sizeof(now), "%d", (int)getppid());
	return strcmp(now, parent) ? -ESRCH : 0; /* it may have died before prctl() */
}
