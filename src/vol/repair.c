/* SPDX-License-Identifier: MIT */
/*
 * Repair: makes new copies of extents that have too few, or whose donor wants a slab back. A new
 * copy first receives all WRITEs (FILLING). Then chunks are copied to it, each with its range
 * locked, and the copy is LIVE. Only blocks with data are copied: the others are zero in a new
 * slab.
 */
#include "io/core/place.h"
#include "vol/vol.h"

#define IDLE_NS	    UINT64_C(500000000)
#define NO_SPACE_NS UINT64_C(100000000)
#define PACE_NS	    UINT64_C(200000) /* sleeps are at least so long */
#define PACE_MAX_NS UINT64_C(50000000)
#define SOURCE_US   1000u /* between two attempts to read a copy that failed */
#define SOURCE_MAX  100u  /* of them: the keeper has retired the copy, unless it may not */

struct repair {
	struct gn_vol *vol;
	struct gn_io_queue *queue;
	struct gn_io_mem *mem;
	uint8_t *buf;	  /* VOL_CHUNK */
	uint64_t owed_ns; /* that it has to sleep */
	uint64_t left;	  /* copies that are missing or must move */
	uint32_t next;	  /* extent to look at first: all of one urgency have their turn */
	bool any;	  /* the last job failed: the next extent of any urgency has its turn */
};

/* What to do next. */
struct repair_job {
	uint32_t extent;
	struct vol_donor *to;
	struct vol_copy *move; /* NULL: a copy is missing */
	bool fresh;	       /* the extent has no copies: nothing is copied */
	bool moved;	       /* move was copied before; it only has to leave the map */
};

/* ---- choosing ---- */

/* The map is locked. Slabs that donors have for another copy of this extent. */
static unsigned extent_places(struct gn_vol *vol, const struct vol_extent *e,
			      uint64_t places[GN_VOL_DONORS_MAX])
{
	unsigned n = 0;

	gn_mutex_lock(&vol->lock);
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		const struct vol_donor *donor = &vol->donors[d];

		places[d] = 0;
		if (vol_donor_usable(donor))
			places[d] = donor->n_spare + (donor->full ? 0 : donor->free_slabs);
		for (unsigned i = 0; i < e->n_copies; i++)
			if (e->copy[i]->donor == donor)
				places[d] = 0;
		n += places[d] != 0;
	}
	gn_mutex_unlock(&vol->lock);
	return n;
}

/* The copy that should leave the extent: its donor wants it back, or there is one too many. */
static struct vol_copy *extent_moving(const struct gn_vol *vol, const struct vol_extent *e)
{
	for (unsigned i = 0; i < e->n_live; i++)
		if (e->copy[i]->moving)
			return e->copy[i];
	return e->n_live > vol->opts.copies ? e->copy[e->n_live - 1] : NULL;
}

/* How urgent: 0: nothing to do. */
static unsigned extent_urgency(const struct gn_vol *vol, const struct vol_extent *e)
{
	if (!e->was_used || e->n_copies > e->n_live)
		return 0;
	if (!e->n_live)
		return 1;
	if (e->n_live < vol->opts.copies)
		return 2 + vol->opts.copies - e->n_live;
	return extent_moving(vol, e) ? 2 : 0;
}

/* The map is locked. */
static bool job_find(struct repair *r, struct repair_job *job)
{
	struct gn_vol *vol = r->vol;
	uint64_t places[GN_VOL_DONORS_MAX], left = 0;
	unsigned best = 0;

	for (uint32_t n = 0, i = r->next; n < vol->n_extents; n++, i++) {
		const struct vol_extent *e;
		unsigned urgency;

		if (i >= vol->n_extents)
			i = 0;
		e = &vol->extents[i];
		urgency = extent_urgency(vol, e);
		if (!urgency)
			continue;
		left += urgency == 2 ? 1 : vol->opts.copies - e->n_live;
		if (urgency <= best || (best && r->any))
			continue;
		if (e->n_live > vol->opts.copies) {
			best = urgency;
			*job = (struct repair_job){
				.extent = i, .move = extent_moving(vol, e), .moved = true};
			continue;
		}
		if (!extent_places(vol, e, places))
			continue;
		best = urgency;
		*job = (struct repair_job){
			.extent = i,
			.to = &vol->donors[io_place(places, vol->opts.n_donors, gn_random())],
			.move = urgency == 2 ? extent_moving(vol, e) : NULL,
			.fresh = urgency == 1};
	}
	r->left = left;
	r->next = best ? job->extent + 1 : 0;
	return best;
}

/* ---- copying ---- */

static void range_lock(struct repair *r, struct vol_range *range)
{
	struct vol_bucket *bucket = vol_bucket(r->vol, range->start);
	struct gn_io_req *woken;
	bool locked;

	vol_bucket_lock(bucket);
	locked = vol_range_lock(bucket, range, r->queue);
	vol_bucket_unlock(bucket);
	while (!locked)
		locked = gn_io_wait(r->queue, &woken, 1, GN_FOREVER) == 1;
}

static void range_unlock(struct repair *r, struct vol_range *range)
{
	struct vol_bucket *bucket = vol_bucket(r->vol, range->start);

	vol_bucket_lock(bucket);
	vol_range_unlock(bucket, range);
	vol_bucket_unlock(bucket);
}

static int repair_io(struct repair *r, enum gn_io_op op, struct vol_copy *copy, uint64_t offset,
		     uint32_t len)
{
	struct gn_io_sge sge = {.addr = r->buf, .len_bytes = len, .mem = r->mem};
	struct gn_io_req req = {
		.op = op, .region = copy->region, .offset = offset, .sge = &sge, .n_sge = 1};
	int rc;

	while ((rc = gn_io_run(r->queue, &req)) == -EAGAIN)
		gn_sleep_us(50);
	if (rc)
		vol_keeper_report_copy(copy);
	return rc;
}

/* Are the blocks that were read what was written? */
static bool blocks_are_good(const struct repair *r, uint64_t block, uint64_t end)
{
	const struct gn_vol *vol = r->vol;

	for (uint64_t i = 0; vol->crcs && block + i < end; i++) {
		gn_charge(GN_WORK_CHECKSUM, GN_VOL_BLOCK);
		if (gn_crc32c(0, r->buf + i * GN_VOL_BLOCK, GN_VOL_BLOCK) != vol->crcs[block + i])
			return false;
	}
	return true;
}

/*
 * The range is locked, and blocks of a copy are wrong: -EIO. If another copy can be read, this one
 * is retired. If it is the last one the wrong blocks are lost, and the others are copied: 0.
 */
static int blocks_are_wrong(struct repair *r, struct vol_copy *from, uint64_t block, uint64_t end)
{
	struct gn_vol *vol = r->vol;
	const struct vol_extent *e = &vol->extents[from->extent];
	struct vol_bucket *bucket = vol_bucket(vol, block << VOL_BLOCK_SHIFT);
	uint64_t wrong = 0;
	bool last, other;

	vol_bucket_lock(bucket);
	last = e->n_live == 1 && e->copy[0] == from;
	other = vol_copy_has_other(from);
	for (uint64_t i = 0; block + i < end; i++) {
		if (gn_crc32c(0, r->buf + i * GN_VOL_BLOCK, GN_VOL_BLOCK) == vol->crcs[block + i])
			continue;
		wrong += !__atomic_load_n(&from->wrong, __ATOMIC_RELAXED);
		if (last && vol_block_get(vol, block + i) == VOL_DATA)
			vol_block_lose(vol, block + i);
	}
	__atomic_store_n(&from->wrong, !last, __ATOMIC_RELAXED);
	vol_bucket_unlock(bucket);
	gn_mutex_lock(&vol->lock);
	vol->stats.crc_errors += wrong;
	gn_mutex_unlock(&vol->lock);
	if (!last && other)
		vol_keeper_report_copy(from);
	return last ? 0 : -EIO;
}

/* The range is locked: a complete copy to read, or NULL. It is used until vol_copy_unuse(). */
static struct vol_copy *chunk_source(struct repair *r, uint32_t extent, uint64_t at)
{
	struct vol_bucket *bucket = vol_bucket(r->vol, at);
	const struct vol_extent *e = &r->vol->extents[extent];
	struct vol_copy *copy = NULL;

	vol_bucket_lock(bucket);
	if (e->n_live)
		copy = e->copy[0];
	if (copy)
		vol_copy_use(copy);
	vol_bucket_unlock(bucket);
	return copy;
}

/* Copies the data of one chunk. The range is locked. -EAGAIN: the source failed. */
static int chunk_copy(struct repair *r, struct vol_copy *to, uint64_t start, uint64_t end)
{
	struct gn_vol *vol = r->vol;
	const uint64_t base = to->extent * vol->extent_bytes;
	const uint64_t end_block = end >> VOL_BLOCK_SHIFT;
	struct vol_copy *from = chunk_source(r, to->extent, start);
	int rc = from && from != to ? 0 : -EIO;
	uint64_t copied = 0;
	bool wrote = false;

	for (uint64_t block = start >> VOL_BLOCK_SHIFT, run; !rc && block < end_block;
	     block = run) {
		const uint64_t at = block << VOL_BLOCK_SHIFT;
		uint32_t len;

		run = vol_blocks_run(vol, block, end_block);
		if (vol_block_get(vol, block) != VOL_DATA)
			continue;
		len = (uint32_t)((run - block) << VOL_BLOCK_SHIFT);
		rc = repair_io(r, GN_IO_READ, from, at - base, len) ? -EAGAIN : 0;
		if (!rc && !blocks_are_good(r, block, run)) {
			rc = blocks_are_wrong(r, from, block, run);
			run = block; /* again, without those that are lost */
			continue;
		}
		if (!rc)
			rc = repair_io(r, GN_IO_WRITE, to, at - base, len);
		wrote = true;
		if (!rc)
			copied += len;
	}
	/*
	 * A READ on their channel makes the WRITEs visible to other connections. A FLUSH that is
	 * under way does not know of them, and this copy may be LIVE when it ends.
	 */
	if (!rc && wrote)
		rc = repair_io(r, GN_IO_READ, to, start - base, 8);
	if (from)
		vol_copy_unuse(from);
	gn_mutex_lock(&vol->lock);
	vol->stats.repaired_bytes += copied;
	gn_mutex_unlock(&vol->lock);
	return rc;
}

/* Sleeps, so that repair takes its share of the time. */
static void repair_pace(struct repair *r, uint64_t took_ns)
{
	const uint32_t share = r->vol->opts.repair_share;

	r->owed_ns += took_ns * (100 - share) / share;
	if (r->owed_ns > PACE_MAX_NS)
		r->owed_ns = PACE_MAX_NS;
	if (r->owed_ns < PACE_NS)
		return;
	gn_sleep_us(r->owed_ns / 1000);
	r->owed_ns = 0;
}

static bool repair_stops(const struct repair *r)
{
	return __atomic_load_n(&r->vol->stop, __ATOMIC_RELAXED);
}

/* Copies an extent to a copy that is FILLING. -EIO: a copy failed. */
static int extent_copy(struct repair *r, struct vol_copy *to)
{
	struct gn_vol *vol = r->vol;
	const uint64_t base = to->extent * vol->extent_bytes;
	uint64_t end = base + vol->extent_bytes;
	unsigned failed = 0;

	if (end > vol->opts.bytes)
		end = vol->opts.bytes;
	for (uint64_t at = base; at < end;) {
		const uint64_t began_ns = gn_now_ns();
		struct gn_io_req wake = {0};
		struct vol_range range = {.wake = &wake,
					  .start = at,
					  .end = at + VOL_CHUNK < end ? at + VOL_CHUNK : end,
					  .exclusive = true};
		int rc;

		if (repair_stops(r) || vol_copy_state(to) != VOL_FILLING)
			return -EIO;
		range_lock(r, &range);
		rc = chunk_copy(r, to, range.start, range.end);
		if (!rc) /* before the range is free: vol_copy_retire() */
			__atomic_store_n(&vol->cursor, range.end - base, __ATOMIC_RELEASE);
		range_unlock(r, &range);
		if (rc == -EAGAIN && ++failed < SOURCE_MAX) {
			/* From another copy; if there is none, chunks that are copied survive. */
			gn_sleep_us(SOURCE_US);
			continue;
		}
		if (rc)
			return rc;
		at += VOL_CHUNK;
		repair_pace(r, gn_now_ns() - began_ns);
	}
	return 0;
}

/* ---- jobs ---- */

/* The copy is complete. */
static int copy_becomes_live(struct gn_vol *vol, struct vol_copy *copy)
{
	const struct gn_vol_copy described = vol_copy_describe(copy);
	int rc = 0;

	vol_map_lock(vol);
	copy->joining = copy->state == VOL_FILLING;
	if (!copy->joining)
		rc = -EIO; /* it failed, or is the only one that is left */
	vol_map_unlock(vol);
	if (!rc && vol->authority.add_copy)
		rc = vol->authority.add_copy(vol->authority.arg, &described);
	vol_map_lock(vol);
	copy->joining = false;
	if (!rc && copy->state == VOL_FILLING) {
		copy->state = VOL_LIVE;
		vol->extents[copy->extent].n_live++;
		vol->stats.copies_made++;
	}
	vol_map_unlock(vol);
	return rc;
}

static bool copy_has_other(struct gn_vol *vol, const struct vol_copy *copy)
{
	struct vol_bucket *bucket = &vol->buckets[0];
	bool other;

	vol_bucket_lock(bucket);
	other = vol_copy_has_other(copy);
	vol_bucket_unlock(bucket);
	return other;
}

/*
 * false: the authority refuses, or the other copies fail just now: the extent has one copy too many
 * until the authority agrees, or the next move.
 */
static bool job_move_end(struct gn_vol *vol, struct vol_copy *copy)
{
	const struct gn_vol_copy described = vol_copy_describe(copy);
	bool moved;

	if (!copy_has_other(vol, copy))
		return false;
	if (vol->authority.lose_copy && vol->authority.lose_copy(vol->authority.arg, &described))
		return false;
	vol_map_lock(vol);
	/* That may have taken long: this copy stays if it is the only one that can be read now. */
	moved = copy->state != VOL_LIVE || vol_copy_has_other(copy);
	if (!moved)
		vol_copy_set_untold(copy, vol->authority.lose_copy);
	if (moved && copy->state == VOL_LIVE) {
		vol_copy_retire(copy);
		vol->stats.copies_moved++;
	}
	vol_map_unlock(vol);
	vol_agent_wake(copy->donor);
	return moved;
}

static void repair_status_changed(struct gn_vol *vol)
{
	gn_mutex_lock(&vol->lock);
	gn_cond_broadcast(&vol->changed);
	gn_mutex_unlock(&vol->lock);
}

/* Returns whether there is a new copy. */
static bool job_run(struct repair *r, const struct repair_job *job, struct vol_copy *to)
{
	struct gn_vol *vol = r->vol;
	int rc = 0;

	if (!(mutant("vol-trust-returned", MUTANT_ALWAYS) && to->donor->times_lost))
		rc = extent_copy(r, to);
	if (!rc)
		rc = copy_becomes_live(vol, to);
	vol_map_lock(vol);
	vol->copying = 0;
	/* If the others were lost meanwhile it is the only copy, and LIVE. */
	if (rc && to->state == VOL_FILLING)
		vol_copy_retire(to);
	vol_map_unlock(vol);
	vol_agent_wake(to->donor);
	vol_copy_unuse(to);
	if (job->move && !rc)
		job_move_end(vol, job->move);
	if (job->move)
		vol_copy_unuse(job->move);
	repair_status_changed(vol);
	return !rc;
}

/* An extent without copies, after a loss: WRITEs should find some. */
static bool job_fresh(struct repair *r, const struct repair_job *job)
{
	return !vol_extent_fill(r->vol, job->extent);
}

static void donor_want(struct vol_donor *donor, uint32_t n)
{
	struct gn_vol *vol = donor->vol;
	bool more;

	gn_mutex_lock(&vol->lock);
	more = donor->want_repair != n;
	donor->want_repair = n;
	gn_mutex_unlock(&vol->lock);
	if (more)
		vol_agent_wake(donor);
}

/* Returns false: there is nothing to do, or no memory for it yet, or it failed. */
static bool repair_step(struct repair *r)
{
	struct gn_vol *vol = r->vol;
	struct repair_job job = {0};
	struct vol_copy *to = NULL;
	bool found;

	vol_map_lock(vol);
	found = job_find(r, &job);
	if (found && job.moved)
		vol_copy_use(job.move);
	if (found && !job.fresh && !job.moved) {
		to = vol_copy_take(job.to, job.extent, VOL_FILLING);
		if (to) {
			vol_copy_use(to);
			if (job.move)
				vol_copy_use(job.move);
			__atomic_store_n(&vol->cursor, 0, __ATOMIC_RELAXED);
			vol->copying = job.extent + 1;
		}
	}
	vol_map_unlock(vol);
	if (!found) {
		for (unsigned d = 0; d < vol->opts.n_donors; d++)
			donor_want(&vol->donors[d], 0);
		return false;
	}
	if (job.moved) {
		const bool moved = job_move_end(vol, job.move);

		vol_copy_unuse(job.move);
		repair_status_changed(vol);
		r->any = !moved;
		return moved;
	}
	if (job.fresh) {
		r->any = !job_fresh(r, &job);
		for (unsigned d = 0; r->any && d < vol->opts.n_donors; d++)
			donor_want(&vol->donors[d], 1);
		return !r->any;
	}
	if (!to) {
		donor_want(job.to, 1);
		return false;
	}
	r->any = !job_run(r, &job, to);
	return !r->any;
}

static void repair_main(void *arg)
{
	struct gn_vol *vol = arg;
	struct repair r = {.vol = vol,
			   .queue = vol->repair_queue,
			   .mem = vol->repair_mem,
			   .buf = vol->repair_buf};

	while (!repair_stops(&r)) {
		if (repair_step(&r))
			continue;
		gn_mutex_lock(&vol->lock);
		if (!vol->work && !vol->stop)
			gn_cond_wait(&vol->repair_cond, &vol->lock,
				     gn_now_ns() + (r.left ? NO_SPACE_NS : IDLE_NS),
				     "the volume's repair");
		vol->work = false;
		gn_mutex_unlock(&vol->lock);
	}
}

int vol_repair_start(struct gn_vol *vol)
{
	int rc;

	vol->repair_buf = gn_alloc(VOL_CHUNK, GN_PAGE);
	if (!vol->repair_buf)
		return gn_fail(-ENOMEM, "gn_vol_create(): " NO_MEMORY);
	rc = gn_io_queue_create(vol->io, 4, &vol->repair_queue);
	if (!rc)
		rc = gn_io_mem_register(vol->io, vol->repair_buf, VOL_CHUNK, &vol->repair_mem);
	if (!rc)
		rc = gn_thread_start("vol-repair", repair_main, vol, &vol->repair);
	return rc;
}
