/* SPDX-License-Identifier: MIT */
/* Large results: memory that a client may read until it says that it has. */
#include <errno.h>
#include <string.h>

#include "base/counter.h"
#include "base/mutant.h"
#include "rpc/server.h"

/* The handler's own memory: the pages that the result lies in. */
static int lend_mem(struct rpc_conn *c, struct rpc_answer *a, struct rpc_lent *lent,
		    struct rpc_far *out)
{
	const size_t from = a->offset / GN_PAGE * GN_PAGE;
	struct gn_remote remote;
	int rc = gn_mr_register(c->pd, a->mem, from, a->offset + a->len - from, GN_REMOTE_READ,
				&lent->mr);

	if (rc)
		return rc;
	gn_mr_remote(lent->mr, &remote);
	*out = (struct rpc_far){
		.offset = remote.offset + a->offset - from, .key = remote.key, .len = a->len};
	lent->release = a->release;
	lent->arg = a->arg;
	a->release = NULL;
	return 0;
}

static int lend_copy(struct rpc_conn *c, struct rpc_answer *a, struct rpc_lent *lent,
		     struct rpc_far *out)
{
	struct gn_remote remote;
	int rc = 0;

	if (a->area.mem) { /* it was put together there */
		lent->area = a->area;
		a->area = (struct rpc_area){0};
	} else {
		rc = rpc_area_make(c->thread->server->fabric, c->pd, a->len, GN_REMOTE_READ,
				   &lent->area);
		if (rc)
			return rc;
		memcpy(gn_mem_addr(lent->area.mem), a->data, a->len);
		gn_charge(GN_WORK_COPY, a->len);
	}
	gn_mr_remote(lent->area.mr, &remote);
	*out = (struct rpc_far){.offset = remote.offset, .key = remote.key, .len = a->len};
	return 0;
}

/* False: not now, and the answer says so. */
bool rpc_lend(struct gn_rpc_request *r, struct rpc_far *out)
{
	struct rpc_conn *c = r->conn;
	struct rpc_answer *a = &r->answer;
	struct rpc_lent *lent = NULL;
	uint64_t bytes = a->charged; /* what was kept until now is lent from now on */
	int rc = -ENOMEM;

	if (!bytes && rpc_charge(c, a->len, true))
		bytes = a->len;
	a->charged = 0;
	if (bytes)
		lent = gn_alloc(sizeof(*lent), 0);
	/* Memory that was not made to be read by others is copied. */
	if (lent && a->mem)
		rc = lend_mem(c, a, lent, out);
	if (lent && rc)
		rc = lend_copy(c, a, lent, out);
	if (rc) {
		rpc_uncharge(c, bytes);
		gn_free(lent);
		a->status = GN_RPC_BUSY;
		return false;
	}
	lent->bytes = bytes;
	lent->number = c->placed + 1;
	lent->next = c->lent;
	c->lent = lent;
	c->n_lent++;
	rpc_conn_attend(c);
	counter_add(&c->thread->count.large, 1);
	return true;
}

void rpc_lent_return(struct rpc_conn *c, bool all)
{
	c->returning = false;
	for (struct rpc_lent **at = &c->lent; *at;) {
		struct rpc_lent *lent = *at;

		if (!all && (int32_t)(lent->number - c->acked) > 0 &&
		    !mutant("rpc-lent-early", 8)) {
			at = &lent->next;
			continue;
		}
		/* One of them is there. A peer that copies is not waited for. */
		if (gn_mr_deregister_try(lent->mr) || rpc_area_free_try(&lent->area)) {
			c->returning = true;
			at = &lent->next;
			continue;
		}
		*at = lent->next;
		c->n_lent--;
		rpc_uncharge(c, lent->bytes);
		if (lent->release)
			lent->release(lent->arg);
		gn_free(lent);
	}
	rpc_conn_attend(c);
}
