/* SPDX-License-Identifier: MIT */
/* A client's beginning and end. */
#include <errno.h>
#include <string.h>

#include "rpc/client.h"

#define FETCH_DEFAULT  256u
#define TIMEOUT_US     2000000u
#define INLINE_WANTED  256u
#define SENDS_PER_SLOT 3u /* a request, a read and the read of the rest */

static int check_opts(const struct gn_rpc_client_opts *o)
{
	if (o->mode >= GN_RPC_MODES)
		return -EINVAL;
	if (o->slots > GN_RPC_SLOTS_MAX || o->max_request > GN_RPC_BYTES_MAX ||
	    o->max_result > GN_RPC_BYTES_MAX || o->fetch_bytes > GN_RPC_BYTES_MAX) {
		gn_log(GN_LOG_ERROR,
		       "rpc: slots %u, max_request %u, max_result %u, fetch_bytes %u: at most %u "
		       "slots and %u bytes",
		       o->slots, o->max_request, o->max_result, o->fetch_bytes, GN_RPC_SLOTS_MAX,
		       GN_RPC_BYTES_MAX);
		return -EINVAL;
	}
	return 0;
}

static void destroy(struct gn_rpc_client *c)
{
	gn_qp_destroy(c->qp);
	gn_mr_deregister(c->reply_mr);
	gn_mr_deregister(c->local_mr);
	gn_mem_free(c->reply_mem);
	gn_mem_free(c->local_mem);
	gn_pd_destroy(c->pd);
	gn_cq_destroy(c->cq);
	gn_chan_destroy(c->chan);
	gn_ctx_destroy(c->ctx);
	gn_free(c->slots);
	gn_free(c);
}

static int make_memory(struct gn_rpc_client *c, struct gn_fabric *fabric)
{
	const size_t requests = c->request_stride * c->n_slots;
	const size_t results = c->result_stride * c->n_slots;
	int rc = gn_mem_alloc(fabric, requests + results, 0, &c->local_mem);

	if (rc)
		return rc;
	rc = gn_mr_register(c->pd, c->local_mem, 0, requests + results, GN_LOCAL_WRITE,
			    &c->local_mr);
	if (rc)
		return rc;
	rc = gn_mem_alloc(fabric, results, GN_REMOTE_WRITE, &c->reply_mem);
	if (rc)
		return rc;
	rc = gn_mr_register(c->pd, c->reply_mem, 0, results, GN_LOCAL_WRITE | GN_REMOTE_WRITE,
			    &c->reply_mr);
	if (rc)
		return rc;
	c->requests = gn_mem_addr(c->local_mem);
	c->fetched = c->requests + requests;
	c->replies = gn_mem_addr(c->reply_mem);
	return 0;
}

static int make_endpoint(struct gn_rpc_client *c, struct gn_fabric *fabric)
{
	struct gn_attr attr;
	struct gn_qp_opts qp = {.type = GN_QP_RC, .max_recv_wr = 1};
	int rc = gn_fabric_query(fabric, &attr);

	if (rc)
		return rc;
	c->max_inline = attr.max_inline < INLINE_WANTED ? attr.max_inline : INLINE_WANTED;
	rc = gn_ctx_create(fabric, &c->ctx);
	if (rc)
		return rc;
	rc = gn_chan_create(c->ctx, &c->chan);
	if (rc)
		return rc;
	rc = gn_pd_create(c->ctx, &c->pd);
	if (rc)
		return rc;
	rc = gn_cq_create(
		c->ctx,
		&(struct gn_cq_opts){.depth = c->n_slots * SENDS_PER_SLOT + 1, .chan = c->chan},
		&c->cq);
	if (rc)
		return rc;
	qp.send_cq = qp.recv_cq = c->cq;
	qp.chan = c->chan;
	qp.max_send_wr = c->n_slots * SENDS_PER_SLOT;
	qp.max_inline = c->max_inline;
	return gn_qp_create(c->pd, &qp, &c->qp);
}

/* The server grants at most what was asked for, or it is none of ours. */
static int take_welcome(struct gn_rpc_client *c, const struct gn_event *event)
{
	struct rpc_welcome w;
	struct gn_qp_attr attr;
	int rc;

	memcpy(&w, event->private_data, sizeof(w));
	if (event->private_len < sizeof(w) || w.magic != RPC_MAGIC || w.version != RPC_VERSION ||
	    !w.slots || w.slots > c->n_slots || w.max_request > c->max_request ||
	    w.max_result > c->max_result) {
		gn_log(GN_LOG_ERROR, "rpc: who listens there is no RPC server of version %u",
		       RPC_VERSION);
		return -EPROTO;
	}
	rc = gn_qp_query(c->qp, &attr);
	if (rc)
		return rc;
	c->check_reply = !(attr.caps & GN_CAP_INORDER_WRITE);
	c->check_fetch = !(attr.caps & GN_CAP_READ_HEAD_FIRST);
	c->n_slots = w.slots;
	c->max_request = w.max_request;
	c->max_result = w.max_result;
	c->request_stride = rpc_stride(w.max_request);
	c->result_stride = rpc_stride(w.max_result);
	c->request_key = w.request_key;
	c->result_key = w.result_key;
	c->epoch = w.epoch;
	return 0;
}

static int establish(struct gn_rpc_client *c, const char *addr,
		     const struct gn_rpc_client_opts *opts)
{
	struct gn_remote reply;
	struct gn_event event;
	struct rpc_hello hello = {
		.magic = RPC_MAGIC,
		.version = RPC_VERSION,
		.bytes = sizeof(hello),
		.slots = c->n_slots,
		.max_request = c->max_request,
		.max_result = c->max_result,
		.thread = opts->thread - 1,
		.nonce = c->nonce,
	};
	const struct gn_conn_opts conn = {
		.private_data = &hello,
		.private_len = sizeof(hello),
		.timeout_us = opts->timeout_us > UINT32_MAX ? UINT32_MAX :
			      opts->timeout_us		    ? (uint32_t)opts->timeout_us :
							      TIMEOUT_US,
	};
	int rc = gn_mr_remote(c->reply_mr, &reply);

	if (rc)
		return rc;
	hello.reply_key = reply.key;
	rc = gn_connect_wait(c->qp, addr, &conn, &event);
	return rc ? rc : take_welcome(c, &event);
}

int gn_rpc_connect(struct gn_fabric *fabric, const char *addr,
		   const struct gn_rpc_client_opts *opts, struct gn_rpc_client **out)
{
	const struct gn_rpc_client_opts none = {0};
	struct gn_rpc_client *c;
	int rc;

	if (!opts)
		opts = &none;
	if (!fabric || !addr || !out)
		return -EINVAL;
	rc = check_opts(opts);
	if (rc)
		return rc;
	c = gn_alloc(sizeof(*c), 0);
	if (!c)
		return -ENOMEM;
	c->owner = gn_thread_id();
	c->mode = opts->mode == GN_RPC_REPLY ? GN_RPC_REPLY : GN_RPC_FETCH;
	c->n_slots = opts->slots ? opts->slots : GN_RPC_SLOTS_DEFAULT;
	c->max_request = opts->max_request ? opts->max_request : GN_RPC_BYTES_DEFAULT;
	c->max_result = opts->max_result ? opts->max_result : GN_RPC_BYTES_DEFAULT;
	c->fetch_bytes = opts->fetch_bytes ? opts->fetch_bytes : FETCH_DEFAULT;
	c->request_stride = rpc_stride(c->max_request);
	c->result_stride = rpc_stride(c->max_result);
	c->number = c->oldest = 1;
	c->nonce = gn_random();
	c->slots = gn_alloc(c->n_slots * sizeof(*c->slots), 0);
	rc = c->slots ? make_endpoint(c, fabric) : -ENOMEM;
	if (!rc)
		rc = make_memory(c, fabric);
	if (!rc)
		rc = establish(c, addr, opts);
	if (rc) {
		destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

int gn_rpc_close(struct gn_rpc_client *c)
{
	int rc;

	if (!c)
		return 0;
	rc = rpc_client_check(c);
	if (rc)
		return rc;
	c->dead = true; /* what done begins now would end in nothing */
	for (uint32_t i = 0; i < c->n_slots; i++)
		if (c->slots[i].op)
			rpc_end(c, &c->slots[i], GN_RPC_CANCELED, 0);
	gn_disconnect(c->qp);
	destroy(c);
	return 0;
}
