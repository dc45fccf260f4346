/* SPDX-License-Identifier: MIT */
/* The map: states of blocks, copies of extents. */
#include "io/core/place.h"
#include "vol/claim.h"
#include "vol/vol.h"

/* ---- blocks ---- */

/* The same kind for all 32 blocks of a word. */
static uint64_t word_of(enum vol_block kind)
{
	return (uint64_t)kind * UINT64_C(0x5555555555555555);
}

/* The bits of blocks [from, to) of one word. */
static uint64_t word_mask(uint64_t from, uint64_t to)
{
	const unsigned first = from % 32 * 2, n = (unsigned)(to - from) * 2;

	return (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << first;
}

static uint64_t word_end(uint64_t from, uint64_t to)
{
	const uint64_t end = (from / 32 + 1) * 32;

	return end < to ? end : to;
}

void vol_blocks_set(struct gn_vol *vol, uint64_t from, uint64_t to, enum vol_block kind)
{
	for (uint64_t end; from < to; from = end) {
		uint64_t *word = &vol->blocks[from / 32];
		const uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
		uint64_t mask;

		end = word_end(from, to);
		mask = word_mask(from, end);
		__atomic_store_n(word, (old & ~mask) | (word_of(kind) & mask), __ATOMIC_RELAXED);
	}
}

void vol_block_lose(struct gn_vol *vol, uint64_t block)
{
	vol_backup_lost(vol, block, block + 1);
	vol_blocks_set(vol, block, block + 1, VOL_LOST);
}

unsigned vol_blocks_kinds(const struct gn_vol *vol, uint64_t from, uint64_t to)
{
	unsigned kinds = 0;

	while (from < to) {
		const uint64_t end = word_end(from, to), mask = word_mask(from, end);
		const uint64_t word = __atomic_load_n(&vol->blocks[from / 32], __ATOMIC_RELAXED);

		from = end;
		if (likely(!((word ^ word_of(VOL_DATA)) & mask))) {
			kinds |= 1u << VOL_DATA;
			continue;
		}
		for (unsigned kind = 0; kind < VOL_BLOCK_KINDS; kind++) {
			/* A block is of this kind if both of its bits are equal. */
			const uint64_t same = ~(word ^ word_of(kind));

			if (same & same >> 1 & mask & UINT64_C(0x5555555555555555))
				kinds |= 1u << kind;
		}
	}
	return kinds;
}

uint64_t vol_blocks_run(const struct gn_vol *vol, uint64_t from, uint64_t to)
{
	const enum vol_block kind = vol_block_get(vol, from);
	const uint64_t all = word_of(kind);

	while (from < to) {
		if (from % 32 == 0 && from + 32 <= to &&
		    __atomic_load_n(&vol->blocks[from / 32], __ATOMIC_RELAXED) == all)
			from += 32;
		else if (vol_block_get(vol, from) == kind)
			from++;
		else
			break;
	}
	return from;
}

/* The last copy of an extent is lost, from this offset in it. */
static void extent_lose_data(struct gn_vol *vol, uint32_t extent, uint64_t from)
{
	const uint64_t start = extent * vol->extent_bytes;
	uint64_t end = start + vol->extent_bytes, block = (start + from) >> VOL_BLOCK_SHIFT;

	if (end > vol->opts.bytes)
		end = vol->opts.bytes;
	end >>= VOL_BLOCK_SHIFT;
	while (block < end) {
		const uint64_t run = vol_blocks_run(vol, block, end);

		if (vol_block_get(vol, block) == VOL_DATA) {
			vol_backup_lost(vol, block, run);
			vol_blocks_set(vol, block, run, VOL_LOST);
		}
		block = run;
	}
}

/* ---- copies ---- */

static bool donor_reachable(const struct vol_donor *donor)
{
	return donor->target && !donor->given_up && !donor->losing &&
	       !gn_io_target_down_us(donor->target);
}

bool vol_donor_usable(const struct vol_donor *donor)
{
	return !donor->leaving && donor_reachable(donor);
}

bool vol_copy_has_other(const struct vol_copy *copy)
{
	struct gn_vol *vol = copy->donor->vol;
	const struct vol_extent *e = &vol->extents[copy->extent];
	bool other = false;

	gn_mutex_lock(&vol->lock);
	for (unsigned i = 0; i < e->n_live; i++)
		other |= e->copy[i] != copy && !e->copy[i]->failed &&
			 donor_reachable(e->copy[i]->donor);
	gn_mutex_unlock(&vol->lock);
	return other;
}

bool vol_can_write(struct gn_vol *vol, uint64_t offset)
{
	struct vol_bucket *bucket = vol_bucket(vol, offset);
	const struct vol_extent *e = &vol->extents[vol_extent_of(vol, offset)];
	bool can = true;

	vol_bucket_lock(bucket);
	for (unsigned i = 0; i < e->n_copies; i++)
		can &= donor_reachable(e->copy[i]->donor);
	vol_bucket_unlock(bucket);
	return can;
}

struct vol_copy *vol_copy_take(struct vol_donor *donor, uint32_t extent, enum vol_copy_state state)
{
	struct vol_extent *e = &donor->vol->extents[extent];
	struct vol_copy *copy = donor->copies;

	while (copy && copy->state != VOL_SPARE)
		copy = copy->next;
	if (!copy)
		return NULL;
	assert(e->n_copies < VOL_COPIES && e->n_live == e->n_copies);
	copy->extent = extent;
	copy->state = state;
	donor->n_spare--;
	donor->n_used++;
	e->copy[e->n_copies++] = copy;
	e->n_live = (uint8_t)(e->n_live + (state == VOL_LIVE));
	donor->vol->n_used += e->n_copies == 1;
	e->was_used = true;
	return copy;
}

void vol_copy_set_untold(struct vol_copy *copy, bool untold)
{
	struct gn_vol *vol = copy->donor->vol;

	if (!vol->authority.add_copy || copy->untold == untold)
		return;
	copy->untold = untold;
	vol->n_untold += untold ? 1 : -1u;
}

void vol_copy_retire(struct vol_copy *copy)
{
	struct gn_vol *vol = copy->donor->vol;
	struct vol_extent *e = &vol->extents[copy->extent];
	const enum vol_copy_state was = copy->state;
	unsigned i = 0;

	copy->state = VOL_RETIRED;
	vol_copy_set_untold(copy, false);
	if (was == VOL_SPARE)
		copy->donor->n_spare--;
	if (was != VOL_LIVE && was != VOL_FILLING)
		return;
	copy->donor->n_used--;
	while (e->copy[i] != copy)
		i++;
	e->n_copies--;
	memmove(&e->copy[i], &e->copy[i + 1], (e->n_copies - i) * sizeof(e->copy[0]));
	e->copy[e->n_copies] = NULL;
	if (was == VOL_FILLING || --e->n_live)
		return;
	/* What repair has copied so far is all that is left. */
	if (e->n_copies) {
		assert(vol->copying == copy->extent + 1);
		extent_lose_data(vol, copy->extent,
				 __atomic_load_n(&vol->cursor, __ATOMIC_ACQUIRE));
		e->copy[0]->state = VOL_LIVE;
		e->n_live = 1;
		vol_copy_set_untold(e->copy[0], true);
	} else {
		extent_lose_data(vol, copy->extent, 0);
		vol->n_used--;
	}
}

enum vol_copy_state vol_copy_state(struct vol_copy *copy)
{
	struct vol_bucket *bucket = &copy->donor->vol->buckets[0];
	enum vol_copy_state state;

	vol_bucket_lock(bucket);
	state = copy->state;
	vol_bucket_unlock(bucket);
	return state;
}

struct gn_vol_copy vol_copy_describe(struct vol_copy *copy)
{
	struct vol_bucket *bucket = &copy->donor->vol->buckets[0];
	struct gn_vol_copy described = {.donor = copy->donor->addr, .slab = copy->id};

	vol_bucket_lock(bucket);
	described.extent = copy->extent;
	vol_bucket_unlock(bucket);
	return described;
}

/* Spares of the donors that can take a copy of this extent. */
static unsigned extent_spares(const struct gn_vol *vol, const struct vol_extent *e,
			      uint64_t spares[GN_VOL_DONORS_MAX])
{
	unsigned usable = 0;

	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		const struct vol_donor *donor = &vol->donors[d];

		spares[d] = 0;
		if (!vol_donor_usable(donor))
			continue;
		usable++;
		spares[d] = donor->n_spare;
		for (unsigned i = 0; i < e->n_copies; i++)
			if (e->copy[i]->donor == donor)
				spares[d] = 0;
	}
	return usable;
}

/* usable: donors. An extent without headroom had copies, and lost them. */
static int extent_no_space(const struct gn_vol *vol, unsigned usable)
{
	if (!usable)
		return gn_fail(-ENOSPC, "no donor of the volume can be used: start one again");
	if (!vol->opts.headroom)
		return gn_fail(-ENOSPC,
			       "no memory for new copies of what was lost was granted yet: try "
			       "again, or start donors that are down");
	return gn_fail(-ENOSPC, "no memory was granted ahead for a WRITE: raise headroom, or "
				"start more donors");
}

int vol_extent_fill(struct gn_vol *vol, uint32_t extent)
{
	struct vol_extent *e = &vol->extents[extent];
	uint64_t spares[GN_VOL_DONORS_MAX];
	unsigned usable, want, with = 0;
	int rc = 0;

	vol_map_lock(vol);
	if (e->n_copies)
		goto unlock; /* another thread was faster */
	usable = extent_spares(vol, e, spares);
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		with += spares[d] != 0;
	/* Donors that are down are repaired later; memory that is not there is an error now. */
	want = usable < vol->opts.copies ? usable : vol->opts.copies;
	if (!want || with < want) {
		rc = extent_no_space(vol, usable);
		goto unlock;
	}
	while (e->n_copies < want) {
		const unsigned d = io_place(spares, vol->opts.n_donors, gn_random());

		vol_copy_set_untold(vol_copy_take(&vol->donors[d], extent, VOL_LIVE), true);
		spares[d] = 0;
	}
unlock:
	vol_map_unlock(vol);
	vol_keeper_wake(vol);
	return rc;
}
