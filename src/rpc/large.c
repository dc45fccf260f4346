/* SPDX-License-Identifier: MIT */
/*
 * Large messages of a client. A large request is copied to exported memory, from which the server
 * READs it; the caller's buffer is not used afterwards. A large result is READ in pieces into a
 * bounce buffer, and each piece is copied to the caller while the call is outstanding.
 */
#include <errno.h>
#include <string.h>

#include "rpc/client.h"

#define PIECE_MAX_BYTES	 (256u << 10)
#define PIECES_IN_FLIGHT 2u /* READs of one result */

/* ---- requests ---- */

int rpc_large_export(struct gn_rpc_client *c, struct rpc_call *call, const void *data, uint32_t len,
		     struct rpc_large_ref *out)
{
	struct gn_remote remote;
	int rc = 0;

	if (c->spare.size >= len) {
		call->request = c->spare;
		c->spare = (struct rpc_area){0};
	} else {
		rc = rpc_area_make(c->loop.fabric, c->link->pd, len, GN_REMOTE_READ,
				   &call->request);
	}
	if (rc)
		return rc;
	gn_mr_remote(call->request.mr, &remote);
	memcpy(gn_mem_addr(call->request.mem), data, len);
	gn_charge(GN_WORK_COPY, len);
	*out = (struct rpc_large_ref){.offset = remote.offset, .key = remote.key, .len = len};
	c->n_exported++;
	c->count.large++;
	return 0;
}

/* Keep the largest buffer for the next large request. */
void rpc_large_release(struct gn_rpc_client *c, struct rpc_call *call)
{
	if (call->request.size > c->spare.size) {
		rpc_area_retire(&c->retired, &c->spare);
		c->spare = call->request;
	} else {
		rpc_area_retire(&c->retired, &call->request);
	}
	call->request = (struct rpc_area){0};
	c->n_exported--;
}

/* ---- results and reads ---- */

/* Destination of the bytes; NULL if the call has completed early. */
static uint8_t *large_destination(const struct gn_rpc_client *c, const struct rpc_large_read *read)
{
	if (read->is_read)
		return read->read ? read->read->to : NULL;
	if (!c->calls[read->call].op)
		return NULL;
	return read->bytes ? read->bytes : c->calls[read->call].op->result;
}

static void large_read_free(struct rpc_large_read *read)
{
	gn_free(read->bytes);
	gn_free(read);
}

/*
 * The first of the queue is about to be read. Its memory is allocated now, not when the server
 * announced the result: so at most one result's memory is allocated. Without memory the call
 * completes here.
 */
static void large_alloc_result(struct gn_rpc_client *c, struct rpc_large_read *read)
{
	struct rpc_call *call = &c->calls[read->call];

	if (read->bytes || read->is_read || !call->op || !(call->op->flags & GN_RPC_IN_PLACE))
		return;
	read->bytes = gn_alloc(read->from.len, 0);
	if (!read->bytes)
		rpc_call_complete(c, call, GN_RPC_TOO_BIG, read->from.len);
}

/* Posts READs for the first of the queue. */
static void large_post_reads(struct gn_rpc_client *c)
{
	struct rpc_large_read *read = c->large_reads;
	const struct gn_remote from = {.key = read->from.key};

	large_alloc_result(c, read);
	while (large_destination(c, read) && !c->dead && read->requested < read->from.len &&
	       read->requested - read->done < c->piece * PIECES_IN_FLIGHT) {
		const uint32_t left = read->from.len - read->requested;
		const uint32_t bytes = left < c->piece ? left : c->piece;
		const struct gn_sge sge = {(uint8_t *)gn_mem_addr(c->bounce.mem) +
						   read->requested / c->piece % PIECES_IN_FLIGHT *
							   PIECE_MAX_BYTES,
					   bytes, gn_mr_lkey(c->bounce.mr)};
		struct gn_wr wr;
		int rc;

		gn_wr_rdma(&wr, GN_OP_READ, rpc_id(RPC_ID_LARGE, bytes), &sge, &from,
			   read->from.offset + read->requested, GN_SIGNALED);
		rc = gn_post_send(c->qp, &wr, NULL);
		if (rc == -EAGAIN)
			return; /* retried when the send queue has space */
		if (rc)
			rpc_client_disconnected(c);
		if (rc)
			return;
		read->requested += bytes;
		c->posted++;
	}
}

/* The first of the queue is complete, or its call has completed early. */
static void large_end_first(struct gn_rpc_client *c)
{
	struct rpc_large_read *read = c->large_reads;

	c->large_reads = read->next;
	if (!c->large_reads)
		c->large_reads_end = &c->large_reads;
	if (read->is_read) {
		if (read->read)
			rpc_read_end(c, read->read, GN_RPC_OK);
	} else {
		c->rslots[read->number & c->mask].n_large--;
		if (c->calls[read->call].op)
			c->calls[read->call].op->data = read->bytes;
		rpc_call_complete(c, &c->calls[read->call], read->status, read->from.len);
		rpc_call_release(c, &c->calls[read->call]);
		rpc_note_all_taken(c);
		rpc_advance_consumed(c);
	}
	large_read_free(read);
}

/* Reads of calls that completed early are not started. */
void rpc_large_poll(struct gn_rpc_client *c)
{
	while (c->large_reads && !c->dead) {
		struct rpc_large_read *read = c->large_reads;

		large_post_reads(c);
		if (c->dead || read->requested > read->done ||
		    (large_destination(c, read) && read->done < read->from.len))
			return;
		large_end_first(c);
	}
}

bool rpc_large_read_begin(struct gn_rpc_client *c, const struct rpc_large_read *what)
{
	struct rpc_large_read *read = gn_alloc(sizeof(*read), 0);

	if (!read)
		return false;
	*read = *what;
	if (!c->bounce.mem &&
	    rpc_area_make(c->loop.fabric, c->link->pd, (uint64_t)PIECE_MAX_BYTES * PIECES_IN_FLIGHT,
			  0, &c->bounce)) {
		large_read_free(read);
		return false;
	}
	*c->large_reads_end = read;
	c->large_reads_end = &read->next;
	c->count.large += !read->is_read;
	if (c->large_reads == read)
		large_post_reads(c);
	return true;
}

void rpc_large_piece_done(struct gn_rpc_client *c, uint32_t bytes)
{
	struct rpc_large_read *read = c->large_reads;
	uint8_t *to = large_destination(c, read);

	if (to) {
		memcpy(to + read->done,
		       (uint8_t *)gn_mem_addr(c->bounce.mem) +
			       read->done / c->piece % PIECES_IN_FLIGHT * PIECE_MAX_BYTES,
		       bytes);
		gn_charge(GN_WORK_COPY, bytes);
	}
	read->done += bytes;
	rpc_large_poll(c);
}

void rpc_large_free(struct gn_rpc_client *c)
{
	while (c->large_reads) {
		struct rpc_large_read *read = c->large_reads;

		c->large_reads = read->next;
		large_read_free(read);
	}
	c->large_reads_end = &c->large_reads;
}
