/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc tune: options, the tables, and the file that clients read. The measuring itself is in
 * bench/.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "bench.h"
#include "rpc_cmd.h"
#include "tune.h"

#define PORT	    7480u
#define SIM_CLIENTS 35u
#define SIM_THREADS 16u

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct tune_opts opts;
	const char *host, *serve, *to, *out;
	bool json;
};

static int rpc_tune_provider(const char *name, const char *text, void *to)
{
	struct tune_opts *o = to;

	(void)name;
	if (strcmp(text, "shm") && strcmp(text, "verbs") && strncmp(text, "verbs:", 6))
		return cmd_usage_error("--provider must be shm, verbs or verbs:DEVICE, not '%s'",
				       text);
	if (strlen(text) >= sizeof(o->provider))
		return cmd_usage_error("--provider is too long");
	memcpy(o->provider, text, strlen(text) + 1);
	return 0;
}

static const struct opt options[] = {
	{OPT_OTHER, "provider", "P", "shm, verbs or verbs:DEVICE", "shm", AT(opts),
	 .take = rpc_tune_provider},
	{OPT_TEXT, "addr", "HOST", "for verbs: this machine's address on the RDMA network",
	 AT(host)},
	{OPT_OTHER, "listen", "ADDR", "only the server, until Ctrl-C, for", AT(serve),
	 .take = cmd_take_addr},
	{OPT_OTHER, "server", "ADDR", "clients only, of a --listen on another machine", AT(to),
	 .take = cmd_take_addr},
	{OPT_TEXT, "profile", "P", "a simulated cluster of such cards instead (gannet sim profile)",
	 AT(opts.profile)},
	{OPT_U32, "clients", "N", "that call", "cores less the server's; simulated 35",
	 AT(opts.clients), RANGE(1, TUNE_CLIENTS_MAX)},
	{OPT_U32, "threads", "N", "of the server", "half of the cores; simulated 16",
	 AT(opts.threads), RANGE(1, TUNE_THREADS_MAX)},
	{OPT_REAL, "seconds", "S", "for all of it, if not simulated", AT(opts.seconds),
	 RANGE(0.1, BENCH_SECONDS_MAX)},
	{OPT_U64, "seed", "N", "of a simulation", AT(opts.seed)},
	{OPT_TEXT, "out", "FILE", "to write", AT(out)},
	{OPT_FLAG, "json", NULL, "one object instead of tables", AT(json)},
	{.type = OPT_END},
};

/* ---- what only makes sense together ---- */

static int rpc_tune_addr(struct tune_opts *o, const char *addr)
{
	if (strlen(addr) >= sizeof(o->addr))
		return cmd_usage_error("the address is too long: '%s'", addr);
	memcpy(o->addr, addr, strlen(addr) + 1);
	if (strncmp(addr, o->provider, strcspn(o->provider, ":")))
		snprintf(o->provider, sizeof(o->provider), "%.*s", (int)strcspn(addr, ":"), addr);
	return 0;
}

static int rpc_tune_check(struct request *r)
{
	struct tune_opts *o = &r->opts;
	const bool shm = !strcmp(o->provider, "shm");
	char addr[TUNE_ADDR_BYTES];

	if (r->serve && r->to)
		return cmd_usage_error(
			"--listen and --server are for two machines: one of them here");
	if (o->profile && (r->serve || r->to || r->host || !shm))
		return cmd_usage_error("--profile is simulated: leave --provider, --addr, --listen "
				       "and --server out");
	if (r->serve && (r->out || r->json || o->clients))
		return cmd_usage_error("--listen measures nothing: leave --clients, --out and "
				       "--json out");
	o->elsewhere = r->to;
	if (r->serve || r->to)
		return rpc_tune_addr(o, r->serve ? r->serve : r->to);
	if (!shm && !r->host)
		return cmd_usage_error("verbs needs --addr HOST, this machine's address on the "
				       "RDMA network; or --listen there, and --server here");
	if (shm && r->host)
		return cmd_usage_error("--addr is for verbs; shm needs none");
	if (o->profile)
		snprintf(addr, sizeof(addr), "sim:n0:%u", PORT);
	else if (shm)
		snprintf(addr, sizeof(addr), "shm:tune-%d", (int)getpid());
	else if ((size_t)snprintf(addr, sizeof(addr), "verbs:%s:%u", r->host, PORT) >= sizeof(addr))
		return cmd_usage_error("--addr is too long");
	return rpc_tune_addr(o, addr);
}

static void rpc_tune_defaults(struct tune_opts *o)
{
	const long online = sysconf(_SC_NPROCESSORS_ONLN);
	const uint32_t cores = online > 1 ? (uint32_t)online : 2;
	const uint32_t half = cores / 2 < TUNE_THREADS_MAX ? cores / 2 : TUNE_THREADS_MAX;

	if (!o->threads)
		o->threads = o->profile ? SIM_THREADS : half;
	if (!o->clients)
		o->clients = o->profile ? SIM_CLIENTS : cores > o->threads ? cores - o->threads : 1;
	if (o->clients > TUNE_CLIENTS_MAX)
		o->clients = TUNE_CLIENTS_MAX;
}

/* ---- */

/* Only on a terminal: a line that the tables overwrite. */
static void rpc_tune_progress(double done)
{
	fprintf(stderr, "\rtuning %3.0f %%", 100 * done);
}

/* Other processes on the cores disturb the measurement. */
static void rpc_tune_warn_load(const struct tune_opts *o)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	double load;

	if (!o->profile && getloadavg(&load, 1) == 1 && load > 0.5 * (double)cores)
		fprintf(stderr,
			"gannet: this machine is busy, with a load of %.1f on %ld cores; "
			"the figures will be better when it is not\n",
			load, cores);
}

static int rpc_tune_save(const char *path, const struct gn_rpc_tuning *tuning)
{
	const int rc = gn_rpc_tuning_write(path, tuning);

	if (rc) {
		fprintf(stderr, "gannet: cannot write %s: %s\n", path, cmd_why(rc));
		return EXIT_FAILURE;
	}
	fprintf(stderr, "written: clients take it with GANNET_RPC_TUNING=%s\n", path);
	return 0;
}

static int rpc_tune(const struct request *r)
{
	const bool terminal = isatty(STDERR_FILENO);
	struct tune_result result;
	int rc, status;

	rpc_tune_warn_load(&r->opts);
	rc = tune_run(&r->opts, terminal ? rpc_tune_progress : NULL, &result);

	if (terminal)
		fprintf(stderr, "\r%20s\r", "");
	if (rc && rc != -EINTR)
		return EXIT_FAILURE;
	if (result.tuning.n_sizes && r->json)
		tune_print_json(stdout, &r->opts, &result);
	else if (result.tuning.n_sizes)
		tune_print(stdout, &r->opts, &result);
	status = cmd_flush_stdout();
	if (rc)
		return EXIT_INTERRUPTED;
	return status || !r->out ? status : rpc_tune_save(r->out, &result.tuning);
}

static int rpc_tune_run(const struct args *args)
{
	struct request *r = args->opts;
	int status = rpc_tune_check(r);

	if (!status && r->opts.profile)
		status = cmd_sim_check(&(struct gn_sim_opts){.size = sizeof(struct gn_sim_opts),
							     .profile = r->opts.profile,
							     .nodes = 2});
	if (status)
		return status;
	rpc_tune_defaults(&r->opts);
	bench_stop_on_signals();
	if (!r->serve)
		return rpc_tune(r);
	return tune_serve(&r->opts) == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
}

const struct command command_rpc_tune = {
	.name = "tune",
	.what = "measure a network, and when to fetch on it",
	.about = "Measures what calls a network can carry, and until when results are better "
		 "fetched than written back; shows it, and writes the file that GANNET_RPC_TUNING "
		 "names to clients. Server and clients are threads of this process, unless told "
		 "otherwise.",
	.run = rpc_tune_run,
	OPTIONS(options, struct request, .opts = {.provider = "shm", .seconds = 10, .seed = 1}),
};
