/* SPDX-License-Identifier: MIT */
/* Queues of a volume: requests, and the ops that they are divided into. */
#include "vol/vol.h"

#define IO_PER_OP    VOL_COPIES
#define PREFETCH_MAX 32u

/* ---- ops ---- */

static struct vol_op *op_new(struct gn_vol_queue *queue, struct gn_vol_req *req,
			     enum gn_vol_op what, uint64_t start, uint64_t end)
{
	struct vol_op *op = queue->free_ops;

	assert(op); /* there are two for each request that may be under way */
	queue->free_ops = op->next;
	op->req = req;
	op->op = (uint8_t)what;
	op->start = start;
	op->end = end;
	vol_req_of(req)->ops++;
	return op;
}

/* The buffers of bytes [skip, skip + len) of a request. */
static void op_slice(struct vol_op *op, const struct gn_vol_req *req, uint64_t skip, uint64_t len)
{
	op->user = op->slice;
	op->n_sge = 0;
	for (uint32_t i = 0; i < req->n_sge && len; i++) {
		const uint64_t have = req->sge[i].len_bytes;
		uint64_t n;

		if (skip >= have) {
			skip -= have;
			continue;
		}
		n = have - skip < len ? have - skip : len;
		op->slice[op->n_sge] = req->sge[i];
		op->slice[op->n_sge].addr = (uint8_t *)req->sge[i].addr + skip;
		op->slice[op->n_sge++].len_bytes = (uint32_t)n;
		skip = 0;
		len -= n;
	}
}

static uint64_t stripe_end(uint64_t offset)
{
	return (offset | (VOL_STRIPE - 1)) + 1;
}

static void req_start_data(struct gn_vol_queue *queue, struct gn_vol_req *req)
{
	const uint64_t end = req->offset + req->len_bytes, middle = stripe_end(req->offset);
	struct vol_op *first, *second;

	if (likely(end <= middle)) {
		first = op_new(queue, req, req->op, req->offset, end);
		first->user = req->sge;
		first->n_sge = req->n_sge;
		vol_op_start(first);
		return;
	}
	/* Both exist before the first one can end the request. */
	first = op_new(queue, req, req->op, req->offset, middle);
	second = op_new(queue, req, req->op, middle, end);
	op_slice(first, req, 0, middle - req->offset);
	op_slice(second, req, middle - req->offset, end - middle);
	vol_op_start(first);
	vol_op_start(second);
}

static const struct gn_io_sge *zero_sge(struct vol_op *op)
{
	static const uint8_t zeros[GN_VOL_BLOCK];

	op->slice[0] = (struct gn_io_sge){.addr = (void *)(uintptr_t)zeros,
					  .len_bytes = (uint32_t)(op->end - op->start)};
	return op->slice;
}

/* The end of the next op of a ZERO or DISCARD: a part of a block, or whole blocks of a stripe. */
static uint64_t zero_end(uint64_t from, uint64_t end)
{
	const uint64_t stripe = stripe_end(from), block = (from | (GN_VOL_BLOCK - 1)) + 1;

	if (from % GN_VOL_BLOCK || end < block)
		return end < block ? end : block;
	return end < stripe ? end & ~(uint64_t)(GN_VOL_BLOCK - 1) : stripe;
}

/* Makes the next ops of a ZERO or DISCARD, one after the other. */
static void req_advance(struct gn_vol_queue *queue, struct gn_vol_req *req)
{
	struct vol_req *r = vol_req_of(req);
	const uint64_t end = req->offset + req->len_bytes;

	r->advancing = true;
	while (!r->ops && !r->status && r->cursor < end) {
		const uint64_t to = zero_end(r->cursor, end);
		struct vol_op *op = op_new(queue, req, req->op, r->cursor, to);

		op->user = zero_sge(op);
		op->n_sge = 1;
		r->cursor = to;
		vol_op_start(op);
	}
	r->advancing = false;
}

/* ---- requests ---- */

static void req_end(struct gn_vol_queue *queue, struct gn_vol_req *req)
{
	struct vol_req *r = vol_req_of(req);

	r->next = NULL;
	*queue->ended_last = req;
	queue->ended_last = &r->next;
}

/* All ops that were made have ended. */
static void req_go_on(struct gn_vol_queue *queue, struct gn_vol_req *req)
{
	struct vol_req *r = vol_req_of(req);

	if ((req->op == GN_VOL_ZERO || req->op == GN_VOL_DISCARD) && !r->flushing) {
		req_advance(queue, req);
		if (r->ops)
			return;
	}
	if (req->flags & GN_VOL_FUA && !r->flushing && !r->status) {
		r->flushing = true;
		vol_op_start(op_new(queue, req, GN_VOL_FLUSH, 0, 0));
		return;
	}
	req_end(queue, req);
}

void vol_req_part_ended(struct vol_op *op)
{
	struct gn_vol_queue *queue = op->queue;
	struct gn_vol_req *req = op->req;
	struct vol_req *r = vol_req_of(req);

	if (unlikely(op->status) && !r->status)
		r->status = op->status;
	op->next = queue->free_ops;
	queue->free_ops = op;
	if (--r->ops == 0 && !r->advancing)
		req_go_on(queue, req);
}

static int req_check(const struct gn_vol_queue *queue, struct gn_vol_req *req)
{
	const struct gn_vol *vol = queue->vol;
	uint64_t sum = 0;

	if (!req || (unsigned)req->op >= GN_VOL_OPS)
		return gn_fail(-EINVAL, "gn_vol_submit(): not a request");
	if (vol_req_of(req)->queue)
		return gn_fail(-EBUSY, "gn_vol_submit(): the request is under way");
	if (req->flags & ~(unsigned)GN_VOL_FUA)
		return gn_fail(-EINVAL, "gn_vol_submit(): unknown flags %#x", req->flags);
	if (req->op == GN_VOL_FLUSH)
		return 0;
	if (req->op == GN_VOL_READ || req->op == GN_VOL_WRITE) {
		if (!req->sge || !req->n_sge || req->n_sge > vol->max_sge)
			return gn_fail(-EINVAL, "gn_vol_submit(): a request has 1 to %u SGEs",
				       vol->max_sge);
		for (uint32_t i = 0; i < req->n_sge; i++)
			sum += req->sge[i].len_bytes;
		if (!sum || sum > GN_VOL_BYTES_MAX)
			return gn_fail(-EMSGSIZE, "gn_vol_submit(): a request has 1 to %u bytes",
				       GN_VOL_BYTES_MAX);
		req->len_bytes = sum;
	}
	if (unlikely(req->offset > vol->opts.bytes ||
		     req->len_bytes > vol->opts.bytes - req->offset))
		return gn_fail(-EINVAL, "gn_vol_submit(): the range is not inside the volume");
	return 0;
}

/* Hands the ops' requests to the engine. */
static void queue_push(struct gn_vol_queue *queue)
{
	while (queue->out_head != queue->out_tail) {
		const uint32_t at = queue->out_head & queue->out_mask;
		const uint32_t all = queue->out_tail - queue->out_head;
		const uint32_t straight = queue->out_mask + 1 - at;
		struct gn_io_req *io = queue->out[at];
		int rc = gn_io_submit(queue->io, &queue->out[at], all < straight ? all : straight);

		if (likely(rc > 0)) {
			queue->out_head += (uint32_t)rc;
			continue;
		}
		if (rc == -EAGAIN)
			return; /* staging buffers: tried again by the next poll */
		queue->out_head++;
		vol_op_refused(io, rc);
	}
}

static void nudge_done(struct gn_io_req *nudge)
{
	container_of(nudge, struct gn_vol_queue, nudge)->nudged = false;
}

/* The source is that of the engine's queue, which does not know of requests that ended here. */
static void queue_show(struct gn_vol_queue *queue)
{
	if (likely(!queue->has_source) || queue->nudged ||
	    (!queue->ended && queue->out_head == queue->out_tail))
		return;
	queue->nudged = !gn_io_expect(queue->io, &queue->nudge);
	if (queue->nudged)
		gn_io_end(&queue->nudge, 0);
}

/*
 * The parts of the map that requests need, for all of them at once instead of one after the other:
 * what the requests copied in the meantime has replaced them in the cache.
 */
static void submit_prefetch(const struct gn_vol_queue *queue, struct gn_vol_req *const *reqs,
			    unsigned n)
{
	const struct gn_vol *vol = queue->vol;

	for (unsigned i = 0; i < n && i < PREFETCH_MAX; i++) {
		const uint64_t offset = likely(reqs[i]) ? reqs[i]->offset : UINT64_MAX;

		if (unlikely(offset >= vol->opts.bytes))
			continue;
		__builtin_prefetch(vol_bucket(vol, offset), 1);
		__builtin_prefetch(&vol->blocks[offset >> VOL_BLOCK_SHIFT >> 5]);
	}
}

int gn_vol_submit(struct gn_vol_queue *queue, struct gn_vol_req *const *reqs, unsigned n)
{
	unsigned i;
	int rc = 0;

	if (!queue || (n && !reqs))
		return gn_fail(-EINVAL, "gn_vol_submit(): queue or reqs is NULL");
	submit_prefetch(queue, reqs, n);
	for (i = 0; i < n; i++) {
		struct gn_vol_req *req = reqs[i];
		struct vol_req *r;

		if (unlikely(queue->under_way == queue->depth)) {
			rc = gn_fail_text(-EAGAIN, "gn_vol_submit(): the queue has depth requests "
						   "under way: poll first");
			break;
		}
		rc = req_check(queue, req);
		if (unlikely(rc))
			break;
		r = vol_req_of(req);
		*r = (struct vol_req){.queue = queue, .cursor = req->offset};
		queue->under_way++;
		if (likely(req->op == GN_VOL_READ || req->op == GN_VOL_WRITE)) {
			req_start_data(queue, req);
		} else if (req->op == GN_VOL_FLUSH) {
			r->flushing = true;
			vol_op_start(op_new(queue, req, GN_VOL_FLUSH, 0, 0));
		} else {
			req_go_on(queue, req);
		}
	}
	queue_push(queue);
	queue_show(queue);
	return i ? (int)i : rc;
}

/* Hands ended requests to the owner. */
static unsigned queue_reap(struct gn_vol_queue *queue, struct gn_vol_req **reqs, unsigned n)
{
	struct gn_vol_req *req;
	unsigned got = 0;

	queue->reaping++;
	while (got < n && (req = queue->ended)) {
		struct vol_req *r = vol_req_of(req);

		queue->ended = r->next;
		if (!queue->ended)
			queue->ended_last = &queue->ended;
		req->status = r->status;
		counter_add(&queue->requests[req->op], 1);
		counter_add(&queue->failed, r->status != 0);
		r->queue = NULL;
		queue->under_way--;
		got++;
		if (req->done)
			req->done(req);
		else if (reqs)
			*reqs++ = req;
	}
	queue->reaping--;
	queue_show(queue);
	return got;
}

int gn_vol_poll(struct gn_vol_queue *queue, struct gn_vol_req **reqs, unsigned n)
{
	if (!queue)
		return gn_fail(-EINVAL, "gn_vol_poll(): queue is NULL");
	if ((!queue->ended && queue->under_way) || unlikely(queue->nudged)) {
		queue_push(queue);
		gn_io_poll(queue->io, NULL, n ? n : 1);
		queue_push(queue);
	}
	return (int)queue_reap(queue, reqs, n);
}

#define STAGING_RETRY_US 50u

int gn_vol_wait(struct gn_vol_queue *queue, struct gn_vol_req **reqs, unsigned n,
		uint64_t deadline_ns)
{
	if (!queue)
		return gn_fail(-EINVAL, "gn_vol_wait(): queue is NULL");
	if (!n)
		return gn_fail(-EINVAL, "gn_vol_wait(): n is 0");
	if (!queue->under_way)
		return gn_fail_text(-EAGAIN, "gn_vol_wait(): no request is under way");
	if (!deadline_ns)
		deadline_ns = GN_FOREVER;
	while (!queue->ended) {
		int rc;

		queue_push(queue);
		if (queue->ended)
			break;
		rc = gn_io_wait(queue->io, NULL, n, deadline_ns);
		queue_push(queue);
		if (queue->ended)
			break;
		if (rc == -EAGAIN && gn_now_ns() < deadline_ns)
			gn_sleep_us(STAGING_RETRY_US); /* others have all staging buffers */
		else if (rc < 0)
			return rc == -EAGAIN ? gn_fail_text(-ETIMEDOUT, "gn_vol_wait()") : rc;
	}
	return (int)queue_reap(queue, reqs, n);
}

int gn_vol_queue_source(struct gn_vol_queue *queue, struct gn_source **out)
{
	int rc;

	if (!queue || !out)
		return gn_fail(-EINVAL, "gn_vol_queue_source(): queue or out is NULL");
	rc = gn_io_queue_source(queue->io, out);
	if (!rc) {
		queue->has_source = true;
		queue_show(queue);
	}
	return rc;
}

/* ---- creation ---- */

void vol_queue_free(struct gn_vol_queue *queue)
{
	if (!queue)
		return;
	gn_io_queue_destroy(queue->io);
	gn_free(queue->ops);
	gn_free(queue->edges);
	gn_free(queue->out);
	gn_free(queue);
}

int vol_queue_make(struct gn_vol *vol, uint32_t depth, struct gn_vol_queue **out)
{
	const uint32_t n_ops = 2 * depth;
	struct gn_vol_queue *queue = gn_alloc(sizeof(*queue), 0);
	uint32_t ring = 1;
	int rc = -ENOMEM;

	if (!queue)
		return gn_fail(rc, "gn_vol_queue_create(): " NO_MEMORY);
	while (ring < n_ops * IO_PER_OP)
		ring *= 2;
	queue->vol = vol;
	queue->depth = depth;
	queue->ended_last = &queue->ended;
	queue->out_mask = ring - 1;
	queue->nudge.done = nudge_done;
	queue->ops = gn_alloc(n_ops * sizeof(*queue->ops), GN_CACHELINE);
	queue->edges = gn_alloc((size_t)n_ops * 2 * GN_VOL_BLOCK, GN_VOL_BLOCK);
	queue->out = gn_alloc(ring * sizeof(*queue->out), 0);
	if (!queue->ops || !queue->edges || !queue->out) {
		gn_fail(rc, "gn_vol_queue_create(): " NO_MEMORY);
		goto free_queue;
	}
	rc = gn_io_queue_create(vol->io, n_ops * IO_PER_OP + 1, &queue->io);
	if (rc)
		goto free_queue;
	for (uint32_t i = n_ops; i--;) {
		struct vol_op *op = &queue->ops[i];

		op->queue = queue;
		vol_op_init(op);
		op->edge = queue->edges + (size_t)i * 2 * GN_VOL_BLOCK;
		op->next = queue->free_ops;
		queue->free_ops = op;
	}
	gn_mutex_lock(&vol->lock);
	list_push(&vol->queues, queue);
	gn_mutex_unlock(&vol->lock);
	*out = queue;
	return 0;

free_queue:
	vol_queue_free(queue);
	return rc;
}

int gn_vol_queue_create(struct gn_vol *vol, uint32_t depth, struct gn_vol_queue **out)
{
	int rc;

	if (!vol || !out || !depth || depth > VOL_QUEUE_MAX)
		return gn_fail(-EINVAL, "gn_vol_queue_create(): depth is 1 to %u", VOL_QUEUE_MAX);
	rc = vol_queue_make(vol, depth, out);
	if (!rc)
		__atomic_fetch_add(&vol->n_queues, 1, __ATOMIC_RELAXED);
	return rc;
}

/* Its counters stay. */
static void queue_unlink(struct gn_vol_queue *queue)
{
	struct gn_vol *vol = queue->vol;

	gn_mutex_lock(&vol->lock);
	list_remove(queue);
	for (unsigned op = 0; op < GN_VOL_OPS; op++)
		vol->stats.requests[op] += queue->requests[op];
	vol->stats.failed += queue->failed;
	vol->stats.serialised += queue->serialised;
	vol->stats.crc_errors += queue->crc_errors;
	gn_mutex_unlock(&vol->lock);
}

int gn_vol_queue_destroy(struct gn_vol_queue *queue)
{
	if (!queue)
		return 0;
	if (queue->under_way)
		return gn_fail(-EBUSY, "gn_vol_queue_destroy(): %u requests are under way",
			       queue->under_way);
	if (queue->reaping)
		return gn_fail(-EBUSY, "gn_vol_queue_destroy(): called by a done of this queue");
	while (queue->nudged)
		gn_io_poll(queue->io, NULL, 1);
	queue_unlink(queue);
	if (!queue->in_pool)
		__atomic_fetch_sub(&queue->vol->n_queues, 1, __ATOMIC_RELAXED);
	vol_queue_free(queue);
	return 0;
}
