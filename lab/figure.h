/* SPDX-License-Identifier: MIT */
/*
 * Evaluating the lines of the list of figures: sweeps, ratios, orders and peaks of what the layers
 * measure, and whether that is a hit. Each distinct configuration runs once.
 */
#ifndef GN_LAB_FIGURE_H
#define GN_LAB_FIGURE_H

#include "lab.h"
#include "paper.h"

#define FIGURE_LIST_MAX	 32u
#define FIGURE_CARDS_MAX 16u

enum figure_status {
	FIGURE_MEASURED,
	FIGURE_WAITING, /* for a layer that is still to be written */
	FIGURE_NO,	/* cannot be run: reason */
	FIGURE_FAILED,	/* was run, and gave no figure: reason */
	FIGURE_STATUSES
};

struct figure {
	enum figure_status status;
	double simulated; /* infinite: there is no such point; orders: see list */
	double list[FIGURE_LIST_MAX];
	unsigned n_list;  /* of an order */
	double error_pct; /* of "=" */
	bool hit;
	char reason[LAB_ERROR_MAX];
	double seconds; /* set by who asked for it */
};

/* A profile that is replaced by another, or by a file. */
struct figure_card {
	const char *profile, *card;
};

struct figure_cache;

struct figure_env {
	const struct paper *paper;
	const struct lab_layer *layers;
	struct figure_card cards[FIGURE_CARDS_MAX];
	unsigned n_cards;
	const char *preset; /* NULL: each line's own; else in the place of any it has */
	uint64_t seed;
	double effort;
	const volatile sig_atomic_t *interrupted;
	struct figure_cache *cache; /* NULL to begin with; figure_forget() frees it */
};

const char *figure_status_text(enum figure_status status);

/* 0, whatever its status; -EINTR. */
int figure_eval(struct figure_env *env, const struct paper_line *line, struct figure *out);
void figure_forget(struct figure_env *env);

#endif
