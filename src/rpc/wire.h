/* SPDX-License-Identifier: MIT */
/*
 * What client and server agree on: the hello of a connection, and messages in slots.
 *
 * A client has N slots of three kinds: requests and results in the server's memory, and results in
 * its own for the mode reply. Messages with requests are numbered 1, 2, …, and so are messages with
 * results, of which a message with requests may have several; message i uses slot i % N of its
 * kind. A message is
 *
 *     head │ entry │ bytes │ entry │ bytes … │ tail
 *
 * and is there when head and tail both name its sequence; where the connection does not promise the
 * order in which bytes appear, also its checksum must be right. The tail is a function of the
 * sequence that no earlier content of the slot can have by accident.
 *
 * A slot of requests is free when the server has taken its message: its handlers have run, and the
 * bytes of requests that are answered later were copied. Results say up to which number that is so,
 * and so does the slot of the next result, while there is none. A slot of results is free when the
 * client has said that it needs it no more: in the head of a later message, or by writing the word
 * behind the slots of requests.
 *
 * Everything here comes from a peer, which may write what it likes and change it at any time. So a
 * head is copied once and checked before it is used, and lengths are never read again.
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

/* A result's status has 16 bits; more would become another's. */
static inline uint16_t rpc_status(unsigned status)
{
	return (uint16_t)(status <= UINT16_MAX ? status : (unsigned)GN_RPC_FAILED);
}

/* Client to server, with the connection request. */
struct rpc_hello {
	uint32_t magic;
	uint16_t version, bytes; /* of this struct */
	uint32_t slots, max_request, max_result;
	uint32_t thread;    /* that is to serve it, from 1; 0: any */
	uint32_t reply_key; /* of the client's result slots */
	uint32_t window;    /* calls under way */
	uint64_t nonce;
	/*
	 * The client's earlier connection, rpc_conn_name(), and the thread that served it, from 1;
	 * 0: there was none. No request of it is begun any more when this one is accepted.
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
	uint32_t park_us; /* of silence, and the server does not look any more */
	uint32_t thread;  /* that serves the client, from 1 */
	uint64_t auth[2];
};
_Static_assert(sizeof(struct rpc_welcome) <= GN_PRIVATE_MAX, "what an acceptance carries");

/* Server to client, with a rejection: why. */
enum rpc_refusal_reason {
	RPC_REFUSED, /* for a reason that is not said */
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
#define RPC_VERSION_BYTES 6u /* magic and version, with which every greeting begins */

enum rpc_flag {
	RPC_REPLY = 1 << 0,  /* request: write the result back */
	RPC_CRC = 1 << 1,    /* crc is meant */
	RPC_ACK = 1 << 2,    /* result: say when it is not needed any more */
	RPC_RESULT = 1 << 3, /* so its word may change */
};

struct rpc_head {
	uint64_t seq;	/* epoch << 32 | number; first, so that a READ samples it first */
	uint32_t len;	/* of entries and their bytes */
	uint16_t aux;	/* request: entries; result: the server's time, rpc_time_pack() */
	uint16_t flags; /* enum rpc_flag */
	uint32_t crc;	/* CRC-32C of head (this 0, a result's word 0), entries, bytes and tail */
	/*
	 * Request: up to which number results are not needed any more. Result, and the slot where
	 * the next result will be: rpc_state_word().
	 */
	uint32_t word;
};
_Static_assert(sizeof(struct rpc_head) == 24, "wire");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is, and so are we");

/*
 * Up to which number requests are taken, and whether the server polls this client's slots: parked
 * is 0 while it does, else 1 … RPC_PARKED_MAX, another one each time. Numbers of 30 bits are enough
 * to tell an old word from a new one: a slot of results is used again after RPC_SLOTS_MAX results,
 * which take at most as many messages each.
 */
#define RPC_PARKED_BITS 2u
#define RPC_PARKED_MAX	((1u << RPC_PARKED_BITS) - 1)
static inline uint32_t rpc_state_word(uint32_t taken, uint32_t parked)
{
	return taken << RPC_PARKED_BITS | parked;
}
/* How many messages more than taken the word tells of; 0 if more than ahead: then it is old. */
static inline uint32_t rpc_newly_taken(uint32_t word, uint32_t taken, uint32_t ahead)
{
	const uint32_t more = ((word >> RPC_PARKED_BITS) - taken) & (UINT32_MAX >> RPC_PARKED_BITS);

	return more <= ahead ? more : 0;
}

/* Microseconds in 16 bits: 12 of them, and by how many powers of two more. Up to two minutes. */
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

/* Each begins at a multiple of 8 bytes. */
struct rpc_entry {
	uint32_t len;
	uint16_t kind;	/* request: method; result: status */
	uint16_t index; /* the client's name for the call; RPC_FAR */
};
_Static_assert(sizeof(struct rpc_entry) == 8, "wire");

/*
 * In the len of a request's entry: before the bytes, and counted with them, stands how much time is
 * left for the call. A call without a deadline has none of it.
 */
#define RPC_TIMED 0x80000000u
struct rpc_left {
	uint32_t us;
	uint32_t reserved; /* zero */
};

/* In an index: the bytes are elsewhere, to be READ, and these tell where. */
#define RPC_FAR	  0x8000u
#define RPC_INDEX 0x7fffu
struct rpc_far {
	uint64_t offset;
	uint32_t key, len;
};

#define RPC_ALIGN	64u
#define RPC_BATCH_BYTES 128u /* of entries, from which on a message is worth a prefetch */
#define RPC_SHORT	64u  /* up to here bytes are copied without a call */
#define RPC_INLINE	256u /* bytes of a message that is posted GN_INLINE, if the fabric can */

/*
 * A WRITE of no bytes with immediate data goes to a server whose client does something after a long
 * silence: look at its slots. With the number of a result, not 0, it also asks for the same back,
 * when that result is there: its client sleeps. A server has at most one such WRITE under way to
 * each client, a client asks for the next when the last has come, and has RPC_NOTIFY_RECVS.
 */
#define RPC_NOTIFY_RECVS 2u
/* A client wakes its server at most so many times before a result comes: RPC_RECVS are more. */
#define RPC_WAKES_MAX 16u

/* For a thread that is long about its handlers, until it has looked at the words that wake it. */
#define RPC_RNR_US 20000u

static inline uint32_t rpc_align8(uint32_t len)
{
	return (len + 7) & ~7u;
}

/*
 * The most that entries and their bytes may be, with max bytes in one entry: at least the place of
 * bytes that are elsewhere, because there is no other way for what is larger than max.
 */
static inline uint32_t rpc_max_len(uint32_t max)
{
	const uint32_t least = (uint32_t)sizeof(struct rpc_far);

	return (uint32_t)sizeof(struct rpc_entry) + rpc_align8(max < least ? least : max);
}

/* … of a request, which may have a deadline. */
static inline uint32_t rpc_max_request(uint32_t max)
{
	return rpc_max_len(max) + (uint32_t)sizeof(struct rpc_left);
}

/* Bytes of a slot for such messages. */
static inline uint64_t rpc_stride(uint32_t max)
{
	const uint64_t bytes = sizeof(struct rpc_head) + (uint64_t)rpc_max_request(max) + 8;

	return (bytes + RPC_ALIGN - 1) / RPC_ALIGN * RPC_ALIGN;
}

/* Numbers of slots are powers of two, so that message numbers may wrap. */
static inline uint32_t rpc_round_up(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

/*
 * Behind the slots of requests: a line with the number up to which results are not needed any more;
 * then a word for each index of the window: the number of the message of the last call with it that
 * its caller has given up.
 */
static inline uint64_t rpc_ack_at(uint64_t stride, uint32_t slots)
{
	return stride * slots;
}
static inline uint64_t rpc_given_up_at(uint64_t stride, uint32_t slots, uint32_t index)
{
	return rpc_ack_at(stride, slots) + RPC_ALIGN + index * sizeof(uint32_t);
}

/* Where the tail of a message lies: right behind its len bytes, which are a multiple of 8. */
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

/* Another one for each sequence of a connection, and for no other connection by accident. */
static inline uint64_t rpc_tail(uint64_t seq, uint64_t nonce)
{
	return seq * 0x9e3779b97f4a7c15u ^ nonce;
}

/* Names a connection: only its two ends know it. */
static inline uint64_t rpc_conn_name(uint32_t epoch, uint64_t nonce)
{
	uint64_t x = rpc_tail(rpc_seq(epoch, 0), nonce);

	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	return x ^ (x >> 32);
}

/* With a right head, the crc that belongs into it. */
uint32_t rpc_checksum(const void *slot, struct rpc_head head);

/* A message is put together in a slot: bytes are there from sizeof(struct rpc_head) on. */
struct rpc_seal {
	uint64_t seq, nonce;
	uint32_t len; /* a multiple of 8 */
	uint16_t aux, flags;
	uint32_t word;
};

/*
 * Completes it; the sequence is stored last, with release. Returns its size in bytes. Stores are of
 * whole words: what copies the message at once need not wait for smaller ones to come together.
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
							   .word = seal->word});
	__atomic_store_n(&words[1],
			 seal->len | (uint64_t)(seal->aux | (uint32_t)seal->flags << 16) << 32,
			 __ATOMIC_RELAXED);
	/* The word may be seen before the sequence: what it says is done by then. */
	__atomic_store_n(&words[2], crc | (uint64_t)seal->word << 32, __ATOMIC_RELEASE);
	__atomic_store_n(&words[0], seal->seq, __ATOMIC_RELEASE);
	return rpc_message_bytes(seal->len);
}

enum rpc_found { RPC_NOTHING, RPC_TORN, RPC_FOUND };
/*
 * Is the message with this sequence in the slot? have: bytes that are there, at least the head;
 * with fewer than the message has, only the head is looked at. check: order is not promised, so the
 * checksum decides. max: of len. TORN: not all of it, yet; or never, if the peer means ill.
 */
enum rpc_found rpc_look(const void *slot, uint64_t have, uint64_t seq, uint64_t nonce, uint32_t max,
			bool check, struct rpc_head *head);

/*
 * The entry at *at (from 0) of a message with len bytes; false if there is no whole one. flags:
 * that may be in its len, and stay there.
 */
static inline bool rpc_entry_with(const void *slot, uint32_t len, uint32_t *at,
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
	return rpc_entry_with(slot, len, at, entry, bytes, 0);
}

#endif
