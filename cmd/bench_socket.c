/* SPDX-License-Identifier: MIT */
/*
 * gannet bench socket: options, and what to print. The measuring itself is in bench/.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "bench_cmd.h"
#include "keys.h"
#include "socket.h"

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct bench_socket_opts opts;
	bool no_fill, json;
};

static int take_cpu(const char *name, const char *text, void *to)
{
	int *cpu = to;
	uint32_t n;

	*cpu = -1;
	if (!strcmp(text, "any"))
		return 0;
	if (cmd_count(name, text, 0, BENCH_CPUS_MAX - 1, &n))
		return EXIT_USAGE;
	*cpu = (int)n;
	return 0;
}

static int take_pids(const char *name, const char *text, void *to)
{
	struct bench_socket_opts *o = &((struct request *)to)->opts;
	char copy[BENCH_SOCKET_PIDS_MAX * 12], *rest = copy, *word;
	uint32_t pid;

	if (strlen(text) >= sizeof(copy))
		return cmd_usage_error("%s takes up to %u numbers with commas between, not '%s'",
				       name, BENCH_SOCKET_PIDS_MAX, text);
	strcpy(copy, text);
	o->n_pids = 0;
	while ((word = strsep(&rest, ","))) {
		if (o->n_pids == BENCH_SOCKET_PIDS_MAX)
			return cmd_usage_error("%s takes up to %u numbers, not '%s'", name,
					       BENCH_SOCKET_PIDS_MAX, text);
		if (cmd_count(name, word, 1, INT32_MAX, &pid))
			return EXIT_USAGE;
		o->pids[o->n_pids++] = (int)pid;
	}
	return 0;
}

static const struct opt options[] = {
	{OPT_CHARS, "server", "ADDR", "unix:PATH or HOST:PORT", .required = true,
	 OPT_ARRAY(struct request, opts.connect)},
	{OPT_CHOICE, "protocol", "P",
	 "memcached: its text commands; meta: its meta commands; redis", AT(opts.protocol),
	 .choices = bench_socket_protocols},
	{OPT_U32, "connections", "C", "at once", AT(opts.connections),
	 RANGE(1, BENCH_SOCKET_CONNECTIONS_MAX)},
	{OPT_U32, "pipeline", "N",
	 "operations that each has under way: it sends so many, and the next when all are answered",
	 AT(opts.pipeline), RANGE(1, BENCH_SOCKET_PIPELINE_MAX)},
	{OPT_U32, "multiget", "M", "keys that one command gets; for Redis, also stores",
	 AT(opts.multiget), RANGE(1, BENCH_SOCKET_PIPELINE_MAX)},
	{OPT_FLAG, "noreply", NULL, "what is stored is not acknowledged; memcached and meta only",
	 AT(opts.noreply)},
	{OPT_U32, "keys", "N", "that there are", AT(opts.keys), RANGE(1, BENCH_SOCKET_KEYS_MAX)},
	{OPT_U32, "key", "N", "bytes of a key", AT(opts.key_bytes),
	 RANGE(KEYS_KEY_MIN, BENCH_SOCKET_KEY_MAX)},
	{OPT_U32, "value", "N", "bytes of a value", AT(opts.value_bytes),
	 RANGE(1, BENCH_SOCKET_VALUE_MAX)},
	{OPT_U32, "get", "PERCENT", "of the operations; the others store", AT(opts.get_percent),
	 RANGE(0, 100)},
	{OPT_OTHER, "dist", "D", "which keys: uniform, or zipf:S with S to 5", "uniform",
	 AT(opts.zipf), .take = bench_take_dist},
	{OPT_FLAG, "no-fill", NULL, "the keys are there already", AT(no_fill)},
	{OPT_REAL, "seconds", "S", "measured; 0: only fill", AT(opts.seconds),
	 RANGE(0, BENCH_SECONDS_MAX)},
	{OPT_OTHER, "pid", "PID",
	 "the server's, with commas: says what CPU time and memory they took", .take = take_pids},
	{OPT_OTHER, "cpu", "N", "to run on, or any", "the first", AT(opts.cpu), .take = take_cpu},
	{OPT_FLAG, "sleep", NULL,
	 "wait for answers asleep; else poll for them, so that no server has to wake us",
	 AT(opts.sleep)},
	{OPT_FLAG, "json", NULL, "one object a line", AT(json)},
	{.type = OPT_END},
};

static int bench_socket_check(const struct bench_socket_opts *o)
{
	const uint64_t bytes = ((uint64_t)o->key_bytes + o->value_bytes) * o->pipeline;

	if (!strchr(o->connect, ':'))
		return cmd_usage_error("--server must be unix:PATH or HOST:PORT, not '%s'",
				       o->connect);
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

#define PROGRESS_COLUMNS 24

static void show_progress(const char *what, double done)
{
	fprintf(stderr, "\r%-10s %3.0f %%", what, 100 * done);
}

static int bench_socket_main(const struct args *args)
{
	const bool terminal = isatty(STDERR_FILENO);
	struct request *r = args->opts;
	struct bench_socket_result result;
	int status, rc, cpus[2];

	if (!opt_given(args, "cpu")) {
		bench_pick_cpus(cpus);
		r->opts.cpu = cpus[0] == cpus[1] ? -1 : cpus[0];
	}
	r->opts.fill = !r->no_fill;
	status = bench_socket_check(&r->opts);
	if (status)
		return status;
	bench_stop_on_signals();
	r->opts.seed = gn_random();
	rc = bench_socket_run(&r->opts, terminal ? show_progress : NULL, &result);
	if (terminal)
		fprintf(stderr, "\r%*s\r", PROGRESS_COLUMNS, "");
	if (rc && rc != -EINTR)
		return EXIT_FAILURE;
	if (rc && result.seconds == 0) /* stopped before there was anything to say */
		return EXIT_INTERRUPTED;
	if (r->json) {
		bench_socket_print_json(stdout, &r->opts, &result);
	} else {
		bench_socket_print_head(stdout);
		bench_socket_print_row(stdout, &r->opts, &result);
	}
	status = cmd_flush_stdout();
	return rc ? EXIT_INTERRUPTED : status;
}

const struct command command_bench_socket = {
	.name = "socket",
	.what = "memcached, Redis and gannet kv proxy under one load",
	.about = "A load for memcached, Redis, and what speaks as they do, gannet kv proxy for "
		 "one. Every value that comes back is checked.",
	.more = "p50 and p99 are of what a connection sends at once, from sending it to its last "
		"answer.",
	.run = bench_socket_main,
	OPTIONS(options, struct request,
		.opts = {.connections = 1,
			 .pipeline = 1,
			 .multiget = 1,
			 .keys = 1u << 20,
			 .key_bytes = 16,
			 .value_bytes = 32,
			 .get_percent = 95,
			 .seconds = 1}),
};
