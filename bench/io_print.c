/* SPDX-License-Identifier: MIT */
/* Results of the I/O engine's load, as one JSON object or as lines for people. */
#include <math.h>

#include "io.h"

static double per_io(const struct load_result *r, uint64_t n)
{
	return r->sums.calls ? (double)n / (double)r->sums.calls : NAN;
}

static void sheet_volume(struct bench_sheet *s, const struct bench_io_opts *o)
{
	sheet_number(s, "copies", o->copies, 0);
	sheet_number(s, "donors", o->donors, 0);
	sheet_number(s, "slab", (double)o->slab_bytes, 0);
	sheet_text(s, "verify", o->verify ? "yes" : "no");
}

static void sheet_kills(struct bench_sheet *s, const struct bench_io_kills *k)
{
	sheet_number(s, "kills", k->n, 0);
	sheet_number(s, "outage_ms_p50", k->outage_ms_p50, 3);
	sheet_number(s, "outage_ms_p99", k->outage_ms_p99, 3);
	sheet_number(s, "outage_ms_max", k->outage_ms_max, 3);
	sheet_number(s, "detect_ms", k->detect_ms, 3);
	sheet_number(s, "before_kiops", k->before_kiops, 3);
	sheet_number(s, "repair_kiops", k->repair_kiops, 3);
	sheet_number(s, "after_kiops", k->after_kiops, 3);
	sheet_number(s, "repair_ratio", k->repair_kiops / k->before_kiops, 3);
	sheet_number(s, "repair_seconds", k->repair_s, 3);
	sheet_number(s, "repair_mib", k->repair_mib, 1);
	sheet_number(s, "repair_mib_per_s", k->repair_mib / k->repair_s, 1);
	sheet_number(s, "repair_seconds_per_gib", k->repair_s / k->repair_mib * 1024, 3);
}

static void sheet_make(struct bench_sheet *s, const struct bench_io_opts *o,
		       const struct load_result *r, const struct bench_io_kills *k)
{
	const struct load_sums *sums = &r->sums;
	const bool simulated = o->load.profile != NULL;

	load_sheet_opts(s, &o->load);
	sheet_text(s, "op", bench_io_ops[o->op]);
	sheet_number(s, "block", o->block_bytes, 0);
	sheet_number(s, "sges", o->sges, 0);
	sheet_number(s, "region", (double)o->region_bytes, 0);
	sheet_number(s, "threads", o->load.clients, 0);
	sheet_number(s, "depth", o->load.inflight, 0);
	sheet_text(s, "batching", bench_io_batchings[o->batching]);
	sheet_text(s, "mr", bench_io_mrs[o->mr]);
	sheet_text(s, "poll", bench_io_polls[o->poll]);
	sheet_number(s, "window", o->window < GN_IO_WINDOW_AUTO ? (double)o->window : NAN, 0);
	sheet_text(s, "window_kind",
		   o->window == GN_IO_WINDOW_AUTO ? "auto" :
		   o->window == GN_IO_WINDOW_NONE ? "none" :
						    "static");
	sheet_number(s, "adjacent_pct", o->adjacent_pct, 0);
	if (o->volume)
		sheet_volume(s, o);
	if (o->kills)
		sheet_kills(s, k);
	sheet_number(s, "seconds", r->run.seconds, 6);
	sheet_number(s, "requests", (double)r->run.ops, 0);
	sheet_number(s, "mops", r->mops, 6);
	sheet_number(s, "kiops", 1000 * r->mops, 3);
	sheet_number(s, "gbps", 8e-3 * r->mops * o->block_bytes, 6);
	sheet_number(s, "latency_us_mean", r->latency_ns_mean / 1000, 4);
	sheet_number(s, "p50_us", r->run.p50_ns / 1000, 4);
	sheet_number(s, "p99_us", r->run.p99_ns / 1000, 4);
	sheet_number(s, "wrs_per_io", per_io(r, sums->wrs), 4);
	sheet_number(s, "doorbells_per_io", per_io(r, sums->doorbells), 4);
	sheet_number(s, "events_per_io", per_io(r, sums->events), 4);
	sheet_number(s, "wakeups_per_io", per_io(r, sums->wakeups), 4);
	sheet_number(s, "polls_per_io", per_io(r, sums->polls), 4);
	sheet_number(s, "empty_polls_per_io", per_io(r, sums->empty_polls), 4);
	sheet_number(s, "held_back_per_io", per_io(r, sums->held_back), 4);
	sheet_number(s, "interrupts_per_io", r->interrupts, 4);
	sheet_number(s, "interrupts", r->interrupts * (double)r->run.ops / r->run.seconds, 1);
	sheet_number(s, "ios", 1000 * per_io(r, sums->wrs), 1);
	sheet_number(s, "cpu_ns_per_io", simulated ? r->cpu_ns : per_io(r, sums->cpu_ns), 1);
	sheet_number(s, "inflight_bytes_max", (double)r->inflight_max, 0);
	sheet_number(s, "inflight_mb_max", 1e-6 * (double)r->inflight_max, 6);
	sheet_number(s, "inflight_mb",
		     sums->inflight_samples ?
			     1e-6 * (double)sums->inflight_bytes / (double)sums->inflight_samples :
			     NAN,
		     6);
	sheet_number(s, "memcpy_ratio", r->run.memcpy_ratio, 3);
	sheet_number(s, "overhead_ns", r->run.overhead_ns, 1);
	sheet_number(s, "blocks", simulated ? NAN : (double)r->run.blocks, 0);
	sheet_number(s, "blocks_dropped", simulated ? NAN : (double)r->run.blocks_dropped, 0);
	sheet_number(s, "wall_seconds", r->wall_seconds, 3);
}

void bench_io_print_json(FILE *f, const struct bench_io_opts *o, const struct load_result *r,
			 const struct bench_io_kills *k)
{
	struct bench_sheet s = {0};

	sheet_make(&s, o, r, k);
	sheet_json(f, &s, o->load.cpus);
}

void bench_io_print_text(FILE *f, const struct bench_io_opts *o, const struct load_result *r,
			 const struct bench_io_kills *k)
{
	struct bench_sheet s = {0};

	sheet_make(&s, o, r, k);
	sheet_lines(f, &s);
	fflush(f);
}
