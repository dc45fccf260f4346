/* SPDX-License-Identifier: MIT */
/* Curves: the x axis, simulated lines with small symbols, the paper's points with large ones. */
#include <math.h>
#include <string.h>

#include "frame.h"

#define TICK   14.0
#define PAD    16.0 /* between the frame and the first and last x */
#define SMALL  3.0  /* and more for those below, which show where they are hidden */
#define LARGE  6.2
#define SPREAD 14.0 /* between points of the paper that would hide each other */

static double x_at(const struct frame *fr, const struct plot *plot, double x)
{
	const double first = plot->x[0], last = plot->x[plot->n_x - 1];
	double part = 0.5;

	if (last > first)
		part = plot->kind == PLOT_LOG2 ? log2(x / first) / log2(last / first) :
						 (x - first) / (last - first);
	return fr->left + PAD + part * (fr->right - fr->left - 2 * PAD);
}

static void x_number(const struct plot *plot, unsigned i, char out[SVG_NUMBER_MAX])
{
	if (plot->x_bytes)
		svg_bytes(plot->x[i], out);
	else
		snprintf(out, SVG_NUMBER_MAX, "%.6g", plot->x[i]);
}

void frame_tip(const struct plot *plot, unsigned series, unsigned x, double y, const char *word,
	       char out[FRAME_TIP_MAX])
{
	char number[SVG_NUMBER_MAX], at[SVG_NUMBER_MAX];

	svg_number(y, number);
	x_number(plot, x, at);
	snprintf(out, FRAME_TIP_MAX, "%s at %.60s: %s (%.40s)", plot->series[series].label,
		 plot->kind == PLOT_BARS ? plot->x_text[x] : at, number, word);
}

/* A number at each x that has the room; always at the last. */
static void x_axis(FILE *f, const struct frame *fr, const struct plot *plot)
{
	double taken = -INFINITY, end = INFINITY;
	char text[SVG_NUMBER_MAX];

	svg_line(f, fr->left, fr->bottom, fr->right, fr->bottom, SVG_INK, 1.2, NULL);
	for (unsigned i = 0; i < plot->n_x; i++) {
		const double x = x_at(fr, plot, plot->x[i]);
		double half;

		x_number(plot, i, text);
		half = svg_width(text, TICK) / 2 + 3;
		if (i == 0) {
			char last[SVG_NUMBER_MAX];

			x_number(plot, plot->n_x - 1, last);
			end = x_at(fr, plot, plot->x[plot->n_x - 1]) - svg_width(last, TICK) / 2 -
			      3;
		}
		svg_line(f, x, fr->bottom, x, fr->bottom + 5, SVG_INK, 1.2, NULL);
		if (i + 1 < plot->n_x && (x - half < taken || x + half > end))
			continue;
		svg_text(f, x, fr->bottom + 8 + TICK, TICK, SVG_MIDDLE, SVG_INK, text);
		taken = x + half;
	}
}

static void curve(FILE *f, const struct frame *fr, const struct plot *plot, unsigned s)
{
	const struct plot_series *series = &plot->series[s];
	char tip[FRAME_TIP_MAX];
	bool open = false;

	for (unsigned i = 0; i < plot->n_x; i++) {
		if (!isfinite(series->y[i])) {
			if (open)
				fputs("\"/>\n", f);
			open = false;
			continue;
		}
		if (!open)
			fprintf(f,
				"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" "
				"stroke-linejoin=\"round\"%s points=\"",
				svg_colour(series->style),
				series->extra ? " stroke-dasharray=\"6 4\"" : "");
		open = true;
		fprintf(f, "%.1f,%.1f ", x_at(fr, plot, plot->x[i]), frame_y(fr, series->y[i]));
	}
	if (open)
		fputs("\"/>\n", f);
	for (unsigned i = 0; i < plot->n_x; i++) {
		if (!isfinite(series->y[i]))
			continue;
		frame_tip(plot, s, i, series->y[i], plot->y_word, tip);
		svg_symbol(f, series->style, x_at(fr, plot, plot->x[i]), frame_y(fr, series->y[i]),
			   series->extra ? SMALL + 1 : SMALL + 0.6 * s, false, tip);
	}
}

/* ---- the paper's ---- */

static double mark_x(const struct frame *fr, const struct plot *plot, const struct plot_mark *mark)
{
	return mark->highest ? fr->right - 7 : x_at(fr, plot, plot->x[mark->x]);
}

static bool hides(const struct frame *fr, const struct plot *plot, unsigned a, unsigned b)
{
	const struct plot_mark *m = &plot->marks[a], *k = &plot->marks[b];

	return m->highest == k->highest &&
	       fabs(mark_x(fr, plot, m) - mark_x(fr, plot, k)) < SPREAD &&
	       fabs(frame_y(fr, m->y) - frame_y(fr, k->y)) < 9;
}

/* Those at one place stand side by side, and inside the frame. */
static double aside(const struct frame *fr, const struct plot *plot, unsigned i)
{
	const double at = mark_x(fr, plot, &plot->marks[i]);
	unsigned before = 0, all = 0;
	double first;

	for (unsigned k = 0; k < plot->n_marks; k++) {
		const bool beside = k == i || hides(fr, plot, i, k);

		all += beside;
		before += beside && k < i;
	}
	first = at - SPREAD * (all - 1) / 2.0;
	first = fmin(first, fr->right - 7 - SPREAD * (all - 1));
	first = fmax(first, fr->left + 9);
	return first + SPREAD * before;
}

static void mark(FILE *f, const struct frame *fr, const struct plot *plot, unsigned i)
{
	const struct plot_mark *m = &plot->marks[i];
	char tip[FRAME_TIP_MAX], word[64];

	snprintf(word, sizeof(word), "the paper%s%s%s", m->highest ? "’s highest" : "",
		 m->id ? ", " : "", m->id ? m->id : "");
	frame_tip(plot, m->series, m->x, m->y, word, tip);
	if (m->highest)
		svg_line(f, fr->left, frame_y(fr, m->y), fr->right, frame_y(fr, m->y),
			 svg_colour(plot->series[m->series].style), 1.6, "1.5 3.5");
	svg_symbol(f, plot->series[m->series].style, aside(fr, plot, i), frame_y(fr, m->y), LARGE,
		   true, tip);
}

void curves_draw(FILE *f, const struct frame *fr, const struct plot *plot)
{
	x_axis(f, fr, plot);
	if (fr->ideal)
		svg_line(f, fr->left, frame_y(fr, plot->ideal[0]), fr->right,
			 frame_y(fr, plot->ideal[0]), "#b00020", 1.8, "9 4");
	/* The first is above the others; what is dashed hides little and is above all. */
	for (unsigned s = plot->n_series; s-- > 0;)
		if (!plot->series[s].extra)
			curve(f, fr, plot, s);
	for (unsigned s = plot->n_series; s-- > 0;)
		if (plot->series[s].extra)
			curve(f, fr, plot, s);
	for (unsigned i = plot->n_marks; i-- > 0;)
		mark(f, fr, plot, i);
}
