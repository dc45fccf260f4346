/* SPDX-License-Identifier: MIT */
/*
 * gannet bench: which benchmark, what they share, and the processes that they start.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_cmd.h"
#include "choice.h"
#include "cmd.h"
#include "kv.h"
#include "msg.h"
#include "rpc.h"

static const struct command *const bench_commands[] = {
	&command_bench_fabric,
	&command_bench_rpc,
	&command_bench_kv,
	&command_bench_msg,
	&command_bench_sim,
	&command_bench_socket,
	NULL,
};

const struct command command_bench = {
	.name = "bench",
	.what = "measure: gannet bench fabric, rpc, kv, msg, sim, socket",
	.about = "Measures what this machine can do, with and without the library.",
	.commands = bench_commands,
};

/* ---- what benchmarks with a server share ---- */

#define PROGRESS_COLUMNS 20
#define COUNT_SEED	 1u

const char *const bench_shm_only[] = {"shm", NULL};

const struct opt bench_output_options[] = {
	{OPT_FLAG, "json", NULL, "one object a line", .to = offsetof(struct bench_output, json)},
	{OPT_FLAG, "instructions", NULL, "counted by callgrind, instead of time",
	 .to = offsetof(struct bench_output, instructions)},
	{OPT_TEXT, "callgrind", "F", "keeps the profile of --instructions in F",
	 .to = offsetof(struct bench_output, callgrind)},
	{OPT_END},
};

int bench_take_dist(const char *name, const char *text, void *to)
{
	double *zipf = to;

	*zipf = 0;
	if (!strcmp(text, "uniform"))
		return 0;
	if (strncmp(text, "zipf:", 5))
		return cmd_usage_error("%s must be uniform or zipf:S, not '%s'", name, text);
	return cmd_real("the S of --dist zipf:S", text + 5, 0.01, CHOICE_ZIPF_MAX, zipf);
}

int bench_check_provider(const char *provider, const char *host)
{
	const bool verbs = !strcmp(provider, "verbs") || !strncmp(provider, "verbs:", 6);

	if (!verbs && strcmp(provider, "shm"))
		return cmd_usage_error("--provider must be shm, verbs or verbs:DEVICE, not '%s'",
				       provider);
	if (verbs && !*host)
		return cmd_usage_error("verbs needs --addr HOST, this machine's address on the "
				       "RDMA network");
	if (!verbs && *host)
		return cmd_usage_error("--addr is for verbs; shm needs none");
	return 0;
}

void bench_begin(int cpus[2])
{
	bench_pick_cpus(cpus);
	if (cpus[0] == cpus[1])
		fprintf(stderr, "gannet: there is only one core for all processes: latencies are "
				"the scheduler's\n");
	bench_stop_on_signals();
}

/* A line that the result overwrites. */
static void show_progress(const struct bench_opts *opts, double done)
{
	(void)opts;
	fprintf(stderr, "\rcalls %3.0f %%", 100 * done);
}

bench_progress_fn *bench_progress(void)
{
	return isatty(STDERR_FILENO) ? show_progress : NULL;
}

int bench_end(int rc)
{
	if (bench_progress())
		fprintf(stderr, "\r%*s\r", PROGRESS_COLUMNS, "");
	if (rc == -EINTR || bench_stopped())
		return EXIT_INTERRUPTED;
	return rc ? EXIT_FAILURE : 0;
}

int bench_count(const struct count_opts *common, unsigned n, bench_vary_fn *vary,
		const void *request, bool json)
{
	struct count_result result;
	int rc = 0;

	bench_stop_on_signals();
	if (!json)
		count_print_head(stdout);
	for (unsigned i = 0; i < n && !rc; i++) {
		struct count_opts opts = *common;

		opts.fabric.seed = opts.rpc.seed = opts.kv.seed = COUNT_SEED;
		vary(&opts, i, request);
		rc = count_run(&opts, &result);
		if (!rc && json)
			count_print_json(stdout, &opts, &result);
		else if (!rc)
			count_print_row(stdout, &opts, &result);
	}
	if (rc == -EINTR)
		return EXIT_INTERRUPTED;
	return cmd_flush_stdout() || rc ? EXIT_FAILURE : 0;
}

/* ---- processes ---- */

static int be_peer(int argc, char **argv, int (*run)(void))
{
	if (argc != 2 || bench_die_with_parent(argv[1]))
		return cmd_usage_error("%s is for gannet itself", argv[0]);
	return run();
}

int cmd_bench_peer(int argc, char **argv)
{
	return be_peer(argc, argv, bench_peer_main);
}

int cmd_bench_rpc_peer(int argc, char **argv)
{
	return be_peer(argc, argv, bench_rpc_peer_main);
}

int cmd_bench_kv_peer(int argc, char **argv)
{
	return be_peer(argc, argv, bench_kv_peer_main);
}

int cmd_bench_msg_peer(int argc, char **argv)
{
	return be_peer(argc, argv, bench_msg_peer_main);
}

int cmd_bench_count_peer(int argc, char **argv)
{
	return be_peer(argc, argv, count_main);
}
