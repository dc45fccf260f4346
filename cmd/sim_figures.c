/* SPDX-License-Identifier: MIT */
/*
 * gannet sim figures: whole curves of the papers' figures on simulated clusters, point by point,
 * for gannet report to draw. What a file has already is not run again, so that an interrupted run
 * goes on where it stopped. lab/ has the list of charts and runs a point.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/base.h>
#include <gannet/sim.h>

#include "bench.h"
#include "cmd.h"
#include "sim_figures.h"

#define SEED_MAX (1ull << 53) /* a larger one would not be known again: readers have doubles */

#define AT(member) .to = offsetof(struct sim_figures, member)

static const struct opt options[] = {
	{OPT_TEXT, "figure", "LIST",
	 "these figures only, as S003-8a,S002-7; those of a paper as S003", AT(figures)},
	{OPT_FLAG, "list", NULL, "what there is, and how many points each has", AT(list)},
	{OPT_TEXT, "out", "FILE",
	 "append the objects to FILE instead; points that it has already (same settings, seed, "
	 "effort and version) are not run again",
	 AT(out)},
	{OPT_TABLE, .to = offsetof(struct sim_figures, options), .table = sim_run_options},
	{OPT_END},
};

/* ---- the choice ---- */

/* S003 stands for all of that paper, S003-8 for 8a, 8b and 8c. */
static bool matches(const char *id, const char *item)
{
	const size_t len = strlen(item);

	return !strncmp(id, item, len) &&
	       (!id[len] || id[len] == '-' || (id[len] >= 'a' && id[len] <= 'z'));
}

static bool is_chosen(const struct sim_figures *r, const char *id)
{
	const char *list = r->figures;
	char item[64];

	while (list && list_next(&list, item, sizeof(item)))
		if (matches(id, item))
			return true;
	return !r->figures;
}

static int check_choice(const struct sim_figures *r)
{
	const char *list = r->figures;
	char item[64];

	if (r->options.env.seed > SEED_MAX)
		return cmd_usage_error("--seed must be at most %llu here, not %llu",
				       (unsigned long long)SEED_MAX,
				       (unsigned long long)r->options.env.seed);
	while (list && list_next(&list, item, sizeof(item))) {
		unsigned i = 0;

		while (i < r->charts.n && !matches(r->charts.chart[i].id, item))
			i++;
		if (!*item || i == r->charts.n)
			return cmd_usage_error("--figure: there is no figure '%s'; gannet sim "
					       "figures --list names them",
					       item);
	}
	for (unsigned i = 0; i < r->options.env.n_cards; i++)
		if (!gn_sim_profile_text(r->options.env.cards[i].profile))
			return cmd_usage_error("--profile: no figure asks for '%s'",
					       r->options.env.cards[i].profile);
	return 0;
}

static int read_lists(struct sim_figures *r)
{
	struct lab_error error;

	if (paper_parse(&r->paper, lab_paper_data, (size_t)(lab_paper_data_end - lab_paper_data),
			&error))
		return cmd_usage_error("data/paper.tsv: %s", error.text);
	if (charts_parse(&r->charts, lab_figures_data,
			 (size_t)(lab_figures_data_end - lab_figures_data), &error))
		return cmd_usage_error("data/figures.tsv: %s", error.text);
	r->options.env.paper = &r->paper;
	return 0;
}

static double number_of(const struct config *config, const char *key)
{
	const char *text = config_get(config, key);
	const double n = text ? strtod(text, NULL) : 1;

	return n >= 1 ? n : 1;
}

/* How long it will take, roughly, compared with others: threads that ask, and what they sweep. */
static double weigh(const struct sim_job *job)
{
	struct point at;
	const char *metric, *vary;
	double weight;

	if (sim_figures_point(job, &at, &metric))
		return 1;
	weight = number_of(&at.config, "client_machines") *
		 number_of(&at.config, "clients_per_machine");
	if (config_get(&at.config, "topology"))
		weight = number_of(&at.config, "nodes") * number_of(&at.config, "threads");
	vary = config_get(&at.config, "vary");
	for (; vary && *vary; vary++)
		weight += *vary == ',' ? weight : 0;
	return config_get(&at.config, "over") ? 2 * weight : weight;
}

static int make_jobs(struct sim_figures *r)
{
	const size_t most = (size_t)r->charts.n * CHART_SERIES_MAX * CHART_X_MAX;

	r->jobs = calloc(most, sizeof(r->jobs[0]));
	r->groups = calloc(most, sizeof(r->groups[0]));
	if (!r->jobs || !r->groups) {
		fputs("gannet: no memory for the points\n", stderr);
		return EXIT_FAILURE;
	}
	for (unsigned c = 0; c < r->charts.n; c++) {
		const struct chart *chart = &r->charts.chart[c];

		for (unsigned s = 0; s < chart->n_series && is_chosen(r, chart->id); s++)
			for (unsigned x = 0; x < chart->n_x; x++)
				r->jobs[r->n++] =
					(struct sim_job){.chart = chart, .series = s, .x = x};
	}
	return 0;
}

static void print_list(const struct sim_figures *r)
{
	for (unsigned c = 0; c < r->charts.n; c++) {
		const struct chart *chart = &r->charts.chart[c];

		if (is_chosen(r, chart->id))
			printf("%s\t%u\t%s\n", chart->id, chart->n_series * chart->n_x,
			       chart->title);
	}
}

/* ---- running ---- */

static int run_point(void *arg, unsigned i, void *result)
{
	struct sim_figures *r = arg;
	struct sim_outcome *out = result;
	const double began = sim_wall_now();
	struct lab_error error = {""};
	const char *metric;
	struct point at;
	int rc = sim_figures_point(&r->jobs[i], &at, &metric);

	*out = (struct sim_outcome){.y = NAN, .status = FIGURE_MEASURED};
	if (!rc)
		rc = point_figure(&r->options.env, &at, metric, &out->y, &error);
	if (bench_stopped())
		return -EINTR;
	out->seconds = sim_wall_now() - began;
	if (!rc)
		return 0;
	out->y = NAN;
	/* What is not the paper's may be something that the protocol cannot do. */
	out->status = r->jobs[i].series >= r->jobs[i].chart->n_paper ? FIGURE_NO : FIGURE_FAILED;
	if (rc == -ENOSYS)
		lab_error(&error, "there is no layer %s yet", at.layer);
	snprintf(out->reason, sizeof(out->reason), "%s", error.text);
	return 0;
}

/* Points of one curve have runs in common, also with the same curve of other figures. */
static void figures_group(struct sim_figures *r)
{
	for (unsigned i = 0; i < r->n; i++) {
		struct point at = {0}, other;
		const char *metric;

		r->groups[i] = i;
		if (sim_figures_point(&r->jobs[i], &at, &metric))
			continue;
		for (unsigned k = 0; k < i; k++) {
			const char *a = config_get(&at.config, "topology"), *b;

			if (r->groups[k] != k || sim_figures_point(&r->jobs[k], &other, &metric) ||
			    strcmp(at.layer, other.layer) ||
			    strcmp(r->jobs[i].chart->series[r->jobs[i].series].label,
				   r->jobs[k].chart->series[r->jobs[k].series].label))
				continue;
			b = config_get(&other.config, "topology");
			if (strcmp(a ? a : "", b ? b : ""))
				continue;
			r->groups[i] = k;
			break;
		}
	}
}

static void print_row(const struct sim_job *job, const struct sim_outcome *o)
{
	const char *metric;
	struct point at;

	if (sim_figures_point(job, &at, &metric))
		return;
	printf("%s\t%s\t%s\t", job->chart->id, job->chart->series[job->series].label,
	       job->chart->x[job->x].label);
	if (o->status == FIGURE_MEASURED)
		printf("%.4g\t%s\n", o->y, metric);
	else
		printf("-\t%s: %s\n", figure_status_text(o->status), o->reason);
}

static void erase_progress(void)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%70s\r", "");
}

static void show_progress(const struct sim_figures *r, const char *id)
{
	const double spent = sim_wall_now() - r->began, left = r->weight - r->weight_done;

	if (!isatty(STDERR_FILENO) || r->n_done == r->n)
		return;
	fprintf(stderr, "\r%u of %u points, %s", r->n_done, r->n, id);
	if (r->n_done > 1 && r->weight_done > 0)
		fprintf(stderr, ", about %.0f s left", ceil(spent * left / r->weight_done));
}

static void point_done(void *arg, unsigned i, const void *result)
{
	struct sim_figures *r = arg;
	const struct sim_outcome *o = result;
	const struct sim_job *job = &r->jobs[i];

	r->n_done++;
	r->weight_done += job->weight;
	erase_progress();
	if (o->status == FIGURE_FAILED) {
		r->n_failed++;
		fprintf(stderr, "gannet: %s, %s at %s: %s\n", job->chart->id,
			job->chart->series[job->series].label, job->chart->x[job->x].label,
			o->reason);
	}
	if (r->to)
		sim_figures_write(r, job, o);
	else
		print_row(job, o);
	/* One that cannot be kept need not be run: the others are not either. */
	if (fflush(r->to ? r->to : stdout) && !r->broken) {
		r->broken = true;
		fprintf(stderr, "gannet: %s: %s\n", r->out ? r->out : "stdout", strerror(errno));
		bench_stop();
	}
	show_progress(r, job->chart->id);
}

static int run_all(struct sim_figures *r)
{
	const struct workers_job job = {
		.n = r->n,
		.groups = r->groups,
		.result_bytes = sizeof(struct sim_outcome),
		.run = run_point,
		.done = point_done,
		.arg = r,
		.interrupted = bench_stop_flag(),
	};
	int rc;

	figures_group(r);
	for (unsigned i = 0; i < r->n; i++) {
		r->jobs[i].weight = weigh(&r->jobs[i]);
		r->weight += r->jobs[i].weight;
	}
	r->options.env.interrupted = bench_stop_flag();
	bench_stop_on_signals();
	fflush(stdout); /* or workers would inherit what is in it */
	r->began = sim_wall_now();
	rc = workers_run(&job, r->options.jobs);
	erase_progress();
	if (r->broken)
		return EXIT_FAILURE;
	if (r->out)
		printf("# %s: %u points simulated, %u were there, %u failed\n", r->out,
		       r->n_done - r->n_failed, r->n_known, r->n_failed);
	if (rc == -EINTR && r->out)
		fprintf(stderr, "gannet: interrupted; the same command goes on from %s\n", r->out);
	rc = sim_lines_status(rc);
	return !rc && r->n_failed ? EXIT_FAILURE : rc;
}

static int figures_start(struct sim_figures *r)
{
	int status = read_lists(r);

	if (!status)
		status = check_choice(r);
	if (!status && r->list) {
		print_list(r);
		return cmd_flush_stdout();
	}
	if (!status)
		status = make_jobs(r);
	if (!status && r->out)
		status = sim_figures_open(r);
	else if (r->options.json)
		r->to = stdout;
	return status ? status : run_all(r);
}

static int sim_figures_run(const struct args *args)
{
	struct sim_figures *r = args->opts;
	int status = figures_start(r);

	if (r->out && r->to && fclose(r->to) && !status) {
		fprintf(stderr, "gannet: --out %s: %s\n", r->out, strerror(errno));
		status = EXIT_FAILURE;
	}
	figure_forget(&r->options.env);
	charts_free(&r->charts);
	paper_free(&r->paper);
	free(r->jobs);
	free(r->groups);
	return status;
}

const struct command command_sim_figures = {
	.name = "figures",
	.what = "run the papers' figures, whole curves, for gannet report",
	.about = "Simulates the curves of the papers' figures, point by point, for gannet report. "
		 "Prints for each point: figure, series, x, the simulated value and its metric.",
	.more = "All of it is simulated. Ctrl-C keeps what is done.",
	.run = sim_figures_run,
	OPTIONS(options, struct sim_figures, .options = SIM_LINES_DEFAULT),
};
