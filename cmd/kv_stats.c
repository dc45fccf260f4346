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
#include "metrics.h"
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
	{.type = OPT_END},
};

struct report {
	struct kv_report store;
	char *calls; /* as text, in the format that is printed */
};

/* ---- fields ---- */

#define AT(member) STAT_FIELD(struct gn_kv_stats, member)

static const struct field {
	const char *name;
	size_t at;
	const char *metric; /* for Prometheus; what only grows is a total */
	bool whole;	    /* of the server, not of a partition */
	const char *what;   /* the help text of the metric */
} fields[] = {
	{AT(items), "items", false, "Key-value pairs stored now."},
	{AT(item_bytes), "item_bytes", false, "Bytes of keys and values stored now."},
	{AT(memory), "memory_bytes", false, "Memory that the store may use."},
	{AT(used), "used_bytes", false, "Memory that the store uses now."},
	{AT(buckets), "buckets", false,
	 "Buckets of the index, or entries of a table that clients read."},
	{AT(spare_lines), "spare_lines", false, "Cache lines of the index beyond its buckets."},
	{AT(gets), "gets_total", false, "GETs, without those that set a time to live."},
	{AT(hits), "hits_total", false, "GETs that found their key."},
	{AT(misses), "misses_total", false, "GETs that did not find their key."},
	{AT(touches), "touches_total", false, "Times to live changed."},
	{AT(touch_misses), "touch_misses_total", false,
	 "Times to live not changed because the key was missing."},
	{AT(sets), "sets_total", false, "Attempts to store a value."},
	{AT(stored), "stored_total", false, "Items stored, by any operation."},
	{AT(deletes), "deletes_total", false, "Items deleted."},
	{AT(delete_misses), "delete_misses_total", false,
	 "Deletions of keys that were missing, or had another version."},
	{AT(numbers), "numbers_total", false, "Increments and decrements."},
	{AT(incr_hits), "incr_hits_total", false, "Increments done."},
	{AT(incr_misses), "incr_misses_total", false, "Increments of missing keys."},
	{AT(decr_hits), "decr_hits_total", false, "Decrements done."},
	{AT(decr_misses), "decr_misses_total", false, "Decrements of missing keys."},
	{AT(cas_ok), "cas_ok_total", false, "Values stored because the version was as expected."},
	{AT(cas_bad), "cas_bad_total", false, "Values not stored because the version was another."},
	{AT(cas_misses), "cas_misses_total", false,
	 "Values not stored because the key was missing."},
	{AT(evicted_bucket), "evicted_bucket_total", false,
	 "Items evicted as the least recently used of their bucket."},
	{AT(evicted_log), "evicted_log_total", false,
	 "Items evicted as the oldest unused ones of the log."},
	{AT(evicted_unfetched), "evicted_unfetched_total", false,
	 "Items evicted before they were read."},
	{AT(evicted_ttl), "evicted_ttl_total", false, "Items evicted that had a time to live."},
	{AT(evicted_idle_s), "evicted_idle_seconds", false,
	 "Time since the item that was evicted last had been used."},
	{AT(expired), "expired_total", false, "Items expired."},
	{AT(expired_get), "expired_get_total", false,
	 "Items found to be expired by an operation on their key."},
	{AT(expired_unfetched), "expired_unfetched_total", false,
	 "Items expired before they were read."},
	{AT(clears), "clears_total", false, "Times that all items were deleted."},
	{AT(too_big), "too_big_total", false, "Values refused because of their size."},
	{AT(moved), "moved_bytes_total", false, "Bytes moved by compaction."},
	{AT(splits), "splits_total", false, "Splits of buckets, or growths of a table."},
	{AT(kicks), "kicks_total", false, "Entries of a table moved to make space for others."},
	{AT(no_memory), "no_memory_total", false,
	 "Values not stored because nothing could be evicted."},
	{AT(partitions), "partitions", true, "Partitions, each with a thread."},
	{AT(uptime_s), "uptime_seconds", true, "Time since the server began."},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* ---- printing ---- */

static void kv_stats_print_text(const struct request *r, const struct report *report)
{
	for (size_t i = 0; i < FIELDS; i++) {
		printf("%s\t%" PRIu64, fields[i].name,
		       stat_value(&report->store.all, fields[i].at));
		for (uint32_t p = 0; r->partitions && p < report->store.n; p++)
			printf("\t%" PRIu64, stat_value(&report->store.parts[p], fields[i].at));
		putchar('\n');
	}
}

static void kv_stats_print_members(const struct gn_kv_stats *stats, bool whole)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (whole || !fields[i].whole)
			bench_json_count(stdout, fields[i].name, true,
					 stat_value(stats, fields[i].at));
}

static void kv_stats_print_json(const struct request *r, const struct report *report)
{
	putchar('{');
	bench_json_string(stdout, "addr", r->target.addr);
	kv_stats_print_members(&report->store.all, true);
	if (r->partitions) {
		fputs("\"by_partition\":[", stdout);
		for (uint32_t p = 0; p < report->store.n; p++) {
			fputs(p ? ",{" : "{", stdout);
			kv_stats_print_members(&report->store.parts[p], false);
			printf("\"partition\":%u}", p);
		}
		fputs("],", stdout);
	}
	fputs("\"calls\":", stdout);
	for (const char *c = report->calls; *c; c++) /* on one line: strings have no line ends */
		putchar(*c == '\n' ? ' ' : *c);
	puts("}");
}

static bool kv_stats_is_total(const struct field *f)
{
	static const char end[] = "_total";
	const size_t len = strlen(f->metric);

	return len > sizeof(end) && !strcmp(f->metric + len - (sizeof(end) - 1), end);
}

size_t kv_report_write(const struct kv_report *report, char *buf, size_t room)
{
	struct prom prom;

	prom_init(&prom, "gannet_kv_", buf, room);
	for (const struct field *f = fields; f < fields + FIELDS; f++) {
		prom_family(&prom, kv_stats_is_total(f) ? PROM_COUNTER : PROM_GAUGE, f->metric,
			    f->what);
		if (f->whole)
			prom_count(&prom, NULL, stat_value(&report->all, f->at));
		for (uint32_t i = 0; !f->whole && i < report->n; i++) {
			char number[16];
			const struct prom_label partition = {"partition", number};

			snprintf(number, sizeof(number), "%u", i);
			prom_count(&prom, &partition, stat_value(&report->parts[i], f->at));
		}
	}
	return prom.len;
}

static int write_store(void *report, char *buf, size_t room)
{
	return (int)kv_report_write(report, buf, room);
}

static int kv_stats_print_prometheus(struct report *report)
{
	char *text;
	const int rc = metrics_text(write_store, &report->store, &text);

	if (rc)
		return rc;
	fputs(text, stdout);
	fputs(report->calls, stdout);
	free(text);
	return 0;
}

/* ---- asking ---- */

int kv_report_ask(struct gn_kv_client *client, uint32_t partitions, uint64_t deadline_ns,
		  struct kv_report *report)
{
	int rc;

	*report = (struct kv_report){.n = partitions, .all.size = sizeof(report->all)};
	rc = gn_kv_client_stats(client, GN_KV_ALL, &report->all, deadline_ns);
	report->parts = calloc(partitions, sizeof(*report->parts));
	if (!report->parts)
		rc = -ENOMEM;
	for (uint32_t p = 0; !rc && p < partitions; p++) {
		report->parts[p].size = sizeof(report->parts[p]);
		rc = gn_kv_client_stats(client, p, &report->parts[p], deadline_ns);
	}
	return rc;
}

static int kv_stats_get_store(const struct request *r, struct kv_link *link, struct report *report)
{
	const int rc = kv_report_ask(link->client, link->limits.partitions, kv_deadline(&r->target),
				     &report->store);

	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s: %s\n", r->target.addr, cmd_why(rc));
	return rc;
}

/* One connection is as good as the other: what is counted is the server's. */
static int kv_stats_get_calls(const struct request *r, struct kv_link *link, struct report *report)
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
	struct report report = {.calls = NULL};
	struct kv_link link;
	int status, rc;

	if (r->json && r->prometheus)
		return cmd_usage_error("--json and --prometheus: one or the other");
	if (kv_link_open(&link, &r->target))
		return EXIT_FAILURE;
	rc = kv_stats_get_store(r, &link, &report);
	if (!rc && (r->json || r->prometheus))
		rc = kv_stats_get_calls(r, &link, &report);
	if (!rc && r->json)
		kv_stats_print_json(r, &report);
	else if (!rc && r->prometheus)
		rc = kv_stats_print_prometheus(&report);
	else if (!rc)
		kv_stats_print_text(r, &report);
	status = kv_leave(&link, rc, false);
	free(report.store.parts);
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
