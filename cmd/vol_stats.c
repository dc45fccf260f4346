/* SPDX-License-Identifier: MIT */
/* The state of a volume in words, as JSON, and for Prometheus. */
#include <inttypes.h>

#include "bench.h"
#include "metrics.h"
#include "vol_cmd.h"

#define MIB 1048576.0

/* ---- fields ---- */

#define AT(member) STAT_FIELD(struct gn_vol_stats, member)

static const struct stat_field fields[] = {
	{AT(bytes), "size_bytes", PROM_GAUGE, "Size of the volume."},
	{AT(extent_bytes), "extent_bytes", PROM_GAUGE, "Size of an extent: one slab."},
	{AT(extents), "extents", PROM_GAUGE, "Extents of the volume."},
	{AT(unused), "unused_extents", PROM_GAUGE, "Extents without memory: never written."},
	{AT(blocks_written), "written_blocks", PROM_GAUGE, "Blocks of 4 KiB that have data."},
	{AT(blocks_lost), "lost_blocks", PROM_GAUGE,
	 "Blocks of 4 KiB whose last copy was lost: they read as errors."},
	{AT(repair_bytes), "repair_bytes", PROM_GAUGE,
	 "Bytes of blocks that are being copied, or have to be."},
	{AT(repair_done), "repair_done_bytes", PROM_GAUGE, "Bytes of these that were copied."},
	{AT(failed), "failed_requests_total", PROM_COUNTER, "Requests that failed."},
	{AT(copies_lost), "lost_copies_total", PROM_COUNTER, "Copies of extents lost."},
	{AT(copies_made), "made_copies_total", PROM_COUNTER, "Copies of extents made anew."},
	{AT(copies_moved), "moved_copies_total", PROM_COUNTER,
	 "Copies of extents moved to another donor."},
	{AT(repaired_bytes), "repaired_bytes_total", PROM_COUNTER,
	 "Bytes copied by repair and moves."},
	{AT(crc_errors), "crc_errors_total", PROM_COUNTER, "Blocks read with a wrong checksum."},
	{AT(serialised), "serialised_requests_total", PROM_COUNTER,
	 "Requests that waited for another one that overlaps."},
	{AT(backup_lag), "backup_lag_bytes", PROM_GAUGE,
	 "Bytes written that are not in the backup yet."},
	{AT(headroom), "headroom_bytes", PROM_GAUGE, "Memory granted ahead and not used yet."},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const char *const op_names[GN_VOL_OPS] = {[GN_VOL_READ] = "read",
						 [GN_VOL_WRITE] = "write",
						 [GN_VOL_ZERO] = "zero",
						 [GN_VOL_DISCARD] = "discard",
						 [GN_VOL_FLUSH] = "flush"};
static const char *const donor_states[] = {
	[GN_VOL_DONOR_UP] = "up", [GN_VOL_DONOR_DOWN] = "down", [GN_VOL_DONOR_LEAVING] = "leaving"};

/* ---- words ---- */

/* Extents with fewer copies than wanted. */
static uint64_t degraded_extents(const struct gn_vol_stats *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->copies; i++)
		n += s->with_copies[i];
	return n;
}

/* Of the extents that have memory. */
static uint32_t fewest_copies(const struct gn_vol_stats *s)
{
	for (uint32_t i = 0; i < s->copies; i++)
		if (s->with_copies[i])
			return i;
	return s->copies;
}

/* On a donor that does not answer, and that was not given up yet: it may have a last copy. */
static bool donor_is_awaited(const struct gn_vol_donor_stats *d)
{
	return d->state == GN_VOL_DONOR_DOWN && d->copies;
}

static uint64_t unreachable_copies(const struct gn_vol_stats *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->n_donors; i++)
		n += donor_is_awaited(&s->donors[i]) ? s->donors[i].copies : 0;
	return n;
}

static uint32_t donors_in(const struct gn_vol_stats *s, enum gn_vol_donor_state state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_donors; i++)
		n += s->donors[i].state == state;
	return n;
}

/* Copies go to other donors. Those of extents without data have no bytes to copy. */
static bool is_moving(const struct gn_vol_stats *s)
{
	for (uint32_t i = 0; i < s->n_donors; i++)
		if (s->donors[i].state == GN_VOL_DONOR_LEAVING && s->donors[i].copies)
			return true;
	return s->repair_bytes;
}

const char *vol_stats_state(const struct gn_vol_stats *s)
{
	return s->blocks_lost	     ? "lost" :
	       unreachable_copies(s) ? "unreachable" :
	       degraded_extents(s)   ? "degraded" :
	       is_moving(s)	     ? "moving" :
				       "healthy";
}

static void print_repair(const struct gn_vol_stats *s, FILE *to)
{
	if (s->repair_bytes > s->repair_done)
		fprintf(to, "; %.1f MiB are still to be copied",
			(double)(s->repair_bytes - s->repair_done) / MIB);
	if ((!degraded_extents(s) && !is_moving(s)) || donors_in(s, GN_VOL_DONOR_UP) >= s->copies)
		return;
	if (donors_in(s, GN_VOL_DONOR_DOWN))
		fputs("; new copies need a donor: start one that is DOWN again", to);
	else
		fputs("; no other donor can take copies of the one that is leaving: start that one "
		      "again when it has ended",
		      to);
}

static void print_unreachable(const struct gn_vol_stats *s, FILE *to)
{
	const char *before = "UNREACHABLE: no answer from ";

	for (uint32_t i = 0; i < s->n_donors; i++)
		if (donor_is_awaited(&s->donors[i])) {
			fprintf(to, "%s%s", before, s->donors[i].addr);
			before = ", ";
		}
	fprintf(to,
		"; requests wait for the %" PRIu64 " copies there, until these donors answer or "
		"are given up\n",
		unreachable_copies(s));
}

void vol_stats_words(const struct gn_vol_stats *s, FILE *to)
{
	const uint64_t degraded = degraded_extents(s);
	const bool awaited = unreachable_copies(s);

	if (awaited)
		print_unreachable(s, to);
	if (s->blocks_lost)
		fprintf(to,
			"LOST: %" PRIu64 " blocks (%.1f MiB) have no copy left and read as I/O "
			"errors until they are written",
			s->blocks_lost, (double)s->blocks_lost * GN_VOL_BLOCK / MIB);
	if (degraded)
		fprintf(to,
			"%s: %" PRIu64 " of %" PRIu64 " extents have fewer than %u copies, the "
			"least %u",
			s->blocks_lost ? "; degraded" : "DEGRADED", degraded,
			s->extents - s->unused, s->copies, fewest_copies(s));
	else if (!s->blocks_lost && !awaited && is_moving(s))
		fprintf(to, "moving: all copies are there, some go to other donors");
	else if (!s->blocks_lost && !awaited)
		fprintf(to, "healthy: every extent has %u %s", s->copies,
			s->copies == 1 ? "copy; the loss of a donor loses data" : "copies");
	if (s->blocks_lost || degraded || !awaited) {
		print_repair(s, to);
		fputc('\n', to);
	}
	if (s->backup_error)
		fprintf(to, "BACKUP FAILS: %s; %.1f MiB are not in it\n",
			gn_strerror(s->backup_error), (double)s->backup_lag / MIB);
	fflush(to);
}

static void print_donor(const struct gn_vol_donor_stats *d, FILE *to)
{
	fprintf(to, "%s\t%s\t%" PRIu64 " cop%s", d->addr,
		d->state == GN_VOL_DONOR_DOWN ? "DOWN" : donor_states[d->state], d->copies,
		d->copies == 1 ? "y" : "ies");
	if (d->state != GN_VOL_DONOR_DOWN)
		fprintf(to, "\t%" PRIu64 " spare\t%.1f MiB free", d->spare,
			(double)d->free_bytes / MIB);
	if (d->lost)
		fprintf(to, "\tlost %" PRIu64 " time%s", d->lost, d->lost == 1 ? "" : "s");
	fputc('\n', to);
}

void vol_stats_print_changes(const struct gn_vol_stats *before, const struct gn_vol_stats *s,
			     FILE *to)
{
	vol_stats_words(s, to);
	for (uint32_t i = 0; i < s->n_donors; i++)
		if (i >= before->n_donors || s->donors[i].state != before->donors[i].state)
			print_donor(&s->donors[i], to);
	fflush(to);
}

void vol_stats_print(const struct gn_vol_stats *s, FILE *to)
{
	fprintf(to, "volume of %.1f MiB, %u cop%s, %u donor%s, %.1f MiB written\n",
		(double)s->bytes / MIB, s->copies, s->copies == 1 ? "y" : "ies", s->n_donors,
		s->n_donors == 1 ? "" : "s", (double)s->blocks_written * GN_VOL_BLOCK / MIB);
	vol_stats_words(s, to);
	for (uint32_t i = 0; i < s->n_donors; i++)
		print_donor(&s->donors[i], to);
	fflush(to);
}

/* ---- for programs ---- */

void vol_stats_print_json(const struct gn_vol_stats *s, FILE *to)
{
	bench_json_string(to, "state", vol_stats_state(s));
	bench_json_count(to, "copies", true, s->copies);
	for (size_t i = 0; i < FIELDS; i++)
		bench_json_count(to, fields[i].name, true, stat_value(s, fields[i].at));
	for (unsigned i = 0; i < GN_VOL_OPS; i++)
		fprintf(to, "%s\"%s\":%" PRIu64, i ? "," : "\"requests\":{", op_names[i],
			s->requests[i]);
	fprintf(to, "},\"backup_error\":%d,\"with_copies\":[", s->backup_error);
	for (unsigned i = 0; i <= GN_VOL_COPIES_MAX; i++)
		fprintf(to, "%s%" PRIu64, i ? "," : "", s->with_copies[i]);
	fputs("],\"donors\":[", to);
	for (uint32_t i = 0; i < s->n_donors; i++) {
		const struct gn_vol_donor_stats *d = &s->donors[i];

		fputs(i ? ",{" : "{", to);
		bench_json_string(to, "addr", d->addr);
		bench_json_string(to, "state", donor_states[d->state]);
		bench_json_count(to, "copies", true, d->copies);
		bench_json_count(to, "spare", true, d->spare);
		bench_json_count(to, "free_bytes", true, d->free_bytes);
		fprintf(to, "\"lost\":%" PRIu64 "}", d->lost);
	}
	fputc(']', to);
}

static void donors_prometheus(const struct gn_vol_stats *s, struct prom *prom)
{
	static const struct {
		const char *metric, *what;
		enum prom_type kind;
	} of_donor[] = {
		{"donor_up", "1: the donor can be reached.", PROM_GAUGE},
		{"donor_copies", "Extents with a copy on this donor.", PROM_GAUGE},
		{"donor_spare_slabs", "Slabs granted by this donor and not used.", PROM_GAUGE},
		{"donor_free_bytes", "Memory that the donor had to lend when last asked.",
		 PROM_GAUGE},
		{"donor_lost_total", "Times that the donor was given up.", PROM_COUNTER},
	};

	for (unsigned m = 0; m < sizeof(of_donor) / sizeof(of_donor[0]); m++) {
		prom_family(prom, of_donor[m].kind, of_donor[m].metric, of_donor[m].what);
		for (uint32_t i = 0; i < s->n_donors; i++) {
			const struct gn_vol_donor_stats *d = &s->donors[i];
			const uint64_t values[] = {d->state != GN_VOL_DONOR_DOWN, d->copies,
						   d->spare, d->free_bytes, d->lost};
			const struct prom_label label = {"donor", d->addr};

			prom_count(prom, &label, values[m]);
		}
	}
}

size_t vol_stats_prometheus(const struct gn_vol_stats *s, char *buf, size_t room)
{
	struct prom prom;

	prom_init(&prom, "gannet_vol_", buf, room);
	stat_fields_prometheus(fields, FIELDS, s, &prom);
	prom_single(&prom, PROM_GAUGE, "copies", "Copies that every extent should have.",
		    s->copies);
	prom_single(&prom, PROM_GAUGE, "degraded_extents", "Extents with fewer copies.",
		    degraded_extents(s));
	prom_single(&prom, PROM_GAUGE, "unreachable_copies",
		    "Copies on donors that do not answer now: requests wait for them.",
		    unreachable_copies(s));
	prom_single(&prom, PROM_GAUGE, "backup_failing", "1: the last call of the backup failed.",
		    s->backup_error != 0);
	prom_family(&prom, PROM_COUNTER, "requests_total", "Requests that have ended.");
	for (unsigned i = 0; i < GN_VOL_OPS; i++)
		prom_count(&prom, &(struct prom_label){"op", op_names[i]}, s->requests[i]);
	donors_prometheus(s, &prom);
	return prom.len;
}
