/* SPDX-License-Identifier: MIT */
/* Results of the store: as one JSON object, or as lines of names and figures. */
#include <math.h>

#include "kv.h"

static void fill_in(struct bench_sheet *s, const struct bench_kv_opts *o,
		    const struct bench_kv_result *r, char dist[32])
{
	const struct load_sums *sums = &r->calls.sums;
	const double bypass_gets = (double)sums->bypass_gets;

	if (o->zipf > 0)
		snprintf(dist, 32, "zipf:%g", o->zipf);
	else
		snprintf(dist, 32, "uniform");
	if (o->mode == BENCH_KV_LOCAL)
		sheet_text(s, "provider", "none");
	else
		load_sheet_opts(s, &o->load);
	sheet_text(s, "mode", bench_kv_modes[o->mode]);
	sheet_number(s, "threads", o->load.threads, 0);
	sheet_number(s, "clients", o->load.clients, 0);
	sheet_number(s, "machines", o->load.profile ? (double)o->load.machines : NAN, 0);
	sheet_number(s, "keys", o->keys, 0);
	sheet_number(s, "key", o->key_bytes, 0);
	sheet_number(s, "value", o->value_bytes, 0);
	sheet_number(s, "get", o->get_percent, 2);
	sheet_text(s, "dist", dist);
	sheet_number(s, "batch", o->load.batch, 0);
	sheet_number(s, "inflight", o->load.inflight, 0);
	load_sheet_result(s, &r->calls);
	sheet_number(s, "gbps", 8e-3 * r->calls.mops * o->value_bytes, 9);
	sheet_number(s, "cacheline_ns", r->cacheline_ns, 1);
	sheet_number(s, "local_p50_ns", r->local_p50_ns, 1);
	sheet_number(s, "gets", (double)sums->gets, 0);
	sheet_number(s, "puts", (double)sums->puts, 0);
	sheet_number(s, "hits", (double)sums->hits, 0);
	sheet_number(s, "reads_per_get",
		     bypass_gets > 0 ? (double)sums->bypass_reads / bypass_gets : NAN, 6);
	sheet_number(s, "items", o->load.profile ? NAN : (double)r->items, 0);
	sheet_number(s, "bytes_per_item", r->bytes_per_item, 1);
}

void bench_kv_print_json(FILE *f, const struct bench_kv_opts *o, const struct bench_kv_result *r)
{
	struct bench_sheet s = {0};
	char dist[32];

	fill_in(&s, o, r, dist);
	sheet_json(f, &s, o->load.cpus);
}

void bench_kv_print_lines(FILE *f, const struct bench_kv_opts *o, const struct bench_kv_result *r)
{
	struct bench_sheet s = {0};
	char dist[32];

	fill_in(&s, o, r, dist);
	sheet_lines(f, &s);
}
