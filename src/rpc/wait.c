/* SPDX-License-Identifier: MIT */
/* Waiting for a client's calls. */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "base/source.h"
#include "rpc/client.h"

#define CLOCK_EVERY 8u	/* turns of a loop that fetches */
#define YIELD_EVERY 64u /* … for the server, where it shares our core */

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/* ---- what the loop asks for ---- */

/* Where the next result is written, if it is. */
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
		words->torn = true; /* or here since just now */
	else
		link_words_add(words, word, seen);
}

/* A fetch is under way, or has to wait for its request to complete: a completion comes. */
static bool fetch_completes(const struct gn_rpc_client *c)
{
	return (c->reads && c->slow_reads) || (c->unconfirmed && c->flags & GN_RPC_SIGNALED &&
					       !c->got[c->expected & c->mask].fails);
}

/* When the client asks to be notified, if nothing comes before; GN_FOREVER: it does not. */
static uint64_t notify_ns(const struct gn_rpc_client *c)
{
	if (c->flags & GN_RPC_EAGER || !rpc_calls_sent(c) || (c->n_fetch && fetch_completes(c)))
		return GN_FOREVER;
	return c->sent_ns + c->notify_after_ns;
}

/*
 * Nothing has come for a while: have the server say when something has, and sleep meanwhile. The
 * papers' clients look again and again.
 */
bool rpc_client_notified(struct link_loop *loop)
{
	struct gn_rpc_client *c = container_of(loop, struct gn_rpc_client, loop);
	const uint64_t at_ns = notify_ns(c), now_ns = gn_now_ns();

	return at_ns != GN_FOREVER && (c->notify || now_ns >= at_ns) && rpc_notify(c, now_ns);
}

/* ---- waiting ---- */

struct turns {
	unsigned n;
	bool waited;
};

/* Nothing has come: until something may have. */
static int rest(struct gn_rpc_client *c, uint64_t until_ns, struct turns *turns)
{
	const bool fetch = c->n_fetch && !fetch_completes(c);
	uint64_t now_ns, at_ns;

	if (fetch && !c->first_ns) {
		if (turns->n % YIELD_EVERY == YIELD_EVERY - 1)
			gn_yield();
		return 0;
	}
	now_ns = gn_now_ns();
	if (fetch)
		until_ns = earlier(until_ns, c->first_ns);
	if (c->n_reply || rpc_wants_slot(c))
		until_ns = earlier(until_ns, rpc_ask_ns(c) + 1);
	at_ns = notify_ns(c);
	if (!c->notify && at_ns > now_ns)
		until_ns = earlier(until_ns, at_ns);
	if (rpc_calls_sent(c))
		link_conn_set_probe_interval(&c->link->conn, LINK_PROBE_NS);
	turns->waited = true;
	return until_ns > now_ns ? link_loop_wait(&c->loop, until_ns, "the result of a call") : 0;
}

/*
 * After a poll that found nothing: a rest and another poll. How many calls have ended; -ETIMEDOUT,
 * -EINTR. The clock is not worth reading in each turn, unless the rest was a wait.
 */
static int turn(struct gn_rpc_client *c, uint64_t deadline_ns, struct turns *turns)
{
	bool clock;
	int rc;

	turns->waited = false;
	rc = rest(c, deadline_ns, turns);
	if (rc == -EINTR)
		return rc;
	clock = turns->waited || turns->n % CLOCK_EVERY == CLOCK_EVERY - 1;
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
		rc = gn_fail(-EDEADLK, "gn_rpc_poll(): not from within a done function");
	return rc ? rc : rpc_client_poll(c, true);
}

/* Is there an index and a slot for one more call? */
static bool has_room(const struct gn_rpc_client *c)
{
	return c->idle && !c->due && (c->entries || !rpc_slots_full(c));
}

/* Nothing that a caller waits for can come, unless a place for a call that was refused. */
static bool nothing_to_come(struct gn_rpc_client *c)
{
	if (c->dead)
		return true;
	if (likely(!c->starved))
		return c->ended == c->count.calls + c->count.reads;
	if (!has_room(c))
		return false;
	c->starved = false;
	return true;
}

int gn_rpc_wait(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	struct turns turns = {0};
	int rc = rpc_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_wait(): not from within a done function");
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rpc_flush(c); /* nobody adds to it meanwhile */
	rc = rpc_client_poll(c, false);
	while (!rc && !nothing_to_come(c))
		rc = turn(c, deadline_ns, &turns);
	return rc == -ETIMEDOUT ? gn_fail_text(rc, "gn_rpc_wait(): no call has ended") : rc;
}

/* Until one call has ended; a signal does not change that. */
static void finish(struct gn_rpc_client *c, const struct gn_rpc_op *op)
{
	struct turns turns = {0};

	rpc_flush(c);
	rpc_client_poll(c, false);
	while (op->client)
		turn(c, GN_FOREVER, &turns);
}

/* Until a call can be begun: 0, or -ENOTCONN, or -EAGAIN at the deadline, if there is one. */
static int wait_for_room(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	struct turns turns = {0};

	rpc_flush(c);
	while (!c->dead && !has_room(c))
		if (turn(c, deadline_given(deadline_ns), &turns) == -ETIMEDOUT)
			return gn_fail_text(-EAGAIN, "rpc: no call could be begun by the deadline");
	return c->dead ? gn_fail_text(-ENOTCONN, RPC_GONE) : 0;
}

/* Begin a call, when there is room for it. */
static int submit_waiting(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = rpc_submit(c, op);

	while (unlikely(rc == -EAGAIN)) {
		rc = wait_for_room(c, op->deadline_ns);
		if (rc)
			break;
		rc = rpc_submit(c, op);
	}
	return rc;
}

/* Once more after a server has gone, until the deadline. */
static int submit_again(struct gn_rpc_client *c, struct gn_rpc_op *op)
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
		rc = gn_fail(-EDEADLK, "gn_rpc_call(): not from within a done function");
	if (rc)
		return rc;
	rc = submit_again(client, &op);
	if (rc)
		return rc;
	finish(client, &op);
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
		rc = c->busy ? gn_fail(-EDEADLK,
				       "gn_rpc_call_all(): not from within a done function") :
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
		finish(c, &ops[i]);
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
