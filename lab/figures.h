/* SPDX-License-Identifier: MIT */
/*
 * The papers' figures as whole charts (data/figures.tsv, whose own head explains it): what each
 * point of a curve is, and which lines of data/paper.tsv belong to it.
 */
#ifndef GN_LAB_FIGURES_H
#define GN_LAB_FIGURES_H

#include "figure_run.h"

#define CHART_X_MAX	 16u
#define CHART_SERIES_MAX 12u
#define CHART_MARKS_MAX	 48u

/* data/figures.tsv as it was when the command was built. */
extern const char lab_figures_data[], lab_figures_data_end[];

enum chart_scale { CHART_LINEAR, CHART_LOG2, CHART_BARS };

/* A curve, or a place on the x axis: its name, and what of the configuration it changes. */
struct chart_item {
	char label[48];
	struct config changes;
};

/* Texts point into the list. */
struct chart {
	unsigned number; /* line in the file, from 1 */
	const char *id, *title, *layer, *profile, *preset;
	struct config config;
	const char *metric, *y_label, *x_label, *note; /* note: NULL without one */
	char x_key[CONFIG_KEY_MAX];		       /* empty where several keys change */
	enum chart_scale scale;
	unsigned n_x, n_series, n_paper; /* series from n_paper on are not the paper's */
	struct chart_item x[CHART_X_MAX], series[CHART_SERIES_MAX];
	double ideal[CHART_X_MAX]; /* NAN: none */
	const char *ideal_label;   /* NULL: none */
	const char *points;
};

struct charts {
	char *text;
	struct chart *chart;
	unsigned n;
};

/* -EINVAL and error: the first malformed line, with its number and field. */
int charts_parse(struct charts *charts, const char *text, size_t len, struct lab_error *error);
void charts_free(struct charts *charts);
const struct chart *charts_find(const struct charts *charts, const char *id);

/* The number of an x of a curve. */
double chart_x_number(const struct chart *chart, unsigned x);
/* -1: there is none of that name. */
int chart_series_find(const struct chart *chart, const char *label);
int chart_x_find(const struct chart *chart, const char *label);

/* Where the figure of a series at an x is taken, and which it is. */
int chart_point(const struct chart *chart, unsigned series, unsigned x, struct point *out,
		const char **metric, struct lab_error *error);

/* What of the paper belongs to a chart. */
enum chart_where { CHART_LISTED, CHART_AT_POINT, CHART_HIGHEST };

struct chart_mark {
	const struct paper_line *line; /* NULL: a figure of the text */
	enum chart_where where;
	unsigned series, x; /* x: of a point */
	double value;	    /* what is drawn */
};

/* In the order of the list; -EINVAL and error: names what is not there. */
int chart_marks(const struct chart *chart, const struct paper *paper,
		struct chart_mark marks[CHART_MARKS_MAX], unsigned *n, struct lab_error *error);

#endif
