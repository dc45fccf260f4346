/* SPDX-License-Identifier: MIT */
/*
 * gannet sim: clusters in virtual time. Finds the second word and calls it.
 */
#include <stdio.h>
#include <string.h>

#include "cmd.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} commands[] = {
	{"calibrate", cmd_sim_calibrate, "run the papers' microbenchmarks and compare"},
	{"reproduce", cmd_sim_reproduce, "run the papers' own systems, as built here, and compare"},
	{"soak", cmd_sim_soak, "random programs under random faults, checked; many seeds"},
	{"profile", cmd_sim_profile, "the network cards there are, and what is known of each"},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(void)
{
	puts("Usage: gannet sim COMMAND [OPTION…]\n"
	     "\n"
	     "Clusters of machines and their network cards in virtual time, for the real code.\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-10s %s\n", commands[i].name, commands[i].what);
	puts("\ngannet sim COMMAND --help explains a command.");
	return cmd_flush_stdout();
}

int cmd_sim(int argc, char **argv)
{
	if (argc < 2)
		return cmd_usage_error("sim what? Try gannet sim --help");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help();
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	return cmd_usage_error("sim '%s' is not known; try gannet sim --help", argv[1]);
}
