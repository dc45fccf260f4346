/* SPDX-License-Identifier: MIT */
/*
 * The log. Each line is one write(2), so lines of threads and processes never mix. Control
 * characters become spaces: bytes from a peer cannot start a new line or control a terminal.
 *
 * A thread that logs must not stop because nobody reads stderr (a pipe that is full): it may be the
 * one that finds another copy of memory that a program waits for. Then lines are lost, and counted.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "gannet/base.h"

#define LINE_MAX_BYTES 1024 /* longer lines are cut off */
#define LEVEL_UNSET    (-1)
#define STDERR_WAIT_MS 20 /* for a reader that is only slow; not again until it has read */

static const char *const level_names[] = {
	[GN_LOG_ERROR] = "error",
	[GN_LOG_WARN] = "warn",
	[GN_LOG_INFO] = "info",
	[GN_LOG_DEBUG] = "debug",
};

#define LEVELS ((int)(sizeof(level_names) / sizeof(level_names[0])))

static atomic_int threshold = LEVEL_UNSET;
static gn_log_fn *sink; /* NULL: stderr */
static void *sink_arg;

static int log_level_from_env(void)
{
	const char *name = getenv("GANNET_LOG");

	for (int i = 0; name && i < LEVELS; i++) {
		if (strcmp(name, level_names[i]) == 0)
			return i;
	}
	return GN_LOG_WARN;
}

static int log_level_now(void)
{
	int level = atomic_load_explicit(&threshold, memory_order_relaxed);

	if (unlikely(level == LEVEL_UNSET)) {
		int fresh = log_level_from_env();

		/* A concurrent gn_log_level_set() wins: level then holds its value. */
		if (atomic_compare_exchange_strong_explicit(
			    &threshold, &level, fresh, memory_order_relaxed, memory_order_relaxed))
			level = fresh;
	}
	return level;
}

void gn_log_level_set(enum gn_log_level level)
{
	atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void gn_log_to(gn_log_fn *fn, void *arg)
{
	sink = fn;
	sink_arg = arg;
}

static atomic_uint lines_lost; /* since the last line that was written */

/* Has stderr space for a line? A pipe that has any space has enough. */
static bool stderr_is_ready(void)
{
	const bool waits = !atomic_load_explicit(&lines_lost, memory_order_relaxed);
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&fd, 1, waits ? STDERR_WAIT_MS : 0) != 0;
}

static void log_write(enum gn_log_level level, const char *line)
{
	char out[LINE_MAX_BYTES + 32];
	int len = snprintf(out, sizeof(out), "gannet: %s: %s\n", level_names[level], line);

	/* A failed write to the log cannot be reported anywhere. */
	while (write(STDERR_FILENO, out, (size_t)len) < 0 && errno == EINTR)
		;
}

static void log_to_stderr(enum gn_log_level level, const char *line)
{
	char text[64];
	unsigned lost;

	if (!stderr_is_ready()) {
		atomic_fetch_add_explicit(&lines_lost, 1, memory_order_relaxed);
		return;
	}
	lost = atomic_exchange_explicit(&lines_lost, 0, memory_order_relaxed);
	if (lost) {
		snprintf(text, sizeof(text), "%u lines of the log were lost: nobody read stderr",
			 lost);
		log_write(GN_LOG_WARN, text);
		if (!stderr_is_ready()) {
			atomic_fetch_add_explicit(&lines_lost, 1, memory_order_relaxed);
			return;
		}
	}
	log_write(level, line);
}

void gn_log(enum gn_log_level level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	int saved_errno = errno;
	va_list ap;

	if ((int)level < 0 || (int)level >= LEVELS || (int)level > log_level_now())
		return;
	va_start(ap, fmt);
	if (vsnprintf(line, sizeof(line), fmt, ap) < 0)
		line[0] = '\0';
	va_end(ap);
	for (char *c = line; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
	}
	if (sink)
		sink(sink_arg, level, line);
	else
		log_to_stderr(level, line);
	errno = saved_errno;
}
