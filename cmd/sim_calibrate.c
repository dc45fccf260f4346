/* SPDX-License-Identifier: MIT */
/*
 * gannet sim calibrate: the papers' figures next to what the simulated cards give. sim_lines.c
 * chooses and runs the lines, lab/ does the rest.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "sim_lines.h"

struct calibration {
	struct sim_lines lines; /* the first: this is found by it */
	char kind;		/* C, P, or 0 for both */
	uint32_t kinds;		/* of kinds[] */
	bool kind_given, strict;
	struct fit_line fits[FIT_LINES_MAX];
	unsigned n_fits;
};

static const char *const kinds[] = {"C", "P", "all", NULL};

static const struct opt options[] = {
	{OPT_CHOICE, "kind", "C|P|all",
	 "what profiles are fitted on, predictions, or both; of all layers",
	 "C, without those of layers that sim reproduce runs",
	 .to = offsetof(struct calibration, kinds), .choices = kinds},
	{OPT_FLAG, "strict", NULL, "exit status 1 when a measured line misses",
	 .to = offsetof(struct calibration, strict)},
	{OPT_TABLE, .to = offsetof(struct calibration, lines), .table = sim_lines_options},
	{OPT_END},
};

/* ---- the lines ---- */

static bool wanted(const struct sim_lines *l, const struct paper_line *line)
{
	const struct calibration *c = (const struct calibration *)l;

	/* What reproduce runs is not run here unless it is asked for. */
	if (!l->only && !c->kind_given && lab_is_above(line->layer))
		return false;
	return !c->kind || line->kind == c->kind;
}

static int calibrate_choose(struct calibration *c)
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

static const struct figure *figure_of(const struct sim_lines *l, unsigned i)
{
	return &((const struct figure *)l->results)[i];
}

static int run_line(struct sim_lines *l, unsigned i, void *result)
{
	struct figure *figure = result;
	const double began = sim_wall_now();
	const int rc = figure_eval(&l->env, l->lines[i], figure);

	figure->seconds = sim_wall_now() - began;
	return rc;
}

static void print_line(const struct sim_lines *l, unsigned i)
{
	if (l->json)
		report_json(stdout, &l->env, l->lines[i], figure_of(l, i), NULL);
	else
		report_row(stdout, l->lines[i], figure_of(l, i));
}

static int run_lines(struct calibration *c)
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

static int sim_calibrate_run(const struct args *args)
{
	struct calibration *c = args->opts;
	int status;

	c->lines.result_bytes = sizeof(struct figure);
	c->lines.run = run_line;
	c->lines.print = print_line;
	c->kind_given = opt_given(args, "kind");
	c->kind = kinds[c->kinds][0];
	if (c->kind == 'a' || (c->lines.only && !c->kind_given))
		c->kind = 0;
	status = calibrate_choose(c);
	if (!status)
		status = run_lines(c);
	if (!status)
		status = misses(c);
	sim_lines_free(&c->lines);
	return status;
}

const struct command command_sim_calibrate = {
	.name = "calibrate",
	.what = "run the papers' microbenchmarks and compare",
	.about = "Runs the papers' microbenchmarks as programs on simulated clusters, and prints "
		 "for each figure: id, what, the paper's value, the simulated one, error in per "
		 "cent, hit or miss, and where the paper says it. Lines that start with # sum up.",
	.more = "A line of a layer that is still to be written is waiting; one that cannot be run "
		"says no and why. All figures but the papers' own are simulated.",
	.run = sim_calibrate_run,
	OPTIONS(options, struct calibration, .lines = SIM_LINES_DEFAULT),
};
