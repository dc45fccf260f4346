/* SPDX-License-Identifier: MIT */
/*
 * gannet bench fabric: options, the list of what to run, and what to print. The measuring itself is
 * in bench/.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "bench_cmd.h"
#include "cmd.h"

static const char help[] =
	"Usage: gannet bench fabric [OPTION…]\n"
	"\n"
	"Two processes on two cores; one of them measures, next to a limit. Default: everything.\n"
	"\n"
	"  --op OP        write read cas faa      chains of unsignaled requests, target idle\n"
	"                 send write-imm ud-send  messages there and back\n"
	"                 wake                    a receiver that sleeps, 100 messages a second\n"
	"                 cacheline memcpy        the limits by themselves\n"
	"  --size N       bytes, 1 to 64M; K and M are understood (32; atomics have 8)\n"
	"  --depth N      requests in a chain, messages in flight; 1 to 1024 (16; messages 1)\n"
	"  --seconds S    for each, not counting its limit (1)\n"
	"  --provider P   shm, verbs or verbs:DEVICE (shm)\n"
	"  --addr HOST    for verbs: this machine's address on the RDMA network\n"
	"  --cpus A,B     where to run (two cores of those allowed)\n"
	"  --json         one object a line; --machine adds cpu, cores and kernel to it\n"
	"  --instructions counted by callgrind instead; --callgrind F keeps its profile in F\n"
	"  --one          with it: by gn_post_one() instead of gn_post_send()\n"
	"\n"
	"Times are of one operation: a round trip, or a request's share of its chain; p50 and p99\n"
	"of groups of 32 round trips or about 512 requests. Requests walk through 64 KiB at the\n"
	"target, or four buffers if that is more, and twice that at the source. Messages of up to\n"
	"64 bytes go inline. All data is checked at the end.";

/* What `gannet bench fabric` runs. */
static const struct {
	enum bench_op op;
	uint32_t size_bytes, depth;
} everything[] = {
	{BENCH_CACHELINE, 64, 1},  {BENCH_SEND, 32, 1},	     {BENCH_WRITE_IMM, 32, 1},
	{BENCH_UD_SEND, 32, 1},	   {BENCH_SEND, 32, 16},     {BENCH_WRITE, 32, 16},
	{BENCH_READ, 32, 16},	   {BENCH_CAS, 8, 16},	     {BENCH_FAA, 8, 16},
	{BENCH_WRITE, 1 << 20, 1}, {BENCH_READ, 1 << 20, 1}, {BENCH_WAKE, 32, 1},
};

#define EVERYTHING (sizeof(everything) / sizeof(everything[0]))

struct request {
	struct bench_opts opts;
	bool has_op, json, machine, instructions;
	bool one;   /* gn_post_one() */
	bool timed; /* options that make sense only in time */
	const char *callgrind;
	uint32_t size_bytes, depth; /* 0: the operation's own */
};

/* ---- options ---- */

static int parse_op(const char *text, enum bench_op *out)
{
	for (int op = 0; op < BENCH_OPS; op++) {
		if (!strcmp(text, bench_traits[op].name)) {
			*out = (enum bench_op)op;
			return 0;
		}
	}
	return cmd_usage_error("there is no operation '%s'; gannet bench fabric --help lists them",
			       text);
}

static int parse_count(const char *option, const char *text, uint32_t max, uint32_t *out)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'M') {
		n = n > max ? n : n << (*end == 'K' ? 10 : 20);
		end++;
	}
	if (*text < '0' || *text > '9' || *end || errno || n < 1 || n > max)
		return cmd_usage_error("%s must be a number from 1 to %u, not '%s'", option, max,
				       text);
	*out = (uint32_t)n;
	return 0;
}

static int parse_seconds(const char *text, double *out)
{
	char *end;
	const double s = strtod(text, &end);

	if (end == text || *end || !(s >= 0.01 && s <= BENCH_SECONDS_MAX))
		return cmd_usage_error("--seconds must be a number from 0.01 to %.0f, not '%s'",
				       BENCH_SECONDS_MAX, text);
	*out = s;
	return 0;
}

static int parse_cpus(const char *text, int cpus[2])
{
	cpu_set_t allowed;
	char more;

	if (sscanf(text, "%d,%d%c", &cpus[0], &cpus[1], &more) != 2 || cpus[0] < 0 || cpus[1] < 0 ||
	    cpus[0] >= BENCH_CPUS_MAX || cpus[1] >= BENCH_CPUS_MAX)
		return cmd_usage_error("--cpus must be two numbers like 0,1, not '%s'", text);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return 0;
	for (int i = 0; i < 2; i++)
		if (!CPU_ISSET((size_t)cpus[i], &allowed))
			return cmd_usage_error("--cpus: cpu %d is not there, or not ours to use",
					       cpus[i]);
	return 0;
}

static int parse_text(const char *option, const char *text, char *to, size_t size)
{
	if (strlen(text) >= size)
		return cmd_usage_error("%s is too long", option);
	memcpy(to, text, strlen(text) + 1);
	return 0;
}

enum {
	OP = 256,
	SIZE,
	DEPTH,
	SECONDS,
	PROVIDER,
	ADDR,
	CPUS,
	JSON,
	MACHINE,
	INSTRUCTIONS,
	CALLGRIND,
	ONE
};

static const struct option options[] = {
	{"op", required_argument, NULL, OP},
	{"size", required_argument, NULL, SIZE},
	{"depth", required_argument, NULL, DEPTH},
	{"seconds", required_argument, NULL, SECONDS},
	{"provider", required_argument, NULL, PROVIDER},
	{"addr", required_argument, NULL, ADDR},
	{"cpus", required_argument, NULL, CPUS},
	{"json", no_argument, NULL, JSON},
	{"machine", no_argument, NULL, MACHINE},
	{"instructions", no_argument, NULL, INSTRUCTIONS},
	{"callgrind", required_argument, NULL, CALLGRIND},
	{"one", no_argument, NULL, ONE},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_option(int option, struct request *r)
{
	struct bench_opts *opts = &r->opts;

	r->timed |= option == SECONDS || option == CPUS || option == MACHINE;
	switch (option) {
	case OP:
		r->has_op = true;
		return parse_op(optarg, &opts->op);
	case SIZE:
		return parse_count("--size", optarg, BENCH_SIZE_MAX, &r->size_bytes);
	case DEPTH:
		return parse_count("--depth", optarg, BENCH_DEPTH_MAX, &r->depth);
	case SECONDS:
		return parse_seconds(optarg, &opts->seconds);
	case PROVIDER:
		return parse_text("--provider", optarg, opts->provider, sizeof(opts->provider));
	case ADDR:
		return parse_text("--addr", optarg, opts->host, sizeof(opts->host));
	case CPUS:
		return parse_cpus(optarg, opts->cpus);
	case JSON:
		r->json = true;
		return 0;
	case INSTRUCTIONS:
		r->instructions = true;
		return 0;
	case CALLGRIND:
		r->callgrind = optarg;
		return 0;
	case ONE:
		r->one = true;
		return 0;
	default:
		r->machine = true;
		return 0;
	}
}

static bool is_one_sided(enum bench_op op)
{
	return bench_traits[op].kind == BENCH_ONE_SIDED || bench_traits[op].kind == BENCH_ATOMIC;
}

static int check_counted(const struct request *r)
{
	if (r->callgrind && (!r->instructions || !r->has_op))
		return cmd_usage_error("--callgrind belongs to --instructions and one --op");
	if (r->one && (!r->instructions || !r->has_op || r->depth > 1))
		return cmd_usage_error("--one belongs to --instructions and one --op, of depth 1");
	if (r->instructions && r->timed)
		return cmd_usage_error("--instructions takes no time and no cores; leave "
				       "--seconds, --cpus and --machine out");
	if (r->instructions && strcmp(r->opts.provider, "shm"))
		return cmd_usage_error("--instructions counts those of shm; leave --provider out");
	if (r->instructions && r->has_op && !is_one_sided(r->opts.op))
		return cmd_usage_error("--instructions counts write, read, cas and faa, not '%s'",
				       bench_traits[r->opts.op].name);
	return 0;
}

/* What only makes sense together. */
static int check(const struct request *r)
{
	const struct bench_opts *opts = &r->opts;
	const bool shm = !strcmp(opts->provider, "shm");

	if (!shm && strcmp(opts->provider, "verbs") && strncmp(opts->provider, "verbs:", 6))
		return cmd_usage_error("--provider must be shm, verbs or verbs:DEVICE, not '%s'",
				       opts->provider);
	if (!shm && !opts->host[0])
		return cmd_usage_error("verbs needs --addr HOST, this machine's address on the "
				       "RDMA network");
	if (shm && opts->host[0])
		return cmd_usage_error("--addr is for verbs; shm needs none");
	if (r->has_op && r->size_bytes && r->size_bytes != 8 &&
	    bench_traits[opts->op].kind == BENCH_ATOMIC)
		return cmd_usage_error("%s works on 8 bytes; leave --size out",
				       bench_traits[opts->op].name);
	/* Whoever sends it sleeps afterwards, so it has to fit at once. */
	if (r->has_op && opts->op == BENCH_WAKE && r->size_bytes > BENCH_WAKE_SIZE_MAX)
		return cmd_usage_error("wake sends at most %u bytes", BENCH_WAKE_SIZE_MAX);
	if ((uint64_t)r->size_bytes * r->depth > BENCH_IN_FLIGHT_MAX)
		return cmd_usage_error("--size times --depth must not exceed %u MiB",
				       BENCH_IN_FLIGHT_MAX >> 20);
	return check_counted(r);
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.opts = {.provider = "shm", .seconds = 1}};
	bench_pick_cpus(r->opts.cpus);
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "bench fabric", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = check(r);
	return *status ? -1 : 0;
}

/* ---- running ---- */

#define PROGRESS_COLUMNS 60

/* Only on a terminal: a line that the result overwrites. */
static void show_progress(const struct bench_opts *opts, double done)
{
	fprintf(stderr, "\r%-10s %3.0f %%", bench_traits[opts->op].name, 100 * done);
}

static void erase_progress(void)
{
	fprintf(stderr, "\r%*s\r", PROGRESS_COLUMNS, "");
}

static int run_one(const struct request *r, struct bench_opts *opts)
{
	const bool terminal = isatty(STDERR_FILENO);
	struct bench_machine machine;
	struct bench_result result;
	int rc;

	opts->seed = gn_random();
	if (terminal)
		show_progress(opts, 0);
	rc = bench_run(opts, terminal ? show_progress : NULL, &result);
	if (terminal)
		erase_progress();
	if (rc)
		return rc;
	if (r->machine)
		bench_machine_get(&machine);
	if (r->json)
		bench_print_json(stdout, opts, &result, r->machine ? &machine : NULL);
	else
		bench_print_row(stdout, opts, &result);
	return ferror(stdout) ? -EPIPE : 0;
}

static void print_title(const struct bench_opts *opts)
{
	struct bench_machine machine;

	bench_machine_get(&machine);
	printf("%s, cpus %d and %d of %d, %s, Linux %s\n\n", opts->provider, opts->cpus[0],
	       opts->cpus[1], machine.cores, machine.cpu, machine.kernel);
	bench_print_head(stdout);
}

static void choose(const struct request *r, size_t i, struct bench_opts *opts)
{
	const struct bench_trait *trait;

	*opts = r->opts;
	if (!r->has_op)
		opts->op = everything[i].op;
	trait = &bench_traits[opts->op];
	opts->size_bytes = r->has_op ? trait->size_bytes : everything[i].size_bytes;
	opts->depth = r->has_op ? trait->depth : everything[i].depth;
	if (r->size_bytes && opts->op != BENCH_CACHELINE && trait->kind != BENCH_ATOMIC)
		opts->size_bytes = r->size_bytes;
	if (r->depth && trait->kind != BENCH_LIMIT && trait->kind != BENCH_SLEEPER)
		opts->depth = r->depth;
}

/* ---- instructions ---- */

static const struct {
	enum bench_op op;
	uint32_t size_bytes, depth;
	bool one;
} counted[] = {
	{BENCH_WRITE, 32, 1, true},   {BENCH_WRITE, 40, 1, true},  {BENCH_READ, 32, 1, true},
	{BENCH_READ, 64, 1, true},    {BENCH_WRITE, 40, 1, false}, {BENCH_READ, 64, 1, false},
	{BENCH_WRITE, 32, 16, false}, {BENCH_READ, 32, 16, false}, {BENCH_CAS, 8, 1, true},
	{BENCH_CAS, 8, 1, false},
};

#define COUNTED (sizeof(counted) / sizeof(counted[0]))

static void vary(struct count_opts *opts, unsigned i, const void *request)
{
	const struct request *r = request;
	struct bench_opts *o = &opts->fabric;

	if (!r->has_op)
		o->op = counted[i].op;
	o->size_bytes = r->has_op ? bench_traits[o->op].size_bytes : counted[i].size_bytes;
	o->depth = r->has_op ? 1 : counted[i].depth;
	opts->post_one = r->has_op ? r->one : counted[i].one;
	if (r->size_bytes && bench_traits[o->op].kind != BENCH_ATOMIC)
		o->size_bytes = r->size_bytes;
	if (r->depth)
		o->depth = r->depth;
}

static int count_instructions(const struct request *r)
{
	const struct count_opts common = {
		.kind = COUNT_FABRIC, .fabric = r->opts, .keep = r->callgrind};

	return bench_count(&common, r->has_op ? 1 : COUNTED, vary, r, r->json);
}

int cmd_bench_fabric(int argc, char **argv)
{
	struct request r;
	int status, rc = 0;

	if (parse(argc, argv, &r, &status))
		return status;
	if (r.instructions)
		return count_instructions(&r);
	if (r.opts.cpus[0] == r.opts.cpus[1])
		fprintf(stderr, "gannet: there is only one core for both processes: latencies are "
				"the scheduler's\n");
	bench_stop_on_signals();
	if (!r.json)
		print_title(&r.opts);
	for (size_t i = 0; i < (r.has_op ? 1 : EVERYTHING) && !rc; i++) {
		struct bench_opts opts;

		choose(&r, i, &opts);
		rc = run_one(&r, &opts);
	}
	if (rc == -EINTR || bench_stopped())
		return EXIT_INTERRUPTED;
	return cmd_flush_stdout() || rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
