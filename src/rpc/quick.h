/* SPDX-License-Identifier: MIT */
/*
 * The short way of a call through its server, which serve.c, answer.c and group.c share: entries
 * are taken apart, and results put into the open message. Owner only.
 */
#ifndef GN_RPC_QUICK_H
#define GN_RPC_QUICK_H

#include "base/counter.h"
#include "rpc/server.h"

/* ---- requests ---- */

/*
 * Does its handler run, in this thread, and nobody knows more of it: another thread has neither
 * answered it nor asked for its bytes?
 * Then the result goes into the open message, if there is one for it.
 */
static inline bool rpc_request_quickly(const struct gn_rpc_request *r)
{
	return likely(exec_is_owner(r->owner)) &&
	       likely(__atomic_load_n(&r->word, __ATOMIC_RELAXED) == r->conn->quick);
}
/* … and was that done? */
static inline bool rpc_answered_quickly(const struct gn_rpc_request *r)
{
	return likely(__atomic_load_n(&r->word, __ATOMIC_RELAXED) == RPC_ANSWERED_WORD);
}
/* An entry of the message that is being taken. */
static inline void rpc_request_set(struct gn_rpc_request *r, const struct rpc_entry *entry,
				   const uint8_t *data, struct rpc_times *times, uint64_t word)
{
	const struct rpc_conn *c = r->conn;

	memcpy(&r->len, entry, sizeof(*entry));
	r->data = data;
	r->number = c->number;
	r->left_us = 0;
	r->word = word;
	r->begin_ns = c->begin_ns;
	r->times = times;
}
/*
 * Has its caller given it up, by a word that the client writes? The word is 0 at first: so calls of
 * message 0, once in 2^32, are never taken for given up.
 */
static inline bool rpc_conn_given_up(const struct rpc_conn *c, uint32_t index, uint32_t number)
{
	return index < c->window && likely(number) &&
	       __atomic_load_n(&c->given_up[index], __ATOMIC_RELAXED) == number;
}
/* Has the deadline of a call passed, since its message was found? */
static inline bool rpc_conn_late(const struct rpc_conn *c, uint32_t left_us)
{
	const uint64_t now_ns = c->thread->loop.now_ns;

	return unlikely(now_ns != c->begin_ns) && c->begin_ns &&
	       now_ns >= c->begin_ns + left_us * 1000ull;
}
/*
 * A request that is not large, and whose caller has not given up: its bytes without the time that
 * was left for it, which is returned. The clock is not read for that, others have. False: it is not
 * so, and the entry is unchanged.
 */
static inline bool rpc_entry_plain(const struct rpc_conn *c, struct rpc_entry *entry,
				   const uint8_t **data, uint32_t *left_us)
{
	const uint32_t len = entry->len & ~RPC_TIMED;

	*left_us = 0;
	if (unlikely(entry->index & RPC_FAR))
		return false;
	if (!(entry->len & RPC_TIMED))
		return true;
	if (unlikely(len < sizeof(struct rpc_left)))
		return false;
	memcpy(left_us, *data + offsetof(struct rpc_left, us), sizeof(*left_us));
	if (unlikely(*left_us &&
		     (rpc_conn_given_up(c, entry->index, c->number) || rpc_conn_late(c, *left_us))))
		return false;
	entry->len = len - (uint32_t)sizeof(struct rpc_left);
	*data += sizeof(struct rpc_left);
	return true;
}
/* A handler that is timed, for n calls: what is known when it begins, and is noted at its end. */
struct rpc_timing {
	struct rpc_times *times;
	uint64_t begin_ns;
	uint32_t n;
	bool slow, alone; /* alone: its message will tell its time */
};
/*
 * Whether the next calls of a method are to be timed by themselves: all of a method that takes
 * long, and of a message whose calls do; otherwise about one in ten that come alone.
 */
static inline bool rpc_timing_due(const struct rpc_conn *c, struct rpc_times *times)
{
	if (c->begin_ns)
		return c->time_each || times->last_us >= RPC_TIMED_NS / 1000;
	return times->untimed ? times->untimed--, false : true;
}
void rpc_timing_begin(struct rpc_conn *conn, struct rpc_timing *timing, uint32_t n);
/* n: calls that were answered, of those that began. */
void rpc_timing_end(struct rpc_conn *conn, const struct rpc_timing *timing, uint32_t n);

/* ---- results ---- */

/* There is a message for a result of so many bytes, and it goes this way; false: no slot. */
bool rpc_result_open(struct rpc_conn *conn, enum rpc_way way, uint32_t len);
static inline uint32_t rpc_result_bytes(uint32_t len)
{
	return (uint32_t)sizeof(struct rpc_entry) + rpc_align8(len);
}
/* … into the message that is put together: none of them is longer than max_result. */
static inline bool rpc_result_fits(const struct rpc_conn *c, uint32_t len)
{
	return likely(c->put + sizeof(struct rpc_entry) + len <= c->put_end);
}
/* Bytes of its entries. */
static inline uint32_t rpc_result_len(const struct rpc_conn *c)
{
	return (uint32_t)(c->put - c->result) - (uint32_t)sizeof(struct rpc_head);
}
/* Where the bytes of the next result are. */
static inline uint8_t *rpc_result_at(const struct rpc_conn *c)
{
	return c->put + sizeof(struct rpc_entry);
}
static inline void rpc_result_append(struct rpc_conn *c, struct rpc_times *times, uint16_t index,
				     uint16_t status, const void *data, uint32_t len)
{
	const struct rpc_entry entry = {.len = len, .kind = status, .index = index};
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
/* Begin a message in the next slot, which is free. */
static inline void rpc_result_open_next(struct rpc_conn *c, enum rpc_way way)
{
	c->open = way;
	c->quick = rpc_quick_word(way);
	c->put = c->result + sizeof(struct rpc_head);
	c->put_end = c->put + sizeof(struct rpc_entry) + c->max_result;
	c->entries = 0;
}
/* … if it is free. */
bool rpc_result_slot_writing(const struct rpc_conn *conn);
static inline void rpc_result_begin(struct rpc_conn *c, enum rpc_way way)
{
	if (unlikely(c->n_writing && rpc_result_slot_writing(c)))
		return;
	if (unlikely(c->placed - c->acked > c->mask) && !mutant("rpc-result-early", 8))
		return;
	if (c->sealed_len > RPC_BATCH_BYTES) /* this one will be as long */
		prefetch_lines_to_write(c->result, c->sealed_len);
	rpc_result_open_next(c, way);
	if (unlikely(c->held))
		c->quick = 0;
}

void rpc_write_back(struct rpc_conn *conn, uint8_t *from, uint32_t bytes);
/*
 * Seal the message that is open, and has results: it is there for its client, or written back.
 * time: rpc_time_pack().
 */
static force_inline void rpc_seal_open(struct rpc_conn *c, uint16_t flags, uint16_t time)
{
	const enum rpc_way way = c->open;
	const struct rpc_seal seal = {.seq = rpc_seq(c->epoch, c->placed + 1),
				      .nonce = c->nonce,
				      .len = rpc_result_len(c),
				      .aux = time,
				      .flags = flags,
				      .word = rpc_state_word(c->taken, 0)};
	uint8_t *slot = c->result;
	uint32_t bytes;

	c->open = RPC_NO_WAY;
	c->quick = 0;
	c->heard = true;
	c->taken_told = c->taken;
	counter_add(&c->thread->count.results, 1);
	exec_charge(GN_WORK_COPY, seal.len);
	c->placed++;
	if (mutant("rpc-slot-wrong", c->placed))
		slot = c->results + ((c->placed + 1) & c->mask) * c->result_stride;
	c->result += c->result_stride;
	if (!((c->placed + 1) & c->mask))
		c->result = c->results;
	/* From here on a client that fetches has its result. */
	bytes = (uint32_t)rpc_seal(slot, &seal);
	if (way == RPC_WRITTEN_BACK)
		rpc_write_back(c, slot, bytes);
}

#endif
