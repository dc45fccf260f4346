/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc serve: a server to try calls with. It ends tidily: what is under way is answered.
 */
#include <stdio.h>
#include <stdlib.h>

#include "metrics.h"
#include "rpc_cmd.h"
#include "serving.h"

#define DRAIN_MS_DEFAULT 2000u
#define PARK_US_MAX	 10000000u

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *addr, *metrics;
	struct gn_rpc_server_opts opts;
	uint32_t drain_ms;
	bool any_user, verbose;
};

static const struct opt options[] = {
	OPT_LISTEN(struct request, addr),
	{OPT_U32, "threads", "N", "that serve", .unset = "1", AT(opts.threads), RANGE(1, 256)},
	{OPT_U32, "slots", "N", "requests that a client may have under way", .unset = "16",
	 AT(opts.max_slots), RANGE(1, GN_RPC_SLOTS_MAX)},
	{OPT_U32, "max-request", "N", "bytes in a slot; the server reads larger requests",
	 .unset = "4K", AT(opts.max_request), RANGE(1, GN_RPC_BYTES_MAX)},
	{OPT_U32, "max-result", "N", "the same of results", .unset = "4K", AT(opts.max_result),
	 RANGE(1, GN_RPC_BYTES_MAX)},
	{OPT_U32, "max-large", "N", "bytes of any request or result", .unset = "64M",
	 AT(opts.max_large), RANGE(1, GN_RPC_LARGE_MAX)},
	{OPT_U32, "max-clients", "N", "connections at once", .unset = "1024 for each thread",
	 AT(opts.max_clients), RANGE(1, SERVING_CLIENTS_MAX)},
	{OPT_U32, "max-window", "N", "calls of a client under way", .unset = "128 for each slot",
	 AT(opts.max_window), RANGE(1, GN_RPC_WINDOW_MAX)},
	{OPT_U64, "client-memory", "N", "bytes kept for one client", .unset = "see gannet(1)",
	 AT(opts.max_client_bytes), RANGE(SERVING_MEMORY_MIN, SERVING_MEMORY_MAX)},
	{OPT_U64, "conn-memory", "N", "bytes kept for all clients", .unset = "1G, or 4 clients",
	 AT(opts.max_bytes), RANGE(SERVING_MEMORY_MIN, SERVING_MEMORY_MAX)},
	{OPT_U32, "park-us", "N", "idle time until a client must wake the server", .unset = "1000",
	 AT(opts.park_us), RANGE(1, PARK_US_MAX)},
	{OPT_FLAG, "any-user", NULL,
	 "let in other users; both set GANNET_SHM_DIR to a folder they share", AT(any_user)},
	{OPT_U32, "drain-ms", "N", "for calls under way at the end", AT(drain_ms),
	 RANGE(0, 3600000)},
	OPT_METRICS(struct request, metrics),
	{OPT_FLAG, "verbose", NULL, "print connects and disconnects", AT(verbose)},
	{.type = OPT_END},
};

static int rpc_serve_start(const struct request *r, struct gn_fabric *fabric,
			   struct gn_rpc_server **out)
{
	struct gn_rpc_server *server = NULL;
	struct gn_rpc_server_opts opts = r->opts;
	int rc;

	opts.size = sizeof(opts);
	opts.listener_flags = serving_listener_flags(r->addr, r->any_user);
	opts.peer = r->verbose ? serving_tell_peer : NULL;
	rc = gn_rpc_server_create(fabric, r->addr, &opts, &server);

	for (unsigned i = 0; !rc && i < rpc_n_methods; i++)
		if (rpc_methods[i].handler)
			rc = gn_rpc_server_handle(server, rpc_methods[i].number,
						  rpc_methods[i].handler, NULL);
	if (!rc)
		rc = gn_rpc_server_start(server);
	if (rc) {
		fprintf(stderr, "gannet: cannot serve at %s: %s\n", r->addr, gn_strerror(rc));
		gn_rpc_server_destroy(server);
		return rc;
	}
	*out = server;
	return 0;
}

static int rpc_serve_drain(void *server, uint64_t deadline_ns)
{
	return gn_rpc_server_drain(server, deadline_ns);
}

static int rpc_serve_at(const void *arg, struct gn_fabric *fabric, const sigset_t *set)
{
	const struct request *r = arg;
	struct gn_rpc_counters counters = {.size = sizeof(counters)};
	struct metrics_source source = {.write = serving_metrics};
	struct gn_rpc_server *server;
	struct metrics *metrics;
	int signo, status;

	if (rpc_serve_start(r, fabric, &server))
		return EXIT_FAILURE;
	source.arg = server;
	if (metrics_start(r->metrics, &source, &metrics)) {
		gn_rpc_server_destroy(server);
		return EXIT_FAILURE;
	}
	serving_tell_metrics(stdout, metrics);
	printf("serving at %s with %u thread%s; Ctrl-C ends\n", r->addr,
	       r->opts.threads ? r->opts.threads : 1, r->opts.threads > 1 ? "s" : "");
	status = cmd_flush_stdout();
	signo = status ? SIGTERM : serving_wait(set, 0);
	metrics_stop(metrics);
	serving_drain(rpc_serve_drain, server, set, r->drain_ms,
		      "not every client has fetched its answers");
	gn_rpc_server_counters(server, &counters);
	gn_rpc_server_destroy(server);
	return status ? status : serving_end(stdout, counters.calls, signo);
}

static int rpc_serve_run(const struct args *args)
{
	const struct request *r = args->opts;

	return serving(r->addr, rpc_serve_at, r);
}

const struct command command_rpc_serve = {
	.name = "serve",
	.what = "a server with a few methods to try",
	.about = "Serves calls until Ctrl-C or SIGTERM.",
	.more = "Methods, by name or number: 0 echo answers the request's bytes, 1 upper the same "
		"in capitals, 2 time the server's clock, 3 work nothing after N microseconds' "
		"work, 4 blob N bytes of the alphabet, to 64M, 5 status nothing, with the status "
		"N; and ping, stats-json, stats-prometheus, which every server has.",
	.run = rpc_serve_run,
	OPTIONS(options, struct request, .drain_ms = DRAIN_MS_DEFAULT),
};
