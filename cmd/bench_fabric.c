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
#include <gannet/sim.h>

#include "bench_cmd.h"
#include "fabric.h"

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
	struct bench_fabric_opts cluster;
	uint32_t inlined;
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

#define CLUSTER_AT(member) .to = offsetof(struct bench_fabric_opts, member)
#define CLUSTER_OPTIONS                                                                \
	"topology nodes machines clients threads qps window window-qp window-machine " \
	"signal-every shared-by requests lead region procs-each inline"

static const char *const inline_choices[] = {"auto", "yes", "no", NULL};

static const struct opt cluster_options[] = {
	{OPT_TEXT, "profile", "P", "sim: of the network cards, a name or a file with a '/'",
	 BENCH_PROFILE, CLUSTER_AT(load.profile)},
	{OPT_REAL, "effort", "E", "sim: how long to measure", CLUSTER_AT(load.effort),
	 RANGE(0.001, 1000)},
	{OPT_U64, "seed", "N", "sim: of everything left to chance", CLUSTER_AT(load.seed)},
	{OPT_CHOICE, "topology", "T",
	 "a cluster. in: clients request of a server; sim: out: it requests of them; M:1: many "
	 "nodes of one; 1:M: one of many; M:M: all of all",
	 "two processes", CLUSTER_AT(topology), .choices = bench_fabric_topologies},
	{OPT_U32, "machines", "N", "in, out: with clients", CLUSTER_AT(load.machines),
	 RANGE(1, LOAD_MACHINES_MAX)},
	{OPT_U32, "clients", "N", "in, out: threads of each machine", CLUSTER_AT(load.clients),
	 RANGE(1, BENCH_FABRIC_THREADS_MAX)},
	{OPT_U32, "nodes", "N", "M:1, 1:M: the many; M:M: all", "", CLUSTER_AT(nodes),
	 RANGE(1, LOAD_MACHINES_MAX)},
	{OPT_U32, "threads", "N", "in, out: of the server; else of a node",
	 CLUSTER_AT(load.threads), RANGE(1, BENCH_FABRIC_THREADS_MAX)},
	{OPT_U32, "qps", "N", "of a thread to each process; M:M: to all", "1; M:M: 1 each",
	 CLUSTER_AT(qps), RANGE(1, BENCH_FABRIC_QPS_MAX)},
	{OPT_U32, "window", "N", "requests of a thread under way, on any of its qps", "--depth",
	 CLUSTER_AT(window), RANGE(1, BENCH_FABRIC_WINDOW_MAX)},
	{OPT_U32, "window-qp", "N", "… of a qp", "", CLUSTER_AT(window_qp),
	 RANGE(1, BENCH_FABRIC_WINDOW_MAX)},
	{OPT_U32, "window-machine", "N", "… of all threads of a machine", "",
	 CLUSTER_AT(window_machine), RANGE(1, BENCH_FABRIC_WINDOW_MAX)},
	{OPT_U32, "signal-every", "N", "no window; one of N requests is signaled", "",
	 CLUSTER_AT(signal_every), RANGE(2, BENCH_FABRIC_CHAIN_MAX)},
	{OPT_U32, "shared-by", "N", "threads that share qps and a cq", CLUSTER_AT(shared_by),
	 RANGE(1, BENCH_FABRIC_THREADS_MAX)},
	{OPT_U32, "requests", "N", "of an operation, one after the other", CLUSTER_AT(requests),
	 RANGE(1, 1024)},
	{OPT_U32, "lead", "N", "bytes before those that are moved", "buffers begin at cache lines",
	 CLUSTER_AT(lead_bytes), RANGE(1, BENCH_FABRIC_SIZE_MAX)},
	{OPT_U64, "region", "N", "bytes that atomics hit at random", "256K",
	 CLUSTER_AT(region_bytes), RANGE(8, 1u << 30)},
	{OPT_FLAG, "procs-each", NULL, "every thread is a process of its own",
	 CLUSTER_AT(procs_each)},
	{.type = OPT_END},
};

static const struct opt options[] = {
	{OPT_CHOICE, "op", "OP",
	 "write read cas faa: chains of unsignaled requests, target idle\n"
	 "send write-imm ud-send: messages there and back\n"
	 "wake: a receiver that sleeps, 100 messages a second\n"
	 "cacheline memcpy: the limits by themselves",
	 "", AT(opts.op), .choices = bench_ops},
	{OPT_U32, "size", "N", "bytes", "32; atomics have 8", AT(size_bytes),
	 RANGE(1, BENCH_SIZE_MAX)},
	{OPT_U32, "depth", "N", "requests in a chain, messages in flight", "16 or 1", AT(depth),
	 RANGE(1, BENCH_DEPTH_MAX)},
	{OPT_REAL, "seconds", "S", "for each, not counting its limit", AT(opts.seconds),
	 RANGE(0.01, BENCH_SECONDS_MAX)},
	{OPT_CHARS, "provider", "P", "shm, verbs, verbs:DEVICE, or sim",
	 OPT_ARRAY(struct request, opts.provider)},
	{OPT_CHARS, "addr", "HOST", "for verbs: this machine's address on the RDMA network",
	 OPT_ARRAY(struct request, opts.host)},
	{OPT_OTHER, "cpus", "A,B", "where to run", "two cores of those allowed", AT(opts.cpus),
	 .take = take_cpus},
	{OPT_FLAG, "machine", NULL, "adds cpu, cores and kernel to what --json prints",
	 AT(machine)},
	{OPT_TABLE, .to = offsetof(struct request, out), .table = bench_output_options},
	{OPT_TABLE, .to = offsetof(struct request, cluster), .table = cluster_options},
	{OPT_CHOICE, "inline", "I", "the payload goes with the request", "up to 92 bytes do",
	 AT(inlined), .choices = inline_choices},
	{OPT_FLAG, "one", NULL, "with --instructions: by gn_post_one() instead of gn_post_send()",
	 AT(one)},
	{.type = OPT_END},
};

static bool is_one_sided(enum bench_op op)
{
	return bench_traits[op].kind == BENCH_ONE_SIDED || bench_traits[op].kind == BENCH_ATOMIC;
}

static bool is_simulated(enum bench_op op)
{
	return is_one_sided(op) || bench_traits[op].kind == BENCH_MESSAGE;
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
static int check_pair(const struct args *args)
{
	const struct request *r = args->opts;
	const struct bench_opts *opts = &r->opts;

	if (!opts->profile && bench_check_provider(opts->provider, opts->host))
		return EXIT_USAGE;
	if (opts->profile && r->has_op && !is_simulated(opts->op))
		return cmd_usage_error("%s is of processes, not of --provider sim",
				       bench_ops[opts->op]);
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

/* ---- a simulated cluster ---- */

#define REGION_BYTES (256u << 10)
#define SIM_SECONDS  0.005 /* of virtual time, at effort 1 */
#define SIM_CHAINS   32	   /* … or as long as so many take at 1 GB/s */

static int take_cluster(struct request *r, const struct args *args)
{
	struct bench_fabric_opts *o = &r->cluster;
	const bool star = o->topology == FABRIC_IN || o->topology == FABRIC_OUT;
	const bool can_inline = r->opts.op == BENCH_WRITE || r->opts.op == BENCH_UD_SEND;

	if (star ? opt_given(args, "nodes") : opt_given(args, "machines clients"))
		return cmd_usage_error("--machines and --clients are for --topology in and out, "
				       "--nodes for the others");
	if (!star && !o->nodes)
		return cmd_usage_error("--topology %s needs --nodes",
				       bench_fabric_topologies[o->topology]);
	memcpy(o->load.provider, r->opts.provider, sizeof(o->load.provider));
	memcpy(o->load.host, r->opts.host, sizeof(o->load.host));
	o->load.seconds = r->opts.seconds;
	o->op = r->opts.op;
	o->size_bytes = r->size_bytes ? r->size_bytes : bench_traits[o->op].size_bytes;
	o->chain = r->depth ? r->depth : 1;
	o->inlined = r->inlined ? r->inlined == 1 :
				  can_inline && o->size_bytes <= BENCH_FABRIC_INLINE;
	if (!o->qps)
		o->qps = o->topology == FABRIC_MM && o->nodes > 1 ? o->nodes - 1 : 1;
	if (!opt_given(args, "window window-qp window-machine signal-every"))
		o->window = o->chain;
	if (!o->region_bytes && bench_traits[o->op].kind == BENCH_ATOMIC)
		o->region_bytes = REGION_BYTES;
	return 0;
}

/* A server and its clients. */
static int check_processes(struct request *r, const struct args *args)
{
	struct bench_fabric_opts *o = &r->cluster;

	if (bench_check_provider(r->opts.provider, r->opts.host))
		return EXIT_USAGE;
	if (o->topology != FABRIC_IN || o->load.threads > 1 || o->shared_by > 1 ||
	    o->load.clients > LOAD_CLIENTS_MAX ||
	    opt_given(args, "window-machine cpus machine instructions callgrind one"))
		return cmd_usage_error("processes have --topology in and --clients up to %u; leave "
				       "--threads, --shared-by, --window-machine, --cpus, "
				       "--machine and --instructions out",
				       LOAD_CLIENTS_MAX);
	o->procs_each = true;
	o->load.inflight = o->signal_every ? 1 : o->window_qp ? o->window_qp * o->qps : o->window;
	return 0;
}

static int check_cluster(struct request *r, const struct args *args)
{
	char error[LOAD_ERROR_MAX];
	int status;

	if (!r->has_op)
		return cmd_usage_error("--topology needs --op");
	if (r->depth > BENCH_FABRIC_CHAIN_MAX)
		return cmd_usage_error("a cluster has --depth up to %u", BENCH_FABRIC_CHAIN_MAX);
	status = take_cluster(r, args);
	if (!status && !r->opts.profile)
		status = check_processes(r, args);
	if (status)
		return status;
	return bench_fabric_check(&r->cluster, error) ? cmd_usage_error("%s", error) : 0;
}

static int run_cluster(struct request *r)
{
	struct bench_fabric_result result;
	int status;

	if (r->opts.profile)
		bench_stop_on_signals();
	else
		bench_begin(r->cluster.load.cpus);
	status = bench_load_end("bench fabric",
				bench_fabric_run(&r->cluster, bench_progress(), &result),
				&result.load);
	if (status)
		return status;
	if (r->out.json)
		bench_fabric_print_json(stdout, &r->cluster, &result);
	else
		bench_fabric_print_row(stdout, &r->cluster, &result);
	return cmd_flush_stdout();
}

static int check_simulated(struct request *r, const struct args *args)
{
	const bool sim = !strcmp(r->opts.provider, "sim");

	if (!sim && opt_given(args, "profile effort seed machines nodes"))
		return cmd_usage_error(
			"--profile, --effort, --seed, --machines and --nodes are for "
			"--provider sim");
	if (!opt_given(args, "topology") && opt_given(args, CLUSTER_OPTIONS))
		return cmd_usage_error("options of a cluster need --topology");
	if (!sim)
		return 0;
	if (opt_given(args, "addr seconds cpus machine instructions callgrind one"))
		return cmd_usage_error("--provider sim takes --effort; leave --addr, --seconds, "
				       "--cpus, --machine and --instructions out");
	if (r->size_bytes > BENCH_FABRIC_SIZE_MAX)
		return cmd_usage_error("--provider sim has --size up to %u MiB",
				       BENCH_FABRIC_SIZE_MAX >> 20);
	if (!r->cluster.load.profile)
		r->cluster.load.profile = BENCH_PROFILE;
	r->opts.profile = r->cluster.load.profile;
	r->opts.seed = r->cluster.load.seed;
	return cmd_sim_check(&(struct gn_sim_opts){.size = sizeof(struct gn_sim_opts),
						   .profile = r->cluster.load.profile,
						   .nodes = 1});
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

	if (!opts->profile)
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

	if (opts->profile) {
		printf("sim, %s, seed %llu\n\n", opts->profile, (unsigned long long)opts->seed);
		bench_print_head(stdout);
		return;
	}
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
	if (opts->profile)
		opts->seconds =
			r->cluster.load.effort *
			fmax(SIM_SECONDS, SIM_CHAINS * 1e-9 * opts->size_bytes * opts->depth);
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

static int bench_fabric_main(const struct args *args)
{
	struct request *r = args->opts;
	int status, rc = 0;

	r->has_op = opt_given(args, "op");
	status = check_simulated(r, args);
	if (!status && opt_given(args, "topology"))
		status = check_cluster(r, args);
	if (status)
		return status;
	if (opt_given(args, "topology"))
		return run_cluster(r);
	if (r->opts.profile)
		r->opts.cpus[1] = 1; /* a machine each */
	else if (!opt_given(args, "cpus"))
		bench_pick_cpus(r->opts.cpus);
	status = check_pair(args);
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
		if (!opts.profile || is_simulated(opts.op))
			rc = run_one(r, &opts);
	}
	if (rc == -EINTR || bench_stopped())
		return EXIT_INTERRUPTED;
	return cmd_flush_stdout() || rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

const struct command command_bench_fabric = {
	.name = "fabric",
	.what = "writes, reads, atomics and messages between two processes",
	.about = "Two processes on two cores; one of them measures, next to a limit. Or two "
		 "simulated machines, or a simulated cluster. Default: everything.",
	.more = "Times are of one operation: a round trip, or a request's share of its chain; p50 "
		"and p99 of groups of 32 round trips or about 512 requests, simulated of single "
		"round trips. All data is checked at the end, but not of a cluster.",
	.run = bench_fabric_main,
	OPTIONS(options, struct request, .opts = {.provider = "shm", .seconds = 1},
		.cluster = {.load = {.effort = 1,
				     .seed = 1,
				     .threads = 1,
				     .machines = 1,
				     .clients = 1},
			    .shared_by = 1,
			    .requests = 1}),
};
