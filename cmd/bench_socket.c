/* SPDX-License-Identifier: MIT */
/*
 * gannet bench socket: options, and what to print. The measuring itself is in bench/.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "bench_cmd.h"
#include "cmd.h"
#include "keys.h"
#include "socket.h"

static const char help[] =
	"Usage: gannet bench socket --connect ADDR [OPTION…]\n"
	"\n"
	"A load for memcached, Redis, and what speaks as they do, gannet kv proxy for one. Every\n"
	"value that comes back is checked.\n"
	"\n"
	"  --connect ADDR   unix:PATH or HOST:PORT\n"
	"  --protocol P     memcached: its text commands; meta: its meta commands; redis\n"
	"                   (memcached)\n"
	"  --connections C  1 to 1024 (1)\n"
	"  --pipeline N     operations that each has under way: it sends so many, and the next\n"
	"                   when all are answered; 1 to 4096 (1)\n"
	"  --multiget M     keys that one command gets; for Redis, also stores (1)\n"
	"  --noreply        what is stored is not acknowledged; memcached and meta only\n"
	"  --keys N         that there are; K and M are understood (1M)\n"
	"  --key N          bytes of a key, 8 to 250 (16)\n"
	"  --value N        bytes of a value, 1 to 64K (32)\n"
	"  --get PERCENT    of the operations; the others store (95)\n"
	"  --dist D         which keys: uniform, or zipf:S with S to 5 (uniform)\n"
	"  --no-fill        the keys are there already\n"
	"  --seconds S      measured; 0: only fill (1)\n"
	"  --pid PID,…      the server's processes: says what CPU time and memory they took\n"
	"  --cpu N          to run on, or any (the first)\n"
	"  --sleep          wait for answers asleep; else look for them all the time, so that\n"
	"                   no server has to wake us\n"
	"  --json           one object a line\n"
	"\n"
	"p50 and p99 are of what a connection sends at once, from sending it to its last answer.";

struct request {
	struct bench_socket_opts opts;
	bool json;
};

enum {
	CONNECT = 256,
	PROTOCOL,
	CONNECTIONS,
	PIPELINE,
	MULTIGET,
	NOREPLY,
	KEYS,
	KEY,
	VALUE,
	GET,
	DIST,
	NO_FILL,
	SECONDS,
	PID,
	CPU,
	SLEEP,
	JSON
};

static const struct option options[] = {
	{"connect", required_argument, NULL, CONNECT},
	{"protocol", required_argument, NULL, PROTOCOL},
	{"connections", required_argument, NULL, CONNECTIONS},
	{"pipeline", required_argument, NULL, PIPELINE},
	{"multiget", required_argument, NULL, MULTIGET},
	{"noreply", no_argument, NULL, NOREPLY},
	{"keys", required_argument, NULL, KEYS},
	{"key", required_argument, NULL, KEY},
	{"value", required_argument, NULL, VALUE},
	{"get", required_argument, NULL, GET},
	{"dist", required_argument, NULL, DIST},
	{"no-fill", no_argument, NULL, NO_FILL},
	{"seconds", required_argument, NULL, SECONDS},
	{"pid", required_argument, NULL, PID},
	{"cpu", required_argument, NULL, CPU},
	{"sleep", no_argument, NULL, SLEEP},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_protocol(const char *text, enum bench_socket_protocol *out)
{
	for (int p = 0; p < BENCH_SOCKET_PROTOCOLS; p++) {
		if (!strcmp(text, bench_socket_protocols[p])) {
			*out = (enum bench_socket_protocol)p;
			return 0;
		}
	}
	return cmd_usage_error("--protocol must be memcached, meta or redis, not '%s'", text);
}

static int parse_connect(const char *text, struct bench_socket_opts *o)
{
	if (!strchr(text, ':') || strlen(text) >= sizeof(o->connect))
		return cmd_usage_error("--connect must be unix:PATH or HOST:PORT, not '%s'", text);
	strcpy(o->connect, text);
	return 0;
}

static int parse_cpu(const char *text, int *cpu)
{
	uint32_t n;

	*cpu = -1;
	if (!strcmp(text, "any"))
		return 0;
	if (cmd_count("--cpu", text, 0, BENCH_CPUS_MAX - 1, &n))
		return EXIT_USAGE;
	*cpu = (int)n;
	return 0;
}

static int parse_pids(const char *text, struct bench_socket_opts *o)
{
	char copy[BENCH_SOCKET_PIDS_MAX * 12], *rest = copy, *word;
	uint32_t pid;

	if (strlen(text) >= sizeof(copy))
		return cmd_usage_error("--pid takes up to %u numbers with commas between, not '%s'",
				       BENCH_SOCKET_PIDS_MAX, text);
	strcpy(copy, text);
	o->n_pids = 0;
	while ((word = strsep(&rest, ","))) {
		if (o->n_pids == BENCH_SOCKET_PIDS_MAX)
			return cmd_usage_error("--pid takes up to %u numbers, not '%s'",
					       BENCH_SOCKET_PIDS_MAX, text);
		if (cmd_count("--pid", word, 1, INT32_MAX, &pid))
			return EXIT_USAGE;
		o->pids[o->n_pids++] = (int)pid;
	}
	return 0;
}

static int parse_load(int option, struct bench_socket_opts *o)
{
	switch (option) {
	case KEYS:
		return cmd_count("--keys", optarg, 1, BENCH_SOCKET_KEYS_MAX, &o->keys);
	case KEY:
		return cmd_count("--key", optarg, KEYS_KEY_MIN, BENCH_SOCKET_KEY_MAX,
				 &o->key_bytes);
	case VALUE:
		return cmd_count("--value", optarg, 1, BENCH_SOCKET_VALUE_MAX, &o->value_bytes);
	case GET:
		return cmd_count("--get", optarg, 0, 100, &o->get_percent);
	case DIST:
		return bench_parse_dist(optarg, &o->zipf);
	case NO_FILL:
		o->fill = false;
		return 0;
	default:
		return cmd_real("--seconds", optarg, 0, BENCH_SECONDS_MAX, &o->seconds);
	}
}

static int parse_option(int option, struct request *r)
{
	struct bench_socket_opts *o = &r->opts;

	switch (option) {
	case CONNECT:
		return parse_connect(optarg, o);
	case PROTOCOL:
		return parse_protocol(optarg, &o->protocol);
	case CONNECTIONS:
		return cmd_count("--connections", optarg, 1, BENCH_SOCKET_CONNECTIONS_MAX,
				 &o->connections);
	case PIPELINE:
		return cmd_count("--pipeline", optarg, 1, BENCH_SOCKET_PIPELINE_MAX, &o->pipeline);
	case MULTIGET:
		return cmd_count("--multiget", optarg, 1, BENCH_SOCKET_PIPELINE_MAX, &o->multiget);
	case PID:
		return parse_pids(optarg, o);
	case CPU:
		return parse_cpu(optarg, &o->cpu);
	case NOREPLY:
		o->noreply = true;
		return 0;
	case SLEEP:
		o->sleep = true;
		return 0;
	case JSON:
		r->json = true;
		return 0;
	default:
		return parse_load(option, o);
	}
}

static int check(const struct bench_socket_opts *o)
{
	const uint64_t bytes = ((uint64_t)o->key_bytes + o->value_bytes) * o->pipeline;

	if (!o->connect[0])
		return cmd_usage_error("--connect is needed: unix:PATH or HOST:PORT");
	if (o->multiget > o->pipeline)
		return cmd_usage_error("--multiget must not exceed --pipeline, which is %u, not %u",
				       o->pipeline, o->multiget);
	if (o->multiget > 1 && o->protocol == BENCH_SOCKET_META)
		return cmd_usage_error("--multiget: a meta command has one key; --pipeline sends "
				       "several");
	if (o->noreply && o->protocol == BENCH_SOCKET_REDIS)
		return cmd_usage_error("--noreply: Redis has no such thing");
	if (bytes * o->connections > BENCH_SOCKET_MEMORY_MAX)
		return cmd_usage_error("--key plus --value, times --pipeline, times --connections "
				       "must not exceed %u MiB",
				       BENCH_SOCKET_MEMORY_MAX >> 20);
	if (!o->fill && o->seconds == 0)
		return cmd_usage_error("--seconds 0 and --no-fill leave nothing to do");
	return 0;
}

/* 0, or -1 and *status: print nothing more and leave with that. */
static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option, cpus[2];

	bench_pick_cpus(cpus);
	*r = (struct request){.opts = {.connections = 1,
				       .pipeline = 1,
				       .multiget = 1,
				       .keys = 1u << 20,
				       .key_bytes = 16,
				       .value_bytes = 32,
				       .get_percent = 95,
				       .fill = true,
				       .seconds = 1,
				       .cpu = cpus[0] == cpus[1] ? -1 : cpus[0]}};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "bench socket", status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = check(&r->opts);
	return *status ? -1 : 0;
}

#define PROGRESS_COLUMNS 24

static void show_progress(const char *what, double done)
{
	fprintf(stderr, "\r%-10s %3.0f %%", what, 100 * done);
}

int cmd_bench_socket(int argc, char **argv)
{
	const bool terminal = isatty(STDERR_FILENO);
	struct bench_socket_result result;
	struct request r;
	int status, rc;

	if (parse(argc, argv, &r, &status))
		return status;
	bench_stop_on_signals();
	r.opts.seed = gn_random();
	rc = bench_socket_run(&r.opts, terminal ? show_progress : NULL, &result);
	if (terminal)
		fprintf(stderr, "\r%*s\r", PROGRESS_COLUMNS, "");
	if (rc && rc != -EINTR)
		return EXIT_FAILURE;
	if (rc && result.seconds == 0) /* stopped before there was anything to say */
		return EXIT_INTERRUPTED;
	if (r.json) {
		bench_socket_print_json(stdout, &r.opts, &result);
	} else {
		bench_socket_print_head(stdout);
		bench_socket_print_row(stdout, &r.opts, &result);
	}
	status = cmd_flush_stdout();
	return rc ? EXIT_INTERRUPTED : status;
}
