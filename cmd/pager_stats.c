/* SPDX-License-Identifier: MIT */
/* The statistics of a pager for people, as JSON, and for Prometheus. */
#include <inttypes.h>
#include <string.h>

#include "base/prometheus.h"
#include "bench.h"
#include "pager_cmd.h"

#define MIB	 1048576.0
#define PAGE_MIB (GN_PAGER_PAGE / MIB)

#define AT(member) #member, offsetof(struct gn_pager_stats, member)

static const struct field {
	const char *name;
	size_t at;
	const char *metric;
	enum prom_type kind;
	const char *what; /* the help text of the metric */
} fields[] = {
	{AT(local_bytes), "local_limit_bytes", PROM_GAUGE, "Limit of local memory."},
	{AT(mapped_bytes), "mapped_bytes", PROM_GAUGE, "Memory that the program has mapped."},
	{AT(free_bytes), "free_bytes", PROM_GAUGE, "Bytes of the volume that are not mapped."},
	{AT(resident), "resident_pages", PROM_GAUGE, "Pages that are local."},
	{AT(cached), "cached_pages", PROM_GAUGE, "Local pages that are unmapped and kept."},
	{AT(pinned), "pinned_pages", PROM_GAUGE, "Local pages that are never evicted."},
	{AT(faults), "faults_total", PROM_COUNTER, "Page faults that threads waited for."},
	{AT(faults_fresh), "fresh_faults_total", PROM_COUNTER,
	 "Faults on memory that was never written."},
	{AT(faults_remote), "remote_faults_total", PROM_COUNTER,
	 "Faults that waited for the volume."},
	{AT(faults_cached), "cached_faults_total", PROM_COUNTER,
	 "Faults whose page was still local."},
	{AT(faults_write), "write_faults_total", PROM_COUNTER, "Faults only to notice a write."},
	{AT(zeroed), "zeroed_pages_total", PROM_COUNTER, "Pages of zeros that were mapped."},
	{AT(pages_in), "read_pages_total", PROM_COUNTER, "Pages read from the volume."},
	{AT(pages_out), "written_pages_total", PROM_COUNTER, "Pages written to the volume."},
	{AT(reads), "reads_total", PROM_COUNTER, "Requests that read pages."},
	{AT(writes), "writes_total", PROM_COUNTER, "Requests that wrote pages."},
	{AT(dropped), "dropped_pages_total", PROM_COUNTER, "Pages evicted without a write."},
	{AT(prefetched), "prefetched_pages_total", PROM_COUNTER, "Pages read ahead."},
	{AT(prefetch_used), "prefetch_used_pages_total", PROM_COUNTER,
	 "Pages read ahead that were used."},
	{AT(prefetch_wasted), "prefetch_wasted_pages_total", PROM_COUNTER,
	 "Pages read ahead that were evicted unused."},
	{AT(stalls), "stalls_total", PROM_COUNTER, "Faults that waited for free local memory."},
	{AT(lost), "lost_pages_total", PROM_COUNTER, "Pages that raised SIGBUS."},
	{AT(moves), "handler_moves_total", PROM_COUNTER, "Moves of the handler to another core."},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static uint64_t pager_stat(const struct gn_pager_stats *stats, const struct field *field)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + field->at, sizeof(value));
	return value;
}

static double ratio(uint64_t part, uint64_t of)
{
	return of ? (double)part / (double)of : 0;
}

void pager_stats_print(const struct gn_pager_stats *s, FILE *to)
{
	fprintf(to, "memory     %.1f MiB mapped, %.1f MiB of them local (limit %.1f MiB)\n",
		(double)s->mapped_bytes / MIB, (double)s->resident * PAGE_MIB,
		(double)s->local_bytes / MIB);
	fprintf(to,
		"faults     %" PRIu64 ", %.1f us each: %" PRIu64 " remote, %" PRIu64
		" fresh, %" PRIu64 " cached, %" PRIu64 " to notice a write\n",
		s->faults, ratio(s->fault_ns, s->faults) / 1000, s->faults_remote, s->faults_fresh,
		s->faults_cached, s->faults_write);
	fprintf(to,
		"read       %" PRIu64 " pages (%.1f MiB) in %" PRIu64 " requests; %" PRIu64
		" of them ahead (%.0f %% used)\n",
		s->pages_in, (double)s->pages_in * PAGE_MIB, s->reads, s->prefetched,
		100 * ratio(s->prefetch_used, s->prefetched));
	fprintf(to,
		"evicted    %" PRIu64 " pages written (%.1f MiB) in %" PRIu64 " requests, %" PRIu64
		" dropped\n",
		s->pages_out, (double)s->pages_out * PAGE_MIB, s->writes, s->dropped);
	if (s->stalls)
		fprintf(to, "stalls     %" PRIu64 " faults waited for free local memory\n",
			s->stalls);
	if (s->lost)
		fprintf(to, "LOST       %" PRIu64 " pages raised SIGBUS: their last copy is lost\n",
			s->lost);
}

int pager_stats_line(const struct gn_pager_stats *before, const struct gn_pager_stats *s,
		     double seconds, char *buf, size_t room)
{
	const double per_s = seconds > 0 ? 1 / seconds : 0;

	return snprintf(buf, room,
			"%.1f MiB mapped, %.1f of %.1f MiB local; %.0f faults/s, %.0f remote; "
			"%.1f MiB/s in, %.1f MiB/s out",
			(double)s->mapped_bytes / MIB, (double)s->resident * PAGE_MIB,
			(double)s->local_bytes / MIB, (double)(s->faults - before->faults) * per_s,
			(double)(s->faults_remote - before->faults_remote) * per_s,
			(double)(s->pages_in - before->pages_in) * PAGE_MIB * per_s,
			(double)(s->pages_out - before->pages_out) * PAGE_MIB * per_s);
}

/* ---- for programs ---- */

void pager_stats_print_json(const struct gn_pager_stats *s, FILE *to)
{
	for (size_t i = 0; i < FIELDS; i++)
		bench_json_count(to, fields[i].name, true, pager_stat(s, &fields[i]));
	fprintf(to, "\"fault_ns\":%" PRIu64, s->fault_ns);
}

size_t pager_stats_prometheus(const struct gn_pager_stats *s, char *buf, size_t room)
{
	struct prom prom;

	prom_init(&prom, "gannet_pager_", buf, room);
	for (const struct field *f = fields; f < fields + FIELDS; f++)
		prom_single(&prom, f->kind, f->metric, f->what, pager_stat(s, f));
	prom_family(&prom, PROM_COUNTER, "fault_seconds_total",
		    "Time that threads waited for faults.");
	prom_real(&prom, NULL, (double)s->fault_ns / 1e9);
	return prom.len;
}
