/* SPDX-License-Identifier: MIT */
/* How well figures of a layer were met, and whether that is well enough. */
#ifndef GN_LAB_SCORE_H
#define GN_LAB_SCORE_H

#include <stdio.h>

#include "figure.h"

#define SCORE_WITHIN_PCT 80u  /* of "=" lines are within their tolerance */
#define SCORE_WORST_PCT	 25.0 /* … and the others no further away than this */
#define SCORE_RIGHT_PCT	 90u  /* of all other lines are right */

struct score {
	unsigned equal, within; /* "=" lines */
	double worst_pct;	/* the largest of their errors, without its sign */
	unsigned others, right;
	unsigned no, waiting; /* which count for nothing */
};

/* A line that failed is missed by as much as there is. */
void score_add(struct score *score, const struct paper_line *line, const struct figure *figure);
bool score_reached(const struct score *score);
void score_print(FILE *f, const char *layer, const struct score *score);
void score_json(FILE *f, const char *layer, const struct score *score);

#endif
