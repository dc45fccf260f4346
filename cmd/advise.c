/* SPDX-License-Identifier: MIT */
/*
 * gannet advise: which protocol of gannet/msg.h to use. The options; advise/ has the search.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "advise.h"
#include "bench.h"
#include "cmd.h"
#include "command.h"
#include "workers.h"

#define EFFORT_MIN  0.01
#define EFFORT_MAX  100.0
#define LATENCY_MAX 1e6
#define BYTES_MAX   (1u << 30) /* further errors come from advise_check() */
#define PROFILE_MAX 256u

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct advise_query query;
	char profile[PROFILE_MAX];
	uint32_t topology;
	bool json;
};

/* ---- options ---- */

/* N, or A..B. */
static int advise_take_threads(const char *name, const char *text, void *to)
{
	struct advise_query *q = &((struct request *)to)->query;
	const char *dots = strstr(text, "..");
	char first[16];
	int status;

	if (!dots) {
		status = cmd_count(name, text, 1, ADVISE_THREADS_MAX, &q->threads_min);
		q->threads_max = q->threads_min;
		return status;
	}
	if (dots - text >= (ptrdiff_t)sizeof(first))
		return cmd_usage_error("%s must be N or A..B, not '%s'", name, text);
	snprintf(first, sizeof(first), "%.*s", (int)(dots - text), text);
	status = cmd_count(name, first, 1, ADVISE_THREADS_MAX, &q->threads_min);
	if (!status)
		status = cmd_count(name, dots + 2, 1, ADVISE_THREADS_MAX, &q->threads_max);
	if (!status && q->threads_min > q->threads_max)
		status = cmd_usage_error("%s %s is empty: the smaller number comes first", name,
					 text);
	return status;
}

static int advise_take_protocols(const char *name, const char *text, void *to)
{
	struct advise_query *q = &((struct request *)to)->query;
	q->protocols = 0;
	for (const char *at = text;; at++) {
		const size_t len = strcspn(at, ",");
		enum gn_msg_protocol protocol;
		char item[32];

		snprintf(item, sizeof(item), "%.*s", (int)len, at);
		if (gn_msg_protocol_parse(item, &protocol))
			return cmd_usage_error("%s: there is no protocol '%s'; there are "
					       "SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, "
					       "READ, WRITE_IMM and UD",
					       name, item);
		q->protocols |= 1u << protocol;
		q->datagrams = q->datagrams || protocol == GN_MSG_UD;
		at += len;
		if (!*at)
			return 0;
	}
}

/* A file gets the '/' that tells it from the name of a built-in profile. */
static int advise_check_profile(struct request *r)
{
	const char *text = r->query.profile;
	const bool named = strchr(text, '/') || gn_sim_profile_text(text);

	if (!named && access(text, R_OK))
		return cmd_usage_error("--profile: '%s' is neither a profile nor a file; gannet "
				       "sim profile lists the profiles",
				       text);
	if ((size_t)snprintf(r->profile, sizeof(r->profile), "%s%s", named ? "" : "./", text) >=
	    sizeof(r->profile))
		return cmd_usage_error("--profile %.20s… is too long", text);
	r->query.profile = r->profile;
	return 0;
}

static const struct opt options[] = {
	{OPT_CHOICE, "topology", "M:1|1:M|M:M", "clients:servers", "", .required = true,
	 AT(topology), .choices = bench_msg_topologies},
	{OPT_U32, "nodes", "N", "client nodes; 1:M: server nodes; M:M: all nodes", AT(query.nodes),
	 RANGE(1, ADVISE_NODES_MAX)},
	{OPT_OTHER, "threads", "N", "of a client node, or A..B to choose from", "1",
	 .take = advise_take_threads},
	{OPT_U32, "request", "BYTES", "of a request", AT(query.request),
	 RANGE(BENCH_MSG_REQUEST_MIN, BYTES_MAX)},
	{OPT_U32, "value", "BYTES", "of a value", AT(query.value), RANGE(1, BYTES_MAX)},
	{OPT_U32, "read", "PCT", "percentage of reads", AT(query.read_pct), RANGE(0, 100)},
	{OPT_TEXT, "profile", "P", "the cards: a profile's name, or a file", AT(query.profile)},
	{OPT_REAL, "latency", "US", "limit of the 99th percentile", "", AT(query.latency_us),
	 RANGE(0.001, LATENCY_MAX)},
	{OPT_U32, "pending", "N", "outstanding requests on a QP, at most", AT(query.pending_max),
	 RANGE(1, ADVISE_PENDING_MAX)},
	{OPT_OTHER, "protocols", "LIST", "to choose from, as READ,UD", "all, but UD is not ranked",
	 .take = advise_take_protocols},
	{OPT_CHOICE, "preset", "P",
	 "gannet: post as the library does; paper: as the message passing evaluation did",
	 AT(query.paper), .choices = load_presets},
	{OPT_FLAG, "brief", NULL, "no variants of the query", AT(query.brief)},
	{OPT_FLAG, "json", NULL, "print one JSON object", AT(json)},
	{OPT_U64, "seed", "N", "of the simulations", AT(query.seed)},
	{OPT_REAL, "effort", "E", "length of each run", AT(query.effort),
	 RANGE(EFFORT_MIN, EFFORT_MAX)},
	{OPT_U32, "jobs", "J", "worker processes", "one for each core", AT(query.jobs),
	 RANGE(1, WORKERS_MAX)},
	{.type = OPT_END},
};

static int advise_options(struct request *r)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct advise_query *q = &r->query;
	char why[BENCH_WHY_MAX];
	int status;

	q->topology = (enum bench_msg_topology)r->topology;
	if (!q->jobs)
		q->jobs = cores < 1 ? 1 : cores > (long)WORKERS_MAX ? WORKERS_MAX : (unsigned)cores;
	status = advise_check_profile(r);
	if (status)
		return status;
	if (advise_check(q, why))
		return cmd_usage_error("%s", why);
	return cmd_sim_check(&(struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .profile = q->profile, .nodes = 1});
}

/* ---- running ---- */

/* Only on a terminal: a line that the answer overwrites. */
static void advise_show_progress(void *arg, unsigned done, unsigned of)
{
	(void)arg;
	fprintf(stderr, "\rsimulating: %u of %u ", done, of);
}

static int advise_cmd_run(const struct args *args)
{
	const bool terminal = isatty(STDERR_FILENO);
	const struct advise_env env = {
		.msg = bench_msg_run,
		.rpc = bench_rpc_run,
		.progress = terminal ? advise_show_progress : NULL,
		.interrupted = bench_stop_flag(),
	};
	struct request *r = args->opts;
	struct advise_answer answer;
	char why[BENCH_WHY_MAX] = "";
	int rc, status = advise_options(r);

	if (status)
		return status;
	bench_stop_on_signals();
	rc = advise_run(&env, &r->query, &answer, why);
	if (terminal)
		fprintf(stderr, "\r%40s\r", "");
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s\n", why);
	else if (r->json)
		advise_json(stdout, &answer);
	else
		advise_print(stdout, &answer);
	advise_free(&answer);
	status = cmd_flush_stdout();
	return rc == -EINTR ? EXIT_INTERRUPTED : rc ? EXIT_FAILURE : status;
}

const struct command command_advise = {
	.name = "advise",
	.what = "which protocol is best for a cluster, simulated",
	.about = "Simulates requests and replies by each protocol, with more and more requests "
		 "outstanding. The first word of the answer is the best protocol. See "
		 "docs/protocols.md.",
	.run = advise_cmd_run,
	OPTIONS(options, struct request,
		.query = {.nodes = 8,
			  .threads_min = 1,
			  .threads_max = 1,
			  .request = 36,
			  .value = 365,
			  .read_pct = 100,
			  .protocols = ADVISE_ALL_PROTOCOLS,
			  .pending_max = ADVISE_PENDING_MAX,
			  .profile = "cx3-fdr",
			  .seed = 1,
			  .effort = 1}),
};
