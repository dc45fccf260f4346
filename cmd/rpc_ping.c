/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc ping: empty calls at an interval, a line each, and a summary. A server that went is
 * looked for again at each interval.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "rpc_cmd.h"

#define INTERVAL_MS_DEFAULT 1000u
#define TIMEOUT_MS_DEFAULT  1000u
#define MS_MAX		    3600000u
#define NAP_US		    50000u

#define AT(member) .to = offsetof(struct pings, member)

struct pings {
	const char *addr;
	uint32_t count, interval_ms, timeout_ms;
	struct gn_rpc_client_opts opts;
	bool json;
	struct rpc_link link;
	uint64_t sent, lost;
	struct gn_hist ns;
};

static const struct opt options[] = {
	OPT_SERVER(struct pings, addr),
	{OPT_U32, "count", "N", "calls; 0: until Ctrl-C", AT(count)},
	{OPT_U32, "interval-ms", "N", "from one to the next", AT(interval_ms), RANGE(0, MS_MAX)},
	{OPT_U32, "timeout-ms", "N", "after which a call is lost", AT(timeout_ms),
	 RANGE(1, MS_MAX)},
	{OPT_CHOICE, "mode", "M", "hybrid, fetch or reply", AT(opts.mode), .choices = rpc_modes},
	{OPT_FLAG, "json", NULL, "an object for each call, and one for all", AT(json)},
	{.type = OPT_END},
};

/* ---- lines ---- */

static void rpc_ping_print(const struct pings *p, const char *what, double us)
{
	if (p->json) {
		putchar('{');
		bench_json_count(stdout, "call", true, p->sent);
		bench_json_number(stdout, "us", us, 3);
		printf("\"status\":\"%s\"}\n", what);
	} else if (isfinite(us)) {
		printf("%s: call %" PRIu64 ": %.2f us\n", p->addr, p->sent, us);
	} else {
		printf("%s: call %" PRIu64 ": %s\n", p->addr, p->sent, what);
	}
	fflush(stdout);
}

static double rpc_ping_us(const struct pings *p, uint64_t ns)
{
	return p->ns.count ? (double)ns / 1000 : NAN;
}

static void rpc_ping_summary(const struct pings *p)
{
	const double least = rpc_ping_us(p, p->ns.min), most = rpc_ping_us(p, p->ns.max);
	const double median = rpc_ping_us(p, gn_hist_percentile(&p->ns, 50));
	const double p99 = rpc_ping_us(p, gn_hist_percentile(&p->ns, 99));

	if (p->json) {
		putchar('{');
		bench_json_string(stdout, "addr", p->addr);
		bench_json_count(stdout, "calls", true, p->sent);
		bench_json_number(stdout, "min_us", least, 3);
		bench_json_number(stdout, "median_us", median, 3);
		bench_json_number(stdout, "p99_us", p99, 3);
		bench_json_number(stdout, "max_us", most, 3);
		printf("\"lost\":%" PRIu64 "}\n", p->lost);
		return;
	}
	printf("%" PRIu64 " calls, %" PRIu64 " lost", p->sent, p->lost);
	if (p->ns.count)
		printf("; min %.2f, median %.2f, p99 %.2f, max %.2f us", least, median, p99, most);
	putchar('\n');
}

/* ---- calls ---- */

/* 0, or -errno: the server cannot be reached, and *what says why. */
static int rpc_ping_reconnect(struct pings *p, const char **what)
{
	int rc = gn_rpc_reconnect(p->link.client);

	*what = rc ? gn_strerror(rc) : NULL;
	return rc;
}

static int rpc_ping_once(struct pings *p, bool *gone)
{
	struct gn_rpc_op op = {.method = GN_RPC_PING};
	const char *what = NULL;
	uint64_t since_ns;
	int rc = 0;

	p->sent++;
	if (*gone && rpc_ping_reconnect(p, &what)) {
		p->lost++;
		rpc_ping_print(p, what, NAN);
		return 0;
	}
	since_ns = gn_now_ns();
	rc = rpc_link_call(&p->link, &op, p->timeout_ms);
	if (rc) {
		p->sent--; /* it was given up, not lost */
		return rc;
	}
	*gone = op.status == GN_RPC_PEER_GONE;
	if (op.status == GN_RPC_OK) {
		const uint64_t ns = gn_now_ns() - since_ns;

		gn_hist_add(&p->ns, ns, 1);
		rpc_ping_print(p, "ok", (double)ns / 1000);
	} else {
		p->lost++;
		rpc_ping_print(p, rpc_status_text(op.status), NAN);
	}
	return 0;
}

static void rpc_ping_sleep_until(uint64_t until_ns)
{
	uint64_t now_ns;

	while ((now_ns = gn_now_ns()) < until_ns && !bench_stopped()) {
		const uint64_t us = (until_ns - now_ns + 999) / 1000;

		gn_sleep_us(us < NAP_US ? us : NAP_US);
	}
}

static int rpc_ping_all(struct pings *p)
{
	uint64_t next_ns = gn_now_ns();
	bool gone = false;
	int rc = 0;

	while (!rc && !ferror(stdout)) {
		rc = rpc_ping_once(p, &gone);
		if (p->count && p->sent >= p->count)
			break;
		next_ns += (uint64_t)p->interval_ms * 1000000;
		rpc_ping_sleep_until(next_ns);
		if (bench_stopped())
			rc = -EINTR;
	}
	return rc;
}

static int rpc_ping_run(const struct args *args)
{
	struct pings *p = args->opts;
	int status, rc;

	gn_hist_init(&p->ns);
	p->opts.size = sizeof(p->opts);
	p->opts.timeout_us = (uint64_t)p->timeout_ms * 1000;
	rc = rpc_link_open(&p->link, p->addr, &p->opts);
	if (!rc) {
		rc = rpc_ping_all(p);
		rpc_ping_summary(p);
		rpc_link_close(&p->link);
	}
	status = cmd_flush_stdout();
	if (rc)
		return rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
	return p->lost && !status ? EXIT_FAILURE : status;
}

const struct command command_rpc_ping = {
	.name = "ping",
	.what = "how long empty calls take, again and again",
	.about = "Calls a method that does nothing, which every server has, and prints how long it "
		 "took; at the end, or at Ctrl-C, the least, the median, the 99th percentile and "
		 "the most. A server that went is connected to again when it is back.",
	.more = "The exit status is 0 if none was lost.",
	.run = rpc_ping_run,
	OPTIONS(options, struct pings, .interval_ms = INTERVAL_MS_DEFAULT,
		.timeout_ms = TIMEOUT_MS_DEFAULT),
};
