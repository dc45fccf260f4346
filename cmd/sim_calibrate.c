/* SPDX-License-Identifier: MIT */
/*
 * gannet sim calibrate: the papers' figures next to what the simulated cards give. Options, the
 * choice of lines, and the order in which results are printed; lab/ does the rest.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "cmd.h"
#include "report.h"
#include "workers.h"

static const char help[] =
	"Usage: gannet sim calibrate [OPTION…]\n"
	"\n"
	"Runs the papers' microbenchmarks as programs on simulated clusters, and prints for each\n"
	"figure: id, what, the paper's value, the simulated one, error in per cent, hit or miss,\n"
	"and where the paper says it. Lines that start with # sum up.\n"
	"\n"
	"  --only LIST        lines or whole experiments, as C1a,C4; of any kind\n"
	"  --kind C|P|all     what profiles are fitted on, predictions, or both (C)\n"
	"  --json             one object a line\n"
	"  --seed N           of everything left to chance (1)\n"
	"  --effort E         length of each run, 0.01 to 100 (1)\n"
	"  --jobs J           processes to use (1)\n"
	"  --profile NAME=P   simulate profile or file P where a line asks for NAME\n"
	"  --data FILE        another list of figures than the one built in\n"
	"  --strict           exit status 1 when a measured line misses\n"
	"\n"
	"A line of a layer that is still to be written is waiting; one that cannot be run says no\n"
	"and why. All figures but the papers' own are simulated.";

#define EFFORT_MIN 0.01
#define EFFORT_MAX 100.0

struct calibration {
	struct figure_env env;
	struct paper paper;
	const char *only, *data;
	char kind; /* C, P, or 0 for both */
	bool kind_given, json, strict;
	unsigned jobs;
	char cards[FIGURE_CARDS_MAX][256]; /* the texts behind env.cards */

	const struct paper_line **lines;
	struct figure *figures;
	const struct figure **done; /* NULL until it is */
	unsigned *groups;
	unsigned n, printed;
	struct fit_line fits[FIT_LINES_MAX];
	unsigned n_fits;
};

/* ---- options ---- */

static int parse_uint(const char *option, const char *text, uint64_t min, uint64_t max,
		      uint64_t *out)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		return cmd_usage_error("%s must be a number from %llu to %llu, not '%s'", option,
				       (unsigned long long)min, (unsigned long long)max, text);
	*out = n;
	return 0;
}

static int parse_effort(const char *text, double *out)
{
	char *end;
	const double effort = strtod(text, &end);

	if (end == text || *end || !(effort >= EFFORT_MIN && effort <= EFFORT_MAX))
		return cmd_usage_error("--effort must be a number from %g to %g, not '%s'",
				       EFFORT_MIN, EFFORT_MAX, text);
	*out = effort;
	return 0;
}

static int parse_kind(struct calibration *c, const char *text)
{
	if (strcmp(text, "C") && strcmp(text, "P") && strcmp(text, "all"))
		return cmd_usage_error("--kind must be C, P or all, not '%s'", text);
	c->kind = strcmp(text, "all") ? text[0] : 0;
	c->kind_given = true;
	return 0;
}

/* NAME=P. A file gets the '/' that tells it from the name of a built-in profile. */
static int parse_profile(struct calibration *c, const char *text)
{
	const char *is = strchr(text, '=');
	char *kept = c->cards[c->env.n_cards];
	const size_t room = sizeof(c->cards[0]);
	const char *prefix;
	size_t name;

	if (!is || is == text || !is[1])
		return cmd_usage_error("--profile must be NAME=P, not '%s'", text);
	if (c->env.n_cards == FIGURE_CARDS_MAX)
		return cmd_usage_error("--profile can be given %u times", FIGURE_CARDS_MAX);
	prefix = strchr(is, '/') || gn_sim_profile_text(is + 1) ? "" : "./";
	name = (size_t)(is - text);
	if (strlen(text) + strlen(prefix) >= room)
		return cmd_usage_error("--profile %.20s… is too long", text);
	snprintf(kept, room, "%.*s", (int)name, text);
	snprintf(kept + name + 1, room - name - 1, "%s%s", prefix, is + 1);
	if (*prefix && access(is + 1, R_OK))
		return cmd_usage_error("--profile: '%s' is neither a profile nor a file: %s",
				       is + 1, strerror(errno));
	c->env.cards[c->env.n_cards++] = (struct figure_card){kept, kept + name + 1};
	return cmd_sim_check(&(struct gn_sim_opts){.profile = kept + name + 1, .nodes = 1});
}

enum { ONLY = 256, KIND, JSON, SEED, EFFORT, JOBS, PROFILE, DATA, STRICT };

static const struct option options[] = {
	{"only", required_argument, NULL, ONLY},
	{"kind", required_argument, NULL, KIND},
	{"json", no_argument, NULL, JSON},
	{"seed", required_argument, NULL, SEED},
	{"effort", required_argument, NULL, EFFORT},
	{"jobs", required_argument, NULL, JOBS},
	{"profile", required_argument, NULL, PROFILE},
	{"data", required_argument, NULL, DATA},
	{"strict", no_argument, NULL, STRICT},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_option(int option, struct calibration *c)
{
	uint64_t n;
	int status;

	switch (option) {
	case ONLY:
		c->only = optarg;
		return 0;
	case KIND:
		return parse_kind(c, optarg);
	case JSON:
		c->json = true;
		return 0;
	case SEED:
		return parse_uint("--seed", optarg, 0, UINT64_MAX, &c->env.seed);
	case EFFORT:
		return parse_effort(optarg, &c->env.effort);
	case JOBS:
		status = parse_uint("--jobs", optarg, 1, WORKERS_MAX, &n);
		if (!status)
			c->jobs = (unsigned)n;
		return status;
	case PROFILE:
		return parse_profile(c, optarg);
	case DATA:
		c->data = optarg;
		return 0;
	default:
		c->strict = true;
		return 0;
	}
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct calibration *c, int *status)
{
	int option;

	*c = (struct calibration){.kind = 'C', .jobs = 1};
	c->env.seed = 1;
	c->env.effort = 1;
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "sim calibrate", status)) >= 0)
		*status = parse_option(option, c);
	if (option == CMD_LEAVE)
		return -1;
	if (c->only && !c->kind_given)
		c->kind = 0;
	return *status ? -1 : 0;
}

/* ---- the lines ---- */

static int read_data(struct calibration *c)
{
	struct lab_error error;
	int rc;

	rc = fit_parse(c->fits, lab_fit_data, (size_t)(lab_fit_data_end - lab_fit_data), &error);
	if (rc < 0)
		return cmd_usage_error("the built-in data/fit.tsv: %s", error.text);
	c->n_fits = (unsigned)rc;
	if (c->data)
		rc = paper_read(&c->paper, c->data, &error);
	else
		rc = paper_parse(&c->paper, lab_paper_data,
				 (size_t)(lab_paper_data_end - lab_paper_data), &error);
	if (rc)
		return cmd_usage_error("%s: %s", c->data ? c->data : "data/paper.tsv", error.text);
	return 0;
}

/* C4 of C4a: the experiment. */
static size_t stem(const char *id)
{
	size_t len = strlen(id);

	while (len && id[len - 1] >= 'a' && id[len - 1] <= 'z')
		len--;
	return len;
}

static bool matches(const char *id, const char *item)
{
	return !strcmp(id, item) || (strlen(item) == stem(id) && !strncmp(id, item, stem(id)));
}

static bool is_listed(const char *id, const char *list)
{
	char item[64];

	while (list_next(&list, item, sizeof(item)))
		if (matches(id, item))
			return true;
	return false;
}

static int check_only(const struct calibration *c)
{
	const char *list = c->only;
	char item[64];

	while (list_next(&list, item, sizeof(item))) {
		unsigned i = 0;

		while (i < c->paper.n && !matches(c->paper.lines[i].id, item))
			i++;
		if (i == c->paper.n)
			return cmd_usage_error("--only: there is no line or experiment '%s'", item);
	}
	return 0;
}

/* What replaces a profile that nobody has would be left unused without a word. */
static int check_cards(const struct calibration *c)
{
	for (unsigned k = 0; k < c->env.n_cards; k++) {
		const char *name = c->env.cards[k].profile;
		unsigned i = 0;

		while (i < c->paper.n && strcmp(c->paper.lines[i].profile, name))
			i++;
		if (i == c->paper.n && !gn_sim_profile_text(name))
			return cmd_usage_error("--profile: no line asks for '%s'", name);
	}
	return 0;
}

static void free_calibration(struct calibration *c)
{
	figure_forget(&c->env);
	paper_free(&c->paper);
	free(c->lines);
	free(c->figures);
	free(c->done);
	free(c->groups);
}

static int choose(struct calibration *c)
{
	const unsigned n = c->paper.n;
	int status = check_only(c);

	if (!status)
		status = check_cards(c);
	if (status)
		return status;
	c->lines = calloc(n, sizeof(c->lines[0]));
	c->figures = calloc(n, sizeof(c->figures[0]));
	c->done = calloc(n, sizeof(c->done[0]));
	c->groups = calloc(n, sizeof(c->groups[0]));
	if (!c->lines || !c->figures || !c->done || !c->groups) {
		fputs("gannet: no memory for the results\n", stderr);
		return EXIT_FAILURE;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct paper_line *line = &c->paper.lines[i];

		if (c->only ? !is_listed(line->id, c->only) : false)
			continue;
		if (c->kind && line->kind != c->kind)
			continue;
		/* Lines of an experiment share configurations: one worker does them all. */
		c->groups[c->n] = c->n;
		if (c->n && stem(line->id) == stem(c->lines[c->n - 1]->id) &&
		    !strncmp(line->id, c->lines[c->n - 1]->id, stem(line->id)))
			c->groups[c->n] = c->groups[c->n - 1];
		c->lines[c->n++] = line;
	}
	if (!c->n)
		return cmd_usage_error("no line is of kind %c", c->kind);
	return 0;
}

/* ---- running ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signo)
{
	(void)signo;
	interrupted = 1;
}

static double wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int run_line(void *arg, unsigned i, void *result)
{
	struct calibration *c = arg;
	struct figure *figure = result;
	const double began = wall_now();
	const int rc = figure_eval(&c->env, c->lines[i], figure);

	figure->seconds = wall_now() - began;
	return rc;
}

static void show_progress(const struct calibration *c)
{
	if (isatty(STDERR_FILENO) && c->printed < c->n)
		fprintf(stderr, "\r%u of %u: %-8s", c->printed + 1, c->n, c->lines[c->printed]->id);
}

static void erase_progress(void)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%30s\r", "");
}

/* Results come in any order, and are printed in the list's. */
static void line_done(void *arg, unsigned i, const void *result)
{
	struct calibration *c = arg;

	memcpy(&c->figures[i], result, sizeof(c->figures[i]));
	c->done[i] = &c->figures[i];
	erase_progress();
	for (; c->printed < c->n && c->done[c->printed]; c->printed++) {
		if (c->json)
			report_json(stdout, c->lines[c->printed], c->done[c->printed]);
		else
			report_row(stdout, c->lines[c->printed], c->done[c->printed]);
	}
	show_progress(c);
}

static int run(struct calibration *c)
{
	const struct workers_job job = {
		.n = c->n,
		.groups = c->groups,
		.result_bytes = sizeof(struct figure),
		.run = run_line,
		.done = line_done,
		.arg = c,
		.interrupted = &interrupted,
	};
	const struct sigaction action = {.sa_handler = interrupt};
	int rc;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	if (!c->json)
		report_head(stdout);
	fflush(stdout); /* or workers would inherit what is in it */
	show_progress(c);
	rc = workers_run(&job, c->jobs);
	erase_progress();
	if (!c->json)
		report_summary(stdout, c->lines, c->done, c->n, c->fits, c->n_fits);
	return rc;
}

static int status_of(const struct calibration *c, int rc)
{
	int status = cmd_flush_stdout();

	if (rc == -EINTR)
		return EXIT_INTERRUPTED;
	if (rc) {
		fprintf(stderr, "gannet: the workers: %s\n", strerror(-rc));
		return EXIT_FAILURE;
	}
	for (unsigned i = 0; i < c->n; i++) {
		if (c->figures[i].status == FIGURE_FAILED ||
		    (c->strict && c->figures[i].status == FIGURE_MEASURED && !c->figures[i].hit))
			status = EXIT_FAILURE;
		if (c->figures[i].status == FIGURE_FAILED)
			fprintf(stderr, "gannet: %s failed: %s\n", c->lines[i]->id,
				c->figures[i].reason);
	}
	return status;
}

int cmd_sim_calibrate(int argc, char **argv)
{
	struct calibration c;
	int status;

	if (parse(argc, argv, &c, &status))
		return status;
	status = read_data(&c);
	if (status)
		return status;
	c.env.paper = &c.paper;
	c.env.layers = lab_layers;
	c.env.interrupted = &interrupted;
	status = choose(&c);
	if (!status)
		status = status_of(&c, run(&c));
	free_calibration(&c);
	return status;
}
