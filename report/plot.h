/* SPDX-License-Identifier: MIT */
/*
 * One plot as SVG: curves or groups of bars, the paper's points, an ideal, axes and a legend.
 * Colours can be told apart by the colour-blind, and symbols without any colour.
 */
#ifndef GN_REPORT_PLOT_H
#define GN_REPORT_PLOT_H

#include <stdbool.h>
#include <stdio.h>

#define PLOT_X_MAX	24u
#define PLOT_SERIES_MAX 12u
#define PLOT_MARKS_MAX	48u
#define PLOT_TEXT_MAX	64u

enum plot_kind { PLOT_LINEAR, PLOT_LOG2, PLOT_BARS };

struct plot_series {
	char label[PLOT_TEXT_MAX];
	unsigned style;	      /* colour and symbol */
	bool extra;	      /* not the paper's: dashed */
	double y[PLOT_X_MAX]; /* NAN: none */
};

/* A figure of the paper. */
struct plot_mark {
	unsigned series, x;
	bool highest; /* of the curve, wherever that is */
	double y;
	const char *id; /* NULL: the text has it */
};

struct plot {
	const char *id;	     /* of the page's elements: letters, digits, dashes */
	const char *title;   /* told to who cannot see it */
	const char *heading; /* a line above the axes; NULL: none */
	const char *y_word;  /* what the curves are: "simulated", "measured" */
	const char *x_label, *y_label;
	enum plot_kind kind;
	bool x_bytes; /* 4096 is 4 Ki */
	unsigned n_x, n_series, n_marks;
	double x[PLOT_X_MAX]; /* of curves */
	char x_text[PLOT_X_MAX][PLOT_TEXT_MAX];
	struct plot_series series[PLOT_SERIES_MAX];
	struct plot_mark marks[PLOT_MARKS_MAX];
	double ideal[PLOT_X_MAX]; /* NAN: none */
	const char *ideal_label;  /* NULL: none */
};

void plot_svg(FILE *f, const struct plot *plot);

#endif
