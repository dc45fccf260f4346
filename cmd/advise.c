/* SPDX-License-Identifier: MIT */
/*
 * gannet advise: which protocol of gannet/msg.h to use. The options and the waiting are here; the
 * search, the order and the words are in lab/.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "advise.h"
#include "cmd.h"
#include "workers.h"

#define EFFORT_MIN  0.01
#define EFFORT_MAX  100.0
#define LATENCY_MAX 1e6
#define BYTES_MAX   (1u << 30) /* what advise_check() may say more about */
#define PROFILE_MAX 256u

static const char help[] =
	"Usage: gannet advise --topology M:1|1:M|M:M [OPTION…]\n"
	"\n"
	"Simulates requests and answers by each protocol, with more and more of them under way,\n"
	"and says which is best: the first word of the answer is the protocol. See\n"
	"docs/protocols.md.\n"
	"\n"
	"  --nodes N        that ask; with 1:M that answer; with M:M all (8)\n"
	"  --threads N      of a node, or A..B to let it choose (1)\n"
	"  --request BYTES  (36)\n"
	"  --value BYTES    (365)\n"
	"  --read PCT       how many requests are reads, in per cent (100)\n"
	"  --profile P      the cards: a profile's name, or a file (cx3-fdr)\n"
	"  --latency US     only what answers 99 of 100 requests within this\n"
	"  --pending N      requests under way on a QP, at most (256)\n"
	"  --protocols LIST to choose from, as READ,UD (all, but UD stands only beside)\n"
	"  --preset P       gannet: as the library sends messages; paper: as S003 did (gannet)\n"
	"  --brief          only the answer, not what would change it\n"
	"  --json           one object\n"
	"  --seed N         of everything left to chance (1)\n"
	"  --effort E       length of each run, 0.01 to 100 (1)\n"
	"  --jobs J         processes to use (one for each core)";

enum {
	TOPOLOGY = 256,
	NODES,
	THREADS,
	REQUEST,
	VALUE,
	READS,
	PROFILE,
	LATENCY,
	PENDING,
	PROTOCOLS,
	PRESET,
	BRIEF,
	JSON,
	SEED,
	EFFORT,
	JOBS
};

static const struct option options[] = {
	{"topology", required_argument, NULL, TOPOLOGY},
	{"nodes", required_argument, NULL, NODES},
	{"threads", required_argument, NULL, THREADS},
	{"request", required_argument, NULL, REQUEST},
	{"value", required_argument, NULL, VALUE},
	{"read", required_argument, NULL, READS},
	{"profile", required_argument, NULL, PROFILE},
	{"latency", required_argument, NULL, LATENCY},
	{"pending", required_argument, NULL, PENDING},
	{"protocols", required_argument, NULL, PROTOCOLS},
	{"preset", required_argument, NULL, PRESET},
	{"brief", no_argument, NULL, BRIEF},
	{"json", no_argument, NULL, JSON},
	{"seed", required_argument, NULL, SEED},
	{"effort", required_argument, NULL, EFFORT},
	{"jobs", required_argument, NULL, JOBS},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct request {
	struct advise_query query;
	char profile[PROFILE_MAX];
	bool asked; /* --topology is there */
	bool json;
};

/* ---- options ---- */

static int parse_topology(const char *text, struct request *r)
{
	if (advise_topology_parse(text, &r->query.topology))
		return cmd_usage_error("--topology must be M:1, 1:M or M:M, not '%s'", text);
	r->asked = true;
	return 0;
}

/* N, or A..B. */
static int parse_threads(const char *text, struct advise_query *q)
{
	const char *dots = strstr(text, "..");
	char first[16];
	int status;

	if (!dots) {
		status = cmd_count("--threads", text, 1, ADVISE_THREADS_MAX, &q->threads_min);
		q->threads_max = q->threads_min;
		return status;
	}
	if (dots - text >= (ptrdiff_t)sizeof(first))
		return cmd_usage_error("--threads must be N or A..B, not '%s'", text);
	snprintf(first, sizeof(first), "%.*s", (int)(dots - text), text);
	status = cmd_count("--threads", first, 1, ADVISE_THREADS_MAX, &q->threads_min);
	if (!status)
		status = cmd_count("--threads", dots + 2, 1, ADVISE_THREADS_MAX, &q->threads_max);
	if (!status && q->threads_min > q->threads_max)
		status = cmd_usage_error("--threads %s is empty: the smaller number comes first",
					 text);
	return status;
}

static int parse_protocols(const char *text, struct advise_query *q)
{
	const char *list = text;
	char item[32];

	q->protocols = 0;
	while (list_next(&list, item, sizeof(item))) {
		enum gn_msg_protocol protocol;

		if (gn_msg_protocol_parse(item, &protocol))
			return cmd_usage_error("--protocols: there is no protocol '%s'; there are "
					       "SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, "
					       "READ, WRITE_IMM and UD",
					       item);
		q->protocols |= 1u << protocol;
		q->datagrams = q->datagrams || protocol == GN_MSG_UD;
	}
	return 0;
}

static int parse_preset(const char *text, struct advise_query *q)
{
	if (strcmp(text, "gannet") && strcmp(text, "paper"))
		return cmd_usage_error("--preset must be gannet or paper, not '%s'", text);
	q->preset = text;
	return 0;
}

/* A file gets the '/' that tells it from the name of a built-in profile. */
static int parse_profile(const char *text, struct request *r)
{
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

static int parse_option(int option, struct request *r)
{
	struct advise_query *q = &r->query;

	switch (option) {
	case TOPOLOGY:
		return parse_topology(optarg, r);
	case NODES:
		return cmd_count("--nodes", optarg, 1, ADVISE_NODES_MAX, &q->nodes);
	case THREADS:
		return parse_threads(optarg, q);
	case REQUEST:
		return cmd_count("--request", optarg, 1, BYTES_MAX, &q->request);
	case VALUE:
		return cmd_count("--value", optarg, 1, BYTES_MAX, &q->value);
	case READS:
		return cmd_count("--read", optarg, 0, 100, &q->read_pct);
	case PROFILE:
		return parse_profile(optarg, r);
	case LATENCY:
		return cmd_real("--latency", optarg, 0.001, LATENCY_MAX, &q->latency_us);
	case PENDING:
		return cmd_count("--pending", optarg, 1, ADVISE_PENDING_MAX, &q->pending_max);
	case PROTOCOLS:
		return parse_protocols(optarg, q);
	case PRESET:
		return parse_preset(optarg, q);
	case BRIEF:
		q->brief = true;
		return 0;
	case JSON:
		r->json = true;
		return 0;
	case SEED:
		return cmd_number("--seed", optarg, 0, UINT64_MAX, &q->seed);
	case EFFORT:
		return cmd_real("--effort", optarg, EFFORT_MIN, EFFORT_MAX, &q->effort);
	default:
		return cmd_count("--jobs", optarg, 1, WORKERS_MAX, &q->jobs);
	}
}

static int check(const struct request *r)
{
	struct lab_error error;

	if (!r->asked)
		return cmd_usage_error("--topology is missing: who asks whom? M:1, 1:M or M:M");
	if (advise_check(&r->query, &error))
		return cmd_usage_error("%s", error.text);
	return cmd_sim_check(&(struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .profile = r->query.profile, .nodes = 1});
}

static int parse(int argc, char **argv, struct request *r, int *status)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int option;

	*r = (struct request){
		.query =
			{
				.nodes = 8,
				.threads_min = 1,
				.threads_max = 1,
				.request = 36,
				.value = 365,
				.read_pct = 100,
				.protocols = ADVISE_ALL_PROTOCOLS,
				.pending_max = ADVISE_PENDING_MAX,
				.profile = "cx3-fdr",
				.preset = "gannet",
				.seed = 1,
				.effort = 1,
				.jobs = cores < 1		  ? 1 :
					cores > (long)WORKERS_MAX ? WORKERS_MAX :
								    (unsigned)cores,
			},
	};
	*status = 0;
	while (!*status && (option = cmd_option(argc, argv, options, help, "advise", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = check(r);
	return *status ? -1 : 0;
}

/* ---- running ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signo)
{
	(void)signo;
	interrupted = 1;
}

/* Only on a terminal: a line that the answer overwrites. */
static void show_progress(void *arg, unsigned done, unsigned of)
{
	(void)arg;
	fprintf(stderr, "\rsimulating: %u of %u ", done, of);
}

int cmd_advise(int argc, char **argv)
{
	const bool terminal = isatty(STDERR_FILENO);
	const struct sigaction action = {.sa_handler = interrupt};
	const struct advise_env env = {
		.msg = lab_msg_run,
		.rpc = lab_rpc_run,
		.progress = terminal ? show_progress : NULL,
		.interrupted = &interrupted,
	};
	struct advise_answer answer;
	struct lab_error error = {""};
	struct request r;
	int rc, status;

	if (parse(argc, argv, &r, &status))
		return status;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	rc = advise_run(&env, &r.query, &answer, &error);
	if (terminal)
		fprintf(stderr, "\r%40s\r", "");
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s\n", error.text);
	else if (r.json)
		advise_json(stdout, &answer);
	else
		advise_print(stdout, &answer);
	advise_free(&answer);
	status = cmd_flush_stdout();
	return rc == -EINTR ? EXIT_INTERRUPTED : rc ? EXIT_FAILURE : status;
}
