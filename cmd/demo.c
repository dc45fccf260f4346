/* SPDX-License-Identifier: MIT */
/*
 * gannet demo: a key-value store, three ways to ask it, and memcached's protocol in front of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/base.h>

#include "bench.h"
#include "cmd.h"
#include "command.h"
#include "demo.h"

static const char farewell[] =
	"\n"
	"Next, with the gannet that you have just run:\n"
	"\n"
	"  gannet kv serve --listen shm:mine --memory 256M   a store of your own; elsewhere:\n"
	"  gannet kv set --server shm:mine sea blue          and get, del, stats\n"
	"  gannet kv proxy --server shm:mine --listen 11211  for what speaks memcached\n"
	"  gannet bench kv --batch 32 --dist zipf:0.99       measure what you like\n"
	"  gannet doctor                                     is there RDMA hardware here?\n"
	"\n"
	"examples/kv.c is a program that uses the store, docs/kv.md explains it, and make check\n"
	"tests all of it, also in a simulated cluster with faults, and on emulated RDMA hardware.";

bool demo_on_terminal(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

struct demo {
	uint32_t rounds;
};

static const struct opt demo_options[] = {
	{OPT_U32, "rounds", "N", "of measurements; figures are their medians",
	 .to = offsetof(struct demo, rounds), RANGE(1, DEMO_ROUNDS_MAX)},
	{OPT_END},
};

static int demo_run(const struct args *args)
{
	const struct demo *demo = args->opts;
	int rc;

	bench_stop_on_signals();
	printf("Gannet %s: a key-value store whose clients fetch.\n\n", gn_version());
	rc = demo_race(demo->rounds);
	if (!rc)
		rc = demo_session();
	if (bench_stopped())
		return EXIT_INTERRUPTED;
	if (rc)
		return EXIT_FAILURE;
	puts(farewell);
	return cmd_flush_stdout();
}

const struct command command_demo = {
	.name = "demo",
	.what = "a key-value store at work, over shared memory, in 20 seconds",
	.about = "Starts a key-value store and a client, each a process, over shared memory in "
		 "place of a network card; shows how fast they are when results are fetched, "
		 "replied, or found without the server; then talks to a store as a client of "
		 "memcached's would. Takes about 20 seconds and needs no RDMA hardware. Nothing is "
		 "left behind.",
	.run = demo_run,
	OPTIONS(demo_options, struct demo, .rounds = 4),
};
