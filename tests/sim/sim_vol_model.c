/* SPDX-License-Identifier: MIT */
/*
 * The model of a volume. Each sector has the versions that it may hold. A WRITE that ended well
 * removes the versions that ended before it began. A READ must return one of the versions, and
 * removes those that ended before the READ began and were not returned. So a version that was
 * overwritten never comes back, and requests that overlap may end in any order.
 *
 * A block that was seen lost may be read again only after a request that wrote all of it.
 */
#include <errno.h>
#include <string.h>

#include "sim_vol.h"

#define WORDS (SECTOR / 8u)

static uint64_t sector_word(unsigned client, unsigned sector, unsigned k, uint32_t version)
{
	return (uint64_t)version << 32 | (client + 1) << 28 | sector << 6 | k;
}

static bool sector_is(const struct model *m, unsigned client, unsigned sector, uint32_t version,
		      const uint8_t *at)
{
	const bool zero = m->versions[version].zero;

	for (unsigned k = 0; k < WORDS; k++) {
		const uint64_t word = zero ? 0 : sector_word(client, sector, k, version);

		if (memcmp(at + k * 8, &word, 8))
			return false;
	}
	return true;
}

void model_fill(unsigned client, struct op *op)
{
	for (unsigned i = 0; i < op->n; i++)
		for (unsigned k = 0; k < WORDS; k++) {
			const uint64_t word = sector_word(client, op->first + i, k, op->version);

			memcpy(op->bytes + (size_t)i * SECTOR + k * 8, &word, 8);
		}
}

void model_reset(struct model *m, uint64_t bytes)
{
	m->n_sectors = (uint32_t)(bytes / SECTOR);
	memset(m->blocks, 0, sizeof(m->blocks));
	memset(m->reading, 0, sizeof(m->reading));
	for (unsigned i = 0; i < m->n_sectors; i++) {
		m->sectors[i].n = 1;
		m->sectors[i].dirty = false;
		m->sectors[i].c[0] = (struct candidate){0, 0};
	}
	m->versions[0] = (struct version){.start = 1, .end = 1, .zero = true};
	m->n_versions = m->tick = 1;
}

/* ---- begin ---- */

static bool op_writes(const struct op *op)
{
	return op->req.op == GN_VOL_WRITE || op->req.op == GN_VOL_ZERO ||
	       op->req.op == GN_VOL_DISCARD;
}

/* Removes the versions that no READ under way can return. */
static void sector_compact(const struct model *m, struct sector *s)
{
	uint32_t oldest = UINT32_MAX;
	unsigned n = 0;

	for (unsigned i = 0; i < OPS_MAX; i++)
		if (m->reading[i] && m->reading[i] < oldest)
			oldest = m->reading[i];
	for (unsigned i = 0; i < s->n; i++)
		if (!s->c[i].gone || s->c[i].gone > oldest)
			s->c[n++] = s->c[i];
	s->n = n;
}

/* The blocks that the request covers wholly are [*from, *to). */
static void op_blocks(const struct op *op, unsigned *from, unsigned *to)
{
	*from = (op->first + BLOCK_SECTORS - 1) / BLOCK_SECTORS;
	*to = (op->first + op->n) / BLOCK_SECTORS;
}

static void blocks_cover(struct model *m, const struct op *op, bool begin)
{
	unsigned from, to;

	op_blocks(op, &from, &to);
	for (unsigned b = from; b < to; b++) {
		m->blocks[b].covering += begin ? 1u : -1u;
		if (!begin)
			m->blocks[b].covered = m->tick;
	}
}

bool model_begin(struct model *m, struct op *op)
{
	op->version = 0;
	op->start = ++m->tick;
	if (op->req.op == GN_VOL_READ)
		m->reading[op->slot] = op->start;
	if (!op_writes(op))
		return true;
	for (unsigned i = 0; i < op->n; i++) {
		struct sector *s = &m->sectors[op->first + i];

		if (s->n == CANDIDATES_MAX)
			sector_compact(m, s);
		if (s->n == CANDIDATES_MAX)
			return false;
	}
	if (m->n_versions == VERSIONS_MAX)
		return false;
	op->version = m->n_versions++;
	m->versions[op->version] =
		(struct version){.start = op->start, .zero = op->req.op != GN_VOL_WRITE};
	for (unsigned i = 0; i < op->n; i++) {
		struct sector *s = &m->sectors[op->first + i];

		s->c[s->n++] = (struct candidate){op->version, 0};
	}
	blocks_cover(m, op, true);
	return true;
}

/* The request was not submitted. */
void model_cancel(struct model *m, struct op *op)
{
	unsigned from, to;

	m->reading[op->slot] = 0;
	if (!op->version)
		return;
	for (unsigned i = 0; i < op->n; i++) {
		struct sector *s = &m->sectors[op->first + i];
		unsigned k = s->n;

		while (s->c[--k].version != op->version)
			;
		s->c[k] = s->c[--s->n];
	}
	op_blocks(op, &from, &to);
	for (unsigned b = from; b < to; b++)
		m->blocks[b].covering--;
}

/* ---- end ---- */

bool model_sector_ok(const struct model *m, unsigned client, unsigned sector, const uint8_t *at)
{
	const struct sector *s = &m->sectors[sector];

	for (unsigned i = 0; i < s->n; i++)
		if (!s->c[i].gone && sector_is(m, client, sector, s->c[i].version, at))
			return true;
	return false;
}

/* The sector held this version after the tick `start`. */
static void sector_seen(struct model *m, struct sector *s, uint32_t version, uint32_t start)
{
	const bool zero = m->versions[version].zero;

	for (unsigned i = 0; i < s->n; i++) {
		const struct version *v = &m->versions[s->c[i].version];

		/* Zeros do not tell which of several versions they are. */
		if (s->c[i].gone || s->c[i].version == version || (zero && v->zero))
			continue;
		if (v->end && (v->end < start || (!zero && v->end < m->versions[version].start)))
			s->c[i].gone = m->tick;
	}
}

static bool sector_check_read(struct model *m, unsigned client, const struct op *op, unsigned i)
{
	struct sector *s = &m->sectors[op->first + i];

	for (unsigned k = 0; k < s->n; k++) {
		const struct candidate *c = &s->c[k];

		if ((!c->gone || c->gone > op->start) &&
		    sector_is(m, client, op->first + i, c->version,
			      op->bytes + (size_t)i * SECTOR)) {
			sector_seen(m, s, c->version, op->start);
			return true;
		}
	}
	return false;
}

static void check_read(struct world *w, unsigned client, const struct op *op)
{
	struct model *m = &w->clients[client].model;
	uint64_t word;

	for (unsigned i = 0; i < op->n; i++) {
		const struct sector *s = &m->sectors[op->first + i];

		if (sector_check_read(m, client, op, i))
			continue;
		memcpy(&word, op->bytes + (size_t)i * SECTOR, 8);
		world_fail(
			w,
			"client %u: sector %u reads as %016llx (version %u); the last version is "
			"%u of %u possible",
			client, op->first + i, (unsigned long long)word, (unsigned)(word >> 32),
			s->c[s->n - 1].version, s->n);
		return;
	}
}

static void writes_end(struct model *m, const struct op *op)
{
	const struct version *version = &m->versions[op->version];

	for (unsigned i = 0; i < op->n; i++) {
		struct sector *s = &m->sectors[op->first + i];

		s->dirty = true;
		for (unsigned k = 0; k < s->n; k++) {
			const struct version *v = &m->versions[s->c[k].version];

			if (!s->c[k].gone && v->end && v->end < version->start)
				s->c[k].gone = m->tick;
		}
	}
}

/* A request ended well: no block of it was lost, unless it was written as a whole since. */
static void check_not_lost(struct world *w, unsigned client, const struct op *op)
{
	struct model *m = &w->clients[client].model;
	const unsigned last = (op->first + op->n - 1) / BLOCK_SECTORS;
	unsigned from, to;

	op_blocks(op, &from, &to);
	for (unsigned b = op->first / BLOCK_SECTORS; b <= last; b++) {
		struct block *block = &m->blocks[b];

		if (!block->lost || (op_writes(op) && b >= from && b < to))
			continue;
		if (block->covering || block->covered > block->lost) {
			w->sums.healed_blocks++;
			block->lost = 0;
		} else if (op->start > block->lost) {
			world_fail(w, "client %u: block %u was lost, and a %s succeeds", client, b,
				   op->req.op == GN_VOL_READ ? "READ" : "partial write");
			return;
		}
	}
}

void model_end(struct world *w, unsigned client, struct op *op, int status)
{
	struct model *m = &w->clients[client].model;

	m->tick++;
	if (op->version) {
		m->versions[op->version].end = m->tick;
		blocks_cover(m, op, false);
	}
	m->reading[op->slot] = 0;
	if (op->req.op == GN_VOL_FLUSH)
		return;
	if (status == -EIO)
		truth_eio(w, client, op);
	if (status)
		return;
	if (op->req.op == GN_VOL_READ)
		check_read(w, client, op);
	else
		writes_end(m, op);
	check_not_lost(w, client, op);
}
