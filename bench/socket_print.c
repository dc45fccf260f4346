/* SPDX-License-Identifier: MIT */
/*
 * Results of stores behind sockets as one JSON object per line, or as a table for people.
 */
#include <math.h>

#include "socket.h"

static void print_load(FILE *f, const struct bench_socket_opts *o)
{
	char dist[32] = "uniform";

	if (o->zipf > 0)
		snprintf(dist, sizeof(dist), "zipf:%g", o->zipf);
	bench_json_string(f, "protocol", bench_socket_protocols[o->protocol]);
	bench_json_string(f, "connect", o->connect);
	bench_json_count(f, "connections", true, o->connections);
	bench_json_count(f, "pipeline", true, o->pipeline);
	bench_json_count(f, "multiget", true, o->multiget);
	fprintf(f, "\"noreply\":%s,", o->noreply ? "true" : "false");
	bench_json_count(f, "keys", true, o->keys);
	bench_json_count(f, "key", true, o->key_bytes);
	bench_json_count(f, "value", true, o->value_bytes);
	bench_json_count(f, "get", true, o->get_percent);
	bench_json_string(f, "dist", dist);
}

void bench_socket_print_json(FILE *f, const struct bench_socket_opts *o,
			     const struct bench_socket_result *r)
{
	const bool ran = r->seconds > 0;
	const double ops = (double)r->ops;

	fputc('{', f);
	print_load(f, o);
	bench_json_number(f, "seconds", r->seconds, 6);
	bench_json_count(f, "ops", ran, r->ops);
	bench_json_number(f, "mops", ran ? ops / r->seconds / 1e6 : NAN, 6);
	bench_json_number(f, "p50_us", r->p50_us, 3);
	bench_json_number(f, "p99_us", r->p99_us, 3);
	bench_json_count(f, "gets", ran, r->gets);
	bench_json_count(f, "puts", ran, r->puts);
	bench_json_count(f, "hits", ran, r->hits);
	bench_json_number(f, "server_cores", r->server_cpu_s / r->seconds, 4);
	bench_json_number(f, "client_cores", r->client_cpu_s / r->seconds, 4);
	bench_json_number(f, "mops_per_cpu_second", ops / r->server_cpu_s / 1e6, 6);
	bench_json_number(f, "fill_mops", o->keys / r->fill_seconds / 1e6, 6);
	bench_json_number(f, "rss_before", r->rss_before, 0);
	bench_json_number(f, "rss_filled", r->rss_filled, 0);
	bench_json_number(f, "bytes_per_pair", (r->rss_filled - r->rss_before) / o->keys, 1);
	fprintf(f, "\"cpu\":%d}\n", o->cpu);
	fflush(f);
}

#define ROW "%-9s %11s %8s %8s %9s %9s %9s %7s %7s %9s   %s\n"

void bench_socket_print_head(FILE *f)
{
	fprintf(f, ROW, "protocol", "connections", "pipeline", "multiget", "Mops/s", "p50 us",
		"p99 us", "hits %", "server", "Mops/cpu s", "a pair takes");
	fflush(f);
}

static const char *text_of(char *to, size_t n, double value, int digits)
{
	snprintf(to, n, isfinite(value) ? "%.*f" : "-", digits, value);
	return to;
}

void bench_socket_print_row(FILE *f, const struct bench_socket_opts *o,
			    const struct bench_socket_result *r)
{
	const double ops = (double)r->ops, pair = (r->rss_filled - r->rss_before) / o->keys;
	char connections[16], pipeline[16], multiget[16], mops[16], p50[16], p99[16], hits[16];
	char server[16], per_cpu[16], bytes[32] = "";

	snprintf(connections, sizeof(connections), "%u", o->connections);
	snprintf(pipeline, sizeof(pipeline), "%u", o->pipeline);
	snprintf(multiget, sizeof(multiget), "%u", o->multiget);
	if (isfinite(pair))
		snprintf(bytes, sizeof(bytes), "%.0f bytes", pair);
	fprintf(f, ROW, bench_socket_protocols[o->protocol], connections, pipeline, multiget,
		text_of(mops, sizeof(mops), ops / r->seconds / 1e6, 4),
		text_of(p50, sizeof(p50), r->p50_us, 1), text_of(p99, sizeof(p99), r->p99_us, 1),
		text_of(hits, sizeof(hits), 100 * (double)r->hits / (double)r->gets, 2),
		text_of(server, sizeof(server), r->server_cpu_s / r->seconds, 2),
		text_of(per_cpu, sizeof(per_cpu), ops / r->server_cpu_s / 1e6, 4), bytes);
	fflush(f);
}
