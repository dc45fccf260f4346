/* SPDX-License-Identifier: MIT */
/* What a client tells its server besides requests: to look at it, to wake it, what is free. */
#include "base/bits.h"
#include "rpc/client.h"

#define ASK_NS 20000u /* and the server's silence, until it is asked for a reply */

void rpc_tell_spent(struct gn_rpc_client *c)
{
	uint64_t word = rpc_seq(c->epoch, c->spent);
	const struct gn_sge sge = {&word, sizeof(word), 0};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;
	int rc;

	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_OTHER, 0), &sge, &to,
		   rpc_ack_at(c->request_stride, c->limits.slots), GN_INLINE | GN_SIGNALED);
	rc = gn_post_one(c->qp, &wr);
	if (rc >= 0) {
		c->posted += !rc;
		c->told = c->spent;
		c->tell = false;
	}
}

static bool post_wake(struct gn_rpc_client *c)
{
	struct gn_wr wr;

	gn_wr_init(&wr, GN_OP_WRITE_IMM, rpc_id(RPC_ID_OTHER, 0), NULL, 0,
		   GN_SIGNALED | GN_SOLICITED);
	if (gn_post_send(c->qp, &wr, NULL))
		return false;
	c->posted++;
	c->waking++;
	c->count.wakes++;
	return true;
}

/* Not more often than results come: the server has a few receives for it. */
bool rpc_wake(struct gn_rpc_client *c)
{
	return c->waking || post_wake(c);
}

/* The server may have stopped polling again since the last wake: its client may not poll either. */
void rpc_wake_again(struct gn_rpc_client *c)
{
	if (c->waking < RPC_WAKES_MAX)
		post_wake(c);
}

/* ---- asleep ---- */

int rpc_notify_recv(struct gn_rpc_client *c)
{
	const struct gn_recv_wr wr = {.id = rpc_id(RPC_ID_NOTIFY, 0)};

	return gn_post_recv(c->qp, &wr, NULL);
}

/* Until it has come, results are only read by rpc_client_looked(). */
bool rpc_notify(struct gn_rpc_client *c, uint64_t now_ns)
{
	struct gn_wr wr;

	if (c->notify)
		return true;
	gn_wr_init(&wr, GN_OP_WRITE_IMM, rpc_id(RPC_ID_OTHER, 0), NULL, 0,
		   GN_SIGNALED | GN_SOLICITED);
	wr.imm = c->expected;
	if (!wr.imm || gn_post_send(c->qp, &wr, NULL))
		return false;
	c->posted += 2; /* this, and the answer */
	c->notify = true;
	c->notify_ns = now_ns;
	if (c->first_ns)
		c->first_ns = GN_FOREVER;
	c->count.notifies++;
	return true;
}

/* Waits that are over at once are not worth it: with many clients they would be work for all. */
void rpc_notified(struct gn_rpc_client *c)
{
	const uint64_t slept_ns = gn_now_ns() - c->notify_ns;

	/* Not asked for: a server of ours sends none, and c->posted does not count it. */
	if (!c->notify) {
		rpc_client_die(c);
		return;
	}
	c->notify = false;
	c->first_ns = 0;
	if (slept_ns < 2 * c->notify_after_ns)
		c->notify_after_ns *= 2;
	else
		c->notify_after_ns /= 2;
	if (c->notify_after_ns < RPC_NOTIFY_NS)
		c->notify_after_ns = RPC_NOTIFY_NS;
	if (c->notify_after_ns > RPC_NOTIFY_MAX_NS)
		c->notify_after_ns = RPC_NOTIFY_MAX_NS;
	if (rpc_notify_recv(c))
		rpc_client_die(c);
}

void rpc_see_parked(struct gn_rpc_client *c, uint32_t parked)
{
	if (parked == c->woken)
		return;
	c->waking = 0;
	if (rpc_wake(c))
		c->woken = parked;
}

/*
 * In the mode reply nothing is posted while a result is waited for. A server that has vanished
 * without a word is found by a read, and so is one that does not look any more.
 */
void rpc_ask(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->asked_ns = now_ns;
	c->count.probes++;
	rpc_read_result(c);
}

bool rpc_wants_slot(const struct gn_rpc_client *c)
{
	return unlikely(c->starved) && rpc_slots_full(c);
}

/*
 * A request may become visible to a server that has put its client aside just then, when a read has
 * found that it had not. So it is looked at more than once: less and less often.
 */
uint64_t rpc_ask_ns(const struct gn_rpc_client *c)
{
	const uint64_t last_ns = c->asked_ns > c->sent_ns ? c->asked_ns : c->sent_ns;
	const uint64_t least_ns = rpc_wants_slot(c) ? ASK_NS : c->park_us * 1000ull + ASK_NS;
	uint64_t wait_ns = last_ns - c->sent_ns;

	if (wait_ns < least_ns)
		wait_ns = least_ns;
	return last_ns + (wait_ns < LINK_PROBE_NS ? wait_ns : LINK_PROBE_NS);
}
