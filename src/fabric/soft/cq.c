/* SPDX-License-Identifier: MIT */
/* The completion ring of software providers, and its events. */
#include "base/fail.h"
#include "fabric/soft/soft.h"

#include <errno.h>

int soft_cq_init(struct soft_cq *cq)
{
	uint32_t size = 1;

	while (size < cq->cq.depth)
		size *= 2;
	cq->ring = gn_alloc(size * sizeof(*cq->ring), GN_CACHELINE);
	cq->mask = size - 1;
	return cq->ring ? 0 : -ENOMEM;
}

void soft_cq_fini(struct soft_cq *cq)
{
	gn_free(cq->ring);
}

bool soft_cq_push_slow(struct soft_cq *cq, const struct gn_wc *wc, bool solicited)
{
	if (unlikely(soft_cq_full(cq))) {
		if (!cq->cq.overrun) {
			cq->cq.overrun = true;
			gn_fail_log(0, "fabric: a cq of depth %u was overrun; its qps are in error",
				    cq->cq.depth);
			chan_push(cq->cq.chan, &cq->cq.ev_overrun);
		}
		return false;
	}
	if (cq->n_direct < cq->direct_room && soft_cq_empty(cq))
		cq->direct[cq->n_direct++] = *wc;
	else
		cq->ring[cq->head++ & cq->mask] = *wc;
	if (unlikely(cq->armed != SOFT_UNARMED) &&
	    (cq->armed == SOFT_ARMED || solicited || wc->status != GN_WC_OK)) {
		cq->armed = SOFT_UNARMED;
		chan_push(cq->cq.chan, &cq->cq.ev_completion);
	}
	source_wake(&cq->cq.source);
	return true;
}

int soft_cq_poll(struct soft_cq *cq, struct gn_wc *wc, int n)
{
	int got = 0;

	for (; got < n && !soft_cq_empty(cq); got++)
		soft_cq_pop(cq, &wc[got]);
	return got;
}

void soft_cq_purge(struct soft_cq *cq, const struct gn_qp *qp)
{
	uint64_t kept = cq->tail;

	for (uint64_t at = cq->tail; at != cq->head; at++)
		if (cq->ring[at & cq->mask].qp != qp)
			cq->ring[kept++ & cq->mask] = cq->ring[at & cq->mask];
	cq->head = kept;
}
