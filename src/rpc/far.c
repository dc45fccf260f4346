/* SPDX-License-Identifier: MIT */
/*
 * Large messages of a client. A request is copied to memory that the server may read: the caller's
 * own is left alone from then on. A result is read in pieces, into memory of the client's, and each
 * is copied to the caller, as long as it waits.
 */
#include <errno.h>
#include <string.h>

#include "rpc/client.h"

#define PIECE  (256u << 10)
#define PIECES 2u /* read at once */

/* ---- requests ---- */

int rpc_far_lend(struct gn_rpc_client *c, struct rpc_call *call, const void *data, uint32_t len,
		 struct rpc_far *out)
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
	*out = (struct rpc_far){.offset = remote.offset, .key = remote.key, .len = len};
	c->lent++;
	c->count.large++;
	return 0;
}

/* The largest that there was is kept: the next large request saves making it. */
void rpc_far_return(struct gn_rpc_client *c, struct rpc_call *call)
{
	if (call->request.size > c->spare.size) {
		rpc_area_retire(&c->retired, &c->spare);
		c->spare = call->request;
	} else {
		rpc_area_retire(&c->retired, &call->request);
	}
	call->request = (struct rpc_area){0};
	c->lent--;
}

/* ---- results, and reads ---- */

/* Where its bytes go; NULL: nobody waits for them any more. */
static uint8_t *wanted_at(const struct gn_rpc_client *c, const struct rpc_far_read *read)
{
	if (read->is_read)
		return read->read ? read->read->to : NULL;
	if (!c->calls[read->call].op)
		return NULL;
	return read->bytes ? read->bytes : c->calls[read->call].op->result;
}

static void free_read(struct rpc_far_read *read)
{
	gn_free(read->bytes);
	gn_free(read);
}

/*
 * The first in the queue is about to be read. Its memory is allocated now and not when its server
 * announced it, so that there is never more than one result's; without memory the call ends here.
 */
static void make_bytes(struct gn_rpc_client *c, struct rpc_far_read *read)
{
	struct rpc_call *call = &c->calls[read->call];

	if (read->bytes || read->is_read || !call->op || !(call->op->flags & GN_RPC_IN_PLACE))
		return;
	read->bytes = gn_alloc(read->from.len, 0);
	if (!read->bytes)
		rpc_end(c, call, GN_RPC_TOO_BIG, read->from.len);
}

/* More of the first in the queue. */
static void ask_more(struct gn_rpc_client *c)
{
	struct rpc_far_read *read = c->far_reads;
	const struct gn_remote from = {.key = read->from.key};

	make_bytes(c, read);
	while (wanted_at(c, read) && !c->dead && read->asked < read->from.len &&
	       read->asked - read->done < c->piece * PIECES) {
		const uint32_t left = read->from.len - read->asked;
		const uint32_t bytes = left < c->piece ? left : c->piece;
		const struct gn_sge sge = {(uint8_t *)gn_mem_addr(c->bounce.mem) +
						   read->asked / c->piece % PIECES * PIECE,
					   bytes, gn_mr_lkey(c->bounce.mr)};
		struct gn_wr wr;
		int rc;

		gn_wr_rdma(&wr, GN_OP_READ, rpc_id(RPC_ID_FAR, bytes), &sge, &from,
			   read->from.offset + read->asked, GN_SIGNALED);
		rc = gn_post_send(c->qp, &wr, NULL);
		if (rc == -EAGAIN)
			return; /* when the queue has room again */
		if (rc)
			rpc_client_die(c);
		if (rc)
			return;
		read->asked += bytes;
		c->posted++;
	}
}

/* All of the first has come, or nobody waits for it any more. */
static void end_first(struct gn_rpc_client *c)
{
	struct rpc_far_read *read = c->far_reads;

	c->far_reads = read->next;
	if (!c->far_reads)
		c->far_end = &c->far_reads;
	if (read->is_read) {
		if (read->read)
			rpc_read_end(c, read->read, GN_RPC_OK);
	} else {
		c->got[read->number & c->mask].far--;
		if (c->calls[read->call].op)
			c->calls[read->call].op->data = read->bytes;
		rpc_end(c, &c->calls[read->call], read->status, read->from.len);
		rpc_call_over(c, &c->calls[read->call]);
		rpc_note_all_taken(c);
		rpc_move_spent(c);
	}
	free_read(read);
}

/* Those that nobody waits for are not begun. */
void rpc_far_poll(struct gn_rpc_client *c)
{
	while (c->far_reads && !c->dead) {
		struct rpc_far_read *read = c->far_reads;

		ask_more(c);
		if (c->dead || read->asked > read->done ||
		    (wanted_at(c, read) && read->done < read->from.len))
			return;
		end_first(c);
	}
}

bool rpc_far_begin(struct gn_rpc_client *c, const struct rpc_far_read *what)
{
	struct rpc_far_read *read = gn_alloc(sizeof(*read), 0);

	if (!read)
		return false;
	*read = *what;
	if (!c->bounce.mem &&
	    rpc_area_make(c->loop.fabric, c->link->pd, (uint64_t)PIECE * PIECES, 0, &c->bounce)) {
		free_read(read);
		return false;
	}
	*c->far_end = read;
	c->far_end = &read->next;
	c->count.large += !read->is_read;
	if (c->far_reads == read)
		ask_more(c);
	return true;
}

void rpc_far_done(struct gn_rpc_client *c, uint32_t bytes)
{
	struct rpc_far_read *read = c->far_reads;
	uint8_t *to = wanted_at(c, read);

	if (to) {
		memcpy(to + read->done,
		       (uint8_t *)gn_mem_addr(c->bounce.mem) +
			       read->done / c->piece % PIECES * PIECE,
		       bytes);
		gn_charge(GN_WORK_COPY, bytes);
	}
	read->done += bytes;
	rpc_far_poll(c);
}

void rpc_far_free(struct gn_rpc_client *c)
{
	while (c->far_reads) {
		struct rpc_far_read *read = c->far_reads;

		c->far_reads = read->next;
		free_read(read);
	}
	c->far_end = &c->far_reads;
}
