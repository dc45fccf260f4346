/* SPDX-License-Identifier: MIT */
/*
 * Memory shared by two processes, and the message rings. The layouts are wire formats between
 * processes that may be built from different versions: fixed width, checked sizes; every value is
 * validated.
 *
 * Each side of a connection owns one area, in a memfd that it has mapped and then sealed: the owner
 * writes, the peer reads.
 *
 *   block 0 credit      as receiver: receives posted, slots and data bytes consumed
 *   block 1 conn_state  state, requested wake-ups, mems sent
 *   block 2 busy        odd while this side copies under keys of the peer
 *   …       sizes       of the posted receives, a ring of rq_size
 *   …       slots       SHM_SLOTS cache lines: messages, up to SLOT_INLINE bytes in the line
 *   …       data        SHM_DATA bytes: longer messages, in fragments
 */
#ifndef GN_SHM_RING_H
#define GN_SHM_RING_H

#include "base/bits.h"

#include <stdint.h>

#define SHM_SLOTS    256u
#define SHM_DATA     (256u * 1024)
#define SHM_FRAGMENT (SHM_DATA / 4) /* largest fragment, so that sender and receiver overlap */
#define SLOT_INLINE  48u

enum area_state { AREA_OPEN, AREA_ERROR, AREA_CLOSED };

struct area_credit {
	uint64_t posted;
	uint64_t slots_consumed;
	uint64_t data_consumed;
	uint8_t pad[104];
};

struct area_conn_state {
	uint32_t state; /* enum area_state */
	uint32_t armed; /* generation << 2 | enum soft_armed: wake once when a message arrives */
	uint32_t tx_waiting; /* not 0: wake once when there is credit again */
	/* the smallest receive ever posted: shorter messages need no look at sizes */
	uint32_t recv_floor;
	uint64_t mems; /* sent to the peer so far; UINT64_MAX: more will follow */
	uint8_t pad[104];
};

struct area_busy {
	uint64_t posting;
	uint64_t requested; /* the last request that the peer should execute: serve.c */
	uint8_t pad[112];
};

/*
 * head is stored last with release: sequence (32 bits) | fragment length (24) | enum slot_flag (8).
 */
struct slot {
	uint64_t head;
	uint32_t msg_len;
	uint32_t imm;
	union {
		uint8_t bytes[SLOT_INLINE];
		uint64_t data_at; /* position in the data ring, counted since the start */
	};
};

enum slot_flag {
	SLOT_FIRST = 1,
	SLOT_LAST = 2,
	SLOT_IMM = 4,
	SLOT_WRITE_IMM = 8, /* the payload was WRITTEN; msg_len is its length */
	SLOT_SOLICITED = 16,
	SLOT_INLINED = 32,
	SLOT_TOO_LONG = 64, /* longer than the receive: fail the receive */
};

static inline uint64_t slot_head(uint64_t position, uint32_t piece_len, uint32_t flags)
{
	return (position + 1) << 32 | (uint64_t)piece_len << 8 | flags;
}
static inline uint32_t slot_seq(uint64_t head)
{
	return (uint32_t)(head >> 32);
}
static inline uint32_t slot_len(uint64_t head)
{
	return (uint32_t)(head >> 8) & 0xffffffu;
}
static inline uint32_t slot_flags(uint64_t head)
{
	return (uint32_t)head & 0xffu;
}

struct area {
	struct area_credit credit;
	struct area_conn_state conn_state;
	struct area_busy busy;
	uint8_t rest[]; /* sizes, slots, data */
};

_Static_assert(sizeof(struct area_credit) == 128, "two lines, for the prefetcher fetches pairs");
_Static_assert(sizeof(struct area_conn_state) == 128,
	       "two lines, for the prefetcher fetches pairs");
_Static_assert(sizeof(struct area_busy) == 128, "two lines, for the prefetcher fetches pairs");
_Static_assert(sizeof(struct slot) == 64, "one line");
_Static_assert(SHM_FRAGMENT < 1u << 24, "a piece's length has 24 bits");

/* rq_size: a power of two, at least 16. */
static inline size_t area_slots_at(uint32_t rq_size)
{
	return sizeof(struct area) + rq_size * sizeof(uint32_t);
}
static inline size_t area_data_at(uint32_t rq_size)
{
	return area_slots_at(rq_size) + SHM_SLOTS * sizeof(struct slot);
}
static inline size_t area_bytes(uint32_t rq_size)
{
	return area_data_at(rq_size) + SHM_DATA;
}

/*
 * A datagram ring has one sender and one receiver. Both write it, and each validates what the other
 * wrote.
 */
#define UD_SLOTS  128u
#define UD_DATA	  (64u * 1024)
#define UD_INLINE 96u

/* Two lines; a datagram of up to 32 bytes needs the first one only. */
struct ud_slot {
	uint64_t head; /* as in struct slot */
	uint32_t qkey;
	uint32_t imm;
	uint32_t src_qpn;
	uint32_t reserved;
	uint64_t data_at;
	uint8_t bytes[UD_INLINE];
};
_Static_assert(sizeof(struct ud_slot) == 128, "two lines, for the prefetcher fetches pairs");

struct ud_ring {
	/* written by the receiver for each datagram; read by the sender if the ring seems full */
	uint64_t slots_consumed;
	uint64_t data_consumed;
	uint8_t consumed_pad[112];
	/* written by the receiver before it sleeps; the sender reads it for each datagram */
	uint32_t armed; /* as in struct area_conn_state */
	uint8_t armed_pad[124];
	/* written by the sender before it sends the ring */
	uint8_t src_gid[16];
	uint8_t sender_pad[112];
	struct ud_slot slots[UD_SLOTS];
	uint8_t data[UD_DATA];
};
_Static_assert(offsetof(struct ud_ring, armed) == 128, "apart from the counters");
_Static_assert(offsetof(struct ud_ring, slots) == 384, "wire");

/*
 * An entry of a pd's grant table, written by its owner and read by the peers of its qps. word is
 * stored last with release and cleared first: key in the low half, access in the high half. The
 * bits of access from GRANT_SERIAL on are a serial number, so that an entry never has the same word
 * twice: a peer that has seen a word before knows the rest.
 */
#define GRANT_SERIAL 8u
#define GRANT_SERVED (1u << 7) /* the peer has no mapping: the owner executes requests (serve.c) */
struct grant {
	union {
		struct {
			uint32_t key; /* 0: none */
			uint32_t access;
		};
		uint64_t word;
	};
	uint64_t mem_id;
	uint64_t base; /* offset of the region in the mem */
	uint64_t length;
};
_Static_assert(sizeof(struct grant) == 32, "two to a line");
_Static_assert(offsetof(struct grant, access) == 4, "the word's high half: little-endian only");

#endif
