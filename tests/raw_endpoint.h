/* SPDX-License-Identifier: MIT */
/*
 * A qp with all that it needs: context, channel, completion queue, protection domain and registered
 * memory. For peers that are written against the wire instead of the library's client.
 */
#ifndef GN_TESTS_RAW_ENDPOINT_H
#define GN_TESTS_RAW_ENDPOINT_H

#include "gannet/fabric.h"

struct raw_endpoint {
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
};

struct raw_endpoint_opts {
	size_t bytes;	 /* of the memory */
	unsigned remote; /* GN_REMOTE_…: access to the memory by others */
	uint32_t cq_depth;
	bool notify; /* completions are reported to the channel, too */
};

/*
 * Fills in qp->send_cq, recv_cq and chan, and creates a context unless there is one. 0 or -errno; call
 * raw_endpoint_end() in both cases.
 */
static inline int raw_endpoint_make(struct raw_endpoint *e, struct gn_fabric *fabric,
				    const struct raw_endpoint_opts *opts, struct gn_qp_opts *qp)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = opts->cq_depth};
	int rc = e->ctx ? 0 : gn_ctx_create(fabric, &e->ctx);

	if (!rc)
		rc = gn_chan_create(e->ctx, &e->chan);
	cq.chan = opts->notify ? e->chan : NULL;
	if (!rc)
		rc = gn_cq_create(e->ctx, &cq, &e->cq);
	if (!rc)
		rc = gn_pd_create(e->ctx, &e->pd);
	if (!rc)
		rc = gn_mem_alloc(fabric, opts->bytes, opts->remote, &e->mem);
	if (!rc)
		rc = gn_mr_register(e->pd, e->mem, 0, opts->bytes, GN_LOCAL_WRITE | opts->remote,
				    &e->mr);
	qp->send_cq = qp->recv_cq = e->cq;
	qp->chan = e->chan;
	return rc ? rc : gn_qp_create(e->pd, qp, &e->qp);
}

/* Destroys all but the context, which another endpoint may be made in. */
static inline void raw_endpoint_reset(struct raw_endpoint *e)
{
	gn_qp_destroy(e->qp);
	gn_mr_deregister(e->mr);
	gn_mem_free(e->mem);
	gn_pd_destroy(e->pd);
	gn_cq_destroy(e->cq);
	gn_chan_destroy(e->chan);
	*e = (struct raw_endpoint){.ctx = e->ctx};
}

static inline void raw_endpoint_end(struct raw_endpoint *e)
{
	raw_endpoint_reset(e);
	gn_ctx_destroy(e->ctx);
	e->ctx = NULL;
}

#endif
