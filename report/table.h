/* SPDX-License-Identifier: MIT */
/* Tables of the page: the paper's figures beside the simulated ones, and curves in numbers. */
#ifndef GN_REPORT_TABLE_H
#define GN_REPORT_TABLE_H

#include "plot.h"
#include "results.h"

void table_of_marks(FILE *f, const struct results *results, const struct chart *chart,
		    const struct chart_mark *marks, unsigned n_marks);
void table_of_values(FILE *f, const struct plot *plot);

/* Lines of the list that no chart has. */
bool table_has_others(const struct results *results);
void table_of_others(FILE *f, const struct results *results);

#endif
