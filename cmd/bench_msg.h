/* SPDX-License-Identifier: MIT */
/*
 * Between the files of gannet bench msg: what was asked for, and what runs it.
 */
#ifndef GN_CMD_BENCH_MSG_H
#define GN_CMD_BENCH_MSG_H

#include "msg.h"
#include "msg_sweep.h"

struct msg_job {
	struct bench_msg_opts opts; /* of every point, but for what is swept */
	struct sweep sweep;
	const char *out; /* a file; NULL: none */
	bool json;
};

/* Every point, with all its output; the exit status (bench_msg_points.c). */
int msg_job_run(struct msg_job *job);

/* ---- how far it is (bench_msg_progress.c) ---- */

/* A bar on a terminal, lines elsewhere; for one point nothing but a bar. */
void msg_progress_begin(unsigned points);
/* The next point is about to run; estimated_seconds may be NAN. */
void msg_progress_point(const struct bench_msg_opts *opts, double estimated_seconds);
/* The part of it that is done. */
bench_progress_fn msg_progress_part;
/* It is done. */
void msg_progress_done(void);
/* Nothing of it is left on the terminal; before anything else is written there. */
void msg_progress_hide(void);

#endif
