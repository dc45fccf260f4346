/* SPDX-License-Identifier: MIT */
/*
 * gannet report: results of gannet sim figures, reproduce and calibrate and of gannet bench msg as
 * one page of figures. report/ reads and draws.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "cmd.h"
#include "command.h"
#include "page.h"

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *output, *figure;
	bool svg;
	struct paper paper;
	struct charts charts;
	struct results results;
	struct page_facts facts;
};

static const struct opt options[] = {
	{OPT_TEXT, "output", "FILE", "write it there, when it is whole", "standard output",
	 .letter = 'o', AT(output)},
	{OPT_TEXT, "figure", "ID",
	 "only this figure, as S003-8a; gannet sim figures --list names them", AT(figure)},
	{OPT_FLAG, "svg", NULL, "… as an SVG picture of its own", AT(svg)},
	{OPT_END},
};

static int read_lists(struct request *q)
{
	struct lab_error error;

	if (paper_parse(&q->paper, lab_paper_data, (size_t)(lab_paper_data_end - lab_paper_data),
			&error))
		return cmd_usage_error("data/paper.tsv: %s", error.text);
	if (charts_parse(&q->charts, lab_figures_data,
			 (size_t)(lab_figures_data_end - lab_figures_data), &error))
		return cmd_usage_error("data/figures.tsv: %s", error.text);
	if (q->figure && !charts_find(&q->charts, q->figure))
		return cmd_usage_error("--figure: there is no figure '%s'; gannet sim figures "
				       "--list names them",
				       q->figure);
	if (results_init(&q->results, &q->paper, &q->charts)) {
		fputs("gannet: no memory for the results\n", stderr);
		return EXIT_FAILURE;
	}
	return 0;
}

static bool has_points(const struct request *q)
{
	const struct chart *chart = charts_find(&q->charts, q->figure);

	return q->results.chart[chart - q->charts.chart].n > 0;
}

static int read_results(struct request *q, char **files, int n)
{
	for (int i = 0; i < n; i++) {
		const char *name = strrchr(files[i], '/');
		const int rc = results_read(&q->results, files[i]);

		if (rc) {
			fprintf(stderr, "gannet: %s: %s\n", files[i], strerror(-rc));
			return EXIT_FAILURE;
		}
		words_add(&q->facts.files, name ? name + 1 : files[i]);
	}
	if (q->results.usable && q->svg && !has_points(q)) {
		fprintf(stderr, "gannet: no point of %s is in %s%s\n", q->figure, files[0],
			n > 1 ? " or the other files" : "");
		return EXIT_FAILURE;
	}
	if (q->results.usable)
		return 0;
	fprintf(stderr, "gannet: no line of %s%s is a result\n", files[0],
		n > 1 ? " and the other files" : "");
	return EXIT_FAILURE;
}

/* ---- writing ---- */

/* SOURCE_DATE_EPOCH, where it is set, makes the same page of the same results. */
static void set_facts(struct request *q, char machine[512], char date[64])
{
	const char *epoch = getenv("SOURCE_DATE_EPOCH");
	const time_t now = epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
	struct bench_machine here;
	struct tm tm;

	bench_machine_get(&here);
	snprintf(machine, 512, "%s, %d cores, Linux %s", here.cpu, here.cores, here.kernel);
	date[0] = '\0';
	if (gmtime_r(&now, &tm))
		strftime(date, 64, "%Y-%m-%d %H:%M UTC", &tm);
	q->facts.machine = machine;
	q->facts.date = date;
}

static int write_to(FILE *f, struct request *q)
{
	struct lab_error error;
	char machine[512], date[64];
	int rc;

	set_facts(q, machine, date);
	if (q->svg)
		rc = page_svg(f, &q->results, charts_find(&q->charts, q->figure), &error);
	else
		rc = page_write(f, &q->results, &q->facts, &error);
	if (!rc)
		return 0;
	fprintf(stderr, "gannet: data/figures.tsv: %s\n", error.text);
	return EXIT_FAILURE;
}

static int fail(const char *output, int error)
{
	fprintf(stderr, "gannet: cannot write %s: %s\n", output, strerror(error));
	return EXIT_FAILURE;
}

/* Beside it first, and renamed: who looks sees the old page or the new one. */
static int write_file(struct request *q)
{
	const mode_t mask = umask(0);
	char *part = NULL;
	int fd, status;
	FILE *f;

	umask(mask);
	if (asprintf(&part, "%s.XXXXXX", q->output) < 0)
		return fail(q->output, ENOMEM);
	fd = mkstemp(part);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		status = fail(q->output, errno);
		if (fd >= 0)
			close(fd);
		goto done;
	}
	fchmod(fd, 0666 & ~mask);
	status = write_to(f, q);
	if (!status && (fflush(f) || ferror(f)))
		status = fail(q->output, errno);
	if (fclose(f) && !status)
		status = fail(q->output, errno);
	if (!status && rename(part, q->output))
		status = fail(q->output, errno);
done:
	if (status && fd >= 0)
		unlink(part);
	free(part);
	return status;
}

static int report_run(const struct args *args)
{
	struct request *q = args->opts;
	int status;

	if (q->svg && !q->figure)
		return cmd_usage_error("--svg needs --figure ID: a picture is of one figure");
	if (q->figure && !q->svg)
		return cmd_usage_error("--figure needs --svg: a page has all figures");
	status = read_lists(q);
	if (!status)
		status = read_results(q, args->words, args->n_words);
	if (!status && q->output)
		status = write_file(q);
	else if (!status) {
		status = write_to(stdout, q);
		status = status ? status : cmd_flush_stdout();
	}
	results_free(&q->results);
	charts_free(&q->charts);
	paper_free(&q->paper);
	return status;
}

const struct command command_report = {
	.name = "report",
	.what = "the papers' figures as a page, from files of results",
	.about = "Draws the papers' figures from files of results, one JSON object a line, as "
		 "written by gannet sim figures --out, gannet sim reproduce --json, gannet sim "
		 "calibrate --json and gannet bench msg --json; - is standard input. Writes one "
		 "HTML page that needs no network and no script: the papers' points, simulated "
		 "curves, measured ones where there are any, and tables of errors. Lines that are "
		 "not understood are named on stderr and left out.",
	.more = "All curves are simulated, unless they say that they are measured.",
	.run = report_run,
	.words = "RESULTS…",
	.min_words = 1,
	.max_words = INT_MAX,
	OPTIONS(options, struct request, .output = NULL),
};
