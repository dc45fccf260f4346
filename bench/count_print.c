/* SPDX-License-Identifier: MIT */
/*
 * Counted instructions as a table for people, or as one JSON object per line.
 */
#include <math.h>
#include <string.h>

#include "count.h"

static const char *mode_of(const struct count_opts *o)
{
	return o->kind == COUNT_RPC ? bench_rpc_modes[o->rpc.mode] :
	       o->kind == COUNT_KV  ? bench_kv_modes[o->kv.mode] :
				      o->fabric.provider;
}

static uint32_t batch_of(const struct count_opts *o)
{
	return o->kind == COUNT_RPC ? o->rpc.batch :
	       o->kind == COUNT_KV  ? o->kv.batch :
				      o->fabric.depth;
}

static void name_of(const struct count_opts *o, char *to, size_t size)
{
	if (o->kind == COUNT_RPC)
		snprintf(to, size, "call, %u + %u B", o->rpc.request_bytes, o->rpc.result_bytes);
	else if (o->kind == COUNT_KV)
		snprintf(to, size, "%.0f %% GET, %u + %u B", o->kv.get_percent, o->kv.key_bytes,
			 o->kv.value_bytes);
	else
		snprintf(to, size, "%s, %u B%s", bench_ops[o->fabric.op],
			 o->fabric.size_bytes, o->post_one ? ", one" : "");
}

#define ROW "%-8s %-22s %6s %9s %9s %9s %9s %9s\n"

void count_print_head(FILE *f)
{
	fputs("instructions for each call, operation or request\n\n", f);
	fprintf(f, ROW, "mode", "what", "batch", "submit", "collect", "client", "bench's",
		"server");
	fflush(f);
}

void count_print_row(FILE *f, const struct count_opts *o, const struct count_result *r)
{
	char what[32], batch[16], submit[16], collect[16], client[16], bench[16], server[16] = "-";

	name_of(o, what, sizeof(what));
	snprintf(batch, sizeof(batch), "%u", batch_of(o));
	snprintf(submit, sizeof(submit), "%.1f", r->submit);
	snprintf(collect, sizeof(collect), "%.1f", r->collect);
	snprintf(client, sizeof(client), "%.1f", r->submit + r->collect);
	snprintf(bench, sizeof(bench), "%.1f", r->bench);
	if (isfinite(r->server))
		snprintf(server, sizeof(server), "%.1f", r->server);
	fprintf(f, ROW, mode_of(o), what, batch, submit, collect, client, bench, server);
	fflush(f);
}

static void print_what(FILE *f, const struct count_opts *o)
{
	const struct bench_cell rpc[] = {{"req", NULL, o->rpc.request_bytes, 0},
					 {"resp", NULL, o->rpc.result_bytes, 0}};
	const struct bench_cell kv[] = {{"keys", NULL, o->kv.keys, 0},
					{"key", NULL, o->kv.key_bytes, 0},
					{"value", NULL, o->kv.value_bytes, 0},
					{"get", NULL, o->kv.get_percent, 3}};
	const struct bench_cell fabric[] = {{"op", bench_ops[o->fabric.op], 0, 0},
					    {"post", o->post_one ? "one" : "send", 0, 0},
					    {"size", NULL, o->fabric.size_bytes, 0}};

	if (o->kind == COUNT_RPC)
		bench_json_cells(f, rpc, sizeof(rpc) / sizeof(rpc[0]));
	else if (o->kind == COUNT_KV)
		bench_json_cells(f, kv, sizeof(kv) / sizeof(kv[0]));
	else
		bench_json_cells(f, fabric, sizeof(fabric) / sizeof(fabric[0]));
}

void count_print_json(FILE *f, const struct count_opts *o, const struct count_result *r)
{
	const struct bench_cell cells[] = {
		{"batch", NULL, batch_of(o), 0},
		{"calls", NULL, (double)r->calls, 0},
		{"submit_instructions", NULL, r->submit, 2},
		{"collect_instructions", NULL, r->collect, 2},
		{"client_instructions", NULL, r->submit + r->collect, 2},
		{"bench_instructions", NULL, r->bench, 2},
		{"server_instructions", NULL, r->server, 2},
		{"collect_turns", NULL, r->collect_turns, 3},
		{"server_turns", NULL, r->server_turns, 3},
	};

	fputc('{', f);
	bench_json_string(f, o->kind == COUNT_FABRIC ? "provider" : "mode", mode_of(o));
	print_what(f, o);
	bench_json_cells(f, cells, sizeof(cells) / sizeof(cells[0]));
	fputs("\"tool\":\"callgrind\"}\n", f);
	fflush(f);
}
