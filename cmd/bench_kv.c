/* SPDX-License-Identifier: MIT */
/* gannet bench kv: options, and what to print. The measuring itself is in bench/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/kv.h>

#include "bench_cmd.h"
#include "keys.h"
#include "kv.h"

#define AT(member) .to = offsetof(struct kv_request, member)

struct kv_request {
	struct bench_kv_opts opts;
	struct bench_output out;
	uint32_t servers;
	bool one_case; /* what is counted was chosen */
};

enum kv_servers { KV_ONE, KV_SPLIT, KV_FIXED };

static const char *const servers[] = {"one", "split", "fixed", NULL};

static const struct opt options[] = {
	{OPT_CHOICE, "mode", "M",
	 "fetch, reply, hybrid: how results of calls come; bypass: clients read values by "
	 "themselves; local: no calls, one thread",
	 AT(opts.mode), .choices = bench_kv_modes},
	{OPT_U32, "keys", "N", "how many; 1M is 1048576", "1000000; simulated 16384", AT(opts.keys),
	 RANGE(1, BENCH_KV_KEYS_MAX)},
	{OPT_U64, "memory", "N", "of all servers together", "what they need", AT(opts.memory),
	 RANGE(GN_KV_MEMORY_MIN, GN_KV_MEMORY_MAX *LOAD_THREADS_MAX)},
	{OPT_U32, "key", "N", "bytes of a key", AT(opts.key_bytes),
	 RANGE(KEYS_KEY_MIN, GN_KV_KEY_MAX)},
	{OPT_U32, "value", "N", "bytes of a value", AT(opts.value_bytes),
	 RANGE(0, GN_KV_VALUE_MAX)},
	{OPT_REAL, "get", "P", "per cent of GETs", "95", AT(opts.get_percent), RANGE(0, 100)},
	{OPT_OTHER, "dist", "D", "uniform or zipf:S, with S to 5, as in zipf:0.99", "uniform",
	 AT(opts.zipf), .take = bench_take_dist},
	{OPT_CHOICE, "servers", "S",
	 "sim: one server with a partition for each thread; split: a server for each thread, of "
	 "which a client draws one for each batch; fixed: … of which a client has one",
	 AT(servers), .choices = servers},
	{OPT_FLAG, "procs-each", NULL, "sim: every server and client is a process of its own",
	 AT(opts.procs_each)},
	{OPT_U32, "fill-pct", "P", "sim, bypass: how full the table is", "as it comes",
	 AT(opts.fill_pct), RANGE(1, 95)},
	{OPT_TABLE, .to = offsetof(struct kv_request, opts.load), .table = bench_calls_options},
	{OPT_TABLE, .to = offsetof(struct kv_request, opts.load), .table = bench_load_options},
	{OPT_TABLE, .to = offsetof(struct kv_request, out), .table = bench_output_options},
	{.type = OPT_END},
};

#define KEYS		  1000000u
#define SIM_KEYS	  16384u
#define COUNTED_KEYS	  10000u /* storing more takes long under callgrind */
#define GET_PERCENT	  95
#define NOT_GIVEN_PERCENT (-1)

/* What each thread may have, and what it needs for all keys. */
static int kv_check_memory(const struct bench_kv_opts *o)
{
	const uint64_t each = bench_kv_memory(o) / (o->split ? 1 : o->load.threads);

	if (o->memory && (each < GN_KV_MEMORY_MIN || each > GN_KV_MEMORY_MAX))
		return cmd_usage_error("--memory must be %uK to %lluG for each thread",
				       GN_KV_MEMORY_MIN >> 10, GN_KV_MEMORY_MAX >> 30);
	if (each > GN_KV_MEMORY_MAX)
		return cmd_usage_error("%u keys with values of %u bytes need %lluG for each "
				       "thread, and the most is %lluG: take fewer --keys or more "
				       "--threads, or set --memory",
				       o->keys, o->value_bytes, (unsigned long long)each >> 30,
				       GN_KV_MEMORY_MAX >> 30);
	return 0;
}

static int kv_check_opts(const struct args *args, const struct bench_kv_opts *o)
{
	const struct load_opts *l = &o->load;

	if (o->mode == BENCH_KV_LOCAL &&
	    (l->threads > 1 || l->clients > 1 || strcmp(l->provider, "shm") != 0))
		return cmd_usage_error("--mode local is one thread; leave --threads, --clients "
				       "and --provider out");
	if (!l->profile && opt_given(args, "servers procs-each fill-pct"))
		return cmd_usage_error("--servers, --procs-each and --fill-pct are for --provider "
				       "sim");
	if (o->fill_pct && o->mode != BENCH_KV_BYPASS)
		return cmd_usage_error("--fill-pct belongs to --mode bypass");
	if (o->split && o->keys < l->threads)
		return cmd_usage_error("--servers split and fixed: %u keys are fewer than %u "
				       "threads, and each has its own",
				       o->keys, l->threads);
	if (o->fixed && l->machines * l->clients % l->threads)
		return cmd_usage_error("--servers fixed: %u clients cannot be shared by %u "
				       "threads evenly",
				       l->machines * l->clients, l->threads);
	if (l->inflight > l->batch && o->split)
		return cmd_usage_error("--servers split is for one batch at a time; leave "
				       "--inflight out");
	if ((uint64_t)o->value_bytes * l->inflight > BENCH_KV_IN_FLIGHT_MAX)
		return cmd_usage_error("--value times --inflight must not exceed %u MiB",
				       BENCH_KV_IN_FLIGHT_MAX >> 20);
	return kv_check_memory(o);
}

static void kv_take_defaults(struct kv_request *r)
{
	struct bench_kv_opts *o = &r->opts;

	if (!o->keys)
		o->keys = r->out.instructions ? COUNTED_KEYS : o->load.profile ? SIM_KEYS : KEYS;
	if (o->get_percent < 0)
		o->get_percent = r->out.instructions ? 100 : GET_PERCENT;
	o->split = r->servers != KV_ONE;
	o->fixed = r->servers == KV_FIXED;
}

/* ---- instructions ---- */

static const struct {
	enum bench_kv_mode mode;
	uint32_t batch;
} usual[] = {
	{BENCH_KV_FETCH, 1},  {BENCH_KV_FETCH, 32}, {BENCH_KV_REPLY, 1},
	{BENCH_KV_REPLY, 32}, {BENCH_KV_LOCAL, 1},  {BENCH_KV_LOCAL, 32},
};

#define USUAL (sizeof(usual) / sizeof(usual[0]))

static void kv_vary(struct count_opts *opts, unsigned i, const void *request)
{
	const struct kv_request *r = request;
	struct bench_kv_opts *o = &opts->kv;

	if (!r->one_case) {
		o->mode = usual[i].mode;
		o->load.batch = usual[i].batch;
	}
	o->load.inflight = o->load.batch;
}

static int kv_count_instructions(const struct args *args)
{
	struct kv_request *r = args->opts;
	const struct count_opts common = {
		.kind = COUNT_KV, .kv = r->opts, .keep = r->out.callgrind};

	r->one_case = opt_given(args, "mode batch callgrind");
	return bench_count(&common, r->one_case ? 1 : USUAL, kv_vary, r, r->out.json);
}

static int bench_kv_main(const struct args *args)
{
	struct kv_request *r = args->opts;
	struct bench_kv_result result;
	int status = bench_check_calls(args, &r->opts.load, &r->out, r->opts.load.threads);

	kv_take_defaults(r);
	if (!status)
		status = kv_check_opts(args, &r->opts);
	if (status)
		return status;
	if (r->out.instructions)
		return kv_count_instructions(args);
	bench_begin(r->opts.load.cpus);
	status = bench_load_end("bench kv", bench_kv_run(&r->opts, bench_progress(), &result),
				&result.calls);
	if (status)
		return status;
	if (r->out.json)
		bench_kv_print_json(stdout, &r->opts, &result);
	else
		bench_kv_print_lines(stdout, &r->opts, &result);
	return cmd_flush_stdout();
}

const struct command command_bench_kv = {
	.name = "kv",
	.what = "GETs and PUTs at a key-value store",
	.about = "GETs and PUTs of clients at a store: processes, or a simulated cluster. Values "
		 "are checked.",
	.more = "gannet(1) explains each figure.",
	.run = bench_kv_main,
	OPTIONS(options, struct kv_request,
		.opts = {.key_bytes = 16,
			 .value_bytes = 32,
			 .get_percent = NOT_GIVEN_PERCENT,
			 .load = {BENCH_LOAD_DEFAULTS, BENCH_CALLS_DEFAULTS}}),
};
