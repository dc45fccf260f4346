/* SPDX-License-Identifier: MIT */
/* gannet bench rpc: options, and what to print. The measuring itself is in bench/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cmd.h"
#include "rpc.h"

#define AT(member) .to = offsetof(struct rpc_request, member)

struct rpc_request {
	struct bench_rpc_opts opts;
	struct bench_output out;
	uint32_t route;
	bool one_case; /* what is counted was chosen */
};

static const char *const routes[] = {"fixed", "hash", NULL};

static const struct opt options[] = {
	{OPT_CHOICE, "mode", "M",
	 "fetch: clients read results; reply: the server writes them; hybrid: whichever is better; "
	 "limit: the same bytes between two cores, without calls",
	 AT(opts.mode), .choices = bench_rpc_modes},
	{OPT_U32, "req", "N", "bytes of a request", AT(opts.request_bytes),
	 RANGE(0, BENCH_RPC_BYTES_MAX)},
	{OPT_U32, "resp", "N", "bytes of a result", AT(opts.result_bytes),
	 RANGE(0, BENCH_RPC_BYTES_MAX)},
	{OPT_REAL, "work-us", "P", "that the handler computes for each call", AT(opts.work_us),
	 RANGE(0, BENCH_RPC_WORK_US_MAX)},
	{OPT_CHOICE, "route", "R",
	 "fixed: a client calls one server thread; hash: any, drawn for each call", AT(route),
	 .choices = routes},
	{OPT_TABLE, .to = offsetof(struct rpc_request, opts.load), .table = bench_calls_options},
	{OPT_TABLE, .to = offsetof(struct rpc_request, opts.load), .table = bench_load_options},
	{OPT_TABLE, .to = offsetof(struct rpc_request, out), .table = bench_output_options},
	{.type = OPT_END},
};

static int rpc_check_opts(const struct bench_rpc_opts *o)
{
	const struct load_opts *l = &o->load;
	const uint64_t bytes = (uint64_t)o->request_bytes + o->result_bytes;

	if (o->mode == BENCH_RPC_LIMIT &&
	    (l->threads > 1 || l->clients > 1 || l->batch_auto || strcmp(l->provider, "shm") != 0))
		return cmd_usage_error("--mode limit is between two cores; leave --threads, "
				       "--clients, --provider and --batch auto out");
	if (o->mode == BENCH_RPC_LIMIT && l->inflight % l->batch)
		return cmd_usage_error("--mode limit moves whole batches; --inflight must be a "
				       "multiple of --batch");
	if (o->hashed && l->inflight > l->batch)
		return cmd_usage_error("--route hash is for one batch at a time; leave --inflight "
				       "out");
	if ((l->inflight + l->batch - 1) / l->batch > BENCH_RPC_BATCHES_MAX)
		return cmd_usage_error("--inflight must not exceed %u times --batch, not %u",
				       BENCH_RPC_BATCHES_MAX, l->inflight);
	if (bytes * l->inflight > BENCH_IN_FLIGHT_MAX)
		return cmd_usage_error("--req plus --resp times --inflight must not exceed %u MiB",
				       BENCH_IN_FLIGHT_MAX >> 20);
	return 0;
}

/* ---- instructions ---- */

static const struct {
	enum bench_rpc_mode mode;
	uint32_t bytes, batch;
} usual[] = {
	{BENCH_RPC_FETCH, 0, 1}, {BENCH_RPC_FETCH, 32, 1},  {BENCH_RPC_FETCH, 32, 32},
	{BENCH_RPC_REPLY, 0, 1}, {BENCH_RPC_REPLY, 32, 32},
};

#define USUAL (sizeof(usual) / sizeof(usual[0]))

static void rpc_vary(struct count_opts *opts, unsigned i, const void *request)
{
	const struct rpc_request *r = request;
	struct bench_rpc_opts *o = &opts->rpc;

	if (!r->one_case) {
		o->mode = usual[i].mode;
		o->request_bytes = o->result_bytes = usual[i].bytes;
		o->load.batch = usual[i].batch;
	}
	o->load.inflight = o->load.batch;
}

static int rpc_count_instructions(const struct args *args)
{
	struct rpc_request *r = args->opts;
	const struct count_opts common = {
		.kind = COUNT_RPC, .rpc = r->opts, .keep = r->out.callgrind};

	if (opt_given(args, "work-us") || r->opts.mode == BENCH_RPC_LIMIT)
		return cmd_usage_error("--instructions counts calls; leave --work-us and --mode "
				       "limit out");
	r->one_case = opt_given(args, "mode req resp batch fetch-bytes callgrind");
	return bench_count(&common, r->one_case ? 1 : USUAL, rpc_vary, r, r->out.json);
}

static int bench_rpc_main(const struct args *args)
{
	struct rpc_request *r = args->opts;
	struct load_result result;
	int status = bench_check_calls(args, &r->opts.load, &r->out, 1);

	r->opts.hashed = r->route;
	if (!status)
		status = rpc_check_opts(&r->opts);
	if (status)
		return status;
	if (r->out.instructions)
		return rpc_count_instructions(args);
	bench_begin(r->opts.load.cpus);
	status = bench_load_end("bench rpc", bench_rpc_run(&r->opts, bench_progress(), &result),
				&result);
	if (status)
		return status;
	if (r->out.json) {
		bench_rpc_print_json(stdout, &r->opts, &result);
	} else {
		bench_rpc_print_head(stdout);
		bench_rpc_print_row(stdout, &r->opts, &result);
	}
	return cmd_flush_stdout();
}

const struct command command_bench_rpc = {
	.name = "rpc",
	.what = "calls between a server and its clients",
	.about = "Calls between a server and its clients: processes, or a simulated cluster. "
		 "Results are checked.",
	.more = "One client over shm runs next to a limit on the same cores, in blocks that take "
		"turns: with one call at a time a bare cache line, else --mode limit. p50 and p99 "
		"are of groups of 32 calls, or more when several are under way; simulated, of "
		"single calls.",
	.run = bench_rpc_main,
	OPTIONS(options, struct rpc_request,
		.opts = {.request_bytes = 32,
			 .result_bytes = 32,
			 .load = {BENCH_LOAD_DEFAULTS, BENCH_CALLS_DEFAULTS}}),
};
