/* SPDX-License-Identifier: MIT */
/*
 * gannet sim soak: many seeds of the swarm (lab/swarm.h), in several processes, with the sum of
 * what happened and, for each seed that failed, the command that runs it again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "cmd.h"
#include "sim_soak.h"

/* ---- options ---- */

#define AT(member) .to = offsetof(struct soak, member)

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

static int take_seeds(const char *name, const char *text, void *to)
{
	struct soak *soak = to;
	const char *end;
	bool ok = parse_number(text, &end, &soak->first);

	soak->last = soak->first;
	if (ok && !strncmp(end, "..", 2))
		ok = parse_number(end + 2, &end, &soak->last);
	if (!ok || *end)
		return cmd_usage_error("%s '%s' is not A..B, two numbers", name, text);
	if (soak->first > soak->last)
		return cmd_usage_error("%s '%s': %" PRIu64 " is after %" PRIu64, name, text,
				       soak->first, soak->last);
	if (soak->last - soak->first >= SOAK_SEEDS_MAX)
		return cmd_usage_error("%s '%s' are more than %u at a time", name, text,
				       SOAK_SEEDS_MAX);
	return 0;
}

static const struct opt options[] = {
	{OPT_OTHER, "seeds", "A..B", "which (A alone: one)", .required = true, .take = take_seeds},
	{OPT_U32, "jobs", "J", "so many processes at a time", AT(jobs), RANGE(1, SOAK_JOBS_MAX)},
	{OPT_TEXT, "profile", "NAME", "all on this network card, or a file", "drawn from the seed",
	 AT(swarm.profile)},
	{OPT_TEXT, "faults", "TEXT",
	 "exactly these faults, as gn_sim_inject() takes them; '' for none", AT(swarm.faults)},
	{OPT_TEXT, "only-faults", "A,B", "draw faults from these kinds only",
	 AT(swarm.only_faults)},
	{OPT_TEXT, "state", "FILE", "remember finished seeds there, and skip those that are",
	 AT(state)},
	{OPT_FLAG, "hash", NULL, "print only 'seed trace-hash', a line each", AT(hash)},
	{OPT_FLAG, "json", NULL, "the sums as one JSON object", AT(json)},
	{OPT_FLAG, "verbose", NULL, "say on stderr what each seed does", AT(swarm.verbose)},
	{OPT_END},
};

static int check_together(const struct soak *soak)
{
	if (soak->hash && soak->json)
		return cmd_usage_error("--hash and --json exclude each other");
	if (soak->swarm.faults && soak->swarm.only_faults)
		return cmd_usage_error("--faults and --only-faults exclude each other");
	return 0;
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

struct soak_sum {
	const char *name;
	uint64_t value;
};

#define OPS_SHOWN ((unsigned)GN_OP_RECV + 1)
#define FIGURES	  (8 + GN_OPS + SWARM_FAULTS)
#define NS_PER_MS 1000000u

/* Names as keys: words and dashes become words and underscores. */
static void print_figures(const struct soak *soak, const char *group, const struct soak_sum *figure,
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
	const struct soak_sum soaked[] = {
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
	struct soak_sum figure[FIGURES];
	unsigned n;

	if (soak->json)
		putchar('{');
	print_figures(soak, "soak", soaked, sizeof(soaked) / sizeof(soaked[0]));
	for (n = 0; n < OPS_SHOWN; n++)
		figure[n] = (struct soak_sum){gn_op_str((enum gn_op)n), sum->ops[n]};
	print_figures(soak, "ops", figure, n);
	for (n = 0; n < SWARM_FAULTS && gn_sim_fault_name(n); n++)
		figure[n] = (struct soak_sum){gn_sim_fault_name(n), sum->faults[n]};
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

static int sim_soak_run(const struct args *args)
{
	struct soak *soak = args->opts;
	int rc = check_together(soak);

	if (!rc)
		rc = check_lengths(soak);
	if (!rc)
		rc = check_cluster(soak);
	if (rc)
		return rc;
	soak->seed = calloc(soak->last - soak->first + 1, sizeof(*soak->seed));
	if (!soak->seed) {
		fputs("gannet: no memory for so many seeds\n", stderr);
		return EXIT_FAILURE;
	}
	rc = soak->state ? soak_state_open(soak) : 0;
	if (!rc)
		rc = finish(soak, soak_run(soak));
	if (soak->state_fd >= 0)
		close(soak->state_fd);
	free(soak->seed);
	return rc;
}

const struct command command_sim_soak = {
	.name = "soak",
	.what = "random programs under random faults, checked; many seeds",
	.about = "Runs random programs under random faults on simulated clusters, one for each "
		 "seed, and checks them against a model of what memory, messages and completions "
		 "must be.",
	.more = "The status is 1 if a seed failed; the command that runs it again is printed. "
		"Ctrl-C ends after the seeds under way.",
	.run = sim_soak_run,
	OPTIONS(options, struct soak, .jobs = 1, .state_fd = -1),
};
