/* SPDX-License-Identifier: MIT */
/* gannet bench pager: options, and what to print. The measuring itself is in bench/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cmd.h"
#include "pager.h"

#define AT(member) .to = offsetof(struct pager_request, member)

struct pager_request {
	struct bench_pager_opts opts;
	bool json, unpinned;
};

const char *const cmd_prefetches[] = {"off", NULL};

int cmd_take_prefetch(const char *name, const char *text, void *to)
{
	uint32_t *prefetch = to;
	uint64_t n = 0;

	if (strcmp(text, "off") != 0) {
		if (!*text || strspn(text, "0123456789") != strlen(text))
			return cmd_usage_error("%s must be a number or off, not '%s'", name, text);
		if (cmd_number(name, text, 0, GN_PAGER_WINDOW_MAX, &n))
			return EXIT_USAGE;
	}
	*prefetch = n ? (uint32_t)n : GN_PAGER_NO_PREFETCH;
	return 0;
}

static const struct opt options[] = {
	{OPT_CHOICE, "pattern", "P",
	 "random, sequential, zipf (0.99); single: each touch is a fault that finds free frames",
	 AT(opts.pattern), .choices = bench_pager_patterns},
	{OPT_U32, "local", "PCT", "of the memory that may be local; 4 MiB at least",
	 AT(opts.local_pct), RANGE(1, 100)},
	{OPT_OTHER, "prefetch", "N", "pages read ahead of a trend, or off", "32", AT(opts.prefetch),
	 .choices = cmd_prefetches, .take = cmd_take_prefetch},
	{OPT_U32, "write", "PCT", "of touches that write", AT(opts.write_pct), RANGE(0, 100)},
	{OPT_U64, "size", "BYTES", "of the memory", AT(opts.bytes),
	 RANGE(2 * GN_PAGER_LOCAL_MIN, BENCH_PAGER_SIZE_MAX)},
	{OPT_FLAG, "write-faults", NULL, "notice writes by faults, as before Linux 6.7",
	 AT(opts.write_faults)},
	{OPT_FLAG, "stay", NULL, "the handler does not follow the core of the faulting thread",
	 AT(opts.stay)},
	{OPT_FLAG, "unpinned", NULL, "the scheduler places the thread, and the limit's handler",
	 AT(unpinned)},
	{OPT_REAL, "seconds", "S", "to measure, not counting the limit next to it",
	 AT(opts.seconds), RANGE(0.01, BENCH_SECONDS_MAX)},
	{OPT_U64, "seed", "N", "of the pattern", AT(opts.seed)},
	{OPT_FLAG, "json", NULL, "one object", AT(json)},
	{.type = OPT_END},
};

static void sheet_make(struct bench_sheet *s, const struct bench_pager_opts *o,
		       const struct bench_pager_result *r)
{
	const struct gn_pager_stats *st = &r->stats;

	sheet_text(s, "pattern", bench_pager_patterns[o->pattern]);
	sheet_number(s, "size", (double)o->bytes, 0);
	sheet_number(s, "local_pct", o->local_pct, 0);
	sheet_number(s, "write_pct", o->write_pct, 0);
	sheet_number(s, "prefetch", o->prefetch == GN_PAGER_NO_PREFETCH ? 0 : o->prefetch, 0);
	sheet_number(s, "seconds", r->seconds, 3);
	sheet_number(s, "mops", r->mops, 6);
	sheet_number(s, "fault_us", r->fault_us, 3);
	sheet_number(s, "bare_us", r->bare_us, 3);
	sheet_number(s, "fault_ratio", r->fault_ratio, 3);
	sheet_number(s, "handler_us",
		     st->faults ? 1e-3 * (double)st->fault_ns / (double)st->faults : 0, 3);
	sheet_count(s, "faults", st->faults);
	sheet_count(s, "faults_remote", st->faults_remote);
	sheet_count(s, "faults_cached", st->faults_cached);
	sheet_count(s, "faults_write", st->faults_write);
	sheet_count(s, "pages_in", st->pages_in);
	sheet_count(s, "pages_out", st->pages_out);
	sheet_count(s, "reads", st->reads);
	sheet_count(s, "writes", st->writes);
	sheet_count(s, "dropped", st->dropped);
	sheet_count(s, "prefetched", st->prefetched);
	sheet_count(s, "prefetch_used", st->prefetch_used);
	sheet_count(s, "prefetch_wasted", st->prefetch_wasted);
	sheet_count(s, "stalls", st->stalls);
	sheet_count(s, "moves", st->moves);
	sheet_number(s, "blocks", r->blocks, 0);
	sheet_number(s, "blocks_dropped", r->blocks_dropped, 0);
}

static int bench_pager_main(const struct args *args)
{
	struct pager_request *r = args->opts;
	struct bench_pager_result result;
	struct bench_sheet sheet = {0};
	int cpus[2], status;

	if (r->opts.bytes % GN_PAGER_PAGE)
		return cmd_usage_error("--size must be a multiple of %u", GN_PAGER_PAGE);
	if (r->opts.pattern == PAGER_SINGLE && opt_given(args, "prefetch"))
		return cmd_usage_error("--pattern single has no prefetch");
	if (r->opts.pattern == PAGER_SINGLE)
		r->opts.prefetch = GN_PAGER_NO_PREFETCH;
	bench_begin(cpus);
	r->opts.cpu = r->unpinned ? -1 : cpus[0];
	status = bench_end(bench_pager_run(&r->opts, bench_progress(), &result));
	if (status)
		return status;
	if (result.wrong) {
		fprintf(stderr, "gannet: bench pager: %llu pages had wrong bytes\n",
			(unsigned long long)result.wrong);
		return EXIT_FAILURE;
	}
	sheet_make(&sheet, &r->opts, &result);
	if (r->json)
		sheet_json(stdout, &sheet, cpus);
	else
		sheet_lines(stdout, &sheet);
	return cmd_flush_stdout();
}

const struct command command_bench_pager = {
	.name = "pager",
	.what = "page faults of memory that is on a donor",
	.about = "One thread touches pages of a pager's memory, of which a part is local and the "
		 "rest on a donor. What is read is checked.",
	.more = "The same thread also faults on memory whose handler only copies from local "
		"memory, in blocks of time that alternate: fault_ratio is the time per fault over "
		"that, bare_us. fault_us counts all of the time, also that of touches without a "
		"fault; mops are touches. Both handlers run on the core of the thread.",
	.run = bench_pager_main,
	OPTIONS(options, struct pager_request,
		.opts = {.local_pct = 50,
			 .bytes = 64u << 20,
			 .seconds = 1,
			 .seed = 1,
			 .prefetch = 32}),
};
