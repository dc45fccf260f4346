/* SPDX-License-Identifier: MIT */
/*
 * gannet bench kv: options, and what to print. The measuring itself is in bench/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>
#include <gannet/kv.h>

#include "bench_cmd.h"
#include "kv.h"

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct bench_kv_opts opts;
	struct bench_output out;
	uint32_t provider;
	bool one_case; /* what is counted was chosen */
};

static const struct opt options[] = {
	{OPT_CHOICE, "mode", "M",
	 "fetch, reply, hybrid: how results of calls come; bypass: clients read values by "
	 "themselves; local: no calls, one thread",
	 AT(opts.mode), .choices = bench_kv_modes},
	{OPT_U32, "threads", "T", "of the server", AT(opts.threads),
	 RANGE(1, BENCH_RPC_THREADS_MAX)},
	{OPT_U32, "clients", "C", "each a process", AT(opts.clients),
	 RANGE(1, BENCH_RPC_CLIENTS_MAX)},
	{OPT_U32, "keys", "N", "how many; 1M is 1048576", "1000000", AT(opts.keys),
	 RANGE(1, BENCH_KV_KEYS_MAX)},
	{OPT_U64, "memory", "N", "of the store", "what they need", AT(opts.memory),
	 RANGE(GN_KV_MEMORY_MIN, GN_KV_MEMORY_MAX *BENCH_RPC_THREADS_MAX)},
	{OPT_U32, "key", "N", "bytes of a key", AT(opts.key_bytes),
	 RANGE(BENCH_KV_KEY_MIN, GN_KV_KEY_MAX)},
	{OPT_U32, "value", "N", "bytes of a value", AT(opts.value_bytes),
	 RANGE(0, GN_KV_VALUE_MAX)},
	{OPT_REAL, "get", "P", "per cent of GETs", "95", AT(opts.get_percent), RANGE(0, 100)},
	{OPT_OTHER, "dist", "D", "uniform or zipf:S, with S to 5, as in zipf:0.99", "uniform",
	 AT(opts.zipf), .take = bench_take_dist},
	{OPT_U32, "batch", "B", "operations that go together", AT(opts.batch),
	 RANGE(1, GN_KV_GATHER_MAX)},
	{OPT_U32, "inflight", "W", "operations that a client has under way",
	 "4 batches for each thread", AT(opts.inflight), RANGE(1, BENCH_RPC_INFLIGHT_MAX)},
	{OPT_REAL, "seconds", "S", "not counting what is next to it", AT(opts.seconds),
	 RANGE(0.01, BENCH_SECONDS_MAX)},
	{OPT_CHOICE, "provider", "P", "shm", "", AT(provider), .choices = bench_shm_only},
	{OPT_TABLE, .to = offsetof(struct request, out), .table = bench_output_options},
	{OPT_END},
};

static int check_opts(const struct bench_kv_opts *o)
{
	if (o->mode == BENCH_KV_LOCAL && (o->threads > 1 || o->clients > 1))
		return cmd_usage_error("--mode local is one thread; leave --threads and --clients "
				       "out");
	if (o->inflight < o->batch)
		return cmd_usage_error("--inflight %u is less than a batch of %u", o->inflight,
				       o->batch);
	if ((uint64_t)o->value_bytes * o->inflight > BENCH_KV_IN_FLIGHT_MAX)
		return cmd_usage_error("--value times --inflight must not exceed %u MiB",
				       BENCH_KV_IN_FLIGHT_MAX >> 20);
	if (o->memory && o->memory < (uint64_t)GN_KV_MEMORY_MIN * o->threads)
		return cmd_usage_error("--memory must be %uK or more for each thread",
				       GN_KV_MEMORY_MIN >> 10);
	return 0;
}

static int check_counted(const struct args *args)
{
	const struct request *r = args->opts;

	if (r->out.callgrind && !r->out.instructions)
		return cmd_usage_error("--callgrind belongs to --instructions");
	if (r->out.instructions && opt_given(args, "threads clients inflight seconds"))
		return cmd_usage_error("--instructions counts one client and one server thread; "
				       "leave --threads, --clients, --inflight and --seconds out");
	return 0;
}

#define KEYS		  1000000u
#define COUNTED_KEYS	  10000u /* storing more takes long under callgrind */
#define GET_PERCENT	  95
#define NOT_GIVEN_PERCENT (-1)

static uint32_t default_inflight(const struct bench_kv_opts *o)
{
	const uint32_t several = BENCH_KV_BATCHES * o->batch * o->threads;

	if (o->batch == 1)
		return 1;
	return several < BENCH_RPC_INFLIGHT_MAX ? several : BENCH_RPC_INFLIGHT_MAX;
}

static void take_defaults(struct request *r)
{
	if (!r->opts.inflight)
		r->opts.inflight = default_inflight(&r->opts);
	if (!r->opts.keys)
		r->opts.keys = r->out.instructions ? COUNTED_KEYS : KEYS;
	if (r->opts.get_percent < 0)
		r->opts.get_percent = r->out.instructions ? 100 : GET_PERCENT;
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

static void vary(struct count_opts *opts, unsigned i, const void *request)
{
	const struct request *r = request;
	struct bench_kv_opts *o = &opts->kv;

	if (!r->one_case) {
		o->mode = usual[i].mode;
		o->batch = usual[i].batch;
	}
	o->inflight = o->batch;
}

static int count_instructions(const struct request *r)
{
	const struct count_opts common = {
		.kind = COUNT_KV, .kv = r->opts, .keep = r->out.callgrind};

	return bench_count(&common, r->one_case ? 1 : USUAL, vary, r, r->out.json);
}

static int bench_kv_main(const struct args *args)
{
	struct request *r = args->opts;
	struct bench_kv_result result;
	int status, rc;

	take_defaults(r);
	r->one_case = opt_given(args, "mode batch callgrind");
	status = check_opts(&r->opts);
	if (!status)
		status = check_counted(args);
	if (status)
		return status;
	if (r->out.instructions)
		return count_instructions(r);
	bench_begin(r->opts.cpus);
	r->opts.seed = gn_random();
	rc = bench_kv_run(&r->opts, bench_progress(), &result);
	status = bench_end(rc);
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
	.about = "GETs and PUTs of clients at a store, each a process; values are checked.",
	.more = "gannet(1) explains each figure.",
	.run = bench_kv_main,
	OPTIONS(options, struct request,
		.opts = {.threads = 1,
			 .clients = 1,
			 .key_bytes = 16,
			 .value_bytes = 32,
			 .get_percent = NOT_GIVEN_PERCENT,
			 .batch = 1,
			 .seconds = 1}),
};
