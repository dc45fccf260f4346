/* SPDX-License-Identifier: MIT */
/* gannet vol: finds the second word and calls it. */
#include "vol_cmd.h"

static const struct command *const vol_commands[] = {
	&command_vol_nbd,
	&command_vol_status,
	&command_vol_bench,
	NULL,
};

const struct command command_vol = {
	.name = "vol",
	.what = "volumes in the memory of several donors: gannet vol nbd, status, bench",
	.about = "Volumes: a range of bytes with copies on different donors, which survives the "
		 "loss of a donor; gannet/vol.h has them for programs.",
	.more = "A volume lives as long as the process that made it.",
	.commands = vol_commands,
};
