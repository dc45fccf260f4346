/* SPDX-License-Identifier: MIT */
/*
 * gannet bench msg: its options. bench_msg_points.c runs what they ask for; the measuring itself is
 * in bench/.
 */
#include "bench_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "bench_cmd.h"

/* ---- options ---- */

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct msg_job job;
	const char *protocol, *sweeps[SWEEP_KEYS];
	uint32_t n_sweeps;
};

static int take_sweep(const char *name, const char *text, void *to)
{
	struct request *r = to;

	if (r->n_sweeps == SWEEP_KEYS)
		return cmd_usage_error("%s can be given %d times", name, SWEEP_KEYS);
	r->sweeps[r->n_sweeps++] = text;
	return 0;
}

static const struct opt options[] = {
	{OPT_TEXT, "protocol", "LIST",
	 "SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, READ, WRITE_IMM, UD, or all, with commas",
	 "all", AT(protocol)},
	{OPT_CHOICE, "topology", "T",
	 "many nodes request of one: M:1; one of many: 1:M; all of all: M:M", AT(job.opts.topology),
	 .choices = bench_msg_topologies},
	{OPT_U32, "nodes", "N", "the many", AT(job.opts.nodes), RANGE(1, BENCH_MSG_NODES_MAX)},
	{OPT_U32, "threads", "S", "of each", AT(job.opts.threads), RANGE(1, BENCH_MSG_THREADS_MAX)},
	{OPT_U32, "pending", "R", "requests under way on each connection", AT(job.opts.pending),
	 RANGE(1, GN_MSG_PENDING_MAX)},
	{OPT_U32, "request", "L", "bytes of a request", AT(job.opts.request_bytes),
	 RANGE(BENCH_MSG_REQUEST_MIN, GN_MSG_BYTES_MAX)},
	{OPT_U32, "value", "V", "bytes of its response", AT(job.opts.value_bytes),
	 RANGE(1, GN_MSG_BYTES_MAX)},
	{OPT_U32, "resp-threads", "N", "sim, M:1: responding threads", "the paper's",
	 AT(job.opts.resp_threads), RANGE(1, BENCH_MSG_THREADS_MAX)},
	{OPT_U32, "resp-conns", "N", "sim, M:1: connections of a responding thread at most", "any",
	 AT(job.opts.conns_max), RANGE(1, GN_MSG_CONNS_MAX)},
	{OPT_TABLE, .to = offsetof(struct request, job.opts.load), .table = bench_load_options},
	{OPT_OTHER, "sweep", "KEY=RANGE",
	 "every value of an option: 1..256x2, 1..9+4, 1..4, 365,1K; of several all combinations",
	 .take = take_sweep},
	{OPT_TEXT, "out", "FILE", "append results, a line each; what is in it is not run again",
	 AT(job.out)},
	{OPT_FLAG, "json", NULL, "one object a line instead of a table", AT(job.json)},
	{.type = OPT_END},
};

/* ---- what they come to ---- */

/* Protocols vary fastest, unless there is a sweep of them. */
static int check_sweeps(const struct args *args)
{
	struct request *r = args->opts;
	struct sweep *s = &r->job.sweep;
	char why[BENCH_WHY_MAX] = "no memory";

	for (unsigned i = 0; i < r->n_sweeps; i++)
		if (sweep_add(s, r->sweeps[i], why))
			return cmd_usage_error("--sweep: %s", why);
	for (unsigned i = 0; i < s->n; i++)
		if (opt_given(args, sweep_traits[s->axis[i].key].name))
			return cmd_usage_error("--%s and --sweep %s=…: leave one of them out",
					       sweep_traits[s->axis[i].key].name,
					       sweep_traits[s->axis[i].key].name);
	if (sweep_has(s, SWEEP_PROTOCOL) ||
	    !sweep_add_range(s, SWEEP_PROTOCOL, r->protocol ? r->protocol : "all", why))
		return 0;
	return cmd_usage_error("--protocol: %s", why);
}

static int bench_msg_main(const struct args *args)
{
	struct request *r = args->opts;
	int status = bench_check_load(args, &r->job.opts.load);

	if (!status && !r->job.opts.load.profile && opt_given(args, "resp-threads resp-conns"))
		status = cmd_usage_error("--resp-threads and --resp-conns are for --provider sim");
	if (!status)
		status = check_sweeps(args);
	if (!status)
		status = msg_job_run(&r->job);
	sweep_free(&r->job.sweep);
	return status;
}

const struct command command_bench_msg = {
	.name = "msg",
	.what = "message passing protocols in three topologies, also simulated",
	.about = "Requests and their responses by the verbs of each message passing protocol.",
	.more = "Over shm and verbs each thread is a process. WRs, bells, CQEs: per request, both "
		"sides.",
	.run = bench_msg_main,
	OPTIONS(options, struct request,
		.job.opts = {.load = {BENCH_LOAD_DEFAULTS},
			     .nodes = 1,
			     .threads = 1,
			     .pending = 16,
			     .request_bytes = 36,
			     .value_bytes = 365}),
};
