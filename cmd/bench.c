/* SPDX-License-Identifier: MIT */
/*
 * gannet bench: which benchmark, what they share, and the processes that they start.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "bench_cmd.h"
#include "choice.h"
#include "cmd.h"
#include "kv.h"
#include "msg.h"
#include "procs.h"
#include "rpc.h"

static const struct command *const bench_commands[] = {
	&command_bench_fabric,
	&command_bench_rpc,
	&command_bench_kv,
	&command_bench_msg,
	&command_bench_dgram,
	&command_bench_io,
	&command_bench_pager,
	&command_bench_sim,
	&command_bench_socket,
	NULL,
};

const struct command command_bench = {
	.name = "bench",
	.what = "measure: gannet bench fabric, rpc, kv, msg, dgram, io, pager, sim, socket",
	.about = "Measures what this machine can do, with and without the library.",
	.commands = bench_commands,
};

/* ---- what benchmarks with a server share ---- */

#define PROGRESS_COLUMNS 20
#define COUNT_SEED	 1u

#define LOAD_AT(member) .to = offsetof(struct load_opts, member)

const struct opt bench_load_options[] = {
	{OPT_CHARS, "provider", "P", "shm, verbs, verbs:DEVICE, or sim",
	 OPT_ARRAY(struct load_opts, provider)},
	{OPT_CHARS, "addr", "HOST", "verbs: this machine's address on the RDMA network",
	 OPT_ARRAY(struct load_opts, host)},
	{OPT_REAL, "seconds", "S", "shm, verbs: to measure, not counting the limit next to it",
	 LOAD_AT(seconds), RANGE(0.01, LOAD_SECONDS_MAX)},
	{OPT_TEXT, "profile", "P", "sim: of the network cards, a name or a file with a '/'",
	 BENCH_PROFILE, LOAD_AT(profile)},
	{OPT_REAL, "effort", "E", "sim: how long to measure; 1 is as long as a figure needs",
	 LOAD_AT(effort), RANGE(0.001, 1000)},
	{OPT_CHOICE, "preset", "P", "gannet: the library's own way; paper: the papers' way",
	 LOAD_AT(paper), .choices = load_presets},
	{OPT_U64, "seed", "N", "of keys, values and a simulation", LOAD_AT(seed)},
	{.type = OPT_END},
};

int bench_check_load(const struct args *args, struct load_opts *o)
{
	static const char *const simulated[] = {"profile", "effort", "machines", NULL};
	const bool sim = !strcmp(o->provider, "sim");

	if (strncmp(o->provider, "verbs", 5) && strcmp(o->provider, "shm") && !sim)
		return cmd_usage_error("--provider must be shm, verbs, verbs:DEVICE or sim, not "
				       "'%s'",
				       o->provider);
	if (bench_check_provider(sim ? "shm" : o->provider, o->host))
		return EXIT_USAGE;
	for (unsigned i = 0; !sim && simulated[i]; i++)
		if (opt_given(args, simulated[i]))
			return cmd_usage_error("--%s is for --provider sim", simulated[i]);
	if (!sim)
		return 0;
	if (opt_given(args, "seconds instructions"))
		return cmd_usage_error("--provider sim takes --effort instead of %s",
				       opt_given(args, "seconds") ? "--seconds" : "--instructions");
	if (!o->profile)
		o->profile = BENCH_PROFILE;
	return cmd_sim_check(&(struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .profile = o->profile, .nodes = 1});
}

static int take_batch(const char *name, const char *text, void *to)
{
	uint32_t *batch = to;
	uint64_t n = 0;

	if (strcmp(text, "auto") != 0 && cmd_number(name, text, 1, LOAD_BATCH_MAX, &n))
		return EXIT_USAGE;
	*batch = (uint32_t)n;
	return 0;
}

const struct opt bench_calls_options[] = {
	{OPT_U32, "threads", "T", "of the server", LOAD_AT(threads), RANGE(1, LOAD_THREADS_MAX)},
	{OPT_U32, "machines", "M", "sim: with clients", LOAD_AT(machines),
	 RANGE(1, LOAD_MACHINES_MAX)},
	{OPT_U32, "clients", "C", "of each machine; each is a process, simulated a thread",
	 LOAD_AT(clients), RANGE(1, LOAD_THREADS_MAX)},
	{OPT_OTHER, "batch", "B",
	 "operations that go together, up to 1024; auto: what the library finds best for "
	 "--limit-us and --alpha",
	 "1", LOAD_AT(batch), .take = take_batch},
	{OPT_U32, "inflight", "W", "operations that a client has under way",
	 "4 batches for each thread; simulated one batch", LOAD_AT(inflight),
	 RANGE(1, LOAD_INFLIGHT_MAX)},
	{OPT_REAL, "limit-us", "L", "latency: for --batch auto; sim: what is above it is counted",
	 "none", LOAD_AT(limit_us), RANGE(1, 1000000)},
	{OPT_U32, "alpha", "PCT", "of --batch auto", "the library's", LOAD_AT(alpha_pct),
	 RANGE(1, 100)},
	{OPT_U32, "fetch-bytes", "N", "of a result that its first READ brings",
	 "the library's choice", LOAD_AT(fetch_bytes), RANGE(1, GN_RPC_BYTES_MAX)},
	{OPT_U32, "retries", "N", "failed fetches before the server replies",
	 "the library's choice", LOAD_AT(retries), RANGE(1, 1000)},
	{.type = OPT_END},
};

static uint32_t default_inflight(const struct load_opts *o, uint32_t spread)
{
	const uint32_t several = LOAD_BATCHES * o->batch * spread;

	if (o->batch == 1 || o->profile || o->batch_auto)
		return o->batch;
	return several < LOAD_INFLIGHT_MAX ? several : LOAD_INFLIGHT_MAX;
}

int bench_check_calls(const struct args *args, struct load_opts *o, const struct bench_output *out,
		      uint32_t spread)
{
	const int status = bench_check_load(args, o);

	if (status)
		return status;
	if (out->callgrind && !out->instructions)
		return cmd_usage_error("--callgrind belongs to --instructions");
	if (out->instructions &&
	    (opt_given(args, "threads clients inflight seconds limit-us") || !o->batch))
		return cmd_usage_error("--instructions counts one client and one server thread; "
				       "leave --threads, --clients, --inflight, --seconds and "
				       "--limit-us out");
	if (out->instructions && strcmp(o->provider, "shm") != 0)
		return cmd_usage_error("--instructions counts those of shm; leave --provider out");
	if (!o->profile && (o->clients > LOAD_CLIENTS_MAX || o->threads > LOAD_CLIENTS_MAX))
		return cmd_usage_error("--clients and --threads must be 1 to %u, unless simulated",
				       LOAD_CLIENTS_MAX);
	o->batch_auto = !o->batch;
	if (!o->batch_auto && opt_given(args, "alpha"))
		return cmd_usage_error("--alpha is for --batch auto");
	if (!o->batch_auto && !o->profile && opt_given(args, "limit-us"))
		return cmd_usage_error("--limit-us is for --batch auto or --provider sim: "
				       "processes time operations in groups");
	if (o->batch_auto && !(o->limit_us > 0))
		return cmd_usage_error("--batch auto needs --limit-us");
	if (o->batch_auto && o->inflight)
		return cmd_usage_error("--batch auto is one batch at a time; leave --inflight out");
	if (o->batch_auto)
		o->batch = LOAD_AUTO_MAX;
	if (!o->inflight)
		o->inflight = default_inflight(o, spread);
	return o->inflight < o->batch ? cmd_usage_error("--inflight %u is less than a batch of %u",
							o->inflight, o->batch) :
					0;
}

int bench_load_end(const char *name, int rc, const struct load_result *result)
{
	const int status = bench_end(rc);

	if (status && status != EXIT_INTERRUPTED && result->error[0])
		fprintf(stderr, "gannet: %s: %s\n", name, result->error);
	return status;
}

const struct opt bench_output_options[] = {
	{OPT_FLAG, "json", NULL, "one object a line", .to = offsetof(struct bench_output, json)},
	{OPT_FLAG, "instructions", NULL, "counted by callgrind, instead of time",
	 .to = offsetof(struct bench_output, instructions)},
	{OPT_TEXT, "callgrind", "F", "keeps the profile of --instructions in F",
	 .to = offsetof(struct bench_output, callgrind)},
	{.type = OPT_END},
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

		opts.fabric.seed = opts.rpc.load.seed = opts.kv.load.seed = COUNT_SEED;
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

int cmd_bench_load_peer(int argc, char **argv)
{
	return be_peer(argc, argv, procs_main);
}

int cmd_bench_count_peer(int argc, char **argv)
{
	return be_peer(argc, argv, count_main);
}
