/* SPDX-License-Identifier: MIT */
/*
 * Backup: blocks are copied to a slower store after their WRITEs have ended. A bit for each block
 * says that the block is *behind*: newer than its backup. The thread goes over the bits, pass
 * by pass: reads blocks from the volume and writes them to the backup. A FLUSH ends after the pass
 * that began after it. When all copies of a block are lost, READs are served from the backup,
 * unless the block was behind.
 */
#include "vol/vol.h"

#define LAG_BYTES (64ull << 20)
#define RUN_BYTES (256u << 10) /* that are copied at a time, in one stripe */
#define LOOK_US	  1000u
#define RETRY_NS  UINT64_C(100000000)

/* ---- bits ---- */

static bool behind_get(const struct gn_vol *vol, uint64_t block)
{
	return __atomic_load_n(&vol->behind[block / 64], __ATOMIC_RELAXED) >> block % 64 & 1;
}

/* The bucket is held. */
static void behind_set(struct gn_vol *vol, uint64_t block, bool behind)
{
	uint64_t *word = &vol->behind[block / 64];
	const uint64_t bit = UINT64_C(1) << block % 64;
	const uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	__atomic_store_n(word, behind ? old | bit : old & ~bit, __ATOMIC_RELAXED);
}

bool vol_backup_has(const struct gn_vol *vol, uint64_t block)
{
	return vol->behind && !behind_get(vol, block) &&
	       (block < __atomic_load_n(&vol->backing_from, __ATOMIC_RELAXED) ||
		block >= __atomic_load_n(&vol->backing_to, __ATOMIC_RELAXED));
}

void vol_backup_mark(struct vol_op *op, uint64_t from, uint64_t to)
{
	struct gn_vol *vol = op->queue->vol;

	if (likely(!vol->behind))
		return;
	for (uint64_t block = from; block < to; block++) {
		/* A block that was lost while it was behind has left the count. */
		if (!behind_get(vol, block) || vol_block_get(vol, block) == VOL_LOST)
			op->marked += GN_VOL_BLOCK;
		behind_set(vol, block, true);
	}
}

void vol_backup_lost(struct gn_vol *vol, uint64_t from, uint64_t to)
{
	uint64_t lost = 0;

	for (uint64_t block = from; vol->behind && block < to; block++)
		lost += behind_get(vol, block);
	__atomic_fetch_sub(&vol->behind_bytes, lost * GN_VOL_BLOCK, __ATOMIC_RELAXED);
}

/* ---- ops ---- */

static void op_append(struct vol_op **list, struct vol_op *op)
{
	op->next = NULL;
	while (*list)
		list = &(*list)->next;
	*list = op;
}

/* The volume's lock is held: the thread has work. */
static void backup_kick(struct gn_vol *vol)
{
	vol->backup_kicked = true;
	gn_cond_signal(&vol->backup_cond);
}

/* The volume's lock is held: has the backup space for what the op writes? */
static bool backup_fits(const struct gn_vol *vol, uint64_t bytes)
{
	const uint64_t behind = __atomic_load_n(&vol->behind_bytes, __ATOMIC_RELAXED);

	return !behind || behind + bytes <= vol->backup.lag_bytes;
}

bool vol_backup_admit(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	const uint64_t bytes = op->range.end - op->range.start;
	bool fits;

	op->marked = 0;
	gn_mutex_lock(&vol->lock);
	fits = !vol->throttled && backup_fits(vol, bytes);
	if (fits) {
		__atomic_fetch_add(&vol->behind_bytes, bytes, __ATOMIC_RELAXED);
	} else {
		int rc = gn_io_expect(op->queue->io, &op->wake);

		assert(!rc); /* the op has no other request */
		(void)rc;
		op_append(&vol->throttled, op);
		backup_kick(vol);
	}
	gn_mutex_unlock(&vol->lock);
	return fits;
}

void vol_backup_settle(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	const uint64_t bytes = op->range.end - op->range.start;

	__atomic_fetch_sub(&vol->behind_bytes, bytes - op->marked, __ATOMIC_RELAXED);
	gn_mutex_lock(&vol->lock);
	backup_kick(vol);
	gn_mutex_unlock(&vol->lock);
}

/* Hands an op to the thread; its wake ends with the result. */
static void op_hand_over(struct vol_op **list, struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	int rc = gn_io_expect(op->queue->io, &op->wake);

	assert(!rc); /* the op has no other request */
	(void)rc;
	gn_mutex_lock(&vol->lock);
	op_append(list, op);
	backup_kick(vol);
	gn_mutex_unlock(&vol->lock);
}

void vol_backup_restore(struct vol_op *op)
{
	op_hand_over(&op->queue->vol->restoring, op);
}

void vol_backup_sync(struct vol_op *op)
{
	op_hand_over(&op->queue->vol->syncing, op);
}

/* ---- the thread ---- */

struct backup {
	struct gn_vol *vol;
	struct gn_vol_queue *queue;
	uint8_t *buf;		/* RUN_BYTES, and a block for READs that are restored */
	uint64_t next;		/* block of the pass; 0: none is under way */
	int rc;			/* of the pass */
	struct vol_op *syncing; /* FLUSHes that end with the pass */
};

/* Under the lock: the queue of an op that has ended may be destroyed at once. */
static void op_wake(struct vol_op *op, int status)
{
	struct gn_vol *vol = op->queue->vol;

	gn_mutex_lock(&vol->lock);
	gn_io_end(&op->wake, status);
	gn_mutex_unlock(&vol->lock);
}

static void ops_end(struct vol_op *op, int status)
{
	for (struct vol_op *next; op; op = next) {
		next = op->next;
		op_wake(op, status);
	}
}

static struct vol_op *ops_take(struct gn_vol *vol, struct vol_op **list)
{
	struct vol_op *ops;

	gn_mutex_lock(&vol->lock);
	ops = *list;
	*list = NULL;
	gn_mutex_unlock(&vol->lock);
	return ops;
}

/* Lost blocks of a READ, which has their range locked. */
static int restore_blocks(struct backup *b, struct vol_op *op)
{
	struct gn_vol *vol = b->vol;
	uint8_t *buf = b->buf + RUN_BYTES;

	for (uint64_t block = vol_op_first(op); block < vol_op_end(op); block++) {
		uint64_t from, to;
		int rc;

		if (vol_block_get(vol, block) != VOL_LOST)
			continue;
		if (!vol_backup_has(vol, block))
			return -EIO; /* it was lost after the READ began */
		rc = vol->backup.read(vol->backup.arg, buf, GN_VOL_BLOCK, block << VOL_BLOCK_SHIFT);
		if (rc)
			return rc;
		if (vol->crcs && gn_crc32c(0, buf, GN_VOL_BLOCK) != vol->crcs[block])
			return -EIO;
		vol_block_part(op, block, &from, &to);
		vol_user_copy(op, from - op->start, buf + from % GN_VOL_BLOCK, to - from, true);
	}
	return 0;
}

static void backup_restore(struct backup *b)
{
	for (struct vol_op *op = ops_take(b->vol, &b->vol->restoring), *next; op; op = next) {
		next = op->next;
		op_wake(op, restore_blocks(b, op) ? -EIO : 0);
	}
}

/* Lets WRITEs begin for which the backup has space now. */
static void backup_admit(struct backup *b, int error)
{
	struct gn_vol *vol = b->vol;

	gn_mutex_lock(&vol->lock);
	while (vol->throttled) {
		struct vol_op *op = vol->throttled;
		const uint64_t bytes = op->range.end - op->range.start;

		if (!error && !backup_fits(vol, bytes))
			break;
		vol->throttled = op->next;
		if (!error)
			__atomic_fetch_add(&vol->behind_bytes, bytes, __ATOMIC_RELAXED);
		gn_io_end(&op->wake, error);
	}
	gn_mutex_unlock(&vol->lock);
}

/* The next run of blocks that are behind: [*from, *to). */
static bool run_find(const struct gn_vol *vol, uint64_t *from, uint64_t *to)
{
	const uint64_t end = vol->opts.bytes >> VOL_BLOCK_SHIFT;
	uint64_t last;

	for (;; (*from)++) {
		while (*from % 64 == 0 && *from < end &&
		       !__atomic_load_n(&vol->behind[*from / 64], __ATOMIC_RELAXED))
			*from += 64;
		if (*from >= end)
			return false;
		if (behind_get(vol, *from) && vol_block_get(vol, *from) != VOL_LOST)
			break;
	}
	last = (*from | (RUN_BYTES / GN_VOL_BLOCK - 1)) + 1;
	for (*to = *from + 1;
	     *to < end && *to < last && behind_get(vol, *to) && vol_block_get(vol, *to) != VOL_LOST;
	     (*to)++)
		;
	return true;
}

/* The run is being copied: what is written from now on is behind again. */
static void run_begin(struct gn_vol *vol, uint64_t from, uint64_t to)
{
	struct vol_bucket *bucket = vol_bucket(vol, from << VOL_BLOCK_SHIFT);
	uint64_t changed = 0;

	vol_bucket_lock(bucket);
	__atomic_store_n(&vol->backing_from, from, __ATOMIC_RELAXED);
	__atomic_store_n(&vol->backing_to, to, __ATOMIC_RELAXED);
	for (uint64_t block = from; block < to; block++) {
		changed += behind_get(vol, block) && vol_block_get(vol, block) != VOL_LOST;
		behind_set(vol, block, false);
	}
	vol_bucket_unlock(bucket);
	__atomic_fetch_sub(&vol->behind_bytes, changed * GN_VOL_BLOCK, __ATOMIC_RELAXED);
}

/* The run is in the backup, or (failed) behind as before. */
static void run_end(struct gn_vol *vol, uint64_t from, uint64_t to, bool failed)
{
	struct vol_bucket *bucket = vol_bucket(vol, from << VOL_BLOCK_SHIFT);
	uint64_t changed = 0;

	vol_bucket_lock(bucket);
	__atomic_store_n(&vol->backing_from, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&vol->backing_to, 0, __ATOMIC_RELAXED);
	for (uint64_t block = from; failed && block < to; block++) {
		changed += !behind_get(vol, block) && vol_block_get(vol, block) != VOL_LOST;
		behind_set(vol, block, true);
	}
	vol_bucket_unlock(bucket);
	__atomic_fetch_add(&vol->behind_bytes, changed * GN_VOL_BLOCK, __ATOMIC_RELAXED);
}

static int run_copy(struct backup *b, uint64_t from, uint64_t to)
{
	struct gn_vol *vol = b->vol;
	struct gn_io_sge sge = {.addr = b->buf,
				.len_bytes = (uint32_t)((to - from) << VOL_BLOCK_SHIFT)};
	struct gn_vol_req req = {
		.op = GN_VOL_READ, .offset = from << VOL_BLOCK_SHIFT, .sge = &sge, .n_sge = 1};
	struct gn_vol_req *const one = &req;
	int rc = gn_vol_submit(b->queue, &one, 1);

	/* A READ that is being restored may have the range locked, and a WRITE wait behind it. */
	while (rc == 1 && gn_vol_wait(b->queue, NULL, 1, gn_deadline_us(LOOK_US)) != 1)
		backup_restore(b);
	if (rc == 1 && req.status)
		return req.status;
	if (rc == 1)
		rc = vol->backup.write(vol->backup.arg, b->buf, sge.len_bytes, req.offset);
	return rc;
}

static bool run_has_lost(const struct gn_vol *vol, uint64_t from, uint64_t to)
{
	return vol_block_kinds(vol, from, to) & 1u << VOL_LOST;
}

/* Copies one run of the pass. false: the pass is over. */
static bool pass_step(struct backup *b)
{
	struct gn_vol *vol = b->vol;
	uint64_t from = b->next, to;
	int rc;

	if (!run_find(vol, &from, &to))
		return false;
	b->next = to;
	run_begin(vol, from, to);
	rc = run_copy(b, from, to);
	run_end(vol, from, to, rc != 0);
	if (rc == -EIO && run_has_lost(vol, from, to))
		b->next = from; /* without the blocks that were lost meanwhile */
	else if (rc && !b->rc)
		b->rc = rc;
	return true;
}

/* The result of a pass, or of the last sync. */
static void backup_result(struct gn_vol *vol, int rc)
{
	if (rc && vol->stats.backup_error != rc)
		gn_log(GN_LOG_ERROR, "vol: the backup fails: %s", gn_strerror(rc));
	gn_mutex_lock(&vol->lock);
	vol->stats.backup_error = rc;
	gn_mutex_unlock(&vol->lock);
}

static int backup_pass(struct backup *b)
{
	struct gn_vol *vol = b->vol;

	b->next = 0;
	b->rc = 0;
	b->syncing = ops_take(vol, &vol->syncing);
	while (pass_step(b)) {
		backup_restore(b);
		backup_admit(b, 0);
	}
	if (b->syncing && !b->rc)
		b->rc = vol->backup.sync(vol->backup.arg);
	backup_result(vol, b->rc);
	ops_end(b->syncing, b->rc ? -EIO : 0);
	backup_admit(b, b->rc ? -EIO : 0);
	return b->rc;
}

void vol_backup_main(void *arg)
{
	struct gn_vol *vol = arg;
	struct backup b = {.vol = vol, .queue = vol->backup_queue, .buf = vol->backup_buf};
	gn_mutex_lock(&vol->lock);
	while (!vol->stop_backup) {
		vol->backup_kicked = false;
		gn_mutex_unlock(&vol->lock);
		backup_restore(&b);
		backup_pass(&b);
		gn_mutex_lock(&vol->lock);
		if (!vol->backup_kicked && !vol->stop_backup)
			gn_cond_wait(&vol->backup_cond, &vol->lock, gn_now_ns() + RETRY_NS,
				     "writes to back up");
	}
	gn_mutex_unlock(&vol->lock);
	if (!backup_pass(&b))
		backup_result(vol, vol->backup.sync(vol->backup.arg));
	gn_vol_queue_destroy(b.queue);
	gn_free(b.buf);
}

int vol_backup_start(struct gn_vol *vol)
{
	const uint64_t blocks = vol->opts.bytes >> VOL_BLOCK_SHIFT;
	int rc;

	if (!vol->opts.backup)
		return 0;
	vol->backup = *vol->opts.backup;
	if (!vol->backup.read || !vol->backup.write || !vol->backup.sync)
		return gn_fail(-EINVAL, "gn_vol_create(): a backup needs read, write and sync");
	if (!vol->backup.lag_bytes)
		vol->backup.lag_bytes = LAG_BYTES;
	vol->behind = gn_alloc((blocks + 63) / 64 * sizeof(*vol->behind), GN_CACHELINE);
	vol->backup_buf = gn_alloc(RUN_BYTES + GN_VOL_BLOCK, GN_PAGE);
	if (!vol->behind || !vol->backup_buf)
		return gn_fail(-ENOMEM, "gn_vol_create(): " NO_MEMORY);
	rc = vol_queue_make(vol, 1, &vol->backup_queue);
	if (rc)
		return rc;
	vol->backup_queue->in_pool = true;
	return gn_thread_start("vol-backup", vol_backup_main, vol, &vol->backup_thread);
}
