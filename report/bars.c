/* SPDX-License-Identifier: MIT */
/*
 * Groups of bars. Each has the symbol of its series below it, for who does not see its colour, and
 * its number above it.
 */
#include <math.h>
#include <string.h>

#include "frame.h"

#define TICK   14.0
#define SMALL  4.0
#define LARGE  5.5
#define NUMBER 12.0
#define SHARE  0.86 /* of a group that bars fill */

struct place {
	double left, width; /* of a bar */
};

static double group_width(const struct frame *fr, const struct plot *plot)
{
	return (fr->right - fr->left) / plot->n_x;
}

static struct place place_of(const struct frame *fr, const struct plot *plot, unsigned s,
			     unsigned x)
{
	const double group = group_width(fr, plot), bar = fmin(group * SHARE / plot->n_series, 56);

	return (struct place){
		fr->left + group * (x + 0.5) + bar * (s - plot->n_series / 2.0) + 1,
		bar - 2,
	};
}

/* Where a name that is too long is broken; NULL: nowhere. */
static const char *break_of(const struct frame *fr, const struct plot *plot, unsigned x)
{
	const char *text = plot->x_text[x], *best = NULL;
	const double half = (double)strlen(text) / 2;

	if (svg_width(text, TICK) < group_width(fr, plot))
		return NULL;
	for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
		if (!best || fabs((double)(at - text) - half) < fabs((double)(best - text) - half))
			best = at;
	return best;
}

double bars_below(const struct frame *fr, const struct plot *plot)
{
	double lines = 1;

	for (unsigned x = 0; x < plot->n_x; x++)
		if (break_of(fr, plot, x))
			lines = 2;
	return 20 + lines * (TICK + 3);
}

static void names(FILE *f, const struct frame *fr, const struct plot *plot)
{
	for (unsigned x = 0; x < plot->n_x; x++) {
		const double middle = fr->left + group_width(fr, plot) * (x + 0.5);
		const char *at = break_of(fr, plot, x);
		char first[PLOT_TEXT_MAX];

		snprintf(first, sizeof(first), "%.*s",
			 at ? (int)(at - plot->x_text[x]) : (int)PLOT_TEXT_MAX - 1,
			 plot->x_text[x]);
		svg_text(f, middle, fr->bottom + 20 + TICK, TICK, SVG_MIDDLE, SVG_INK, first);
		if (at)
			svg_text(f, middle, fr->bottom + 23 + 2 * TICK, TICK, SVG_MIDDLE, SVG_INK,
				 at + 1);
	}
}

static const struct plot_mark *mark_of(const struct plot *plot, unsigned s, unsigned x)
{
	for (unsigned i = 0; i < plot->n_marks; i++)
		if (plot->marks[i].series == s && plot->marks[i].x == x)
			return &plot->marks[i];
	return NULL;
}

/* The number stands above the bar, and above the paper's point where that is in the way. */
static void number(FILE *f, const struct frame *fr, const struct place *at, double y,
		   const struct plot_mark *mark)
{
	char text[SVG_NUMBER_MAX];
	const bool turned = at->width < 30;
	double bottom = frame_y(fr, y) - 4, needs;

	svg_number(y, text);
	needs = turned ? svg_width(text, NUMBER) : NUMBER;
	if (mark) {
		const double symbol = frame_y(fr, mark->y);

		if (symbol - LARGE - 3 < bottom && symbol + LARGE + 3 > bottom - needs)
			bottom = symbol - LARGE - 5;
	}
	if (turned)
		svg_text_up(f, at->left + at->width / 2 + NUMBER * 0.36, bottom, NUMBER, SVG_START,
			    SVG_INK, text);
	else
		svg_text(f, at->left + at->width / 2, bottom, NUMBER, SVG_MIDDLE, SVG_INK, text);
}

static void bar(FILE *f, const struct frame *fr, const struct plot *plot, unsigned s, unsigned x)
{
	const struct plot_series *series = &plot->series[s];
	const struct place at = place_of(fr, plot, s, x);
	const double middle = at.left + at.width / 2, y = series->y[x];
	char tip[FRAME_TIP_MAX];

	if (isfinite(y)) {
		frame_tip(plot, s, x, y, plot->y_word, tip);
		fprintf(f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s>"
			"<title>",
			at.left, frame_y(fr, y), at.width, fr->bottom - frame_y(fr, y),
			svg_colour(series->style), series->extra ? " fill-opacity=\"0.5\"" : "");
		svg_escape(f, tip);
		fputs("</title></rect>\n", f);
	}
	svg_symbol(f, series->style, middle, fr->bottom + 11, SMALL, false, NULL);
}

/* What stands before the bars: numbers and the paper's points. */
static void front(FILE *f, const struct frame *fr, const struct plot *plot, unsigned s, unsigned x)
{
	const struct plot_series *series = &plot->series[s];
	const struct plot_mark *mark = mark_of(plot, s, x);
	const struct place at = place_of(fr, plot, s, x);
	char tip[FRAME_TIP_MAX];

	if (isfinite(series->y[x]))
		number(f, fr, &at, series->y[x], mark);
	if (mark) {
		frame_tip(plot, s, x, mark->y, "the paper", tip);
		svg_line(f, at.left - 1, frame_y(fr, mark->y), at.left + at.width + 1,
			 frame_y(fr, mark->y), SVG_INK, 1.8, NULL);
		svg_symbol(f, series->style, at.left + at.width / 2, frame_y(fr, mark->y), LARGE,
			   true, tip);
	}
}

void bars_draw(FILE *f, const struct frame *fr, const struct plot *plot)
{
	const double group = group_width(fr, plot);

	for (unsigned x = 0; x < plot->n_x; x++)
		for (unsigned s = 0; s < plot->n_series; s++)
			bar(f, fr, plot, s, x);
	for (unsigned x = 0; fr->ideal && x < plot->n_x; x++) {
		const double y = frame_y(fr, plot->ideal[x]);

		if (isfinite(plot->ideal[x]))
			svg_line(f, fr->left + group * x + 4, y, fr->left + group * (x + 1) - 4, y,
				 "#b00020", 1.8, "9 4");
	}
	for (unsigned x = 0; x < plot->n_x; x++)
		for (unsigned s = 0; s < plot->n_series; s++)
			front(f, fr, plot, s, x);
	svg_line(f, fr->left, fr->bottom, fr->right, fr->bottom, SVG_INK, 1.2, NULL);
	names(f, fr, plot);
}
