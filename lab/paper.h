/* SPDX-License-Identifier: MIT */
/*
 * The list of the papers' figures (data/paper.tsv, whose own head explains it): one figure a line.
 */
#ifndef GN_LAB_PAPER_H
#define GN_LAB_PAPER_H

#include "config.h"

/* data/paper.tsv and data/fit.tsv as they were when the command was built. */
extern const char lab_paper_data[], lab_paper_data_end[];
extern const char lab_fit_data[], lab_fit_data_end[];

enum paper_op { PAPER_EQUAL, PAPER_AT_MOST, PAPER_AT_LEAST, PAPER_ORDER, PAPER_PEAK };

/* Texts point into the list. */
struct paper_line {
	unsigned number; /* in the file, from 1 */
	const char *id;
	char kind; /* C: profiles are fitted on it; P: a prediction */
	const char *layer, *profile, *preset;
	struct config config;
	const char *metric, *unit;
	enum paper_op op;
	const char *value; /* as it stands: a number, or the list of an order */
	double number_value;
	double tol_pct;
	const char *no; /* why it cannot be run; NULL: it can */
	const char *source, *note;
};

struct paper {
	char *text; /* the file's, with its fields ended by zeros */
	struct paper_line *lines;
	unsigned n;
};

const char *paper_op_text(enum paper_op op);

/* -EINVAL and error: the first malformed line, with its number and field. -ENOMEM. */
int paper_parse(struct paper *paper, const char *text, size_t len, struct lab_error *error);
int paper_read(struct paper *paper, const char *file, struct lab_error *error);
void paper_free(struct paper *paper);

const struct paper_line *paper_find(const struct paper *paper, const char *id);

/* What the fit of a profile left behind: a line of data/fit.tsv. */
struct fit_line {
	char profile[32];
	unsigned parameters, lines;
	double loo_median_pct, loo_max_pct; /* leave-one-out error */
};

#define FIT_LINES_MAX 16u

/* How many there are, or -EINVAL and error. */
int fit_parse(struct fit_line *fits, const char *text, size_t len, struct lab_error *error);

#endif
