/* SPDX-License-Identifier: MIT */
/* The endpoint of a raw RPC client: memory that the server may read, and memory for its replies. */
#ifndef GN_TESTS_HOSTILE_RPC_ENDPOINT_H
#define GN_TESTS_HOSTILE_RPC_ENDPOINT_H

#include "../raw_endpoint.h"

struct rpc_endpoint {
	struct raw_endpoint raw;
	struct gn_mem *reply;
	struct gn_mr *reply_mr;
};

/* 0 or -errno; call rpc_endpoint_reset() in both cases. bytes: of each memory. */
static inline int rpc_endpoint_make(struct rpc_endpoint *e, struct gn_fabric *fabric, size_t bytes,
				    uint32_t sends, uint32_t cq_depth)
{
	const struct raw_endpoint_opts opts = {
		.bytes = bytes, .remote = GN_REMOTE_READ, .cq_depth = cq_depth, .notify = true};
	struct gn_qp_opts qp = {
		.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = sends, .max_inline = 64};
	int rc = raw_endpoint_make(&e->raw, fabric, &opts, &qp);

	if (!rc)
		rc = gn_mem_alloc(fabric, bytes, GN_REMOTE_WRITE, &e->reply);
	if (!rc)
		rc = gn_mr_register(e->raw.pd, e->reply, 0, bytes, GN_LOCAL_WRITE | GN_REMOTE_WRITE,
				    &e->reply_mr);
	return rc;
}

/* Destroys all but the context, which another endpoint may be made in. */
static inline void rpc_endpoint_reset(struct rpc_endpoint *e)
{
	gn_qp_destroy(e->raw.qp);
	e->raw.qp = NULL;
	gn_mr_deregister(e->reply_mr);
	gn_mem_free(e->reply);
	raw_endpoint_reset(&e->raw);
	*e = (struct rpc_endpoint){.raw = e->raw};
}

#endif
