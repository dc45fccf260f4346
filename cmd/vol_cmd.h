/* SPDX-License-Identifier: MIT */
/* What the commands of gannet vol share. */
#ifndef GN_CMD_VOL_H
#define GN_CMD_VOL_H

#include <stddef.h>
#include <stdio.h>

#include <gannet/vol.h>

#include "cmd.h"
#include "command.h"

extern const struct command command_vol_bench, command_vol_nbd, command_vol_status;

/* ---- the state of a volume (vol_stats.c) ---- */

/* "healthy", "moving", "degraded" or "lost". */
const char *vol_stats_state(const struct gn_vol_stats *stats);
/* One sentence for people: what is missing, and how far repair is. */
void vol_stats_words(const struct gn_vol_stats *stats, FILE *to);
/* … and the size, and a line for each donor. */
void vol_stats_print(const struct gn_vol_stats *stats, FILE *to);
/* The sentence, and a line for each donor whose state is another one than before. */
void vol_stats_print_changes(const struct gn_vol_stats *before, const struct gn_vol_stats *stats,
			     FILE *to);
/* All members but the brace: "name":1,"other":2 */
void vol_stats_print_json(const struct gn_vol_stats *stats, FILE *to);
/* For Prometheus, as snprintf(): the length of the text. */
size_t vol_stats_prometheus(const struct gn_vol_stats *stats, char *buf, size_t room);

#endif
