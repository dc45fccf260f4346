/* SPDX-License-Identifier: MIT */
/*
 * gannet: finds the subcommand and calls it.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/base.h>

#include "bench.h"
#include "cmd.h"
#include "command.h"

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);
static int cmd_child(int argc, char **argv);
static int cmd_complete(int argc, char **argv);

#define RAW(name_, run_, what_) (&(const struct command){.name = (name_), .raw = (run_), .what = (what_)})

static const struct command *const commands[] = {
	RAW("demo", cmd_demo, "a key-value store at work, over shared memory, in 20 seconds"),
	RAW("doctor", cmd_doctor, "which providers work here, and what the others lack"),
	RAW("bench", cmd_bench, "measure: gannet bench fabric, rpc, kv, msg, sim, socket"),
	&command_rpc,
	RAW("kv", cmd_kv, "a key-value store: gannet kv serve, get, set, del, flush, stats"),
	RAW("sim", cmd_sim, "clusters in virtual time: gannet sim calibrate, figures, soak, profile"),
	RAW("report", cmd_report, "the papers' figures as a page, from files of results"),
	RAW("advise", cmd_advise, "which protocol is best for a cluster, simulated"),
	RAW("help", cmd_help, "this text, or gannet help COMMAND: that command's"),
	RAW("--help", cmd_help, NULL),
	RAW("-h", cmd_help, NULL),
	RAW("--version", cmd_version, NULL),
	RAW("--complete", cmd_complete, NULL),
	RAW("--bench-peer", cmd_bench_peer, NULL),
	RAW("--bench-rpc", cmd_bench_rpc_peer, NULL),
	RAW("--bench-kv", cmd_bench_kv_peer, NULL),
	RAW("--bench-msg", cmd_bench_msg_peer, NULL),
	RAW("--bench-count", cmd_bench_count_peer, NULL),
	RAW("--child", cmd_child, NULL),
	NULL,
};

static const struct command root = {
	.about = "Remote memory and messages at the speed of the network card, or without one.",
	.more = "gannet --version prints the version. GANNET_LOG=error|warn|info|debug sets how much "
		"is logged on stderr.",
	.commands = commands,
};

int cmd_usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("gannet: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	return EXIT_USAGE;
}

const char *cmd_why(int rc)
{
	return *gn_error() ? gn_error() : gn_strerror(rc);
}

void cmd_connect_failed(const char *addr, int rc, const char *advice)
{
	const char *why = cmd_why(rc);

	if (strstr(why, addr))
		fprintf(stderr, "gannet: %s%s\n", why, advice);
	else
		fprintf(stderr, "gannet: cannot connect to %s: %s%s\n", addr, why, advice);
}

int cmd_flush_stdout(void)
{
	if (fflush(stdout))
		fprintf(stderr, "gannet: cannot write to stdout: %s\n", strerror(errno));
	else if (ferror(stdout)) /* and what was the cause is forgotten */
		fputs("gannet: cannot write to stdout\n", stderr);
	else
		return 0;
	return EXIT_FAILURE;
}

int cmd_option_of(int argc, char **argv, const struct option *options, const char *help,
		  const char *command, int words, int *status)
{
	int option;

	opterr = 0;
	option = getopt_long(argc, argv, ":h", options, NULL);
	if (option == 'h') {
		puts(help);
		*status = cmd_flush_stdout();
	} else if (option == ':') {
		*status = cmd_usage_error("%s needs a value", argv[optind - 1]);
	} else if (option == '?') {
		*status = cmd_usage_error("unknown option '%s'; try gannet %s --help",
					  argv[optind - 1], command);
	} else if (option == -1 && argc - optind > words) {
		*status = cmd_usage_error("'%s' is one too many; try gannet %s --help",
					  argv[optind + words], command);
	} else {
		return option;
	}
	return CMD_LEAVE;
}

int cmd_option(int argc, char **argv, const struct option *options, const char *help,
	       const char *command, int *status)
{
	return cmd_option_of(argc, argv, options, help, command, 0, status);
}

static int cmd_help(int argc, char **argv)
{
	return command_help(&root, argc - 1, argv + 1);
}

static int cmd_complete(int argc, char **argv)
{
	return command_complete(&root, argc - 1, argv + 1);
}

static int cmd_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("gannet %s\n", gn_version());
	return cmd_flush_stdout();
}

/* A command that gannet itself has started, and that does not outlive it. */
static int cmd_child(int argc, char **argv)
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
