/* SPDX-License-Identifier: MIT */
/*
 * A limit next to calls: the server thread that answers them is held by a call, and answers
 * something bare meanwhile. One call at a time is compared with one cache line, and several with a
 * loop that moves the same bytes.
 */
#include <errno.h>

#include "rpc_hall.h"

#define END_US 30000000u

/* The call that holds the thread is on its way, until the word says so. */
static int begin(struct hold *h, struct gn_rpc_op *op, const uint64_t *word, uint64_t held)
{
	struct gn_rpc_client *rpc = caller_rpc(h->caller);
	int rc = caller_rest(h->caller);

	if (!rc)
		rc = gn_rpc_submit(rpc, op);
	if (!rc)
		rc = gn_rpc_flush(rpc);
	/* Pairs with the release of who is held. */
	while (!rc && __atomic_load_n(word, __ATOMIC_ACQUIRE) != held && op->client &&
	       !bench_stopped())
		gn_rpc_poll(rpc);
	return rc;
}

static int end(struct hold *h, struct gn_rpc_op *op)
{
	struct gn_rpc_client *rpc = caller_rpc(h->caller);

	while (op->client && !bench_stopped() && pair_peer_lives(h->pair))
		gn_rpc_wait(rpc, gn_deadline_us(END_US));
	if (op->client)
		gn_rpc_cancel(op);
	if (op->status != GN_RPC_OK)
		return bench_stopped() ? -EINTR : -EIO;
	return 0;
}

int hold_line(void *arg, uint64_t block_ns, struct block *out)
{
	struct hold *h = arg;
	struct shared *shared = h->pair->shared;
	struct gn_rpc_op op = {.method = METHOD_CACHELINE};
	const uint64_t ping = shared->pong + 1;
	int rc, rc_end;

	/* One ping: not the end that the last block left there, and a sign that it is held. */
	__atomic_store_n(&shared->ping, ping, __ATOMIC_RELAXED);
	rc = begin(h, &op, &shared->pong, ping);
	if (rc)
		return rc;
	rc = cacheline_run(h->pair, block_ns, out);
	rc_end = end(h, &op);
	return rc ? rc : rc_end;
}

int hold_bare(void *arg, uint64_t block_ns, struct block *out)
{
	struct hold *h = arg;
	struct gn_rpc_op op = {.method = METHOD_BARE};
	int rc, rc_end;

	pair_order(h->pair, ORDER_ECHO);
	rc = begin(h, &op, &h->hall->held, h->pair->shared->order);
	if (rc)
		return rc;
	rc = bare_block(h->bare, block_ns, out);
	pair_order(h->pair, ORDER_IDLE);
	rc_end = end(h, &op);
	return rc ? rc : rc_end;
}
