/* SPDX-License-Identifier: MIT */
/* gannet donor serve: lends memory until a signal, and asks clients to move away before it ends. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include <gannet/rpc.h>

#include "bench.h"
#include "donor_cmd.h"
#include "metrics.h"
#include "rpc_cmd.h"
#include "serving.h"

#define DRAIN_MS_DEFAULT 10000u
#define MS_MAX		 86400000u
#define STATS_S_MIN	 0.1
#define STATS_S_MAX	 86400.0
#define MEMORY_MAX	 (1ull << 46)
#define CONNS_MAX	 1000000u
#define MIB		 1048576.0

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *addr, *metrics;
	struct gn_donor_server_opts opts;
	uint32_t lease_ms, silence_ms, take_back_ms, drain_ms;
	double stats_s; /* 0: never */
	bool json, any_user;
};

static const struct opt options[] = {
	OPT_LISTEN(struct request, addr),
	{OPT_U64, "memory", "N", "to lend, in all", "", AT(opts.memory), .required = true,
	 RANGE(GN_PAGE, MEMORY_MAX)},
	{OPT_U64, "slab", "N", "bytes of a slab, a multiple of 4096", AT(opts.slab),
	 RANGE(GN_PAGE, GN_DONOR_SLAB_MAX)},
	{OPT_U32, "ready", "N", "slabs kept ready to be granted", AT(opts.ready),
	 RANGE(1, GN_DONOR_SLABS_MAX)},
	{OPT_U64, "reserve", "N", "asks clients for slabs while the system has less", "none",
	 AT(opts.reserve), RANGE(1, MEMORY_MAX)},
	{OPT_U32, "take-back-ms", "N", "then slabs that were asked for are taken", AT(take_back_ms),
	 RANGE(1, MS_MAX)},
	{OPT_U32, "lease-ms", "N", "slabs are kept after a disconnect", AT(lease_ms),
	 RANGE(1, MS_MAX)},
	{OPT_U32, "silence-ms", "N", "… without a sign of life", AT(silence_ms), RANGE(1, MS_MAX)},
	{OPT_U32, "max-sessions", "N", "clients at once", AT(opts.max_sessions),
	 RANGE(1, CONNS_MAX)},
	{OPT_U32, "client-slabs", "N", "of one client", "all", AT(opts.max_client_slabs),
	 RANGE(1, GN_DONOR_SLABS_MAX)},
	{OPT_U32, "max-shares", "N", "shared ranges, of all clients", AT(opts.max_shares),
	 RANGE(1, CONNS_MAX)},
	{OPT_U32, "max-conns", "N", "data connections, of all clients", AT(opts.max_conns),
	 RANGE(1, CONNS_MAX)},
	{OPT_REAL, "stats", "S", "a line with statistics every S seconds", "", AT(stats_s),
	 RANGE(STATS_S_MIN, STATS_S_MAX)},
	{OPT_FLAG, "json", NULL, "… as JSON objects, and what is for people on stderr", AT(json)},
	OPT_METRICS(struct request, metrics),
	{OPT_FLAG, "any-user", NULL,
	 "let in other users; both set GANNET_SHM_DIR to a folder they share", AT(any_user)},
	{OPT_U32, "drain-ms", "N", "for clients to return their slabs at the end", AT(drain_ms),
	 RANGE(0, MS_MAX)},
	{.type = OPT_END},
};

/* ---- statistics ---- */

static void donor_serve_print(const struct request *r, struct gn_donor_server *server)
{
	struct gn_donor_stats s = {.size = sizeof(s)};

	gn_donor_server_stats(server, &s);
	if (r->json) {
		putchar('{');
		donor_stats_print_json(&s, stdout);
		puts("}");
	} else {
		printf("%" PRIu64 " of %" PRIu64 " slabs granted, %" PRIu64 " ready, %" PRIu64
		       " session%s, %" PRIu64 " orphan%s, %" PRIu64 " data connection%s%s\n",
		       s.granted, s.slabs, s.ready, s.sessions, s.sessions == 1 ? "" : "s",
		       s.orphans, s.orphans == 1 ? "" : "s", s.conns, s.conns == 1 ? "" : "s",
		       s.asked ? ", memory is short" : "");
	}
	fflush(stdout);
}

/* Returns the signal that ends it. */
static int donor_serve_watch(const struct request *r, struct gn_donor_server *server,
			     const sigset_t *set)
{
	int signo = 0;

	while (!signo) {
		signo = serving_wait(set, (uint64_t)(r->stats_s * 1000));
		if (r->stats_s > 0)
			donor_serve_print(r, server);
	}
	return signo;
}

static int donor_serve_metrics(void *server, char *buf, size_t room)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	size_t len;
	bool fits;
	int more;

	gn_donor_server_stats(server, &stats);
	len = donor_stats_prometheus(&stats, buf, room);
	fits = len < room;
	more = serving_metrics(gn_donor_server_rpc(server), fits ? buf + len : NULL,
			       fits ? room - len : 0);
	return more < 0 ? more : (int)len + more;
}

/* ---- the donor ---- */

static int donor_serve_drain(void *server, uint64_t deadline_ns)
{
	return gn_donor_server_drain(server, deadline_ns);
}

static int donor_serve_start(const struct request *r, struct gn_fabric *fabric,
			     struct gn_donor_server **out)
{
	struct gn_donor_server *server = NULL;
	int rc = gn_donor_server_create(fabric, r->addr, &r->opts, &server);

	if (!rc)
		rc = gn_donor_server_start(server);
	if (rc) {
		fprintf(stderr, "gannet: cannot serve at %s: %s\n", r->addr, cmd_why(rc));
		gn_donor_server_destroy(server);
		return rc;
	}
	*out = server;
	return 0;
}

/* Warns of memory that the machine may not have. */
static void donor_serve_check_memory(const struct request *r, struct gn_donor_server *server)
{
	struct gn_donor_stats s = {.size = sizeof(s)};

	gn_donor_server_stats(server, &s);
	if (s.available && r->opts.memory > s.available && !r->opts.reserve)
		fprintf(stderr,
			"gannet: --memory is more than the %.1f MiB that are available now; with "
			"--reserve N the donor keeps N bytes for this machine\n",
			(double)s.available / MIB);
}

static void donor_serve_leave(const struct request *r, struct gn_donor_server *server, FILE *people)
{
	struct gn_donor_stats s = {.size = sizeof(s)};

	gn_donor_server_leave(server, gn_deadline_us((uint64_t)r->drain_ms * 1000));
	gn_donor_server_stats(server, &s);
	if (!s.granted)
		return;
	fprintf(people,
		"asking clients to return %" PRIu64 " slab%s within %.1f s; another signal ends at "
		"once\n",
		s.granted, s.granted == 1 ? "" : "s", r->drain_ms / 1e3);
	fflush(people);
}

static int donor_serve_at(const void *arg, struct gn_fabric *fabric, const sigset_t *set)
{
	const struct request *r = arg;
	FILE *people = r->json ? stderr : stdout;
	struct gn_rpc_counters counters = {.size = sizeof(counters)};
	struct metrics_source source = {.write = donor_serve_metrics};
	struct gn_donor_server *server;
	struct metrics *metrics;
	int signo, status;

	if (donor_serve_start(r, fabric, &server))
		return EXIT_FAILURE;
	source.arg = server;
	if (metrics_start(r->metrics, &source, &metrics)) {
		gn_donor_server_destroy(server);
		return EXIT_FAILURE;
	}
	donor_serve_check_memory(r, server);
	serving_tell_metrics(people, metrics);
	fprintf(people, "lending %.1f MiB at %s in slabs of %.1f MiB; Ctrl-C ends\n",
		(double)r->opts.memory / MIB, r->addr, (double)r->opts.slab / MIB);
	fflush(people);
	status = cmd_flush_stdout();
	signo = status ? SIGTERM : donor_serve_watch(r, server, set);
	metrics_stop(metrics);
	donor_serve_leave(r, server, people);
	serving_drain(donor_serve_drain, server, set, r->drain_ms,
		      "clients have not returned all slabs: what those held is lost");
	gn_rpc_server_counters(gn_donor_server_rpc(server), &counters);
	gn_donor_server_destroy(server);
	return status ? status : serving_end(people, counters.calls, signo);
}

static int donor_serve_run(const struct args *args)
{
	struct request *r = args->opts;
	struct gn_donor_server_opts *o = &r->opts;

	if (o->slab % GN_PAGE)
		return cmd_usage_error("--slab must be a multiple of %u, not %" PRIu64, GN_PAGE,
				       o->slab);
	if (o->memory < o->slab)
		return cmd_usage_error(
			"--memory has no space for a slab of %.1f MiB: lend more, or "
			"set a smaller --slab",
			(double)o->slab / MIB);
	if (o->memory / o->slab > GN_DONOR_SLABS_MAX)
		return cmd_usage_error(
			"--memory has space for more than %u slabs of %.1f MiB: lend "
			"less, or set a larger --slab",
			GN_DONOR_SLABS_MAX, (double)o->slab / MIB);
	o->lease_us = r->lease_ms * 1000ull;
	o->silence_us = r->silence_ms * 1000ull;
	o->take_back_us = r->take_back_ms * 1000ull;
	o->listener_flags = serving_listener_flags(r->addr, r->any_user);
	return serving(r->addr, donor_serve_at, r);
}

const struct command command_donor_serve = {
	.name = "serve",
	.what = "lends memory of this machine",
	.about = "Lends memory in slabs, until Ctrl-C or SIGTERM. Clients read and write their "
		 "slabs without this process. A signal asks them to return their slabs first; "
		 "another one ends at once.",
	.run = donor_serve_run,
	OPTIONS(options, struct request, .lease_ms = 30000, .silence_ms = 600000,
		.take_back_ms = 10000, .drain_ms = DRAIN_MS_DEFAULT,
		.opts = {.size = sizeof(struct gn_donor_server_opts),
			 .slab = GN_DONOR_SLAB_DEFAULT,
			 .ready = 2,
			 .max_sessions = GN_DONOR_SESSIONS_DEFAULT,
			 .max_shares = GN_DONOR_SHARES_DEFAULT,
			 .max_conns = GN_DONOR_CONNS_DEFAULT}),
};
