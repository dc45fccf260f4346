/* SPDX-License-Identifier: MIT */
/*
 * READs of memory that the server exposes. A short read lands in a slot of the client and is copied
 * to the caller; a large read takes the same path as a large result.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/client.h"

#define READS_MIN      48u
#define READS_FULL     "gn_rpc_read(): limits.reads are outstanding; call gn_rpc_wait()"
#define SLOT_STRIDE    (GN_RPC_READ_SHORT + RPC_ALIGN) /* slots share no cache line */
#define READS_PER_POST 16u			       /* work requests per doorbell */

uint32_t rpc_reads_max(uint32_t slots)
{
	return slots > READS_MIN ? slots : READS_MIN;
}

static uint8_t *read_landing_slot(const struct gn_rpc_client *c, uint32_t slot)
{
	return (uint8_t *)gn_mem_addr(c->view_reads.area.mem) + (size_t)slot * SLOT_STRIDE;
}

/* ---- start ---- */

/* One extra slot, for a read that starts while done looks at the bytes of the last one. */
static int read_make_slots(struct gn_rpc_client *c)
{
	const uint32_t slots = c->limits.reads + 1;
	struct rpc_reads *reads = &c->view_reads;
	int rc = rpc_area_make(c->loop.fabric, c->link->pd, (uint64_t)slots * SLOT_STRIDE, 0,
			       &reads->area);

	if (rc)
		return rc;
	reads->free = gn_alloc(slots * sizeof(*reads->free), 0);
	reads->read = gn_alloc(slots * sizeof(struct gn_rpc_read_op *), 0);
	if (!reads->free || !reads->read) {
		rpc_reads_free(c);
		return -ENOMEM;
	}
	reads->slots = slots;
	for (reads->n_free = 0; reads->n_free < slots; reads->n_free++)
		reads->free[reads->n_free] = slots - 1 - reads->n_free;
	return 0;
}

static int read_check(const struct gn_rpc_client *c, const struct gn_rpc_read_op *read, bool alone)
{
	const struct gn_rpc_view *view = &read->view;

	if (!read->len || read->len > view->bytes || read->offset > view->bytes - read->len)
		return gn_fail(-EINVAL, "gn_rpc_read(): %u bytes at %llu of a view of %llu",
			       read->len, (unsigned long long)read->offset,
			       (unsigned long long)view->bytes);
	if (read->len > GN_RPC_READ_SHORT && (!alone || !read->to))
		return gn_fail(-EINVAL, "gn_rpc_read(): more than GN_RPC_READ_SHORT bytes need a "
					"destination (to), and next must be NULL");
	if (view->epoch == c->epoch)
		return 0;
	return gn_fail_text(-ESTALE, "gn_rpc_read(): the view is of an earlier connection");
}

static int read_begin_large(struct gn_rpc_client *c, struct gn_rpc_read_op *read)
{
	const struct rpc_large_read large = {
		.is_read = true,
		.read = read,
		.from = {.offset = read->offset, .key = read->view.key, .len = read->len},
	};

	if (c->view_reads.n - c->view_reads.n_short >= c->limits.reads)
		return gn_fail_text(-EAGAIN, READS_FULL);
	c->view_reads.n++; /* counted first, so that it is ended should posting fail */
	if (rpc_large_read_begin(c, &large)) {
		c->count.reads++;
		return 0;
	}
	c->view_reads.n--;
	return -ENOMEM;
}

/* Posts pending reads as long as the send queue has space. */
void rpc_reads_post(struct gn_rpc_client *c)
{
	struct rpc_reads *reads = &c->view_reads;

	while (reads->unposted && !c->dead) {
		const uint32_t key = gn_mr_lkey(reads->area.mr);
		const struct gn_wr *bad = NULL;
		struct gn_sge sges[READS_PER_POST];
		struct gn_wr wrs[READS_PER_POST];
		unsigned made = 0;
		int rc;

		for (struct gn_rpc_read_op *r = reads->unposted; r && made < READS_PER_POST;
		     r = r->next, made++) {
			const struct gn_remote from = {.key = r->view.key};

			sges[made] = (struct gn_sge){read_landing_slot(c, r->slot), r->len, key};
			gn_wr_rdma(&wrs[made], GN_OP_READ, rpc_id(RPC_ID_READ, r->slot),
				   &sges[made], &from, r->offset, GN_SIGNALED);
			if (made)
				wrs[made - 1].next = &wrs[made];
		}
		rc = gn_post_send(c->qp, wrs, &bad);
		for (unsigned i = 0; i < made && !(rc && &wrs[i] == bad); i++) {
			struct gn_rpc_read_op *r = reads->unposted;

			reads->unposted = r->next;
			r->next = NULL;
			c->posted++;
		}
		if (rc && rc != -EAGAIN)
			rpc_client_disconnected(c);
		if (rc)
			return;
	}
}

static void read_begin(struct gn_rpc_client *c, struct gn_rpc_read_op *first)
{
	struct rpc_reads *reads = &c->view_reads;
	struct gn_rpc_read_op **end = &reads->unposted;

	while (unlikely(*end))
		end = &(*end)->next;
	*end = first;
	for (struct gn_rpc_read_op *r = first; r; r = r->next) {
		r->slot = reads->free[--reads->n_free];
		reads->read[r->slot] = r;
		reads->n_short++;
		reads->n++;
		c->count.reads++;
	}
	rpc_reads_post(c);
}

int gn_rpc_read(struct gn_rpc_client *c, struct gn_rpc_read_op *first)
{
	uint32_t n = 0;
	int rc = rpc_client_check(c);

	if (!rc && !first)
		rc = gn_fail(-EINVAL, "gn_rpc_read(): read is NULL");
	if (!rc && c->dead)
		rc = gn_fail_text(-ENOTCONN, RPC_GONE);
	for (const struct gn_rpc_read_op *r = first; r && !rc; r = r->next, n++)
		rc = read_check(c, r, !first->next);
	if (!rc && first->len > GN_RPC_READ_SHORT)
		return read_begin_large(c, first);
	if (!rc && unlikely(!c->view_reads.slots))
		rc = read_make_slots(c);
	if (!rc && n > c->limits.reads - c->view_reads.n_short)
		rc = gn_fail_text(-EAGAIN, READS_FULL);
	if (!rc)
		read_begin(c, first);
	return rc;
}

/* ---- completion ---- */

void rpc_read_end(struct gn_rpc_client *c, struct gn_rpc_read_op *read, unsigned status)
{
	read->status = status;
	c->view_reads.n--;
	c->ended++;
	if (read->done)
		read->done(read);
}

/* The slot is freed after done has returned: until then the bytes stay valid. */
void rpc_read_done(struct gn_rpc_client *c, uint32_t slot)
{
	struct rpc_reads *reads = &c->view_reads;
	struct gn_rpc_read_op *read = reads->read[slot];

	reads->read[slot] = NULL;
	reads->n_short--;
	read->data = read_landing_slot(c, slot);
	if (read->to) {
		memcpy(read->to, read->data, read->len);
		gn_charge(GN_WORK_COPY, read->len);
	}
	rpc_read_end(c, read, GN_RPC_OK);
	reads->free[reads->n_free++] = slot;
}

void rpc_reads_end(struct gn_rpc_client *c, unsigned status)
{
	struct rpc_reads *reads = &c->view_reads;

	reads->unposted = NULL;
	for (uint32_t i = 0; i < reads->slots; i++) {
		struct gn_rpc_read_op *read = reads->read[i];

		reads->read[i] = NULL;
		if (read)
			rpc_read_end(c, read, status);
	}
	for (struct rpc_large_read *large = c->large_reads; large; large = large->next) {
		struct gn_rpc_read_op *read = large->read;

		large->read = NULL;
		if (read)
			rpc_read_end(c, read, status);
	}
}

void rpc_reads_free(struct gn_rpc_client *c)
{
	rpc_area_free(&c->view_reads.area);
	gn_free(c->view_reads.free);
	gn_free(c->view_reads.read);
	c->view_reads = (struct rpc_reads){0};
}
