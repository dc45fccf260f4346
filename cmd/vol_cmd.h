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

/* ---- options of commands that make a volume (vol_donors.c) ---- */

struct vol_donors {
	const char *addr[GN_VOL_DONORS_MAX];
	uint32_t n;
};

/* For OPT_OTHER: one more address, into a struct vol_donors. */
int vol_take_donor(const char *name, const char *text, void *to);
/* Are they all different, of one provider, and enough for so many copies? 0 or EXIT_USAGE. */
int vol_donors_check(const struct vol_donors *donors, uint32_t copies);

#define OPT_VOL_DONORS(s, member)                                                             \
	{                                                                                     \
		.type = OPT_OTHER, .name = "donor", .arg = "ADDR", .to = offsetof(s, member), \
		.take = vol_take_donor, .required = true,                                     \
		.help = "shm:NAME or verbs:HOST:PORT; several times for several"              \
	}
#define OPT_VOL_HEADROOM(s, member)                                                         \
	{                                                                                   \
		.type = OPT_U64, .name = "headroom", .arg = "N", .to = offsetof(s, member), \
		.unset = "all memory at the start", RANGE(1, GN_VOL_SIZE_MAX),              \
		.help = "get memory as it is written, and hold so much in reserve"          \
	}
#define OPT_VOL_MONITOR(s, member)                                                              \
	{                                                                                       \
		.type = OPT_OTHER, .name = "monitor", .arg = "ADDR", .to = offsetof(s, member), \
		.take = cmd_take_addr, .unset = "", .help = "where gannet vol status can ask"   \
	}

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
