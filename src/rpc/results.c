/* SPDX-License-Identifier: MIT */
/* Messages with results, as a client takes them: its calls end, and it learns from them. */
#include <string.h>

#include "base/bits.h"
#include "rpc/client.h"
#include "rpc/copy.h"

void rpc_move_spent(struct gn_rpc_client *c)
{
	while (c->spent + 1 != c->expected && !c->got[(c->spent + 1) & c->mask].far) {
		struct rpc_got *got = &c->got[++c->spent & c->mask];

		c->tell |= got->tell;
		got->tell = false;
	}
}

/*
 * There is no room for it. What the handler thought of the call stands, if its caller can see by
 * the length that the bytes are not there.
 */
static void end_too_big(struct gn_rpc_client *c, struct rpc_call *call, unsigned status,
			uint32_t len)
{
	const bool seen = call->op && len > call->op->result_room;

	rpc_end(c, call, status == GN_RPC_OK || !seen ? GN_RPC_TOO_BIG : status, len);
}

/* One that is elsewhere: true if it is going to be read. */
static bool take_far(struct gn_rpc_client *c, uint32_t index, const struct rpc_entry *entry,
		     const uint8_t *bytes, uint32_t number)
{
	struct rpc_call *call = &c->calls[index];
	struct rpc_far_read read = {.call = index, .number = number, .status = entry->kind};

	memcpy(&read.from, bytes, sizeof(read.from));
	if (!call->op || !read.from.len)
		return false;
	if (read.from.len > call->op->result_room || read.from.len > c->opts.max_large) {
		end_too_big(c, call, entry->kind, read.from.len);
		return false;
	}
	if (rpc_far_begin(c, &read)) {
		call->kind = &c->far_kind;
		c->got[number & c->mask].far++;
		return true;
	}
	end_too_big(c, call, entry->kind, read.from.len); /* for this process, now */
	return false;
}

/* Calls of a kind, and of a time, that came together: what they teach is mostly nothing. */
static force_inline void end_group(struct gn_rpc_client *c, const struct rpc_lesson *l)
{
	if (unlikely(l->sent_ns || l->time_us || l->fails || !l->kind->quick)) {
		const struct rpc_lesson lesson = *l; /* of which only the copy has an address */

		rpc_learn_calls(c, &lesson);
	} else {
		counter_add(&l->kind->latency->calls, l->calls);
	}
}

/*
 * A server of ours says no such things: of a call twice, or of one that was not sent, or whose
 * result is being read.
 */
static inline bool may_end(const struct gn_rpc_client *c, const struct rpc_call *call)
{
	return call->kind && call->kind != &c->far_kind && call->number != c->number;
}

/* What is not as most are: a call that ended early or failed, or whose result is not here. */
static no_inline bool take_other(struct gn_rpc_client *c, uint64_t word, const uint8_t *bytes,
				 uint32_t number)
{
	struct rpc_call *call = &c->calls[word >> 48 & RPC_INDEX];
	struct gn_rpc_op *op = call->op;
	struct rpc_entry entry;

	memcpy(&entry, &word, sizeof(entry));
	if (!may_end(c, call))
		return false;
	if (entry.index & RPC_FAR) {
		if (entry.len != sizeof(struct rpc_far))
			return false;
		if (take_far(c, entry.index & RPC_INDEX, &entry, bytes, number))
			return true;
	} else if (op && entry.len > op->result_room) {
		end_too_big(c, call, entry.kind, entry.len);
	} else if (op) {
		if (op->flags & GN_RPC_IN_PLACE)
			op->data = entry.len ? bytes : NULL;
		else if (entry.len)
			memcpy(op->result, bytes, entry.len);
		rpc_end_op(c, call, op, entry.kind, entry.len);
	}
	rpc_call_over(c, call);
	return true;
}

/* A call whose time is not that of the last; false: a server of ours says no such thing. */
static force_inline bool begin_group(struct gn_rpc_client *c, const struct rpc_call *call,
				     struct rpc_lesson *group)
{
	if (unlikely(!may_end(c, call)))
		return false;
	if (group->kind)
		end_group(c, group);
	group->kind = call->kind;
	group->sent_ns = call->ns;
	group->calls = 0;
	if (unlikely(group->sent_ns) && !group->now_ns)
		group->now_ns = gn_now_ns();
	return true;
}

/* An entry as most are: of a call that has succeeded, with a short result, or one left in place. */
static force_inline bool take_plain(struct gn_rpc_client *c, struct rpc_call *call,
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
	rpc_call_free(c, call); /* first, so that little is kept while its caller hears of it */
	rpc_end_op(c, call, op, GN_RPC_OK, (uint32_t)len);
	return true;
}

#define NOT_PLAIN (RPC_FAR << 16 | UINT16_MAX) /* of an entry's upper half: elsewhere; a status */

/*
 * The next message is here, all of it: its len bytes are whole words, at least one. shared: the
 * server can still change it. Returns when the calls were timed; 0: nobody has looked.
 */
static force_inline uint64_t take_results(struct gn_rpc_client *c, const uint8_t *message,
					  const struct rpc_head *head, uint32_t fails, bool shared)
{
	const uint8_t *at = message + sizeof(*head), *const end = at + head->len;
	const uint32_t number = c->expected++, flags = head->flags;
	struct rpc_lesson group = {.fails = fails, .time_us = rpc_time_us(head->aux)};
	bool right = true;

	if (c->number - 1 - c->taken > 1) /* others are under way */
		rpc_note_taken(c, head->word);
	c->waking = c->woken = 0;
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
		if (unlikely(call->kind != group.kind || call->ns != group.sent_ns)) {
			right = begin_group(c, call, &group);
			if (!shared)
				continue; /* read it again: that is cheaper than to keep it */
			if (!right)
				break;
		}
		group.calls++;
		at = next;
		if (unlikely((high & NOT_PLAIN) | c->open_or_lent) ||
		    unlikely(!take_plain(c, call, bytes, len)))
			right = take_other(c, word, bytes, number);
	} while (likely(right) && at < end && !c->dead);
	if (unlikely(!right))
		rpc_client_die(c);
	rpc_note_all_taken(c);
	if (likely(group.kind))
		end_group(c, &group);
	exec_charge(GN_WORK_COPY, head->len);
	if (likely(c->spent + 1 == number && !c->got[number & c->mask].far)) {
		c->spent = number;
		if (unlikely(flags & RPC_ACK || number - c->told > c->tell_after))
			c->tell |= flags & RPC_ACK || c->any_sent;
	} else {
		c->got[number & c->mask].tell = flags & RPC_ACK;
		rpc_move_spent(c);
	}
	return group.now_ns;
}

void rpc_take_message(struct gn_rpc_client *c, struct rpc_got *got, const uint8_t *message,
		      const struct rpc_head *head)
{
	const uint32_t fails = got->fails, len = head->len;

	c->first_ns = 0;
	c->missed = false;
	got->read = RPC_UNREAD;
	got->fails = 0;
	if (take_results(c, message, head, fails, true) ||
	    rpc_message_bytes(len) > c->learn.first_bytes)
		rpc_learn_size(c, len);
}

void rpc_take_fetched(struct gn_rpc_client *c, const uint8_t *message)
{
	struct rpc_head head;

	memcpy(&head, message, sizeof(head));
	if (take_results(c, message, &head, 0, false))
		rpc_learn_size(c, head.len);
}
