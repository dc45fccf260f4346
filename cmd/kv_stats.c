/* SPDX-License-Identifier: MIT */
/*
 * gannet kv stats: what a running server holds and has counted, and what its calls were.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kv_cmd.h"
#include "rpc_cmd.h"

struct request {
	struct kv_target target;
	bool partitions, json, prometheus;
};

#define TO(member) .to = offsetof(struct request, member)

static const struct opt options[] = {
	OPT_KV_TARGET(struct request, target),
	{OPT_FLAG, "partitions", NULL, "also each thread's part, as further columns or a list",
	 TO(partitions)},
	{OPT_FLAG, "json", NULL, "an object; its key calls has what gannet rpc stats prints",
	 TO(json)},
	{OPT_FLAG, "prometheus", NULL,
	 "in Prometheus' text format, by partition; and likewise of calls", TO(prometheus)},
	{OPT_END},
};

/* A server's, and of each partition. */
struct report {
	uint32_t n;
	struct gn_kv_stats all;
	struct gn_kv_stats *parts;
	char *calls; /* as text, in the format that is printed */
};

/* ---- fields ---- */

#define AT(member) #member, offsetof(struct gn_kv_stats, member)

static const struct field {
	const char *name;
	size_t at;
	const char *metric; /* for Prometheus; what only grows is a total */
	bool whole;	    /* of the server, not of a partition */
	const char *what;
} fields[] = {
	{AT(items), "items", false, "pairs that are stored now"},
	{AT(item_bytes), "item_bytes", false, "bytes that they take"},
	{AT(memory), "memory_bytes", false, "bytes that there may be"},
	{AT(used), "used_bytes", false, "bytes of them that are taken"},
	{AT(buckets), "buckets", false,
	 "buckets of the index, or entries of a table to bypass with"},
	{AT(spare_lines), "spare_lines", false, "lines of the index beyond its buckets"},
	{AT(gets), "gets_total", false, "GETs done, but for those that set a time to live"},
	{AT(hits), "hits_total", false, "GETs that found their key"},
	{AT(misses), "misses_total", false, "GETs that did not"},
	{AT(touches), "touches_total", false, "times to live that were set anew"},
	{AT(touch_misses), "touch_misses_total", false, "… that were to be, of keys not there"},
	{AT(sets), "sets_total", false, "values that were to be stored"},
	{AT(stored), "stored_total", false, "new items, by whatever operation"},
	{AT(deletes), "deletes_total", false, "deletions done"},
	{AT(delete_misses), "delete_misses_total", false,
	 "deletions of keys not there, or with another version"},
	{AT(numbers), "numbers_total", false, "increments and decrements"},
	{AT(incr_hits), "incr_hits_total", false, "increments done"},
	{AT(incr_misses), "incr_misses_total", false, "increments of keys not there"},
	{AT(decr_hits), "decr_hits_total", false, "decrements done"},
	{AT(decr_misses), "decr_misses_total", false, "decrements of keys not there"},
	{AT(cas_ok), "cas_ok_total", false,
	 "values stored because their version was the expected one"},
	{AT(cas_bad), "cas_bad_total", false, "values not stored because it was not"},
	{AT(cas_misses), "cas_misses_total", false, "values not stored because there was none"},
	{AT(evicted_bucket), "evicted_bucket_total", false,
	 "the least recently used of a bucket, forgotten"},
	{AT(evicted_log), "evicted_log_total", false,
	 "written longest ago and not used since, forgotten"},
	{AT(evicted_unfetched), "evicted_unfetched_total", false,
	 "forgotten before anybody had read them"},
	{AT(evicted_ttl), "evicted_ttl_total", false, "forgotten that had a time to live"},
	{AT(evicted_idle_s), "evicted_idle_seconds", false,
	 "seconds since the last that was forgotten had been used"},
	{AT(expired), "expired_total", false, "found dead after their time to live"},
	{AT(expired_get), "expired_get_total", false, "… by an operation on their key"},
	{AT(expired_unfetched), "expired_unfetched_total", false, "… before anybody had read them"},
	{AT(clears), "clears_total", false, "times that everything was forgotten"},
	{AT(too_big), "too_big_total", false, "values that the store does not take"},
	{AT(moved), "moved_bytes_total", false, "bytes moved by compaction"},
	{AT(splits), "splits_total", false, "buckets split, or times that a table grew"},
	{AT(kicks), "kicks_total", false, "entries of a table that made room for others"},
	{AT(no_memory), "no_memory_total", false,
	 "values not stored because nothing could be forgotten"},
	{AT(partitions), "partitions", true, "partitions, each with a thread"},
	{AT(uptime_s), "uptime_seconds", true, "seconds since it began"},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static uint64_t value_of(const struct gn_kv_stats *stats, const struct field *field)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + field->at, sizeof(value));
	return value;
}

/* ---- printing ---- */

static void print_text(const struct request *r, const struct report *report)
{
	for (size_t i = 0; i < FIELDS; i++) {
		printf("%s\t%" PRIu64, fields[i].name, value_of(&report->all, &fields[i]));
		for (uint32_t p = 0; r->partitions && p < report->n; p++)
			printf("\t%" PRIu64, value_of(&report->parts[p], &fields[i]));
		putchar('\n');
	}
}

static void print_members(const struct gn_kv_stats *stats, bool whole)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (whole || !fields[i].whole)
			bench_json_count(stdout, fields[i].name, true, value_of(stats, &fields[i]));
}

static void print_json(const struct request *r, const struct report *report)
{
	putchar('{');
	bench_json_string(stdout, "addr", r->target.addr);
	print_members(&report->all, true);
	if (r->partitions) {
		fputs("\"by_partition\":[", stdout);
		for (uint32_t p = 0; p < report->n; p++) {
			fputs(p ? ",{" : "{", stdout);
			print_members(&report->parts[p], false);
			printf("\"partition\":%u}", p);
		}
		fputs("],", stdout);
	}
	fputs("\"calls\":", stdout);
	for (const char *c = report->calls; *c; c++) /* on one line: strings have no line ends */
		putchar(*c == '\n' ? ' ' : *c);
	puts("}");
}

static bool is_total(const struct field *f)
{
	static const char end[] = "_total";
	const size_t len = strlen(f->metric);

	return len > sizeof(end) && !strcmp(f->metric + len - (sizeof(end) - 1), end);
}

static void print_prometheus(const struct report *report)
{
	for (const struct field *f = fields; f < fields + FIELDS; f++) {
		printf("# HELP gannet_kv_%s %s\n", f->metric, f->what);
		printf("# TYPE gannet_kv_%s %s\n", f->metric, is_total(f) ? "counter" : "gauge");
		if (f->whole)
			printf("gannet_kv_%s %" PRIu64 "\n", f->metric, value_of(&report->all, f));
		for (uint32_t p = 0; !f->whole && p < report->n; p++)
			printf("gannet_kv_%s{partition=\"%u\"} %" PRIu64 "\n", f->metric, p,
			       value_of(&report->parts[p], f));
	}
	fputs(report->calls, stdout);
}

/* ---- asking ---- */

static int ask_store(const struct request *r, struct kv_link *link, struct report *report)
{
	const uint64_t deadline_ns = kv_deadline(&r->target);
	int rc;

	report->all.size = sizeof(report->all);
	rc = gn_kv_client_stats(link->client, GN_KV_ALL, &report->all, deadline_ns);
	report->n = link->limits.partitions;
	report->parts = calloc(report->n, sizeof(*report->parts));
	if (!report->parts)
		rc = -ENOMEM;
	for (uint32_t p = 0; !rc && p < report->n; p++) {
		report->parts[p].size = sizeof(report->parts[p]);
		rc = gn_kv_client_stats(link->client, p, &report->parts[p], deadline_ns);
	}
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s: %s\n", r->target.addr, cmd_why(rc));
	return rc;
}

/* One connection is as good as the other: what is counted is the server's. */
static int ask_calls(const struct request *r, struct kv_link *link, struct report *report)
{
	struct rpc_link rpc = {.addr = r->target.addr, .client = gn_kv_client_rpc(link->client, 0)};

	if (!rpc.client) {
		fprintf(stderr, "gannet: %s: %s\n", rpc.addr, gn_kv_status_str(GN_KV_GONE));
		return -ENOTCONN;
	}
	return rpc_stats_text(&rpc, r->json ? GN_RPC_STATS_JSON : GN_RPC_STATS_PROMETHEUS,
			      &report->calls);
}

static int kv_stats_run(const struct args *args)
{
	const struct request *r = args->opts;
	struct report report = {.n = 0};
	struct kv_link link;
	int status, rc;

	if (r->json && r->prometheus)
		return cmd_usage_error("--json and --prometheus: one or the other");
	if (kv_link_open(&link, &r->target))
		return EXIT_FAILURE;
	rc = ask_store(r, &link, &report);
	if (!rc && (r->json || r->prometheus))
		rc = ask_calls(r, &link, &report);
	if (!rc && r->json)
		print_json(r, &report);
	else if (!rc && r->prometheus)
		print_prometheus(&report);
	else if (!rc)
		print_text(r, &report);
	status = kv_leave(&link, rc, false);
	free(report.parts);
	free(report.calls);
	return status;
}

const struct command command_kv_stats = {
	.name = "stats",
	.what = "what a running server holds and has counted",
	.about = "Prints what the server holds, and what it has counted since it began: a line "
		 "each, with a name, a tab and a number.",
	.run = kv_stats_run,
	OPTIONS(options, struct request, .target = KV_TARGET_DEFAULT),
};
