/* SPDX-License-Identifier: MIT */
/* The points of a chart: where they are simulated, and where the paper's stand. */
#include "figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double chart_x_number(const struct chart *chart, unsigned x)
{
	return strtod(chart->x[x].label, NULL);
}

int chart_series_find(const struct chart *chart, const char *label)
{
	for (unsigned i = 0; i < chart->n_series; i++)
		if (!strcmp(chart->series[i].label, label))
			return (int)i;
	return -1;
}

int chart_x_find(const struct chart *chart, const char *label)
{
	for (unsigned i = 0; i < chart->n_x; i++)
		if (!strcmp(chart->x[i].label, label))
			return (int)i;
	return -1;
}

/* ---- simulated points ---- */

static int apply(const struct config *changes, struct point *point, const char **metric,
		 struct lab_error *error)
{
	for (unsigned i = 0; i < changes->n; i++) {
		const char *key = changes->pair[i].key, *value = changes->pair[i].value;
		int rc = 0;

		if (!strcmp(key, "metric"))
			*metric = value;
		else if (!strcmp(key, "profile"))
			point->profile = value;
		else
			rc = config_set(&point->config, key, value, error);
		if (rc)
			return rc;
	}
	return 0;
}

int chart_point(const struct chart *chart, unsigned series, unsigned x, struct point *out,
		const char **metric, struct lab_error *error)
{
	int rc;

	*out = (struct point){chart->layer, chart->profile, chart->preset, chart->config};
	*metric = chart->metric;
	rc = apply(&chart->series[series].changes, out, metric, error);
	return rc ? rc : apply(&chart->x[x].changes, out, metric, error);
}

/* ---- the paper's ---- */

static bool line_has(const struct paper_line *line, const char *key, const char *value)
{
	const char *has = config_get(&line->config, key);

	if (!has && !strcmp(key, "batch"))
		has = "1"; /* as the list says */
	return has && !strcmp(has, value);
}

/* Does the line have what the item changes? */
static bool agrees(const struct chart_item *item, const struct paper_line *line,
		   const char *profile)
{
	for (unsigned i = 0; i < item->changes.n; i++) {
		const char *key = item->changes.pair[i].key, *value = item->changes.pair[i].value;

		if (!strcmp(key, "profile"))
			profile = value;
		else if (strcmp(key, "metric") && !line_has(line, key, value))
			return false;
	}
	return !strcmp(line->profile, profile);
}

static const char *item_says(const struct chart_item *item, const char *key, const char *otherwise)
{
	const char *says = config_get(&item->changes, key);

	return says ? says : otherwise;
}

static bool is_of(const struct paper_line *line, const char *metric, const char *suffix)
{
	const size_t len = strlen(metric);

	return !strncmp(line->metric, metric, len) && !strcmp(line->metric + len, suffix);
}

/* A ratio is a point of a chart of the same ratio only. */
static bool same_comparison(const struct chart *chart, const struct paper_line *line)
{
	static const char *const keys[] = {"of", "over"};

	for (unsigned i = 0; i < 2; i++) {
		const char *here = config_get(&chart->config, keys[i]);
		const char *there = config_get(&line->config, keys[i]);

		if (strcmp(here ? here : "", there ? there : ""))
			return false;
	}
	return true;
}

static bool sweeps(const struct chart *chart, const struct paper_line *line)
{
	struct lab_error error;
	const char *list;
	char key[CONFIG_KEY_MAX];

	return config_get(&line->config, "vary") &&
	       !config_vary(&line->config, key, &list, &error) && !strcmp(key, chart->x_key);
}

static void place(const struct chart *chart, struct chart_mark *mark)
{
	const struct paper_line *line = mark->line;

	mark->where = CHART_LISTED;
	mark->value = line->number_value;
	if (line->op != PAPER_EQUAL || !same_comparison(chart, line))
		return;
	for (unsigned s = 0; s < chart->n_series; s++) {
		const char *profile = item_says(&chart->series[s], "profile", chart->profile);

		if (chart->scale != CHART_BARS && sweeps(chart, line) &&
		    is_of(line, chart->metric, "_max") &&
		    agrees(&chart->series[s], line, profile)) {
			mark->where = CHART_HIGHEST;
			mark->series = s;
			return;
		}
		for (unsigned x = 0; x < chart->n_x; x++) {
			const char *at = item_says(&chart->x[x], "profile", profile);

			if (!agrees(&chart->series[s], line, at) ||
			    !agrees(&chart->x[x], line, at) ||
			    !is_of(line, item_says(&chart->x[x], "metric", chart->metric), ""))
				continue;
			mark->where = CHART_AT_POINT;
			mark->series = s;
			mark->x = x;
			return;
		}
	}
}

/* Cuts *text at the first c; NULL without one. */
static char *cut(char *text, char c)
{
	char *at = strchr(text, c);

	if (at)
		*at++ = '\0';
	return at;
}

/* SERIES@X of a point that is put there by hand. */
static int put(const struct chart *chart, char *series, struct chart_mark *mark,
	       struct lab_error *error)
{
	char *x = cut(series, '@');
	const int s = chart_series_find(chart, series), i = x ? chart_x_find(chart, x) : -1;

	if (s < 0 || i < 0)
		return lab_error(error, "%s: points: there is no '%s' at '%s'", chart->id, series,
				 x ? x : "");
	mark->where = CHART_AT_POINT;
	mark->series = (unsigned)s;
	mark->x = (unsigned)i;
	return 0;
}

static int read_mark(const struct chart *chart, const struct paper *paper, char *text,
		     struct chart_mark *mark, struct lab_error *error)
{
	char *number = cut(text, '='), *series, *end;

	*mark = (struct chart_mark){.where = CHART_LISTED};
	if (number) {
		mark->value = strtod(number, &end);
		if (end == number || *end)
			return lab_error(error, "%s: points: '%s' is not a number", chart->id,
					 number);
		return put(chart, text, mark, error);
	}
	series = cut(text, '@');
	mark->line = paper_find(paper, text);
	if (!mark->line)
		return lab_error(error, "%s: points: there is no line '%s'", chart->id, text);
	place(chart, mark);
	return series ? put(chart, series, mark, error) : 0;
}

int chart_marks(const struct chart *chart, const struct paper *paper,
		struct chart_mark marks[CHART_MARKS_MAX], unsigned *n, struct lab_error *error)
{
	const char *list = strcmp(chart->points, "-") ? chart->points : NULL;
	char text[128];

	for (*n = 0; list && list_next(&list, text, sizeof(text)); (*n)++) {
		int rc;

		if (*n == CHART_MARKS_MAX)
			return lab_error(error, "%s: points: more than %u", chart->id,
					 CHART_MARKS_MAX);
		rc = read_mark(chart, paper, text, &marks[*n], error);
		if (rc)
			return rc;
	}
	return 0;
}
