/* SPDX-License-Identifier: MIT */
/*
 * What the donors' memory really contains. The simulation is one OS thread, so the test can look
 * into all processes: at the map of a volume, and at the slabs of the donors. Whether a process
 * still exists is known from the number of its node's crashes.
 */
#include <errno.h>
#include <string.h>

#include "donor/server.h"
#include "sim/nodes.h"
#include "sim_vol.h"
#include "vol/vol.h"

uint32_t node_crashes(const struct world *w, unsigned node)
{
	return w->run.sim->nodes[node].incarnation;
}

struct gn_vol *truth_vol(const struct world *w, unsigned client)
{
	const struct client_world *cw = &w->clients[client];

	return cw->vol && cw->crashes == node_crashes(w, w->plan.n_donors + client) ? cw->vol :
										      NULL;
}

static const struct gn_donor_server *truth_server(const struct world *w, unsigned donor)
{
	const struct donor_world *dw = &w->donors[donor];

	return dw->server && dw->crashes == node_crashes(w, donor) ? dw->server : NULL;
}

/* The memory of a copy; NULL: it does not exist. */
static const uint8_t *copy_bytes(const struct world *w, const struct vol_copy *copy)
{
	const struct gn_donor_server *server = truth_server(w, copy->donor->index);

	if (!server || server->incarnation != copy->donor->id.incarnation)
		return NULL;
	for (unsigned i = 0; i < server->n_slabs; i++)
		if (server->slabs[i].state == SLAB_GRANTED && server->slabs[i].id == copy->id)
			return gn_mem_addr(server->slabs[i].mem);
	return NULL;
}

/* ---- copies ---- */

static unsigned copies_that_exist(const struct world *w, const struct vol_extent *extent)
{
	unsigned n = 0;

	for (unsigned i = 0; i < extent->n_live; i++)
		n += copy_bytes(w, extent->copy[i]) != NULL;
	return n;
}

bool truth_whole(const struct world *w, unsigned client)
{
	const struct gn_vol *vol = truth_vol(w, client);

	if (!vol || w->clients[client].deciding)
		return false;
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		if (!vol->donors[d].target || gn_io_target_down_us(vol->donors[d].target))
			return false;
	for (uint32_t e = 0; e < vol->n_extents; e++) {
		const struct vol_extent *extent = &vol->extents[e];

		if (extent->n_copies != extent->n_live)
			return false;
		if ((extent->n_live || extent->was_used || !vol->opts.headroom) &&
		    copies_that_exist(w, extent) < w->plan.copies)
			return false;
	}
	return true;
}

int64_t truth_promised(const struct world *w, unsigned client)
{
	const struct gn_vol *vol = truth_vol(w, client);

	for (uint32_t e = 0; vol && e < vol->n_extents; e++)
		if (copies_that_exist(w, &vol->extents[e]) < vol->extents[e].n_live)
			return e;
	return -1;
}

/* ---- bytes ---- */

/*
 * What the sector's memory must be is known: all its versions, except `own`, had ended before the
 * tick, and none of them is a ZERO or DISCARD, which may leave old bytes in the memory.
 */
static bool sector_known(const struct model *m, unsigned sector, uint32_t own, uint32_t before)
{
	const struct sector *s = &m->sectors[sector];

	for (unsigned i = 0; i < s->n; i++) {
		const struct version *v = &m->versions[s->c[i].version];

		if (s->c[i].gone)
			continue;
		if (v->zero || !v->end || (v->end >= before && s->c[i].version != own))
			return false;
	}
	return true;
}

static void sector_check(struct world *w, unsigned client, const struct gn_vol *vol,
			 unsigned sector, bool backup, const char *when)
{
	const struct client_world *cw = &w->clients[client];
	const uint64_t offset = (uint64_t)sector * SECTOR;
	const struct vol_extent *extent = &vol->extents[vol_extent_of(vol, offset)];

	if (vol_block_get(vol, offset >> VOL_BLOCK_SHIFT) != VOL_DATA)
		return;
	for (unsigned i = 0; i < extent->n_live; i++) {
		const uint8_t *bytes = copy_bytes(w, extent->copy[i]);

		w->sums.copy_checks++;
		if (!bytes ||
		    model_sector_ok(&cw->model, client, sector, bytes + offset % vol->extent_bytes))
			continue;
		world_fail(w, "client %u: sector %u is wrong in copy %u, on %s, slab %llu, %s",
			   client, sector, i, extent->copy[i]->donor->addr,
			   (unsigned long long)extent->copy[i]->id, when);
		return;
	}
	if (backup && w->plan.backup &&
	    !model_sector_ok(&cw->model, client, sector, cw->backup + offset))
		world_fail(
			w, "client %u: sector %u is wrong in the backup, %s: %016llx", client,
			sector, when,
			(unsigned long long)*(const uint64_t *)(const void *)(cw->backup + offset));
}

void truth_check(struct world *w, unsigned client, const struct op *op)
{
	const bool flush = op->req.op == GN_VOL_FLUSH, fua = op->req.flags & GN_VOL_FUA;
	const char *when = flush ? "after a FLUSH" : fua ? "after a FUA" : "after a WRITE";
	const struct gn_vol *vol = truth_vol(w, client);
	struct model *m = &w->clients[client].model;
	const unsigned first = flush ? 0 : op->first, n = flush ? m->n_sectors : op->n;
	const uint32_t before = flush || fua ? op->start : UINT32_MAX;

	for (unsigned i = first; vol && i < first + n && !*w->run.failure; i++) {
		if (!m->sectors[i].dirty || !sector_known(m, i, op->version, before))
			continue;
		sector_check(w, client, vol, i, flush || fua, when);
		if (flush) { /* checked once after each WRITE: there is nothing new until then */
			m->sectors[i].dirty = false;
			w->sums.flush_checks++;
		}
	}
}

void truth_compare(struct world *w, unsigned client)
{
	const struct gn_vol *vol = truth_vol(w, client);

	for (uint64_t b = 0; vol && b < w->plan.bytes / GN_VOL_BLOCK; b++) {
		const uint64_t offset = b * GN_VOL_BLOCK, at = offset % vol->extent_bytes;
		const struct vol_extent *extent = &vol->extents[vol_extent_of(vol, offset)];
		const uint8_t *first = extent->n_live ? copy_bytes(w, extent->copy[0]) : NULL;

		if (vol_block_get(vol, b) != VOL_DATA)
			continue;
		for (unsigned i = 0; i < extent->n_live; i++) {
			const uint8_t *bytes = copy_bytes(w, extent->copy[i]);

			if (first && bytes && !memcmp(first + at, bytes + at, GN_VOL_BLOCK))
				continue;
			world_fail(w, "client %u: block %llu of copy %u %s", client,
				   (unsigned long long)b, i,
				   first && bytes ? "differs from copy 0" : "does not exist");
			return;
		}
	}
}

/* A block with data, from a random one on; UINT64_MAX: there is none. */
static uint64_t block_with_data(const struct world *w, const struct gn_vol *vol)
{
	const uint64_t n = w->plan.bytes / GN_VOL_BLOCK, start = gn_random() % n;

	for (uint64_t i = 0; i < n; i++)
		if (vol_block_get(vol, (start + i) % n) == VOL_DATA)
			return (start + i) % n;
	return UINT64_MAX;
}

bool truth_spoil(struct world *w, unsigned client, unsigned *sector)
{
	const struct gn_vol *vol = truth_vol(w, client);
	const uint64_t block = vol ? block_with_data(w, vol) : UINT64_MAX;
	const uint64_t offset = block * GN_VOL_BLOCK;
	const struct vol_copy *copy;
	uint8_t *bytes;

	if (block == UINT64_MAX)
		return false;
	copy = vol->extents[vol_extent_of(vol, offset)].copy[0];
	bytes = (uint8_t *)(uintptr_t)copy_bytes(w, copy);
	if (!bytes)
		return false;
	bytes[offset % vol->extent_bytes + gn_random() % GN_VOL_BLOCK] ^=
		(uint8_t)(1u << gn_random() % 8);
	w->donors[copy->donor->index].faulted = true;
	*sector = (unsigned)(offset / SECTOR);
	return true;
}

/* ---- -EIO ---- */

bool truth_may_lose(const struct world *w)
{
	uint64_t n = w->lossy + (w->plan.lease_us < LEASE_LONG_US && w->plan.cluster.breaks);

	for (unsigned i = 0; i < w->plan.n_donors; i++)
		n += node_crashes(w, i);
	return !w->plan.careful && (n || w->plan.lost_us <= LOST_SHORT_US);
}

void truth_eio(struct world *w, unsigned client, const struct op *op)
{
	const struct gn_vol *vol = truth_vol(w, client);
	struct model *m = &w->clients[client].model;
	const unsigned last = (op->first + op->n - 1) / BLOCK_SECTORS;
	bool found = false;

	if (w->plan.careful)
		world_fail(w, "-EIO, and only one donor failed at a time");
	if (!truth_may_lose(w))
		world_fail(w, "-EIO, and no donor has lost its memory");
	for (unsigned b = op->first / BLOCK_SECTORS; vol && b <= last; b++) {
		struct block *block = &m->blocks[b];

		if (vol_block_get(vol, b) == VOL_LOST) {
			/* A block that is just being copied to the backup can be read later. */
			if (!vol->behind || vol->behind[b / 64] >> b % 64 & 1)
				block->lost = m->tick;
			found = true;
		}
		found |= block->covering || block->covered > op->start;
	}
	if (!found)
		world_fail(w, "-EIO, and none of blocks %u to %u is lost",
			   op->first / BLOCK_SECTORS, last);
}

/* ---- status ---- */

bool truth_check_stats(struct world *w, unsigned client, const struct gn_vol_stats *stats)
{
	const struct gn_vol *vol = truth_vol(w, client);
	uint64_t n[GN_VOL_COPIES_MAX + 1] = {0}, unused = 0;

	for (uint32_t e = 0; vol && e < vol->n_extents; e++) {
		const unsigned exist = copies_that_exist(w, &vol->extents[e]);

		if (exist)
			n[exist]++;
		else
			unused++;
	}
	for (unsigned i = 1; i <= GN_VOL_COPIES_MAX; i++)
		if (stats->with_copies[i] != n[i])
			world_fail(w,
				   "client %u: status says that %llu extents have %u copies: %llu",
				   client, (unsigned long long)stats->with_copies[i], i,
				   (unsigned long long)n[i]);
	if (stats->unused + stats->with_copies[0] != unused)
		world_fail(w, "client %u: status says that %llu + %llu extents have no copy: %llu",
			   client, (unsigned long long)stats->unused,
			   (unsigned long long)stats->with_copies[0], (unsigned long long)unused);
	return n[w->plan.copies] + unused == stats->extents && (!unused || w->plan.headroom);
}
