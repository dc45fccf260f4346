/* SPDX-License-Identifier: MIT */
/* What the commands of gannet donor share. */
#ifndef GN_CMD_DONOR_H
#define GN_CMD_DONOR_H

#include <stddef.h>
#include <stdio.h>

#include <gannet/donor.h>

#include "cmd.h"
#include "command.h"

extern const struct command command_donor_list, command_donor_serve, command_donor_stats;

/* ---- a connection without a session (donor.c) ---- */

struct donor_target {
	const char *addr;
	uint32_t timeout_ms;
};

#define DONOR_TARGET_DEFAULT        \
	{                           \
		.timeout_ms = 5000, \
	}
extern const struct opt donor_target_options[];
#define OPT_DONOR_TARGET(struct_, member)                                                         \
	{                                                                                         \
		.type = OPT_TABLE, .to = offsetof(struct_, member), .table = donor_target_options \
	}

struct donor_link {
	const struct donor_target *target;
	struct gn_fabric *fabric;
	struct gn_donor *donor;
	uint64_t deadline_ns;
};

/* -errno, and the reason is printed. */
int donor_link_open(struct donor_link *link, const struct donor_target *target);
/* Closes the link and prints why rc is not 0: the exit status. */
int donor_link_end(struct donor_link *link, int rc);

/* ---- statistics (donor_stats.c) ---- */

/* All members but the brace and addresses: "name":1,"other":2 */
void donor_stats_print_json(const struct gn_donor_stats *stats, FILE *to);
/* For Prometheus, as snprintf(): the length of the text. */
size_t donor_stats_prometheus(const struct gn_donor_stats *stats, char *buf, size_t room);

#endif
