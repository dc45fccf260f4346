/* SPDX-License-Identifier: MIT */
/*
 * gannet sim: clusters in virtual time. Finds the second word and calls it.
 */
#include <stddef.h>

#include "cmd.h"

static const struct cmd_word words[] = {
	{"calibrate", cmd_sim_calibrate, "run the papers' microbenchmarks and compare"},
	{"reproduce", cmd_sim_reproduce, "run the papers' own systems, as built here, and compare"},
	{"figures", cmd_sim_figures, "run the papers' figures, whole curves, for gannet report"},
	{"soak", cmd_sim_soak, "random programs under random faults, checked; many seeds"},
	{"profile", cmd_sim_profile, "the network cards there are, and what is known of each"},
	{NULL, NULL, NULL},
};

static const struct cmd_group group = {
	.name = "sim",
	.about = "Clusters of machines and their network cards in virtual time, for the real code.",
	.more = "",
	.words = words,
};

int cmd_sim(int argc, char **argv)
{
	return cmd_second_word(argc, argv, &group);
}
