/* SPDX-License-Identifier: MIT */
/* What the parts of gannet pager share. */
#ifndef GN_CMD_PAGER_H
#define GN_CMD_PAGER_H

#include <stddef.h>
#include <stdio.h>

#include <gannet/pager.h>

#include "cmd.h"
#include "command.h"

extern const struct command command_pager_run;

/* ---- statistics (pager_stats.c) ---- */

/* A block of lines for people. */
void pager_stats_print(const struct gn_pager_stats *stats, FILE *to);
/* One line: what happened in the seconds between before and now. */
int pager_stats_line(const struct gn_pager_stats *before, const struct gn_pager_stats *now,
		     double seconds, char *buf, size_t room);
/* All members but the brace: "name":1,"other":2 */
void pager_stats_print_json(const struct gn_pager_stats *stats, FILE *to);
/* For Prometheus, as snprintf(): the length of the text. */
size_t pager_stats_prometheus(const struct gn_pager_stats *stats, char *buf, size_t room);

/* ---- the program (pager_program.c) ---- */

/* Whether a library can be loaded into the program: 0, or -errno after an error message. */
int pager_program_check(const char *command);
/* The path of the library, or -ENOENT after an error message. */
int pager_program_library(char *path, size_t room);

#endif
