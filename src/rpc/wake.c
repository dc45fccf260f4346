/* SPDX-License-Identifier: MIT */
/*
 * What a client sends to its server besides requests: acks, wake-ups and requests for notification.
 */
#include "base/bits.h"
#include "rpc/client.h"

#define PROBE_MIN_NS 20000u /* added to park_us before the first probe for a reply */

void rpc_send_ack(struct gn_rpc_client *c)
{
	uint64_t word = rpc_seq(c->epoch, c->consumed);
	const struct gn_sge sge = {&word, sizeof(word), 0};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;
	int rc;

	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_OTHER, 0), &sge, &to,
		   rpc_ack_at(c->request_stride, c->limits.slots), GN_INLINE | GN_SIGNALED);
	rc = gn_post_one(c->qp, &wr);
	if (rc >= 0) {
		c->posted += !rc;
		c->acked = c->consumed;
		c->ack_due = false;
	}
}

static bool wake_post(struct gn_rpc_client *c)
{
	struct gn_wr wr;

	gn_wr_init(&wr, GN_OP_WRITE_IMM, rpc_id(RPC_ID_OTHER, 0), NULL, 0,
		   GN_SIGNALED | GN_SOLICITED);
	if (gn_post_send(c->qp, &wr, NULL))
		return false;
	c->posted++;
	c->wakes_sent++;
	c->count.wakes++;
	return true;
}

/* At most once per result: the server has a limited number of receives. */
bool rpc_wake(struct gn_rpc_client *c)
{
	return c->wakes_sent || wake_post(c);
}

/*
 * The server may have parked the client again since the last wake-up, and the client may not poll.
 */
void rpc_wake_again(struct gn_rpc_client *c)
{
	if (c->wakes_sent < RPC_WAKES_MAX)
		wake_post(c);
}

/* ---- notification ---- */

int rpc_notify_recv(struct gn_rpc_client *c)
{
	const struct gn_recv_wr wr = {.id = rpc_id(RPC_ID_NOTIFY, 0)};

	return gn_post_recv(c->qp, &wr, NULL);
}

/* Until the notification arrives, only rpc_client_check_liveness() reads results. */
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
	c->posted += 2; /* this WRITE and the notification */
	c->notify = true;
	c->notify_ns = now_ns;
	if (c->fetch_at_ns)
		c->fetch_at_ns = GN_FOREVER;
	c->count.notifies++;
	return true;
}

/*
 * Very short sleeps are not worth a notification: with many clients they cost more than they save.
 */
void rpc_notified(struct gn_rpc_client *c)
{
	const uint64_t slept_ns = gn_now_ns() - c->notify_ns;

	/* Unsolicited: a correct server never sends this, and c->posted does not count it. */
	if (!c->notify) {
		rpc_client_disconnected(c);
		return;
	}
	c->notify = false;
	c->fetch_at_ns = 0;
	if (slept_ns < 2 * c->notify_after_ns)
		c->notify_after_ns *= 2;
	else
		c->notify_after_ns /= 2;
	if (c->notify_after_ns < RPC_NOTIFY_NS)
		c->notify_after_ns = RPC_NOTIFY_NS;
	if (c->notify_after_ns > RPC_NOTIFY_MAX_NS)
		c->notify_after_ns = RPC_NOTIFY_MAX_NS;
	if (rpc_notify_recv(c))
		rpc_client_disconnected(c);
}

void rpc_handle_parked(struct gn_rpc_client *c, uint32_t parked)
{
	if (parked == c->woken_park)
		return;
	c->wakes_sent = 0;
	if (rpc_wake(c))
		c->woken_park = parked;
}

/*
 * In reply mode nothing is posted while a client waits. A READ detects a dead server and a parked
 * client.
 */
void rpc_probe_server(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->probed_ns = now_ns;
	c->count.probes++;
	rpc_read_result(c);
}

bool rpc_waits_for_slot(const struct gn_rpc_client *c)
{
	return unlikely(c->blocked) && rpc_slots_full(c);
}

/*
 * The server may park the client just before a request becomes visible, after the READ that found
 * it unparked. So probe repeatedly, at growing intervals.
 */
uint64_t rpc_probe_due_ns(const struct gn_rpc_client *c)
{
	const uint64_t last_ns = c->probed_ns > c->sent_ns ? c->probed_ns : c->sent_ns;
	const uint64_t least_ns = rpc_waits_for_slot(c) ? PROBE_MIN_NS :
							  c->park_us * 1000ull + PROBE_MIN_NS;
	uint64_t wait_ns = last_ns - c->sent_ns;

	if (wait_ns < least_ns)
		wait_ns = least_ns;
	return last_ns + (wait_ns < LINK_PROBE_NS ? wait_ns : LINK_PROBE_NS);
}
