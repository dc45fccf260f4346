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
#define SLAB_MIN   (1ull << 20)

struct io_request {
	struct bench_io_opts opts;
	bool json;
};

const char *const cmd_windows[] = {"none", "auto", NULL};

int cmd_take_window(const char *name, const char *text, void *to)
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
	if (!strspn(text, "0123456789") || strspn(text, "0123456789") < strlen(text) - 1)
		return cmd_usage_error("%s must be a number, none or auto, not '%s'", name, text);
	return cmd_number(name, text, 1, BENCH_IO_REGION_MAX, window);
}

static const struct opt options[] = {
	{OPT_CHOICE, "op", "OP", "read, write or mixed: half of each", AT(opts.op),
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
	{OPT_CHOICE, "mr", "M", "pre: copied; dyn: registered each time; auto: by size",
	 AT(opts.mr), .choices = bench_io_mrs},
	{OPT_CHOICE, "poll", "P",
	 "adaptive, busy, event, event-batch, naive-hybrid or shared: how a thread waits for "
	 "completions",
	 AT(opts.poll), .choices = bench_io_polls},
	{OPT_U32, "max-retry", "N", "--poll adaptive: empty polls before it sleeps", "120",
	 AT(opts.max_retry), RANGE(1, 1000000)},
	{OPT_OTHER, "window", "W",
	 "bytes in flight, of READs and of WRITEs; none: no limit; auto: found by the engine",
	 "7000000", AT(opts.window), .choices = cmd_windows, .take = cmd_take_window},
	{OPT_U32, "channels", "N", "connections to the memory", "the library's choice",
	 AT(opts.channels), RANGE(1, 16)},
	{OPT_U32, "adjacent", "PCT", "of requests, which continue the last one",
	 AT(opts.adjacent_pct), RANGE(0, 100)},
	{OPT_U32, "burst", "N", "submit so many, wait for all, sleep --gap", "none", AT(opts.burst),
	 RANGE(1, BENCH_IO_DEPTH_MAX)},
	{OPT_U32, "gap", "US", "between two bursts", AT(opts.gap_us),
	 RANGE(0, BENCH_IO_GAP_US_MAX)},
	{OPT_U32, "rate", "N", "requests per second of the process", "none", AT(opts.rate),
	 RANGE(1, BENCH_IO_RATE_MAX)},
	{OPT_U64, "region", "BYTES", "of the lent memory", "1G; simulated 64M",
	 AT(opts.region_bytes), RANGE(4096, BENCH_IO_REGION_MAX)},
	{OPT_U32, "machines", "M", "sim: with clients", AT(opts.load.machines),
	 RANGE(1, LOAD_MACHINES_MAX)},
	{OPT_FLAG, "volume", NULL, "a volume with copies on several donors, in place of one memory",
	 AT(opts.volume)},
	{OPT_U32, "copies", "R", "--volume: on different donors", "2", AT(opts.copies),
	 RANGE(1, GN_VOL_COPIES_MAX)},
	{OPT_U32, "donors", "N", "--volume: that lend memory", "as --copies", AT(opts.donors),
	 RANGE(1, GN_VOL_DONORS_MAX)},
	{OPT_FLAG, "verify", NULL, "--volume: with a checksum of each 4 KiB", AT(opts.verify)},
	{OPT_U64, "slab", "BYTES", "--volume: a power of two", "64M or less", AT(opts.slab_bytes),
	 RANGE(SLAB_MIN, GN_DONOR_SLAB_MAX)},
	{OPT_U32, "repair-share", "PCT", "--volume: of the time, for repair", "25",
	 AT(opts.repair_share), RANGE(1, 100)},
	{OPT_REAL, "kill-donor", "S", "--volume: kills a donor after S seconds", "never",
	 AT(opts.kill_s), RANGE(0.05, 3600)},
	{OPT_U32, "kills", "N", "--kill-donor: how often", "1", AT(opts.kills),
	 RANGE(1, BENCH_IO_KILLS_MAX)},
	{OPT_TEXT, "series", "FILE", "--kill-donor: writes the throughput of each 10 ms", "",
	 AT(opts.series)},
	{OPT_TABLE, .to = offsetof(struct io_request, opts.load), .table = bench_load_options},
	{OPT_FLAG, "json", NULL, "one object a line", AT(json)},
	{.type = OPT_END},
};

#define FOR_VOLUME "copies donors verify slab repair-share kill-donor kills series"

/* A quarter of the region, and not more than a donor's default. */
static uint64_t default_slab(uint64_t region_bytes)
{
	uint64_t slab = GN_DONOR_SLAB_DEFAULT;

	while (slab > SLAB_MIN && slab > region_bytes / 4)
		slab /= 2;
	return slab;
}

static int check_kills(struct bench_io_opts *o)
{
	if (o->kill_s <= 0 && (o->kills || o->series))
		return cmd_usage_error("--kills and --series need --kill-donor");
	if (o->kill_s <= 0)
		return 0;
	if (o->load.profile || o->burst || o->rate)
		return cmd_usage_error("--kill-donor is for processes, without --burst and --rate");
	if (o->copies < 2 || o->donors <= o->copies)
		return cmd_usage_error("--kill-donor needs two --copies, and more --donors: else "
				       "nothing can be repaired");
	o->kills = o->kills ? o->kills : 1;
	return 0;
}

static int check_volume(const struct args *args, struct bench_io_opts *o)
{
	if (!o->volume)
		return opt_given(args, FOR_VOLUME) ?
			       cmd_usage_error("of these options, one is for --volume: %s",
					       FOR_VOLUME) :
			       0;
	o->copies = o->copies ? o->copies : 2;
	o->donors = o->donors ? o->donors : o->copies;
	o->slab_bytes = o->slab_bytes ? o->slab_bytes : default_slab(o->region_bytes);
	if (o->donors < o->copies)
		return cmd_usage_error("--donors must not be below --copies: copies are on "
				       "different donors");
	if (o->slab_bytes & (o->slab_bytes - 1))
		return cmd_usage_error("--slab must be a power of two");
	if (o->block_bytes & (o->block_bytes - 1) || o->region_bytes % GN_VOL_BLOCK ||
	    o->region_bytes % o->block_bytes)
		return cmd_usage_error("--volume needs a --block that is a power of two, and a "
				       "--region of whole blocks and pages");
	if (o->sges > GN_VOL_SGE_MAX)
		return cmd_usage_error("--volume takes up to %u --sges", GN_VOL_SGE_MAX);
	return check_kills(o);
}

static int check_opts(const struct args *args, struct bench_io_opts *o)
{
	const int status = bench_check_load(args, &o->load);

	if (status)
		return status;
	if (!o->region_bytes)
		o->region_bytes = o->load.profile ? REGION_SIM : REGION;
	if (o->block_bytes % 8)
		return cmd_usage_error("--block must be a multiple of 8, not %u", o->block_bytes);
	if (o->block_bytes > o->region_bytes)
		return cmd_usage_error("--block must be not above --region");
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
	return check_volume(args, o);
}

static int bench_io_main(const struct args *args)
{
	struct io_request *r = args->opts;
	struct bench_io_kills kills;
	struct load_result result;
	int status = check_opts(args, &r->opts);

	if (status)
		return status;
	bench_begin(r->opts.load.cpus);
	status = bench_load_end("bench io",
				bench_io_run(&r->opts, bench_progress(), &result, &kills), &result);
	if (status)
		return status;
	if (r->json)
		bench_io_print_json(stdout, &r->opts, &result, &kills);
	else
		bench_io_print_text(stdout, &r->opts, &result, &kills);
	return cmd_flush_stdout();
}

const struct command command_bench_io = {
	.name = "io",
	.what = "reads and writes of another process's memory, through the I/O engine",
	.about = "Threads read and write random blocks of a memory that another process lends, "
		 "through one I/O engine: over shm or verbs, or on a simulated cluster. What is "
		 "read is checked.",
	.more = "Over shm the same threads also copy such blocks with memcpy, in blocks of time "
		"that alternate: memcpy_ratio is the speed over memcpy's. p50 and p99 are of some "
		"requests; simulated, of all.",
	.run = bench_io_main,
	OPTIONS(options, struct io_request,
		.opts = {.block_bytes = 4096,
			 .sges = 1,
			 .window = WINDOW,
			 .mr = BENCH_IO_MR_REGISTERED,
			 .load = {BENCH_LOAD_DEFAULTS, .threads = 1, .machines = 1, .clients = 1,
				  .batch = 1, .inflight = 16}}),
};
