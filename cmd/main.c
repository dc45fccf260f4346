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

struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what; /* NULL: not for people */
};

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);
static int cmd_child(int argc, char **argv);

static const struct subcommand subcommands[] = {
	{"demo", cmd_demo, "a key-value store at work, over shared memory, in 20 seconds"},
	{"doctor", cmd_doctor, "which providers work here, and what the others lack"},
	{"bench", cmd_bench, "measure: gannet bench fabric, rpc, kv, msg, sim, socket"},
	{"rpc", cmd_rpc, "calls by hand: gannet rpc serve, call, ping, stats, tune"},
	{"kv", cmd_kv, "a key-value store: gannet kv serve, get, set, del, flush, stats"},
	{"sim", cmd_sim, "clusters in virtual time: gannet sim calibrate, figures, soak, profile"},
	{"report", cmd_report, "the papers' figures as a page, from files of results"},
	{"advise", cmd_advise, "which protocol is best for a cluster, simulated"},
	{"help", cmd_help, "this text"},
	{"--help", cmd_help, NULL},
	{"-h", cmd_help, NULL},
	{"--version", cmd_version, NULL},
	{"--bench-peer", cmd_bench_peer, NULL},
	{"--bench-rpc", cmd_bench_rpc_peer, NULL},
	{"--bench-kv", cmd_bench_kv_peer, NULL},
	{"--bench-msg", cmd_bench_msg_peer, NULL},
	{"--bench-count", cmd_bench_count_peer, NULL},
	{"--child", cmd_child, NULL},
};

#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

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
	(void)argc;
	(void)argv;
	puts("Usage: gannet COMMAND [OPTION…]\n"
	     "\n"
	     "Remote memory and messages at the speed of the network card, or without one.\n");
	for (size_t i = 0; i < SUBCOMMANDS; i++) {
		if (subcommands[i].what)
			printf("  %-8s %s\n", subcommands[i].name, subcommands[i].what);
	}
	puts("\n"
	     "gannet COMMAND --help explains a command, gannet --version prints the version.\n"
	     "GANNET_LOG=error|warn|info|debug sets how much is logged on stderr.");
	return cmd_flush_stdout();
}

static int cmd_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("gannet %s\n", gn_version());
	return cmd_flush_stdout();
}

static int dispatch(int argc, char **argv)
{
	for (size_t i = 0; i < SUBCOMMANDS; i++) {
		if (!strcmp(argv[0], subcommands[i].name))
			return subcommands[i].run(argc, argv);
	}
	return cmd_usage_error("unknown command '%s'; try gannet help", argv[0]);
}

/* A command that gannet itself has started, and that does not outlive it. */
static int cmd_child(int argc, char **argv)
{
	if (argc < 3 || bench_die_with_parent(argv[1]))
		return cmd_usage_error("--child is for gannet itself");
	return dispatch(argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write that fails, not the end */
	if (argc < 2) {
		cmd_help(0, NULL);
		return EXIT_USAGE;
	}
	return dispatch(argc - 1, argv + 1);
}
