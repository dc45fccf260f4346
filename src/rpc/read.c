/* SPDX-License-Identifier: MIT */
/*
 * Reads of what the server shows. A short one lands in a slot of the client's, from where it is
 * copied to the caller; a large one goes the way of large results.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/client.h"

#define READS_MIN  48u
#define READS_FULL "gn_rpc_read(): limits.reads are under way; gn_rpc_wait() for some"
#define STRIDE	   (GN_RPC_READ_SHORT + RPC_ALIGN) /* slots do not fight for lines of a cache */
#define CHAIN	   16u				   /* requests in a doorbell */

uint32_t rpc_reads_most(uint32_t slots)
{
	return slots > READS_MIN ? slots : READS_MIN;
}

static uint8_t *landing(const struct gn_rpc_client *c, uint32_t slot)
{
	return (uint8_t *)gn_mem_addr(c->look.area.mem) + (size_t)slot * STRIDE;
}

/* ---- beginning ---- */

/* One slot is for a read that begins while another's bytes are looked at where they landed. */
static int make_slots(struct gn_rpc_client *c)
{
	const uint32_t slots = c->limits.reads + 1;
	struct rpc_reads *look = &c->look;
	int rc = rpc_area_make(c->loop.fabric, c->link->pd, (uint64_t)slots * STRIDE, 0,
			       &look->area);

	if (rc)
		return rc;
	look->idle = gn_alloc(slots * sizeof(*look->idle), 0);
	look->read = gn_alloc(slots * sizeof(struct gn_rpc_read_op *), 0);
	if (!look->idle || !look->read) {
		rpc_reads_free(c);
		return -ENOMEM;
	}
	look->slots = slots;
	for (look->n_idle = 0; look->n_idle < slots; look->n_idle++)
		look->idle[look->n_idle] = slots - 1 - look->n_idle;
	return 0;
}

static int check(const struct gn_rpc_client *c, const struct gn_rpc_read_op *read, bool alone)
{
	const struct gn_rpc_view *view = &read->view;

	if (!read->len || read->len > view->bytes || read->offset > view->bytes - read->len)
		return gn_fail(-EINVAL, "gn_rpc_read(): %u bytes at %llu of a view of %llu",
			       read->len, (unsigned long long)read->offset,
			       (unsigned long long)view->bytes);
	if (read->len > GN_RPC_READ_SHORT && (!alone || !read->to))
		return gn_fail(-EINVAL,
			       "gn_rpc_read(): more than GN_RPC_READ_SHORT bytes go alone, and to "
			       "memory of the caller's");
	if (view->epoch == c->epoch)
		return 0;
	return gn_fail_text(-ESTALE, "gn_rpc_read(): the view is of an earlier connection");
}

static int begin_large(struct gn_rpc_client *c, struct gn_rpc_read_op *read)
{
	const struct rpc_far_read far = {
		.is_read = true,
		.read = read,
		.from = {.offset = read->offset, .key = read->view.key, .len = read->len},
	};

	if (c->look.n - c->look.n_short >= c->limits.reads)
		return gn_fail_text(-EAGAIN, READS_FULL);
	c->look.n++; /* or it would not be there to be ended, should posting fail */
	if (rpc_far_begin(c, &far)) {
		c->count.reads++;
		return 0;
	}
	c->look.n--;
	return -ENOMEM;
}

/* Post what is late, as far as the queue has room. */
void rpc_read_late(struct gn_rpc_client *c)
{
	struct rpc_reads *look = &c->look;

	while (look->late && !c->dead) {
		const uint32_t key = gn_mr_lkey(look->area.mr);
		const struct gn_wr *bad = NULL;
		struct gn_sge sges[CHAIN];
		struct gn_wr wrs[CHAIN];
		unsigned made = 0;
		int rc;

		for (struct gn_rpc_read_op *r = look->late; r && made < CHAIN;
		     r = r->next, made++) {
			const struct gn_remote from = {.key = r->view.key};

			sges[made] = (struct gn_sge){landing(c, r->slot), r->len, key};
			gn_wr_rdma(&wrs[made], GN_OP_READ, rpc_id(RPC_ID_READ, r->slot),
				   &sges[made], &from, r->offset, GN_SIGNALED);
			if (made)
				wrs[made - 1].next = &wrs[made];
		}
		rc = gn_post_send(c->qp, wrs, &bad);
		for (unsigned i = 0; i < made && !(rc && &wrs[i] == bad); i++) {
			struct gn_rpc_read_op *r = look->late;

			look->late = r->next;
			r->next = NULL;
			c->posted++;
		}
		if (rc && rc != -EAGAIN)
			rpc_client_die(c);
		if (rc)
			return;
	}
}

static void begin(struct gn_rpc_client *c, struct gn_rpc_read_op *first)
{
	struct rpc_reads *look = &c->look;
	struct gn_rpc_read_op **end = &look->late;

	while (unlikely(*end))
		end = &(*end)->next;
	*end = first;
	for (struct gn_rpc_read_op *r = first; r; r = r->next) {
		r->slot = look->idle[--look->n_idle];
		look->read[r->slot] = r;
		look->n_short++;
		look->n++;
		c->count.reads++;
	}
	rpc_read_late(c);
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
		rc = check(c, r, !first->next);
	if (!rc && first->len > GN_RPC_READ_SHORT)
		return begin_large(c, first);
	if (!rc && unlikely(!c->look.slots))
		rc = make_slots(c);
	if (!rc && n > c->limits.reads - c->look.n_short)
		rc = gn_fail_text(-EAGAIN, READS_FULL);
	if (!rc)
		begin(c, first);
	return rc;
}

/* ---- end ---- */

void rpc_read_end(struct gn_rpc_client *c, struct gn_rpc_read_op *read, unsigned status)
{
	read->status = status;
	c->look.n--;
	c->ended++;
	if (read->done)
		read->done(read);
}

/* Its slot is free when done has returned: until then the bytes stay there. */
void rpc_read_done(struct gn_rpc_client *c, uint32_t slot)
{
	struct rpc_reads *look = &c->look;
	struct gn_rpc_read_op *read = look->read[slot];

	look->read[slot] = NULL;
	look->n_short--;
	read->data = landing(c, slot);
	if (read->to) {
		memcpy(read->to, read->data, read->len);
		gn_charge(GN_WORK_COPY, read->len);
	}
	rpc_read_end(c, read, GN_RPC_OK);
	look->idle[look->n_idle++] = slot;
}

void rpc_reads_end(struct gn_rpc_client *c, unsigned status)
{
	struct rpc_reads *look = &c->look;

	look->late = NULL;
	for (uint32_t i = 0; i < look->slots; i++) {
		struct gn_rpc_read_op *read = look->read[i];

		look->read[i] = NULL;
		if (read)
			rpc_read_end(c, read, status);
	}
	for (struct rpc_far_read *far = c->far_reads; far; far = far->next) {
		struct gn_rpc_read_op *read = far->read;

		far->read = NULL;
		if (read)
			rpc_read_end(c, read, status);
	}
}

void rpc_reads_free(struct gn_rpc_client *c)
{
	rpc_area_free(&c->look.area);
	gn_free(c->look.idle);
	gn_free(c->look.read);
	c->look = (struct rpc_reads){0};
}
