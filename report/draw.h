/* SPDX-License-Identifier: MIT */
/* From charts and results to plots. */
#ifndef GN_REPORT_DRAW_H
#define GN_REPORT_DRAW_H

#include "plot.h"
#include "results.h"

/* The paper's points and the simulated curves. marks are the chart's. */
void draw_chart(const struct results *results, const struct chart *chart,
		const struct chart_mark *marks, unsigned n_marks, struct plot *out);

/*
 * The i-th plot of measurements that have the chart's x axis, from 0; false: there are no more.
 * They have a plot of their own, because a cluster and a laptop have different scales.
 */
struct draw_measured {
	struct plot plot;
	char id[64], heading[256], title[256];
};
bool draw_measured(const struct results *results, const struct chart *chart, unsigned i,
		   struct draw_measured *out);
bool draw_has_measured(const struct results *results, const struct chart *chart);

#endif
