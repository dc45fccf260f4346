/* SPDX-License-Identifier: MIT */
/* Submitting: checks, splitting at stripes, and the push to the merge queues. */
#include <string.h>

#include "io/engine.h"

/* ---- checks ---- */

static int req_check_sges(const struct gn_io *io, struct gn_io_req *req)
{
	struct io_req *r = io_req_of(req);
	uint64_t sum = 0;

	if (!req->sge || !req->n_sge || req->n_sge > io->max_sge)
		return gn_fail(-EINVAL, "gn_io_submit(): a request has 1 to %u SGEs", io->max_sge);
	for (uint32_t i = 0; i < req->n_sge; i++) {
		const struct gn_io_sge *sge = &req->sge[i];

		sum += sge->len_bytes;
		if (!sge->mem)
			continue;
		if (sge->mem->io != io || (uint8_t *)sge->addr < sge->mem->addr ||
		    (uint8_t *)sge->addr + sge->len_bytes > sge->mem->addr + sge->mem->length)
			return gn_fail(-ERANGE, "gn_io_submit(): a buffer is not inside its mem");
	}
	if (!sum || sum > GN_IO_BYTES_MAX)
		return gn_fail(-EMSGSIZE, "gn_io_submit(): a request has 1 to %u bytes",
			       GN_IO_BYTES_MAX);
	r->len_bytes = (uint32_t)sum;
	return 0;
}

static int req_check(const struct gn_io_queue *queue, struct gn_io_req *req)
{
	const struct gn_io_region *region;
	int rc;

	if (!req || !req->region || req->region->target->io != queue->io)
		return gn_fail(-EINVAL, "gn_io_submit(): a request has no region of this engine");
	region = req->region;
	if (unlikely((unsigned)req->op >= GN_IO_OPS))
		return gn_fail(-EINVAL, "gn_io_submit(): op is neither READ nor WRITE");
	if (unlikely(io_req_of(req)->queue))
		return gn_fail(-EBUSY, "gn_io_submit(): the request is under way");
	rc = req_check_sges(queue->io, req);
	if (unlikely(rc))
		return rc;
	if (unlikely(req->offset > region->length ||
		     io_req_of(req)->len_bytes > region->length - req->offset))
		return gn_fail(-ERANGE, "gn_io_submit(): the range is not inside the region");
	if (unlikely(
		    !(region->rights & (req->op == GN_IO_READ ? GN_REMOTE_READ : GN_REMOTE_WRITE))))
		return gn_fail(-EACCES, "gn_io_submit(): the region does not allow this operation");
	rc = __atomic_load_n(&region->target->lost, __ATOMIC_RELAXED);
	return likely(!rc) ? 0 : io_target_lost(region->target);
}

/* ---- pieces ---- */

/* SGEs that [skip, skip + len) of a request needs. */
static uint32_t req_count_sges(const struct gn_io_req *req, uint32_t skip, uint32_t len)
{
	uint64_t at = 0;
	uint32_t n = 0;

	if (io_req_of((struct gn_io_req *)(uintptr_t)req)->buffer || req->n_sge == 1)
		return 1;
	for (uint32_t i = 0; i < req->n_sge; i++) {
		const uint64_t end = at + req->sge[i].len_bytes;

		n += end > skip && at < (uint64_t)skip + len;
		at = end;
	}
	return n;
}

static struct io_channel *piece_init(struct gn_io_req *req, unsigned i, uint32_t skip, uint32_t len)
{
	struct io_part *part = &io_req_of(req)->part[i];
	const struct gn_io_region *region = req->region;
	const uint64_t at = req->offset + skip;

	part->piece = (struct io_piece){.start = region->start + at,
					.key = region->key,
					.len_bytes = len,
					.n_sge = req_count_sges(req, skip, len),
					.skip = skip};
	part->req = req;
	part->unfenced = false;
	return &region->target
			->channels[io_channel_of(region->start + at, region->target->n_channels)];
}

/* Pieces of one list of requests for one channel: pushed together. */
struct batch {
	struct io_channel *ch;
	enum gn_io_op op;
	struct io_piece *newest, *oldest;
};
#define BATCHES 16u

/* One call of gn_io_submit(). */
struct submission {
	struct gn_io_queue *queue;
	struct io_refs_list refs; /* of requests that are not pushed yet */
	unsigned n_batches;
	struct batch batches[BATCHES];
};

static void batch_push(struct batch *batch)
{
	struct io_piece **top = &batch->ch->incoming[batch->op];

	if (!batch->newest)
		return;
	batch->oldest->next = __atomic_load_n(top, __ATOMIC_RELAXED);
	/* Pairs with io_channel_collect(); before the try-lock in the order of all threads. */
	while (!__atomic_compare_exchange_n(top, &batch->oldest->next, batch->newest, true,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	batch->newest = batch->oldest = NULL;
}

/* notify: if another thread leads, it posts this batch, too. False: nobody was told. */
static bool batch_lead(const struct batch *batch, struct gn_io_queue *queue, bool notify)
{
	struct io_poller *poller = batch->ch->poller;

	if (!(notify ? io_poller_try_or_notify(poller) : io_poller_try(poller)))
		return notify;
	io_poller_post_channel(poller, batch->ch, queue);
	io_poller_leave(poller, queue);
	return true;
}

/*
 * All are pushed before the first is posted: a thread that leads finds all of them. A channel that
 * another thread leads comes last: on shm a post is a copy, and meanwhile this thread copies, too.
 */
static void submission_lead(struct submission *s)
{
	uint32_t left = 0;

	io_refs_apply_all(&s->refs, 1);
	for (unsigned b = 0; b < s->n_batches; b++)
		batch_push(&s->batches[b]);
	for (unsigned b = 0; b < s->n_batches; b++)
		left |= (uint32_t)!batch_lead(&s->batches[b], s->queue, false) << b;
	for (; unlikely(left); left &= left - 1)
		batch_lead(&s->batches[__builtin_ctz(left)], s->queue, true);
}

static void submission_add(struct submission *s, struct io_channel *ch, enum gn_io_op op,
			   struct io_piece *piece)
{
	struct batch *batch = s->batches, *const end = s->batches + s->n_batches;

	while (batch < end && (batch->ch != ch || batch->op != op))
		batch++;
	if (unlikely(batch == s->batches + BATCHES)) { /* more than one call keeps apart */
		submission_lead(s);
		s->n_batches = 0;
		batch = s->batches;
	}
	if (batch == s->batches + s->n_batches) {
		*batch = (struct batch){.ch = ch, .op = op};
		s->n_batches++;
	}
	piece->next = batch->newest;
	batch->newest = piece;
	if (!batch->oldest)
		batch->oldest = piece;
	s->queue->out[ch->poller->index]++;
}

int gn_io_submit(struct gn_io_queue *queue, struct gn_io_req *const *reqs, unsigned n)
{
	struct submission s;
	unsigned i;
	int rc = io_queue_check(queue, "gn_io_submit()");

	if (unlikely(rc))
		return rc;
	if (n && !reqs)
		return gn_fail(-EINVAL, "gn_io_submit(): reqs is NULL");
	s.queue = queue;
	s.refs = (struct io_refs_list){0};
	s.n_batches = 0;
	for (i = 0; i < n; i++) {
		struct gn_io_req *req = reqs[i];
		struct io_req *r;
		uint32_t first;

		if (unlikely(queue->under_way == queue->depth)) {
			rc = gn_fail_text(-EAGAIN, "gn_io_submit(): the queue has depth requests "
						   "under way: poll first");
			break;
		}
		rc = req_check(queue, req);
		if (likely(!rc))
			rc = io_memory_prepare(queue->io, req);
		if (unlikely(rc))
			break;
		r = io_req_of(req);
		r->queue = queue;
		r->status = 0;
		r->cancelled = false;
		io_refs_count_req(&s.refs, req, 1);
		queue->under_way++;
		first = io_stripe_left(req->region->start + req->offset);
		r->pieces_left = 1 + (first < r->len_bytes);
		if (likely(first >= r->len_bytes))
			first = r->len_bytes;
		submission_add(&s, piece_init(req, 0, 0, first), req->op, &r->part[0].piece);
		if (unlikely(first < r->len_bytes))
			submission_add(&s, piece_init(req, 1, first, r->len_bytes - first), req->op,
				       &r->part[1].piece);
	}
	submission_lead(&s);
	return i ? (int)i : rc;
}

int gn_io_cancel(struct gn_io_req *req)
{
	struct gn_io_target *target;
	int rc;

	if (!req || !io_req_of(req)->queue || !req->region)
		return gn_fail(-EINVAL, "gn_io_cancel(): the request is not under way");
	rc = io_check(io_req_of(req)->queue->io, "gn_io_cancel()");
	if (rc)
		return rc;
	target = req->region->target;
	__atomic_store_n(&io_req_of(req)->cancelled, true, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < target->n_channels; i++) {
		struct io_poller *poller = target->channels[i].poller;

		__atomic_store_n(&poller->purge, true, __ATOMIC_SEQ_CST);
		if (!io_poller_try_or_notify(poller))
			continue;
		/* This may be another thread than the queue's owner, which must wake. */
		io_poller_post(poller, NULL);
		io_poller_leave(poller, NULL);
	}
	return 0;
}
