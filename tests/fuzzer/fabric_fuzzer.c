/* SPDX-License-Identifier: MIT */
/*
 * fabric-fuzzer: runs many seeds of the fuzzer (fuzzer.h) in several processes, and prints the sums
 * of the counters and, for each seed that failed, the command that runs it again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "campaign.h"
#include "cmd.h"
#include "command.h"
#include "workers.h"

/* ---- options ---- */

#define AT(member) .to = offsetof(struct campaign, member)

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
	struct campaign *c = to;
	const char *end;
	bool ok = parse_number(text, &end, &c->first);

	c->last = c->first;
	if (ok && !strncmp(end, "..", 2))
		ok = parse_number(end + 2, &end, &c->last);
	if (!ok || *end)
		return cmd_usage_error("%s '%s' is not A..B, two numbers", name, text);
	if (c->first > c->last)
		return cmd_usage_error("%s '%s': %" PRIu64 " is after %" PRIu64, name, text,
				       c->first, c->last);
	if (c->last - c->first >= CAMPAIGN_SEEDS_MAX)
		return cmd_usage_error("%s '%s' are more than %u at a time", name, text,
				       CAMPAIGN_SEEDS_MAX);
	return 0;
}

static const struct opt options[] = {
	{OPT_OTHER, "seeds", "A..B", "the seeds to run; A alone: one seed", .required = true,
	 .take = take_seeds},
	{OPT_U32, "jobs", "J", "processes that run seeds at the same time", AT(jobs),
	 RANGE(1, WORKERS_MAX)},
	{OPT_TEXT, "profile", "NAME", "the network card of all seeds: a profile or a file",
	 "drawn from the seed", AT(fuzz.profile)},
	{OPT_TEXT, "faults", "TEXT", "these faults, as gn_sim_inject() takes them; '' for none",
	 AT(fuzz.faults)},
	{OPT_TEXT, "only-faults", "A,B", "draw faults of these kinds only", AT(fuzz.only_faults)},
	{OPT_TEXT, "state", "FILE", "append the results there, and skip the seeds that it has",
	 AT(state)},
	{OPT_FLAG, "hash", NULL, "print only a line 'seed trace-hash' for each seed", AT(hash)},
	{OPT_FLAG, "json", NULL, "print the sums as one JSON object", AT(json)},
	{OPT_FLAG, "verbose", NULL, "trace each seed on stderr", AT(fuzz.verbose)},
	{.type = OPT_END},
};

static int check_together(const struct campaign *c)
{
	if (c->hash && c->json)
		return cmd_usage_error("--hash and --json exclude each other");
	if (c->fuzz.faults && c->fuzz.only_faults)
		return cmd_usage_error("--faults and --only-faults exclude each other");
	return 0;
}

static int check_lengths(const struct campaign *c)
{
	const struct fuzz_opts *o = &c->fuzz;

	if (o->profile && strlen(o->profile) >= FUZZ_PROFILE_MAX)
		return cmd_usage_error("--profile: a name of %zu bytes is too long",
				       strlen(o->profile));
	if (o->faults && strlen(o->faults) >= FUZZ_TEXT_MAX)
		return cmd_usage_error("--faults: %zu bytes are too many", strlen(o->faults));
	if (o->only_faults && strlen(o->only_faults) >= FUZZ_TEXT_MAX)
		return cmd_usage_error("--only-faults: %zu bytes are too many",
				       strlen(o->only_faults));
	return 0;
}

/* Every seed has at least two nodes: a fault may name only those. */
static int check_cluster(const struct campaign *c)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = c->fuzz.profile,
		.nodes = 2,
		.faults = c->fuzz.faults && *c->fuzz.faults ? c->fuzz.faults : NULL,
	};
	const char *bad;
	size_t bad_len;

	if (c->fuzz.only_faults && !fuzz_faults_known(c->fuzz.only_faults, &bad, &bad_len))
		return cmd_usage_error("--only-faults: '%.*s' is no kind of fault", (int)bad_len,
				       bad);
	return cmd_sim_check(&opts);
}

/* ---- running ---- */

static void print_interrupted(const struct campaign *c)
{
	fprintf(stderr, "%s: interrupted after %" PRIu64 " of %" PRIu64 " seeds; ",
		program_invocation_short_name, c->n_done, c->last - c->first + 1);
	if (c->state)
		fprintf(stderr, "the same command resumes from %s\n", c->state);
	else
		fprintf(stderr, "with --state FILE a run can be resumed\n");
}

static int campaign_finish(const struct campaign *c, int rc)
{
	int status;

	campaign_print(c);
	status = cmd_flush_stdout();
	if (c->n_failed) {
		fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 " seeds failed\n",
			program_invocation_short_name, c->n_failed, c->n_done);
		campaign_print_replay(c, c->lowest_failed);
		status = EXIT_FAILURE;
	}
	if (rc == -EINTR) {
		print_interrupted(c);
		return EXIT_INTERRUPTED;
	}
	return rc ? EXIT_FAILURE : status;
}

static int fuzzer_run(const struct args *args)
{
	struct campaign *c = args->opts;
	int rc = check_together(c);

	if (!rc)
		rc = check_lengths(c);
	if (!rc)
		rc = check_cluster(c);
	if (rc)
		return rc;
	c->seed = calloc(c->last - c->first + 1, sizeof(*c->seed));
	if (!c->seed) {
		fputs("no memory for so many seeds\n", stderr);
		return EXIT_FAILURE;
	}
	rc = c->state ? state_file_open(c) : 0;
	if (!rc)
		rc = campaign_finish(c, campaign_run(c));
	if (c->state_fd >= 0)
		close(c->state_fd);
	free(c->seed);
	return rc;
}

static const struct command fuzzer = {
	.about = "Runs random programs under random faults on simulated clusters, one cluster for "
		 "each seed, and checks them against a model of memory, messages and completions.",
	.more = "The exit status is 1 if a seed failed; the command that runs the seed again is "
		"printed. Ctrl-C prints the sums of the finished seeds.",
	.run = fuzzer_run,
	OPTIONS(options, struct campaign, .jobs = 1, .state_fd = -1),
};

int main(int argc, char **argv)
{
	return command_run(&fuzzer, argc - 1, argv + 1);
}
