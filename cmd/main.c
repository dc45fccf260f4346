/* SPDX-License-Identifier: MIT */
/*
 * gannet: the tree of commands.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <gannet/base.h>

#include "bench.h"
#include "cmd.h"
#include "command.h"

static int help_run(const struct args *args);
static int version_run(const struct args *args);
static int main_child(int argc, char **argv);
static int main_complete(int argc, char **argv);

static const struct command command_of_help = {
	.name = "help",
	.what = "this text, or gannet help COMMAND: that command's",
	.about = "Explains a command, as gannet COMMAND --help does.",
	.run = help_run,
	.words = "[COMMAND…]",
	.max_words = 2,
};

#define RAW(name_, run_) (&(const struct command){.name = (name_), .raw = (run_)})

static const struct command *const commands[] = {
	&command_demo,
	&command_doctor,
	&command_bench,
	&command_rpc,
	&command_kv,
	&command_donor,
	&command_vol,
	&command_pager,
	&command_sim,
	&command_advise,
	&command_of_help,
	&(const struct command){.name = "--version", .run = version_run},
	/* For gannet itself, and for the shell. */
	RAW("--complete", main_complete),
	RAW("--child", main_child),
	RAW("--bench-load", cmd_bench_load_peer),
	RAW("--bench-count", cmd_bench_count_peer),
	NULL,
};

static const struct command root = {
	.about = "Remote memory and messages at the speed of the network card, or without one.",
	.more = "gannet --version prints the version. GANNET_LOG=error|warn|info|debug sets how "
		"much is logged on stderr.",
	.commands = commands,
};

static int help_run(const struct args *args)
{
	return command_help(&root, args->n_words, args->words);
}

static int main_complete(int argc, char **argv)
{
	const int first = argc > 2 && !strcmp(argv[1], "help") ? 2 : 1; /* what it is asked about */

	return command_complete(&root, argc - first, argv + first);
}

static int version_run(const struct args *args)
{
	(void)args;
	printf("gannet %s\n", gn_version());
	return cmd_flush_stdout();
}

/* A command that gannet itself has started, and that does not outlive it. */
static int main_child(int argc, char **argv)
{
	if (argc < 3 || bench_die_with_parent(argv[1]))
		return cmd_usage_error("--child is for gannet itself");
	return command_run(&root, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write that fails, not the end */
	if (argc < 2) {
		command_help(&root, 0, NULL);
		return EXIT_USAGE;
	}
	return command_run(&root, argc - 1, argv + 1);
}
