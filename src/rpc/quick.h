/* SPDX-License-Identifier: MIT */
/*
 * The short way of a call through its server, which serve.c, answer.c and group.c share: entries
 * are taken apart, and results put into the open message. Owner only.
 */
#ifndef GN_RPC_QUICK_H
#define GN_RPC_QUICK_H

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
/* An entry of the message that is being taken. */
static inline void rpc_request_set(struct gn_rpc_request *r, const struct rpc_entry *entry,
				   const uint8_t *data, struct rpc_times *times, uint64_t word)
{
	memcpy(&r->len, entry, sizeof(*entry));
	r->data = data;
	r->number = r->conn->number;
	r->left_us = 0;
	r->word = word;
	r->begin_ns = r->conn->begin_ns;
	r->times = times;
}
/* Has its caller given it up, by a word that the client writes? */
static inline bool rpc_conn_given_up(const struct rpc_conn *c, uint32_t index, uint32_t number)
{
	return index < c->window &&
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
	bool slow, alone; /* alone: its message will tell its time */
};
/* Whether the next calls of a method are to be timed by themselves; the first was counted. */
static inline bool rpc_timing_due(const struct rpc_conn *c, const struct rpc_times *times)
{
	const bool due = c->begin_ns ? c->time_each : rpc_sampled((uint32_t)times->calls);

	return due || times->last_us >= RPC_TIMED_NS / 1000;
}
void rpc_timing_begin(struct rpc_conn *conn, struct rpc_timing *timing);
/* n: calls that were answered. */
void rpc_timing_end(struct rpc_conn *conn, const struct rpc_timing *timing, uint32_t n);

/* ---- results ---- */

/* There is a message for a result of so many bytes, and it goes this way; false: no slot. */
bool rpc_result_open(struct rpc_conn *conn, enum rpc_way way, uint32_t len);
static inline uint32_t rpc_result_bytes(uint32_t len)
{
	return (uint32_t)sizeof(struct rpc_entry) + rpc_align8(len);
}
static inline bool rpc_result_fits(const struct rpc_conn *c, enum rpc_way way, uint32_t len)
{
	return c->open == way && rpc_result_bytes(len) <= c->left;
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
	c->left -= bytes;
	c->open_times = times;
	c->last_len = len;
	c->entries++;
	rpc_store(to, &entry, sizeof(entry));
	if (len && data != to + sizeof(entry))
		rpc_store(to + sizeof(entry), data, len);
}
/* Begin a message in the next slot, if that is free. */
bool rpc_result_slot_writing(const struct rpc_conn *conn);
static inline void rpc_result_begin(struct rpc_conn *c, enum rpc_way way)
{
	if (unlikely(c->n_writing && rpc_result_slot_writing(c)))
		return;
	if (unlikely(c->placed - c->acked > c->mask) && !mutant("rpc-result-early", 8))
		return;
	if (c->most - c->left > RPC_BATCH_BYTES) /* the last: this one will be as long */
		prefetch_lines_to_write(c->result, c->most - c->left);
	c->open = way;
	c->quick = likely(!c->held) ? rpc_quick_word(way) : 0;
	c->open_ack = false;
	c->put = c->result + sizeof(struct rpc_head);
	c->left = c->most;
	c->entries = 0;
}

#endif
