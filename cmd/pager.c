/* SPDX-License-Identifier: MIT */
/* gannet pager: finds the second word and calls it. */
#include "pager_cmd.h"

static const struct command *const pager_commands[] = {
	&command_pager_run,
	NULL,
};

const struct command command_pager = {
	.name = "pager",
	.what = "more memory for programs: gannet pager run",
	.about = "Remote paging: a part of a program's memory is local, the rest is with donors; "
		 "gannet/pager.h has it for programs that know of it.",
	.commands = pager_commands,
};
