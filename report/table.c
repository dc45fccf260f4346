/* SPDX-License-Identifier: MIT */
/* Tables. What gannet sim calibrate or reproduce found of a line counts more than the curve. */
#include "table.h"

#include <math.h>
#include <string.h>

#include "report.h"
#include "svg.h"

static void head(FILE *f)
{
	fputs("<div class=\"wide\"><table class=\"lines\">\n<thead><tr><th>Line</th>"
	      "<th>Configuration</th><th class=\"n\">Paper</th>"
	      "<th class=\"n\">Simulated</th><th class=\"n\">Error</th>"
	      "<th>Verdict</th><th>Source</th></tr></thead>\n<tbody>\n",
	      f);
}

static void tail(FILE *f)
{
	fputs("</tbody></table></div>\n", f);
}

static const char *unit_of(const struct paper_line *line)
{
	if (!strcmp(line->unit, "1") || !strcmp(line->unit, "-"))
		return "";
	return !strcmp(line->unit, "us") ? "µs" : line->unit;
}

static void paper_cell(FILE *f, const struct paper_line *line)
{
	static const char *const before[] = {
		[PAPER_EQUAL] = "",	   [PAPER_AT_MOST] = "≤ ",
		[PAPER_AT_LEAST] = "≥ ",   [PAPER_ORDER] = "best first: ",
		[PAPER_PEAK] = "peak at ",
	};
	const char *list = line->value;
	char item[CONFIG_VALUE_MAX];

	fprintf(f, "<td class=\"%s\">%s", line->op == PAPER_ORDER ? "o" : "n", before[line->op]);
	for (bool first = true; list_next(&list, item, sizeof(item)); first = false) {
		fputs(first ? "" : ", ", f);
		svg_escape(f, item);
	}
	if (line->op != PAPER_ORDER && *unit_of(line)) {
		fputs(" ", f);
		svg_escape(f, unit_of(line));
	}
	fputs("</td>", f);
}

static void simulated_cell(FILE *f, const struct figure *figure)
{
	char text[SVG_NUMBER_MAX];

	fputs(figure->n_list > 3 ? "<td class=\"o\">" : "<td class=\"n\">", f);
	if (figure->status != FIGURE_MEASURED)
		fputs("–", f);
	for (unsigned i = 0; i < figure->n_list; i++) {
		svg_number(figure->list[i], text);
		fprintf(f, "%s%s", i ? ", " : "", text);
	}
	if (figure->status == FIGURE_MEASURED && !figure->n_list) {
		svg_number(figure->simulated, text);
		fputs(isfinite(figure->simulated) ? text : "never", f);
	}
	fputs("</td>", f);
}

static void verdict_cells(FILE *f, const struct figure *figure, bool judged)
{
	if (figure->status == FIGURE_MEASURED && isfinite(figure->error_pct))
		fprintf(f, "<td class=\"n\">%+.1f %%</td>", figure->error_pct);
	else
		fputs("<td class=\"n\">–</td>", f);
	if (figure->status == FIGURE_MEASURED && judged) {
		fprintf(f, "<td class=\"%s\">%s</td>", figure->hit ? "hit" : "miss",
			figure->hit ? "✓ hit" : "✗ miss");
		return;
	}
	fprintf(f, "<td class=\"no\">%s</td>",
		figure->status == FIGURE_NO	 ? "not run" :
		figure->status == FIGURE_FAILED	 ? "failed" :
		figure->status == FIGURE_WAITING ? "no result" :
						   "");
}

static void row(FILE *f, const struct paper_line *line, const char *what,
		const struct figure *figure)
{
	fputs("<tr><td>", f);
	svg_escape(f, line->id);
	fputs("</td><td>", f);
	svg_escape(f, what);
	if (figure->reason[0]) { /* why there is none */
		fputs("<br><small>", f);
		svg_escape(f, figure->reason);
		fputs("</small>", f);
	}
	fputs("</td>", f);
	paper_cell(f, line);
	simulated_cell(f, figure);
	verdict_cells(f, figure, true);
	fputs("<td>", f);
	svg_escape(f, line->source);
	fputs("</td></tr>\n", f);
}

/* ---- of a chart ---- */

/* A sweep by the key that is swept: its values are those of the chart. */
static void shorten(const struct chart *chart, struct paper_line *line)
{
	char key[CONFIG_KEY_MAX];
	struct lab_error error;
	const char *list;

	for (unsigned i = 0; i < chart->config.n; i++)
		if (config_is(&line->config, chart->config.pair[i].key,
			      chart->config.pair[i].value))
			config_drop(&line->config, chart->config.pair[i].key);
	if (config_get(&line->config, "vary") && !config_vary(&line->config, key, &list, &error))
		config_set(&line->config, "vary", key, &error);
}

/* What the line says beyond the chart. */
static void what_of(const struct chart *chart, const struct chart_mark *mark, char out[WHAT_MAX])
{
	struct paper_line line = *mark->line;
	const size_t profile = strlen(line.profile) + 1;

	if (mark->where == CHART_AT_POINT) {
		snprintf(out, WHAT_MAX, "%s at %s", chart->series[mark->series].label,
			 chart->x[mark->x].label);
		return;
	}
	if (mark->where == CHART_HIGHEST) {
		snprintf(out, WHAT_MAX, "%s, its highest", chart->series[mark->series].label);
		return;
	}
	shorten(chart, &line);
	report_what(&line, out);
	if (!strcmp(line.profile, chart->profile) && strlen(out) > profile)
		memmove(out, out + profile, strlen(out + profile) + 1);
}

static double highest(const double *y, unsigned n)
{
	double best = NAN;

	for (unsigned i = 0; i < n; i++)
		best = fmax(best, y[i]);
	return best;
}

/* The curve at the place of a mark. */
static double on_curve(const struct results *r, const struct chart *chart,
		       const struct chart_mark *mark)
{
	const struct chart_result *result = &r->chart[chart - r->charts->chart];

	if (mark->where == CHART_LISTED)
		return NAN;
	if (mark->where == CHART_HIGHEST)
		return highest(result->y[mark->series], chart->n_x);
	return result->y[mark->series][mark->x];
}

static struct figure figure_of(const struct results *r, const struct chart *chart,
			       const struct chart_mark *mark)
{
	const double y = on_curve(r, chart, mark);
	struct figure figure = {.status = FIGURE_WAITING, .simulated = y, .error_pct = NAN};

	if (mark->line && r->lines[mark->line - r->paper->lines].known)
		return r->lines[mark->line - r->paper->lines].figure;
	if (mark->line && mark->line->no) {
		figure.status = FIGURE_NO;
		snprintf(figure.reason, sizeof(figure.reason), "%s", mark->line->no);
	} else if (isfinite(y)) {
		figure.status = FIGURE_MEASURED;
		figure.error_pct = 100 * (y / mark->value - 1);
		figure.hit = mark->line && fabs(figure.error_pct) <= mark->line->tol_pct + 1e-9;
	}
	return figure;
}

/* A figure of the text that is no line of the list: it has no tolerance. */
static void text_row(FILE *f, const struct chart *chart, const struct chart_mark *mark,
		     const struct figure *figure)
{
	char number[SVG_NUMBER_MAX];

	svg_number(mark->value, number);
	fputs("<tr><td>text</td><td>", f);
	svg_escape(f, chart->series[mark->series].label);
	fputs(", ", f);
	svg_escape(f, chart->x[mark->x].label);
	fprintf(f, "</td><td class=\"n\">%s</td>", number);
	simulated_cell(f, figure);
	verdict_cells(f, figure, false);
	fputs("<td>", f);
	svg_escape(f, chart->id);
	fputs("</td></tr>\n", f);
}

void table_of_marks(FILE *f, const struct results *r, const struct chart *chart,
		    const struct chart_mark *marks, unsigned n_marks)
{
	char what[WHAT_MAX];

	if (!n_marks)
		return;
	head(f);
	for (unsigned i = 0; i < n_marks; i++) {
		const struct figure figure = figure_of(r, chart, &marks[i]);

		if (marks[i].line) {
			what_of(chart, &marks[i], what);
			row(f, marks[i].line, what, &figure);
		} else {
			text_row(f, chart, &marks[i], &figure);
		}
	}
	tail(f);
}

void table_of_values(FILE *f, const struct plot *plot)
{
	char text[SVG_NUMBER_MAX];

	fputs("<details><summary>The simulated values as numbers</summary>\n<div class=\"wide\">"
	      "<table>\n<thead><tr><th>",
	      f);
	svg_escape(f, plot->x_label);
	fputs("</th>", f);
	for (unsigned x = 0; x < plot->n_x; x++) {
		fputs("<th class=\"n\">", f);
		svg_escape(f, plot->x_text[x]);
		fputs("</th>", f);
	}
	fputs("</tr></thead>\n<tbody>\n", f);
	for (unsigned s = 0; s < plot->n_series; s++) {
		fputs("<tr><td>", f);
		svg_escape(f, plot->series[s].label);
		fputs("</td>", f);
		for (unsigned x = 0; x < plot->n_x; x++) {
			svg_number(plot->series[s].y[x], text);
			fprintf(f, "<td class=\"n\">%s</td>", text);
		}
		fputs("</tr>\n", f);
	}
	fputs("</tbody></table></div></details>\n", f);
}

/* ---- of no chart ---- */

static bool has_chart(const struct results *r, const struct paper_line *line)
{
	const size_t len = strlen(line->id);

	for (unsigned c = 0; c < r->charts->n; c++) {
		const char *at = r->charts->chart[c].points;

		for (; (at = strstr(at, line->id)); at += len)
			if ((at == r->charts->chart[c].points || at[-1] == ',') &&
			    strchr(",@", at[len]))
				return true;
	}
	return false;
}

static bool is_other(const struct results *r, unsigned i)
{
	return r->lines[i].known && r->lines[i].figure.status != FIGURE_WAITING &&
	       r->lines[i].figure.status != FIGURE_NO && !has_chart(r, &r->paper->lines[i]);
}

bool table_has_others(const struct results *r)
{
	for (unsigned i = 0; i < r->paper->n; i++)
		if (is_other(r, i))
			return true;
	return false;
}

void table_of_others(FILE *f, const struct results *r)
{
	char what[WHAT_MAX];

	fputs("<section id=\"other\">\n<h2>Lines that belong to no figure</h2>\n", f);
	head(f);
	for (unsigned i = 0; i < r->paper->n; i++) {
		if (!is_other(r, i))
			continue;
		report_what(&r->paper->lines[i], what);
		row(f, &r->paper->lines[i], what, &r->lines[i].figure);
	}
	tail(f);
	fputs("</section>\n", f);
}
