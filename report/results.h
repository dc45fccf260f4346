/* SPDX-License-Identifier: MIT */
/*
 * What result files say: points of simulated curves (gannet sim figures), lines of the list of
 * figures (gannet sim calibrate and reproduce), and measurements (gannet bench msg).
 */
#ifndef GN_REPORT_RESULTS_H
#define GN_REPORT_RESULTS_H

#include "figures.h"
#include "json.h"

#define RESULTS_WORDS_MAX 12u
#define RESULTS_WORD_MAX  128u

/* Different texts, in the order they came. */
struct words {
	unsigned n;
	char word[RESULTS_WORDS_MAX][RESULTS_WORD_MAX];
};

void words_add(struct words *words, const char *text);

/* Of a line of the list. */
struct line_result {
	bool known;
	struct figure figure;
};

/* Of a chart. */
struct chart_result {
	double y[CHART_SERIES_MAX][CHART_X_MAX]; /* NAN: none */
	unsigned n;				 /* points that there are */
};

/* A run of gannet bench msg. */
struct measured {
	char provider[24], profile[48], preset[16], protocol[24], topology[8];
	char machine[RESULTS_WORD_MAX];
	double nodes, threads, pending, value, gbps, gbps_per_node;
};

struct results {
	const struct paper *paper;
	const struct charts *charts;
	struct line_result *lines;  /* of paper's */
	struct chart_result *chart; /* of charts' */
	struct measured *measured;
	unsigned n_measured;
	struct words versions, seeds, efforts, profiles;
	unsigned usable; /* lines of the files that are in here */
};

/* 0 or -ENOMEM. */
int results_init(struct results *results, const struct paper *paper, const struct charts *charts);
void results_free(struct results *results);

/*
 * Adds what a file has. A line that is not understood is left out, with a line on stderr that names
 * the file and its number. 0, -errno when the file cannot be read.
 */
int results_read(struct results *results, const char *file);

#endif
