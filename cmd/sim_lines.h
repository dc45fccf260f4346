/* SPDX-License-Identifier: MIT */
/*
 * Between the commands that run lines of the list of figures (sim calibrate, sim reproduce): the
 * options they share, the choice of lines, and running them with results in the list's order.
 */
#ifndef GN_CMD_SIM_LINES_H
#define GN_CMD_SIM_LINES_H

#include "command.h"
#include "report.h"
#include "workers.h"

struct sim_lines {
	struct figure_env env;
	struct paper paper;
	const char *only, *data;
	bool json;
	unsigned jobs;
	char cards[FIGURE_CARDS_MAX][256]; /* the texts behind env.cards */

	const struct paper_line **lines; /* chosen */
	bool *done;
	unsigned *groups;
	unsigned n, printed;

	/* The command's own: a result for each line, of so many bytes. */
	void *results;
	size_t result_bytes;
	/* Evaluate a line. -EINTR: stop. */
	int (*run)(struct sim_lines *lines, unsigned i, void *result);
	/* Its result has come. */
	void (*print)(const struct sim_lines *lines, unsigned i);
};

extern const struct command command_sim_calibrate, command_sim_figures, command_sim_reproduce;

/* Options that all commands have that run figures; and those of lines. */
extern const struct opt sim_run_options[], sim_lines_options[];
#define SIM_LINES_DEFAULT                                                         \
	{                                                                         \
		.jobs = 1, .env = {.seed = 1, .effort = 1, .layers = lab_layers } \
	}
double sim_wall_now(void); /* seconds */

/* Reads the list and takes the lines that --only names and wanted() lets through. */
int sim_lines_choose(struct sim_lines *l,
		     bool (*wanted)(const struct sim_lines *l, const struct paper_line *line));
/* 0, -EINTR or -errno; prints each in its turn. */
int sim_lines_run(struct sim_lines *l);
/* The end of a command: what to leave with after rc of the above, nothing else being wrong. */
int sim_lines_status(int rc);
void sim_lines_free(struct sim_lines *l);

#endif
