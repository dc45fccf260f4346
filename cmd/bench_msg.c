/* SPDX-License-Identifier: MIT */
/*
 * gannet bench msg: its options. bench_msg_points.c runs what they ask for; the measuring itself is
 * in bench/, and in lab/ for simulated clusters.
 */
#include "bench_msg.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "bench_cmd.h"
#include "cmd.h"

#define PROFILE "cx3-fdr"

static const char help[] =
	"Usage: gannet bench msg [OPTION…]\n"
	"\n"
	"Requests and their answers by the verbs of each message passing protocol.\n"
	"\n"
	"  --protocol LIST    SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, READ, WRITE_IMM,\n"
	"                     UD, or all, with commas between them (all)\n"
	"  --topology T       many nodes ask one: M:1, one asks many: 1:M, or all: M:M (M:1)\n"
	"  --nodes N          the many, 1 to 256 (1)\n"
	"  --threads S        of each, 1 to 64 (1)\n"
	"  --pending R        requests under way on each connection, 1 to 4096 (16)\n"
	"  --request L, --value V\n"
	"                     bytes of a request and of its answer, up to 1M (36, 365)\n"
	"  --preset P         gannet, or paper: nothing is posted or signaled together (gannet)\n"
	"  --seconds S        to measure each (1); simulated ones (0.0002)\n"
	"  --provider P       shm, verbs, verbs:DEVICE, with --addr HOST; or sim (shm)\n"
	"  --profile P        for sim: of the network cards (cx3-fdr)\n"
	"  --seed N           of values, and of a simulation (1)\n"
	"  --sweep KEY=RANGE  every value of an option: 1..256x2, 1..9+4, 1..4, 365,1K; all\n"
	"                     combinations of several\n"
	"  --out FILE         append results, a line each; what is in it is not run again\n"
	"  --json             one object a line instead of a table\n"
	"\n"
	"Over shm and verbs each thread is a process. WRs, bells, CQEs: per request, both sides.";

/* ---- options ---- */

enum {
	PROTOCOL = 256,
	TOPOLOGY,
	NODES,
	THREADS,
	PENDING,
	REQUEST,
	VALUE,
	PRESET,
	SECONDS,
	PROVIDER,
	ADDR,
	CARD,
	SEED,
	SWEEP,
	OUT,
	JSON
};

static const struct option options[] = {
	{"protocol", required_argument, NULL, PROTOCOL},
	{"topology", required_argument, NULL, TOPOLOGY},
	{"nodes", required_argument, NULL, NODES},
	{"threads", required_argument, NULL, THREADS},
	{"pending", required_argument, NULL, PENDING},
	{"request", required_argument, NULL, REQUEST},
	{"value", required_argument, NULL, VALUE},
	{"preset", required_argument, NULL, PRESET},
	{"seconds", required_argument, NULL, SECONDS},
	{"provider", required_argument, NULL, PROVIDER},
	{"addr", required_argument, NULL, ADDR},
	{"profile", required_argument, NULL, CARD},
	{"seed", required_argument, NULL, SEED},
	{"sweep", required_argument, NULL, SWEEP},
	{"out", required_argument, NULL, OUT},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct request {
	struct msg_job job;
	const char *seconds, *protocol;
	unsigned given; /* bits of enum sweep_key: options that a sweep may be about */
};

static int parse_text(const char *option, const char *text, char *to, size_t room)
{
	if (!*text || strlen(text) >= room)
		return cmd_usage_error("%s must have 1 to %zu characters, not %zu", option,
				       room - 1, strlen(text));
	memcpy(to, text, strlen(text) + 1);
	return 0;
}

static int parse_provider(const char *text, struct bench_msg_opts *o)
{
	if (strcmp(text, "shm") && strcmp(text, "sim") && strcmp(text, "verbs") &&
	    strncmp(text, "verbs:", 6))
		return cmd_usage_error("--provider must be shm, verbs, verbs:DEVICE or sim, "
				       "not '%s'",
				       text);
	return parse_text("--provider", text, o->provider, sizeof(o->provider));
}

static int parse_preset(const char *text, struct bench_msg_opts *o)
{
	o->paper = !strcmp(text, "paper");
	if (o->paper || !strcmp(text, "gannet"))
		return 0;
	return cmd_usage_error("--preset must be gannet or paper, not '%s'", text);
}

static int parse_topology(const char *text, struct bench_msg_opts *o)
{
	for (unsigned i = 0; i < BENCH_MSG_TOPOLOGIES; i++) {
		if (!strcasecmp(text, bench_msg_topologies[i])) {
			o->topology = (enum bench_msg_topology)i;
			return 0;
		}
	}
	return cmd_usage_error("--topology must be M:1, 1:M or M:M, not '%s'", text);
}

static int parse_count(struct request *r, const char *option, enum sweep_key key, uint32_t *out)
{
	r->given |= 1u << key;
	return cmd_count(option, optarg, sweep_traits[key].min, sweep_traits[key].max, out);
}

static int parse_sweep(struct request *r, const char *text)
{
	char why[SWEEP_WHY_MAX] = "no memory";

	return sweep_add(&r->job.sweep, text, why) ? cmd_usage_error("--sweep: %s", why) : 0;
}

static int parse_option(int option, struct request *r)
{
	struct bench_msg_opts *o = &r->job.opts;

	switch (option) {
	case PROTOCOL:
		r->protocol = optarg;
		return 0;
	case TOPOLOGY:
		r->given |= 1u << SWEEP_TOPOLOGY;
		return parse_topology(optarg, o);
	case NODES:
		return parse_count(r, "--nodes", SWEEP_NODES, &o->nodes);
	case THREADS:
		return parse_count(r, "--threads", SWEEP_THREADS, &o->threads);
	case PENDING:
		return parse_count(r, "--pending", SWEEP_PENDING, &o->pending);
	case REQUEST:
		return parse_count(r, "--request", SWEEP_REQUEST, &o->request_bytes);
	case VALUE:
		return parse_count(r, "--value", SWEEP_VALUE, &o->value_bytes);
	case PRESET:
		return parse_preset(optarg, o);
	case SECONDS:
		r->seconds = optarg;
		return 0;
	case PROVIDER:
		return parse_provider(optarg, o);
	case ADDR:
		return parse_text("--addr", optarg, o->host, sizeof(o->host));
	case CARD:
		o->profile = optarg;
		return 0;
	case SEED:
		return cmd_number("--seed", optarg, 0, UINT64_MAX, &o->seed);
	case SWEEP:
		return parse_sweep(r, optarg);
	case OUT:
		r->job.out = optarg;
		return 0;
	default:
		r->job.json = true;
		return 0;
	}
}

/* ---- what they come to ---- */

static int check_provider(struct request *r)
{
	struct bench_msg_opts *o = &r->job.opts;
	const bool sim = !strcmp(o->provider, "sim"), verbs = !strncmp(o->provider, "verbs", 5);

	if (verbs && !o->host[0])
		return cmd_usage_error("verbs needs --addr HOST, this machine's address on the "
				       "RDMA network");
	if (!verbs && o->host[0])
		return cmd_usage_error("--addr is for verbs; %s needs none", o->provider);
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
static int check_sweeps(struct request *r)
{
	struct sweep *s = &r->job.sweep;
	char why[SWEEP_WHY_MAX] = "no memory";

	for (unsigned i = 0; i < s->n; i++)
		if (r->given & 1u << s->axis[i].key ||
		    (r->protocol && s->axis[i].key == SWEEP_PROTOCOL))
			return cmd_usage_error("--%s and --sweep %s=…: leave one of them out",
					       sweep_traits[s->axis[i].key].name,
					       sweep_traits[s->axis[i].key].name);
	if (sweep_has(s, SWEEP_PROTOCOL) ||
	    !sweep_add_range(s, SWEEP_PROTOCOL, r->protocol ? r->protocol : "all", why))
		return 0;
	return cmd_usage_error("--protocol: %s", why);
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.job = {.opts = {.provider = "shm",
					       .nodes = 1,
					       .threads = 1,
					       .pending = 16,
					       .request_bytes = 36,
					       .value_bytes = 365,
					       .seed = 1}}};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "bench msg", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = check_provider(r);
	if (!*status)
		*status = check_sweeps(r);
	return *status ? -1 : 0;
}

int cmd_bench_msg(int argc, char **argv)
{
	struct request r;
	int status;

	if (!parse(argc, argv, &r, &status))
		status = msg_job_run(&r.job);
	sweep_free(&r.job.sweep);
	return status;
}
