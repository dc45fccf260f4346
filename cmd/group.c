/* SPDX-License-Identifier: MIT */
/*
 * Commands of two words: finds the second, or lists what there is.
 */
#include <stdio.h>
#include <string.h>

#include "cmd.h"

static int help(const struct cmd_group *group)
{
	printf("Usage: gannet %s COMMAND [OPTION…]\n\n%s\n\n", group->name, group->about);
	for (const struct cmd_word *word = group->words; word->name; word++)
		printf("  %-10s %s\n", word->name, word->what);
	printf("\n%sgannet %s COMMAND --help explains a command.\n", group->more, group->name);
	return cmd_flush_stdout();
}

int cmd_second_word(int argc, char **argv, const struct cmd_group *group)
{
	if (argc < 2)
		return cmd_usage_error("%s what? Try gannet %s --help", group->name, group->name);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(group);
	for (const struct cmd_word *word = group->words; word->name; word++)
		if (!strcmp(argv[1], word->name))
			return word->run(argc - 1, argv + 1);
	return cmd_usage_error("%s '%s' is not known; try gannet %s --help", group->name, argv[1],
			       group->name);
}
