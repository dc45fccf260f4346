/* SPDX-License-Identifier: MIT */
/*
 * Results of calls as one JSON object per line, or as a table for people.
 */
#include <math.h>

#include "rpc.h"

void bench_rpc_print_json(FILE *f, const struct bench_rpc_opts *o, const struct load_result *r)
{
	struct bench_sheet s = {0};

	load_sheet_opts(&s, &o->load);
	sheet_text(&s, "mode", bench_rpc_modes[o->mode]);
	sheet_number(&s, "req", o->request_bytes, 0);
	sheet_number(&s, "resp", o->result_bytes, 0);
	sheet_number(&s, "batch", o->load.batch, 0);
	sheet_number(&s, "inflight", o->load.inflight, 0);
	sheet_number(&s, "threads", o->load.threads, 0);
	sheet_number(&s, "clients", o->load.clients, 0);
	sheet_number(&s, "machines", o->load.profile ? (double)o->load.machines : NAN, 0);
	sheet_number(&s, "work_us", o->work_us, 3);
	load_sheet_result(&s, r);
	sheet_number(&s, "gbps", 8e-3 * r->mops * o->result_bytes, 9);
	sheet_json(f, &s, o->load.cpus);
}

#define ROW "%-6s %8s %8s %6s %9s %10s %9s %9s   %s\n"

void bench_rpc_print_head(FILE *f)
{
	fprintf(f, ROW, "mode", "request", "result", "batch", "inflight", "Mcalls/s", "p50 us",
		"p99 us", "next to its limit");
	fflush(f);
}

void bench_rpc_print_row(FILE *f, const struct bench_rpc_opts *o, const struct load_result *r)
{
	char request[16], result[16], batch[16], inflight[16], mops[16], p50[16], p99[16];
	char limit[64] = "";

	snprintf(request, sizeof(request), "%u B", o->request_bytes);
	snprintf(result, sizeof(result), "%u B", o->result_bytes);
	snprintf(batch, sizeof(batch), "%u", o->load.batch);
	snprintf(inflight, sizeof(inflight), "%u", o->load.inflight);
	snprintf(mops, sizeof(mops), "%.3f", r->mops);
	snprintf(p50, sizeof(p50), "%.3f", r->run.p50_ns / 1000);
	snprintf(p99, sizeof(p99), "%.3f", r->run.p99_ns / 1000);
	if (isfinite(r->run.cacheline_ratio))
		snprintf(limit, sizeof(limit), "%.2f x cacheline, %+.0f ns", r->run.cacheline_ratio,
			 r->run.overhead_ns);
	else if (isfinite(r->limit_ratio))
		snprintf(limit, sizeof(limit), "%.2f x limit", r->limit_ratio);
	else if (o->load.profile)
		snprintf(limit, sizeof(limit), "simulated, %s", o->load.profile);
	fprintf(f, ROW, bench_rpc_modes[o->mode], request, result, batch, inflight, mops, p50, p99,
		limit);
	fflush(f);
}
