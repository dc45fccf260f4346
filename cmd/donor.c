/* SPDX-License-Identifier: MIT */
/* gannet donor, and what its commands share: a connection to a running donor. */
#include <stdlib.h>

#include "donor_cmd.h"
#include "rpc_cmd.h"

#define TIMEOUT_MS_MAX 3600000u
#define DONOR_COMMAND  "gannet donor serve"

static const struct command *const donor_commands[] = {
	&command_donor_serve,
	&command_donor_list,
	&command_donor_stats,
	NULL,
};

const struct command command_donor = {
	.name = "donor",
	.what = "memory for others: gannet donor serve, list, stats",
	.about = "Lends memory to other machines, which read and write it without this one's "
		 "processor; gannet/donor.h and gannet/io.h have it for programs.",
	.commands = donor_commands,
};

const struct opt donor_target_options[] = {
	OPT_SERVER(struct donor_target, addr),
	{OPT_U32, "timeout-ms", "N", "to connect, and for the answer",
	 .to = offsetof(struct donor_target, timeout_ms), RANGE(1, TIMEOUT_MS_MAX)},
	{.type = OPT_END},
};

int donor_link_open(struct donor_link *link, const struct donor_target *target)
{
	const struct gn_donor_opts opts = {.size = sizeof(opts),
					   .timeout_us = target->timeout_ms * 1000u};
	int rc;

	*link = (struct donor_link){.target = target,
				    .deadline_ns =
					    gn_deadline_us((uint64_t)target->timeout_ms * 1000)};
	rc = rpc_open(target->addr, &link->fabric);
	if (rc)
		return rc;
	rc = gn_donor_connect(link->fabric, NULL, target->addr, &opts, &link->donor);
	if (rc) {
		cmd_connect_failed(target->addr, rc, DONOR_COMMAND);
		gn_fabric_close(link->fabric);
	}
	return rc;
}

int donor_link_end(struct donor_link *link, int rc)
{
	if (rc)
		cmd_connect_failed(link->target->addr, rc, DONOR_COMMAND);
	gn_donor_close(link->donor, 0);
	gn_fabric_close(link->fabric);
	return rc ? EXIT_FAILURE : cmd_flush_stdout();
}
