/* SPDX-License-Identifier: MIT */
/* A limit next to calls: a call holds the server thread, which answers something bare meanwhile. */
#include <errno.h>

#include "procs.h"

#define END_US 30000000u

/* The call that holds the thread is on its way, until *word says that it has begun. */
static int hold_begin(struct hold *h, struct gn_rpc_op *op, const uint64_t *word, uint64_t held)
{
	struct load_client *c = h->procs->client;
	int rc = c->kind->rest(c);

	if (!rc)
		rc = gn_rpc_submit(h->rpc, op);
	if (!rc)
		rc = gn_rpc_flush(h->rpc);
	/* Pairs with the release of the thread that is held. */
	while (!rc && __atomic_load_n(word, __ATOMIC_ACQUIRE) != held && op->client &&
	       !bench_stopped())
		gn_rpc_poll(h->rpc);
	return rc;
}

static int hold_end(struct hold *h, struct gn_rpc_op *op)
{
	while (op->client && !bench_stopped() && pair_peer_lives(&h->procs->pair))
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
	struct shared *shared = h->procs->pair.shared;
	struct gn_rpc_op op = {.method = h->method};
	const uint64_t ping = shared->pong + 1;
	int rc, rc_end;

	/* One ping: not the end that the last block left there, and a sign that it is held. */
	__atomic_store_n(&shared->ping, ping, __ATOMIC_RELAXED);
	rc = hold_begin(h, &op, &shared->pong, ping);
	if (rc)
		return rc;
	rc = cacheline_run(&h->procs->pair, block_ns, out);
	rc_end = hold_end(h, &op);
	return rc ? rc : rc_end;
}

int hold_bare(void *arg, uint64_t block_ns, struct block *out)
{
	struct hold *h = arg;
	struct gn_rpc_op op = {.method = h->method};
	int rc, rc_end;

	pair_order(&h->procs->pair, ORDER_ECHO);
	rc = hold_begin(h, &op, h->held, h->procs->pair.shared->order);
	if (rc)
		return rc;
	rc = bare_block(h->bare, block_ns, out);
	pair_order(&h->procs->pair, ORDER_IDLE);
	rc_end = hold_end(h, &op);
	return rc ? rc : rc_end;
}

void hold_answer(struct gn_rpc_request *request, void *arg)
{
	const int rc = cacheline_answer(arg);

	gn_rpc_answer(request, rc ? GN_RPC_FAILED : GN_RPC_OK, NULL, 0);
}
