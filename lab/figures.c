/* SPDX-License-Identifier: MIT */
/* Reading the list of charts. A line that is not understood is named, with its field. */
#include "figures.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum column {
	ID,
	TITLE,
	LAYER,
	PROFILE,
	PRESET,
	CONFIG,
	METRIC,
	Y_LABEL,
	X,
	X_LABEL,
	SCALE,
	SERIES,
	EXTRA,
	IDEAL,
	POINTS,
	NOTE,
	COLUMNS
};

static const char *const column_names[COLUMNS] = {
	"id", "title",	 "layer", "profile", "preset", "config", "metric", "y_label",
	"x",  "x_label", "scale", "series",  "extra",  "ideal",	 "points", "note",
};

/* ---- places and curves ---- */

static int item_set(struct chart_item *item, const char *label, size_t len, struct lab_error *error)
{
	if (!len || len >= sizeof(item->label))
		return lab_error(error, "a name of %zu characters; 1 to %zu are allowed", len,
				 sizeof(item->label) - 1);
	memcpy(item->label, label, len);
	item->label[len] = '\0';
	item->changes.n = 0;
	return 0;
}

/* KEY:a,b,c */
static int parse_values(const char *text, struct chart_item *items, unsigned max, unsigned *n,
			char key[CONFIG_KEY_MAX], struct lab_error *error)
{
	const char *colon = strchr(text, ':'), *list;
	char value[CONFIG_VALUE_MAX];

	if (!colon || colon == text || colon - text >= (ptrdiff_t)CONFIG_KEY_MAX)
		return lab_error(error, "'%.60s' is not KEY:a,b,c", text);
	memcpy(key, text, (size_t)(colon - text));
	key[colon - text] = '\0';
	for (list = colon + 1; list_next(&list, value, sizeof(value)); (*n)++) {
		int rc;

		if (*n == max)
			return lab_error(error, "more than %u of them", max);
		rc = item_set(&items[*n], value, strlen(value), error);
		if (!rc)
			rc = config_set(&items[*n].changes, key, value, error);
		if (rc)
			return rc;
	}
	return 0;
}

/* LABEL=KEY:v,KEY:v|LABEL=… */
static int parse_named(const char *text, struct chart_item *items, unsigned max, unsigned *n,
		       struct lab_error *error)
{
	char changes[512];

	for (const char *next; text; text = next) {
		const char *stop = strchrnul(text, '|');
		const char *is = memchr(text, '=', (size_t)(stop - text));
		int rc;

		next = *stop ? stop + 1 : NULL;
		if (!is || (size_t)(stop - is) > sizeof(changes))
			return lab_error(error, "'%.60s' is not LABEL=KEY:v,KEY:v", text);
		if (*n == max)
			return lab_error(error, "more than %u of them", max);
		memcpy(changes, is + 1, (size_t)(stop - is - 1));
		changes[stop - is - 1] = '\0';
		rc = item_set(&items[*n], text, (size_t)(is - text), error);
		if (!rc)
			rc = config_change(&items[*n].changes, changes, error);
		if (rc)
			return rc;
		(*n)++;
	}
	return 0;
}

static int parse_items(const char *text, struct chart_item *items, unsigned max, unsigned *n,
		       char key[CONFIG_KEY_MAX], struct lab_error *error)
{
	key[0] = '\0';
	if (strchr(text, '='))
		return parse_named(text, items, max, n, error);
	return parse_values(text, items, max, n, key, error);
}

static int parse_scale(struct chart *chart, const char *text, struct lab_error *error)
{
	static const char *const scales[] = {
		[CHART_LINEAR] = "linear", [CHART_LOG2] = "log2", [CHART_BARS] = "bars"};
	unsigned i = 0;

	while (i <= CHART_BARS && strcmp(text, scales[i]))
		i++;
	if (i > CHART_BARS)
		return lab_error(error, "scale: '%s' is not linear, log2 or bars", text);
	chart->scale = (enum chart_scale)i;
	if (chart->scale == CHART_BARS)
		return 0;
	if (!chart->x_key[0] || chart->n_x < 2)
		return lab_error(error, "x: a curve needs KEY:a,b,…");
	for (unsigned x = 0; x < chart->n_x; x++) {
		char *end;
		const double number = strtod(chart->x[x].label, &end);

		if (end == chart->x[x].label || *end || !(number > 0) || !isfinite(number))
			return lab_error(error, "x: '%s' is not a number above 0",
					 chart->x[x].label);
		if (x && number <= chart_x_number(chart, x - 1))
			return lab_error(error, "x: %s does not come after %s", chart->x[x].label,
					 chart->x[x - 1].label);
	}
	return 0;
}

/* NUMBER|NUMBER…:what it is */
static int parse_ideal(struct chart *chart, const char *text, struct lab_error *error)
{
	const char *colon = strchr(text, ':');
	unsigned n = 0;

	for (unsigned x = 0; x < CHART_X_MAX; x++)
		chart->ideal[x] = NAN;
	if (!strcmp(text, "-"))
		return 0;
	if (!colon || !colon[1])
		return lab_error(error, "ideal: '%s' is not NUMBER:what it is", text);
	chart->ideal_label = colon + 1;
	for (const char *at = text; at < colon && n < chart->n_x; n++) {
		char *end;

		chart->ideal[n] = strtod(at, &end);
		if (end == at || (*end != '|' && end != colon) || !isfinite(chart->ideal[n]))
			return lab_error(error, "ideal: '%s' is not NUMBER:what it is", text);
		at = end + 1;
	}
	for (unsigned x = n; n == 1 && x < chart->n_x; x++)
		chart->ideal[x] = chart->ideal[0];
	return n == 1 || n == chart->n_x ?
		       0 :
		       lab_error(error, "ideal: %u numbers for %u x", n, chart->n_x);
}

/* ---- a line ---- */

static int split(char *text, char *fields[COLUMNS], struct lab_error *error)
{
	unsigned n = 0;

	for (char *next; text; text = next, n++) {
		next = strchr(text, '\t');
		if (next)
			*next++ = '\0';
		if (n < COLUMNS)
			fields[n] = text;
	}
	if (n != COLUMNS)
		return lab_error(error, "%u columns instead of %u", n, COLUMNS);
	for (unsigned i = 0; i < COLUMNS; i++)
		if (!*fields[i])
			return lab_error(error, "%s is empty", column_names[i]);
	return 0;
}

static int parse_curves(struct chart *chart, char *const *f, struct lab_error *error)
{
	char key[CONFIG_KEY_MAX];
	struct lab_error why = {""};

	if (parse_items(f[X], chart->x, CHART_X_MAX, &chart->n_x, chart->x_key, &why))
		return lab_error(error, "x: %.200s", why.text);
	if (parse_items(f[SERIES], chart->series, CHART_SERIES_MAX, &chart->n_series, key, &why))
		return lab_error(error, "series: %.200s", why.text);
	chart->n_paper = chart->n_series;
	if (strcmp(f[EXTRA], "-") &&
	    parse_items(f[EXTRA], chart->series, CHART_SERIES_MAX, &chart->n_series, key, &why))
		return lab_error(error, "extra: %.200s", why.text);
	return 0;
}

static int parse_chart(struct chart *chart, char *text, struct lab_error *error)
{
	struct lab_error why = {""};
	char *f[COLUMNS];
	int rc = split(text, f, error);

	if (rc)
		return rc;
	*chart = (struct chart){
		.number = chart->number,
		.id = f[ID],
		.title = f[TITLE],
		.layer = f[LAYER],
		.profile = f[PROFILE],
		.preset = f[PRESET],
		.metric = f[METRIC],
		.y_label = f[Y_LABEL],
		.x_label = f[X_LABEL],
		.points = f[POINTS],
		.note = strcmp(f[NOTE], "-") ? f[NOTE] : NULL,
	};
	if (config_parse(&chart->config, f[CONFIG], strlen(f[CONFIG]), &why))
		return lab_error(error, "config: %.200s", why.text);
	rc = parse_curves(chart, f, error);
	if (!rc)
		rc = parse_scale(chart, f[SCALE], error);
	return rc ? rc : parse_ideal(chart, f[IDEAL], error);
}

/* ---- the whole ---- */

static int add_chart(struct charts *charts, char *text, unsigned number, struct lab_error *error)
{
	struct lab_error why = {""};
	struct chart *chart = reallocarray(charts->chart, charts->n + 1, sizeof(*chart));

	if (!chart)
		return lab_error(error, "no memory for its lines");
	charts->chart = chart;
	chart += charts->n;
	chart->number = number;
	if (parse_chart(chart, text, &why))
		return lab_error(error, "line %u: %.200s", number, why.text);
	if (charts_find(charts, chart->id))
		return lab_error(error, "line %u: id: %s is there twice", number, chart->id);
	charts->n++;
	return 0;
}

int charts_parse(struct charts *charts, const char *text, size_t len, struct lab_error *error)
{
	unsigned number = 0;
	int rc = 0;

	*charts = (struct charts){.text = strndup(text, len)};
	if (!charts->text)
		return lab_error(error, "no memory for %zu bytes", len);
	for (char *line = charts->text, *next; line && !rc; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		number++;
		if (*line && *line != '#' && strncmp(line, "id\t", 3))
			rc = add_chart(charts, line, number, error);
	}
	if (!rc && !charts->n)
		rc = lab_error(error, "no lines in it");
	if (rc)
		charts_free(charts);
	return rc;
}

void charts_free(struct charts *charts)
{
	free(charts->chart);
	free(charts->text);
	*charts = (struct charts){0};
}

const struct chart *charts_find(const struct charts *charts, const char *id)
{
	for (unsigned i = 0; i < charts->n; i++)
		if (!strcmp(charts->chart[i].id, id))
			return &charts->chart[i];
	return NULL;
}
