/* SPDX-License-Identifier: MIT */
/*
 * The buffers of an op: the user's, and for a block of which the op has only a part a buffer of
 * its own, if the whole block must be read or written.
 */
#include "vol/vol.h"

static const uint8_t zeros[GN_VOL_BLOCK];

/* ---- the user's buffers ---- */

/* Copies bytes [skip, skip + len) of the op from (to_user: to) the user's buffers. */
void vol_user_copy(const struct vol_op *op, uint64_t skip, uint8_t *buf, uint64_t len, bool to_user)
{
	for (uint32_t i = 0; len; i++) {
		const uint64_t have = op->user[i].len_bytes;
		uint8_t *at = op->user[i].addr;
		uint64_t n;

		if (skip >= have) {
			skip -= have;
			continue;
		}
		n = have - skip < len ? have - skip : len;
		if (to_user)
			memcpy(at + skip, buf, n);
		else
			memcpy(buf, at + skip, n);
		skip = 0;
		buf += n;
		len -= n;
	}
}

void vol_user_zero(const struct vol_op *op, uint64_t skip, uint64_t len)
{
	while (len) {
		const uint64_t n = len < sizeof(zeros) ? len : sizeof(zeros);

		vol_user_copy(op, skip, (uint8_t *)(uintptr_t)zeros, n, true);
		skip += n;
		len -= n;
	}
}

static uint32_t user_crc(const struct vol_op *op, uint64_t skip, uint64_t len)
{
	uint32_t crc = 0;

	for (uint32_t i = 0; len; i++) {
		const uint64_t have = op->user[i].len_bytes;
		uint64_t n;

		if (skip >= have) {
			skip -= have;
			continue;
		}
		n = have - skip < len ? have - skip : len;
		crc = gn_crc32c(crc, (const uint8_t *)op->user[i].addr + skip, n);
		skip = 0;
		len -= n;
	}
	return crc;
}

/* ---- blocks of which the op has only a part ---- */

/* The edge buffer of a block, or NULL: the block is wholly in the user's buffers. */
uint8_t *vol_edge_of(const struct vol_op *op, uint64_t block)
{
	if (op->edges & 1 && block == vol_op_first(op))
		return op->edge;
	if (op->edges & 2 && block + 1 == vol_op_end(op))
		return op->edge + GN_VOL_BLOCK;
	return NULL;
}

/* The op's bytes of a block: [*from, *to). */
void vol_block_part(const struct vol_op *op, uint64_t block, uint64_t *from, uint64_t *to)
{
	const uint64_t start = block << VOL_BLOCK_SHIFT, end = start + GN_VOL_BLOCK;

	*from = op->start > start ? op->start : start;
	*to = op->end < end ? op->end : end;
}

/* Copies the op's part of a block between its edge buffer and the user's buffers. */
static void edge_copy(const struct vol_op *op, uint64_t block, bool to_user)
{
	uint8_t *edge = vol_edge_of(op, block);
	uint64_t from, to;

	if (!edge)
		return;
	vol_block_part(op, block, &from, &to);
	vol_user_copy(op, from - op->start, edge + from % GN_VOL_BLOCK, to - from, to_user);
}

void vol_edges_copy(const struct vol_op *op, bool to_user)
{
	edge_copy(op, vol_op_first(op), to_user);
	if (vol_op_end(op) - vol_op_first(op) > 1)
		edge_copy(op, vol_op_end(op) - 1, to_user);
}

/* Which blocks the op has only a part of: as op->edges. */
unsigned vol_partial_blocks(const struct vol_op *op)
{
	const bool head = op->start != op->range.start, tail = op->end != op->range.end;

	if (vol_op_end(op) - vol_op_first(op) == 1)
		return head || tail;
	return (head ? 1u : 0u) | (tail ? 2u : 0u);
}

uint32_t vol_block_crc(const struct vol_op *op, uint64_t block)
{
	const uint8_t *edge = vol_edge_of(op, block);

	gn_charge(GN_WORK_CHECKSUM, GN_VOL_BLOCK);
	return edge ? gn_crc32c(0, edge, GN_VOL_BLOCK) :
		      user_crc(op, (block << VOL_BLOCK_SHIFT) - op->start, GN_VOL_BLOCK);
}

/* The buffers of the op's READs or WRITEs, if it has edges; returns their number. */
uint32_t vol_op_sges(struct vol_op *op, const struct gn_io_sge **out)
{
	uint64_t skip, left;
	uint32_t n = 0;

	skip = op->edges & 1 ? op->range.start + GN_VOL_BLOCK - op->start : 0;
	left = op->end - op->start;
	if (op->edges & 2)
		left = op->range.end - GN_VOL_BLOCK - op->start;
	if (op->edges & 1)
		op->sge[n++] = (struct gn_io_sge){.addr = op->edge, .len_bytes = GN_VOL_BLOCK};
	for (uint32_t i = 0; i < op->n_sge && left > skip; i++) {
		const uint32_t have = op->user[i].len_bytes;
		const uint64_t end = left < have ? left : have;

		if (skip < end) {
			op->sge[n] = op->user[i];
			op->sge[n].addr = (uint8_t *)op->user[i].addr + skip;
			op->sge[n++].len_bytes = (uint32_t)(end - skip);
		}
		left -= end;
		skip = skip > have ? skip - have : 0;
	}
	if (op->edges & 2)
		op->sge[n++] = (struct gn_io_sge){.addr = op->edge + GN_VOL_BLOCK,
						  .len_bytes = GN_VOL_BLOCK};
	*out = op->sge;
	return n;
}
