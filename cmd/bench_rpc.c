/* SPDX-License-Identifier: MIT */
/*
 * gannet bench rpc: options, and what to print. The measuring itself is in bench/.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>

#include "bench_cmd.h"
#include "cmd.h"
#include "rpc.h"

#define BATCHES 4u /* under way, unless told otherwise */

static const char help[] =
	"Usage: gannet bench rpc [OPTION…]\n"
	"\n"
	"Calls between a server and its clients, each a process; an echo is called.\n"
	"\n"
	"  --mode M       fetch: clients read results; reply: the server writes them;\n"
	"                 hybrid: whichever is better; limit: the same bytes between two\n"
	"                 cores, without calls (fetch)\n"
	"  --req N        bytes of a request, 0 to 1M; K and M are understood (32)\n"
	"  --resp N       bytes of a result, likewise (32)\n"
	"  --batch B      calls that go together; 1 to 1024 (1)\n"
	"  --inflight W   calls that a client has under way; 1 to 32K (4 batches)\n"
	"  --fetch-bytes N\n"
	"                 of a result that its first read brings (as results are)\n"
	"  --threads T    of the server; 1 to 64 (1)         --clients C    1 to 64 (1)\n"
	"  --work-us P    that the handler computes for each call (0)\n"
	"  --seconds S    not counting the limit next to it (1)\n"
	"  --provider P   shm (shm)                          --json         one object a line\n"
	"  --instructions counted by callgrind instead; --callgrind F keeps its profile in F\n"
	"\n"
	"One client runs next to a limit on the same cores, in blocks that take turns: with one\n"
	"call at a time a bare cache line, else --mode limit. p50 and p99 are of groups of 32\n"
	"calls, or more when several are under way. All results are checked.";

struct request {
	struct bench_rpc_opts opts;
	bool json, instructions;
	bool one_case, timed; /* options that choose what is counted, or make sense only in time */
	const char *callgrind;
};

static int parse_mode(const char *text, enum bench_rpc_mode *out)
{
	for (int mode = 0; mode < BENCH_RPC_MODES; mode++) {
		if (!strcmp(text, bench_rpc_modes[mode])) {
			*out = (enum bench_rpc_mode)mode;
			return 0;
		}
	}
	return cmd_usage_error("--mode must be fetch, reply, hybrid or limit, not '%s'", text);
}

enum {
	MODE = 256,
	REQ,
	RESP,
	BATCH,
	INFLIGHT,
	FETCH_BYTES,
	THREADS,
	CLIENTS,
	WORK,
	SECONDS,
	PROVIDER,
	JSON,
	INSTRUCTIONS,
	CALLGRIND
};

static const struct option options[] = {
	{"mode", required_argument, NULL, MODE},
	{"req", required_argument, NULL, REQ},
	{"resp", required_argument, NULL, RESP},
	{"batch", required_argument, NULL, BATCH},
	{"inflight", required_argument, NULL, INFLIGHT},
	{"fetch-bytes", required_argument, NULL, FETCH_BYTES},
	{"threads", required_argument, NULL, THREADS},
	{"clients", required_argument, NULL, CLIENTS},
	{"work-us", required_argument, NULL, WORK},
	{"seconds", required_argument, NULL, SECONDS},
	{"provider", required_argument, NULL, PROVIDER},
	{"json", no_argument, NULL, JSON},
	{"instructions", no_argument, NULL, INSTRUCTIONS},
	{"callgrind", required_argument, NULL, CALLGRIND},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_option(int option, struct request *r)
{
	struct bench_rpc_opts *o = &r->opts;

	r->one_case |= option <= BATCH || option == FETCH_BYTES || option == CALLGRIND;
	r->timed |= option == INFLIGHT || (option >= THREADS && option <= SECONDS);
	switch (option) {
	case MODE:
		return parse_mode(optarg, &o->mode);
	case REQ:
		return cmd_count("--req", optarg, 0, BENCH_RPC_BYTES_MAX, &o->request_bytes);
	case RESP:
		return cmd_count("--resp", optarg, 0, BENCH_RPC_BYTES_MAX, &o->result_bytes);
	case BATCH:
		return cmd_count("--batch", optarg, 1, BENCH_RPC_BATCH_MAX, &o->batch);
	case INFLIGHT:
		return cmd_count("--inflight", optarg, 1, BENCH_RPC_INFLIGHT_MAX, &o->inflight);
	case FETCH_BYTES:
		return cmd_count("--fetch-bytes", optarg, 1, BENCH_RPC_BYTES_MAX, &o->fetch_bytes);
	case THREADS:
		return cmd_count("--threads", optarg, 1, BENCH_RPC_THREADS_MAX, &o->threads);
	case CLIENTS:
		return cmd_count("--clients", optarg, 1, BENCH_RPC_CLIENTS_MAX, &o->clients);
	case WORK:
		return cmd_real("--work-us", optarg, 0, BENCH_RPC_WORK_US_MAX, &o->work_us);
	case SECONDS:
		return cmd_real("--seconds", optarg, 0.01, BENCH_SECONDS_MAX, &o->seconds);
	case PROVIDER:
		return bench_check_provider(optarg);
	case INSTRUCTIONS:
		r->instructions = true;
		return 0;
	case CALLGRIND:
		r->callgrind = optarg;
		return 0;
	default:
		r->json = true;
		return 0;
	}
}

static int check(const struct bench_rpc_opts *o)
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

static int check_counted(const struct request *r)
{
	if (r->callgrind && !r->instructions)
		return cmd_usage_error("--callgrind belongs to --instructions");
	if (r->instructions && r->timed)
		return cmd_usage_error("--instructions counts one client and one server thread; "
				       "leave --inflight, --threads, --clients, --work-us and "
				       "--seconds out");
	if (r->instructions && r->opts.mode == BENCH_RPC_LIMIT)
		return cmd_usage_error("--mode limit has no calls whose --instructions could be "
				       "counted");
	return 0;
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.opts = {.request_bytes = 32,
				       .result_bytes = 32,
				       .batch = 1,
				       .threads = 1,
				       .clients = 1,
				       .seconds = 1}};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "bench rpc", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!r->opts.inflight)
		r->opts.inflight = r->opts.batch > 1 ? BATCHES * r->opts.batch : 1;
	if (!*status)
		*status = check(&r->opts);
	if (!*status)
		*status = check_counted(r);
	return *status ? -1 : 0;
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
	const struct count_opts common = {.kind = COUNT_RPC, .rpc = r->opts, .keep = r->callgrind};

	return bench_count(&common, r->one_case ? 1 : USUAL, vary, r, r->json);
}

int cmd_bench_rpc(int argc, char **argv)
{
	struct bench_rpc_result result;
	struct request r;
	int status, rc;

	if (parse(argc, argv, &r, &status))
		return status;
	if (r.instructions)
		return count_instructions(&r);
	bench_begin(r.opts.cpus);
	r.opts.seed = gn_random();
	rc = bench_rpc_run(&r.opts, bench_progress(), &result);
	status = bench_end(rc);
	if (status)
		return status;
	if (r.json) {
		bench_rpc_print_json(stdout, &r.opts, &result);
	} else {
		bench_rpc_print_head(stdout);
		bench_rpc_print_row(stdout, &r.opts, &result);
	}
	return cmd_flush_stdout();
}
