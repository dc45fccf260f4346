/* SPDX-License-Identifier: MIT */
/* Between the files that draw a plot: where its axes are. */
#ifndef GN_REPORT_FRAME_H
#define GN_REPORT_FRAME_H

#include "svg.h"

struct frame {
	double left, right, top, bottom;
	struct svg_ticks ticks; /* of y */
	bool ideal;		/* is drawn */
};

double frame_y(const struct frame *fr, double value);

void curves_draw(FILE *f, const struct frame *fr, const struct plot *plot);
void bars_draw(FILE *f, const struct frame *fr, const struct plot *plot);
/* How much room bars need between the axis and its label. */
double bars_below(const struct frame *fr, const struct plot *plot);

/* What is shown under the pointer: name, place, value and what it is. */
#define FRAME_TIP_MAX 192u
void frame_tip(const struct plot *plot, unsigned series, unsigned x, double y, const char *word,
	       char out[FRAME_TIP_MAX]);

#endif
