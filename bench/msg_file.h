/* SPDX-License-Identifier: MIT */
/*
 * A file of results, a JSON object a line, to which whole lines are added: what is in it already
 * need not be measured again. One process at a time has it.
 */
#ifndef GN_BENCH_MSG_FILE_H
#define GN_BENCH_MSG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "bench.h"

struct result_file {
	const char *path;
	int fd;
	unsigned n;   /* points that are in it */
	char **known; /* their identities, in order */
};

/*
 * Opens or makes it, and looks at all its lines. -EINVAL and why, one line: it cannot be opened, is
 * in use, or is not ours, and nothing of it was changed. *cut: it ended in half a line, which is
 * gone now. path must outlive it.
 */
int result_file_open(struct result_file *file, const char *path, bool *cut,
		     char why[BENCH_WHY_MAX]);
/* Is this point in it? As bench_msg_identity() has it. */
bool result_file_has(const struct result_file *file, const char *identity);
/* A line with its end, all of it or nothing, on the disk when it returns. -errno. */
int result_file_add(struct result_file *file, const char *line);
void result_file_close(struct result_file *file);

#endif
