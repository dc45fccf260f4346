/* SPDX-License-Identifier: MIT */
/*
 * gannet kv: finds the second word and calls it.
 */
#include <stdio.h>
#include <string.h>

#include "kv_cmd.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} commands[] = {
	{"serve", cmd_kv_serve, "a server that holds keys and values in memory"},
	{"get", cmd_kv_get, "print values"},
	{"set", cmd_kv_set, "store a value"},
	{"del", cmd_kv_del, "delete keys"},
	{"flush", cmd_kv_flush, "have a server forget everything"},
	{"proxy", cmd_kv_proxy, "memcached's protocols, for programs that speak them"},
	{"stats", cmd_kv_stats, "what a running server holds and has counted"},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(void)
{
	puts("Usage: gannet kv COMMAND [OPTION…]\n"
	     "\n"
	     "A key-value store whose clients fetch; gannet/kv.h has it for programs.\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].what);
	puts("\n"
	     "Keys have 1 to 250 bytes, values up to 1 MiB. What was used least recently is\n"
	     "forgotten when memory is short, and everything when the server ends.\n"
	     "gannet kv COMMAND --help explains a command.");
	return cmd_flush_stdout();
}

int cmd_kv(int argc, char **argv)
{
	if (argc < 2)
		return cmd_usage_error("kv what? Try gannet kv --help");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help();
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	return cmd_usage_error("kv '%s' is not known; try gannet kv --help", argv[1]);
}
