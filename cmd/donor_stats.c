/* SPDX-License-Identifier: MIT */
/* gannet donor stats: what a running donor has lent and counted. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench.h"
#include "donor_cmd.h"
#include "metrics.h"

struct request {
	struct donor_target target;
	bool json, prometheus;
};

#define TO(member) .to = offsetof(struct request, member)

static const struct opt options[] = {
	OPT_DONOR_TARGET(struct request, target),
	{OPT_FLAG, "json", NULL, "a JSON object", TO(json)},
	{OPT_FLAG, "prometheus", NULL, "in Prometheus' text format", TO(prometheus)},
	{.type = OPT_END},
};

/* ---- fields ---- */

#define AT(member) STAT_FIELD(struct gn_donor_stats, member)

static const struct stat_field fields[] = {
	{AT(memory), "memory_bytes", PROM_GAUGE, "Memory that slabs may take."},
	{AT(slab_bytes), "slab_bytes", PROM_GAUGE, "Bytes of a slab."},
	{AT(slabs), "slabs", PROM_GAUGE, "Slabs that the memory has space for."},
	{AT(granted), "granted_slabs", PROM_GAUGE, "Slabs that clients hold now."},
	{AT(ready), "ready_slabs", PROM_GAUGE, "Slabs that are ready to be granted."},
	{AT(ending), "ending_slabs", PROM_GAUGE, "Slabs that were returned and are not freed yet."},
	{AT(asked), "asked_slabs", PROM_GAUGE, "Granted slabs that the donor wants back."},
	{AT(sessions), "sessions", PROM_GAUGE, "Sessions of clients."},
	{AT(orphans), "orphan_sessions", PROM_GAUGE, "Sessions without any connection."},
	{AT(shares), "shares", PROM_GAUGE, "Ranges that are shared by tokens."},
	{AT(conns), "data_connections", PROM_GAUGE, "Data connections."},
	{AT(waiting), "waiting_grants", PROM_GAUGE, "Calls that wait for a slab."},
	{AT(available), "available_bytes", PROM_GAUGE,
	 "Memory that the system has available; 0: not known."},
	{AT(reserve), "reserve_bytes", PROM_GAUGE, "Memory that the system is to keep available."},
	{AT(grants), "grants_total", PROM_COUNTER, "Slabs granted."},
	{AT(releases), "releases_total", PROM_COUNTER, "Slabs returned by clients."},
	{AT(refused), "refused_grants_total", PROM_COUNTER, "Calls for a slab that got none."},
	{AT(expired), "expired_sessions_total", PROM_COUNTER, "Sessions whose lease ended."},
	{AT(taken), "taken_slabs_total", PROM_COUNTER, "Slabs taken back by force."},
	{AT(revoked), "revoked_shares_total", PROM_COUNTER, "Shares revoked."},
	{AT(attached), "attached_total", PROM_COUNTER, "Data connections accepted."},
	{AT(bad_requests), "bad_requests_total", PROM_COUNTER,
	 "Connections and sessions refused: malformed, or of another version."},
	{AT(bad_tokens), "bad_tokens_total", PROM_COUNTER,
	 "Connections and sessions refused: unknown, expired or revoked token."},
	{AT(old_generations), "old_generations_total", PROM_COUNTER,
	 "Data connections refused: a later one was accepted."},
	{AT(other_incarnations), "other_incarnations_total", PROM_COUNTER,
	 "Connections and sessions refused: of a donor that ran here before."},
	{AT(busy), "busy_total", PROM_COUNTER, "Connections and sessions refused by a limit."},
	{AT(pauses), "pauses_total", PROM_COUNTER,
	 "Times that the donor was stopped, so that all leases were extended."},
	{AT(uptime_s), "uptime_seconds", PROM_GAUGE, "Time since the donor began."},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

_Static_assert(FIELDS == sizeof(struct gn_donor_stats) / sizeof(uint64_t) - 1, "all of them");

/* ---- printing ---- */

void donor_stats_print_json(const struct gn_donor_stats *stats, FILE *to)
{
	for (size_t i = 0; i < FIELDS; i++)
		fprintf(to, "%s\"%s\":%" PRIu64, i ? "," : "", fields[i].name,
			stat_value(stats, fields[i].at));
}

size_t donor_stats_prometheus(const struct gn_donor_stats *stats, char *buf, size_t room)
{
	struct prom prom;

	prom_init(&prom, "gannet_donor_", buf, room);
	stat_fields_prometheus(fields, FIELDS, stats, &prom);
	return prom.len;
}

static int donor_stats_write(void *stats, char *buf, size_t room)
{
	return (int)donor_stats_prometheus(stats, buf, room);
}

static int donor_stats_print(const struct request *r, struct gn_donor_stats *stats)
{
	char *text;
	int rc;

	if (r->json) {
		putchar('{');
		bench_json_string(stdout, "addr", r->target.addr);
		donor_stats_print_json(stats, stdout);
		puts("}");
		return 0;
	}
	if (r->prometheus) {
		rc = metrics_text(donor_stats_write, stats, &text);
		if (!rc)
			fputs(text, stdout);
		free(rc ? NULL : text);
		return rc;
	}
	for (size_t i = 0; i < FIELDS; i++)
		printf("%s\t%" PRIu64 "\n", fields[i].name, stat_value(stats, fields[i].at));
	return 0;
}

static int donor_stats_run(const struct args *args)
{
	const struct request *r = args->opts;
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct donor_link link;
	int rc;

	if (r->json && r->prometheus)
		return cmd_usage_error("--json and --prometheus: one or the other");
	if (donor_link_open(&link, &r->target))
		return EXIT_FAILURE;
	rc = gn_donor_query(link.donor, &stats, link.deadline_ns);
	if (!rc)
		rc = donor_stats_print(r, &stats);
	return donor_link_end(&link, rc);
}

const struct command command_donor_stats = {
	.name = "stats",
	.what = "what a running donor has lent and counted",
	.about = "Prints what the donor has lent, and what it has counted since it began: a line "
		 "each, with a name, a tab and a number.",
	.run = donor_stats_run,
	OPTIONS(options, struct request, .target = DONOR_TARGET_DEFAULT),
};
