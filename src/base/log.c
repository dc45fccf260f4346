/* SPDX-License-Identifier: MIT */
/*
 * The log. Each line is one write(2), so lines of threads and processes never mix. Control
 * characters become spaces: bytes from a peer cannot start a new line or control a terminal.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "gannet/base.h"

#define LINE_MAX_BYTES 1024 /* longer lines are cut off */
#define LEVEL_UNSET    (-1)

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

static void log_to_stderr(enum gn_log_level level, const char *line)
{
	char out[LINE_MAX_BYTES + 32];
	int len = snprintf(out, sizeof(out), "gannet: %s: %s\n", level_names[level], line);

	/* A failed write to the log cannot be reported anywhere. */
	while (write(STDERR_FILENO, out, (size_t)len) < 0 && errno == EINTR)
		;
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
