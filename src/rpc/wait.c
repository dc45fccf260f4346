/* SPDX-License-Identifier: MIT */
/* Waiting for a client's calls. */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "base/source.h"
#include "rpc/client.h"

#define EAGER_US     20u /* of waiting for a reply and nothing else */
#define CLOCK_EVERY  8u	 /* turns of a loop that fetches */
#define YIELD_EVERY  64u /* … for the server, where it shares our core */
#define RECONNECT_US 1000u
#define READ_US	     10000u /* then a read that has not completed is looked at again */

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/*
 * Nothing has come for a while: have the server say when something has, and sleep meanwhile. The
 * papers' clients look again and again.
 */
static bool may_sleep(struct gn_rpc_client *c, uint64_t now_ns)
{
	if (c->flags & GN_RPC_EAGER)
		return false;
	return (c->notify || now_ns >= c->sent_ns + c->notify_after_ns) && rpc_notify(c, now_ns);
}

static int sleep_until(struct gn_rpc_client *c, uint64_t until_ns)
{
	struct gn_wait_item items[2];

	items[0] = gn_wait_on(gn_cq_source(c->cq));
	items[1] = gn_wait_on(gn_chan_source(c->chan));
	c->polls = UINT32_MAX / 2; /* look at the channel next */
	return exec_wait(items, 2, until_ns, "the result of a call");
}

/*
 * Until the next result is written here, or something completes. To look at the channel costs a
 * system call, so it is left out at first.
 */
static int wait_for_reply(struct gn_rpc_client *c, uint64_t until_ns)
{
	const uint8_t *slot = c->replies + (c->expected & c->mask) * c->result_stride;
	const uint64_t *word = (const uint64_t *)(const void *)slot;
	const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	const bool torn = seen == rpc_seq(c->epoch, c->expected); /* or here since just now */
	uint64_t eager_ns;
	struct gn_wait_item items[3];
	unsigned n = 1;
	int rc;

	/* Mostly it has just come, all of it. */
	if (torn && !c->torn) {
		c->torn = true;
		return 0;
	}
	c->torn = torn;
	eager_ns = gn_deadline_us(torn ? RPC_TORN_NAP_US : EAGER_US);
	items[0] = gn_wait_on(gn_cq_source(c->cq));
	if (!torn)
		items[n++] = gn_wait_word(word, seen);
	rc = exec_wait(items, n, earlier(eager_ns, until_ns), "the result of a call");
	if (rc != -ETIMEDOUT || torn || until_ns <= eager_ns)
		return rc;
	if (may_sleep(c, gn_now_ns()))
		return sleep_until(c, earlier(until_ns, rpc_ask_ns(c)));
	items[n++] = gn_wait_on(gn_chan_source(c->chan));
	c->polls = UINT32_MAX / 2; /* look at it now */
	until_ns = earlier(until_ns, c->sent_ns + c->notify_after_ns);
	return exec_wait(items, n, earlier(until_ns, rpc_ask_ns(c)), "the result of a call");
}

/* Until the next result is worth a look. */
static int wait_to_fetch(struct gn_rpc_client *c, uint64_t until_ns)
{
	struct gn_wait_item item = gn_wait_on(gn_cq_source(c->cq));
	const uint64_t now_ns = gn_now_ns();

	if (c->first_ns <= now_ns)
		return 0;
	if (may_sleep(c, now_ns))
		return sleep_until(c, earlier(until_ns, c->first_ns));
	until_ns = earlier(until_ns, c->sent_ns + c->notify_after_ns);
	return exec_wait(&item, 1, earlier(until_ns, c->first_ns), "the time to fetch");
}

/* Nothing has come: until something may have. */
static int rest(struct gn_rpc_client *c, uint64_t deadline_ns, unsigned turn)
{
	uint64_t until_ns = earlier(deadline_ns, c->until_ns);
	struct gn_wait_item items[1];

	items[0] = gn_wait_on(gn_cq_source(c->cq));
	if (c->n_reply && !c->n_fetch)
		return wait_for_reply(c, until_ns);
	if (!c->n_fetch && !c->n_reply)
		return exec_wait(items, 1, until_ns, "a read");
	if (c->reads && c->slow_reads)
		return exec_wait(items, 1, earlier(until_ns, gn_deadline_us(READ_US)),
				 "the read of a result");
	if (c->first_ns)
		return wait_to_fetch(c, until_ns);
	if (turn % YIELD_EVERY == YIELD_EVERY - 1)
		gn_yield();
	return 0;
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
	int rc = rpc_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "gn_rpc_wait(): not from within a done function");
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rpc_flush(c); /* nobody adds to it meanwhile */
	for (unsigned turn = 0;; turn++) {
		const bool clock = turn % CLOCK_EVERY == CLOCK_EVERY - 1;

		rc = rpc_client_poll(c, clock);
		if (rc || nothing_to_come(c))
			return rc;
		if (clock && gn_now_ns() >= deadline_ns)
			return gn_fail_text(-ETIMEDOUT, "gn_rpc_wait(): no call has ended");
		rc = rest(c, deadline_ns, turn);
		if (rc == -EINTR)
			return rc;
	}
}

/* Until one call has ended; a signal does not change that. */
static void finish(struct gn_rpc_client *c, const struct gn_rpc_op *op)
{
	rpc_flush(c);
	for (unsigned turn = 0; op->client; turn++)
		if (!rpc_client_poll(c, turn % CLOCK_EVERY == CLOCK_EVERY - 1) && op->client)
			rest(c, GN_FOREVER, turn);
}

/* Until a call can be begun: 0, or -ENOTCONN, or -EAGAIN at the deadline, if there is one. */
static int wait_for_room(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	if (!deadline_ns)
		deadline_ns = GN_FOREVER;
	rpc_flush(c);
	for (unsigned turn = 0; !c->dead && !has_room(c); turn++) {
		const bool clock = turn % CLOCK_EVERY == CLOCK_EVERY - 1;

		if (rpc_client_poll(c, clock) || c->dead || has_room(c))
			continue;
		if (clock && gn_now_ns() >= deadline_ns)
			return gn_fail_text(-EAGAIN, "rpc: no call could be begun by the deadline");
		rest(c, deadline_ns, turn);
	}
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

/* deadline_ns: 0 is none. */
static void nap(uint64_t deadline_ns)
{
	const uint64_t now_ns = gn_now_ns();

	if (!deadline_ns)
		gn_sleep_us(RECONNECT_US);
	else if (now_ns < deadline_ns)
		gn_sleep_us(earlier((deadline_ns - now_ns) / 1000 + 1, RECONNECT_US));
}

/* Once more after a server has gone, until the deadline. */
static int submit_again(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = submit_waiting(c, op);

	while (rc == -ENOTCONN && c->flags & GN_RPC_RECONNECT &&
	       (!op->deadline_ns || gn_now_ns() < op->deadline_ns)) {
		if (rpc_reconnect(c, op->deadline_ns))
			nap(op->deadline_ns);
		else
			rc = submit_waiting(c, op);
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
