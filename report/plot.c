/* SPDX-License-Identifier: MIT */
/* The frame that curves and bars have in common, and which of the two it is. */
#include "plot.h"

#include <math.h>
#include <string.h>

#include "frame.h"

#define WIDTH	560.0
#define HEIGHT	330.0 /* of what is above the x axis */
#define TICK	14.0
#define LABEL	15.0
#define EDGE	10.0
#define ABOVE	1.15 /* room that numbers above bars need */
#define FAR_OFF 1.6  /* times the highest point: an ideal that would make the rest flat */

static double highest_of(const struct plot *plot)
{
	double highest = 0;

	for (unsigned s = 0; s < plot->n_series; s++)
		for (unsigned x = 0; x < plot->n_x; x++)
			highest = fmax(highest, plot->series[s].y[x]);
	for (unsigned i = 0; i < plot->n_marks; i++)
		highest = fmax(highest, plot->marks[i].y);
	return highest;
}

static void set_y(struct frame *fr, const struct plot *plot)
{
	double highest = highest_of(plot), ideal = NAN;

	for (unsigned x = 0; x < plot->n_x; x++)
		ideal = fmax(ideal, plot->ideal[x]);
	if (plot->kind == PLOT_BARS)
		highest *= ABOVE;
	/* Bars are there to be compared with their ideal. */
	fr->ideal = plot->ideal_label && isfinite(ideal) &&
		    (plot->kind == PLOT_BARS || ideal <= FAR_OFF * highest);
	if (fr->ideal)
		highest = fmax(highest, ideal * (plot->kind == PLOT_BARS ? 1 : 1.02));
	fr->ticks = svg_ticks(highest);
}

double frame_y(const struct frame *fr, double value)
{
	return fr->bottom - value / fr->ticks.top * (fr->bottom - fr->top);
}

static void y_axis(FILE *f, const struct frame *fr, const struct plot *plot)
{
	char text[SVG_NUMBER_MAX];

	for (unsigned i = 0; i <= fr->ticks.n; i++) {
		const double value = fr->ticks.step * i, y = frame_y(fr, value);

		if (i)
			svg_line(f, fr->left, y, fr->right, y, SVG_GRID, 1, NULL);
		snprintf(text, sizeof(text), "%.10g", value);
		svg_text(f, fr->left - 8, y + TICK * 0.36, TICK, SVG_END, SVG_INK, text);
	}
	svg_text_up(f, LABEL + 2, (fr->top + fr->bottom) / 2, LABEL, SVG_MIDDLE, SVG_INK,
		    plot->y_label);
}

/* The widest number of the y axis decides where it stands. */
static double left_of(const struct frame *fr)
{
	double widest = 0;
	char text[SVG_NUMBER_MAX];

	for (unsigned i = 0; i <= fr->ticks.n; i++) {
		snprintf(text, sizeof(text), "%.10g", fr->ticks.step * i);
		widest = fmax(widest, svg_width(text, TICK));
	}
	return 2 * LABEL + 4 + widest;
}

/* What it shows, in words. */
static void describe(FILE *f, const struct plot *plot)
{
	char x[SVG_NUMBER_MAX], y[SVG_NUMBER_MAX];

	svg_escape(f, plot->y_label);
	fputs(" by ", f);
	svg_escape(f, plot->x_label);
	fprintf(f, ", %s. ", plot->y_word);
	for (unsigned s = 0; s < plot->n_series; s++) {
		svg_escape(f, plot->series[s].label);
		fputs(":", f);
		for (unsigned i = 0; i < plot->n_x; i++) {
			if (!isfinite(plot->series[s].y[i]))
				continue;
			svg_number(plot->series[s].y[i], y);
			svg_number(plot->x[i], x);
			fprintf(f, " %s at ", y);
			svg_escape(f, plot->kind == PLOT_BARS ? plot->x_text[i] : x);
			fputs(",", f);
		}
		fputs(" ", f);
	}
}

static void head(FILE *f, const struct plot *plot, double height)
{
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %.0f\" "
		"width=\"%g\" height=\"%.0f\" role=\"img\" aria-labelledby=\"%s-t %s-d\" "
		"font-family=\"%s\">\n<title id=\"%s-t\">",
		WIDTH, height, WIDTH, height, plot->id, plot->id, SVG_FONT, plot->id);
	svg_escape(f, plot->title);
	fprintf(f, "</title>\n<desc id=\"%s-d\">", plot->id);
	describe(f, plot);
	fprintf(f, "</desc>\n<rect width=\"%g\" height=\"%.0f\" fill=\"#ffffff\"/>\n", WIDTH,
		height);
}

void plot_svg(FILE *f, const struct plot *plot)
{
	struct frame fr = {.top = plot->heading ? 40 : 14, .right = WIDTH - 12};
	double below, legend;

	fr.bottom = fr.top + HEIGHT;
	set_y(&fr, plot);
	fr.left = left_of(&fr);
	below = fr.bottom + (plot->kind == PLOT_BARS ? bars_below(&fr, plot) : 8 + TICK);
	legend = svg_legend(NULL, plot, fr.ideal, EDGE, fr.right, 0);
	head(f, plot, below + LABEL + 16 + legend + 8);
	if (plot->heading)
		svg_text(f, fr.left, 24, LABEL + 1, SVG_START, SVG_INK, plot->heading);
	y_axis(f, &fr, plot);
	svg_text(f, (fr.left + fr.right) / 2, below + LABEL + 4, LABEL, SVG_MIDDLE, SVG_INK,
		 plot->x_label);
	if (plot->kind == PLOT_BARS)
		bars_draw(f, &fr, plot);
	else
		curves_draw(f, &fr, plot);
	svg_legend(f, plot, fr.ideal, EDGE, fr.right, below + LABEL + 16);
	fputs("</svg>\n", f);
}
