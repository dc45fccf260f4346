/* SPDX-License-Identifier: MIT */
/* Queues of posted receives and of blocked sends. Allocated with the qp, indexed by position. */
#include "fabric/soft/soft.h"

#include <errno.h>
#include <string.h>

static uint32_t ring_mask(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size *= 2;
	return size - 1;
}

int soft_rq_init(struct soft_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	const size_t n = (size_t)ring_mask(max_wr) + 1;

	rq->mask = ring_mask(max_wr);
	rq->max_sge = max_sge;
	rq->head = rq->tail = 0;
	rq->sge = gn_alloc(n * max_sge * sizeof(*rq->sge), GN_CACHELINE);
	rq->n_sge = gn_alloc(n * sizeof(*rq->n_sge), GN_CACHELINE);
	rq->len_bytes = gn_alloc(n * sizeof(*rq->len_bytes), GN_CACHELINE);
	if (rq->sge && rq->n_sge && rq->len_bytes)
		return 0;
	soft_rq_fini(rq);
	return -ENOMEM;
}

void soft_rq_fini(struct soft_rq *rq)
{
	gn_free(rq->sge);
	gn_free(rq->n_sge);
	gn_free(rq->len_bytes);
}

void soft_rq_post(struct soft_rq *rq, const struct gn_recv_wr *wr)
{
	const uint32_t at = (uint32_t)rq->head & rq->mask;

	rq->n_sge[at] = wr->n_sge;
	rq->len_bytes[at] = (uint32_t)soft_sge_len(wr->sge, wr->n_sge);
	for (uint32_t i = 0; i < wr->n_sge; i++)
		rq->sge[at * rq->max_sge + i] = wr->sge[i];
	rq->head++;
}

int soft_sq_init(struct soft_sq *sq, uint32_t max_wr, uint32_t max_sge, uint32_t max_inline)
{
	const size_t n = (size_t)ring_mask(max_wr) + 1;

	sq->mask = ring_mask(max_wr);
	sq->max_sge = max_sge;
	sq->max_inline = max_inline;
	sq->head = sq->tail = 0;
	sq->wr = gn_alloc(n * sizeof(*sq->wr), GN_CACHELINE);
	sq->sge = gn_alloc(n * max_sge * sizeof(*sq->sge), GN_CACHELINE);
	sq->inlined = max_inline ? gn_alloc(n * max_inline, GN_CACHELINE) : NULL;
	if (sq->wr && sq->sge && (sq->inlined || !max_inline))
		return 0;
	soft_sq_fini(sq);
	return -ENOMEM;
}

void soft_sq_fini(struct soft_sq *sq)
{
	gn_free(sq->wr);
	gn_free(sq->sge);
	gn_free(sq->inlined);
}

void soft_sq_push(struct soft_sq *sq, const struct gn_wr *wr, uint64_t position)
{
	const uint32_t at = (uint32_t)position & sq->mask;
	struct gn_wr *copy = &sq->wr[at];
	struct gn_sge *sge = &sq->sge[at * sq->max_sge];

	if (soft_sq_empty(sq))
		sq->tail = position;
	*copy = *wr;
	copy->next = NULL;
	copy->sge = sge;
	if (wr->flags & GN_INLINE) {
		uint8_t *bytes = sq->inlined + (size_t)at * sq->max_inline;
		const uint64_t len = soft_sge_len(wr->sge, wr->n_sge);

		soft_gather(bytes, wr->sge, wr->n_sge, 0, len);
		*sge = (struct gn_sge){.addr = bytes, .len_bytes = (uint32_t)len};
		copy->n_sge = 1;
	} else if (wr->n_sge) {
		memcpy(sge, wr->sge, wr->n_sge * sizeof(*sge));
	}
	sq->head = position + 1;
}
