/* SPDX-License-Identifier: MIT */
/* Counters and histograms as JSON and in the Prometheus text format. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/client.h"
#include "rpc/server.h"

#define METRICS_ROOM 32768 /* bytes of text at first */

/* ---- text ---- */

struct text {
	enum gn_rpc_format format;
	struct prom prom;
	char *buf;
	size_t room, len;
	bool first; /* of a list in JSON */
};

static void text_put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* JSON. */
static void text_put(struct text *t, const char *fmt, ...)
{
	const size_t left = t->len < t->room ? t->room - t->len : 0;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(left ? t->buf + t->len : NULL, left, fmt, args);
	va_end(args);
	if (n > 0)
		t->len += (size_t)n;
}

static void put_member(struct text *t, const char *name, uint64_t value)
{
	text_put(t, "%s\n  \"%s\": %llu", t->first ? "" : ",", name, (unsigned long long)value);
	t->first = false;
}

/* For Prometheus a counter's name ends in _total. */
static void put_counter(struct text *t, const char *name, const char *help, uint64_t value)
{
	char total[64];

	if (t->format == GN_RPC_JSON) {
		put_member(t, name, value);
		return;
	}
	snprintf(total, sizeof(total), "%s_total", name);
	prom_single(&t->prom, PROM_COUNTER, total, help, value);
}

/* metric: its name for Prometheus. */
static void put_gauge(struct text *t, const char *name, const char *metric, const char *help,
		      uint64_t value)
{
	if (t->format == GN_RPC_JSON)
		put_member(t, name, value);
	else
		prom_single(&t->prom, PROM_GAUGE, metric, help, value);
}

static void put_counters(struct text *t, const struct gn_rpc_counters *c)
{
	put_counter(t, "calls", "Calls begun.", c->calls);
	put_counter(t, "batches", "Messages with requests.", c->batches);
	put_counter(t, "results", "Messages with results.", c->results);
	put_counter(t, "large", "Requests and results too large for a slot, fetched by READs.",
		    c->large);
	put_counter(t, "torn", "Polls that found an incomplete message.", c->torn);
	put_counter(t, "probes", "Probes sent to an idle peer.", c->probes);
	put_counter(t, "wakes", "Wake-ups from a parked client to its server.", c->wakes);
	put_counter(t, "notifies", "Notifications of a result, to a client that sleeps.",
		    c->notifies);
}

static const char *const status_names[GN_RPC_FAILED + 1] = {
	[GN_RPC_OK] = "ok",
	[GN_RPC_TIMEOUT] = "timeout",
	[GN_RPC_CANCELED] = "canceled",
	[GN_RPC_PEER_GONE] = "peer_gone",
	[GN_RPC_NO_METHOD] = "no_method",
	[GN_RPC_TOO_BIG] = "too_big",
	[GN_RPC_DENIED] = "denied",
	[GN_RPC_BUSY] = "busy",
	[GN_RPC_FAILED] = "failed",
};

static void put_statuses(struct text *t, const struct gn_rpc_counters *c)
{
	if (t->format == GN_RPC_JSON)
		text_put(t, ",\n  \"ended\": {");
	else
		prom_family(&t->prom, PROM_COUNTER, "ended_total", "Calls ended, by status.");
	for (unsigned i = 0; i <= GN_RPC_FAILED; i++) {
		const struct prom_label status = {"status", status_names[i]};

		if (t->format == GN_RPC_JSON)
			text_put(t, "%s\"%s\": %llu", i ? ", " : "", status_names[i],
				 (unsigned long long)c->ended[i]);
		else
			prom_count(&t->prom, &status, c->ended[i]);
	}
	if (t->format == GN_RPC_JSON)
		text_put(t, "}");
}

static void put_times(struct text *t, const struct rpc_times *times)
{
	const double n = times->weighed ? (double)times->weighed : 1;

	text_put(t,
		 "\"calls\": %llu, \"timed\": %llu, \"mean_us\": %.3f, \"p50_us\": %.3f, "
		 "\"p90_us\": %.3f, \"p99_us\": %.3f, \"buckets_ns\": [",
		 (unsigned long long)times->calls, (unsigned long long)times->count,
		 (double)times->sum_ns / n * 1e-3, (double)rpc_times_percentile(times, 50) * 1e-3,
		 (double)rpc_times_percentile(times, 90) * 1e-3,
		 (double)rpc_times_percentile(times, 99) * 1e-3);
	for (unsigned i = 0, n_put = 0; i < RPC_TIMES_BUCKETS; i++)
		if (times->bucket[i])
			text_put(t, "%s[%llu, %llu]", n_put++ ? ", " : "",
				 (unsigned long long)rpc_times_end(i),
				 (unsigned long long)times->bucket[i]);
	text_put(t, "]");
}

/*
 * The first method from *method on that a client or a server knows, and how long its calls took.
 * False: there is none.
 */
typedef bool gather_fn(const void *of, unsigned *method, struct rpc_times *out);
/* What there is besides, in JSON. */
typedef void more_fn(struct text *t, const void *of, unsigned method);

static void put_methods_json(struct text *t, const void *of, gather_fn *gather, more_fn *more)
{
	struct rpc_times times;

	text_put(t, ",\n  \"methods\": [");
	t->first = true;
	for (unsigned m = 0; gather(of, &m, &times); m++) {
		text_put(t, "%s\n    {\"method\": %u, ", t->first ? "" : ",", m);
		t->first = false;
		put_times(t, &times);
		if (more)
			more(t, of, m);
		text_put(t, "}");
	}
	text_put(t, "\n  ]");
}

/* A histogram for each method. list: what was shown before. -ENOMEM. */
static int put_methods_prom(struct text *t, const void *of, gather_fn *gather,
			    struct rpc_histogram **list)
{
	struct rpc_times times, all = {0};

	for (unsigned m = 0; gather(of, &m, &times); m++)
		rpc_times_merge(&all, &times);
	if (!all.calls)
		return 0;
	prom_family(&t->prom, PROM_HISTOGRAM, "call_duration_seconds",
		    "Time that calls took, by method number.");
	for (unsigned m = 0; gather(of, &m, &times); m++) {
		struct rpc_histogram *histogram = rpc_histogram_find(&list, m);

		if (!histogram)
			return gn_fail(-ENOMEM, "rpc: there is no memory for metrics");
		rpc_histogram_update(histogram, &times, &all);
		rpc_histogram_put(&t->prom, histogram);
	}
	return 0;
}

static int text_begin(struct text *t, enum gn_rpc_format format, const char *prefix, char *buf,
		      size_t room)
{
	if (format > GN_RPC_PROMETHEUS || (room && !buf))
		return gn_fail(-EINVAL,
			       "rpc: metrics have no such format, or buf is NULL but room is not "
			       "0");
	*t = (struct text){.format = format, .buf = buf, .room = room, .first = true};
	prom_init(&t->prom, prefix, buf, room);
	if (format == GN_RPC_JSON)
		text_put(t, "{");
	return 0;
}

static int text_end(struct text *t)
{
	if (t->format == GN_RPC_PROMETHEUS)
		return (int)t->prom.len;
	text_put(t, "\n}\n");
	return (int)t->len;
}

/* ---- a client ---- */

static void put_choices(struct text *t, const struct gn_rpc_client *c)
{
	static const char switch_help[] =
		"Server time of a call from which on results are replied, not fetched (Tx).";

	put_gauge(t, "retries", "fetch_retries",
		  "READs of a result that fail before it is replied (R).", c->adapt.retries);
	put_gauge(t, "fetch_bytes", "fetch_bytes",
		  "Bytes of a result that the first READ gets (F).", c->adapt.fetch_bytes);
	if (t->format == GN_RPC_JSON) {
		put_member(t, "switch_us", rpc_adapt_switch_us(c));
	} else {
		prom_family(&t->prom, PROM_GAUGE, "switch_seconds", switch_help);
		prom_real(&t->prom, NULL, rpc_adapt_switch_us(c) * 1e-6);
	}
	put_gauge(t, "batch", "batch_calls", "Calls that a message has at most (N).",
		  c->adapt.entries);
	put_gauge(t, "under_way", "calls_in_progress", "Calls and reads in progress.",
		  c->count.calls + c->count.reads - c->ended - c->view_reads.n);
}

static const struct rpc_method_state *method_state_of(const struct gn_rpc_client *c,
						      unsigned method)
{
	const struct rpc_method_state *page = c->adapt.mstates[method / RPC_PAGE_MSTATES];

	return page ? &page[method % RPC_PAGE_MSTATES] : NULL;
}

static bool method_state_times(const void *of, unsigned *method, struct rpc_times *out)
{
	for (; *method < GN_RPC_BUILTIN_END; ++*method) {
		const struct rpc_method_state *mstate = method_state_of(of, *method);

		if (!mstate) {
			*method |= RPC_PAGE_MSTATES - 1; /* the rest of the page */
		} else if (mstate->latency) {
			*out = *mstate->latency;
			return true;
		}
	}
	return false;
}

static void put_method_state(struct text *t, const void *of, unsigned method)
{
	const struct gn_rpc_client *c = of;
	const struct rpc_method_state *mstate = method_state_of(c, method);

	text_put(t, ", \"mode\": \"%s\", \"server_us\": %u",
		 rpc_uses_reply(c, mstate) ? "reply" : "fetch", mstate->last_us);
}

int gn_rpc_client_metrics(const struct gn_rpc_client *c, enum gn_rpc_format format, char *buf,
			  size_t room)
{
	struct text t;
	int rc = rpc_client_check(c);

	if (!rc)
		rc = text_begin(&t, format, "gannet_rpc_client_", buf, room);
	if (rc)
		return rc;
	put_counters(&t, &c->count);
	put_counter(&t, "fetches", "READs for results.", c->count.fetches);
	put_counter(&t, "failed_fetches", "READs that found no result yet.",
		    c->count.failed_fetches);
	put_counter(&t, "reads", "Reads of memory that the server exposes.", c->count.reads);
	put_counter(&t, "second_reads", "READs for the rest of a result.", c->count.second_reads);
	put_counter(&t, "switches", "Switches between fetched and replied results.",
		    c->count.switches);
	put_counter(&t, "reconnects", "Connections made again.", c->count.reconnects);
	put_choices(&t, c);
	put_statuses(&t, &c->count);
	if (format == GN_RPC_JSON)
		put_methods_json(&t, c, method_state_times, put_method_state);
	else /* to look changes what is histogram, and nothing of the client */
		rc = put_methods_prom(&t, c, method_state_times,
				      (struct rpc_histogram **)&c->histograms);
	return rc ? rc : text_end(&t);
}

/* ---- a server ---- */

struct rpc_times *rpc_method_times(struct rpc_thread *t, unsigned method)
{
	struct rpc_times ***page = &t->method_times[method / RPC_PAGE_METHODS];
	struct rpc_times **times;

	if (unlikely(!*page))
		__atomic_store_n(page, gn_alloc(RPC_PAGE_METHODS * sizeof(**page), 0),
				 __ATOMIC_RELEASE);
	if (unlikely(!*page))
		return NULL;
	times = &(*page)[method % RPC_PAGE_METHODS];
	if (unlikely(!*times))
		__atomic_store_n(times, gn_alloc(sizeof(**times), 0), __ATOMIC_RELEASE);
	return *times;
}

void rpc_method_times_free(struct rpc_thread *t)
{
	for (unsigned i = 0; i < sizeof(t->method_times) / sizeof(t->method_times[0]); i++) {
		for (unsigned j = 0; t->method_times[i] && j < RPC_PAGE_METHODS; j++)
			gn_free(t->method_times[i][j]);
		gn_free(t->method_times[i]);
	}
}

/* What all threads know of a method. */
static bool server_method_times(const struct gn_rpc_server *server, unsigned method,
				struct rpc_times *out)
{
	bool any = false;

	for (unsigned i = 0; i < server->opts.threads; i++) {
		struct rpc_times **page =
			__atomic_load_n(&server->threads[i].method_times[method / RPC_PAGE_METHODS],
					__ATOMIC_ACQUIRE);
		const struct rpc_times *times =
			page ? __atomic_load_n(&page[method % RPC_PAGE_METHODS], __ATOMIC_ACQUIRE) :
			       NULL;

		if (!times)
			continue;
		if (!any)
			memset(out, 0, sizeof(*out));
		any = true;
		rpc_times_merge(out, times);
	}
	return any;
}

static bool server_times(const void *of, unsigned *method, struct rpc_times *out)
{
	const struct gn_rpc_server *server = of;

	for (; *method < GN_RPC_BUILTIN_END; ++*method) {
		if (!server->methods[*method / RPC_PAGE_METHODS])
			*method |= RPC_PAGE_METHODS - 1; /* the rest of the page */
		else if (server_method_times(server, *method, out))
			return true;
	}
	return false;
}

int gn_rpc_server_metrics(struct gn_rpc_server *server, enum gn_rpc_format format, char *buf,
			  size_t room)
{
	struct gn_rpc_counters c = {.size = sizeof(c)};
	struct text t;
	int rc = gn_rpc_server_counters(server, &c);

	if (!rc)
		rc = text_begin(&t, format, "gannet_rpc_server_", buf, room);
	if (rc)
		return rc;
	put_counters(&t, &c);
	put_counter(&t, "parks", "Clients parked: not polled until they wake the server.", c.parks);
	put_gauge(&t, "clients", "clients", "Connections now.", c.clients);
	put_gauge(&t, "bytes", "client_memory_bytes", "Memory kept for clients now.", c.bytes);
	put_counter(&t, "refused", "Connections refused because of a limit.", c.refused);
	put_counter(&t, "dropped", "Requests and results that a limit turned into BUSY.",
		    c.dropped);
	put_gauge(&t, "threads", "threads", "Threads that serve.", server->opts.threads);
	if (format == GN_RPC_JSON) {
		put_methods_json(&t, server, server_times, NULL);
	} else {
		gn_mutex_lock(&server->histograms_lock);
		rc = put_methods_prom(&t, server, server_times, &server->histograms);
		gn_mutex_unlock(&server->histograms_lock);
	}
	return rc ? rc : text_end(&t);
}

/* ---- the methods that every server has ---- */

void rpc_metrics_handler(struct gn_rpc_request *r, void *arg)
{
	struct gn_rpc_server *server = arg;
	const unsigned method = gn_rpc_request_method(r);
	const enum gn_rpc_format format = method == GN_RPC_STATS_JSON ? GN_RPC_JSON :
									GN_RPC_PROMETHEUS;
	int room = METRICS_ROOM, len = -ENOMEM;
	char *text;

	if (method == GN_RPC_PING) {
		gn_rpc_answer(r, GN_RPC_OK, NULL, 0);
		return;
	}
	/* Again, if it was longer than that, with space for what is counted meanwhile. */
	while ((text = gn_alloc((size_t)room, 0))) {
		len = gn_rpc_server_metrics(server, format, text, (size_t)room);
		if (len < room)
			break;
		room = len + METRICS_ROOM;
		gn_free(text);
	}
	if (!text || len < 0)
		gn_rpc_answer(r, GN_RPC_BUSY, NULL, 0);
	else
		gn_rpc_answer(r, GN_RPC_OK, text, (uint32_t)len);
	gn_free(text);
}
