/* SPDX-License-Identifier: MIT */
/*
 * gannet sim reproduce: the papers' systems, as this library has them, on simulated clusters. Every
 * line is run twice: the papers' way, which is scored, and the library's own, which stands beside
 * it. sim_lines.c chooses and runs the lines, lab/ does the rest.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "score.h"
#include "sim_lines.h"

struct reproduction {
	struct sim_lines lines; /* the first: this is found by it */
	const char *layers;
};

/* What is known of a line. */
struct both {
	struct figure scored, gannet;
};

static_assert(sizeof(struct both) <= WORKER_RESULT_MAX, "a worker sends it at once");

/* ---- the choice ---- */

static int take_layers(const char *name, const char *text, void *to)
{
	const char *list = text;
	char item[64];

	while (list_next(&list, item, sizeof(item)))
		if (!lab_is_above(item))
			return cmd_usage_error("%s: '%s' is not a layer that can be run here", name,
					       item);
	memcpy(to, &text, sizeof(text));
	return 0;
}

static const struct opt options[] = {
	{OPT_OTHER, "layer", "LIST", "rpc, kv, msg; all there are but fabric, which calibrate runs",
	 .to = offsetof(struct reproduction, layers), .take = take_layers},
	{OPT_TABLE, .to = offsetof(struct reproduction, lines), .table = sim_lines_options},
	{OPT_END},
};

static bool wanted(const struct sim_lines *l, const struct paper_line *line)
{
	const struct reproduction *r = (const struct reproduction *)l;
	const char *list = r->layers;
	char item[64];

	if (!lab_is_above(line->layer))
		return false;
	while (list && list_next(&list, item, sizeof(item)))
		if (!strcmp(item, line->layer))
			return true;
	return !r->layers;
}

/* ---- running ---- */

static const struct both *both_of(const struct sim_lines *l, unsigned i)
{
	return &((const struct both *)l->results)[i];
}

static int run_line(struct sim_lines *l, unsigned i, void *result)
{
	struct both *both = result;
	const double began = sim_wall_now();
	int rc;

	l->env.preset = NULL;
	rc = figure_eval(&l->env, l->lines[i], &both->scored);
	l->env.preset = "gannet";
	if (!rc)
		rc = figure_eval(&l->env, l->lines[i], &both->gannet);
	both->scored.seconds = sim_wall_now() - began;
	return rc;
}

static void print_row(const struct paper_line *line, const struct both *both)
{
	const struct figure *scored = &both->scored;
	const bool measured = scored->status == FIGURE_MEASURED;
	char what[WHAT_MAX];

	printf("%s\t%s\t%s\t%s\t", line->id, line->profile, line->value, paper_op_text(line->op));
	report_value(stdout, scored);
	if (measured && line->op == PAPER_EQUAL)
		printf("\t%+.1f", scored->error_pct);
	else
		fputs("\t-", stdout);
	printf("\t%s\t", measured ? (scored->hit ? "hit" : "miss") : "-");
	report_value(stdout, &both->gannet);
	report_what(line, what);
	if (measured)
		printf("\t%s\n", what);
	else
		printf("\t%s: %s\n", figure_status_text(scored->status), scored->reason);
	fflush(stdout);
}

static void print_line(const struct sim_lines *l, unsigned i)
{
	const struct both *both = both_of(l, i);

	if (l->json)
		report_json(stdout, &l->env, l->lines[i], &both->scored, &both->gannet);
	else
		print_row(l->lines[i], both);
}

/* ---- the score ---- */

/* Says it for each layer that has a line; false when one is missed. */
static bool print_scores(const struct sim_lines *l)
{
	bool reached = true;

	for (const struct lab_layer *layer = lab_layers; layer->name; layer++) {
		struct score score = {0};
		bool any = false;

		for (unsigned i = 0; i < l->n; i++) {
			if (!l->done[i] || strcmp(l->lines[i]->layer, layer->name))
				continue;
			score_add(&score, l->lines[i], &both_of(l, i)->scored);
			any = true;
		}
		if (any && l->json)
			score_json(stdout, layer->name, &score);
		else if (any)
			score_print(stdout, layer->name, &score);
		reached = reached && score_reached(&score);
	}
	return reached;
}

/* What was run and gave nothing, also of the other preset, is a failure of ours. */
static bool say_failures(const struct sim_lines *l)
{
	bool any = false;

	for (unsigned i = 0; i < l->n; i++) {
		const struct both *both = both_of(l, i);
		const struct figure *figure = both->scored.status == FIGURE_FAILED ? &both->scored :
										     &both->gannet;

		if (!l->done[i] || figure->status != FIGURE_FAILED)
			continue;
		fprintf(stderr, "gannet: %s failed: %s\n", l->lines[i]->id, figure->reason);
		any = true;
	}
	return any;
}

static int run_lines(struct sim_lines *l)
{
	bool reached;
	int rc, status;

	if (!l->json)
		puts("id\tprofile\tpaper\top\tsimulated\terror_%\thit|miss\t"
		     "gannet_simulated\tnote");
	rc = sim_lines_run(l);
	reached = print_scores(l);
	status = sim_lines_status(rc);
	if (say_failures(l) || !reached)
		status = status ? status : EXIT_FAILURE;
	return status;
}

static int sim_reproduce_run(const struct args *args)
{
	struct reproduction *r = args->opts;
	struct sim_lines *l = &r->lines;
	int status;

	l->result_bytes = sizeof(struct both);
	l->run = run_line;
	l->print = print_line;
	status = sim_lines_choose(l, wanted);
	if (!status && !l->n)
		status = cmd_usage_error("--only: no such line is of a layer that is run here");
	if (!status)
		status = run_lines(l);
	sim_lines_free(l);
	return status;
}

const struct command command_sim_reproduce = {
	.name = "reproduce",
	.what = "run the papers' own systems, as built here, and compare",
	.about = "Runs the papers' systems, as the library has them, on simulated clusters. Prints "
		 "for each figure: id, profile, the paper's value, how it is compared, the value "
		 "simulated the papers' way, its error in per cent, hit or miss, the value "
		 "simulated with the library's defaults, and what it is about. Lines that start "
		 "with # are the score of each layer; when one is missed, the exit status is 1.",
	.more = "All figures but the papers' own are simulated.",
	.run = sim_reproduce_run,
	OPTIONS(options, struct reproduction, .lines = SIM_LINES_DEFAULT),
};
