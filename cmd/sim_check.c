/* SPDX-License-Identifier: MIT */
/*
 * A profile or faults from the command line are tried on a cluster that never runs, so that what is
 * wrong with them is said once and in the library's own words.
 */
#include <stdio.h>
#include <string.h>

#include <gannet/sim.h>

#include "cmd.h"

#define WHY_MAX 512u

/* The first error, without the name of the library's part. */
static void keep_line(void *arg, enum gn_log_level level, const char *line)
{
	static const char part[] = "sim: ";
	char *to = arg;

	if (level != GN_LOG_ERROR || *to)
		return;
	if (!strncmp(line, part, strlen(part)))
		line += strlen(part);
	snprintf(to, WHY_MAX, "%s", line);
}

int cmd_sim_check(const struct gn_sim_opts *opts)
{
	char why[WHY_MAX] = "";
	struct gn_sim *sim;
	int rc;

	gn_log_to(keep_line, why);
	rc = gn_sim_create(opts, &sim);
	gn_log_to(NULL, NULL);
	if (rc)
		return cmd_usage_error("%s", *why ? why : gn_strerror(rc));
	gn_sim_destroy(sim);
	return 0;
}
