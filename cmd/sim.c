/* SPDX-License-Identifier: MIT */
/*
 * gannet sim: clusters in virtual time; gannet sim profile, the built-in network cards.
 */
#include <stdio.h>

#include <gannet/sim.h>

#include "cmd.h"
#include "command.h"

/* ---- profile ---- */

static int sim_profile_run(const struct args *args)
{
	const char *text;

	if (!args->n_words) {
		for (unsigned i = 0; gn_sim_profile_name(i); i++)
			puts(gn_sim_profile_name(i));
		return cmd_flush_stdout();
	}
	text = gn_sim_profile_text(args->words[0]);
	if (!text)
		return cmd_usage_error("there is no profile '%s'; gannet sim profile lists them",
				       args->words[0]);
	fputs(text, stdout);
	return cmd_flush_stdout();
}

static const struct command command_sim_profile = {
	.name = "profile",
	.what = "the network cards there are, and what is known of each",
	.about = "Without NAME: the profiles there are, one a line. With it: the profile's text, "
		 "each value with its source beside it. To describe another card, save the text of "
		 "the nearest one, change it, and give the file's name, with a '/' in it, wherever "
		 "a profile is asked for:",
	.more = "  gannet sim profile cx3 >./mine.nic\n"
		"  gannet bench sim --profile ./mine.nic",
	.run = sim_profile_run,
	.words = "[NAME]",
	.max_words = 1,
};

static const struct command *const sim_commands[] = {
	&command_sim_profile,
	NULL,
};

const struct command command_sim = {
	.name = "sim",
	.what = "network cards for clusters in virtual time: gannet sim profile",
	.about = "Clusters of machines and their network cards in virtual time, for the real code.",
	.commands = sim_commands,
};
