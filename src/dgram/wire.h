/* SPDX-License-Identifier: MIT */
/*
 * What endpoints and nodes send each other. All integers are little-endian.
 *
 * A datagram is a head and up to 255 messages, each with its payload padded to 8 bytes:
 *
 *     │ struct dgram_head │ struct dgram_msg │ payload … │ struct dgram_msg │ payload … │
 *
 * Calls of one endpoint to one peer are numbered from 0. A call also has a slot. The receiver
 * executes a request whose number is above the slot's last one.
 *
 * Counters of the head are cumulative and compare as serial numbers: lost, repeated and reordered
 * datagrams change nothing: the receiver keeps the largest value.
 *     granted   requests with numbers below this one may be sent to the sender of this datagram
 *     done      the sender's calls below this number have ended, and will not be repeated
 *     returned  numbers that the sender has skipped to give their credits back
 *     floor     the sender has freed the slots of calls below this number: confirms DGRAM_IDLE
 *
 * Messages
 *     REQUEST  code: method, total: length of the request, payload: its first bytes
 *     ANSWER   code: status, total: length of the result, payload: its first bytes
 *     PIECE    of a request or an answer (code: DGRAM_OF_…): total: offset of the payload
 *     ACK      of a large request or answer (code), total: pieces below this one may be sent;
 *              payload: a bitmap of the pieces that have arrived
 *     CANCEL   the caller does not wait for the answer any more: execute the call never, if it has
 *              not begun; its answer may be empty
 * A request, its pieces and its cancel use the credit of the call's number, however often they are
 * sent. The attempt of a request is repeated in the answer, to measure round trips (Karn).
 */
#ifndef GN_DGRAM_WIRE_H
#define GN_DGRAM_WIRE_H

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gannet/dgram.h"

#define DGRAM_VERSION	1u
#define DGRAM_MSGS_MAX	255u /* of one datagram */
#define DGRAM_WANT_MAX	255u
#define DGRAM_ALIGN	8u
#define DGRAM_GRANT_MIN 1u /* credits of a new session, without a message */

enum dgram_head_flag {
	DGRAM_ECHO = 1 << 0, /* answer with a datagram, if need be an empty one */
	DGRAM_IDLE = 1 << 1, /* the sender has no calls outstanding: done is its next number */
	DGRAM_GONE = 1 << 2, /* the sender has ended the epoch: it was idle, and a limit reached */
};

struct dgram_head {
	uint8_t version;
	uint8_t flags;	/* enum dgram_head_flag */
	uint8_t count;	/* messages */
	uint8_t want;	/* calls that wait for credits */
	uint32_t peer;	/* DGRAM_PEER(receiver's index of the association, sender's thread) */
	uint64_t epoch; /* of the two nodes */
	uint32_t granted;
	uint32_t done;
	uint32_t returned;
	uint32_t floor;
};
static_assert(sizeof(struct dgram_head) == 32, "wire");
static_assert(offsetof(struct dgram_head, epoch) == 8, "wire");
static_assert(offsetof(struct dgram_head, granted) == 16, "wire");

#define DGRAM_PEER(index, thread) ((index) << 8 | (thread))
#define DGRAM_PEER_INDEX(peer)	  ((peer) >> 8)
#define DGRAM_PEER_THREAD(peer)	  ((peer)&0xff)
static_assert(GN_DGRAM_THREADS_MAX <= 256, "wire");

enum dgram_type {
	DGRAM_REQUEST = 1,
	DGRAM_ANSWER,
	DGRAM_PIECE,
	DGRAM_ACK,
	DGRAM_CANCEL,
	DGRAM_TYPES
};

enum dgram_of { DGRAM_OF_REQUEST, DGRAM_OF_ANSWER };

struct dgram_msg {
	uint8_t type; /* enum dgram_type */
	uint8_t attempt;
	uint16_t slot;
	uint32_t number;
	uint16_t code;	/* method, status, or enum dgram_of */
	uint16_t bytes; /* payload in this datagram, without its padding */
	uint32_t total; /* length of the message, offset of the piece, or pieces granted */
};
static_assert(sizeof(struct dgram_msg) == 16, "wire");
static_assert(offsetof(struct dgram_msg, number) == 4, "wire");
static_assert(offsetof(struct dgram_msg, total) == 12, "wire");

static inline uint32_t dgram_padded(uint32_t bytes)
{
	return (bytes + DGRAM_ALIGN - 1) & ~(DGRAM_ALIGN - 1);
}

/* Serial numbers: is a before b? */
static inline bool dgram_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* ---- handshake: one message each way over an RC connection ---- */

#define DGRAM_MAGIC UINT64_C(0x316d617267646e67) /* "gndgram1" */

enum dgram_hello_kind {
	DGRAM_HELLO_NEW = 1, /* initiator: make an epoch */
	DGRAM_HELLO_CHECK,   /* initiator: is this epoch still yours? */
	DGRAM_HELLO_OK,	     /* acceptor: made, or still valid */
	DGRAM_HELLO_UNKNOWN, /* acceptor: the epoch of the check is not, or not any more, known */
	DGRAM_HELLO_BUSY,    /* acceptor: not ready, or a limit is reached; try again later */
	DGRAM_HELLO_REFUSED, /* acceptor: options that do not match, or a false address */
	DGRAM_HELLO_VERIFY,  /* initiator: have you sent NEW with this number to me? */
	DGRAM_HELLO_BYE,     /* initiator: this epoch ends; its node is destroyed */
	DGRAM_HELLO_KINDS
};

/*
 * The epoch of a node pair is dgram_epoch() of both sides' random bits. incarnation identifies a
 * node object: a restarted process has another one. attempt numbers the hellos of an incarnation,
 * so that an acceptor takes none after a later one.
 */
struct dgram_hello {
	uint64_t magic;
	uint32_t kind; /* enum dgram_hello_kind */
	uint32_t threads;
	uint64_t incarnation;
	uint64_t random; /* this side's bits of the epoch */
	uint64_t epoch;	 /* CHECK, BYE: in question; VERIFY: random of the NEW in question */
	uint64_t attempt;
	uint32_t index; /* of the association at the sender, for the head of datagrams to it */
	uint32_t flags; /* GN_DGRAM_MAPPED */
	uint32_t datagram_bytes; /* longest datagram that the sender receives */
	uint32_t reserved;
	char addr[GN_DGRAM_ADDR_MAX]; /* the sender listens there; "": nowhere */
	struct gn_ud_addr thread[GN_DGRAM_THREADS_MAX];
};
static_assert(sizeof(struct dgram_hello) == 64 + GN_DGRAM_ADDR_MAX + 32 * GN_DGRAM_THREADS_MAX,
	      "wire");
static_assert(offsetof(struct dgram_hello, index) == 48, "wire");

#define DGRAM_HELLO_BYTES(threads) \
	((uint32_t)(offsetof(struct dgram_hello, thread) + (threads) * sizeof(struct gn_ud_addr)))

/* Mixes both sides' random bits; never 0. */
static inline uint64_t dgram_epoch(uint64_t initiator, uint64_t acceptor)
{
	uint64_t x = initiator ^ (acceptor << 23 | acceptor >> 41);

	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	x ^= x >> 31;
	return x ? x : 1;
}

/* Returns 0, or -EPROTO for bytes that are no hello of this version. */
int dgram_hello_check(const void *bytes, uint32_t len, struct dgram_hello *out);
/*
 * ---- checks of datagrams: any host on the network may send any bytes. Nothing is used before it
 * was checked here, and nothing is read twice from a buffer. ----
 */

/* Checks the head of a datagram; the messages are checked one by one. */
static inline int dgram_head_check(const void *bytes, uint32_t len, struct dgram_head *out)
{
	if (len < sizeof(*out))
		return -EPROTO;
	memcpy(out, bytes, sizeof(*out));
	return out->version == DGRAM_VERSION ? 0 : -EPROTO;
}

static inline bool dgram_msg_is_possible(const struct dgram_msg *msg)
{
	if (msg->slot >= GN_DGRAM_SLOTS)
		return false;
	switch (msg->type) {
	case DGRAM_REQUEST:
	case DGRAM_ANSWER:
		return msg->total <= GN_DGRAM_BYTES_MAX && msg->bytes <= msg->total;
	case DGRAM_PIECE:
		return msg->code <= DGRAM_OF_ANSWER && msg->bytes &&
		       msg->total < GN_DGRAM_BYTES_MAX &&
		       msg->bytes <= GN_DGRAM_BYTES_MAX - msg->total;
	case DGRAM_ACK:
		return msg->code <= DGRAM_OF_ANSWER;
	case DGRAM_CANCEL:
		return !msg->bytes;
	default:
		return false;
	}
}

/*
 * Takes the message at *at of a datagram of len bytes, and moves *at behind its payload. -EPROTO:
 * it does not fit, or has impossible values.
 */
static inline int dgram_msg_check(const uint8_t *bytes, uint32_t len, uint32_t *at,
				  struct dgram_msg *out)
{
	const uint32_t left = len - *at;

	if (left < sizeof(*out))
		return -EPROTO;
	memcpy(out, bytes + *at, sizeof(*out));
	/* The padding of the last payload need not have been sent. */
	if (out->bytes > left - sizeof(*out) || !dgram_msg_is_possible(out))
		return -EPROTO;
	*at += (uint32_t)sizeof(*out) + dgram_padded(out->bytes);
	if (*at > len)
		*at = len;
	return 0;
}

#endif
