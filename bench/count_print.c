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
	return o->kind == COUNT_RPC ? o->rpc.load.batch :
	       o->kind == COUNT_KV  ? o->kv.load.batch :
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
		snprintf(to, size, "%s, %u B%s", bench_ops[o->fabric.op], o->fabric.size_bytes,
			 o->post_one ? ", one" : "");
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

static void add_what(struct bench_sheet *s, const struct count_opts *o)
{
	if (o->kind == COUNT_RPC) {
		sheet_number(s, "req", o->rpc.request_bytes, 0);
		sheet_number(s, "resp", o->rpc.result_bytes, 0);
	} else if (o->kind == COUNT_KV) {
		sheet_number(s, "keys", o->kv.keys, 0);
		sheet_number(s, "key", o->kv.key_bytes, 0);
		sheet_number(s, "value", o->kv.value_bytes, 0);
		sheet_number(s, "get", o->kv.get_percent, 3);
	} else {
		sheet_text(s, "op", bench_ops[o->fabric.op]);
		sheet_text(s, "post", o->post_one ? "one" : "send");
		sheet_number(s, "size", o->fabric.size_bytes, 0);
	}
}

void count_print_json(FILE *f, const struct count_opts *o, const struct count_result *r)
{
	struct bench_sheet s = {0};

	sheet_text(&s, o->kind == COUNT_FABRIC ? "provider" : "mode", mode_of(o));
	add_what(&s, o);
	sheet_number(&s, "batch", batch_of(o), 0);
	sheet_number(&s, "calls", (double)r->calls, 0);
	sheet_number(&s, "submit_instructions", r->submit, 2);
	sheet_number(&s, "collect_instructions", r->collect, 2);
	sheet_number(&s, "client_instructions", r->submit + r->collect, 2);
	sheet_number(&s, "bench_instructions", r->bench, 2);
	sheet_number(&s, "server_instructions", r->server, 2);
	sheet_number(&s, "collect_turns", r->collect_turns, 3);
	sheet_number(&s, "server_turns", r->server_turns, 3);
	fputc('{', f);
	sheet_members(f, &s);
	fputs("\"tool\":\"callgrind\"}\n", f);
	fflush(f);
}
