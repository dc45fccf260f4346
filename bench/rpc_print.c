/* SPDX-License-Identifier: MIT */
/*
 * Results of calls as one JSON object per line, or as a table for people.
 */
#include <math.h>
#include <string.h>

#include "rpc.h"

unsigned bench_rpc_cells(const struct bench_rpc_result *r, struct bench_cell *out)
{
	const double none = r->has_counters ? 0 : NAN; /* NAN and a number is NAN */
	const struct bench_cell cells[] = {
		{"seconds", NULL, r->run.seconds, 6},
		{"calls", NULL, (double)r->run.ops, 0},
		{"mops", NULL, r->mops, 6},
		{"p50_us", NULL, r->run.p50_ns / 1000, 4},
		{"p99_us", NULL, r->run.p99_ns / 1000, 4},
		{"cacheline_ratio", NULL, r->run.cacheline_ratio, 3},
		{"overhead_ns", NULL, r->run.overhead_ns, 1},
		{"limit_ratio", NULL, r->limit_ratio, 3},
		{"server_wrs_per_call", NULL, r->server_wrs, 4},
		{"client_wrs_per_call", NULL, r->client_wrs, 4},
		{"round_trips_per_call", NULL, r->round_trips, 4},
		{"doorbells_per_call", NULL, r->doorbells, 4},
		{"failed_fetches", NULL, none + (double)r->failed_fetches, 0},
		{"second_reads", NULL, none + (double)r->second_reads, 0},
		{"switches", NULL, none + (double)r->switches, 0},
		{"batch_fill", NULL, r->batch_fill, 3},
		{"blocks", NULL, r->run.blocks, 0},
		{"blocks_dropped", NULL, r->run.blocks_dropped, 0},
	};
	const unsigned n = sizeof(cells) / sizeof(cells[0]);

	_Static_assert(sizeof(cells) / sizeof(cells[0]) <= BENCH_CELLS_MAX, "there is room");
	memcpy(out, cells, sizeof(cells));
	return n;
}

void bench_rpc_print_json(FILE *f, const struct bench_rpc_opts *o, const struct bench_rpc_result *r)
{
	const struct bench_cell what[] = {
		{"provider", "shm", 0, 0},	    {"mode", bench_rpc_modes[o->mode], 0, 0},
		{"req", NULL, o->request_bytes, 0}, {"resp", NULL, o->result_bytes, 0},
		{"batch", NULL, o->batch, 0},	    {"inflight", NULL, o->inflight, 0},
		{"threads", NULL, o->threads, 0},   {"clients", NULL, o->clients, 0},
		{"work_us", NULL, o->work_us, 3},
	};
	struct bench_cell figures[BENCH_CELLS_MAX];
	const unsigned n = bench_rpc_cells(r, figures);

	fputc('{', f);
	bench_json_cells(f, what, sizeof(what) / sizeof(what[0]));
	bench_json_cells(f, figures, n);
	fprintf(f, "\"cpus\":[%d,%d]}\n", o->cpus[0], o->cpus[1]);
	fflush(f);
}

#define ROW "%-6s %8s %8s %6s %9s %10s %9s %9s   %s\n"

void bench_rpc_print_head(FILE *f)
{
	fprintf(f, ROW, "mode", "request", "result", "batch", "inflight", "Mcalls/s", "p50 us",
		"p99 us", "next to what two cores can do");
	fflush(f);
}

void bench_rpc_print_row(FILE *f, const struct bench_rpc_opts *o, const struct bench_rpc_result *r)
{
	char request[16], result[16], batch[16], inflight[16], mops[16], p50[16], p99[16];
	char limit[64] = "";

	snprintf(request, sizeof(request), "%u B", o->request_bytes);
	snprintf(result, sizeof(result), "%u B", o->result_bytes);
	snprintf(batch, sizeof(batch), "%u", o->batch);
	snprintf(inflight, sizeof(inflight), "%u", o->inflight);
	snprintf(mops, sizeof(mops), "%.3f", r->mops);
	snprintf(p50, sizeof(p50), "%.3f", r->run.p50_ns / 1000);
	snprintf(p99, sizeof(p99), "%.3f", r->run.p99_ns / 1000);
	if (isfinite(r->run.cacheline_ratio))
		snprintf(limit, sizeof(limit), "%.2f x cacheline, %+.0f ns", r->run.cacheline_ratio,
			 r->run.overhead_ns);
	else if (isfinite(r->limit_ratio))
		snprintf(limit, sizeof(limit), "%.2f x limit", r->limit_ratio);
	fprintf(f, ROW, bench_rpc_modes[o->mode], request, result, batch, inflight, mops, p50, p99,
		limit);
	fflush(f);
}
