/* SPDX-License-Identifier: MIT */
/*
 * gannet bench dgram: its options, and the comparison of FaSST's optimisations. The measuring
 * itself is in bench/.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "bench_cmd.h"
#include "dgram.h"

/* ---- options ---- */

#define AT(member) .to = offsetof(struct dgram_request, member)

enum dgram_steps { STEPS_NONE, STEPS_OFF, STEPS_ADD };

static const char *const steps_choices[] = {"none", "off", "add", NULL};

struct dgram_request {
	struct bench_dgram_opts opts;
	enum dgram_steps steps;
	bool json, no_raw;
};

static int take_off(const char *name, const char *text, void *to)
{
	unsigned *off = to;
	const char *at = text;

	if (!strcmp(text, "all")) {
		*off = BENCH_DGRAM_ALL_OFF;
		return 0;
	}
	while (at) {
		const size_t len = strcspn(at, ",");
		unsigned i = 0;

		if (!len)
			return cmd_usage_error("%s: a name is missing in '%s': it begins or ends "
					       "with a comma, or has two in a row",
					       name, text);
		while (i < BENCH_DGRAM_STEPS && (strlen(bench_dgram_steps[i]) != len ||
						 strncmp(bench_dgram_steps[i], at, len) != 0))
			i++;
		if (i == BENCH_DGRAM_STEPS)
			return cmd_usage_error("%s: '%.*s' is not batch, coalesce, answer-batch, "
					       "cheap-recv, signaling, prefetch or all",
					       name, (int)len, at);
		*off |= 1u << i;
		at = at[len] ? at + len + 1 : NULL;
	}
	return 0;
}

static const struct opt options[] = {
	{OPT_U32, "nodes", "N", "processes, or simulated machines; each calls all others",
	 AT(opts.nodes), RANGE(2, BENCH_DGRAM_NODES_MAX)},
	{OPT_U32, "threads", "T", "of each node", AT(opts.load.threads),
	 RANGE(1, GN_DGRAM_THREADS_MAX)},
	{OPT_U32, "endpoints", "E", "that each thread polls in turn", AT(opts.endpoints),
	 RANGE(1, GN_DGRAM_THREADS_MAX)},
	{OPT_U32, "workers", "W", "of each endpoint", AT(opts.workers),
	 RANGE(1, BENCH_DGRAM_WORKERS_MAX)},
	{OPT_U32, "batch", "B", "calls that a worker makes together",
	 "1; --preset paper: one to each node, up to 16", AT(opts.batch),
	 RANGE(1, BENCH_DGRAM_BATCH_MAX)},
	{OPT_U32, "req", "N", "bytes of a request", AT(opts.request_bytes),
	 RANGE(BENCH_DGRAM_REQUEST_MIN, GN_DGRAM_BYTES_MAX)},
	{OPT_U32, "resp", "N", "bytes of its result", AT(opts.result_bytes),
	 RANGE(0, GN_DGRAM_BYTES_MAX)},
	{OPT_U64, "table", "N", "bytes of a table of which the handler reads a random line", "none",
	 AT(opts.table_bytes), RANGE(64, BENCH_DGRAM_TABLE_MAX)},
	{OPT_OTHER, "off", "LIST",
	 "optimisations to leave out: batch, coalesce, answer-batch, cheap-recv, signaling, "
	 "prefetch, or all, with commas",
	 "none", AT(opts.off), .choices = bench_dgram_steps, .take = take_off},
	{OPT_CHOICE, "steps", "S",
	 "several runs; off: each of the optimisations off in turn; add: one added after the other",
	 AT(steps), .choices = steps_choices},
	{OPT_FLAG, "mapped", NULL, "threads call threads of the same number only", AT(opts.mapped)},
	{OPT_FLAG, "one-way", NULL, "only the first node calls", AT(opts.one_way)},
	{OPT_FLAG, "no-raw", NULL, "leave out the raw sends and receives next to calls",
	 AT(no_raw)},
	{OPT_TEXT, "faults", "LIST", "sim: faults to inject, as ud-loss=1%,ud-dup=1%", "none",
	 AT(opts.load.faults)},
	{OPT_TABLE, .to = offsetof(struct dgram_request, opts.load), .table = bench_load_options},
	{OPT_FLAG, "json", NULL, "one object a line instead of a table", AT(json)},
	{.type = OPT_END},
};

#define PAPER_BATCH_MAX 16u /* FaSST: outstanding messages of a coroutine */

/* FaSST's own way: threads are mapped, and a batch has one request for each machine. */
static void take_paper(struct bench_dgram_opts *o)
{
	if (o->load.paper) {
		o->mapped = true;
		o->off |= 1u << STEP_COALESCE;
	}
	if (!o->batch && o->load.paper)
		o->batch = o->nodes - 1 < PAPER_BATCH_MAX ? o->nodes - 1 : PAPER_BATCH_MAX;
	if (!o->batch)
		o->batch = 1;
}

/* A node that restarts would begin its part of the load anew. */
static int check_faults(const struct bench_dgram_opts *o)
{
	static const char *const refused[] = {"crash", "kill", "alloc", "register"};

	for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (strstr(o->load.faults, refused[i]))
			return cmd_usage_error("--faults: %s ends nodes of the load; take faults "
					       "of datagrams, links, clocks or pauses",
					       refused[i]);
	return cmd_sim_check(&(struct gn_sim_opts){.size = sizeof(struct gn_sim_opts),
						   .profile = o->load.profile,
						   .nodes = o->nodes,
						   .faults = o->load.faults});
}

static int dgram_check_opts(const struct args *args)
{
	struct dgram_request *r = args->opts;
	struct bench_dgram_opts *o = &r->opts;
	char why[BENCH_WHY_MAX];
	int status = bench_check_load(args, &o->load);

	if (status)
		return status;
	if (o->load.faults && !o->load.profile)
		return cmd_usage_error("--faults is for --provider sim");
	if (r->steps && opt_given(args, "off"))
		return cmd_usage_error("--steps chooses what is off; leave --off out");
	take_paper(o);
	if (bench_dgram_check(o, why))
		return cmd_usage_error("%s", why);
	return o->load.faults ? check_faults(o) : 0;
}

/* ---- running ---- */

/* The i-th run: what is off, and what the row is called. false: there are no more. */
static bool choose_step(const struct dgram_request *r, unsigned i, struct bench_dgram_opts *o,
			char name[32])
{
	const unsigned always = r->opts.off; /* --preset paper */

	*o = r->opts;
	if (i > (r->steps ? BENCH_DGRAM_STEPS : 0))
		return false;
	if (r->steps == STEPS_OFF)
		o->off = always | (i ? 1u << (i - 1) : 0);
	else if (r->steps == STEPS_ADD)
		o->off = always | (BENCH_DGRAM_ALL_OFF & ~((1u << i) - 1));
	if (!i)
		snprintf(name, 32, "%s", r->steps == STEPS_ADD ? "none" : "all");
	else
		snprintf(name, 32, "%s %s", r->steps == STEPS_ADD ? "+" : "without",
			 bench_dgram_steps[i - 1]);
	return true;
}

static int run_step(const struct dgram_request *r, const struct bench_dgram_opts *o,
		    const char *step, double switch_ns, double worker_bytes)
{
	struct bench_dgram_result result;
	const int status = bench_load_end("bench dgram",
					  bench_dgram_run(o, !r->no_raw, bench_progress(), &result),
					  &result.load);

	if (status)
		return status;
	result.switch_ns = switch_ns;
	result.worker_bytes = worker_bytes;
	if (r->json)
		bench_dgram_print_json(stdout, o, step, &result);
	else
		bench_dgram_print_row(stdout, o, step, &result);
	return cmd_flush_stdout();
}

static int bench_dgram_main(const struct args *args)
{
	struct dgram_request *r = args->opts;
	struct bench_dgram_opts o;
	double switch_ns = (double)NAN, worker_bytes = (double)NAN;
	char name[32];
	int status = dgram_check_opts(args), rc = 0;

	if (status)
		return status;
	if (r->opts.load.profile)
		bench_stop_on_signals();
	else
		bench_begin(r->opts.load.cpus);
	if (!r->opts.load.profile)
		rc = bench_dgram_switch(&r->opts, &switch_ns, &worker_bytes);
	if (rc) {
		fprintf(stderr, "gannet: bench dgram: no endpoint on %s: %s\n",
			r->opts.load.provider, gn_strerror(rc));
		return EXIT_FAILURE;
	}
	if (!r->json)
		bench_dgram_print_head(stdout, r->steps);
	for (unsigned i = 0; !status && choose_step(r, i, &o, name); i++)
		if (!r->steps || !i ||
		    !(r->opts.off & 1u << (i - 1))) /* --preset paper: always off */
			status = run_step(r, &o, r->steps ? name : NULL, switch_ns, worker_bytes);
	return status;
}

const struct command command_bench_dgram = {
	.name = "dgram",
	.what = "datagram calls between all threads of all nodes, also simulated",
	.about = "Datagram calls: each node is a process, or a simulated machine, whose workers "
		 "call all other nodes and whose handler echoes. Results are checked.",
	.more = "Processes run next to raw UD sends and receives of the same shape, in blocks that "
		"take turns; raw is left out if there are more threads than cores. datagrams and "
		"doorbells are per call, of both sides. lost: calls without an answer; twice: "
		"calls executed more than once. "
		"p50 and p99 are of single calls or batches; of one worker, of groups of 32. "
		"--preset paper: FaSST's way, with --mapped and without coalescing, since a batch "
		"has one request for each node.",
	.run = bench_dgram_main,
	OPTIONS(options, struct dgram_request,
		.opts = {.load = {BENCH_LOAD_DEFAULTS, .threads = 1},
			 .nodes = 2,
			 .endpoints = 1,
			 .workers = 20,
			 .request_bytes = 32,
			 .result_bytes = 32}),
};
