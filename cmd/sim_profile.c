/* SPDX-License-Identifier: MIT */
/*
 * gannet sim profile: the built-in network cards, as the text that a file of one's own would have.
 */
#include <stdio.h>
#include <string.h>

#include <gannet/sim.h>

#include "cmd.h"

static int help(void)
{
	puts("Usage: gannet sim profile [NAME]\n"
	     "\n"
	     "Without NAME: the profiles there are, one a line. With it: the profile's text, each\n"
	     "value with its source beside it. To describe another card, save the text of the\n"
	     "nearest one, change it, and give the file's name, with a '/' in it, wherever a\n"
	     "profile is asked for:\n"
	     "\n"
	     "  gannet sim profile cx3 >./mine.nic\n"
	     "  gannet bench sim --profile ./mine.nic");
	return cmd_flush_stdout();
}

int cmd_sim_profile(int argc, char **argv)
{
	const char *text;

	if (argc > 2)
		return cmd_usage_error("sim profile takes one name at most");
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return help();
	if (argc == 1) {
		for (unsigned i = 0; gn_sim_profile_name(i); i++)
			puts(gn_sim_profile_name(i));
		return cmd_flush_stdout();
	}
	text = gn_sim_profile_text(argv[1]);
	if (!text)
		return cmd_usage_error("there is no profile '%s'; gannet sim profile lists them",
				       argv[1]);
	fputs(text, stdout);
	return cmd_flush_stdout();
}
