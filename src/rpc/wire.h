/* SPDX-License-Identifier: MIT */
/*
 * The protocol between client and server: the handshake of a connection, and messages in slots.
 *
 * A client has N slots of three kinds: request slots and result slots in the server's memory, and
 * reply slots in its own memory. Request messages are numbered 1, 2, …, and so are result messages;
 * the results of one request message may need several result messages. Message i uses slot i % N of
 * its kind. A message is
 *
 *     head │ entry │ bytes │ entry │ bytes … │ tail
 *
 * and is complete when head and tail both match its sequence. If the connection does not guarantee
 * the order in which bytes appear, the checksum must match as well. The tail is a function of the
 * sequence that no earlier content of the slot can have by accident.
 *
 * A request slot is free when the server has taken its message: its handlers have run, and requests
 * that are answered later were copied. The ack of a result says up to which number requests are
 * taken, and so does the slot of the next result while it is empty. A result slot is free when the
 * client has acknowledged it: by the ack of a later request, or by a WRITE to the ack word behind
 * the request slots.
 *
 * The peer may write anything at any time. So a head is copied once and checked before it is used,
 * and lengths are never read again.
 */
#ifndef GN_RPC_WIRE_H
#define GN_RPC_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/preempt.h"
#include "gannet/exec.h"
#include "gannet/rpc.h"

#define RPC_MAGIC   0x67635250u /* "gcRP" */
#define RPC_VERSION 3u

/* A status has 16 bits on the wire; a larger one must not turn into another status. */
static inline uint16_t rpc_status(unsigned status)
{
	return (uint16_t)(status <= UINT16_MAX ? status : (unsigned)GN_RPC_FAILED);
}

/* Client to server, with the connection request. */
struct rpc_hello {
	uint32_t magic;
	uint16_t version, bytes; /* bytes: of this struct */
	uint32_t slots, max_request, max_result;
	uint32_t thread;    /* requested server thread, from 1; 0: any */
	uint32_t reply_key; /* of the client's reply slots */
	uint32_t window;    /* outstanding calls */
	uint64_t nonce;
	/*
	 * The client's previous connection, rpc_conn_name(), and its server thread, from 1; 0:
	 * none. After this connection is accepted, no request of the previous one is started.
	 */
	uint64_t previous;
	uint32_t previous_thread;
	uint32_t reserved; /* zero */
};
_Static_assert(sizeof(struct rpc_hello) == 56, "what every provider carries");

/* Server to client, with the acceptance. */
struct rpc_welcome {
	uint32_t magic;
	uint16_t version, bytes;
	uint32_t slots, max_request, max_result; /* granted */
	uint32_t request_key, result_key;
	uint32_t epoch;
	uint32_t window, max_large;
	uint32_t park_us; /* idle time after which the server stops polling the client */
	uint32_t thread;  /* that serves the client, from 1 */
	uint64_t auth[2];
};
_Static_assert(sizeof(struct rpc_welcome) <= GN_PRIVATE_MAX, "what an acceptance carries");

/* Server to client, with a rejection. */
enum rpc_refusal_reason {
	RPC_REFUSED, /* no reason given */
	RPC_REFUSED_VERSION,
	RPC_REFUSED_ENDING,
	RPC_REFUSED_FULL,
	RPC_REFUSED_MEMORY,
	RPC_REFUSED_FILES,
	RPC_REFUSALS
};

struct rpc_refusal {
	uint32_t magic;
	uint16_t version; /* the server's */
	uint16_t reason;
};
_Static_assert(sizeof(struct rpc_refusal) == 8, "wire");
#define RPC_VERSION_BYTES 6u /* magic and version, the beginning of every handshake struct */

enum rpc_flag {
	RPC_REPLY = 1 << 0,    /* request: deliver the results as a reply */
	RPC_CRC = 1 << 1,      /* crc is valid */
	RPC_WANT_ACK = 1 << 2, /* result: acknowledge without waiting for a request */
	RPC_RESULT = 1 << 3,   /* a result: its ack may change */
};

struct rpc_head {
	uint64_t seq;	/* epoch << 32 | number; first, so that a READ samples it first */
	uint32_t len;	/* of entries with their bytes */
	uint16_t aux;	/* request: number of entries; result: server time, rpc_time_pack() */
	uint16_t flags; /* enum rpc_flag */
	uint32_t crc;	/* CRC-32C of head (crc 0, ack of a result 0), entries, bytes and tail */
	/*
	 * Request: results up to this number are consumed. Result, and the slot of the next result:
	 * rpc_taken_ack().
	 */
	uint32_t ack;
};
_Static_assert(sizeof(struct rpc_head) == 24, "wire");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian hosts only");

/*
 * The ack of a result: requests up to taken are taken; parked is 0 while the server polls this
 * client, else from 1 to RPC_PARKED_MAX, another value each time. 30 bits of taken suffice to tell
 * an old ack from a new one: a result slot is reused after RPC_SLOTS_MAX results, which take at
 * most as many messages each.
 */
#define RPC_PARKED_BITS 2u
#define RPC_PARKED_MAX	((1u << RPC_PARKED_BITS) - 1)
static inline uint32_t rpc_taken_ack(uint32_t taken, uint32_t parked)
{
	return taken << RPC_PARKED_BITS | parked;
}
/* How many more messages ack reports as taken; 0 if more than ahead: then ack is old. */
static inline uint32_t rpc_newly_taken(uint32_t ack, uint32_t taken, uint32_t ahead)
{
	const uint32_t more = ((ack >> RPC_PARKED_BITS) - taken) & (UINT32_MAX >> RPC_PARKED_BITS);

	return more <= ahead ? more : 0;
}

/* Microseconds in 16 bits: a mantissa of 12 bits and a power of two. Up to two minutes. */
#define RPC_TIME_BITS 12u
#define RPC_TIME_MAX  ((1u << RPC_TIME_BITS) - 1)
static inline uint16_t rpc_time_pack(uint64_t us)
{
	uint32_t power = 0;

	for (; us > RPC_TIME_MAX && power < 15; power++)
		us >>= 1;
	return (uint16_t)(power << RPC_TIME_BITS | (us < RPC_TIME_MAX ? us : RPC_TIME_MAX));
}
static inline uint32_t rpc_time_us(uint16_t packed)
{
	return (packed & RPC_TIME_MAX) << (packed >> RPC_TIME_BITS);
}

/* An entry starts at a multiple of 8 bytes. */
struct rpc_entry {
	uint32_t len;
	uint16_t code;	/* request: method; result: status */
	uint16_t index; /* index of the call in the client's window; flag RPC_LARGE */
};
_Static_assert(sizeof(struct rpc_entry) == 8, "wire");

/*
 * Flag in the len of a request's entry: a struct rpc_time_left precedes the bytes and is counted in
 * len. Calls without a deadline do not have it.
 */
#define RPC_HAS_DEADLINE 0x80000000u
struct rpc_time_left {
	uint32_t us;
	uint32_t reserved; /* zero */
};

/*
 * Flag in an index: the bytes are this descriptor, and the receiver READs the payload from there.
 */
#define RPC_LARGE 0x8000u
#define RPC_INDEX 0x7fffu
struct rpc_large_ref {
	uint64_t offset;
	uint32_t key, len;
};

#define RPC_ALIGN	64u
#define RPC_BATCH_BYTES 128u /* len from which on a message is prefetched */
#define RPC_SHORT	64u  /* bytes copied without a call of memcpy() */
#define RPC_INLINE	256u /* bytes of a message posted with GN_INLINE, if the fabric can */

/*
 * Wake-up: a client WRITEs 0 bytes with immediate data after a long idle time, so that the server
 * polls its slots again. If the immediate data is the number of a result, the client also requests
 * a notification: the server WRITEs 0 bytes with immediate data when that result is published. At
 * most one notification per client is outstanding; the client posts RPC_NOTIFY_RECVS receives.
 */
#define RPC_NOTIFY_RECVS 2u
/* Wake-ups of a client before the next result, at most; less than RPC_RECVS. */
#define RPC_WAKES_MAX 16u

/* RNR timer: covers a thread whose handlers run long before it posts receives again. */
#define RPC_RNR_US 20000u

static inline uint32_t rpc_align8(uint32_t len)
{
	return (len + 7) & ~7u;
}

/*
 * The maximum len of a message for payloads of up to max bytes: at least a descriptor, which larger
 * payloads need.
 */
static inline uint32_t rpc_max_len(uint32_t max)
{
	const uint32_t least = (uint32_t)sizeof(struct rpc_large_ref);

	return (uint32_t)sizeof(struct rpc_entry) + rpc_align8(max < least ? least : max);
}

/* … of a request message, which may carry a time left. */
static inline uint32_t rpc_max_request(uint32_t max)
{
	return rpc_max_len(max) + (uint32_t)sizeof(struct rpc_time_left);
}

/* Bytes of a slot. */
static inline uint64_t rpc_stride(uint32_t max)
{
	const uint64_t bytes = sizeof(struct rpc_head) + (uint64_t)rpc_max_request(max) + 8;

	return (bytes + RPC_ALIGN - 1) / RPC_ALIGN * RPC_ALIGN;
}

/* The number of slots is a power of two, so that message numbers may wrap. */
static inline uint32_t rpc_round_up(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

/*
 * Behind the request slots: a cache line with the ack word, and the abandoned array: for each index
 * of the window the number of the message of the last call that its client abandoned.
 */
static inline uint64_t rpc_ack_at(uint64_t stride, uint32_t slots)
{
	return stride * slots;
}
static inline uint64_t rpc_abandoned_at(uint64_t stride, uint32_t slots, uint32_t index)
{
	return rpc_ack_at(stride, slots) + RPC_ALIGN + index * sizeof(uint32_t);
}

/* The tail follows the len bytes, which are a multiple of 8. */
static inline uint64_t rpc_tail_at(uint32_t len)
{
	return sizeof(struct rpc_head) + (uint64_t)len;
}
static inline uint64_t *rpc_tail_of(const void *slot, uint32_t len)
{
	return (uint64_t *)(uintptr_t)((const uint8_t *)slot + rpc_tail_at(len));
}

static inline uint64_t rpc_message_bytes(uint32_t len)
{
	return rpc_tail_at(len) + sizeof(uint64_t);
}

static inline uint64_t rpc_seq(uint32_t epoch, uint32_t number)
{
	return (uint64_t)epoch << 32 | number;
}

/* Differs for each sequence of a connection, and between connections. */
static inline uint64_t rpc_tail(uint64_t seq, uint64_t nonce)
{
	return seq * 0x9e3779b97f4a7c15u ^ nonce;
}

/* A connection's name, known to its two peers only. */
static inline uint64_t rpc_conn_name(uint32_t epoch, uint64_t nonce)
{
	uint64_t x = rpc_tail(rpc_seq(epoch, 0), nonce);

	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	return x ^ (x >> 32);
}

/* The crc for a message with this head. */
uint32_t rpc_checksum(const void *slot, struct rpc_head head);

/* A message whose entries are in a slot, from sizeof(struct rpc_head) on. */
struct rpc_seal {
	uint64_t seq, nonce;
	uint32_t len; /* a multiple of 8 */
	uint16_t aux, flags;
	uint32_t ack;
};

/*
 * Seals the message; the sequence is stored last, with release. Returns its size in bytes. Stores
 * are whole words, so that a copy right behind them needs no store merging.
 */
static inline uint64_t rpc_seal(void *slot, const struct rpc_seal *seal)
{
	uint64_t *words = slot;
	uint32_t crc = 0;

	__atomic_store_n(rpc_tail_of(slot, seal->len), rpc_tail(seal->seq, seal->nonce),
			 __ATOMIC_RELAXED);
	if (seal->flags & RPC_CRC)
		crc = rpc_checksum(slot, (struct rpc_head){.seq = seal->seq,
							   .len = seal->len,
							   .aux = seal->aux,
							   .flags = seal->flags,
							   .ack = seal->ack});
	__atomic_store_n(&words[1],
			 seal->len | (uint64_t)(seal->aux | (uint32_t)seal->flags << 16) << 32,
			 __ATOMIC_RELAXED);
	/* The ack may be visible before the sequence: what it reports is done by then. */
	__atomic_store_n(&words[2], crc | (uint64_t)seal->ack << 32, __ATOMIC_RELEASE);
	__atomic_store_n(&words[0], seal->seq, __ATOMIC_RELEASE);
	return rpc_message_bytes(seal->len);
}

enum rpc_found { RPC_ABSENT, RPC_TORN, RPC_FOUND };
/*
 * Is the message with this sequence in the slot? have: valid bytes of the slot, at least the head;
 * if they are fewer than the message has, only the head is checked. check: the checksum decides.
 * max: bound for len. RPC_TORN: the message is not complete, yet or for ever.
 */
enum rpc_found rpc_message_find(const void *slot, uint64_t have, uint64_t seq, uint64_t nonce,
				uint32_t max, bool check, struct rpc_head *head);

/*
 * Parses the entry at *at (from 0) of a message with len bytes. False: no complete entry. flags:
 * may be set in its len, and are kept.
 */
static inline bool rpc_entry_flagged(const void *slot, uint32_t len, uint32_t *at,
				     struct rpc_entry *entry, const uint8_t **bytes, uint32_t flags)
{
	const uint8_t *from = (const uint8_t *)slot + sizeof(struct rpc_head) + *at;
	uint32_t own;

	if (len - *at < sizeof(*entry))
		return false;
	exec_preempt();
	memcpy(entry, from, sizeof(*entry));
	own = entry->len & ~flags;
	if (own > len - *at - sizeof(*entry))
		return false;
	*bytes = from + sizeof(*entry);
	*at += (uint32_t)sizeof(*entry) + rpc_align8(own);
	return true;
}

static inline bool rpc_entry(const void *slot, uint32_t len, uint32_t *at, struct rpc_entry *entry,
			     const uint8_t **bytes)
{
	return rpc_entry_flagged(slot, len, at, entry, bytes, 0);
}

#endif
