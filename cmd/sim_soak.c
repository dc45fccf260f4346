/* SPDX-License-Identifier: MIT */
/*
 * gannet sim soak: many seeds of the swarm (lab/swarm.h), in several processes, with the sum of
 * what happened and, for each seed that failed, the command that runs it again.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "cmd.h"
#include "sim_soak.h"

static const char help_text[] =
	"Usage: gannet sim soak --seeds A..B [OPTION…]\n"
	"\n"
	"Runs random programs under random faults on simulated clusters, one for each seed, and\n"
	"checks them against a model of what memory, messages and completions must be.\n"
	"\n"
	"  --seeds A..B        which (A alone: one)\n"
	"  --jobs J            so many processes at a time (default 1)\n"
	"  --profile NAME      all on this network card, or a file (default: drawn from the seed)\n"
	"  --faults TEXT       exactly these faults, as gn_sim_inject() takes them; '' for none\n"
	"  --only-faults A,B   draw faults from these kinds only\n"
	"  --state FILE        remember finished seeds there, and skip those that are\n"
	"  --hash              print only 'seed trace-hash', a line each\n"
	"  --json              the sums as one JSON object\n"
	"  --verbose           say on stderr what each seed does\n"
	"\n"
	"The status is 1 if a seed failed; the command that runs it again is printed. Ctrl-C ends\n"
	"after the seeds under way.";

/* ---- options ---- */

static bool parse_number(const char *text, const char **end, uint64_t *out)
{
	char *stop;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &stop, 10);
	*end = stop;
	return !errno;
}

static int parse_seeds(struct soak *soak, const char *text)
{
	const char *end;
	bool ok = parse_number(text, &end, &soak->first);

	soak->last = soak->first;
	if (ok && !strncmp(end, "..", 2))
		ok = parse_number(end + 2, &end, &soak->last);
	if (!ok || *end)
		return cmd_usage_error("--seeds '%s' is not A..B, two numbers", text);
	if (soak->first > soak->last)
		return cmd_usage_error("--seeds '%s': %" PRIu64 " is after %" PRIu64, text,
				       soak->first, soak->last);
	if (soak->last - soak->first >= SOAK_SEEDS_MAX)
		return cmd_usage_error("--seeds '%s' are more than %u at a time", text,
				       SOAK_SEEDS_MAX);
	return 0;
}

static int parse_jobs(struct soak *soak, const char *text)
{
	const char *end;
	uint64_t n;

	if (!parse_number(text, &end, &n) || *end || n < 1 || n > SOAK_JOBS_MAX)
		return cmd_usage_error("--jobs must be a number from 1 to %u, not '%s'",
				       SOAK_JOBS_MAX, text);
	soak->jobs = (unsigned)n;
	return 0;
}

enum { SEEDS = 256, JOBS, PROFILE, FAULTS, ONLY_FAULTS, STATE, HASH, JSON, VERBOSE };

static const struct option options[] = {
	{"seeds", required_argument, NULL, SEEDS},
	{"jobs", required_argument, NULL, JOBS},
	{"profile", required_argument, NULL, PROFILE},
	{"faults", required_argument, NULL, FAULTS},
	{"only-faults", required_argument, NULL, ONLY_FAULTS},
	{"state", required_argument, NULL, STATE},
	{"hash", no_argument, NULL, HASH},
	{"json", no_argument, NULL, JSON},
	{"verbose", no_argument, NULL, VERBOSE},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_option(struct soak *soak, int option)
{
	switch (option) {
	case SEEDS:
		return parse_seeds(soak, optarg);
	case JOBS:
		return parse_jobs(soak, optarg);
	case PROFILE:
		soak->swarm.profile = optarg;
		return 0;
	case FAULTS:
		soak->swarm.faults = optarg;
		return 0;
	case ONLY_FAULTS:
		soak->swarm.only_faults = optarg;
		return 0;
	case STATE:
		soak->state = optarg;
		return 0;
	case HASH:
		soak->hash = true;
		return 0;
	case JSON:
		soak->json = true;
		return 0;
	default:
		soak->swarm.verbose = true;
		return 0;
	}
}

static int check_together(const struct soak *soak, bool seeds)
{
	if (!seeds)
		return cmd_usage_error("sim soak needs --seeds A..B");
	if (soak->hash && soak->json)
		return cmd_usage_error("--hash and --json exclude each other");
	if (soak->swarm.faults && soak->swarm.only_faults)
		return cmd_usage_error("--faults and --only-faults exclude each other");
	return 0;
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(struct soak *soak, int argc, char **argv, int *status)
{
	bool seeds = false;
	int option;

	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help_text, "sim soak", status)) >= 0) {
		*status = parse_option(soak, option);
		seeds = seeds || option == SEEDS;
	}
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = check_together(soak, seeds);
	return *status ? -1 : 0;
}

static int check_lengths(const struct soak *soak)
{
	const struct swarm_opts *o = &soak->swarm;

	if (o->profile && strlen(o->profile) >= SWARM_PROFILE_MAX)
		return cmd_usage_error("--profile: a name of %zu bytes is too long",
				       strlen(o->profile));
	if (o->faults && strlen(o->faults) >= SWARM_TEXT_MAX)
		return cmd_usage_error("--faults: %zu bytes are too many", strlen(o->faults));
	if (o->only_faults && strlen(o->only_faults) >= SWARM_TEXT_MAX)
		return cmd_usage_error("--only-faults: %zu bytes are too many",
				       strlen(o->only_faults));
	return 0;
}

/* Every seed has at least two nodes, so what names others makes no sense. */
static int check_cluster(const struct soak *soak)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = soak->swarm.profile,
		.nodes = 2,
		.faults = soak->swarm.faults && *soak->swarm.faults ? soak->swarm.faults : NULL,
	};
	const char *bad;
	size_t bad_len;

	if (soak->swarm.only_faults && !swarm_faults_known(soak->swarm.only_faults, &bad, &bad_len))
		return cmd_usage_error("--only-faults: '%.*s' is no kind of fault", (int)bad_len,
				       bad);
	return cmd_sim_check(&opts);
}

/* ---- sums ---- */

static void print_quoted(FILE *to, const char *option, const char *value)
{
	if (!value)
		return;
	fprintf(to, " %s '", option);
	for (; *value; value++) {
		if (*value == '\'')
			fputs("'\\''", to);
		else
			fputc(*value, to);
	}
	fputc('\'', to);
}

void soak_print_replay(const struct soak *soak, uint64_t seed)
{
	fprintf(stderr,
		"gannet: replay: gannet sim soak --seeds %" PRIu64 "..%" PRIu64 " --verbose", seed,
		seed);
	print_quoted(stderr, "--profile", soak->swarm.profile);
	print_quoted(stderr, "--faults", soak->swarm.faults);
	print_quoted(stderr, "--only-faults", soak->swarm.only_faults);
	fputc('\n', stderr);
}

void soak_add(struct soak *soak, uint64_t seed, const struct swarm_result *result, bool resumed)
{
	struct swarm_result *sum = &soak->sum;

	soak->seed[seed - soak->first] = (struct soak_seed){.hash = result->hash, .done = true};
	soak->n_done++;
	soak->n_resumed += resumed;
	sum->events += result->events;
	sum->virtual_ns += result->virtual_ns;
	for (unsigned i = 0; i < GN_OPS; i++)
		sum->ops[i] += result->ops[i];
	sum->datagrams += result->datagrams;
	sum->connections += result->connections;
	sum->broken += result->broken;
	sum->restarts += result->restarts;
	for (unsigned i = 0; i < SWARM_FAULTS; i++)
		sum->faults[i] += result->faults[i];
	if (!result->failed)
		return;
	if (!soak->n_failed++ || seed < soak->lowest_failed)
		soak->lowest_failed = seed;
	fprintf(stderr, "gannet: seed %" PRIu64 " failed %s\n", seed, result->what);
	soak_print_replay(soak, seed);
}

struct figure {
	const char *name;
	uint64_t value;
};

#define OPS_SHOWN ((unsigned)GN_OP_RECV + 1)
#define FIGURES	  (8 + GN_OPS + SWARM_FAULTS)
#define NS_PER_MS 1000000u

/* Names as keys: words and dashes become words and underscores. */
static void print_figures(const struct soak *soak, const char *group, const struct figure *figure,
			  unsigned n)
{
	if (soak->json)
		printf("%s\"%s\": {", strcmp(group, "soak") ? ", " : "", group);
	for (unsigned i = 0; i < n; i++) {
		if (soak->json)
			printf("%s\"%s\": %" PRIu64, i ? ", " : "", figure[i].name,
			       figure[i].value);
		else
			printf("%s\t%s\t%" PRIu64 "\n", group, figure[i].name, figure[i].value);
	}
	if (soak->json)
		putchar('}');
}

static void print_sums(const struct soak *soak)
{
	const struct swarm_result *sum = &soak->sum;
	const struct figure soaked[] = {
		{"seeds", soak->n_done},
		{"resumed", soak->n_resumed},
		{"failed", soak->n_failed},
		{"events", sum->events},
		{"virtual_ms", sum->virtual_ns / NS_PER_MS},
		{"connections", sum->connections},
		{"broken_ends", sum->broken},
		{"restarts", sum->restarts},
		{"datagrams", sum->datagrams},
	};
	struct figure figure[FIGURES];
	unsigned n;

	if (soak->json)
		putchar('{');
	print_figures(soak, "soak", soaked, sizeof(soaked) / sizeof(soaked[0]));
	for (n = 0; n < OPS_SHOWN; n++)
		figure[n] = (struct figure){gn_op_str((enum gn_op)n), sum->ops[n]};
	print_figures(soak, "ops", figure, n);
	for (n = 0; n < SWARM_FAULTS && gn_sim_fault_name(n); n++)
		figure[n] = (struct figure){gn_sim_fault_name(n), sum->faults[n]};
	print_figures(soak, "faults", figure, n);
	if (soak->json)
		puts("}");
}

static void print_hashes(const struct soak *soak)
{
	for (uint64_t i = 0; i <= soak->last - soak->first; i++)
		if (soak->seed[i].done)
			printf("%" PRIu64 " %016" PRIx64 "\n", soak->first + i, soak->seed[i].hash);
}

static void print_interrupted(const struct soak *soak)
{
	fprintf(stderr, "gannet: interrupted after %" PRIu64 " of %" PRIu64 " seeds; ",
		soak->n_done, soak->last - soak->first + 1);
	if (soak->state)
		fprintf(stderr, "the same command goes on from %s\n", soak->state);
	else
		fprintf(stderr, "with --state FILE a run can be taken up again\n");
}

static int finish(const struct soak *soak, int rc)
{
	int status;

	if (soak->hash)
		print_hashes(soak);
	else
		print_sums(soak);
	status = cmd_flush_stdout();
	if (soak->n_failed) {
		fprintf(stderr, "gannet: %" PRIu64 " of %" PRIu64 " seeds failed\n", soak->n_failed,
			soak->n_done);
		soak_print_replay(soak, soak->lowest_failed);
		status = EXIT_FAILURE;
	}
	if (rc == -EINTR) {
		print_interrupted(soak);
		return EXIT_INTERRUPTED;
	}
	return rc ? EXIT_FAILURE : status;
}

int cmd_sim_soak(int argc, char **argv)
{
	struct soak soak = {.jobs = 1, .state_fd = -1};
	int rc;

	if (parse(&soak, argc, argv, &rc))
		return rc;
	rc = check_lengths(&soak);
	if (!rc)
		rc = check_cluster(&soak);
	if (rc)
		return rc;
	soak.seed = calloc(soak.last - soak.first + 1, sizeof(*soak.seed));
	if (!soak.seed) {
		fputs("gannet: no memory for so many seeds\n", stderr);
		return EXIT_FAILURE;
	}
	rc = soak.state ? soak_state_open(&soak) : 0;
	if (!rc)
		rc = finish(&soak, soak_run(&soak));
	if (soak.state_fd >= 0)
		close(soak.state_fd);
	free(soak.seed);
	return rc;
}
