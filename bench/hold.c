/* SPDX-License-Identifier: MIT */
/*
 * A limit next to calls: the server thread that answers them is held by a call, and answers
 * something bare meanwhile.
 */
#include <errno.h>

#include "crew.h"

#define END_US 30000000u

int hold_begin(struct hold *h, struct gn_rpc_op *op, const uint64_t *word, uint64_t held)
{
	struct gn_rpc_client *rpc = h->rest(h->caller);
	int rc;

	if (!rpc)
		return -EIO;
	rc = gn_rpc_submit(rpc, op);
	if (!rc)
		rc = gn_rpc_flush(rpc);
	/* Pairs with the release of who is held. */
	while (!rc && __atomic_load_n(word, __ATOMIC_ACQUIRE) != held && op->client &&
	       !bench_stopped())
		gn_rpc_poll(rpc);
	return rc;
}

int hold_end(struct hold *h, struct gn_rpc_op *op)
{
	while (op->client && !bench_stopped() && pair_peer_lives(h->pair))
		gn_rpc_wait(op->client, gn_deadline_us(END_US));
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
	struct gn_rpc_op op = {.method = h->method};
	const uint64_t ping = shared->pong + 1;
	int rc, rc_end;

	/* One ping: not the end that the last block left there, and a sign that it is held. */
	__atomic_store_n(&shared->ping, ping, __ATOMIC_RELAXED);
	rc = hold_begin(h, &op, &shared->pong, ping);
	if (rc)
		return rc;
	rc = cacheline_run(h->pair, block_ns, out);
	rc_end = hold_end(h, &op);
	return rc ? rc : rc_end;
}

void hold_answer(struct gn_rpc_request *request, void *arg)
{
	const int rc = cacheline_answer(arg);

	gn_rpc_answer(request, rc ? GN_RPC_FAILED : GN_RPC_OK, NULL, 0);
}
