/* SPDX-License-Identifier: MIT */
/* Between the files of gannet sim figures: the points to run, and the file that keeps them. */
#ifndef GN_CMD_SIM_FIGURES_H
#define GN_CMD_SIM_FIGURES_H

#include <assert.h>

#include "figures.h"
#include "sim_lines.h"

/* A point of a curve, and what came of it. */
struct sim_job {
	const struct chart *chart;
	unsigned series, x;
	double weight; /* of the work, roughly */
};

struct sim_outcome {
	double y, seconds;
	enum figure_status status;
	char reason[LAB_ERROR_MAX];
};

static_assert(sizeof(struct sim_outcome) <= WORKER_RESULT_MAX, "a worker sends it at once");

struct sim_figures {
	struct sim_lines options; /* those that the other commands have too */
	const char *figures, *out;
	bool list;
	struct paper paper;
	struct charts charts;
	struct sim_job *jobs;
	unsigned *groups;
	unsigned n, n_known, n_done, n_failed;
	double weight, weight_done, began;
	FILE *to; /* where objects go; NULL: a table */
	bool broken;
};

/* Where a point is taken, and what its figure is. */
int sim_figures_point(const struct sim_job *job, struct point *point, const char **metric);

/* Opens r->out to append, and takes from the jobs what it has. 0, or EXIT_FAILURE and said why. */
int sim_figures_open(struct sim_figures *r);
void sim_figures_write(const struct sim_figures *r, const struct sim_job *job,
		       const struct sim_outcome *outcome);

#endif
