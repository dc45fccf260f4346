/* SPDX-License-Identifier: MIT */
/* The legend below a plot: what each curve is, and what simulated and the paper's look like. */
#include <math.h>
#include <string.h>

#include "svg.h"

#define SIZE	14.0
#define ROW	23.0
#define SAMPLE	32.0
#define GAP	7.0 /* between a sample and its text */
#define BETWEEN 14.0

struct flow {
	FILE *f; /* NULL: only measure */
	double left, right, x, y;
};

enum sample { CURVE, EXTRA, BAR, BLOCK, PALE, POINT, HIGHEST, IDEAL };

static void sample(FILE *f, enum sample what, unsigned style, double x, double y)
{
	const char *colour = svg_colour(style);
	const double middle = x + SAMPLE / 2;

	switch (what) {
	case CURVE:
	case EXTRA:
		svg_line(f, x, y, x + SAMPLE, y, colour, 2.2, what == EXTRA ? "6 4" : NULL);
		svg_symbol(f, style, middle, y, 4, false, NULL);
		break;
	case BAR:
	case BLOCK:
	case PALE:
		fprintf(f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"20\" height=\"12\" fill=\"%s\"%s/>\n",
			what == BAR ? x : x + 9, y - 6, colour,
			what == PALE ? " fill-opacity=\"0.5\"" : "");
		if (what == BAR)
			svg_symbol(f, style, x + 28, y, 4, false, NULL);
		break;
	case POINT:
		svg_symbol(f, style, middle, y, 6, true, NULL);
		break;
	case HIGHEST:
		svg_line(f, x, y, x + SAMPLE, y, SVG_SOFT, 1.6, "1.5 3.5");
		svg_symbol(f, style, x + SAMPLE - 6, y, 6, true, NULL);
		break;
	case IDEAL:
		svg_line(f, x, y, x + SAMPLE, y, "#b00020", 1.8, "9 4");
		break;
	}
}

static void entry(struct flow *at, enum sample what, unsigned style, const char *text)
{
	const double width = SAMPLE + GAP + svg_width(text, SIZE);

	if (at->x > at->left && at->x + width > at->right) {
		at->x = at->left;
		at->y += ROW;
	}
	if (at->f) {
		sample(at->f, what, style, at->x, at->y + ROW / 2);
		svg_text(at->f, at->x + SAMPLE + GAP, at->y + ROW / 2 + SIZE * 0.36, SIZE,
			 SVG_START, SVG_INK, text);
	}
	at->x += width + BETWEEN;
}

static void entries_of_series(struct flow *at, const struct plot *plot)
{
	for (unsigned s = 0; s < plot->n_series; s++) {
		const struct plot_series *series = &plot->series[s];

		entry(at,
		      plot->kind == PLOT_BARS ? BAR :
		      series->extra	      ? EXTRA :
						CURVE,
		      series->style, series->label);
	}
}

#define NEUTRAL 14u /* a circle, and grey */

/* What the papers, the simulator and the library each look like. */
static void entries_of_kinds(struct flow *at, const struct plot *plot, bool ideal)
{
	bool points = false, highest = false, extra = false;

	for (unsigned i = 0; i < plot->n_marks; i++) {
		points = points || !plot->marks[i].highest;
		highest = highest || plot->marks[i].highest;
	}
	for (unsigned s = 0; s < plot->n_series; s++)
		extra = extra || plot->series[s].extra;
	entry(at, plot->kind == PLOT_BARS ? BLOCK : CURVE, NEUTRAL, plot->y_word);
	if (points)
		entry(at, POINT, NEUTRAL, "the paper");
	if (highest)
		entry(at, HIGHEST, NEUTRAL, "the paper’s highest");
	if (extra)
		entry(at, plot->kind == PLOT_BARS ? PALE : EXTRA, NEUTRAL, "not in the paper");
	if (ideal)
		entry(at, IDEAL, 0, plot->ideal_label);
}

double svg_legend(FILE *f, const struct plot *plot, bool ideal, double left, double right, double y)
{
	struct flow at = {f, left, right, left, y};

	if (plot->n_series > 1 || plot->n_marks) {
		entries_of_series(&at, plot);
		at.x = left;
		at.y += ROW;
	}
	entries_of_kinds(&at, plot, ideal);
	return at.y + ROW - y;
}
