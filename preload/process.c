/* SPDX-License-Identifier: MIT */
/*
 * Threads and processes of the program. A thread of the program starts threads that get paged
 * memory too. fork() is denied: the child would not have the paged memory. vfork(), posix_spawn(),
 * system() and popen() share the memory until the other program begins, so they need nothing here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <pty.h>
#include <stdlib.h>
#include <threads.h>
#include <unistd.h>

#include "preload.h"

/*
 * The C library's functions. They are looked up before main(): dlsym() takes a lock of the dynamic
 * linker, which a thread of the program has while it runs constructors in dlopen(). The island
 * starts threads, too, and must not wait for a thread that waits for a page.
 */
static struct {
	int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	int (*thrd_create)(thrd_t *, thrd_start_t, void *);
	pid_t (*fork)(void), (*_Fork)(void);
	int (*daemon)(int, int);
	int (*forkpty)(int *, char *, const struct termios *, const struct winsize *);
	int (*execve)(const char *, char *const *, char *const *);
	int (*execvpe)(const char *, char *const *, char *const *);
	int (*fexecve)(int, char *const *, char *const *);
} next;

static void next_find(void)
{
	next.pthread_create = (__typeof__(next.pthread_create))dlsym(RTLD_NEXT, "pthread_create");
	next.thrd_create = (__typeof__(next.thrd_create))dlsym(RTLD_NEXT, "thrd_create");
	next.fork = (__typeof__(next.fork))dlsym(RTLD_NEXT, "fork");
	next._Fork = (__typeof__(next._Fork))dlsym(RTLD_NEXT, "_Fork");
	next.daemon = (__typeof__(next.daemon))dlsym(RTLD_NEXT, "daemon");
	next.forkpty = (__typeof__(next.forkpty))dlsym(RTLD_NEXT, "forkpty");
	next.execve = (__typeof__(next.execve))dlsym(RTLD_NEXT, "execve");
	next.execvpe = (__typeof__(next.execvpe))dlsym(RTLD_NEXT, "execvpe");
	next.fexecve = (__typeof__(next.fexecve))dlsym(RTLD_NEXT, "fexecve");
}

/* Constructors of other libraries may come first: there is one thread then. */
static void next_have(void)
{
	if (!next.pthread_create)
		next_find();
}

/* ---- threads ---- */

struct start {
	void *(*run)(void *);
	int (*run_c11)(void *);
	void *arg;
	bool is_island;
};

static struct start start_take(void *arg)
{
	const struct start start = *(struct start *)arg;

	free(arg);
	if (start.is_island)
		heap_enter_island();
	else
		heap_enter();
	return start;
}

static void *thread_run(void *arg)
{
	const struct start start = start_take(arg);

	return start.run(start.arg);
}

static int thread_run_c11(void *arg)
{
	const struct start start = start_take(arg);

	return start.run_c11(start.arg);
}

PRELOAD_API int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *),
			       void *arg)
{
	struct start *start;
	int rc;

	next_have();
	if (!preload_paged && !preload_island)
		return next.pthread_create(out, attr, run, arg);
	start = malloc(sizeof(*start));
	if (!start)
		return EAGAIN;
	*start = (struct start){.run = run, .arg = arg, .is_island = preload_island};
	rc = next.pthread_create(out, attr, thread_run, start);
	if (rc)
		free(start);
	return rc;
}

PRELOAD_API int thrd_create(thrd_t *out, thrd_start_t run, void *arg)
{
	struct start *start;
	int rc;

	next_have();
	if (!preload_paged)
		return next.thrd_create(out, run, arg);
	start = malloc(sizeof(*start));
	if (!start)
		return thrd_nomem;
	*start = (struct start){.run_c11 = run, .arg = arg};
	rc = next.thrd_create(out, thread_run_c11, start);
	if (rc != thrd_success)
		free(start);
	return rc;
}

/* ---- processes ---- */

static int deny_fork(void)
{
	preload_deny(PRELOAD_DENIED_FORK);
	errno = ENOSYS;
	return -1;
}

PRELOAD_API pid_t fork(void)
{
	next_have();
	return paged_ready() ? deny_fork() : next.fork();
}

PRELOAD_API pid_t _Fork(void)
{
	next_have();
	return paged_ready() ? deny_fork() : next._Fork();
}

PRELOAD_API int daemon(int stay, int keep)
{
	next_have();
	return paged_ready() ? deny_fork() : next.daemon(stay, keep);
}

PRELOAD_API int forkpty(int *out, char *name, const struct termios *modes,
			const struct winsize *size)
{
	next_have();
	return paged_ready() ? deny_fork() : next.forkpty(out, name, modes, size);
}

/* ---- other programs in this process: the command says which one has no pager ---- */

static int execute_failed(void)
{
	const int error = errno;

	preload_execute(NULL);
	errno = error;
	return -1;
}

PRELOAD_API int execve(const char *path, char *const *argv, char *const *env)
{
	next_have();
	preload_execute(path);
	next.execve(path, argv, env);
	return execute_failed();
}

PRELOAD_API int execv(const char *path, char *const *argv)
{
	return execve(path, argv, environ);
}

PRELOAD_API int execvpe(const char *file, char *const *argv, char *const *env)
{
	next_have();
	preload_execute(file);
	next.execvpe(file, argv, env);
	return execute_failed();
}

PRELOAD_API int execvp(const char *file, char *const *argv)
{
	return execvpe(file, argv, environ);
}

PRELOAD_API int fexecve(int fd, char *const *argv, char *const *env)
{
	next_have();
	preload_execute(argv[0] ? argv[0] : "a program");
	next.fexecve(fd, argv, env);
	return execute_failed();
}
