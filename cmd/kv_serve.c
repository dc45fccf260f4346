/* SPDX-License-Identifier: MIT */
/*
 * gannet kv serve: a store for others. It ends tidily: what is under way is answered.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kv_cmd.h"
#include "metrics.h"
#include "rpc_cmd.h"
#include "serving.h"

#define MEMORY_DEFAULT	 (64ull << 20) /* for each thread */
#define DRAIN_MS_DEFAULT 2000u
#define CONN_BYTES	 393216u /* more than a connection takes, slots and window */
#define DRAIN_MS_MAX	 3600000u
#define STATS_S_MIN	 0.1
#define STATS_S_MAX	 86400.0
#define ASK_US		 1000000u /* for an answer to the statistics */
#define PARK_US		 50u	  /* sockets are slow: between a proxy's batches it may sleep */
#define PARK_US_MAX	 10000000u
#define MIB		 1048576.0

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *addr, *metrics;
	struct gn_kv_server_opts opts;
	uint32_t drain_ms;
	double stats_s; /* 0: never */
	bool bypass, json, any_user, verbose;
};

static int kv_serve_take_mode(const char *name, const char *text, void *to)
{
	*(bool *)to = !strcmp(text, "bypass");
	if (*(bool *)to || !strcmp(text, "call"))
		return 0;
	return cmd_usage_error(
		"%s must be call or bypass, not '%s'; whether results are fetched or "
		"replied is the client's choice",
		name, text);
}

static const char *const modes[] = {"call", "bypass", NULL};

static const struct opt options[] = {
	OPT_LISTEN(struct request, addr),
	{OPT_U32, "threads", "N", "that serve", AT(opts.threads), RANGE(1, GN_KV_THREADS_MAX)},
	{OPT_U64, "memory", "N", "for keys, values and index, in all", "64M for each thread",
	 AT(opts.memory), RANGE(GN_KV_MEMORY_MIN, GN_KV_MEMORY_MAX *GN_KV_THREADS_MAX)},
	{OPT_U32, "max-value", "N",
	 "bytes of a value, to a quarter of a thread's memory, or a sixteenth with --mode bypass",
	 "that", AT(opts.max_value), RANGE(1, GN_KV_VALUE_MAX)},
	{OPT_OTHER, "mode", "M",
	 "call: clients call for everything; bypass: they find values in this server's memory, "
	 "without it, and call for the rest",
	 "call", AT(bypass), .take = kv_serve_take_mode, .choices = modes},
	{OPT_U32, "max-clients", "N", "connections at once: a client has one to each thread",
	 "1024 for each", AT(opts.rpc.max_clients), RANGE(1, SERVING_CLIENTS_MAX)},
	{OPT_U64, "conn-memory", "N", "bytes for connections, beside --memory",
	 "128M for each thread, or a quarter of --memory", AT(opts.rpc.max_bytes),
	 RANGE(SERVING_MEMORY_MIN, SERVING_MEMORY_MAX)},
	{OPT_U32, "park-us", "N",
	 "idle time after which a client is not polled until it wakes its thread, which sleeps "
	 "when it polls none",
	 AT(opts.rpc.park_us), RANGE(1, PARK_US_MAX)},
	{OPT_REAL, "stats", "S", "a line with statistics every S seconds", "", AT(stats_s),
	 RANGE(STATS_S_MIN, STATS_S_MAX)},
	{OPT_FLAG, "json", NULL, "… as JSON objects, and what is for people on stderr", AT(json)},
	OPT_METRICS(struct request, metrics),
	{OPT_FLAG, "any-user", NULL,
	 "let in other users; both set GANNET_SHM_DIR to a folder they share", AT(any_user)},
	{OPT_U32, "drain-ms", "N", "for operations under way at the end", AT(drain_ms),
	 RANGE(0, DRAIN_MS_MAX)},
	{OPT_FLAG, "verbose", NULL,
	 "print connects and disconnects; a client connects to each thread", AT(verbose)},
	{.type = OPT_END},
};

static uint64_t value_part(const struct gn_kv_server_opts *o)
{
	return o->bypass ? GN_KV_VALUE_PART_BYPASS : GN_KV_VALUE_PART;
}

/* Bytes of the largest value that fits. */
static uint64_t value_most(const struct gn_kv_server_opts *o)
{
	const uint64_t most = o->memory / o->threads / value_part(o);

	return most < GN_KV_VALUE_MAX ? most : GN_KV_VALUE_MAX;
}

static int kv_serve_check_value(const struct gn_kv_server_opts *o)
{
	if (o->max_value <= value_most(o))
		return 0;
	return cmd_usage_error("--max-value %u needs --memory %" PRIu64 " with %u thread%s; with "
			       "%" PRIu64 " it is at most %" PRIu64,
			       o->max_value, value_part(o) * o->max_value * o->threads, o->threads,
			       o->threads > 1 ? "s" : "", o->memory, value_most(o));
}

/* If less than the default fits, and no option requested this. */
static void kv_serve_announce_value(const struct gn_kv_server_opts *o)
{
	if (o->max_value || value_most(o) == GN_KV_VALUE_MAX)
		return;
	fprintf(stderr,
		"gannet: values have at most %" PRIu64 " bytes: for %u, give --memory %" PRIu64
		"M%s\n",
		value_most(o), GN_KV_VALUE_MAX, value_part(o) * GN_KV_VALUE_MAX * o->threads >> 20,
		o->threads > 1 ? ", or fewer --threads" : "");
}

/*
 * A large value is read into memory of connections, of which a quarter is for newcomers, beside the
 * slots of its client; and half of what a connection may have is for the results of its calls.
 */
static void kv_serve_announce_memory(const struct gn_kv_server_opts *o)
{
	const uint64_t value = o->max_value ? o->max_value : value_most(o);
	const uint64_t alone = 2 * value + CONN_BYTES;
	const uint64_t all = (value + CONN_BYTES * o->threads) / 3 * 4;
	const uint64_t need = alone > all ? alone : all;

	if (o->rpc.max_bytes && o->rpc.max_bytes < need)
		fprintf(stderr,
			"gannet: --conn-memory %" PRIu64
			" is too little to store values of %" PRIu64 " bytes: give %" PRIu64
			"M, or a smaller --max-value\n",
			o->rpc.max_bytes, value, (need >> 20) + 1);
}

static int kv_serve_check_memory(struct gn_kv_server_opts *o)
{
	if (!o->memory)
		o->memory = MEMORY_DEFAULT * o->threads;
	if (o->memory < (uint64_t)GN_KV_MEMORY_MIN * o->threads ||
	    o->memory > GN_KV_MEMORY_MAX * o->threads)
		return cmd_usage_error("--memory must be from %uK to %lluG for each of %u "
				       "thread%s, not %" PRIu64 " bytes for all",
				       GN_KV_MEMORY_MIN >> 10, GN_KV_MEMORY_MAX >> 30, o->threads,
				       o->threads > 1 ? "s" : "", o->memory);
	return kv_serve_check_value(o);
}

/* ---- statistics ---- */

/* Partitions are their threads', and answer only a client: so the server is its own client, too. */
static int kv_serve_connect(const struct request *r, struct gn_fabric *fabric,
			    struct gn_kv_client **out)
{
	const struct gn_kv_client_opts opts = {.size = sizeof(opts),
					       .flags = GN_KV_CALL_ONLY | GN_KV_RECONNECT};

	return gn_kv_client_open(fabric, r->addr, &opts, out);
}

struct watch {
	struct gn_kv_client *client;
	struct gn_kv_stats last;
	uint64_t last_ns;
};

static uint64_t kv_serve_operations(const struct gn_kv_stats *s)
{
	return s->gets + s->sets + s->deletes + s->touches + s->numbers;
}

static void kv_serve_print_line(const struct gn_kv_stats *now, const struct gn_kv_stats *last,
				uint64_t clients, double seconds)
{
	const uint64_t gets = now->gets - last->gets;

	printf("%" PRIu64 " items, %.1f of %.1f MiB, %.0f operations/s, ", now->items,
	       (double)now->used / MIB, (double)now->memory / MIB,
	       (double)(kv_serve_operations(now) - kv_serve_operations(last)) / seconds);
	if (gets)
		printf("%.1f %% of GETs hit, ",
		       100 * (double)(now->hits - last->hits) / (double)gets);
	printf("%" PRIu64 " evicted, %" PRIu64 " connection%s\n",
	       now->evicted_bucket + now->evicted_log - last->evicted_bucket - last->evicted_log,
	       clients, clients == 1 ? "" : "s");
}

static void kv_serve_print_json(const struct gn_kv_stats *now, const struct gn_kv_stats *last,
				uint64_t clients, double seconds)
{
	putchar('{');
	bench_json_number(stdout, "seconds", seconds, 3);
	bench_json_count(stdout, "items", true, now->items);
	bench_json_count(stdout, "used", true, now->used);
	bench_json_count(stdout, "memory", true, now->memory);
	bench_json_count(stdout, "gets", true, now->gets - last->gets);
	bench_json_count(stdout, "hits", true, now->hits - last->hits);
	bench_json_count(stdout, "sets", true, now->sets - last->sets);
	bench_json_count(stdout, "operations", true,
			 kv_serve_operations(now) - kv_serve_operations(last));
	bench_json_count(stdout, "evicted", true,
			 now->evicted_bucket + now->evicted_log - last->evicted_bucket -
				 last->evicted_log);
	printf("\"connections\":%" PRIu64 "}\n", clients);
}

static void kv_serve_look(const struct request *r, struct watch *w, struct gn_kv_server *server)
{
	struct gn_rpc_counters calls = {.size = sizeof(calls)};
	struct gn_kv_stats now = {.size = sizeof(now)};
	const uint64_t now_ns = gn_now_ns();
	const int rc = gn_kv_client_stats(w->client, GN_KV_ALL, &now, gn_deadline_us(ASK_US));

	if (rc) {
		fprintf(stderr, "gannet: no statistics: %s\n", gn_strerror(rc));
		return;
	}
	gn_rpc_server_counters(gn_kv_server_rpc(server), &calls);
	/* Ours do not count. */
	calls.clients -= calls.clients < r->opts.threads ? calls.clients : r->opts.threads;
	if (w->last_ns)
		(r->json ? kv_serve_print_json : kv_serve_print_line)(
			&now, &w->last, calls.clients, (double)(now_ns - w->last_ns) / 1e9);
	w->last = now;
	w->last_ns = now_ns;
	fflush(stdout);
}

/* The signal that ends it. */
static int kv_serve_watch(const struct request *r, struct gn_fabric *fabric,
			  struct gn_kv_server *server, const sigset_t *set)
{
	struct watch w = {.last_ns = 0};
	int signo = 0;
	const int rc = kv_serve_connect(r, fabric, &w.client);

	if (rc) {
		fprintf(stderr, "gannet: no statistics: cannot connect to myself: %s\n",
			gn_strerror(rc));
		return serving_wait(set, 0);
	}
	kv_serve_look(r, &w, server);
	while (!signo) {
		signo = serving_wait(set, (uint64_t)(r->stats_s * 1000));
		kv_serve_look(r, &w, server);
	}
	gn_kv_client_close(w.client);
	return signo;
}

/* ---- metrics ---- */

/* For --metrics, in its thread. */
struct scraped {
	const struct request *request;
	struct gn_fabric *fabric;
	struct gn_kv_server *server;
	struct gn_kv_client *client;
};

static int kv_scraped_begin(void *arg)
{
	struct scraped *s = arg;

	return kv_serve_connect(s->request, s->fabric, &s->client);
}

static int kv_scraped_write(void *arg, char *buf, size_t room)
{
	struct scraped *s = arg;
	struct kv_report report;
	const int rc =
		kv_report_ask(s->client, s->request->opts.threads, gn_deadline_us(ASK_US), &report);
	const size_t len = rc ? 0 : kv_report_write(&report, buf, room);
	const bool fits = len < room;
	int more;

	free(report.parts);
	if (rc)
		return rc;
	more = serving_metrics(gn_kv_server_rpc(s->server), fits ? buf + len : NULL,
			       fits ? room - len : 0);
	return more < 0 ? more : (int)len + more;
}

static void kv_scraped_end(void *arg)
{
	struct scraped *s = arg;

	gn_kv_client_close(s->client);
}

/* ---- the server ---- */

static int kv_serve_drain(void *server, uint64_t deadline_ns)
{
	return gn_kv_server_drain(server, deadline_ns);
}

static int kv_serve_start(const struct request *r, struct gn_fabric *fabric,
			  struct gn_kv_server **out)
{
	struct gn_kv_server *server = NULL;
	int rc = gn_kv_server_create(fabric, r->addr, &r->opts, &server);

	if (!rc)
		rc = gn_kv_server_start(server);
	if (rc) {
		fprintf(stderr, "gannet: cannot serve at %s: %s\n", r->addr, gn_strerror(rc));
		gn_kv_server_destroy(server);
		return rc;
	}
	*out = server;
	return 0;
}

static int kv_serve_at(const void *arg, struct gn_fabric *fabric, const sigset_t *set)
{
	const struct request *r = arg;
	FILE *people = r->json ? stderr : stdout;
	struct gn_rpc_counters counters = {.size = sizeof(counters)};
	struct scraped scraped = {.request = r, .fabric = fabric};
	const struct metrics_source source = {&scraped, kv_scraped_begin, kv_scraped_write,
					      kv_scraped_end};
	struct gn_kv_server *server;
	struct metrics *metrics;
	int signo, status;

	if (kv_serve_start(r, fabric, &server))
		return EXIT_FAILURE;
	scraped.server = server;
	if (metrics_start(r->metrics, &source, &metrics)) {
		gn_kv_server_destroy(server);
		return EXIT_FAILURE;
	}
	serving_tell_metrics(people, metrics);
	kv_serve_announce_value(&r->opts);
	kv_serve_announce_memory(&r->opts);
	fprintf(people, "serving at %s with %u thread%s and %.1f MiB%s; Ctrl-C ends\n", r->addr,
		r->opts.threads, r->opts.threads > 1 ? "s" : "", (double)r->opts.memory / MIB,
		r->opts.bypass ? ", which clients read" : "");
	status = cmd_flush_stdout();
	signo = status	       ? SIGTERM :
		r->stats_s > 0 ? kv_serve_watch(r, fabric, server, set) :
				 serving_wait(set, 0);
	metrics_stop(metrics);
	serving_drain(kv_serve_drain, server, set, r->drain_ms,
		      "not every client has fetched its answers");
	gn_rpc_server_counters(gn_kv_server_rpc(server), &counters);
	gn_kv_server_destroy(server);
	return status ? status : serving_end(people, counters.calls, signo);
}

static int kv_serve_run(const struct args *args)
{
	struct request *r = args->opts;
	int status;

	r->opts.bypass = r->bypass;
	r->opts.rpc.listener_flags = serving_listener_flags(r->addr, r->any_user);
	r->opts.rpc.peer = r->verbose ? serving_tell_peer : NULL;
	status = kv_serve_check_memory(&r->opts);
	return status ? status : serving(r->addr, kv_serve_at, r);
}

const struct command command_kv_serve = {
	.name = "serve",
	.what = "a server that holds keys and values in memory",
	.about = "Holds keys and values for clients, until Ctrl-C or SIGTERM. Each thread owns a "
		 "part of the keys, and polls while clients call.",
	.run = kv_serve_run,
	OPTIONS(options, struct request, .drain_ms = DRAIN_MS_DEFAULT,
		.opts = {.size = sizeof(struct gn_kv_server_opts),
			 .threads = 1,
			 .rpc.park_us = PARK_US}),
};
