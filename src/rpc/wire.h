/* SPDX-License-Identifier: MIT */
/*
 * What client and server agree on: the hello of a connection, and messages in slots.
 *
 * A client has N slots of three kinds: requests and results in the server's memory, and results in
 * its own for the mode reply. Call number i (1, 2, …) uses slot i % N of each. A message is
 *
 *     head │ entry │ bytes │ entry │ bytes … │ tail
 *
 * and is there when head and tail both name its sequence; where the connection does not promise the
 * order in which bytes appear, also its checksum must be right. The tail is a function of the
 * sequence that no earlier content of the slot can have by accident.
 *
 * Everything here comes from a peer, which may write what it likes and change it at any time. So a
 * head is copied once and checked before it is used, and lengths are never read again.
 */
#ifndef GN_RPC_WIRE_H
#define GN_RPC_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/rpc.h"

#define RPC_MAGIC   0x67635250u /* "gcRP" */
#define RPC_VERSION 1u

/* Client to server, with the connection request. */
struct rpc_hello {
	uint32_t magic;
	uint16_t version, bytes; /* of this struct */
	uint32_t slots, max_request, max_result;
	uint32_t thread;    /* that is to serve it, or UINT32_MAX */
	uint32_t reply_key; /* of the client's result slots */
	uint32_t reserved;
	uint64_t nonce;
	uint64_t auth[2]; /* zero; for later */
};
_Static_assert(sizeof(struct rpc_hello) == 56, "what every provider carries");

/* Server to client, with the acceptance. */
struct rpc_welcome {
	uint32_t magic;
	uint16_t version, bytes;
	uint32_t slots, max_request, max_result; /* granted */
	uint32_t request_key, result_key;
	uint32_t epoch;
	uint64_t auth[2];
};

enum rpc_flag {
	RPC_REPLY = 1 << 0, /* request: write the result back */
	RPC_CRC = 1 << 1,   /* crc is meant */
};

struct rpc_head {
	uint64_t seq;	/* epoch << 32 | number; first, so that a READ samples it first */
	uint32_t len;	/* of entries and their bytes */
	uint16_t aux;	/* request: entries; result: the server's time in us, saturating */
	uint16_t flags; /* enum rpc_flag */
	uint32_t crc;	/* CRC-32C of head (this 0), entries, bytes and tail */
	uint32_t reserved;
};
_Static_assert(sizeof(struct rpc_head) == 24, "wire");

struct rpc_entry {
	uint32_t len;
	uint16_t kind; /* request: method; result: status */
	uint16_t index;
};
_Static_assert(sizeof(struct rpc_entry) == 8, "wire");

#define RPC_ALIGN 64u

/* How long to wait for the rest of a message, which may never come: its sender may be gone. */
#define RPC_TORN_NAP_US 1u

/* Silence after which a side asks whether the other is there, by an empty WRITE. */
#define RPC_PROBE_NS 100000000u

/* Bytes of a slot for messages of up to max payload bytes in one entry. */
static inline uint64_t rpc_stride(uint32_t max)
{
	const uint64_t bytes =
		sizeof(struct rpc_head) + sizeof(struct rpc_entry) + (uint64_t)max + 7 + 8;

	return (bytes + RPC_ALIGN - 1) / RPC_ALIGN * RPC_ALIGN;
}

/* Where the tail of a message lies: right behind its len bytes, aligned. */
static inline uint64_t rpc_tail_at(uint32_t len)
{
	return (sizeof(struct rpc_head) + (uint64_t)len + 7) / 8 * 8;
}

static inline uint64_t rpc_message_bytes(uint32_t len)
{
	return rpc_tail_at(len) + sizeof(uint64_t);
}

static inline uint64_t rpc_seq(uint32_t epoch, uint32_t number)
{
	return (uint64_t)epoch << 32 | number;
}

uint64_t rpc_tail(uint64_t seq, uint64_t nonce);

/* A message is put together in a slot: bytes are there from sizeof(struct rpc_head) on. */
struct rpc_seal {
	uint64_t seq, nonce;
	uint32_t len;
	uint16_t aux, flags;
};
/* Completes it; the sequence is stored last, with release. Returns its size in bytes. */
uint64_t rpc_seal(void *slot, const struct rpc_seal *seal);

enum rpc_found { RPC_NOTHING, RPC_TORN, RPC_FOUND };
/*
 * Is the message with this sequence in the slot? have: bytes that are there, at least the head;
 * with fewer than the message has, only the head is looked at. check: order is not promised, so the
 * checksum decides. max: of len. TORN: not all of it, yet; or never, if the peer means ill.
 */
enum rpc_found rpc_look(const void *slot, uint64_t have, uint64_t seq, uint64_t nonce, uint32_t max,
			bool check, struct rpc_head *head);

/* The entry at *at (from 0) of a message with len bytes; false if there is no whole one. */
bool rpc_entry(const void *slot, uint32_t len, uint32_t *at, struct rpc_entry *entry,
	       const uint8_t **bytes);

#endif
