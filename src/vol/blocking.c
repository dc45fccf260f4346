/* SPDX-License-Identifier: MIT */
/* Blocking calls: each one borrows a queue of the volume's pool. */
#include <stdio.h>

#include "vol/vol.h"

#define PIECE GN_VOL_BYTES_MAX

static struct gn_vol_queue *pool_take(struct gn_vol *vol)
{
	struct gn_vol_queue *queue = NULL;
	bool make = false;

	gn_mutex_lock(&vol->lock);
	while (!vol->pool && vol->n_pool == VOL_POOL_QUEUES)
		gn_cond_wait(&vol->pool_cond, &vol->lock, GN_FOREVER, "a queue of the volume");
	if (vol->pool) {
		queue = vol->pool;
		vol->pool = queue->pool_next;
	} else {
		vol->n_pool++;
		make = true;
	}
	gn_mutex_unlock(&vol->lock);
	if (!make)
		return queue;
	if (!vol_queue_make(vol, VOL_POOL_DEPTH, &queue)) {
		queue->in_pool = true;
		return queue;
	}
	gn_mutex_lock(&vol->lock);
	vol->n_pool--;
	gn_cond_signal(&vol->pool_cond);
	gn_mutex_unlock(&vol->lock);
	return NULL;
}

static void pool_return(struct gn_vol_queue *queue)
{
	struct gn_vol *vol = queue->vol;

	gn_mutex_lock(&vol->lock);
	queue->pool_next = vol->pool;
	vol->pool = queue;
	gn_cond_signal(&vol->pool_cond);
	gn_mutex_unlock(&vol->lock);
}

/* Runs one request to its end. */
static int run_one(struct gn_vol *vol, struct gn_vol_req *req)
{
	struct gn_vol_queue *queue = pool_take(vol);
	int rc;

	if (!queue)
		return -ENOMEM;
	rc = gn_vol_submit(queue, &req, 1);
	if (rc == 1)
		while ((rc = gn_vol_wait(queue, NULL, 1, GN_FOREVER)) < 0)
			;
	pool_return(queue);
	return rc < 0 ? rc : req->status;
}

/* A READ or WRITE of any length: pieces, several at a time. */
static int run_data(struct gn_vol *vol, enum gn_vol_op op, void *buf, size_t len, uint64_t offset,
		    unsigned flags)
{
	struct gn_vol_req req[VOL_POOL_DEPTH] = {0}, *free_reqs[VOL_POOL_DEPTH];
	struct gn_io_sge sge[VOL_POOL_DEPTH];
	struct gn_vol_queue *queue = pool_take(vol);
	unsigned n_free = VOL_POOL_DEPTH;
	char why[FAIL_TEXT_MAX]; /* waits for the other pieces store texts, too */
	int rc = 0;

	if (!queue)
		return -ENOMEM;
	for (unsigned i = 0; i < VOL_POOL_DEPTH; i++)
		free_reqs[i] = &req[i];
	while ((len && !rc) || n_free < VOL_POOL_DEPTH) {
		struct gn_vol_req *done[VOL_POOL_DEPTH];
		int got;

		while (len && n_free && !rc) {
			struct gn_vol_req *r = free_reqs[--n_free];
			const uint64_t n = len < PIECE ? len : PIECE;

			sge[r - req] = (struct gn_io_sge){.addr = buf, .len_bytes = (uint32_t)n};
			r->op = op;
			r->offset = offset;
			r->sge = &sge[r - req];
			r->n_sge = 1;
			got = gn_vol_submit(queue, &r, 1);
			if (got != 1) {
				free_reqs[n_free++] = r;
				rc = got;
				snprintf(why, sizeof(why), "%s", gn_error());
				break;
			}
			buf = (uint8_t *)buf + n;
			len -= n;
			offset += n;
		}
		if (n_free == VOL_POOL_DEPTH)
			break;
		got = gn_vol_wait(queue, done, VOL_POOL_DEPTH, GN_FOREVER);
		for (int i = 0; i < got; i++) {
			if (done[i]->status && !rc) {
				rc = done[i]->status;
				snprintf(why, sizeof(why), "%s", gn_error());
			}
			free_reqs[n_free++] = done[i];
		}
	}
	pool_return(queue);
	if (rc)
		return gn_fail_text(rc, why);
	if (flags & GN_VOL_FUA)
		rc = gn_vol_flush(vol);
	return rc;
}

static int check_range(const struct gn_vol *vol, const char *call, uint64_t len, uint64_t offset,
		       unsigned flags)
{
	if (!vol)
		return gn_fail(-EINVAL, "%s: vol is NULL", call);
	if (offset > vol->opts.bytes || len > vol->opts.bytes - offset)
		return gn_fail(-EINVAL, "%s: the range is not inside the volume", call);
	if (flags & ~(unsigned)GN_VOL_FUA)
		return gn_fail(-EINVAL, "%s: unknown flags %#x", call, flags);
	return 0;
}

int gn_vol_read(struct gn_vol *vol, void *buf, size_t len_bytes, uint64_t offset)
{
	int rc = check_range(vol, "gn_vol_read()", len_bytes, offset, 0);

	if (rc || !len_bytes)
		return rc;
	if (!buf)
		return gn_fail(-EINVAL, "gn_vol_read(): buf is NULL");
	return run_data(vol, GN_VOL_READ, buf, len_bytes, offset, 0);
}

int gn_vol_write(struct gn_vol *vol, const void *buf, size_t len_bytes, uint64_t offset,
		 unsigned flags)
{
	int rc = check_range(vol, "gn_vol_write()", len_bytes, offset, flags);

	if (rc || !len_bytes)
		return rc;
	if (!buf)
		return gn_fail(-EINVAL, "gn_vol_write(): buf is NULL");
	return run_data(vol, GN_VOL_WRITE, (void *)(uintptr_t)buf, len_bytes, offset, flags);
}

static int run_range(struct gn_vol *vol, enum gn_vol_op op, const char *call, uint64_t len,
		     uint64_t offset, unsigned flags)
{
	struct gn_vol_req req = {.op = op, .flags = flags, .offset = offset, .len_bytes = len};
	int rc = check_range(vol, call, len, offset, flags);

	return rc ? rc : run_one(vol, &req);
}

int gn_vol_zero(struct gn_vol *vol, uint64_t len_bytes, uint64_t offset, unsigned flags)
{
	return run_range(vol, GN_VOL_ZERO, "gn_vol_zero()", len_bytes, offset, flags);
}

int gn_vol_discard(struct gn_vol *vol, uint64_t len_bytes, uint64_t offset, unsigned flags)
{
	return run_range(vol, GN_VOL_DISCARD, "gn_vol_discard()", len_bytes, offset, flags);
}

int gn_vol_flush(struct gn_vol *vol)
{
	return run_range(vol, GN_VOL_FLUSH, "gn_vol_flush()", 0, 0, 0);
}

int gn_vol_extents(struct gn_vol *vol, uint64_t offset, uint64_t len_bytes,
		   int (*fn)(void *arg, uint64_t offset, uint64_t len_bytes,
			     enum gn_vol_extent_kind kind),
		   void *arg)
{
	static const enum gn_vol_extent_kind kinds[VOL_BLOCK_KINDS] = {[VOL_HOLE] = GN_VOL_HOLE,
								       [VOL_STALE] = GN_VOL_HOLE,
								       [VOL_DATA] = GN_VOL_DATA,
								       [VOL_LOST] = GN_VOL_LOST};
	int rc = check_range(vol, "gn_vol_extents()", len_bytes, offset, 0);
	const uint64_t end = offset + len_bytes;

	if (!rc && !fn)
		return gn_fail(-EINVAL, "gn_vol_extents(): fn is NULL");
	while (!rc && offset < end) {
		const uint64_t last = (end + GN_VOL_BLOCK - 1) >> VOL_BLOCK_SHIFT;
		uint64_t block = offset >> VOL_BLOCK_SHIFT, to;
		const enum gn_vol_extent_kind kind = kinds[vol_block_get(vol, block)];

		while (block < last && kinds[vol_block_get(vol, block)] == kind)
			block = vol_blocks_run(vol, block, last);
		to = block << VOL_BLOCK_SHIFT < end ? block << VOL_BLOCK_SHIFT : end;
		rc = fn(arg, offset, to - offset, kind);
		offset = to;
	}
	return rc;
}
