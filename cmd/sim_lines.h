/* SPDX-License-Identifier: MIT */
/*
 * Between the commands that run lines of the list of figures (sim calibrate, sim reproduce): the
 * options they share, the choice of lines, and running them with results in the list's order.
 */
#ifndef GN_CMD_SIM_LINES_H
#define GN_CMD_SIM_LINES_H

#include <getopt.h>

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

/* Defaults of what the options set. */
void sim_lines_init(struct sim_lines *l);

/* For a table of options: those that both commands have. */
enum {
	SIM_ONLY = 256,
	SIM_JSON,
	SIM_SEED,
	SIM_EFFORT,
	SIM_JOBS,
	SIM_PROFILE,
	SIM_DATA,
	SIM_LINES_OPTIONS_END
};
/* clang-format off: a table */
#define SIM_LINES_OPTIONS                                                                      \
	{"only", required_argument, NULL, SIM_ONLY}, {"json", no_argument, NULL, SIM_JSON},    \
		{"seed", required_argument, NULL, SIM_SEED},                                   \
		{"effort", required_argument, NULL, SIM_EFFORT},                               \
		{"jobs", required_argument, NULL, SIM_JOBS},                                   \
		{"profile", required_argument, NULL, SIM_PROFILE},                             \
		{"data", required_argument, NULL, SIM_DATA}, {"help", no_argument, NULL, 'h'}, \
	{                                                                                      \
		NULL, 0, NULL, 0                                                               \
	}
/* clang-format on */
/* 0, or EXIT_USAGE and said why. */
int sim_lines_option(struct sim_lines *l, int option);

/* Reads the list and takes the lines that --only names and wanted() lets through. */
int sim_lines_choose(struct sim_lines *l,
		     bool (*wanted)(const struct sim_lines *l, const struct paper_line *line));
/* 0, -EINTR or -errno; prints each in its turn. */
int sim_lines_run(struct sim_lines *l);
/* The end of a command: what to leave with after rc of the above, nothing else being wrong. */
int sim_lines_status(int rc);
void sim_lines_free(struct sim_lines *l);

#endif
