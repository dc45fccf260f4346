/* SPDX-License-Identifier: MIT */
/* Results of datagram calls, as one JSON object or as a row of a table. */
#include <math.h>

#include "dgram.h"

#define OFF_MAX 96u

static const char *off_text(unsigned off, char to[OFF_MAX])
{
	size_t at = 0;

	to[0] = '\0';
	for (unsigned i = 0; i < BENCH_DGRAM_STEPS; i++)
		if (off & 1u << i)
			at += (size_t)snprintf(to + at, OFF_MAX - at, "%s%s", at ? "," : "",
					       bench_dgram_steps[i]);
	return to;
}

static void sheet_shape(struct bench_sheet *s, const struct bench_dgram_opts *o, const char *off)
{
	sheet_text(s, "bench", "dgram");
	sheet_text(s, "version", gn_version());
	load_sheet_opts(s, &o->load);
	sheet_count(s, "nodes", o->nodes);
	sheet_count(s, "threads", o->load.threads);
	sheet_count(s, "endpoints", o->endpoints);
	sheet_count(s, "workers", o->workers);
	sheet_count(s, "batch", o->batch);
	sheet_count(s, "req", o->request_bytes);
	sheet_count(s, "resp", o->result_bytes);
	sheet_count(s, "table", o->table_bytes);
	sheet_text(s, "off", off);
	sheet_text(s, "mapped", o->mapped ? "yes" : "no");
	sheet_text(s, "one_way", o->one_way ? "yes" : "no");
	if (o->load.profile)
		sheet_text(s, "faults", o->load.faults ? o->load.faults : "");
}

void bench_dgram_print_json(FILE *f, const struct bench_dgram_opts *o, const char *step,
			    const struct bench_dgram_result *r)
{
	const struct load_result *l = &r->load;
	const bool simulated = o->load.profile != NULL;
	char off[OFF_MAX];
	struct bench_sheet s = {0};

	sheet_shape(&s, o, off_text(o->off, off));
	if (step)
		sheet_text(&s, "step", step);
	sheet_number(&s, "seconds", l->run.seconds, 6);
	sheet_number(&s, "calls", (double)l->run.ops, 0);
	sheet_number(&s, "mops", l->mops, 9);
	sheet_number(&s, "mops_per_core", r->mops_per_core, 9);
	sheet_number(&s, "mrps", r->mrps, 9);
	sheet_number(&s, "mrps_per_core", r->mops_per_core, 9);
	sheet_number(&s, "mverbs_per_core", r->mverbs_per_core, 9);
	sheet_number(&s, "raw_mops_per_core", r->raw_mops_per_core, 9);
	sheet_number(&s, "raw_ratio", r->raw_ratio, 4);
	sheet_number(&s, "datagrams_per_call", r->datagrams, 6);
	sheet_number(&s, "messages_per_call", r->messages, 6);
	sheet_number(&s, "doorbells_per_call", r->doorbells, 6);
	sheet_number(&s, "recv_doorbells_per_call", r->recv_doorbells, 6);
	sheet_number(&s, "repeats", r->repeats, 0);
	sheet_number(&s, "lost", r->lost, 0);
	sheet_number(&s, "twice", r->twice, 0);
	sheet_number(&s, "latency_us_mean", l->latency_ns_mean / 1000, 6);
	sheet_number(&s, "p50_us", l->run.p50_ns / 1000, 4);
	sheet_number(&s, "p99_us", l->run.p99_ns / 1000, 4);
	sheet_number(&s, "p999_us", l->run.p999_ns / 1000, 4);
	sheet_number(&s, "switch_ns", r->switch_ns, 2);
	sheet_number(&s, "worker_bytes", r->worker_bytes, 0);
	sheet_number(&s, "misses_per_wr", l->misses, 6);
	sheet_number(&s, "blocks", simulated ? NAN : (double)l->run.blocks, 0);
	sheet_number(&s, "blocks_dropped", simulated ? NAN : (double)l->run.blocks_dropped, 0);
	sheet_number(&s, "events", simulated ? (double)l->events : NAN, 0);
	sheet_number(&s, "wall_seconds", l->wall_seconds, 3);
	sheet_json(f, &s, o->load.cpus);
}

/* ---- table ---- */

#define STEP_COLUMNS 22
#define ROW	     "%7s %8s %10s %8s %10s %10s %9s %9s   %s\n"

void bench_dgram_print_head(FILE *f, bool steps)
{
	if (steps)
		fprintf(f, "%-*s", STEP_COLUMNS, "step");
	fprintf(f, ROW, "nodes", "workers", "M/s a core", "x raw", "datagrams", "doorbells",
		"p50 us", "p99 us", "");
	fflush(f);
}

static const char *ratio_text(char to[16], double ratio)
{
	if (isfinite(ratio))
		snprintf(to, 16, "%.2f", ratio);
	else
		snprintf(to, 16, "-");
	return to;
}

static void notes_text(char *to, size_t n, const struct bench_dgram_opts *o,
		       const struct bench_dgram_result *r)
{
	int at = snprintf(to, n, "%s%.80s", o->load.profile ? "simulated, " : "",
			  o->load.profile ? o->load.profile : o->load.provider);

	if (o->endpoints > 1)
		at += snprintf(to + at, n - (size_t)at, "; %u endpoints a thread", o->endpoints);
	at += snprintf(to + at, n - (size_t)at, "; %.0f lost, %.0f twice, %.0f repeats", r->lost,
		       r->twice, r->repeats);
	if (r->crowded)
		at += snprintf(to + at, n - (size_t)at, "; no raw: more threads than cores");
	if (isfinite(r->switch_ns))
		snprintf(to + at, n - (size_t)at, "; switch %.1f ns", r->switch_ns);
}

void bench_dgram_print_row(FILE *f, const struct bench_dgram_opts *o, const char *step,
			   const struct bench_dgram_result *r)
{
	char nodes[24], workers[16], mops[16], raw[16], datagrams[16], doorbells[16], p50[16];
	char p99[16], notes[256];

	if (step)
		fprintf(f, "%-*s", STEP_COLUMNS, step);
	snprintf(nodes, sizeof(nodes), "%u x %u", o->nodes, o->load.threads);
	snprintf(workers, sizeof(workers), "%u", o->workers);
	snprintf(mops, sizeof(mops), "%.3f", r->mops_per_core);
	snprintf(datagrams, sizeof(datagrams), "%.3f", r->datagrams);
	snprintf(doorbells, sizeof(doorbells), "%.3f", r->doorbells);
	snprintf(p50, sizeof(p50), "%.3f", r->load.run.p50_ns / 1000);
	snprintf(p99, sizeof(p99), "%.3f", r->load.run.p99_ns / 1000);
	notes_text(notes, sizeof(notes), o, r);
	fprintf(f, ROW, nodes, workers, mops, ratio_text(raw, r->raw_ratio), datagrams, doorbells,
		p50, p99, notes);
	fflush(f);
}
