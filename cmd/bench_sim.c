/* SPDX-License-Identifier: MIT */
/*
 * gannet bench sim: how fast the simulator is. Machines that READ from each other; the clock runs
 * while they do, not while they connect.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "bench_cmd.h"
#include "fabric.h"

#define OPS	    200000u	 /* of one run */
#define BYTES	    (1ull << 30) /* … at most, but for a few READs */
#define OPS_MIN	    64u
#define SECONDS_MIN 0.01
#define SECONDS_MAX 3600.0

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *profile;
	uint32_t nodes, threads, size, pending, qps;
	uint64_t seed;
	double seconds;
	bool json;
};

static const struct opt options[] = {
	{OPT_TEXT, "profile", "P", "of the network cards: a name, or a file with a '/'",
	 AT(profile)},
	{OPT_U32, "nodes", "N", "machines", AT(nodes), RANGE(2, 256)},
	{OPT_U32, "threads", "N", "of each machine", AT(threads), RANGE(1, 512)},
	{OPT_U32, "size", "N", "bytes of a READ", AT(size), RANGE(1, 16 << 20)},
	{OPT_U32, "pending", "N", "READs that a thread has under way", AT(pending),
	 RANGE(1, BENCH_FABRIC_WINDOW_MAX)},
	{OPT_U32, "qps", "N", "connections of a thread, of which a READ takes any", AT(qps),
	 RANGE(1, 255)},
	{OPT_REAL, "seconds", "S", "to measure at least", AT(seconds), RANGE(0.01, 3600)},
	{OPT_U64, "seed", "N", "of everything left to chance", AT(seed)},
	{OPT_FLAG, "json", NULL, "one object", AT(json)},
	{.type = OPT_END},
};

/* ---- running ---- */

struct total {
	unsigned runs;
	uint64_t events, ops, trace_hash;
	double ns, wall_seconds;
};

static uint64_t ops_of(const struct request *r)
{
	const uint64_t n = BYTES / r->size;

	return n > OPS ? OPS : n < OPS_MIN ? OPS_MIN : n;
}

static int run_once(const struct request *r, struct total *total, char error[LOAD_ERROR_MAX])
{
	const struct bench_fabric_opts opts = {
		.load = {.provider = "sim",
			 .profile = r->profile,
			 .effort = 1,
			 .seed = r->seed,
			 .threads = r->threads},
		.op = BENCH_READ,
		.topology = FABRIC_MM,
		.nodes = r->nodes,
		.size_bytes = r->size,
		.qps = r->qps,
		.window = r->pending,
		.chain = 1,
		.requests = 1,
		.shared_by = 1,
		.ops = ops_of(r),
	};
	struct bench_fabric_result result;
	const struct load_result *run = &result.load;
	int rc = bench_fabric_run(&opts, NULL, &result);

	memcpy(error, run->error, LOAD_ERROR_MAX);
	if (rc)
		return rc;
	if (total->runs++ && total->trace_hash != run->trace_hash) {
		snprintf(error, LOAD_ERROR_MAX, "two runs of seed %llu left different traces",
			 (unsigned long long)r->seed);
		rc = -EINVAL;
	}
	total->trace_hash = run->trace_hash;
	total->events += run->events;
	total->ops += run->run.ops;
	total->ns += 1e9 * run->run.seconds;
	total->wall_seconds += run->wall_seconds;
	return rc;
}

static void print_total(const struct request *r, const struct total *t)
{
	const double mevents = 1e-6 * (double)t->events / t->wall_seconds;
	const double virtual_ms = 1e-6 * t->ns / t->wall_seconds;
	const double mops = 1e3 * (double)t->ops / t->ns;

	if (r->json) {
		putchar('{');
		bench_json_string(stdout, "profile", r->profile);
		printf("\"nodes\":%u,\"threads\":%u,\"size\":%u,"
		       "\"pending\":%u,\"qps\":%u,\"seed\":%llu,\"runs\":%u,\"events\":%llu,"
		       "\"wall_seconds\":%.6f,\"mevents_per_s\":%.4f,\"virtual_ms\":%.6f,"
		       "\"virtual_ms_per_s\":%.6f,\"mops\":%.6f,\"trace_hash\":\"%016llx\"}\n",
		       r->nodes, r->threads, r->size, r->pending, r->qps,
		       (unsigned long long)r->seed, t->runs, (unsigned long long)t->events,
		       t->wall_seconds, mevents, 1e-6 * t->ns, virtual_ms, mops,
		       (unsigned long long)t->trace_hash);
	} else {
		printf("%u nodes of %u threads on %s, READs of %u B, %u at a time over %u qps, "
		       "seed %llu\n\n"
		       "events            %llu in %u runs\n"
		       "wall_seconds      %.3f\n"
		       "mevents_per_s     %.2f\n"
		       "virtual_ms_per_s  %.2f\n"
		       "mops              %.2f simulated\n"
		       "trace_hash        %016llx\n",
		       r->nodes, r->threads, r->profile, r->size, r->pending, r->qps,
		       (unsigned long long)r->seed, (unsigned long long)t->events, t->runs,
		       t->wall_seconds, mevents, virtual_ms, mops,
		       (unsigned long long)t->trace_hash);
	}
}

static int bench_sim_main(const struct args *args)
{
	const struct request *r = args->opts;
	struct total total = {0};
	char error[LOAD_ERROR_MAX];
	int status, rc = 0;

	status = cmd_sim_check(&(struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .profile = r->profile, .nodes = 1});
	if (status)
		return status;
	bench_stop_on_signals();
	while (!rc && !bench_stopped() && total.wall_seconds < r->seconds)
		rc = run_once(r, &total, error);
	if (total.runs)
		print_total(r, &total);
	if (bench_stopped()) {
		if (!total.runs)
			fputs("gannet: bench sim: interrupted before the first run was over\n",
			      stderr);
		cmd_flush_stdout();
		return EXIT_INTERRUPTED;
	}
	if (rc)
		fprintf(stderr, "gannet: bench sim: %s\n", error);
	return cmd_flush_stdout() || rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

const struct command command_bench_sim = {
	.name = "sim",
	.what = "events per second of the simulator, on a cluster of READs",
	.about = "How fast the simulator runs: every thread of every machine READs from another "
		 "machine. An event is one pop of the simulator's queue.",
	.more = "The same run of 200000 READs, or 1 GiB of them, is repeated until the seconds "
		"are full, and must leave the same trace each time. Connecting is not measured.",
	.run = bench_sim_main,
	OPTIONS(options, struct request, .profile = "cx3-fdr", .nodes = 28, .threads = 16,
		.size = 32, .pending = 1, .qps = 1, .seed = 1, .seconds = 2),
};
