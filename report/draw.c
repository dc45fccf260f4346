/* SPDX-License-Identifier: MIT */
/* Which results go where in a plot. */
#include "draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool counts_bytes(const struct chart *chart)
{
	return !strcmp(chart->x_key, "value") || !strcmp(chart->x_key, "size");
}

static void frame(const struct chart *chart, struct plot *out)
{
	*out = (struct plot){
		.id = chart->id,
		.title = chart->title,
		.x_label = chart->x_label,
		.y_label = chart->y_label,
		.kind = chart->scale == CHART_BARS ? PLOT_BARS :
			chart->scale == CHART_LOG2 ? PLOT_LOG2 :
						     PLOT_LINEAR,
		.x_bytes = counts_bytes(chart),
	};
	for (unsigned x = 0; x < PLOT_X_MAX; x++)
		out->ideal[x] = NAN;
}

void draw_chart(const struct results *results, const struct chart *chart,
		const struct chart_mark *marks, unsigned n_marks, struct plot *out)
{
	const struct chart_result *result = &results->chart[chart - results->charts->chart];

	frame(chart, out);
	out->y_word = "simulated";
	out->n_x = chart->n_x;
	out->n_series = chart->n_series;
	out->ideal_label = chart->ideal_label;
	for (unsigned x = 0; x < chart->n_x; x++) {
		out->x[x] = chart->scale == CHART_BARS ? x : chart_x_number(chart, x);
		snprintf(out->x_text[x], PLOT_TEXT_MAX, "%s", chart->x[x].label);
		out->ideal[x] = chart->ideal[x];
	}
	for (unsigned s = 0; s < chart->n_series; s++) {
		struct plot_series *series = &out->series[s];

		snprintf(series->label, PLOT_TEXT_MAX, "%s", chart->series[s].label);
		series->style = s;
		series->extra = s >= chart->n_paper;
		memcpy(series->y, result->y[s], sizeof(result->y[s]));
	}
	for (unsigned i = 0; i < n_marks; i++) {
		if (marks[i].where == CHART_LISTED)
			continue;
		out->marks[out->n_marks++] = (struct plot_mark){
			.series = marks[i].series,
			.x = marks[i].x,
			.highest = marks[i].where == CHART_HIGHEST,
			.y = marks[i].value,
			.id = marks[i].line ? marks[i].line->id : NULL,
		};
	}
}

/* ---- measured ---- */

static double field_of(const struct measured *m, const char *key)
{
	return !strcmp(key, "pending") ? m->pending :
	       !strcmp(key, "value")   ? m->value :
	       !strcmp(key, "threads") ? m->threads :
	       !strcmp(key, "nodes")   ? m->nodes :
					 NAN;
}

/* What may differ from the chart is how large the cluster is: a laptop is small. */
static bool belongs(const struct chart *chart, const struct measured *m)
{
	static const char *const same[] = {"pending", "value"};
	static const struct {
		const char *ours, *theirs;
	} topologies[] = {{"m1", "M:1"}, {"1m", "1:M"}, {"mm", "M:M"}};
	const char *topology = config_get(&chart->config, "topology");
	bool found = false;

	if (chart->scale == CHART_BARS || !topology || isnan(field_of(m, chart->x_key)))
		return false;
	for (unsigned i = 0; i < 3; i++)
		found = found || (!strcmp(topology, topologies[i].ours) &&
				  !strcmp(m->topology, topologies[i].theirs));
	for (unsigned i = 0; found && i < 2; i++) {
		const char *value = config_get(&chart->config, same[i]);

		if (value && strcmp(chart->x_key, same[i]) &&
		    strtod(value, NULL) != field_of(m, same[i]))
			found = false;
	}
	return found;
}

/* Measured in one place, with what is not the x axis the same. */
static bool together(const struct chart *chart, const struct measured *a, const struct measured *b)
{
	return !strcmp(a->provider, b->provider) && !strcmp(a->profile, b->profile) &&
	       !strcmp(a->machine, b->machine) && !strcmp(a->preset, b->preset) &&
	       (a->nodes == b->nodes || !strcmp(chart->x_key, "nodes")) &&
	       (a->threads == b->threads || !strcmp(chart->x_key, "threads"));
}

/* One place on the x axis is no curve. */
static bool varies(const struct results *r, const struct chart *chart, const struct measured *m)
{
	for (unsigned k = 0; k < r->n_measured; k++)
		if (belongs(chart, &r->measured[k]) && together(chart, &r->measured[k], m) &&
		    field_of(&r->measured[k], chart->x_key) != field_of(m, chart->x_key))
			return true;
	return false;
}

/* The first of each plot's; NULL: there is no i-th. */
static const struct measured *first_of(const struct results *r, const struct chart *chart,
				       unsigned i)
{
	for (unsigned k = 0; k < r->n_measured; k++) {
		const struct measured *m = &r->measured[k];
		unsigned before = 0;

		if (!belongs(chart, m))
			continue;
		while (before < k && !(belongs(chart, &r->measured[before]) &&
				       together(chart, &r->measured[before], m)))
			before++;
		if (before == k && varies(r, chart, m) && i-- == 0)
			return m;
	}
	return NULL;
}

bool draw_has_measured(const struct results *results, const struct chart *chart)
{
	return first_of(results, chart, 0) != NULL;
}

static unsigned x_of(struct plot *plot, double x)
{
	unsigned at = 0;

	while (at < plot->n_x && plot->x[at] < x)
		at++;
	if (at < plot->n_x && plot->x[at] == x)
		return at;
	if (plot->n_x == PLOT_X_MAX)
		return PLOT_X_MAX;
	memmove(&plot->x[at + 1], &plot->x[at], (plot->n_x - at) * sizeof(plot->x[0]));
	for (unsigned s = 0; s < plot->n_series; s++) {
		memmove(&plot->series[s].y[at + 1], &plot->series[s].y[at],
			(plot->n_x - at) * sizeof(double));
		plot->series[s].y[at] = NAN;
	}
	plot->x[at] = x;
	plot->n_x++;
	return at;
}

static struct plot_series *series_of(const struct chart *chart, struct plot *plot,
				     const char *protocol)
{
	const int style = chart_series_find(chart, protocol);
	struct plot_series *series = plot->series;

	while (series < plot->series + plot->n_series && strcmp(series->label, protocol))
		series++;
	if (series < plot->series + plot->n_series)
		return series;
	if (plot->n_series == PLOT_SERIES_MAX)
		return NULL;
	snprintf(series->label, PLOT_TEXT_MAX, "%s", protocol);
	series->style = style < 0 ? plot->n_series : (unsigned)style;
	for (unsigned x = 0; x < PLOT_X_MAX; x++)
		series->y[x] = NAN;
	plot->n_series++;
	return series;
}

/* Those that were measured, in the chart's order. */
static void name_series(const struct results *r, const struct chart *chart,
			const struct measured *first, struct plot *plot)
{
	for (unsigned s = 0; s < chart->n_series; s++)
		for (unsigned k = 0; k < r->n_measured; k++)
			if (!strcmp(r->measured[k].protocol, chart->series[s].label) &&
			    belongs(chart, &r->measured[k]) &&
			    together(chart, first, &r->measured[k]))
				series_of(chart, plot, chart->series[s].label);
}

static void say_where(const struct chart *chart, const struct measured *m,
		      struct draw_measured *out)
{
	const bool sim = !strcmp(m->provider, "sim");
	char size[96] = "";

	if (strcmp(chart->x_key, "nodes"))
		snprintf(size, sizeof(size), ", %g node%s", m->nodes, m->nodes == 1 ? "" : "s");
	if (strcmp(chart->x_key, "threads"))
		snprintf(strchr(size, '\0'), sizeof(size) - strlen(size), ", S = %g", m->threads);
	out->plot.y_word = sim ? "simulated" : "measured";
	snprintf(out->heading, sizeof(out->heading), "%s on %s%s%s", sim ? "Simulated" : "Measured",
		 sim && m->profile[0] ? m->profile : m->provider, size,
		 strcmp(m->preset, "paper") ? "" : ", the paper’s way");
	snprintf(out->title, sizeof(out->title), "%.80s: %.120s", chart->title, out->heading);
	out->plot.heading = out->heading;
	out->plot.title = out->title;
	out->plot.id = out->id;
}

bool draw_measured(const struct results *results, const struct chart *chart, unsigned i,
		   struct draw_measured *out)
{
	const struct measured *first = first_of(results, chart, i);
	const bool per_node = !strcmp(chart->metric, "gbps_per_node");

	if (!first)
		return false;
	frame(chart, &out->plot);
	snprintf(out->id, sizeof(out->id), "%s-m%u", chart->id, i);
	say_where(chart, first, out);
	name_series(results, chart, first, &out->plot);
	for (unsigned k = 0; k < results->n_measured; k++) {
		const struct measured *m = &results->measured[k];
		struct plot_series *series;
		unsigned x;

		if (!belongs(chart, m) || !together(chart, first, m))
			continue;
		series = series_of(chart, &out->plot, m->protocol);
		x = x_of(&out->plot, field_of(m, chart->x_key));
		if (series && x < PLOT_X_MAX)
			series->y[x] = per_node ? m->gbps_per_node : m->gbps;
	}
	return true;
}
