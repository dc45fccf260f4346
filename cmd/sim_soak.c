/* SPDX-License-Identifier: MIT */
#include "cmd.h"

int cmd_sim_soak(int argc, char **argv)
{
	(void)argc;
	return cmd_usage_error("sim %s is being written", argv[0]);
}
