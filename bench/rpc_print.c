/* SPDX-License-Identifier: MIT */
/*
 * Results of calls as one JSON object per line, or as a table for people.
 */
#include <math.h>

#include "rpc.h"

void bench_rpc_print_json(FILE *f, const struct bench_rpc_opts *o, const struct bench_rpc_result *r)
{
	fputc('{', f);
	bench_json_string(f, "provider", "shm");
	bench_json_string(f, "mode", bench_rpc_modes[o->mode]);
	bench_json_count(f, "req", true, o->request_bytes);
	bench_json_count(f, "resp", true, o->result_bytes);
	bench_json_count(f, "batch", true, o->batch);
	bench_json_count(f, "inflight", true, o->inflight);
	bench_json_count(f, "threads", true, o->threads);
	bench_json_count(f, "clients", true, o->clients);
	bench_json_number(f, "work_us", o->work_us, 3);
	bench_json_number(f, "seconds", r->run.seconds, 6);
	bench_json_count(f, "calls", true, r->run.ops);
	bench_json_number(f, "mops", r->mops, 6);
	bench_json_number(f, "p50_us", r->run.p50_ns / 1000, 4);
	bench_json_number(f, "p99_us", r->run.p99_ns / 1000, 4);
	bench_json_number(f, "cacheline_ratio", r->run.cacheline_ratio, 3);
	bench_json_number(f, "overhead_ns", r->run.overhead_ns, 1);
	bench_json_number(f, "limit_ratio", r->limit_ratio, 3);
	bench_json_number(f, "server_wrs_per_call", r->server_wrs, 4);
	bench_json_number(f, "client_wrs_per_call", r->client_wrs, 4);
	bench_json_number(f, "round_trips_per_call", r->round_trips, 4);
	bench_json_number(f, "doorbells_per_call", r->doorbells, 4);
	bench_json_count(f, "failed_fetches", r->has_counters, r->failed_fetches);
	bench_json_count(f, "second_reads", r->has_counters, r->second_reads);
	bench_json_count(f, "switches", r->has_counters, r->switches);
	bench_json_number(f, "batch_fill", r->batch_fill, 3);
	bench_json_count(f, "blocks", true, r->run.blocks);
	bench_json_count(f, "blocks_dropped", true, r->run.blocks_dropped);
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
