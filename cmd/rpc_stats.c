/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc stats: what a running server has counted, asked for by a call like any other.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc_cmd.h"

#define ROOM_FIRST 65536u
#define TIMEOUT_MS 5000u

struct request {
	const char *addr;
	bool prometheus;
};

static const struct opt options[] = {
	OPT_SERVER(struct request, addr),
	{OPT_FLAG, "prometheus", NULL, "in Prometheus' text format instead of as a JSON object",
	 .to = offsetof(struct request, prometheus)},
	{.type = OPT_END},
};

/* Asking twice does no harm: so what is too large for the room is asked for again, with more. */
int rpc_stats_text(struct rpc_link *link, unsigned method, char **out)
{
	uint32_t room = ROOM_FIRST;
	struct gn_rpc_op op;
	char *text = NULL;
	int rc;

	do {
		free(text);
		text = malloc((size_t)room + 1);
		op = (struct gn_rpc_op){.method = method, .result = text, .result_room = room};
		rc = text ? rpc_link_call(link, &op, TIMEOUT_MS) : -ENOMEM;
		room = 2 * op.result_len; /* it may be longer by then */
	} while (!rc && op.status == GN_RPC_TOO_BIG && op.result_len > op.result_room);
	if (!rc && op.status != GN_RPC_OK) {
		fprintf(stderr, "gannet: %s: %s\n", link->addr, rpc_status_text(op.status));
		rc = -EIO;
	}
	if (rc) {
		free(text);
		return rc;
	}
	text[op.result_len] = '\0';
	*out = text;
	return 0;
}

static int rpc_stats_get(struct rpc_link *link, unsigned method)
{
	char *text = NULL;
	const int rc = rpc_stats_text(link, method, &text);

	if (rc)
		return rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
	fputs(text, stdout);
	if (*text && text[strlen(text) - 1] != '\n')
		putchar('\n');
	free(text);
	return cmd_flush_stdout();
}

static int rpc_stats_run(const struct args *args)
{
	const struct request *r = args->opts;
	struct rpc_link link;
	int status;

	if (rpc_link_open(&link, r->addr, NULL))
		return EXIT_FAILURE;
	status = rpc_stats_get(&link, r->prometheus ? GN_RPC_STATS_PROMETHEUS : GN_RPC_STATS_JSON);
	rpc_link_close(&link);
	return status;
}

const struct command command_rpc_stats = {
	.name = "stats",
	.what = "what a running server has counted",
	.about =
		"Prints a server's metrics: what it has counted since it began, and how long calls "
		"of each method took.",
	.run = rpc_stats_run,
	OPTIONS(options, struct request, .addr = NULL),
};
