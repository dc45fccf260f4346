/* SPDX-License-Identifier: MIT */
/*
 * The server's fast path of a call, shared by serve.c, answer.c and group.c: parsing entries and
 * appending results to the open message. Owner only.
 */
#ifndef GN_RPC_FASTPATH_H
#define GN_RPC_FASTPATH_H

#include "base/counter.h"
#include "rpc/server.h"

/* ---- requests ---- */

/*
 * True if the handler runs in this thread, no other thread has answered the request or asked for
 * its bytes, and the open message takes the result.
 */
static inline bool rpc_request_is_fast(const struct gn_rpc_request *r)
{
	return likely(exec_is_owner(r->owner)) &&
	       likely(__atomic_load_n(&r->is_bits, __ATOMIC_RELAXED) == r->conn->fast);
}
/* … and the handler has answered it that way. */
static inline bool rpc_request_answered_fast(const struct gn_rpc_request *r)
{
	return likely(__atomic_load_n(&r->is_bits, __ATOMIC_RELAXED) == RPC_ANSWERED_BITS);
}
/* Sets a request from an entry of the current message. */
static inline void rpc_request_set(struct gn_rpc_request *r, const struct rpc_entry *entry,
				   const uint8_t *data, struct rpc_times *times, uint64_t word)
{
	const struct rpc_conn *c = r->conn;

	memcpy(&r->len, entry, sizeof(*entry));
	r->data = data;
	r->number = c->number;
	r->left_us = 0;
	r->is_bits = word;
	r->begin_ns = c->begin_ns;
	r->times = times;
}
/*
 * Has the client abandoned this call? The array is zeroed at first, so calls of message 0, once in
 * 2^32 messages, never count as abandoned.
 */
static inline bool rpc_conn_abandoned(const struct rpc_conn *c, uint32_t index, uint32_t number)
{
	return index < c->window && likely(number) &&
	       __atomic_load_n(&c->abandoned[index], __ATOMIC_RELAXED) == number;
}
/* Has the deadline of a call passed since its message was found? */
static inline bool rpc_conn_late(const struct rpc_conn *c, uint32_t left_us)
{
	const uint64_t now_ns = c->thread->loop.now_ns;

	return unlikely(now_ns != c->begin_ns) && c->begin_ns &&
	       now_ns >= c->begin_ns + left_us * 1000ull;
}
/*
 * A request that is neither large nor abandoned: strips the time left from its bytes and returns
 * it. Does not read the clock. False: not such a request, and the entry is unchanged.
 */
static inline bool rpc_entry_plain(const struct rpc_conn *c, struct rpc_entry *entry,
				   const uint8_t **data, uint32_t *left_us)
{
	const uint32_t len = entry->len & ~RPC_HAS_DEADLINE;

	*left_us = 0;
	if (unlikely(entry->index & RPC_LARGE))
		return false;
	if (!(entry->len & RPC_HAS_DEADLINE))
		return true;
	if (unlikely(len < sizeof(struct rpc_time_left)))
		return false;
	memcpy(left_us, *data + offsetof(struct rpc_time_left, us), sizeof(*left_us));
	if (unlikely(*left_us && (rpc_conn_abandoned(c, entry->index, c->number) ||
				  rpc_conn_late(c, *left_us))))
		return false;
	entry->len = len - (uint32_t)sizeof(struct rpc_time_left);
	*data += sizeof(struct rpc_time_left);
	return true;
}
/* Timing of a handler that runs n calls. */
struct rpc_timing {
	struct rpc_times *times;
	uint64_t begin_ns;
	uint32_t n;
	bool slow, alone; /* alone: the result message reports this time */
};
/*
 * Are the next calls of this method to be timed? Yes for a slow method and for a message of slow
 * calls; otherwise for about one in ten single calls.
 */
static inline bool rpc_timing_due(const struct rpc_conn *c, struct rpc_times *times)
{
	if (c->begin_ns)
		return c->time_each || times->last_us >= RPC_TIMED_NS / 1000;
	return times->untimed ? times->untimed--, false : true;
}
void rpc_timing_begin(struct rpc_conn *conn, struct rpc_timing *timing, uint32_t n);
/* n: answered calls */
void rpc_timing_end(struct rpc_conn *conn, const struct rpc_timing *timing, uint32_t n);

/* ---- results ---- */

/* Open a message for a result of len bytes and this delivery. False: no slot is free. */
bool rpc_result_open(struct rpc_conn *conn, enum rpc_delivery delivery, uint32_t len);
static inline uint32_t rpc_result_bytes(uint32_t len)
{
	return (uint32_t)sizeof(struct rpc_entry) + rpc_align8(len);
}
/* A result of len bytes, at most max_result, fits the open message. */
static inline bool rpc_result_fits(const struct rpc_conn *c, uint32_t len)
{
	return likely(c->put + sizeof(struct rpc_entry) + len <= c->put_end);
}
/* Bytes of entries in the open message. */
static inline uint32_t rpc_result_len(const struct rpc_conn *c)
{
	return (uint32_t)(c->put - c->result) - (uint32_t)sizeof(struct rpc_head);
}
/* Address of the next result's bytes. */
static inline uint8_t *rpc_result_at(const struct rpc_conn *c)
{
	return c->put + sizeof(struct rpc_entry);
}
static inline void rpc_result_append(struct rpc_conn *c, struct rpc_times *times, uint16_t index,
				     uint16_t status, const void *data, uint32_t len)
{
	const struct rpc_entry entry = {.len = len, .code = status, .index = index};
	const uint32_t bytes = rpc_result_bytes(len);
	uint8_t *to = c->put;

	c->put += bytes;
	c->open_times = times;
	c->last_len = len;
	c->entries++;
	rpc_store(to, &entry, sizeof(entry));
	if (len && data != to + sizeof(entry))
		rpc_store(to + sizeof(entry), data, len);
}
/* Open a message in the next slot, which is free. */
static inline void rpc_result_open_next(struct rpc_conn *c, enum rpc_delivery delivery)
{
	c->open = delivery;
	c->fast = rpc_fast_bits(delivery);
	c->put = c->result + sizeof(struct rpc_head);
	c->put_end = c->put + sizeof(struct rpc_entry) + c->max_result;
	c->entries = 0;
}
/* … if it is free. */
bool rpc_result_slot_writing(const struct rpc_conn *conn);
static inline void rpc_result_begin(struct rpc_conn *c, enum rpc_delivery delivery)
{
	if (unlikely(c->n_writing && rpc_result_slot_writing(c)))
		return;
	if (unlikely(c->published - c->acked > c->mask) && !mutant("rpc-result-early", 8))
		return;
	if (c->sealed_len > RPC_BATCH_BYTES) /* expect a message of the same length */
		prefetch_lines_to_write(c->result, c->sealed_len);
	rpc_result_open_next(c, delivery);
	if (unlikely(c->held))
		c->fast = 0;
}

void rpc_post_reply(struct rpc_conn *conn, uint8_t *from, uint32_t bytes);
/*
 * Seal the open message, which has results: publish it for a fetch, or write it back. time:
 * rpc_time_pack().
 */
static force_inline void rpc_seal_open_message(struct rpc_conn *c, uint16_t flags, uint16_t time)
{
	const enum rpc_delivery delivery = c->open;
	const struct rpc_seal seal = {.seq = rpc_seq(c->epoch, c->published + 1),
				      .nonce = c->nonce,
				      .len = rpc_result_len(c),
				      .aux = time,
				      .flags = flags,
				      .ack = rpc_taken_ack(c->taken, 0)};
	uint8_t *slot = c->result;
	uint32_t bytes;

	c->open = RPC_DELIVER_NONE;
	c->fast = 0;
	c->active = true;
	c->taken_published = c->taken;
	counter_add(&c->thread->count.results, 1);
	exec_charge(GN_WORK_COPY, seal.len);
	c->published++;
	if (mutant("rpc-slot-wrong", c->published))
		slot = c->results + ((c->published + 1) & c->mask) * c->result_stride;
	c->result += c->result_stride;
	if (!((c->published + 1) & c->mask))
		c->result = c->results;
	/* From here on a fetching client can see the result. */
	bytes = (uint32_t)rpc_seal(slot, &seal);
	if (delivery == RPC_DELIVER_REPLY)
		rpc_post_reply(c, slot, bytes);
}

#endif
