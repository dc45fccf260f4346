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

static const struct cmd_word words[] = {
	{"fabric", cmd_bench_fabric, "writes, reads, atomics and messages between two processes"},
	{"rpc", cmd_bench_rpc, "calls between a server and its clients"},
	{"kv", cmd_bench_kv, "GETs and PUTs at a key-value store"},
	{"msg", cmd_bench_msg, "message passing protocols in three topologies, also simulated"},
	{"sim", cmd_bench_sim, "events per second of the simulator, on a cluster of READs"},
	{"socket", cmd_bench_socket, "memcached, Redis and gannet kv proxy under one load"},
	{NULL, NULL, NULL},
};

static const struct cmd_group group = {
	.name = "bench",
	.about = "Measures what this machine can do, with and without the library.",
	.more = "",
	.words = words,
};

int cmd_bench(int argc, char **argv)
{
	return cmd_second_word(argc, argv, &group);
}

/* ---- what benchmarks with a server share ---- */

#define PROGRESS_COLUMNS 20
#define COUNT_SEED	 1u

int bench_check_provider(const char *text)
{
	return strcmp(text, "shm") ? cmd_usage_error("--provider must be shm, not '%s'", text) : 0;
}

int bench_parse_dist(const char *text, double *zipf)
{
	*zipf = 0;
	if (!strcmp(text, "uniform"))
		return 0;
	if (strncmp(text, "zipf:", 5))
		return cmd_usage_error("--dist must be uniform or zipf:S, not '%s'", text);
	return cmd_real("the S of --dist zipf:S", text + 5, 0.01, CHOICE_ZIPF_MAX, zipf);
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
