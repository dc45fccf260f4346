/* SPDX-License-Identifier: MIT */
/* The state of a volume, in numbers. */
#include <stdio.h>

#include "base/sized.h"
#include "vol/vol.h"

/* The map is locked. */
static void status_extents(const struct gn_vol *vol, struct gn_vol_stats *s)
{
	for (uint32_t i = 0; i < vol->n_extents; i++) {
		const struct vol_extent *e = &vol->extents[i];

		if (e->was_used)
			s->with_copies[e->n_live < GN_VOL_COPIES_MAX ? e->n_live :
								       GN_VOL_COPIES_MAX]++;
		else
			s->unused++;
	}
}

/* Bytes of blocks with data in the first len bytes of an extent: repair copies only these. */
static uint64_t extent_data(const struct gn_vol *vol, uint32_t extent, uint64_t len)
{
	const uint64_t from = extent * vol->extent_bytes;
	const uint64_t to = from + len < vol->opts.bytes ? from + len : vol->opts.bytes;
	const uint64_t end = to >> VOL_BLOCK_SHIFT;
	uint64_t blocks = 0;

	for (uint64_t block = from >> VOL_BLOCK_SHIFT, run; block < end; block = run) {
		run = vol_blocks_run(vol, block, end);
		if (vol_block_get(vol, block) == VOL_DATA)
			blocks += run - block;
	}
	return blocks << VOL_BLOCK_SHIFT;
}

/* Takes a bucket, for an extent at a time: it may take long. */
static void status_repair(const struct gn_vol *vol, struct gn_vol_stats *s)
{
	for (uint32_t i = 0; i < vol->n_extents; i++) {
		struct vol_bucket *bucket = &vol->buckets[0];
		const struct vol_extent *e = &vol->extents[i];
		unsigned missing = 0;
		bool copying;

		vol_bucket_lock(bucket);
		if (e->was_used && e->n_live < vol->opts.copies)
			missing = vol->opts.copies - e->n_live;
		for (unsigned k = 0; k < e->n_live; k++)
			missing += e->copy[k]->moving;
		copying = vol->copying == i + 1;
		vol_bucket_unlock(bucket);
		if (missing)
			s->repair_bytes += missing * extent_data(vol, i, vol->extent_bytes);
		if (missing && copying)
			s->repair_done = extent_data(
				vol, i, __atomic_load_n(&vol->cursor, __ATOMIC_RELAXED));
	}
}

/* Without locks: it may take long. */
static void status_blocks(const struct gn_vol *vol, struct gn_vol_stats *s)
{
	const uint64_t blocks = vol->opts.bytes >> VOL_BLOCK_SHIFT;

	for (uint64_t block = 0; block < blocks;) {
		const enum vol_block kind = vol_block_get(vol, block);
		const uint64_t run = vol_blocks_run(vol, block, blocks);

		if (kind == VOL_DATA)
			s->blocks_written += run - block;
		else if (kind == VOL_LOST)
			s->blocks_lost += run - block;
		block = run;
	}
}

/* The map and the volume's lock are held. */
static void status_donor(const struct vol_donor *donor, struct gn_vol_donor_stats *s)
{
	snprintf(s->addr, sizeof(s->addr), "%s", donor->addr);
	s->state = !donor->target || donor->losing || donor->given_up ||
				   gn_io_target_down_us(donor->target) ?
			   GN_VOL_DONOR_DOWN :
		   donor->leaving ? GN_VOL_DONOR_LEAVING :
				    GN_VOL_DONOR_UP;
	s->copies = donor->n_used;
	s->spare = donor->n_spare;
	s->free_bytes = donor->free_slabs * donor->slab_bytes;
	s->lost = donor->times_lost;
}

int gn_vol_query(struct gn_vol *vol, struct gn_vol_stats *out)
{
	struct gn_vol_stats s;

	if (!vol || !out)
		return gn_fail(-EINVAL, "gn_vol_query(): vol or out is NULL");
	vol_map_lock(vol);
	gn_mutex_lock(&vol->lock);
	s = vol->stats;
	s.size = sizeof(s);
	s.bytes = vol->opts.bytes;
	s.extent_bytes = vol->extent_bytes;
	s.copies = vol->opts.copies;
	s.n_donors = vol->opts.n_donors;
	s.extents = vol->n_extents;
	status_extents(vol, &s);
	s.backup_lag = __atomic_load_n(&vol->behind_bytes, __ATOMIC_RELAXED);
	for (unsigned d = 0; d < s.n_donors; d++) {
		status_donor(&vol->donors[d], &s.donors[d]);
		s.headroom += vol->donors[d].n_spare * vol->extent_bytes;
	}
	for (const struct gn_vol_queue *queue = vol->queues; queue; queue = queue->next) {
		for (unsigned op = 0; op < GN_VOL_OPS; op++)
			s.requests[op] += counter_read(&queue->requests[op]);
		s.failed += counter_read(&queue->failed);
		s.serialised += counter_read(&queue->serialised);
		s.crc_errors += counter_read(&queue->crc_errors);
	}
	gn_mutex_unlock(&vol->lock);
	vol_map_unlock(vol);
	status_blocks(vol, &s);
	status_repair(vol, &s);
	return SIZED_WRITE(out, &s, "gn_vol_stats");
}

static bool vol_is_whole(struct gn_vol *vol)
{
	bool whole = true;

	vol_map_lock(vol);
	for (uint32_t i = 0; whole && i < vol->n_extents; i++) {
		const struct vol_extent *e = &vol->extents[i];

		whole = !e->was_used || (e->n_live == vol->opts.copies && e->n_copies == e->n_live);
		for (unsigned k = 0; whole && k < e->n_copies; k++)
			whole = !e->copy[k]->moving;
	}
	vol_map_unlock(vol);
	return whole;
}

int gn_vol_wait_repaired(struct gn_vol *vol, uint64_t deadline_ns)
{
	if (!vol)
		return gn_fail(-EINVAL, "gn_vol_wait_repaired(): vol is NULL");
	while (!vol_is_whole(vol)) {
		const uint64_t tick_ns = gn_now_ns() + VOL_TICK_NS;

		gn_mutex_lock(&vol->lock);
		gn_cond_wait(&vol->changed, &vol->lock,
			     deadline_ns < tick_ns ? deadline_ns : tick_ns, "repair");
		gn_mutex_unlock(&vol->lock);
		if (gn_now_ns() >= deadline_ns)
			return gn_fail(-ETIMEDOUT, "gn_vol_wait_repaired(): copies are missing");
	}
	return 0;
}

int gn_vol_sessions(struct gn_vol *vol, struct gn_vol_session *out)
{
	int n = 0;

	if (!vol || !out)
		return gn_fail(-EINVAL, "gn_vol_sessions(): vol or out is NULL");
	gn_mutex_lock(&vol->lock);
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		const struct vol_donor *donor = &vol->donors[d];

		if (!donor->id.incarnation)
			continue;
		snprintf(out[n].addr, sizeof(out[n].addr), "%s", donor->addr);
		out[n++].id = donor->id;
	}
	gn_mutex_unlock(&vol->lock);
	return n;
}
