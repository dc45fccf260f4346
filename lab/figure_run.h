/* SPDX-License-Identifier: MIT */
/* Between the files of the evaluator: points, and the figures that can be had of one. */
#ifndef GN_LAB_FIGURE_RUN_H
#define GN_LAB_FIGURE_RUN_H

#include "figure.h"

/* Where a figure is taken. config has the keys that say what to do with it, like vary, too. */
struct point {
	const char *layer, *profile, *preset;
	struct config config;
};

void point_of_line(const struct paper_line *line, struct point *out);

/*
 * A metric at a point, with its sweeps, ratios and so on. -ENOSYS: a layer that it needs is not
 * there. Otherwise -errno and error.
 */
int point_figure(struct figure_env *env, const struct point *point, const char *metric, double *out,
		 struct lab_error *error);
/* The point that over= names, and in *scale what its figure is multiplied by. */
int point_over(struct figure_env *env, const struct point *point, struct point *out,
	       const char **metric, double *scale, struct lab_error *error);

bool metric_smaller_is_better(const char *metric);

/*
 * Group names (S003's protocols): the members of name, i = 0 and on; NULL: there are no more, or it
 * is no group of that key. For "rest", named is the list of those that are not in it.
 */
const char *setting_group_member(const char *key, const char *name, const char *named, unsigned i);
bool setting_is_group(const char *key, const char *name);

#endif
