/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc serve: a server to try calls with. It ends tidily: what is under way is answered.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc_cmd.h"
#include "serving.h"

#define DRAIN_MS_DEFAULT 2000u
#define PARK_US_MAX	 10000000u

static const char help[] =
	"Usage: gannet rpc serve ADDR [OPTION…]\n"
	"\n"
	"Serves calls at shm:NAME or verbs:HOST:PORT until Ctrl-C or SIGTERM.\n"
	"\n"
	"  --threads N      1 to 256 (1)\n"
	"  --slots N        requests that a client may have under way, 1 to 1024 (16)\n"
	"  --max-request N  bytes in a slot, to 1M; the server reads larger ones (4K)\n"
	"  --max-result N   the same; clients read larger ones (4K)\n"
	"  --max-large N    bytes of anything, to 64M (64M)\n"
	"  --max-clients N  connections at once (1024 for each thread)\n"
	"  --max-window N   calls of a client under way, to 32768 (128 for each slot)\n"
	"  --client-memory N  bytes kept for one client, max_client_bytes in the log (its\n"
	"                   slots, a window of results and 4 times --max-large)\n"
	"  --conn-memory N  bytes kept for all clients, max_bytes in the log (1G, or 4 clients)\n"
	"  --park-us N      idle time after which a client has to wake the server (1000)\n"
	"  --any-user       let in other users of this machine\n"
	"  --drain-ms N     for calls under way at the end (2000)\n"
	"  --verbose        say who comes and goes\n"
	"\n"
	"Methods, by name or number, and what they answer:\n"
	"  0 echo    the request's bytes     3 work    nothing, after N microseconds' work\n"
	"  1 upper   the same in capitals    4 blob    N bytes of the alphabet, to 64M\n"
	"  2 time    the server's clock      5 status  nothing, with the status N\n"
	"and ping, stats-json, stats-prometheus, which every server has.";

struct request {
	const char *addr;
	struct gn_rpc_server_opts opts;
	uint32_t drain_ms;
};

enum {
	THREADS = 256,
	SLOTS,
	REQUEST,
	RESULT,
	LARGE,
	CLIENTS,
	WINDOW,
	CLIENT_MEMORY,
	CONN_MEMORY,
	PARK,
	ANY_USER,
	DRAIN,
	VERBOSE
};

static const struct option options[] = {
	{"threads", required_argument, NULL, THREADS},
	{"slots", required_argument, NULL, SLOTS},
	{"max-request", required_argument, NULL, REQUEST},
	{"max-result", required_argument, NULL, RESULT},
	{"max-large", required_argument, NULL, LARGE},
	{"max-clients", required_argument, NULL, CLIENTS},
	{"max-window", required_argument, NULL, WINDOW},
	{"client-memory", required_argument, NULL, CLIENT_MEMORY},
	{"conn-memory", required_argument, NULL, CONN_MEMORY},
	{"park-us", required_argument, NULL, PARK},
	{"any-user", no_argument, NULL, ANY_USER},
	{"drain-ms", required_argument, NULL, DRAIN},
	{"verbose", no_argument, NULL, VERBOSE},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_option(int option, struct request *r)
{
	struct gn_rpc_server_opts *o = &r->opts;

	switch (option) {
	case THREADS:
		return cmd_count("--threads", optarg, 1, 256, &o->threads);
	case SLOTS:
		return cmd_count("--slots", optarg, 1, GN_RPC_SLOTS_MAX, &o->max_slots);
	case REQUEST:
		return cmd_count("--max-request", optarg, 1, GN_RPC_BYTES_MAX, &o->max_request);
	case RESULT:
		return cmd_count("--max-result", optarg, 1, GN_RPC_BYTES_MAX, &o->max_result);
	case LARGE:
		return cmd_count("--max-large", optarg, 1, GN_RPC_LARGE_MAX, &o->max_large);
	case CLIENTS:
		return cmd_count("--max-clients", optarg, 1, SERVING_CLIENTS_MAX, &o->max_clients);
	case WINDOW:
		return cmd_count("--max-window", optarg, 1, GN_RPC_WINDOW_MAX, &o->max_window);
	case CLIENT_MEMORY:
		return cmd_number("--client-memory", optarg, SERVING_MEMORY_MIN, SERVING_MEMORY_MAX,
				  &o->max_client_bytes);
	case CONN_MEMORY:
		return cmd_number("--conn-memory", optarg, SERVING_MEMORY_MIN, SERVING_MEMORY_MAX,
				  &o->max_bytes);
	case PARK:
		return cmd_count("--park-us", optarg, 1, PARK_US_MAX, &o->park_us);
	case ANY_USER:
		o->listener_flags |= GN_ANY_USER;
		return 0;
	case DRAIN:
		return cmd_count("--drain-ms", optarg, 0, 3600000, &r->drain_ms);
	default:
		o->peer = serving_tell_peer;
		return 0;
	}
}

static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.drain_ms = DRAIN_MS_DEFAULT};
	*status = 0;
	while (!*status &&
	       (option = cmd_option_of(argc, argv, options, help, "rpc serve", 1, status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	r->addr = argv[optind];
	if (!*status)
		*status = rpc_check_addr(r->addr, "rpc serve");
	return *status ? -1 : 0;
}

static int start(const struct request *r, struct gn_fabric *fabric, struct gn_rpc_server **out)
{
	struct gn_rpc_server *server = NULL;
	struct gn_rpc_server_opts opts = r->opts;
	int rc;

	opts.size = sizeof(opts);
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

static int drain(void *server, uint64_t deadline_ns)
{
	return gn_rpc_server_drain(server, deadline_ns);
}

static int serve(const void *arg, struct gn_fabric *fabric, const sigset_t *set)
{
	const struct request *r = arg;
	struct gn_rpc_counters counters = {.size = sizeof(counters)};
	struct gn_rpc_server *server;
	int signo, status;

	if (start(r, fabric, &server))
		return EXIT_FAILURE;
	printf("serving at %s with %u thread%s; Ctrl-C ends\n", r->addr,
	       r->opts.threads ? r->opts.threads : 1, r->opts.threads > 1 ? "s" : "");
	status = cmd_flush_stdout();
	signo = status ? SIGTERM : serving_wait(set, 0);
	serving_drain(drain, server, set, r->drain_ms);
	gn_rpc_server_counters(server, &counters);
	gn_rpc_server_destroy(server);
	return status ? status : serving_end(counters.calls, signo);
}

int cmd_rpc_serve(int argc, char **argv)
{
	struct request r;
	int status;

	return parse(argc, argv, &r, &status) ? status : serving(r.addr, serve, &r);
}
