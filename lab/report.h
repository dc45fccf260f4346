/* SPDX-License-Identifier: MIT */
/* Lines of the list with what was simulated, for people and as JSON. */
#ifndef GN_LAB_REPORT_H
#define GN_LAB_REPORT_H

#include <stdio.h>

#include "figure.h"

/* What the line is about, in a few words. */
#define WHAT_MAX 256u
void report_what(const struct paper_line *line, char out[WHAT_MAX]);

void report_head(FILE *f);
void report_row(FILE *f, const struct paper_line *line, const struct figure *figure);
/* beside: the same line with the preset gannet; may be NULL. */
void report_json(FILE *f, const struct figure_env *env, const struct paper_line *line,
		 const struct figure *figure, const struct figure *beside);
/* A figure by itself: a number, or an order's, or "-". */
void report_value(FILE *f, const struct figure *figure);
/* Counts, reasons, and how the profiles were fitted. figures[i] is of lines[i], if it is done. */
void report_summary(FILE *f, const struct paper_line *const *lines, const struct figure *figures,
		    const bool *is_done, unsigned n, const struct fit_line *fits, unsigned n_fits);

#endif
