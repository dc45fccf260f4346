/* SPDX-License-Identifier: MIT */
/*
 * Several calls under way are compared with a loop that moves the same bytes, and that the very
 * thread answers which answers the calls.
 */
#include "rpc_hall.h"

int hold_bare(void *arg, uint64_t block_ns, struct block *out)
{
	struct hold_bare *h = arg;
	struct gn_rpc_op op = {.method = METHOD_BARE};
	int rc, rc_end;

	pair_order(h->hold.pair, ORDER_ECHO);
	rc = hold_begin(&h->hold, &op, &h->hall->held, h->hold.pair->shared->order);
	if (rc)
		return rc;
	rc = bare_block(h->bare, block_ns, out);
	pair_order(h->hold.pair, ORDER_IDLE);
	rc_end = hold_end(&h->hold, &op);
	return rc ? rc : rc_end;
}
