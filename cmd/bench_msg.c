/* SPDX-License-Identifier: MIT */
/*
 * gannet bench msg: its options. bench_msg_points.c runs what they ask for; the measuring itself is
 * in bench/, and in lab/ for simulated clusters.
 */
#include "bench_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "bench_cmd.h"

#define PROFILE "cx3-fdr"

/* ---- options ---- */

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct msg_job job;
	const char *seconds, *protocol, *sweeps[SWEEP_KEYS];
	uint32_t preset, n_sweeps;
};

static const char *const presets[] = {"gannet", "paper", NULL};

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
	{OPT_CHOICE, "topology", "T", "many nodes ask one: M:1, one asks many: 1:M, or all: M:M",
	 AT(job.opts.topology), .choices = bench_msg_topologies},
	{OPT_U32, "nodes", "N", "the many", AT(job.opts.nodes), RANGE(1, BENCH_MSG_NODES_MAX)},
	{OPT_U32, "threads", "S", "of each", AT(job.opts.threads), RANGE(1, BENCH_MSG_THREADS_MAX)},
	{OPT_U32, "pending", "R", "requests under way on each connection", AT(job.opts.pending),
	 RANGE(1, GN_MSG_PENDING_MAX)},
	{OPT_U32, "request", "L", "bytes of a request", AT(job.opts.request_bytes),
	 RANGE(BENCH_MSG_REQUEST_MIN, GN_MSG_BYTES_MAX)},
	{OPT_U32, "value", "V", "bytes of its answer", AT(job.opts.value_bytes),
	 RANGE(1, GN_MSG_BYTES_MAX)},
	{OPT_CHOICE, "preset", "P", "gannet, or paper: nothing is posted or signaled together",
	 AT(preset), .choices = presets},
	{OPT_TEXT, "seconds", "S", "to measure each", "1; simulated 0.0002", AT(seconds)},
	{OPT_CHARS, "provider", "P", "shm, verbs, verbs:DEVICE, or sim",
	 OPT_ARRAY(struct request, job.opts.provider)},
	{OPT_CHARS, "addr", "HOST", "for verbs: this machine's address on the RDMA network",
	 OPT_ARRAY(struct request, job.opts.host)},
	{OPT_TEXT, "profile", "P", "for sim: of the network cards", PROFILE, AT(job.opts.profile)},
	{OPT_U64, "seed", "N", "of values, and of a simulation", AT(job.opts.seed)},
	{OPT_OTHER, "sweep", "KEY=RANGE",
	 "every value of an option: 1..256x2, 1..9+4, 1..4, 365,1K; of several all combinations",
	 .take = take_sweep},
	{OPT_TEXT, "out", "FILE", "append results, a line each; what is in it is not run again",
	 AT(job.out)},
	{OPT_FLAG, "json", NULL, "one object a line instead of a table", AT(job.json)},
	{OPT_END},
};

/* ---- what they come to ---- */

static int bench_msg_provider(struct request *r)
{
	struct bench_msg_opts *o = &r->job.opts;
	const bool sim = !strcmp(o->provider, "sim");

	if (bench_check_provider(sim ? "shm" : o->provider, o->host))
		return EXIT_USAGE;
	if (o->profile && !sim)
		return cmd_usage_error("--profile is for --provider sim");
	if (sim && !o->profile)
		o->profile = PROFILE;
	o->seconds = sim ? MSG_SIM_SECONDS : 1;
	if (r->seconds && cmd_real("--seconds", r->seconds, sim ? MSG_SIM_SECONDS_MIN : 0.01,
				   sim ? MSG_SIM_SECONDS_MAX : BENCH_SECONDS_MAX, &o->seconds))
		return EXIT_USAGE;
	return sim ? cmd_sim_check(&(struct gn_sim_opts){.size = sizeof(struct gn_sim_opts),
							 .profile = o->profile,
							 .nodes = 1}) :
		     0;
}

/* Protocols vary fastest, unless there is a sweep of them. */
static int check_sweeps(const struct args *args)
{
	struct request *r = args->opts;
	struct sweep *s = &r->job.sweep;
	char why[SWEEP_WHY_MAX] = "no memory";

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
	int status;

	r->job.opts.paper = r->preset;
	status = bench_msg_provider(r);
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
	.about = "Requests and their answers by the verbs of each message passing protocol.",
	.more = "Over shm and verbs each thread is a process. WRs, bells, CQEs: per request, both "
		"sides.",
	.run = bench_msg_main,
	OPTIONS(options, struct request,
		.job.opts = {.provider = "shm",
			     .nodes = 1,
			     .threads = 1,
			     .pending = 16,
			     .request_bytes = 36,
			     .value_bytes = 365,
			     .seed = 1}),
};
