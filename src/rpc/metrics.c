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

/* ---- times ---- */

void rpc_times_merge(struct rpc_times *into, const struct rpc_times *from)
{
	into->calls += counter_read(&from->calls);
	into->count += counter_read(&from->count);
	into->sum_ns += counter_read(&from->sum_ns);
	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		into->bucket[i] += counter_read(&from->bucket[i]);
}

uint64_t rpc_times_percentile(const struct rpc_times *t, unsigned percent)
{
	uint64_t all = 0, below = 0;

	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++)
		all += t->bucket[i];
	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++) {
		below += t->bucket[i];
		if (all && below * 100 >= all * percent)
			return rpc_times_end(i);
	}
	return 0;
}

/* ---- text ---- */

struct text {
	enum gn_rpc_format format;
	const char *who; /* client or server */
	char *buf;
	size_t room, len;
	bool first; /* of a list in JSON */
};

static void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *fmt, ...)
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

static void put_value(struct text *t, const char *name, const char *type, uint64_t value)
{
	if (t->format == GN_RPC_JSON) {
		put(t, "%s\n  \"%s\": %llu", t->first ? "" : ",", name, (unsigned long long)value);
		t->first = false;
		return;
	}
	put(t, "# TYPE gannet_rpc_%s_%s %s\ngannet_rpc_%s_%s %llu\n", t->who, name, type, t->who,
	    name, (unsigned long long)value);
}

static void put_counters(struct text *t, const struct gn_rpc_counters *c)
{
	put_value(t, "calls", "counter", c->calls);
	put_value(t, "batches", "counter", c->batches);
	put_value(t, "results", "counter", c->results);
	put_value(t, "large", "counter", c->large);
	put_value(t, "torn", "counter", c->torn);
	put_value(t, "probes", "counter", c->probes);
	put_value(t, "wakes", "counter", c->wakes);
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
		put(t, ",\n  \"ended\": {");
	else
		put(t, "# TYPE gannet_rpc_%s_ended counter\n", t->who);
	for (unsigned i = 0; i <= GN_RPC_FAILED; i++) {
		const unsigned long long n = c->ended[i];

		if (t->format == GN_RPC_JSON)
			put(t, "%s\"%s\": %llu", i ? ", " : "", status_names[i], n);
		else
			put(t, "gannet_rpc_%s_ended{status=\"%s\"} %llu\n", t->who, status_names[i],
			    n);
	}
	if (t->format == GN_RPC_JSON)
		put(t, "}");
}

/* Buckets are summed up by octave, and only those from the first to the last that count. */
static void put_histogram(struct text *t, unsigned method, const struct rpc_times *times)
{
	uint64_t below = 0;

	for (unsigned i = 0; i < RPC_TIMES_BUCKETS; i++) {
		below += times->bucket[i];
		if (i % 4 == 3 && below && rpc_times_end(i) >= 64)
			put(t, "gannet_rpc_%s_seconds_bucket{method=\"%u\",le=\"%.9g\"} %llu\n",
			    t->who, method, (double)rpc_times_end(i) * 1e-9,
			    (unsigned long long)below);
		if (below == times->count && i % 4 == 3)
			break;
	}
	put(t, "gannet_rpc_%s_seconds_bucket{method=\"%u\",le=\"+Inf\"} %llu\n", t->who, method,
	    (unsigned long long)below);
	put(t, "gannet_rpc_%s_seconds_sum{method=\"%u\"} %.9g\n", t->who, method,
	    (double)times->sum_ns * 1e-9);
	put(t, "gannet_rpc_%s_seconds_count{method=\"%u\"} %llu\n", t->who, method,
	    (unsigned long long)below);
}

static void put_times(struct text *t, const struct rpc_times *times)
{
	const double n = times->count ? (double)times->count : 1;

	put(t,
	    "\"calls\": %llu, \"timed\": %llu, \"mean_us\": %.3f, \"p50_us\": %.3f, \"p90_us\": "
	    "%.3f, \"p99_us\": %.3f, \"buckets_ns\": [",
	    (unsigned long long)times->calls, (unsigned long long)times->count,
	    (double)times->sum_ns / n * 1e-3, (double)rpc_times_percentile(times, 50) * 1e-3,
	    (double)rpc_times_percentile(times, 90) * 1e-3,
	    (double)rpc_times_percentile(times, 99) * 1e-3);
	for (unsigned i = 0, n_put = 0; i < RPC_TIMES_BUCKETS; i++)
		if (times->bucket[i])
			put(t, "%s[%llu, %llu]", n_put++ ? ", " : "",
			    (unsigned long long)rpc_times_end(i),
			    (unsigned long long)times->bucket[i]);
	put(t, "]");
}

static void begin_methods(struct text *t)
{
	if (t->format == GN_RPC_JSON)
		put(t, ",\n  \"methods\": [");
	else
		put(t, "# TYPE gannet_rpc_%s_seconds histogram\n", t->who);
	t->first = true;
}

/* In JSON a method is an object that is still open; false: nothing to add. */
static bool put_method(struct text *t, unsigned method, const struct rpc_times *times)
{
	if (t->format == GN_RPC_PROMETHEUS) {
		put_histogram(t, method, times);
		return false;
	}
	put(t, "%s\n    {\"method\": %u, ", t->first ? "" : ",", method);
	t->first = false;
	put_times(t, times);
	return true;
}

/* How long calls of a method took, for the metrics of its client or server; false: it had none. */
typedef bool gather_fn(const void *of, unsigned method, struct rpc_times *out);
/* What there is besides, in JSON. */
typedef void more_fn(struct text *t, const void *of, unsigned method);

static void put_methods(struct text *t, const void *of, gather_fn *gather, more_fn *more)
{
	struct rpc_times times;

	if (t->format == GN_RPC_PROMETHEUS)
		put(t, "# TYPE gannet_rpc_%s_method_calls counter\n", t->who);
	for (unsigned m = 0; m < GN_RPC_BUILTIN_END && t->format == GN_RPC_PROMETHEUS; m++)
		if (gather(of, m, &times))
			put(t, "gannet_rpc_%s_method_calls{method=\"%u\"} %llu\n", t->who, m,
			    (unsigned long long)times.calls);
	begin_methods(t);
	for (unsigned m = 0; m < GN_RPC_BUILTIN_END; m++) {
		if (!gather(of, m, &times) || !put_method(t, m, &times))
			continue;
		if (more)
			more(t, of, m);
		put(t, "}");
	}
}

static struct text begin(enum gn_rpc_format format, const char *who, char *buf, size_t room)
{
	struct text t = {.format = format, .who = who, .buf = buf, .room = room, .first = true};

	if (room)
		buf[0] = '\0';
	if (format == GN_RPC_JSON)
		put(&t, "{");
	return t;
}

static int end(struct text *t)
{
	if (t->format == GN_RPC_JSON)
		put(t, "\n  ]\n}\n");
	return (int)t->len;
}

/* ---- a client ---- */

static void put_choices(struct text *t, const struct gn_rpc_client *c)
{
	put_value(t, "retries", "gauge", c->adapt.retries);
	put_value(t, "fetch_bytes", "gauge", c->adapt.fetch_bytes);
	put_value(t, "switch_us", "gauge", rpc_adapt_switch_us(c));
	put_value(t, "batch", "gauge", c->adapt.entries);
	put_value(t, "under_way", "gauge",
		  c->count.calls + c->count.reads - c->ended - c->view_reads.n);
}

static const struct rpc_method_state *method_state_of(const struct gn_rpc_client *c,
						      unsigned method)
{
	const struct rpc_method_state *page = c->adapt.mstates[method / RPC_PAGE_MSTATES];

	return page ? &page[method % RPC_PAGE_MSTATES] : NULL;
}

static bool method_state_times(const void *of, unsigned method, struct rpc_times *out)
{
	const struct rpc_method_state *mstate = method_state_of(of, method);

	if (!mstate || !mstate->latency)
		return false;
	*out = *mstate->latency;
	return true;
}

static void put_method_state(struct text *t, const void *of, unsigned method)
{
	const struct gn_rpc_client *c = of;
	const struct rpc_method_state *mstate = method_state_of(c, method);

	put(t, ", \"mode\": \"%s\", \"server_us\": %u",
	    rpc_uses_reply(c, mstate) ? "reply" : "fetch", mstate->last_us);
}

int gn_rpc_client_metrics(const struct gn_rpc_client *c, enum gn_rpc_format format, char *buf,
			  size_t room)
{
	struct text t;
	int rc = rpc_client_check(c);

	if (rc)
		return rc;
	if (format > GN_RPC_PROMETHEUS || (room && !buf))
		return gn_fail(
			-EINVAL,
			"gn_rpc_client_metrics(): there is no such format, or buf is NULL but room "
			"is not 0");
	t = begin(format, "client", buf, room);
	put_counters(&t, &c->count);
	put_value(&t, "fetches", "counter", c->count.fetches);
	put_value(&t, "failed_fetches", "counter", c->count.failed_fetches);
	put_value(&t, "reads", "counter", c->count.reads);
	put_value(&t, "second_reads", "counter", c->count.second_reads);
	put_value(&t, "switches", "counter", c->count.switches);
	put_value(&t, "reconnects", "counter", c->count.reconnects);
	put_value(&t, "notifies", "counter", c->count.notifies);
	put_choices(&t, c);
	put_statuses(&t, &c->count);
	put_methods(&t, c, method_state_times, put_method_state);
	return end(&t);
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
static bool server_times(const void *of, unsigned method, struct rpc_times *out)
{
	const struct gn_rpc_server *server = of;
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

int gn_rpc_server_metrics(struct gn_rpc_server *server, enum gn_rpc_format format, char *buf,
			  size_t room)
{
	struct gn_rpc_counters c = {.size = sizeof(c)};
	struct text t;
	int rc = gn_rpc_server_counters(server, &c);

	if (rc)
		return rc;
	if (format > GN_RPC_PROMETHEUS || (room && !buf))
		return gn_fail(
			-EINVAL,
			"gn_rpc_server_metrics(): there is no such format, or buf is NULL but room "
			"is not 0");
	t = begin(format, "server", buf, room);
	put_counters(&t, &c);
	put_value(&t, "parks", "counter", c.parks);
	put_value(&t, "clients", "gauge", c.clients);
	put_value(&t, "bytes", "gauge", c.bytes);
	put_value(&t, "refused", "counter", c.refused);
	put_value(&t, "dropped", "counter", c.dropped);
	put_value(&t, "threads", "gauge", server->opts.threads);
	put_methods(&t, server, server_times, NULL);
	return end(&t);
}

/* ---- the methods that every server has ---- */

void rpc_metrics_handler(struct gn_rpc_request *r, void *arg)
{
	struct gn_rpc_server *server = arg;
	const unsigned method = gn_rpc_request_method(r);
	const enum gn_rpc_format format = method == GN_RPC_STATS_JSON ? GN_RPC_JSON :
									GN_RPC_PROMETHEUS;
	int len;
	char *text;

	if (method == GN_RPC_PING) {
		gn_rpc_answer(r, GN_RPC_OK, NULL, 0);
		return;
	}
	/* Counts have more digits a moment later, at most. */
	len = gn_rpc_server_metrics(server, format, NULL, 0) + 256;
	text = gn_alloc((size_t)len, 0);
	if (!text) {
		gn_rpc_answer(r, GN_RPC_BUSY, NULL, 0);
		return;
	}
	gn_rpc_server_metrics(server, format, text, (size_t)len);
	gn_rpc_answer(r, GN_RPC_OK, text, (uint32_t)strlen(text));
	gn_free(text);
}
