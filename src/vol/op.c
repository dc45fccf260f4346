/* SPDX-License-Identifier: MIT */
/*
 * An op: a part of a request inside one stripe. Its range is locked from vol_op_start() to
 * op_finish(), in whole blocks.
 *
 *     LOCK ─▶ prepare ─▶ EDGES (read-modify-write) ─▶ DATA ─▶ finish
 *                ▲                                     │ a copy failed
 *                └──────── FAILED: the keeper ◀────────┘
 */
#include "vol/vol.h"

#define KIND(kind) (1u << (kind))

/* ---- preparing: the bucket is held, and the range is locked ---- */

void vol_op_use(struct vol_op *op, struct vol_copy *copy)
{
	vol_copy_use(copy);
	op->copy[op->n_copies++] = copy;
}

static int op_fail_lost(void)
{
	return gn_fail_text(-EIO, "no copy of a block is left: it cannot be read until all of it "
				  "is written again");
}

/* Are all blocks that are LOST in the backup? */
static bool lost_are_in_backup(const struct vol_op *op)
{
	const struct gn_vol *vol = op->queue->vol;

	for (uint64_t block = vol_op_first(op); block < vol_op_end(op); block++)
		if (vol_block_get(vol, block) == VOL_LOST && !vol_backup_has(vol, block))
			return false;
	return true;
}

static enum vol_next prepare_read(struct vol_op *op, const struct vol_extent *e)
{
	const struct gn_vol *vol = op->queue->vol;
	const unsigned kinds = vol_block_kinds(vol, vol_op_first(op), vol_op_end(op));

	if (unlikely(kinds & KIND(VOL_LOST))) {
		op->restore = lost_are_in_backup(op);
		op->status = op->restore ? 0 : op_fail_lost();
		if (op->status)
			return VOL_OP_FINISH;
	}
	op->holes = kinds & (KIND(VOL_STALE) | KIND(VOL_HOLE));
	if (unlikely(!(kinds & KIND(VOL_DATA))))
		return VOL_OP_ZEROS; /* and what is restored */
	op->edges = vol->opts.verify ? (uint8_t)vol_partial_blocks(op) : 0;
	vol_op_use(op, e->copy[0]);
	return VOL_OP_ISSUE;
}

/* A block of which the op writes a part. bit: of op->edges. */
static int prepare_edge(struct vol_op *op, uint64_t block, unsigned bit, bool *must_read)
{
	const struct gn_vol *vol = op->queue->vol;
	const enum vol_block kind = vol_block_get(vol, block);

	if (kind == VOL_LOST && !mutant("vol-heal-partial", MUTANT_ALWAYS))
		return op_fail_lost();
	if (kind != VOL_STALE && !vol->opts.verify)
		return 0; /* the rest of the block stays as it is */
	op->edges |= (uint8_t)bit;
	if (kind == VOL_DATA)
		*must_read = true;
	else
		memset(op->edge + (bit - 1) * GN_VOL_BLOCK, 0, GN_VOL_BLOCK);
	return 0;
}

static enum vol_next prepare_write(struct vol_op *op, const struct vol_extent *e)
{
	const unsigned partial = vol_partial_blocks(op);
	bool must_read = false;

	op->edges = 0;
	if (unlikely(partial & 1))
		op->status = prepare_edge(op, vol_op_first(op), 1, &must_read);
	if (unlikely(partial & 2) && !op->status)
		op->status = prepare_edge(op, vol_op_end(op) - 1, 2, &must_read);
	if (unlikely(op->status))
		return VOL_OP_FINISH;
	if (unlikely(!e->n_copies))
		return VOL_OP_NEEDS_COPIES;
	if (unlikely(must_read)) {
		vol_op_use(op, e->copy[0]);
		return VOL_OP_READ_EDGES;
	}
	for (unsigned i = 0; i < e->n_copies; i++) {
		if (e->copy[i]->state == VOL_FILLING && mutant("vol-no-mirror", MUTANT_ALWAYS))
			continue;
		vol_op_use(op, e->copy[i]);
	}
	op->live = (uint8_t)((1u << e->n_live) - 1);
	return VOL_OP_ISSUE;
}

/* Their slabs still have the old bytes, so blocks are STALE, unless they were never written. */
static void zero_blocks(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	const uint64_t end = vol_op_end(op);

	for (uint64_t block = vol_op_first(op); block < end;) {
		const uint64_t run = vol_blocks_run(vol, block, end);

		if (vol_block_get(vol, block) != VOL_HOLE) {
			vol_backup_mark(op, block, run);
			vol_blocks_set(vol, block, run, VOL_STALE);
		}
		block = run;
	}
}

/* A defect: the DISCARD does not wait for its turn. */
static bool zero_overtakes(const struct vol_op *op)
{
	return mutant("vol-discard-overtakes", MUTANT_ALWAYS) && op->op == GN_VOL_DISCARD &&
	       !vol_partial_blocks(op);
}

/* Whole blocks become holes. Parts of a block are written with zeros. */
static enum vol_next prepare_zero(struct vol_op *op, const struct vol_extent *e)
{
	if (vol_partial_blocks(op)) {
		const enum vol_block kind = vol_block_get(op->queue->vol, vol_op_first(op));

		if (kind == VOL_HOLE || kind == VOL_STALE)
			return VOL_OP_FINISH;
		return prepare_write(op, e);
	}
	if (!zero_overtakes(op))
		zero_blocks(op);
	return VOL_OP_FINISH;
}

/* ---- issuing ---- */

static void op_step_ended(struct vol_op *op);

/* The caller's buffers, not a copy, are to blame. */
static bool is_error_of_buffers(int status)
{
	return status == -EFAULT || status == -EINVAL || status == -ERANGE ||
	       status == -EMSGSIZE || status == -ENOMEM || status == -EPERM;
}

static void op_io_done(struct gn_io_req *io)
{
	struct vol_op *op = io->user;

	if (unlikely(io->status)) {
		if (is_error_of_buffers(io->status))
			op->status = io->status;
		else
			op->failed |= (uint8_t)(1u << (io - op->io));
	}
	if (--op->pending == 0)
		op_step_ended(op);
}

void vol_op_refused(struct gn_io_req *io, int status)
{
	struct vol_op *op = io->user;

	if (is_error_of_buffers(status))
		op->refused |= (uint8_t)(1u << (io - op->io));
	io->status = status;
	io->done(io);
}

void vol_op_io(struct vol_op *op, unsigned i, enum gn_io_op what, uint64_t offset,
	       const struct gn_io_sge *sge, uint32_t n_sge)
{
	struct gn_io_req *io = &op->io[i];

	io->op = what;
	io->n_sge = n_sge;
	io->region = op->copy[i]->region;
	io->offset = offset;
	io->sge = sge;
	op->pending++;
	vol_queue_add(op->queue, io);
}

static void op_issue(struct vol_op *op)
{
	const uint64_t base = op->extent * op->queue->vol->extent_bytes;
	const uint64_t at = op->edges & 1 ? op->range.start : op->start;
	const struct gn_io_sge *sge;
	uint32_t n_sge, n = op->n_copies;

	op->step = VOL_STEP_DATA;
	if (op->op == GN_VOL_FLUSH)
		return; /* prepared by vol_flush_prepare() */
	if (op->op != GN_VOL_READ && op->edges)
		vol_edges_copy(op, false);
	sge = op->user;
	n_sge = likely(!op->edges) ? op->n_sge : vol_op_sges(op, &sge);
	op->issued = op->op != GN_VOL_READ;
	op->refused = 0;
	if (n > 1 && mutant("vol-end-early", vol_op_first(op)))
		n--;
	for (unsigned i = 0; i < n; i++)
		vol_op_io(op, i, op->op == GN_VOL_READ ? GN_IO_READ : GN_IO_WRITE, at - base, sge,
			  n_sge);
}

static void op_read_edges(struct vol_op *op)
{
	const uint64_t base = op->extent * op->queue->vol->extent_bytes;
	const struct gn_vol *vol = op->queue->vol;
	struct vol_copy *copy = op->copy[0];

	op->step = VOL_STEP_EDGES;
	for (unsigned bit = 0; bit < 2; bit++) {
		const uint64_t block = bit ? vol_op_end(op) - 1 : vol_op_first(op);

		if (!(op->edges & 1u << bit) || vol_block_get(vol, block) != VOL_DATA)
			continue;
		if (op->pending)
			vol_op_use(op, copy); /* a request for each of copy[] */
		op->sge[bit] = (struct gn_io_sge){.addr = op->edge + bit * GN_VOL_BLOCK,
						  .len_bytes = GN_VOL_BLOCK};
		vol_op_io(op, op->n_copies - 1, GN_IO_READ, (block << VOL_BLOCK_SHIFT) - base,
			  &op->sge[bit], 1);
	}
}

/* ---- the end ---- */

static void op_release_copies(struct vol_op *op)
{
	for (unsigned i = 0; i < op->n_copies; i++)
		vol_copy_unuse(op->copy[i]);
	op->n_copies = 0;
	op->failed = 0;
}

static void op_begin(struct vol_op *op);

/* The bucket is held: what the op's WRITEs mean for the states of its blocks. */
static void op_mark_blocks(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	const uint64_t first = vol_op_first(op), end = vol_op_end(op);

	if (op->written) {
		vol_backup_mark(op, first, end);
		if (vol_block_kinds(vol, first, end) != KIND(VOL_DATA))
			vol_blocks_set(vol, first, end, VOL_DATA);
		return;
	}
	if (likely(!op->status || !op->issued))
		return;
	/* Copies may have some of the bytes, which the backup has not. */
	for (uint64_t block = first; block < end; block++) {
		const enum vol_block kind = vol_block_get(vol, block);

		if (kind != VOL_LOST)
			vol_backup_mark(op, block, block + 1);
		if (kind == VOL_HOLE)
			vol_blocks_set(vol, block, block + 1, VOL_STALE);
		else if (vol->crcs && kind == VOL_DATA)
			vol_block_lose(vol, block);
	}
}

static void op_end(struct vol_op *op)
{
	if (unlikely(op->queue->vol->behind) && op->op != GN_VOL_READ && op->op != GN_VOL_FLUSH)
		vol_backup_settle(op);
	vol_req_part_ended(op);
}

static void op_finish(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	struct vol_bucket *bucket = vol_bucket(vol, op->range.start);

	if (op->op != GN_VOL_FLUSH) {
		vol_bucket_lock(bucket);
		if (unlikely(op->issued))
			op_mark_blocks(op);
		vol_range_unlock(bucket, &op->range);
		vol_bucket_unlock(bucket);
	}
	op_release_copies(op);
	op_end(op);
}

/*
 * The bucket is held: is a complete copy with the op's bytes in the map? A copy that was FILLING
 * and is LIVE now has all blocks that are not LOST.
 */
static bool op_is_on_a_copy(const struct vol_op *op)
{
	const unsigned kinds =
		vol_block_kinds(op->queue->vol, vol_op_first(op), vol_op_end(op));
	const unsigned complete = kinds & KIND(VOL_LOST) ? op->live : ~0u;

	for (unsigned i = 0; i < op->n_copies; i++)
		if (complete & ~op->failed & 1u << i && op->copy[i]->state == VOL_LIVE)
			return true;
	return false;
}

/* The bucket is held: does the authority not know of a copy with the op's bytes yet? */
static bool op_is_untold(const struct vol_op *op)
{
	bool untold = false;

	for (unsigned i = 0; i < op->n_copies; i++)
		untold |= op->copy[i]->untold && !(op->failed & 1u << i);
	return untold;
}

static void write_crcs(struct vol_op *op)
{
	for (uint64_t block = vol_op_first(op); block < vol_op_end(op); block++)
		if (!mutant("vol-crc-stale", block))
			op->queue->vol->crcs[block] = vol_block_crc(op, block);
}

/*
 * The range is written on all copies that have not failed. If these have left the map meanwhile,
 * the op starts again.
 */
static void write_ended(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	struct vol_bucket *bucket = vol_bucket(vol, op->range.start);

	for (unsigned i = 0; i < op->n_copies; i++)
		if (!__atomic_load_n(&op->copy[i]->donor->written, __ATOMIC_RELAXED))
			__atomic_store_n(&op->copy[i]->donor->written, 1, __ATOMIC_SEQ_CST);
	vol_bucket_lock(bucket);
	if (unlikely(vol->n_untold) && op_is_untold(op)) {
		vol_bucket_unlock(bucket);
		op->step = VOL_STEP_FAILED;
		vol_keeper_report(op);
		return;
	}
	op->written = !op->status && op_is_on_a_copy(op);
	if (unlikely(!op->written && !op->status)) {
		vol_bucket_unlock(bucket);
		op_release_copies(op);
		op_begin(op);
		return;
	}
	op_mark_blocks(op);
	if (vol->crcs && op->written) { /* readers of the CRCs lock the range */
		vol_bucket_unlock(bucket);
		write_crcs(op);
		vol_bucket_lock(bucket);
	}
	vol_range_unlock(bucket, &op->range);
	vol_bucket_unlock(bucket);
	op_release_copies(op);
	op_end(op);
}

/* Do the blocks have their CRCs? */
static bool read_verify(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	const bool known = __atomic_load_n(&op->copy[0]->wrong, __ATOMIC_RELAXED);
	bool good = true;

	for (uint64_t block = vol_op_first(op); block < vol_op_end(op); block++) {
		const bool wanted = op->step == VOL_STEP_DATA || vol_edge_of(op, block);
		const enum vol_block kind = vol_block_get(vol, block);
		/* A block that was lost while it was read may be what the READ returns. */
		const bool data = kind == VOL_DATA || (kind == VOL_LOST && !op->restore);

		if (!wanted || !data || vol_block_crc(op, block) == vol->crcs[block])
			continue;
		counter_add(&op->queue->crc_errors, !known);
		good = false;
	}
	return good;
}

/* The only copy is wrong: its blocks are lost. */
static void read_lose_blocks(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	struct vol_bucket *bucket = vol_bucket(vol, op->range.start);

	vol_bucket_lock(bucket);
	for (uint64_t block = vol_op_first(op); block < vol_op_end(op); block++)
		if ((op->step == VOL_STEP_DATA || vol_edge_of(op, block)) &&
		    vol_block_get(vol, block) == VOL_DATA &&
		    vol_block_crc(op, block) != vol->crcs[block])
			vol_block_lose(vol, block);
	vol_bucket_unlock(bucket);
	op->status = op_fail_lost();
}

/* STALE blocks have old bytes; whether a donor's new slab is zero is not known. */
static void read_zero_holes(struct vol_op *op)
{
	const struct gn_vol *vol = op->queue->vol;

	for (uint64_t block = vol_op_first(op); block < vol_op_end(op); block++) {
		uint64_t from, to;

		if (vol_block_get(vol, block) != VOL_STALE &&
		    vol_block_get(vol, block) != VOL_HOLE)
			continue;
		vol_block_part(op, block, &from, &to);
		vol_user_zero(op, from - op->start, to - from);
	}
}

/*
 * Blocks of the copy are wrong. If it is the last one, they are lost. It is retired if another copy
 * can be read; until then, or until it is the last one, the op tries again.
 */
static void read_wrong(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	struct vol_bucket *bucket = vol_bucket(vol, op->range.start);
	struct vol_copy *copy = op->copy[0];
	bool last, other;

	vol_bucket_lock(bucket);
	last = copy->state == VOL_LIVE && vol->extents[op->extent].n_live == 1;
	other = copy->state != VOL_LIVE || vol_copy_has_other(copy);
	__atomic_store_n(&copy->wrong, !last, __ATOMIC_RELAXED);
	vol_bucket_unlock(bucket);
	if (last) {
		read_lose_blocks(op);
		op_finish(op);
		return;
	}
	op->failed = (uint8_t)(other ? (1u << op->n_copies) - 1 : 0);
	op->step = VOL_STEP_FAILED;
	vol_keeper_report(op);
}

/* All but blocks that are lost. */
static void read_ended(struct vol_op *op)
{
	if (likely(!op->restore)) {
		op_finish(op);
		return;
	}
	op->step = VOL_STEP_RESTORE;
	vol_backup_restore(op);
}

/* All requests of a step have ended, and no copy failed. */
static void op_step_good(struct vol_op *op)
{
	const bool reading = op->op == GN_VOL_READ || op->step == VOL_STEP_EDGES;

	if (op->op == GN_VOL_FLUSH) {
		vol_flush_step_ended(op);
		op_release_copies(op);
		op_begin(op);
		return;
	}
	if (reading && op->queue->vol->crcs && !read_verify(op)) {
		read_wrong(op);
		return;
	}
	if (op->step == VOL_STEP_EDGES) {
		struct gn_vol *vol = op->queue->vol;
		struct vol_bucket *bucket = vol_bucket(vol, op->range.start);
		const struct vol_extent *e = &vol->extents[op->extent];

		op_release_copies(op);
		vol_bucket_lock(bucket);
		for (unsigned i = 0; i < e->n_copies; i++)
			vol_op_use(op, e->copy[i]);
		op->live = (uint8_t)((1u << e->n_live) - 1);
		vol_bucket_unlock(bucket);
		if (op->n_copies)
			op_issue(op);
		else
			op_begin(op); /* all were lost meanwhile */
		return;
	}
	if (op->op != GN_VOL_READ) {
		write_ended(op);
		return;
	}
	if (op->edges)
		vol_edges_copy(op, true);
	if (op->holes)
		read_zero_holes(op);
	read_ended(op);
}

static void op_step_ended(struct vol_op *op)
{
	if (likely(!op->failed && !op->status)) {
		op_step_good(op);
		return;
	}
	if (op->status) { /* the buffers are to blame */
		const bool writing = op->op != GN_VOL_READ && op->step == VOL_STEP_DATA;
		const unsigned all = (1u << op->n_copies) - 1, good = all & ~op->failed;

		if (op->refused == all)
			op->issued = false; /* no copy has a byte of it */
		/* Copies may now differ: one stays, the others are made anew. */
		op->failed = writing && op->issued ? (uint8_t)(all & ~(good & -good)) : 0;
		if (!op->failed) {
			op_finish(op);
			return;
		}
	}
	if (op->op == GN_VOL_FLUSH)
		vol_flush_step_ended(op);
	op->step = VOL_STEP_FAILED;
	vol_keeper_report(op);
}

/* The copies that failed are out of the map. */
static void op_after_failure(struct vol_op *op)
{
	const unsigned good = ((1u << op->n_copies) - 1) & ~op->failed;

	/* live is 0 unless WRITEs to all copies were issued. */
	if (op->live && good) {
		write_ended(op);
		return;
	}
	op_release_copies(op);
	op_begin(op);
}

/* ---- the beginning ---- */

static enum vol_next op_prepare(struct vol_op *op)
{
	const struct vol_extent *e = &op->queue->vol->extents[op->extent];

	op->live = 0;
	op->restore = false;
	switch (op->op) {
	case GN_VOL_READ:
		return prepare_read(op, e);
	case GN_VOL_WRITE:
		return prepare_write(op, e);
	case GN_VOL_FLUSH:
		return vol_flush_prepare(op);
	default:
		return prepare_zero(op, e);
	}
}

static void op_continue(struct vol_op *op, enum vol_next next)
{
	switch (next) {
	case VOL_OP_ISSUE:
		op_issue(op);
		break;
	case VOL_OP_READ_EDGES:
		op_read_edges(op);
		break;
	case VOL_OP_NEEDS_COPIES:
		op->status = vol_extent_fill(op->queue->vol, op->extent);
		if (!op->status) {
			op_begin(op);
			break;
		}
		op_finish(op);
		break;
	case VOL_OP_ZEROS:
		vol_user_zero(op, 0, op->end - op->start);
		read_ended(op);
		break;
	case VOL_OP_FINISH:
		if (op->op == GN_VOL_FLUSH && op->queue->vol->behind && !op->status) {
			op->step = VOL_STEP_SYNC;
			vol_backup_sync(op);
			break;
		}
		op_finish(op);
		break;
	}
}

/* The range is locked. */
static void op_begin(struct vol_op *op)
{
	struct vol_bucket *bucket = vol_bucket(op->queue->vol, op->range.start);
	enum vol_next next;

	vol_bucket_lock(bucket);
	next = op_prepare(op);
	vol_bucket_unlock(bucket);
	op_continue(op, next);
}

static void op_lock(struct vol_op *op)
{
	struct gn_vol_queue *queue = op->queue;
	struct vol_bucket *bucket = vol_bucket(queue->vol, op->start);
	enum vol_next next;

	op->step = VOL_STEP_LOCK;
	vol_bucket_lock(bucket);
	if (zero_overtakes(op))
		zero_blocks(op);
	if (unlikely(!vol_range_lock(bucket, &op->range, queue->io))) {
		vol_bucket_unlock(bucket);
		counter_add(&queue->serialised, 1);
		return;
	}
	next = op_prepare(op);
	vol_bucket_unlock(bucket);
	op_continue(op, next);
}

/* What the backup's thread returned. */
static int op_backup_status(int status)
{
	return status ? gn_fail(status, "the volume's backup fails: %s", gn_strerror(status)) : 0;
}

static void op_woken(struct gn_io_req *wake)
{
	struct vol_op *op = container_of(wake, struct vol_op, wake);

	switch (op->step) {
	case VOL_STEP_FAILED:
		op_after_failure(op);
		break;
	case VOL_STEP_ADMIT:
		op->status = op_backup_status(wake->status);
		if (op->status)
			vol_req_part_ended(op);
		else
			op_lock(op);
		break;
	case VOL_STEP_RESTORE:
	case VOL_STEP_SYNC:
		op->status = op_backup_status(wake->status);
		op_finish(op);
		break;
	default:
		op_begin(op);
	}
}

void vol_op_init(struct vol_op *op)
{
	op->range.wake = &op->wake;
	op->wake.done = op_woken;
	for (unsigned i = 0; i < VOL_COPIES; i++) {
		op->io[i].done = op_io_done;
		op->io[i].user = op;
	}
}

void vol_op_start(struct vol_op *op)
{
	op->step = VOL_STEP_LOCK;
	op->status = 0;
	op->edges = op->failed = op->live = 0;
	op->n_copies = op->pending = 0;
	op->written = op->issued = false;
	if (op->op == GN_VOL_FLUSH) {
		op->range.start = op->range.end = 0;
		op->donor = op->channel = 0;
		op_begin(op);
		return;
	}
	op->extent = vol_extent_of(op->queue->vol, op->start);
	op->range.start = op->start & ~(uint64_t)(GN_VOL_BLOCK - 1);
	op->range.end = (op->end + GN_VOL_BLOCK - 1) & ~(uint64_t)(GN_VOL_BLOCK - 1);
	op->range.exclusive = op->op != GN_VOL_READ;
	if (unlikely(op->queue->vol->behind) && op->range.exclusive) {
		op->step = VOL_STEP_ADMIT;
		if (!vol_backup_admit(op))
			return;
	}
	op_lock(op);
}
