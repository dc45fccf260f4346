/* SPDX-License-Identifier: MIT */
/*
 * What several of gannet bench share.
 */
#ifndef GN_CMD_BENCH_H
#define GN_CMD_BENCH_H

#include "bench.h"
#include "count.h"

/* --provider; 0 or EXIT_USAGE. */
int bench_check_provider(const char *text);
/* --dist: *zipf is 0 for uniform; 0 or EXIT_USAGE. */
int bench_parse_dist(const char *text, double *zipf);
/* Picks cores, says so if there is only one, and looks for signals from then on. */
void bench_begin(int cpus[2]);
/* What shows how far a run is: on a terminal only, else NULL. */
bench_progress_fn *bench_progress(void);
/* After a run: 0, or the exit status to leave with. */
int bench_end(int rc);
/*
 * --instructions: counts n cases and prints each; vary makes the i-th of what they have in common.
 * The exit status.
 */
typedef void bench_vary_fn(struct count_opts *opts, unsigned i, const void *request);
int bench_count(const struct count_opts *common, unsigned n, bench_vary_fn *vary,
		const void *request, bool json);

#endif
