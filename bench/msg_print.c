/* SPDX-License-Identifier: MIT */
/*
 * Results of message passing protocols: as one JSON object a line, or as a table. An object begins
 * with what was asked for, always in the same words, so that equal beginnings are equal points.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "msg.h"

const char *const bench_msg_topologies[BENCH_MSG_TOPOLOGIES + 1] = {
	[BENCH_MSG_M1] = "M:1",
	[BENCH_MSG_1M] = "1:M",
	[BENCH_MSG_MM] = "M:M",
};

/* ---- JSON ---- */

static void print_identity(FILE *f, const struct bench_msg_opts *o)
{
	fputc('{', f);
	bench_json_string(f, "bench", "msg");
	bench_json_string(f, "version", gn_version());
	bench_json_string(f, "provider", o->load.provider);
	if (o->load.profile)
		bench_json_string(f, "profile", o->load.profile);
	else
		fputs("\"profile\":null,", f);
	bench_json_string(f, "preset", load_presets[o->load.paper]);
	bench_json_string(f, "protocol", gn_msg_protocol_str(o->protocol));
	bench_json_string(f, "topology", bench_msg_topologies[o->topology]);
	bench_json_count(f, "nodes", true, o->nodes);
	bench_json_count(f, "threads", true, o->threads);
	bench_json_count(f, "resp_threads", o->resp_threads, o->resp_threads);
	bench_json_count(f, "pending", true, o->pending);
	bench_json_count(f, "request", true, o->request_bytes);
	bench_json_count(f, "value", true, o->value_bytes);
	if (o->load.profile)
		bench_json_number(f, "effort", o->load.effort, 6);
	else
		bench_json_number(f, "asked_seconds", o->load.seconds, 6);
	bench_json_count(f, "seed", true, o->load.seed);
}

static void print_results(FILE *f, const struct bench_msg_opts *o, const struct bench_msg_result *r)
{
	struct bench_machine machine;

	bench_machine_get(&machine);
	fprintf(f, BENCH_MSG_RESULTS "%" PRIu64 ",", r->requests);
	bench_json_number(f, "seconds", r->seconds, 6);
	fprintf(f, "\"simulated\":%s,", o->load.profile ? "true" : "false");
	bench_json_number(f, "mops", r->mops, 9);
	bench_json_number(f, "gbps", r->gbps, 9);
	bench_json_number(f, "gbps_per_node", r->gbps_per_node, 9);
	bench_json_number(f, "latency_us_mean", r->latency_us_mean, 6);
	bench_json_number(f, "p50_us", r->p50_us, 4);
	bench_json_number(f, "p99_us", r->p99_us, 4);
	bench_json_number(f, "wrs_per_request", r->wrs, 4);
	bench_json_number(f, "doorbells_per_request", r->doorbells, 4);
	bench_json_number(f, "cqes_per_request", r->cqes, 4);
	bench_json_number(f, "repeats", r->repeats, 0);
	bench_json_number(f, "lost", r->lost, 0);
	bench_json_number(f, "limit_ratio", r->limit_ratio, 4);
	bench_json_count(f, "blocks", r->blocks != 0, r->blocks);
	bench_json_count(f, "blocks_dropped", r->blocks != 0, r->blocks_dropped);
	bench_json_number(f, "wall_seconds", r->wall_seconds, 3);
	fputs("\"machine\":{", f);
	bench_json_string(f, "cpu", machine.cpu);
	bench_json_string(f, "kernel", machine.kernel);
	fprintf(f, "\"cores\":%d}}\n", machine.cores);
}

static char *text_of(const struct bench_msg_opts *o, const struct bench_msg_result *r)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	print_identity(f, o);
	if (r)
		print_results(f, o, r);
	if (!fclose(f))
		return text;
	free(text);
	return NULL;
}

char *bench_msg_identity(const struct bench_msg_opts *o)
{
	return text_of(o, NULL);
}

char *bench_msg_json(const struct bench_msg_opts *o, const struct bench_msg_result *r)
{
	return text_of(o, r);
}

/* ---- the table ---- */

#define ROW "%-11s %-4s %5s %7s %7s %7s %7s %9s %8s %9s %9s %6s %6s %6s   %s\n"

void bench_msg_print_head(FILE *f)
{
	fprintf(f, ROW, "protocol", "", "nodes", "threads", "pending", "request", "value", "Mreq/s",
		"Gbit/s", "p50 us", "p99 us", "WRs", "bells", "CQEs", "");
	fflush(f);
}

static const char *print_figure(char *to, size_t n, double value)
{
	if (!isfinite(value))
		snprintf(to, n, "-");
	else
		snprintf(to, n, "%.*f", value < 10 ? 3 : value < 100 ? 2 : 1, value);
	return to;
}

void bench_msg_print_row(FILE *f, const struct bench_msg_opts *o, const struct bench_msg_result *r)
{
	const uint32_t counts[] = {o->nodes, o->threads, o->pending, o->request_bytes,
				   o->value_bytes};
	const double figures[] = {r->mops, r->gbps,	 r->p50_us, r->p99_us,
				  r->wrs,  r->doorbells, r->cqes};
	char count[5][16], text[7][32], note[80] = "";
	int at = 0;

	for (unsigned i = 0; i < 5; i++)
		snprintf(count[i], sizeof(count[i]), "%u", counts[i]);
	for (unsigned i = 0; i < 7; i++)
		print_figure(text[i], sizeof(text[i]), figures[i]);
	if (o->load.profile)
		at = snprintf(note, sizeof(note), "simulated");
	else if (isfinite(r->limit_ratio))
		at = snprintf(note, sizeof(note), "%.2f x limit", r->limit_ratio);
	if (r->repeats > 0)
		snprintf(note + at, sizeof(note) - (size_t)at, "%s%.0f repeated, %.0f lost",
			 at ? ", " : "", r->repeats, r->lost);
	fprintf(f, ROW, gn_msg_protocol_str(o->protocol), bench_msg_topologies[o->topology],
		count[0], count[1], count[2], count[3], count[4], text[0], text[1], text[2],
		text[3], text[4], text[5], text[6], note);
	fflush(f);
}
