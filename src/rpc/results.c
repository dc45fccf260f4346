/* SPDX-License-Identifier: MIT */
/* Takes result messages: completes calls and updates what the client adapts. */
#include <string.h>

#include "base/bits.h"
#include "rpc/client.h"
#include "rpc/copy.h"

void rpc_advance_consumed(struct gn_rpc_client *c)
{
	while (c->consumed + 1 != c->expected && !c->rslots[(c->consumed + 1) & c->mask].n_large) {
		struct rpc_result_slot *rslot = &c->rslots[++c->consumed & c->mask];

		c->ack_due |= rslot->ack_due;
		rslot->ack_due = false;
	}
}

/*
 * The result does not fit. Keep the handler's status if the caller can tell by the length that the
 * bytes are missing.
 */
static void call_end_too_big(struct gn_rpc_client *c, struct rpc_call *call, unsigned status,
			     uint32_t len)
{
	const bool seen = call->op && len > call->op->result_room;

	rpc_call_complete(c, call, status == GN_RPC_OK || !seen ? GN_RPC_TOO_BIG : status, len);
}

/* A large result. True: it is going to be read. */
static bool take_large_result(struct gn_rpc_client *c, uint32_t index,
			      const struct rpc_entry *entry, const uint8_t *bytes, uint32_t number)
{
	struct rpc_call *call = &c->calls[index];
	struct rpc_large_read read = {.call = index, .number = number, .status = entry->code};

	memcpy(&read.from, bytes, sizeof(read.from));
	if (!call->op || !read.from.len)
		return false;
	if (read.from.len > call->op->result_room || read.from.len > c->opts.max_large) {
		call_end_too_big(c, call, entry->code, read.from.len);
		return false;
	}
	if (rpc_large_read_begin(c, &read)) {
		call->mstate = &c->large_mstate;
		c->rslots[number & c->mask].n_large++;
		return true;
	}
	/* no memory for it in this process */
	call_end_too_big(c, call, entry->code, read.from.len);
	return false;
}

/* Calls of one method and one time that came together. Usually there is nothing to adapt. */
static force_inline void sample_flush(struct gn_rpc_client *c, const struct rpc_sample *l)
{
	if (unlikely(l->sent_ns || l->time_us || l->fails || !l->mstate->fast)) {
		const struct rpc_sample sample = *l; /* so that l itself stays in registers */

		rpc_adapt_calls(c, &sample);
	} else {
		counter_add(&l->mstate->latency->calls, l->calls);
	}
}

/*
 * False for a call that was completed before, was not sent, or whose result is being read: a
 * correct server never sends this.
 */
static inline bool call_may_complete(const struct gn_rpc_client *c, const struct rpc_call *call)
{
	return call->mstate && call->mstate != &c->large_mstate && call->number != c->number;
}

/* An uncommon entry: the call completed early or failed, or its result is large. */
static no_inline bool take_entry_slow(struct gn_rpc_client *c, uint64_t word, const uint8_t *bytes,
				      uint32_t number)
{
	struct rpc_call *call = &c->calls[word >> 48 & RPC_INDEX];
	struct gn_rpc_op *op = call->op;
	struct rpc_entry entry;

	memcpy(&entry, &word, sizeof(entry));
	if (!call_may_complete(c, call))
		return false;
	if (entry.index & RPC_LARGE) {
		if (entry.len != sizeof(struct rpc_large_ref))
			return false;
		if (take_large_result(c, entry.index & RPC_INDEX, &entry, bytes, number))
			return true;
	} else if (op && entry.len > op->result_room) {
		call_end_too_big(c, call, entry.code, entry.len);
	} else if (op) {
		if (op->flags & GN_RPC_IN_PLACE)
			op->data = entry.len ? bytes : NULL;
		else if (entry.len)
			memcpy(op->result, bytes, entry.len);
		rpc_op_complete(c, call, op, entry.code, entry.len);
	}
	rpc_call_release(c, call);
	return true;
}

/* Starts a new sample. False: a correct server never sends this entry. */
static force_inline bool sample_begin(struct gn_rpc_client *c, const struct rpc_call *call,
				      struct rpc_sample *group)
{
	if (unlikely(!call_may_complete(c, call)))
		return false;
	if (group->mstate)
		sample_flush(c, group);
	group->mstate = call->mstate;
	group->sent_ns = call->begun_ns;
	group->calls = 0;
	if (unlikely(group->sent_ns) && !group->now_ns)
		group->now_ns = gn_now_ns();
	return true;
}

/* A common entry: success with a short result, or one used in place. */
static force_inline bool take_entry_fast(struct gn_rpc_client *c, struct rpc_call *call,
					 const uint8_t *bytes, uint64_t len)
{
	struct gn_rpc_op *op = call->op;

	if (unlikely(!op || len > op->result_room))
		return false;
	if (op->flags) {
		op->data = len ? bytes : NULL;
	} else {
		if (unlikely(len > RPC_SHORT))
			return false;
		if (len)
			rpc_store(op->result, bytes, len);
	}
	rpc_call_free(c, call); /* first, so that little is live across the callback */
	rpc_op_complete(c, call, op, GN_RPC_OK, (uint32_t)len);
	return true;
}

/* of an entry's upper half: large, or a status other than OK */
#define SLOW_ENTRY (RPC_LARGE << 16 | UINT16_MAX)

/*
 * The next message is complete: its len bytes are whole words, at least one. shared: the server can
 * still change it. Returns when the calls were timed; 0: they were not.
 */
static force_inline uint64_t take_results(struct gn_rpc_client *c, const uint8_t *message,
					  const struct rpc_head *head, uint32_t fails, bool shared)
{
	const uint8_t *at = message + sizeof(*head), *const end = at + head->len;
	const uint32_t number = c->expected++, flags = head->flags;
	struct rpc_sample group = {.fails = fails, .time_us = rpc_time_us(head->aux)};
	bool right = true;

	if (c->number - 1 - c->taken > 1) /* other messages are outstanding */
		rpc_note_taken(c, head->ack);
	c->wakes_sent = c->woken_park = 0;
	c->count.results++;
	do {
		const uint8_t *bytes = at + sizeof(struct rpc_entry), *next;
		struct rpc_call *call;
		uint32_t high, len;
		uint64_t word;

		if (shared)
			exec_preempt();
		memcpy(&word, at, sizeof(word));
		high = (uint32_t)(word >> 32);
		len = (uint32_t)word;
		next = bytes + (((uint64_t)len + 7) & ~UINT64_C(7)); /* len may be anything */
		call = &c->calls[high >> 16 & RPC_INDEX];
		right = next <= end && (high >> 16 & RPC_INDEX) < c->limits.window;
		if (unlikely(!right))
			break;
		if (unlikely(call->mstate != group.mstate || call->begun_ns != group.sent_ns)) {
			right = sample_begin(c, call, &group);
			if (!shared)
				continue; /* load the entry again: cheaper than registers */
			if (!right)
				break;
		}
		group.calls++;
		at = next;
		if (unlikely((high & SLOW_ENTRY) | c->open_or_exported) ||
		    unlikely(!take_entry_fast(c, call, bytes, len)))
			right = take_entry_slow(c, word, bytes, number);
	} while (likely(right) && at < end && !c->dead);
	if (unlikely(!right))
		rpc_client_disconnected(c);
	rpc_note_all_taken(c);
	if (likely(group.mstate))
		sample_flush(c, &group);
	exec_charge(GN_WORK_COPY, head->len);
	if (likely(c->consumed + 1 == number && !c->rslots[number & c->mask].n_large)) {
		c->consumed = number;
		if (unlikely(flags & RPC_WANT_ACK || number - c->acked > c->ack_after))
			c->ack_due |= flags & RPC_WANT_ACK || c->any_sent;
	} else {
		c->rslots[number & c->mask].ack_due = flags & RPC_WANT_ACK;
		rpc_advance_consumed(c);
	}
	return group.now_ns;
}

void rpc_take_message(struct gn_rpc_client *c, struct rpc_result_slot *rslot,
		      const uint8_t *message, const struct rpc_head *head)
{
	const uint32_t fails = rslot->fails, len = head->len;

	c->fetch_at_ns = 0;
	c->missed = false;
	rslot->read = RPC_UNREAD;
	rslot->fails = 0;
	if (take_results(c, message, head, fails, true) ||
	    rpc_message_bytes(len) > c->adapt.first_bytes)
		rpc_adapt_fetch_size(c, len);
}

void rpc_take_fetched_message(struct gn_rpc_client *c, const uint8_t *message)
{
	struct rpc_head head;

	memcpy(&head, message, sizeof(head));
	if (take_results(c, message, &head, 0, false))
		rpc_adapt_fetch_size(c, head.len);
}
