/* SPDX-License-Identifier: MIT */
/*
 * gannet bench fabric: options, the list of what to run, and what to print. The measuring itself is
 * in bench/.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "bench_cmd.h"

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
	struct bench_output out;
	bool has_op, machine;
	bool one;		    /* gn_post_one() */
	uint32_t size_bytes, depth; /* 0: the operation's own */
};

/* ---- options ---- */

#define AT(member) .to = offsetof(struct request, member)

static int take_cpus(const char *name, const char *text, void *to)
{
	int *cpus = to;
	cpu_set_t allowed;
	char more;

	if (sscanf(text, "%d,%d%c", &cpus[0], &cpus[1], &more) != 2 || cpus[0] < 0 || cpus[1] < 0 ||
	    cpus[0] >= BENCH_CPUS_MAX || cpus[1] >= BENCH_CPUS_MAX)
		return cmd_usage_error("%s must be two numbers like 0,1, not '%s'", name, text);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return 0;
	for (int i = 0; i < 2; i++)
		if (!CPU_ISSET((size_t)cpus[i], &allowed))
			return cmd_usage_error("%s: cpu %d is not there, or not ours to use", name,
					       cpus[i]);
	return 0;
}

static const struct opt options[] = {
	{OPT_CHOICE, "op", "OP",
	 "write read cas faa: chains of unsignaled requests, target idle\n"
	 "send write-imm ud-send: messages there and back\n"
	 "wake: a receiver that sleeps, 100 messages a second\n"
	 "cacheline memcpy: the limits by themselves",
	 "", AT(opts.op), .choices = bench_ops},
	{OPT_U32, "size", "N", "bytes", "32; atomics have 8", AT(size_bytes),
	 RANGE(1, BENCH_SIZE_MAX)},
	{OPT_U32, "depth", "N", "requests in a chain, messages in flight", "16; messages 1",
	 AT(depth), RANGE(1, BENCH_DEPTH_MAX)},
	{OPT_REAL, "seconds", "S", "for each, not counting its limit", AT(opts.seconds),
	 RANGE(0.01, BENCH_SECONDS_MAX)},
	{OPT_CHARS, "provider", "P", "shm, verbs or verbs:DEVICE",
	 OPT_ARRAY(struct request, opts.provider)},
	{OPT_CHARS, "addr", "HOST", "for verbs: this machine's address on the RDMA network",
	 OPT_ARRAY(struct request, opts.host)},
	{OPT_OTHER, "cpus", "A,B", "where to run", "two cores of those allowed", AT(opts.cpus),
	 .take = take_cpus},
	{OPT_FLAG, "machine", NULL, "adds cpu, cores and kernel to what --json prints",
	 AT(machine)},
	{OPT_TABLE, .to = offsetof(struct request, out), .table = bench_output_options},
	{OPT_FLAG, "one", NULL, "with --instructions: by gn_post_one() instead of gn_post_send()",
	 AT(one)},
	{.type = OPT_END},
};

static bool is_one_sided(enum bench_op op)
{
	return bench_traits[op].kind == BENCH_ONE_SIDED || bench_traits[op].kind == BENCH_ATOMIC;
}

static int check_counted(const struct args *args)
{
	const struct request *r = args->opts;

	if (r->out.callgrind && (!r->out.instructions || !r->has_op))
		return cmd_usage_error("--callgrind belongs to --instructions and one --op");
	if (r->one && (!r->out.instructions || !r->has_op || r->depth > 1))
		return cmd_usage_error("--one belongs to --instructions and one --op, of depth 1");
	if (!r->out.instructions)
		return 0;
	if (opt_given(args, "seconds cpus machine"))
		return cmd_usage_error("--instructions takes no time and no cores; leave "
				       "--seconds, --cpus and --machine out");
	if (strcmp(r->opts.provider, "shm"))
		return cmd_usage_error("--instructions counts those of shm; leave --provider out");
	if (r->has_op && !is_one_sided(r->opts.op))
		return cmd_usage_error("--instructions counts write, read, cas and faa, not '%s'",
				       bench_ops[r->opts.op]);
	return 0;
}

/* What only makes sense together. */
static int bench_fabric_check(const struct args *args)
{
	const struct request *r = args->opts;
	const struct bench_opts *opts = &r->opts;
	const int status = bench_check_provider(opts->provider, opts->host);

	if (status)
		return status;
	if (r->has_op && r->size_bytes && r->size_bytes != 8 &&
	    bench_traits[opts->op].kind == BENCH_ATOMIC)
		return cmd_usage_error("%s works on 8 bytes; leave --size out",
				       bench_ops[opts->op]);
	/* Whoever sends it sleeps afterwards, so it has to fit at once. */
	if (r->has_op && opts->op == BENCH_WAKE && r->size_bytes > BENCH_WAKE_SIZE_MAX)
		return cmd_usage_error("wake sends at most %u bytes", BENCH_WAKE_SIZE_MAX);
	if ((uint64_t)r->size_bytes * r->depth > BENCH_IN_FLIGHT_MAX)
		return cmd_usage_error("--size times --depth must not exceed %u MiB",
				       BENCH_IN_FLIGHT_MAX >> 20);
	return check_counted(args);
}

/* ---- running ---- */

#define PROGRESS_COLUMNS 60

/* Only on a terminal: a line that the result overwrites. */
static void show_progress(const struct bench_opts *opts, double done)
{
	fprintf(stderr, "\r%-10s %3.0f %%", bench_ops[opts->op], 100 * done);
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
	if (r->out.json)
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

static void choose_case(const struct request *r, size_t i, struct bench_opts *opts)
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
		.kind = COUNT_FABRIC, .fabric = r->opts, .keep = r->out.callgrind};

	return bench_count(&common, r->has_op ? 1 : COUNTED, vary, r, r->out.json);
}

static int bench_fabric_run(const struct args *args)
{
	struct request *r = args->opts;
	int status, rc = 0;

	r->has_op = opt_given(args, "op");
	if (!opt_given(args, "cpus"))
		bench_pick_cpus(r->opts.cpus);
	status = bench_fabric_check(args);
	if (status)
		return status;
	if (r->out.instructions)
		return count_instructions(r);
	if (r->opts.cpus[0] == r->opts.cpus[1])
		fprintf(stderr, "gannet: there is only one core for both processes: latencies are "
				"the scheduler's\n");
	bench_stop_on_signals();
	if (!r->out.json)
		print_title(&r->opts);
	for (size_t i = 0; i < (r->has_op ? 1 : EVERYTHING) && !rc; i++) {
		struct bench_opts opts;

		choose_case(r, i, &opts);
		rc = run_one(r, &opts);
	}
	if (rc == -EINTR || bench_stopped())
		return EXIT_INTERRUPTED;
	return cmd_flush_stdout() || rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

const struct command command_bench_fabric = {
	.name = "fabric",
	.what = "writes, reads, atomics and messages between two processes",
	.about = "Two processes on two cores; one of them measures, next to a limit. Default: "
		 "everything.",
	.more = "Times are of one operation: a round trip, or a request's share of its chain; p50 "
		"and p99 of groups of 32 round trips or about 512 requests. All data is checked "
		"at the end.",
	.run = bench_fabric_run,
	OPTIONS(options, struct request, .opts = {.provider = "shm", .seconds = 1}),
};
