/* SPDX-License-Identifier: MIT */
/* Pieces of a drawing: texts that are escaped, numbers as people write them, symbols, scales. */
#ifndef GN_REPORT_SVG_H
#define GN_REPORT_SVG_H

#include "plot.h"

#define SVG_FONT "Helvetica Neue,Helvetica,Arial,Liberation Sans,DejaVu Sans,sans-serif"
#define SVG_INK	 "#222222"
#define SVG_SOFT "#666666"
#define SVG_GRID "#dddddd"

#define SVG_STYLES 8u

/* Text for HTML and XML: what has a meaning there, and what must not be there, is replaced. */
void svg_escape(FILE *f, const char *text);

/* How wide a text is, roughly and not less. */
double svg_width(const char *text, double size);

/* 4 digits at most, without an exponent where people would not write one. */
#define SVG_NUMBER_MAX 32u
void svg_number(double value, char out[SVG_NUMBER_MAX]);
/* … of bytes: 4 Ki. */
void svg_bytes(double value, char out[SVG_NUMBER_MAX]);

const char *svg_colour(unsigned style);

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };
void svg_text(FILE *f, double x, double y, double size, enum svg_anchor anchor, const char *fill,
	      const char *text);
/* Turned so that it is read from below. */
void svg_text_up(FILE *f, double x, double y, double size, enum svg_anchor anchor, const char *fill,
		 const char *text);
void svg_line(FILE *f, double x1, double y1, double x2, double y2, const char *stroke, double width,
	      const char *dash);

/* A symbol of so much radius; hollow: white inside. title is shown under the pointer; or NULL. */
void svg_symbol(FILE *f, unsigned style, double x, double y, double radius, bool hollow,
		const char *title);

/* Round numbers from 0 to above the highest. */
struct svg_ticks {
	double step, top;
	unsigned n; /* steps */
};
struct svg_ticks svg_ticks(double highest);

/* Legends: drawn from y on, between left and right; returns how high it is. NULL: only measures. */
double svg_legend(FILE *f, const struct plot *plot, bool ideal, double left, double right,
		  double y);

#endif
