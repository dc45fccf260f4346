/* SPDX-License-Identifier: MIT */
/* The server of dgram_lossy, in guest 2, and what both guests do to their links. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "dgram_lossy.h"

/* ---- the link ---- */

static const char *const netem[N_LINKS] = {
	[CLEAN] = "",
	[LOSS] = "loss 10%",
	[BURSTS] = "loss gemodel 4% 25%", /* of 4 packets on average */
	[DUPLICATES] = "duplicate 20%",
	[REORDER] = "delay 2ms reorder 25%",
	[MIXED] = "loss 5% duplicate 2% reorder 10% delay 2ms 1ms",
	[HEAVY] = "loss 30%",
	[CUT] = "loss 100%",
};

int link_set(enum link link)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "tc qdisc del dev eth0 root 2>/dev/null; tc qdisc add dev eth0 root netem %s",
		 netem[link]);
	return system(command); /* NOLINT(cert-env33-c): a test, as root in a guest */
}

int64_t link_drops(void)
{
	FILE *tc = popen("tc -s -j qdisc show dev eth0", "r");
	char text[1024] = "";
	const char *at;
	size_t n;

	if (!tc)
		return -1;
	n = fread(text, 1, sizeof(text) - 1, tc);
	pclose(tc);
	text[n] = 0;
	at = strstr(text, "\"netem\"") ? strstr(text, "\"drops\":") : NULL;
	return at ? strtoll(at + strlen("\"drops\":"), NULL, 10) : -1;
}

/* ---- handlers ---- */

unsigned count_handler(void *arg, struct gn_dgram_request *request)
{
	struct counts *counts = arg;
	struct numbered numbered;
	uint8_t *to;

	if (request->len < sizeof(numbered))
		return GN_RPC_DENIED;
	memcpy(&numbered, request->data, sizeof(numbered));
	if (numbered.key >= KEYS)
		return GN_RPC_DENIED;
	numbered.times = ++counts->times[numbered.key];
	counts->report.executed++;
	counts->report.twice += numbered.times > 1;
	if (request->method == COUNT) { /* BACK waits */
		counts->report.overtaken += numbered.key < counts->highest;
		if (numbered.key > counts->highest)
			counts->highest = numbered.key;
	}
	to = gn_dgram_result(request, request->len);
	if (!to)
		return GN_RPC_FAILED;
	memcpy(to, request->data, request->len);
	memcpy(to, &numbered, sizeof(numbered));
	request->result_len = request->len;
	return GN_RPC_OK;
}

static unsigned back_handler(void *arg, struct gn_dgram_request *request)
{
	struct numbered back;
	struct gn_dgram_op op = {.peer = request->peer,
				 .method = COUNT,
				 .request = request->data,
				 .request_len = sizeof(back),
				 .result = &back,
				 .result_room = sizeof(back)};

	if (request->len < sizeof(back) || gn_dgram_call(&op) || op.status != GN_RPC_OK ||
	    op.result_len != sizeof(back) || back.times != 1)
		return GN_RPC_FAILED;
	return count_handler(arg, request);
}

static struct gn_dgram_endpoint *loaded; /* by COUNT and BACK */

static void stats_of_load(struct report *report)
{
	struct gn_dgram_stats stats = {.size = sizeof(stats)};

	gn_dgram_endpoint_stats(loaded, &stats);
	report->duplicates = stats.duplicates;
	report->sent = stats.sent;
}

static struct report before; /* when LINK was called */

static unsigned link_handler(void *arg, struct gn_dgram_request *request)
{
	struct counts *counts = arg;
	uint32_t link;

	if (request->len != sizeof(link))
		return GN_RPC_DENIED;
	memcpy(&link, request->data, sizeof(link));
	if (link >= N_LINKS || link_set((enum link)link))
		return GN_RPC_FAILED;
	counts->report = (struct report){0};
	stats_of_load(&before);
	return GN_RPC_OK;
}

static unsigned report_handler(void *arg, struct gn_dgram_request *request)
{
	struct report report = ((struct counts *)arg)->report;
	const int64_t drops = link_drops();

	if (drops < 0)
		return GN_RPC_FAILED;
	stats_of_load(&report);
	report.duplicates -= before.duplicates;
	report.sent -= before.sent;
	report.drops = (uint64_t)drops;
	memcpy(request->result, &report, sizeof(report));
	request->result_len = sizeof(report);
	return GN_RPC_OK;
}

static unsigned die_handler(void *arg, struct gn_dgram_request *request)
{
	(void)arg, (void)request;
	kill(getpid(), SIGKILL);
	return GN_RPC_OK;
}

static bool ends;

static unsigned end_handler(void *arg, struct gn_dgram_request *request)
{
	(void)arg, (void)request;
	__atomic_store_n(&ends, true, __ATOMIC_RELAXED);
	return GN_RPC_OK;
}

static bool is_over(void)
{
	return __atomic_load_n(&ends, __ATOMIC_RELAXED);
}

/* ---- the server ---- */

#define LOOK_US	  50000u  /* between two looks whether it is over */
#define LINGER_US 500000u /* for the answer to END to arrive, if it must be sent again */

static int failed(const char *what)
{
	fprintf(stderr, "dgram_lossy: %s: %s\n", what, gn_error());
	return 1;
}

static void control_main(void *node)
{
	struct gn_dgram_endpoint *endpoint;

	if (gn_dgram_endpoint_create(node, CONTROL_THREAD, &endpoint)) {
		failed("the endpoint of control");
		return;
	}
	while (!is_over())
		gn_dgram_wait(endpoint, gn_deadline_us(LOOK_US));
	if (gn_dgram_endpoint_destroy(endpoint))
		failed("the end of control");
}

/* Until END, and for as long as its answer may be needed. */
static int serve_load(struct gn_dgram_node *node)
{
	struct gn_thread *control;
	uint64_t end_ns;

	if (gn_dgram_endpoint_create(node, LOAD_THREAD, &loaded))
		return failed("the endpoint");
	if (gn_thread_start("control", control_main, node, &control))
		return failed("the thread of control");
	while (!is_over())
		gn_dgram_wait(loaded, gn_deadline_us(LOOK_US));
	end_ns = gn_deadline_us(LINGER_US);
	while (gn_now_ns() < end_ns)
		gn_dgram_wait(loaded, end_ns);
	gn_thread_join(control);
	return gn_dgram_endpoint_destroy(loaded) ? failed("the end") : 0;
}

int serve(const char *addr)
{
	static struct counts counts;
	static const struct {
		enum method method;
		gn_dgram_handler *fn;
		unsigned flags;
	} handlers[] = {{COUNT, count_handler, 0}, {BACK, back_handler, GN_DGRAM_IN_WORKER},
			{LINK, link_handler, 0},   {REPORT, report_handler, 0},
			{DIE, die_handler, 0},	   {END, end_handler, 0}};
	const struct gn_dgram_opts opts = {.size = sizeof(opts), .threads = 2};
	struct gn_dgram_node *node;
	struct gn_fabric *fabric;

	if (gn_fabric_open("verbs", &fabric) || gn_dgram_node_create(fabric, addr, &opts, &node))
		return failed(addr);
	for (unsigned i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++)
		if (gn_dgram_handle(node, handlers[i].method, handlers[i].fn, NULL, &counts,
				    handlers[i].flags))
			return failed("a handler");
	if (serve_load(node))
		return 1;
	return gn_dgram_node_destroy(node) || gn_fabric_close(fabric) ? failed("the end") : 0;
}
