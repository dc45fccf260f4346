/* SPDX-License-Identifier: MIT */
/*
 * gannet bench rpc: options, and what to print. The measuring itself is in bench/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>

#include "bench_cmd.h"
#include "rpc.h"

#define BATCHES 4u /* under way, unless told otherwise */

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct bench_rpc_opts opts;
	struct bench_output out;
	uint32_t provider;
	bool one_case; /* what is counted was chosen */
};

static const struct opt options[] = {
	{OPT_CHOICE, "mode", "M",
	 "fetch: clients read results; reply: the server writes them; hybrid: whichever is better; "
	 "limit: the same bytes between two cores, without calls",
	 AT(opts.mode), .choices = bench_rpc_modes},
	{OPT_U32, "req", "N", "bytes of a request", AT(opts.request_bytes),
	 RANGE(0, BENCH_RPC_BYTES_MAX)},
	{OPT_U32, "resp", "N", "bytes of a result", AT(opts.result_bytes),
	 RANGE(0, BENCH_RPC_BYTES_MAX)},
	{OPT_U32, "batch", "B", "calls that go together", AT(opts.batch),
	 RANGE(1, BENCH_RPC_BATCH_MAX)},
	{OPT_U32, "inflight", "W", "calls that a client has under way", "4 batches",
	 AT(opts.inflight), RANGE(1, BENCH_RPC_INFLIGHT_MAX)},
	{OPT_U32, "fetch-bytes", "N", "of a result that its first read brings", "as results are",
	 AT(opts.fetch_bytes), RANGE(1, BENCH_RPC_BYTES_MAX)},
	{OPT_U32, "threads", "T", "of the server", AT(opts.threads),
	 RANGE(1, BENCH_RPC_THREADS_MAX)},
	{OPT_U32, "clients", "C", "each a process", AT(opts.clients),
	 RANGE(1, BENCH_RPC_CLIENTS_MAX)},
	{OPT_REAL, "work-us", "P", "that the handler computes for each call", AT(opts.work_us),
	 RANGE(0, BENCH_RPC_WORK_US_MAX)},
	{OPT_REAL, "seconds", "S", "not counting the limit next to it", AT(opts.seconds),
	 RANGE(0.01, BENCH_SECONDS_MAX)},
	{OPT_CHOICE, "provider", "P", "shm", "", AT(provider), .choices = bench_shm_only},
	{OPT_TABLE, .to = offsetof(struct request, out), .table = bench_output_options},
	{OPT_END},
};

static int check_opts(const struct bench_rpc_opts *o)
{
	const uint64_t bytes = (uint64_t)o->request_bytes + o->result_bytes;

	if (o->mode == BENCH_RPC_LIMIT && (o->threads > 1 || o->clients > 1))
		return cmd_usage_error("--mode limit is between two cores; leave --threads and "
				       "--clients out");
	if (o->mode == BENCH_RPC_LIMIT && o->inflight % o->batch)
		return cmd_usage_error("--mode limit moves whole batches; --inflight must be a "
				       "multiple of --batch");
	if ((o->inflight + o->batch - 1) / o->batch > BENCH_RPC_BATCHES_MAX)
		return cmd_usage_error("--inflight must not exceed %u times --batch, not %u",
				       BENCH_RPC_BATCHES_MAX, o->inflight);
	if (bytes * o->inflight > BENCH_IN_FLIGHT_MAX)
		return cmd_usage_error("--req plus --resp times --inflight must not exceed %u MiB",
				       BENCH_IN_FLIGHT_MAX >> 20);
	return 0;
}

static int check_counted(const struct args *args)
{
	const struct request *r = args->opts;

	if (r->out.callgrind && !r->out.instructions)
		return cmd_usage_error("--callgrind belongs to --instructions");
	if (!r->out.instructions)
		return 0;
	if (opt_given(args, "inflight threads clients work-us seconds"))
		return cmd_usage_error("--instructions counts one client and one server thread; "
				       "leave --inflight, --threads, --clients, --work-us and "
				       "--seconds out");
	if (r->opts.mode == BENCH_RPC_LIMIT)
		return cmd_usage_error("--mode limit has no calls whose --instructions could be "
				       "counted");
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

static void vary(struct count_opts *opts, unsigned i, const void *request)
{
	const struct request *r = request;
	struct bench_rpc_opts *o = &opts->rpc;

	if (!r->one_case) {
		o->mode = usual[i].mode;
		o->request_bytes = o->result_bytes = usual[i].bytes;
		o->batch = usual[i].batch;
	}
	o->inflight = o->batch;
}

static int count_instructions(const struct request *r)
{
	const struct count_opts common = {
		.kind = COUNT_RPC, .rpc = r->opts, .keep = r->out.callgrind};

	return bench_count(&common, r->one_case ? 1 : USUAL, vary, r, r->out.json);
}

static int bench_rpc_main(const struct args *args)
{
	struct request *r = args->opts;
	struct bench_rpc_result result;
	int status, rc;

	if (!r->opts.inflight)
		r->opts.inflight = r->opts.batch > 1 ? BATCHES * r->opts.batch : 1;
	r->one_case = opt_given(args, "mode req resp batch fetch-bytes callgrind");
	status = check_opts(&r->opts);
	if (!status)
		status = check_counted(args);
	if (status)
		return status;
	if (r->out.instructions)
		return count_instructions(r);
	bench_begin(r->opts.cpus);
	r->opts.seed = gn_random();
	rc = bench_rpc_run(&r->opts, bench_progress(), &result);
	status = bench_end(rc);
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
	.about = "Calls between a server and its clients, each a process. Results are checked.",
	.more = "One client runs next to a limit on the same cores, in blocks that take turns: "
		"with one call at a time a bare cache line, else --mode limit. p50 and p99 are of "
		"groups of 32 calls, or more when several are under way.",
	.run = bench_rpc_main,
	OPTIONS(options, struct request,
		.opts = {.request_bytes = 32,
			 .result_bytes = 32,
			 .batch = 1,
			 .threads = 1,
			 .clients = 1,
			 .seconds = 1}),
};
