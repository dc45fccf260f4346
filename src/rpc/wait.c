/* SPDX-License-Identifier: MIT */
/* Waiting for a client's calls. */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "base/source.h"
#include "rpc/client.h"

#define CLOCK_TURNS 8u	/* turns between two reads of the clock, in fetch mode */
#define YIELD_TURNS 64u /* turns between two yields to a server on the same core */

/* ---- callbacks of the loop ---- */

/* The address where the next reply's sequence will appear. */
void rpc_client_words(struct link_loop *loop, struct link_words *words)
{
	const struct gn_rpc_client *c = container_of(loop, struct gn_rpc_client, loop);
	const uint64_t *word;
	uint64_t seen;

	if (!c->n_reply)
		return;
	word = (const uint64_t *)(const void *)(c->replies +
						(c->expected & c->mask) * c->result_stride);
	seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	if (seen == rpc_seq(c->epoch, c->expected))
		words->torn = true; /* or complete since the last poll */
	else
		link_words_add(words, word, seen);
}

/*
 * True if a fetch will end with a completion: a READ is outstanding, or the request must complete
 * first.
 */
static bool fetch_completes(const struct gn_rpc_client *c)
{
	return (c->n_fetch_reads && c->slow_reads) ||
	       (c->unconfirmed && c->flags & GN_RPC_SIGNALED &&
		!c->rslots[c->expected & c->mask].fails);
}

/* When the client requests a notification if nothing comes before. GN_FOREVER: never. */
static uint64_t notify_due_ns(const struct gn_rpc_client *c)
{
	if (c->flags & GN_RPC_EAGER || !rpc_calls_sent(c) || (c->n_fetch && fetch_completes(c)))
		return GN_FOREVER;
	return c->sent_ns + c->notify_after_ns;
}

/*
 * No result for a while: request a notification from the server, and sleep. Clients with
 * GN_RPC_EAGER keep polling, as in the papers.
 */
bool rpc_client_notified(struct link_loop *loop)
{
	struct gn_rpc_client *c = container_of(loop, struct gn_rpc_client, loop);
	const uint64_t at_ns = notify_due_ns(c), now_ns = gn_now_ns();

	return at_ns != GN_FOREVER && (c->notify || now_ns >= at_ns) && rpc_notify(c, now_ns);
}

/* ---- waiting ---- */

struct wait_turns {
	unsigned n;
	bool waited;
};

/* Waits until something may have arrived. */
static int wait_pause(struct gn_rpc_client *c, uint64_t until_ns, struct wait_turns *turns)
{
	const bool fetch = c->n_fetch && !fetch_completes(c);
	uint64_t now_ns, at_ns;

	if (fetch && !c->fetch_at_ns) {
		if (turns->n % YIELD_TURNS == YIELD_TURNS - 1)
			gn_yield();
		return 0;
	}
	now_ns = gn_now_ns();
	if (fetch)
		until_ns = min_u64(until_ns, c->fetch_at_ns);
	if (c->n_reply || rpc_waits_for_slot(c))
		until_ns = min_u64(until_ns, rpc_probe_due_ns(c) + 1);
	at_ns = notify_due_ns(c);
	if (!c->notify && at_ns > now_ns)
		until_ns = min_u64(until_ns, at_ns);
	if (rpc_calls_sent(c))
		link_conn_set_probe_interval(&c->link->conn, LINK_PROBE_NS);
	turns->waited = true;
	return until_ns > now_ns ? link_loop_wait(&c->loop, until_ns, "the result of a call") : 0;
}

/*
 * After a poll that found nothing: pause and poll again. Returns the number of completed calls,
 * -ETIMEDOUT or -EINTR. The clock is not read in each turn, unless the pause was a wait.
 */
static int wait_turn(struct gn_rpc_client *c, uint64_t deadline_ns, struct wait_turns *turns)
{
	bool clock;
	int rc;

	turns->waited = false;
	rc = wait_pause(c, deadline_ns, turns);
	if (rc == -EINTR)
		return rc;
	clock = turns->waited || turns->n % CLOCK_TURNS == CLOCK_TURNS - 1;
	turns->n++;
	rc = rpc_client_poll(c, clock);
	if (!rc && clock && deadline_ns != GN_FOREVER && gn_now_ns() >= deadline_ns)
		rc = -ETIMEDOUT;
	return rc;
}

int gn_rpc_poll(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_poll(): not within a done function");
	return rc ? rc : rpc_client_poll(c, true);
}

/* Are an index and a slot free for one more call? */
static bool can_submit(const struct gn_rpc_client *c)
{
	return c->free_calls && !c->send_due && (c->entries || !rpc_slots_full(c));
}

/*
 * Nothing that the caller waits for is outstanding. After a failed submission: it can be repeated.
 */
static bool nothing_outstanding(struct gn_rpc_client *c)
{
	if (c->dead)
		return true;
	if (likely(!c->blocked))
		return c->ended == c->count.calls + c->count.reads;
	if (!can_submit(c))
		return false;
	c->blocked = false;
	return true;
}

int gn_rpc_wait(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	struct wait_turns turns = {0};
	int rc = rpc_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_wait(): not within a done function");
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rpc_flush(c); /* nobody adds to the batch while we wait */
	rc = rpc_client_poll(c, false);
	while (!rc && !nothing_outstanding(c))
		rc = wait_turn(c, deadline_ns, &turns);
	return rc == -ETIMEDOUT ? gn_fail_text(rc, "gn_rpc_wait(): no call has completed") : rc;
}

/* Waits until the call has completed; signals do not interrupt the wait. */
static void wait_for_op(struct gn_rpc_client *c, const struct gn_rpc_op *op)
{
	struct wait_turns turns = {0};

	rpc_flush(c);
	rpc_client_poll(c, false);
	while (op->client)
		wait_turn(c, GN_FOREVER, &turns);
}

/* 0 when a call can be submitted; -ENOTCONN; -EAGAIN at the deadline. */
static int wait_until_can_submit(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	struct wait_turns turns = {0};

	rpc_flush(c);
	while (!c->dead && !can_submit(c))
		if (wait_turn(c, deadline_given(deadline_ns), &turns) == -ETIMEDOUT)
			return gn_fail_text(-EAGAIN,
					    "rpc: no call could be started by the deadline");
	return c->dead ? gn_fail_text(-ENOTCONN, RPC_GONE) : 0;
}

/* Submits a call, after waiting for a free slot if necessary. */
static int submit_waiting(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = rpc_submit(c, op);

	while (unlikely(rc == -EAGAIN)) {
		rc = wait_until_can_submit(c, op->deadline_ns);
		if (rc)
			break;
		rc = rpc_submit(c, op);
	}
	return rc;
}

/* Submits a call; with GN_RPC_RECONNECT reconnects until the deadline. */
static int submit_reconnecting(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	const uint64_t deadline_ns = deadline_given(op->deadline_ns);
	int rc = submit_waiting(c, op);

	while (unlikely(rc == -ENOTCONN) && c->flags & GN_RPC_RECONNECT) {
		if (gn_now_ns() >= deadline_ns)
			break;
		if (!rpc_reconnect(c, deadline_ns)) {
			c->backoff.failed = 0;
			rc = submit_waiting(c, op);
		} else {
			link_backoff_failed(&c->backoff);
			link_backoff_wait(&c->backoff, deadline_ns);
		}
	}
	return rc;
}

int gn_rpc_call(struct gn_rpc_client *client, unsigned method, const void *request,
		uint32_t request_len, void *result, uint32_t result_room, uint32_t *result_len,
		uint64_t deadline_ns, unsigned *status)
{
	struct gn_rpc_op op = {
		.method = method,
		.request = request,
		.request_len = request_len,
		.result = result,
		.result_room = result_room,
		.deadline_ns = deadline_ns,
	};
	int rc = rpc_client_check(client);

	if (!rc && client->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_call(): not within a done function");
	if (rc)
		return rc;
	rc = submit_reconnecting(client, &op);
	if (rc)
		return rc;
	wait_for_op(client, &op);
	if (status)
		*status = op.status;
	if (result_len)
		*result_len = op.result_len;
	return 0;
}

int gn_rpc_call_all(struct gn_rpc_client *c, struct gn_rpc_op *ops, unsigned n)
{
	unsigned begun = 0;
	int rc = rpc_client_check(c);

	if (!rc && (c->busy || (n && !ops)))
		rc = c->busy ? gn_fail(-EDEADLK, "gn_rpc_call_all(): not within a done function") :
			       gn_fail(-EINVAL, "gn_rpc_call_all(): ops is NULL");
	if (rc)
		return rc;
	while (begun < n && !rc) {
		rc = submit_waiting(c, &ops[begun]);
		begun += !rc;
	}
	for (unsigned i = begun; i < n; i++)
		ops[i].status = GN_RPC_CANCELED;
	for (unsigned i = 0; i < begun; i++)
		wait_for_op(c, &ops[i]);
	return rc;
}

int gn_rpc_client_limits(const struct gn_rpc_client *client, struct gn_rpc_limits *out)
{
	if (!client)
		return gn_fail(-EINVAL, "gn_rpc_client_limits(): client is NULL");
	return SIZED_WRITE(out, &client->limits, "gn_rpc_limits");
}

int gn_rpc_client_counters(const struct gn_rpc_client *client, struct gn_rpc_counters *out)
{
	if (!client)
		return gn_fail(-EINVAL, "gn_rpc_client_counters(): client is NULL");
	return SIZED_WRITE(out, &client->count, "gn_rpc_counters");
}
