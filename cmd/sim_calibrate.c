/* SPDX-License-Identifier: MIT */
/*
 * gannet sim calibrate: the papers' figures next to what the simulated cards give. sim_lines.c
 * chooses and runs the lines, lab/ does the rest.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "sim_lines.h"

static const char help[] =
	"Usage: gannet sim calibrate [OPTION…]\n"
	"\n"
	"Runs the papers' microbenchmarks as programs on simulated clusters, and prints for each\n"
	"figure: id, what, the paper's value, the simulated one, error in per cent, hit or miss,\n"
	"and where the paper says it. Lines that start with # sum up.\n"
	"\n"
	"  --only LIST        lines or whole experiments, as C1a,C4; of any kind\n"
	"  --kind C|P|all     what profiles are fitted on, predictions, or both; of all layers\n"
	"                     (C, without those of layers that sim reproduce runs)\n"
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

struct calibration {
	struct sim_lines lines; /* the first: this is found by it */
	char kind;		/* C, P, or 0 for both */
	bool kind_given, strict;
	struct fit_line fits[FIT_LINES_MAX];
	unsigned n_fits;
};

/* ---- options ---- */

static int parse_kind(struct calibration *c, const char *text)
{
	if (strcmp(text, "C") && strcmp(text, "P") && strcmp(text, "all"))
		return cmd_usage_error("--kind must be C, P or all, not '%s'", text);
	c->kind = strcmp(text, "all") ? text[0] : 0;
	c->kind_given = true;
	return 0;
}

enum { KIND = SIM_LINES_OPTIONS_END, STRICT };

static const struct option options[] = {
	{"kind", required_argument, NULL, KIND},
	{"strict", no_argument, NULL, STRICT},
	SIM_LINES_OPTIONS,
};

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct calibration *c, int *status)
{
	int option;

	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "sim calibrate", status)) >= 0) {
		if (option == KIND)
			*status = parse_kind(c, optarg);
		else if (option == STRICT)
			c->strict = true;
		else
			*status = sim_lines_option(&c->lines, option);
	}
	if (option == CMD_LEAVE)
		return -1;
	if (c->lines.only && !c->kind_given)
		c->kind = 0;
	return *status ? -1 : 0;
}

/* ---- the lines ---- */

static bool wanted(const struct sim_lines *l, const struct paper_line *line)
{
	const struct calibration *c = (const struct calibration *)l;

	/* What reproduce runs is not run here unless it is asked for. */
	if (!l->only && !c->kind_given && lab_is_above(line->layer))
		return false;
	return !c->kind || line->kind == c->kind;
}

static int choose(struct calibration *c)
{
	struct lab_error error;
	int rc =
		fit_parse(c->fits, lab_fit_data, (size_t)(lab_fit_data_end - lab_fit_data), &error);

	if (rc < 0)
		return cmd_usage_error("the built-in data/fit.tsv: %s", error.text);
	c->n_fits = (unsigned)rc;
	rc = sim_lines_choose(&c->lines, wanted);
	if (!rc && !c->lines.n)
		return cmd_usage_error("no line is of kind %c", c->kind);
	return rc;
}

/* ---- running ---- */

static double wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static const struct figure *figure_of(const struct sim_lines *l, unsigned i)
{
	return &((const struct figure *)l->results)[i];
}

static int run_line(struct sim_lines *l, unsigned i, void *result)
{
	struct figure *figure = result;
	const double began = wall_now();
	const int rc = figure_eval(&l->env, l->lines[i], figure);

	figure->seconds = wall_now() - began;
	return rc;
}

static void print_line(const struct sim_lines *l, unsigned i)
{
	if (l->json)
		report_json(stdout, &l->env, l->lines[i], figure_of(l, i), NULL);
	else
		report_row(stdout, l->lines[i], figure_of(l, i));
}

static int run(struct calibration *c)
{
	struct sim_lines *l = &c->lines;
	int rc;

	if (!l->json)
		report_head(stdout);
	rc = sim_lines_run(l);
	if (!l->json)
		report_summary(stdout, l->lines, l->results, l->done, l->n, c->fits, c->n_fits);
	return sim_lines_status(rc);
}

static int misses(const struct calibration *c)
{
	int status = 0;

	for (unsigned i = 0; i < c->lines.n; i++) {
		const struct figure *figure = figure_of(&c->lines, i);

		if (figure->status == FIGURE_FAILED ||
		    (c->strict && figure->status == FIGURE_MEASURED && !figure->hit))
			status = EXIT_FAILURE;
		if (figure->status == FIGURE_FAILED)
			fprintf(stderr, "gannet: %s failed: %s\n", c->lines.lines[i]->id,
				figure->reason);
	}
	return status;
}

int cmd_sim_calibrate(int argc, char **argv)
{
	struct calibration c = {.kind = 'C'};
	int status;

	sim_lines_init(&c.lines);
	c.lines.result_bytes = sizeof(struct figure);
	c.lines.run = run_line;
	c.lines.print = print_line;
	if (parse(argc, argv, &c, &status))
		return status;
	status = choose(&c);
	if (!status)
		status = run(&c);
	if (!status)
		status = misses(&c);
	sim_lines_free(&c.lines);
	return status;
}
