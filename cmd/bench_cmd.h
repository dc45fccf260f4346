/* SPDX-License-Identifier: MIT */
/*
 * What several of gannet bench share.
 */
#ifndef GN_CMD_BENCH_H
#define GN_CMD_BENCH_H

#include "bench.h"
#include "cmd.h"
#include "command.h"
#include "count.h"

extern const struct command command_bench_fabric, command_bench_kv, command_bench_msg,
	command_bench_rpc, command_bench_sim, command_bench_socket;

/* What to print; options of several. */
struct bench_output {
	bool json, instructions;
	const char *callgrind;
};
extern const struct opt bench_output_options[];
/* For --provider, where there is no other yet. */
extern const char *const bench_shm_only[];
/* For --dist, into a double: 0 is uniform. */
int bench_take_dist(const char *name, const char *text, void *to);
/* shm, or verbs with a host; 0 or EXIT_USAGE. */
int bench_check_provider(const char *provider, const char *host);
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
