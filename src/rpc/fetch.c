/* SPDX-License-Identifier: MIT */
/* How results come to a client: fetched from the server's memory, or found in its own. */
#include <errno.h>
#include <string.h>

#include "rpc/client.h"

#define COMPLETIONS 16
#define LOOK_NS	    20u
#define CHAN_EVERY  64u /* polls after which connection and deadlines are looked at in any case */

static uint64_t fetched_at(const struct gn_rpc_client *c, const struct rpc_slot *slot)
{
	return slot->number % c->n_slots * c->result_stride;
}

/* The bytes of a message that the first read brings. */
static uint32_t first_bytes(const struct gn_rpc_client *c)
{
	const uint64_t bytes =
		rpc_message_bytes((uint32_t)sizeof(struct rpc_entry) + c->fetch_bytes);

	return (uint32_t)(bytes < c->result_stride ? bytes : c->result_stride);
}

static uint32_t max_len(const struct gn_rpc_client *c)
{
	return (uint32_t)sizeof(struct rpc_entry) + c->max_result;
}

/* Read len bytes of a result from at on. */
static void read_bytes(struct gn_rpc_client *c, struct rpc_slot *slot, uint32_t at, uint32_t len,
		       enum rpc_slot_state state)
{
	const uint64_t offset = fetched_at(c, slot) + at;
	const struct gn_sge sge = {c->fetched + offset, len, gn_mr_lkey(c->local_mr)};
	const struct gn_remote from = {.key = c->result_key};
	struct gn_wr wr;
	int rc;

	gn_wr_rdma(&wr, GN_OP_READ, slot->number % c->n_slots, &sge, &from, offset, GN_SIGNALED);
	rc = gn_post_send(c->qp, &wr, NULL);
	if (rc == -EAGAIN)
		return; /* when the queue has room again */
	if (rc) {
		rpc_client_die(c);
		return;
	}
	slot->state = state;
	c->reads++;
	c->count.fetches++;
	c->count.second_reads += state == RPC_READING_REST;
}

/* The result is in message, all of it: the call ends. */
static void deliver(struct gn_rpc_client *c, struct rpc_slot *slot, const uint8_t *message)
{
	struct gn_rpc_op *op = slot->op;
	struct rpc_entry entry;
	const uint8_t *bytes;
	uint32_t at = 0;

	slot->state = RPC_FREE;
	c->heard_ns = 0;
	if (!op)
		return;
	if (!rpc_entry(message, slot->head.len, &at, &entry, &bytes)) {
		rpc_client_die(c); /* a server that says such things is none */
		return;
	}
	if (entry.len > op->result_room) {
		rpc_end(c, slot, GN_RPC_TOO_BIG, entry.len);
		return;
	}
	if (entry.len)
		memcpy(op->result, bytes, entry.len);
	gn_charge(GN_WORK_COPY, entry.len);
	rpc_end(c, slot, entry.kind, entry.len);
}

static void look(struct gn_rpc_client *c, struct rpc_slot *slot, uint64_t have)
{
	const uint8_t *message = c->fetched + fetched_at(c, slot);
	const enum rpc_found found = rpc_look(message, have, rpc_seq(c->epoch, slot->number),
					      c->nonce, max_len(c), c->check_fetch, &slot->head);

	slot->state = RPC_WAITING;
	if (found != RPC_FOUND) {
		/* Looking takes time also where reading takes none: so the result comes nearer. */
		gn_charge(GN_WORK_NS, LOOK_NS);
		c->count.failed_fetches++;
		c->count.torn += found == RPC_TORN;
		return;
	}
	if (have < rpc_message_bytes(slot->head.len))
		read_bytes(c, slot, (uint32_t)have,
			   (uint32_t)(rpc_message_bytes(slot->head.len) - have), RPC_READING_REST);
	else
		deliver(c, slot, message);
}

static void read_done(struct gn_rpc_client *c, struct rpc_slot *slot)
{
	c->reads--;
	if (slot->state == RPC_READING)
		look(c, slot, first_bytes(c));
	else if (slot->state == RPC_READING_REST)
		look(c, slot, c->result_stride);
}

static void take_completions(struct gn_rpc_client *c)
{
	struct gn_wc wc[COMPLETIONS];
	const int n = gn_cq_poll(c->cq, wc, COMPLETIONS);

	if (n < 0)
		rpc_client_die(c);
	for (int i = 0; i < n && !c->dead; i++) {
		if (wc[i].status != GN_WC_OK)
			rpc_client_die(c);
		else if (wc[i].id < c->n_slots)
			read_done(c, &c->slots[wc[i].id]);
	}
}

static void find_reply(struct gn_rpc_client *c, struct rpc_slot *slot)
{
	const uint8_t *message = c->replies + fetched_at(c, slot);
	const enum rpc_found found = rpc_look(message, c->result_stride,
					      rpc_seq(c->epoch, slot->number), c->nonce, max_len(c),
					      c->check_reply, &slot->head);

	c->count.torn += found == RPC_TORN;
	if (found == RPC_FOUND)
		deliver(c, slot, message);
}

/* Does call n still hold its slot? If not, a later call may have it by now. */
static bool holds(const struct gn_rpc_client *c, uint32_t n)
{
	const struct rpc_slot *slot = &c->slots[n % c->n_slots];

	return slot->state != RPC_FREE && slot->number == n;
}

static void forget_ended(struct gn_rpc_client *c)
{
	while (c->oldest != c->number && !holds(c, c->oldest))
		c->oldest++;
}

/* Calls that are begun meanwhile, as others end, have their turn the next time. */
static void move_on(struct gn_rpc_client *c)
{
	const uint32_t end = c->number;

	for (uint32_t n = c->oldest; n != end && !c->dead; n++) {
		struct rpc_slot *slot = &c->slots[n % c->n_slots];

		if (slot->state != RPC_WAITING || slot->number != n)
			continue;
		if (c->mode == GN_RPC_REPLY)
			find_reply(c, slot);
		else
			read_bytes(c, slot, 0, first_bytes(c), RPC_READING);
	}
}

static void end_late(struct gn_rpc_client *c)
{
	const uint64_t now_ns = gn_now_ns();

	for (uint32_t n = c->oldest; n != c->number; n++) {
		struct rpc_slot *slot = &c->slots[n % c->n_slots];

		if (slot->op && slot->op->deadline_ns && slot->op->deadline_ns <= now_ns)
			rpc_end(c, slot, GN_RPC_TIMEOUT, 0);
	}
}

/*
 * A server that writes results back may vanish without a word, when nothing is posted to it any
 * more. An empty WRITE fails then.
 */
static void probe(struct gn_rpc_client *c)
{
	const uint64_t now_ns = gn_now_ns();
	struct gn_wr wr;
	int rc;

	if (c->mode != GN_RPC_REPLY || c->oldest == c->number || !c->heard_ns)
		c->heard_ns = now_ns;
	if (now_ns < c->heard_ns + RPC_PROBE_NS)
		return;
	c->heard_ns = now_ns;
	gn_wr_init(&wr, GN_OP_WRITE, UINT64_MAX, NULL, 0, GN_SIGNALED);
	rc = gn_post_send(c->qp, &wr, NULL);
	c->count.probes += !rc;
	if (rc && rc != -EAGAIN)
		rpc_client_die(c);
}

static void take_events(struct gn_rpc_client *c)
{
	struct gn_event event;

	while (!c->dead && !gn_chan_next(c->chan, &event))
		if (event.type == GN_EVENT_DISCONNECTED || event.type == GN_EVENT_CQ_OVERRUN)
			rpc_client_die(c);
}

int rpc_client_poll(struct gn_rpc_client *c)
{
	c->ended = 0;
	if (c->dead)
		return 0;
	take_completions(c);
	move_on(c);
	/* Where a read is a copy, its result is there at once; elsewhere it is worth no look. */
	if (c->reads && !c->slow_reads && !c->dead) {
		const uint32_t reads = c->reads;

		take_completions(c);
		c->slow_reads = c->reads == reads && !c->ended;
	}
	forget_ended(c);
	c->polls++;
	if (c->ended && c->polls < CHAN_EVERY)
		return c->ended;
	if (c->polls >= CHAN_EVERY) {
		c->polls = 0;
		take_events(c);
	}
	if (!c->dead)
		end_late(c);
	if (!c->dead)
		probe(c);
	return c->ended;
}
