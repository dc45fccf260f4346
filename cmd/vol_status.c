/* SPDX-License-Identifier: MIT */
/* gannet vol status: the state of a volume, from the monitor in the process that has it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "metrics.h"
#include "rpc_cmd.h"
#include "serving.h"
#include "vol_cmd.h"

#define TIMEOUT_MS_MAX 3600000u
#define INTERVAL_S_MIN 0.05
#define INTERVAL_S_MAX 86400.0
#define SCRAPE_US      1000000u

struct request {
	const char *addr, *metrics;
	uint32_t timeout_ms;
	double watch_s; /* 0: once */
	bool json, prometheus;
};

#define TO(member) .to = offsetof(struct request, member)

static const struct opt options[] = {
	{OPT_OTHER, "server", "ADDR", "of the volume's monitor: shm:NAME or verbs:HOST:PORT",
	 TO(addr), .take = cmd_take_addr, .required = true},
	{OPT_U32, "timeout-ms", "N", "to connect, and for the answer", TO(timeout_ms),
	 RANGE(1, TIMEOUT_MS_MAX)},
	{OPT_REAL, "watch", "S", "again every S seconds, until Ctrl-C or the volume ends", "once",
	 TO(watch_s), RANGE(INTERVAL_S_MIN, INTERVAL_S_MAX)},
	{OPT_FLAG, "json", NULL, "a JSON object per line", TO(json)},
	{OPT_FLAG, "prometheus", NULL, "in Prometheus' text format", TO(prometheus)},
	OPT_METRICS(struct request, metrics),
	{.type = OPT_END},
};

/* ---- asking ---- */

struct monitor_link {
	const struct request *request;
	struct gn_fabric *fabric;
	struct gn_rpc_client *rpc;
};

/* No monitor is there: an address of a donor, for instance. */
static void link_failed(const char *addr, int rc)
{
	const char *why = cmd_why(rc);
	const bool named = strstr(why, addr);
	const bool wrong = rc == -EPROTO || (rc == -ECONNREFUSED && !strstr(why, "refuses"));

	fprintf(stderr, "gannet: %s%s%s%s\n", named ? "" : addr, named ? "" : ": ", why,
		wrong ? "; --server is the address that the volume's command has as --monitor" :
			"");
}

static int link_connect(struct monitor_link *link)
{
	const struct gn_rpc_client_opts opts = {.size = sizeof(opts),
						.flags = GN_RPC_RECONNECT,
						.timeout_us = link->request->timeout_ms * 1000ull};
	const int rc = gn_rpc_client_open(link->fabric, link->request->addr, &opts, &link->rpc);

	if (rc)
		link_failed(link->request->addr, rc);
	return rc;
}

static int link_query(const struct monitor_link *link, struct gn_vol_stats *out)
{
	const struct request *r = link->request;

	out->size = sizeof(*out);
	return gn_vol_monitor_query(link->rpc, out, gn_deadline_us((uint64_t)r->timeout_ms * 1000));
}

/* ---- once, or again and again ---- */

static int stats_write(void *stats, char *buf, size_t room)
{
	return (int)vol_stats_prometheus(stats, buf, room);
}

/* before: what was printed last, or NULL. */
static int status_print(const struct request *r, struct gn_vol_stats *stats,
			const struct gn_vol_stats *before)
{
	char *text;
	int rc;

	if (r->json) {
		putchar('{');
		bench_json_string(stdout, "addr", r->addr);
		vol_stats_print_json(stats, stdout);
		puts("}");
	} else if (r->prometheus) {
		rc = metrics_text(stats_write, stats, &text);
		if (rc)
			return rc;
		fputs(text, stdout);
		free(text);
	} else if (before) {
		vol_stats_print_changes(before, stats, stdout);
	} else {
		vol_stats_print(stats, stdout);
	}
	return cmd_flush_stdout() ? -EIO : 0;
}

static int status_watch(const struct request *r, const struct monitor_link *link,
			const sigset_t *set)
{
	struct gn_vol_stats stats, before;
	int rc = link_query(link, &stats), signo = 0;

	if (!rc)
		rc = status_print(r, &stats, NULL);
	while (!rc && r->watch_s > 0 && !signo) {
		before = stats;
		signo = serving_wait(set, (uint64_t)(r->watch_s * 1000));
		if (!signo)
			rc = link_query(link, &stats);
		if (!signo && !rc)
			rc = status_print(r, &stats, &before);
	}
	if (rc == -ECONNRESET && r->watch_s > 0)
		fprintf(stderr, "gannet: %s: the volume has ended, or its process was killed\n",
			r->addr);
	else if (rc)
		link_failed(r->addr, rc);
	return rc ? EXIT_FAILURE : signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

/* ---- for Prometheus: each scrape asks the volume ---- */

static int scrape_begin(void *arg)
{
	return link_connect(arg);
}

static int scrape_write(void *arg, char *buf, size_t room)
{
	struct monitor_link *link = arg;
	struct gn_vol_stats stats = {.size = sizeof(stats)};
	const int rc = gn_vol_monitor_query(link->rpc, &stats, gn_deadline_us(SCRAPE_US));

	return rc ? rc : (int)vol_stats_prometheus(&stats, buf, room);
}

static void scrape_end(void *arg)
{
	struct monitor_link *link = arg;

	gn_rpc_client_close(link->rpc);
	link->rpc = NULL;
}

static int status_export(const struct request *r, struct monitor_link *link, const sigset_t *set)
{
	const struct metrics_source source = {
		.arg = link, .begin = scrape_begin, .write = scrape_write, .end = scrape_end};
	struct metrics *metrics;
	int signo;

	if (metrics_start(r->metrics, &source, &metrics))
		return EXIT_FAILURE;
	serving_tell_metrics(stdout, metrics);
	fflush(stdout);
	signo = serving_wait(set, 0);
	metrics_stop(metrics);
	return signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

static int status_at(const void *arg, struct gn_fabric *fabric, const sigset_t *set)
{
	const struct request *r = arg;
	struct monitor_link link = {.request = r, .fabric = fabric};
	int status;

	if (r->metrics)
		return status_export(r, &link, set);
	if (link_connect(&link))
		return EXIT_FAILURE;
	status = status_watch(r, &link, set);
	gn_rpc_client_close(link.rpc);
	return status;
}

static int vol_status_run(const struct args *args)
{
	const struct request *r = args->opts;

	if (r->json + r->prometheus + (r->metrics != NULL) > 1)
		return cmd_usage_error("--json, --prometheus and --metrics: one of them");
	if (r->metrics && r->watch_s > 0)
		return cmd_usage_error("--metrics asks when it is scraped: it takes no --watch");
	return serving(r->addr, status_at, r);
}

const struct command command_vol_status = {
	.name = "status",
	.what = "copies, donors and progress of repair of a running volume",
	.about = "Prints whether every extent of a volume has its copies, what is lost, how far "
		 "repair is, and what each donor holds. It asks the process that has the volume.",
	.run = vol_status_run,
	OPTIONS(options, struct request, .timeout_ms = 5000),
};
