/* SPDX-License-Identifier: MIT */
/* gannet bench io: options, and what to print. The measuring itself is in bench/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cmd.h"
#include "io.h"

#define AT(member) .to = offsetof(struct io_request, member)

#define WINDOW	   7000000u /* the library's */
#define REGION	   (1ull << 30)
#define REGION_SIM (64ull << 20) /* of the simulated machines' own memory */

struct io_request {
	struct bench_io_opts opts;
	bool json;
};

static int take_window(const char *name, const char *text, void *to)
{
	uint64_t *window = to;

	if (!strcmp(text, "none")) {
		*window = GN_IO_WINDOW_NONE;
		return 0;
	}
	if (!strcmp(text, "auto")) {
		*window = GN_IO_WINDOW_AUTO;
		return 0;
	}
	return cmd_number(name, text, 1, BENCH_IO_REGION_MAX, window);
}

static const char *const windows[] = {"none", "auto", NULL};

static const struct opt options[] = {
	{OPT_CHOICE, "op", "OP", "of requests; mixed: half and half", AT(opts.op),
	 .choices = bench_io_ops},
	{OPT_U32, "block", "B", "bytes of a request, a multiple of 8", AT(opts.block_bytes),
	 RANGE(8, GN_IO_BYTES_MAX)},
	{OPT_U32, "sges", "N", "--mr registered: scattered buffers of a request", AT(opts.sges),
	 RANGE(1, GN_IO_SGE_MAX)},
	{OPT_U32, "threads", "T", "of the client's process, which share one engine",
	 AT(opts.load.clients), RANGE(1, BENCH_IO_THREADS_MAX)},
	{OPT_U32, "depth", "D", "requests that a thread has under way", AT(opts.load.inflight),
	 RANGE(1, BENCH_IO_DEPTH_MAX)},
	{OPT_CHOICE, "batching", "M",
	 "single: a work request and a doorbell each; doorbell: chained; merge: adjacent ones in "
	 "one work request; hybrid: both",
	 AT(opts.batching), .choices = bench_io_batchings},
	{OPT_CHOICE, "mr", "M",
	 "registered: buffers are registered once; pre: copied; dyn: registered for each request; "
	 "auto: by their size",
	 AT(opts.mr), .choices = bench_io_mrs},
	{OPT_CHOICE, "poll", "P", "how a thread waits for completions", AT(opts.poll),
	 .choices = bench_io_polls},
	{OPT_U32, "max-retry", "N", "--poll adaptive: empty polls before it sleeps",
	 "the library's choice", AT(opts.max_retry), RANGE(1, 1000000)},
	{OPT_OTHER, "window", "W",
	 "bytes in flight, of READs and of WRITEs; none: no limit; auto: found by the engine",
	 "7000000", AT(opts.window), .choices = windows, .take = take_window},
	{OPT_U32, "channels", "N", "connections to the memory", "the library's choice",
	 AT(opts.channels), RANGE(1, 16)},
	{OPT_U32, "adjacent", "PCT", "of requests, which continue the last one of their thread",
	 AT(opts.adjacent_pct), RANGE(0, 100)},
	{OPT_U32, "burst", "N", "submit so many, wait for all, sleep --gap; instead of --depth",
	 "none", AT(opts.burst), RANGE(1, BENCH_IO_DEPTH_MAX)},
	{OPT_U32, "gap", "US", "between two bursts", AT(opts.gap_us),
	 RANGE(0, BENCH_IO_GAP_US_MAX)},
	{OPT_U32, "rate", "N", "requests per second of the process, whether or not others ended",
	 "none", AT(opts.rate), RANGE(1, BENCH_IO_RATE_MAX)},
	{OPT_U64, "region", "BYTES", "of the lent memory", "1G; simulated 64M",
	 AT(opts.region_bytes), RANGE(4096, BENCH_IO_REGION_MAX)},
	{OPT_U32, "machines", "M", "sim: with clients", AT(opts.load.machines),
	 RANGE(1, LOAD_MACHINES_MAX)},
	{OPT_TABLE, .to = offsetof(struct io_request, opts.load), .table = bench_load_options},
	{OPT_FLAG, "json", NULL, "one object a line", AT(json)},
	{.type = OPT_END},
};

static int check_opts(const struct args *args, struct bench_io_opts *o)
{
	const int status = bench_check_load(args, &o->load);

	if (status)
		return status;
	if (!o->region_bytes)
		o->region_bytes = o->load.profile ? REGION_SIM : REGION;
	if (o->block_bytes % 8 || o->block_bytes > o->region_bytes)
		return cmd_usage_error("--block must be a multiple of 8, and not above --region");
	if (o->sges > 1 && (o->mr != BENCH_IO_MR_REGISTERED || o->block_bytes % (8 * o->sges)))
		return cmd_usage_error("--sges needs --mr registered, and a --block that is a "
				       "multiple of 8 times --sges");
	if (o->gap_us && !o->burst)
		return cmd_usage_error("--gap is between bursts: it needs --burst");
	if (o->burst && (o->rate || opt_given(args, "depth")))
		return cmd_usage_error("--burst is instead of --depth and --rate");
	if (o->max_retry && o->poll != GN_IO_ADAPTIVE)
		return cmd_usage_error("--max-retry is for --poll adaptive");
	if (o->burst)
		o->load.inflight = o->burst;
	if ((uint64_t)o->block_bytes * o->load.inflight > BENCH_IN_FLIGHT_MAX)
		return cmd_usage_error("--block times --depth must not exceed %u MiB",
				       BENCH_IN_FLIGHT_MAX >> 20);
	return 0;
}

static int bench_io_main(const struct args *args)
{
	struct io_request *r = args->opts;
	struct load_result result;
	int status = check_opts(args, &r->opts);

	if (status)
		return status;
	bench_begin(r->opts.load.cpus);
	status = bench_load_end("bench io", bench_io_run(&r->opts, bench_progress(), &result),
				&result);
	if (status)
		return status;
	if (r->json)
		bench_io_print_json(stdout, &r->opts, &result);
	else
		bench_io_print_text(stdout, &r->opts, &result);
	return cmd_flush_stdout();
}

const struct command command_bench_io = {
	.name = "io",
	.what = "reads and writes of another process's memory, through the I/O engine",
	.about = "Threads read and write random blocks of a memory that another process lends, "
		 "through one I/O engine: over shm or verbs, or on a simulated cluster. What is "
		 "read is checked.",
	.more = "Each thread submits all of its free requests as one list. Over shm the same "
		"threads also copy such blocks with memcpy, in blocks of time that alternate: "
		"memcpy_ratio is the engine's speed over memcpy's. p50 and p99 are of requests "
		"picked now and then; simulated, of all.",
	.run = bench_io_main,
	OPTIONS(options, struct io_request,
		.opts = {.block_bytes = 4096,
			 .sges = 1,
			 .window = WINDOW,
			 .mr = BENCH_IO_MR_REGISTERED,
			 .load = {BENCH_LOAD_DEFAULTS, .threads = 1, .machines = 1, .clients = 1,
				  .batch = 1, .inflight = 16}}),
};
