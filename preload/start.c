/* SPDX-License-Identifier: MIT */
/* Before main(): the options from the environment, the island, and the main thread's memory. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "preload.h"

/* A process that `gannet pager run` did not start itself has no command to share it with. */
static struct preload_shared own;
struct preload_shared *preload_shared = &own;
static pid_t self;

void preload_deny(enum preload_denied what)
{
	atomic_fetch_or_explicit(&preload_shared->denied, 1u << what, memory_order_relaxed);
}

void preload_execute(const char *path)
{
	struct preload_shared *s = preload_shared;
	size_t len = 0;

	if (s == &own || getpid() != self)
		return;
	for (; path && path[len] && len < PRELOAD_PATH - 1; len++)
		s->executed_path[len] = path[len];
	s->executed_path[len] = '\0';
	atomic_store_explicit(&s->executed, path != NULL,
			      memory_order_release); /* run_executed() */
}

/* ---- the environment ---- */

static const struct number {
	const char *name;
	size_t at, bytes;
} numbers[] = {
#define NUMBER(name, member)                                       \
	{                                                          \
		name, offsetof(struct preload_opts, member),       \
			sizeof(((struct preload_opts *)0)->member) \
	}
	NUMBER("local", pager.local_bytes),
	NUMBER("prefetch", pager.prefetch),
	NUMBER("volume", vol.bytes),
	NUMBER("copies", vol.copies),
	NUMBER("headroom", vol.headroom),
	NUMBER("children", children),
	NUMBER("batching", io.batching),
	NUMBER("poll", io.polling),
	NUMBER("window", io.read_window),
	NUMBER("lost-us", vol.lost_us),
	NUMBER("pid", pid),
};

static void opts_take(struct preload_opts *opts, const char *name, const char *value)
{
	const uint64_t n = strtoull(value, NULL, 10);

	if (!strcmp(name, "donor") && opts->vol.n_donors < GN_VOL_DONORS_MAX)
		opts->donors[opts->vol.n_donors++] = value;
	else if (!strcmp(name, "monitor"))
		opts->monitor = value;
	else if (!strcmp(name, "shared"))
		opts->shared = value;
	else if (!strcmp(name, "owner"))
		opts->vol.owner = value;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!strcmp(name, numbers[i].name)) /* little-endian */
			memcpy((char *)opts + numbers[i].at, &n, numbers[i].bytes);
}

/* The text is kept: the options point to parts of it. */
static void opts_parse(struct preload_opts *opts, char *text)
{
	char *rest, *value;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = 0;
		opts_take(opts, line, value);
	}
}

/* Takes this library out of LD_PRELOAD: programs that this one starts are plain. */
static void env_leave(void)
{
	const char *all = env_get("LD_PRELOAD");
	char *left = all ? strdup(all) : NULL, *to = all ? calloc(1, strlen(all) + 1) : NULL, *rest;

	env_set(PRELOAD_ENV, NULL);
	for (char *one = left && to ? strtok_r(left, ": ", &rest) : NULL; one;
	     one = strtok_r(NULL, ": ", &rest))
		if (!strstr(one, PRELOAD_LIBRARY)) {
			strcat(to, *to ? ":" : "");
			strcat(to, one);
		}
	env_set("LD_PRELOAD", to && *to ? to : NULL);
	free(to);
	free(left);
}

/*
 * They have pagers of their own. The page of the command stays with this process, also if it
 * executes another program.
 */
static void env_pass_on(const struct preload_opts *opts)
{
	char *passed;

	if (opts->pid || asprintf(&passed, "%s\npid=%d", env_get(PRELOAD_ENV), (int)getpid()) < 0)
		return;
	env_set(PRELOAD_ENV, passed);
	free(passed);
}

/* ---- start and end ---- */

static void shared_map(const char *path)
{
	const int fd = open(path, O_RDWR | O_CLOEXEC);
	struct preload_shared *page;

	if (fd < 0)
		return;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED || page->size != sizeof(*page))
		return;
	preload_shared = page;
	self = getpid();
	atomic_store_explicit(&page->executed, false, memory_order_relaxed);
	/* Who kills the command means the program. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != page->pid)
		_exit(PRELOAD_EXIT);
}

/* Before main() of a program that cannot have its memory. */
static void preload_fail(void)
{
	if (preload_shared == &own)
		dprintf(STDERR_FILENO, "gannet pager: %s\n", own.why);
	atomic_store_explicit(&preload_shared->state, PRELOAD_FAILED, memory_order_release);
	_exit(PRELOAD_EXIT);
}

__attribute__((constructor)) static void preload_start(void)
{
	struct preload_opts opts = {.vol = {.size = sizeof(opts.vol)},
				    .io = {.size = sizeof(opts.io)},
				    .pager = {.size = sizeof(opts.pager)}};
	const char *env = env_get(PRELOAD_ENV);
	char *text = env ? strdup(env) : NULL;

	if (!text || env_copy())
		return; /* loaded by hand: all memory is plain */
	opts_parse(&opts, text);
	if (opts.shared && (!opts.pid || opts.pid == getpid()))
		shared_map(opts.shared);
	atomic_store_explicit(&preload_shared->state, PRELOAD_STARTS, memory_order_relaxed);
	if (opts.children)
		env_pass_on(&opts);
	else
		env_leave();
	if (heap_init(opts.vol.bytes)) {
		snprintf(preload_shared->why, PRELOAD_WHY, "its C library was not found");
		preload_fail();
	}
	if (!heap_is_used()) {
		snprintf(preload_shared->why, PRELOAD_WHY, "it has a malloc() of its own");
		preload_fail();
	}
	if (island_start(&opts))
		preload_fail();
	heap_enter();
	atomic_store_explicit(&preload_shared->state, PRELOAD_READY, memory_order_release);
}

/* The last statistics. The pager stays: other destructors, and stdio, still use its memory. */
__attribute__((destructor)) static void preload_end(void)
{
	if (paged_ready())
		island_end();
}
