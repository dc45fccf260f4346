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
#include "load.h"

extern const struct command command_bench_dgram, command_bench_fabric, command_bench_io,
	command_bench_kv, command_bench_msg, command_bench_pager, command_bench_rpc,
	command_bench_sim, command_bench_socket;

#define BENCH_PROFILE "cx3-fdr" /* of a simulation, unless another is given */

/* What to print; options of several. */
struct bench_output {
	bool json, instructions;
	const char *callgrind;
};
extern const struct opt bench_output_options[];
/* Where a load runs, and for how long: for a struct load_opts. */
extern const struct opt bench_load_options[];
#define BENCH_LOAD_DEFAULTS .provider = "shm", .effort = 1, .seconds = 1, .seed = 1
/* Are these right, and is nothing given that belongs to another provider? 0 or EXIT_USAGE. */
int bench_check_load(const struct args *args, struct load_opts *opts);
/* Servers, clients, and what they have under way: for a struct load_opts. */
extern const struct opt bench_calls_options[];
#define BENCH_CALLS_DEFAULTS .threads = 1, .machines = 1, .clients = 1, .batch = 1
/* The same for these; sets what follows from them. spread: threads that a client calls. */
int bench_check_calls(const struct args *args, struct load_opts *opts,
		      const struct bench_output *out, uint32_t spread);
/* A run has ended, with rc: says why it failed. 0, or the exit status to leave with. */
int bench_load_end(const char *name, int rc, const struct load_result *result);
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

/* ---- options of the I/O engine (bench_io.c) ---- */

extern const char *const cmd_windows[];
/* For OPT_OTHER: bytes, or one of cmd_windows, into a uint64_t. */
int cmd_take_window(const char *name, const char *text, void *to);
extern const char *const cmd_prefetches[];
/* For OPT_OTHER: pages, or off, into a uint32_t as gn_pager_opts.prefetch. */
int cmd_take_prefetch(const char *name, const char *text, void *to);

#endif
