/* SPDX-License-Identifier: MIT */
/*
 * gannet bench sim: how fast the simulator is. Machines that READ from each other; the clock runs
 * while they do, not while they connect.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "cluster.h"
#include "cmd.h"

static const char help[] =
	"Usage: gannet bench sim [OPTION…]\n"
	"\n"
	"How fast the simulator runs: every thread of every machine READs from another machine.\n"
	"An event is one pop of the simulator's queue.\n"
	"\n"
	"  --profile P    of the network cards: a name, or a file with a '/' (cx3-fdr)\n"
	"  --nodes N      machines, 2 to 256 (28)\n"
	"  --threads N    of each machine, 1 to 512 (16)\n"
	"  --size N       bytes of a READ, 1 to 16777216 (32)\n"
	"  --pending N    READs that a thread has under way, 1 to 4096 (1)\n"
	"  --qps N        connections of a thread, of which a READ takes any, 1 to 255 (1)\n"
	"  --seconds S    to measure at least, 0.01 to 3600 (2)\n"
	"  --seed N       of everything left to chance (1)\n"
	"  --json         one object\n"
	"\n"
	"The same run of 200000 READs, or 1 GiB of them, is repeated until the seconds are full,\n"
	"and must leave the same trace each time. Connecting is not measured.";

#define OPS	    200000u	 /* of one run */
#define BYTES	    (1ull << 30) /* … at most, but for a few READs */
#define OPS_MIN	    64u
#define SECONDS_MIN 0.01
#define SECONDS_MAX 3600.0

struct request {
	const char *profile, *nodes, *threads, *size, *pending, *qps;
	uint64_t seed;
	double seconds;
	bool json;
};

/* ---- options ---- */

enum { PROFILE = 256, NODES, THREADS, SIZE, PENDING, QPS, SECONDS, SEED, JSON };

static const struct option options[] = {
	{"profile", required_argument, NULL, PROFILE},
	{"nodes", required_argument, NULL, NODES},
	{"threads", required_argument, NULL, THREADS},
	{"size", required_argument, NULL, SIZE},
	{"pending", required_argument, NULL, PENDING},
	{"qps", required_argument, NULL, QPS},
	{"seconds", required_argument, NULL, SECONDS},
	{"seed", required_argument, NULL, SEED},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* The option is checked here, so that a mistake is told in its words. */
static int parse_count(const char *option, const char *text, uint64_t min, uint64_t max)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		return cmd_usage_error("%s must be a number from %llu to %llu, not '%s'", option,
				       (unsigned long long)min, (unsigned long long)max, text);
	return 0;
}

static int parse_option(int option, struct request *r)
{
	char *end;

	switch (option) {
	case PROFILE:
		r->profile = optarg;
		return 0;
	case NODES:
		r->nodes = optarg;
		return parse_count("--nodes", optarg, 2, 256);
	case THREADS:
		r->threads = optarg;
		return parse_count("--threads", optarg, 1, 512);
	case SIZE:
		r->size = optarg;
		return parse_count("--size", optarg, 1, 16u << 20);
	case PENDING:
		r->pending = optarg;
		return parse_count("--pending", optarg, 1, LOAD_WINDOW_MAX);
	case QPS:
		r->qps = optarg;
		return parse_count("--qps", optarg, 1, 255);
	case SEED:
		r->seed = strtoull(optarg, NULL, 10);
		return parse_count("--seed", optarg, 0, UINT64_MAX);
	case SECONDS:
		r->seconds = strtod(optarg, &end);
		if (end != optarg && !*end && r->seconds >= SECONDS_MIN &&
		    r->seconds <= SECONDS_MAX)
			return 0;
		return cmd_usage_error("--seconds must be a number from %g to %g, not '%s'",
				       SECONDS_MIN, SECONDS_MAX, optarg);
	default:
		r->json = true;
		return 0;
	}
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.profile = "cx3-fdr",
			      .nodes = "28",
			      .threads = "16",
			      .size = "32",
			      .pending = "1",
			      .qps = "1",
			      .seed = 1,
			      .seconds = 2};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "bench sim", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = cmd_sim_check(&(struct gn_sim_opts){
			.size = sizeof(struct gn_sim_opts), .profile = r->profile, .nodes = 1});
	return *status ? -1 : 0;
}

/* ---- running ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signo)
{
	(void)signo;
	interrupted = 1;
}

struct total {
	unsigned runs;
	uint64_t events, ops, ns, trace_hash;
	double wall_seconds;
};

static int build(const struct request *r, struct cluster *out, struct lab_error *error)
{
	struct config config = {0};
	const char *const pairs[][2] = {
		{"op", "READ"},	     {"topology", "mm"},	 {"nodes", r->nodes},
		{"size", r->size},   {"threads", r->threads},	 {"window", r->pending},
		{"signaled", "yes"}, {"qps_per_thread", r->qps},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (config_set(&config, pairs[i][0], pairs[i][1], error))
			return -EINVAL;
	return lab_fabric_cluster(&config, r->profile, out, error);
}

static uint64_t ops_of(const struct request *r)
{
	const uint64_t n = BYTES / strtoull(r->size, NULL, 10);

	return n > OPS ? OPS : n < OPS_MIN ? OPS_MIN : n;
}

static int run_once(const struct request *r, struct total *total, struct lab_error *error)
{
	const struct cluster_opts opts = {
		.card = r->profile,
		.seed = r->seed,
		.effort = 1,
		.ops = ops_of(r),
		.interrupted = &interrupted,
	};
	struct trial_result result;
	struct cluster cluster;
	int rc = build(r, &cluster, error);

	if (rc)
		return rc;
	rc = cluster_run(&cluster, &opts, &result, error);
	cluster_free(&cluster);
	if (rc)
		return rc;
	if (total->runs++ && total->trace_hash != result.trace_hash)
		rc = lab_error(error, "two runs of seed %llu left different traces",
			       (unsigned long long)r->seed);
	total->trace_hash = result.trace_hash;
	total->events += result.events;
	total->ops += result.ops;
	total->ns += result.ns;
	total->wall_seconds += result.wall_seconds;
	trial_result_free(&result);
	return rc;
}

/* As a string of JSON. */
static void print_quoted(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		if ((unsigned char)*text < ' ')
			printf("\\u%04x", (unsigned char)*text);
		else
			putchar(*text);
	}
	putchar('"');
}

static void print(const struct request *r, const struct total *t)
{
	const double mevents = 1e-6 * (double)t->events / t->wall_seconds;
	const double virtual_ms = 1e-6 * (double)t->ns / t->wall_seconds;
	const double mops = 1e3 * (double)t->ops / (double)t->ns;

	if (r->json) {
		fputs("{\"profile\":", stdout);
		print_quoted(r->profile);
		printf(",\"nodes\":%s,\"threads\":%s,\"size\":%s,"
		       "\"pending\":%s,\"qps\":%s,\"seed\":%llu,\"runs\":%u,\"events\":%llu,"
		       "\"wall_seconds\":%.6f,\"mevents_per_s\":%.4f,\"virtual_ms\":%.6f,"
		       "\"virtual_ms_per_s\":%.6f,\"mops\":%.6f,\"trace_hash\":\"%016llx\"}\n",
		       r->nodes, r->threads, r->size, r->pending, r->qps,
		       (unsigned long long)r->seed, t->runs, (unsigned long long)t->events,
		       t->wall_seconds, mevents, 1e-6 * (double)t->ns, virtual_ms, mops,
		       (unsigned long long)t->trace_hash);
	} else {
		printf("%s nodes of %s threads on %s, READs of %s B, %s at a time over %s qps, "
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

int cmd_bench_sim(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = interrupt};
	struct request r;
	struct total total = {0};
	struct lab_error error;
	int status, rc = 0;

	if (parse(argc, argv, &r, &status))
		return status;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	while (!rc && !interrupted && total.wall_seconds < r.seconds)
		rc = run_once(&r, &total, &error);
	if (total.runs)
		print(&r, &total);
	if (interrupted) {
		if (!total.runs)
			fputs("gannet: bench sim: interrupted before the first run was over\n",
			      stderr);
		cmd_flush_stdout();
		return EXIT_INTERRUPTED;
	}
	if (rc)
		fprintf(stderr, "gannet: bench sim: %s\n", error.text);
	return cmd_flush_stdout() || rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
