/* SPDX-License-Identifier: MIT */
/*
 * gannet bench kv: options, and what to print. The measuring itself is in bench/.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>
#include <gannet/kv.h>

#include "bench_cmd.h"
#include "cmd.h"
#include "kv.h"

static const char help[] =
	"Usage: gannet bench kv [OPTION…]\n"
	"\n"
	"GETs and PUTs of clients at a store, each a process; all keys are stored first.\n"
	"\n"
	"  --mode M       fetch, reply, hybrid: how results of calls come; bypass: clients\n"
	"                 read values by themselves; local: no calls, one thread (fetch)\n"
	"  --threads T    of the server; 1 to 64 (1)         --clients C    1 to 64 (1)\n"
	"  --keys N       how many; 1 to 1G (1M is 1048576)  --memory N     (what they need)\n"
	"  --key N        bytes of a key; 4 to 250 (16)      --value N      to 1M (32)\n"
	"  --get P        per cent of GETs (95)\n"
	"  --dist D       uniform or zipf:S, with S to 5, as in zipf:0.99 (uniform)\n"
	"  --batch B      operations that go together; 1 to 1024 (1)\n"
	"  --inflight W   operations that a client has under way (4 batches for each thread)\n"
	"  --seconds S    not counting what is next to it (1)\n"
	"  --provider P   shm (shm)                          --json         one object\n"
	"  --instructions counted by callgrind instead; --callgrind F keeps its profile in F\n"
	"\n"
	"One client runs next to the same store in its own thread (local), in blocks that take\n"
	"turns; and one operation at a time also next to a bare cache line: overhead_ns is what\n"
	"it takes beyond both. Which keys are asked for is drawn before, and repeats after four\n"
	"million. Every value found is checked. p50 and on are of groups of 32 operations, or\n"
	"of more when several are under way. gannet(1) explains each figure.";

struct request {
	struct bench_kv_opts opts;
	bool json, instructions;
	bool one_case, timed; /* options that choose what is counted, or make sense only in time */
	const char *callgrind;
};

enum {
	MODE = 256,
	THREADS,
	CLIENTS,
	KEYS,
	MEMORY,
	KEY,
	VALUE,
	GET,
	DIST,
	BATCH,
	INFLIGHT,
	SECONDS,
	PROVIDER,
	JSON,
	INSTRUCTIONS,
	CALLGRIND
};

static const struct option options[] = {
	{"mode", required_argument, NULL, MODE},
	{"threads", required_argument, NULL, THREADS},
	{"clients", required_argument, NULL, CLIENTS},
	{"keys", required_argument, NULL, KEYS},
	{"memory", required_argument, NULL, MEMORY},
	{"key", required_argument, NULL, KEY},
	{"value", required_argument, NULL, VALUE},
	{"get", required_argument, NULL, GET},
	{"dist", required_argument, NULL, DIST},
	{"batch", required_argument, NULL, BATCH},
	{"inflight", required_argument, NULL, INFLIGHT},
	{"seconds", required_argument, NULL, SECONDS},
	{"provider", required_argument, NULL, PROVIDER},
	{"json", no_argument, NULL, JSON},
	{"instructions", no_argument, NULL, INSTRUCTIONS},
	{"callgrind", required_argument, NULL, CALLGRIND},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_mode(const char *text, enum bench_kv_mode *out)
{
	for (int mode = 0; mode < BENCH_KV_MODES; mode++) {
		if (!strcmp(text, bench_kv_modes[mode])) {
			*out = (enum bench_kv_mode)mode;
			return 0;
		}
	}
	return cmd_usage_error("--mode must be fetch, reply, hybrid, bypass or local, not '%s'",
			       text);
}

static int parse_option(int option, struct request *r)
{
	struct bench_kv_opts *o = &r->opts;

	r->one_case |= option == MODE || option == BATCH || option == CALLGRIND;
	r->timed |= option == THREADS || option == CLIENTS || option == INFLIGHT ||
		    option == SECONDS;
	switch (option) {
	case MODE:
		return parse_mode(optarg, &o->mode);
	case THREADS:
		return cmd_count("--threads", optarg, 1, BENCH_RPC_THREADS_MAX, &o->threads);
	case CLIENTS:
		return cmd_count("--clients", optarg, 1, BENCH_RPC_CLIENTS_MAX, &o->clients);
	case KEYS:
		return cmd_count("--keys", optarg, 1, BENCH_KV_KEYS_MAX, &o->keys);
	case MEMORY:
		return cmd_number("--memory", optarg, GN_KV_MEMORY_MIN,
				  GN_KV_MEMORY_MAX * BENCH_RPC_THREADS_MAX, &o->memory);
	case KEY:
		return cmd_count("--key", optarg, BENCH_KV_KEY_MIN, GN_KV_KEY_MAX, &o->key_bytes);
	case VALUE:
		return cmd_count("--value", optarg, 0, GN_KV_VALUE_MAX, &o->value_bytes);
	case GET:
		return cmd_real("--get", optarg, 0, 100, &o->get_percent);
	case DIST:
		return bench_parse_dist(optarg, &o->zipf);
	case BATCH:
		return cmd_count("--batch", optarg, 1, GN_KV_GATHER_MAX, &o->batch);
	case INFLIGHT:
		return cmd_count("--inflight", optarg, 1, BENCH_RPC_INFLIGHT_MAX, &o->inflight);
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

static int check(const struct bench_kv_opts *o)
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

static int check_counted(const struct request *r)
{
	if (r->callgrind && !r->instructions)
		return cmd_usage_error("--callgrind belongs to --instructions");
	if (r->instructions && r->timed)
		return cmd_usage_error("--instructions counts one client and one server thread; "
				       "leave --threads, --clients, --inflight and --seconds out");
	return 0;
}

#define KEYS		  1000000u
#define COUNTED_KEYS	  10000u /* storing more takes long under callgrind */
#define GET_PERCENT	  95
#define NOT_GIVEN_PERCENT (-1)

static void take_defaults(struct request *r)
{
	if (!r->opts.keys)
		r->opts.keys = r->instructions ? COUNTED_KEYS : KEYS;
	if (r->opts.get_percent < 0)
		r->opts.get_percent = r->instructions ? 100 : GET_PERCENT;
}

static uint32_t default_inflight(const struct bench_kv_opts *o)
{
	const uint32_t several = BENCH_KV_BATCHES * o->batch * o->threads;

	if (o->batch == 1)
		return 1;
	return several < BENCH_RPC_INFLIGHT_MAX ? several : BENCH_RPC_INFLIGHT_MAX;
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct request *r, int *status)
{
	struct bench_kv_opts *o = &r->opts;
	int option;

	*r = (struct request){.opts = {.threads = 1,
				       .clients = 1,
				       .key_bytes = 16,
				       .value_bytes = 32,
				       .get_percent = NOT_GIVEN_PERCENT,
				       .batch = 1,
				       .seconds = 1}};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "bench kv", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!o->inflight)
		o->inflight = default_inflight(o);
	take_defaults(r);
	if (!*status)
		*status = check(o);
	if (!*status)
		*status = check_counted(r);
	return *status ? -1 : 0;
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
	const struct count_opts common = {.kind = COUNT_KV, .kv = r->opts, .keep = r->callgrind};

	return bench_count(&common, r->one_case ? 1 : USUAL, vary, r, r->json);
}

int cmd_bench_kv(int argc, char **argv)
{
	struct bench_kv_result result;
	struct request r;
	int status, rc;

	if (parse(argc, argv, &r, &status))
		return status;
	if (r.instructions)
		return count_instructions(&r);
	bench_begin(r.opts.cpus);
	r.opts.seed = gn_random();
	rc = bench_kv_run(&r.opts, bench_progress(), &result);
	status = bench_end(rc);
	if (status)
		return status;
	if (r.json)
		bench_kv_print_json(stdout, &r.opts, &result);
	else
		bench_kv_print_lines(stdout, &r.opts, &result);
	return cmd_flush_stdout();
}
