/* SPDX-License-Identifier: MIT */
/*
 * What requester and responder agree on: the greeting of a connection, messages in memory, and
 * datagrams.
 *
 * A message that a WRITE brings is in a place of its own and says itself when it is whole:
 *
 *   numbered   number 4 │ length 4 │ checksum 4 │ 0 4 │ bytes, up to 8·n │ tail 8
 *   markers    length 4 │ marker 1 │ bytes │ marker 1     (S003 III), zeroed when it was read
 *
 * The tail is a function of the number and of the connection that no earlier content of the place
 * can have by accident. The checksum is of bytes, number and length, and only where the reader's
 * card does not place the bytes of a WRITE in order; there markers cannot be used. Length and
 * marker, number and length are read at once.
 *
 * Everything here comes from a peer, which may write what it likes and change it at any time: what
 * is checked is read once.
 */
#ifndef GN_MSG_WIRE_H
#define GN_MSG_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/exec.h"
#include "gannet/msg.h"

#define MSG_MAGIC   0x67734d67u /* "gMsg" */
#define MSG_VERSION 2u
#define MSG_REFUSED 0x80000000u /* in a length: there is no answer */
#define MSG_LINE    64u

enum msg_hello_flag {
	MSG_HELLO_MARKERS = 1 << 0, /* the requester would have markers */
	MSG_HELLO_SUMS = 1 << 1,    /* answers need a checksum */
};

/* Requester to responder, with the connection request. */
struct msg_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t protocol, flags;
	uint32_t pending, request_bytes, value_bytes;
	uint32_t nonce; /* its low bits are the requester's number of the connection */
	union {
		struct {
			uint32_t answer_key; /* of the places for answers, if they are written */
			uint32_t notice_key; /* of the word that says that the responder sleeps */
		};
		struct gn_ud_addr ud;
	};
};
_Static_assert(sizeof(struct msg_hello) == 56, "what every provider carries");

#define MSG_NONCE_CONN 0x3ffu
_Static_assert(MSG_NONCE_CONN + 1 >= GN_MSG_CONNS_MAX, "a connection's number fits");

enum msg_refusal {
	MSG_WELCOME,
	MSG_NO_VERSION,
	MSG_NO_PROTOCOL,
	MSG_NO_DATA,
	MSG_NO_ANSWERS,
	MSG_TOO_MANY_PENDING,
	MSG_TOO_LARGE_REQUEST,
	MSG_TOO_LARGE_VALUE,
	MSG_FULL,
	MSG_NO_MEMORY,
	MSG_NO_DATAGRAMS,
	MSG_REFUSALS
};

/* Responder to requester, with the acceptance; a rejection has it up to refusal. */
struct msg_welcome {
	uint32_t magic;
	uint16_t version;
	uint8_t refusal, sums; /* sums: requests need a checksum */
	uint32_t request_key, data_key;
	uint64_t data_bytes;
	uint32_t conn; /* the responder's number of it, for datagrams */
	uint32_t notice_key;
	struct gn_ud_addr ud;
};
_Static_assert(sizeof(struct msg_welcome) == 64, "one layout everywhere");
_Static_assert(sizeof(struct msg_welcome) <= GN_PRIVATE_MAX, "what an acceptance carries");

/* 0, or why not. */
enum msg_refusal msg_hello_check(const void *data, uint32_t len, struct msg_hello *out);
/* Whose it is says so; ours, if it is none at all. */
unsigned msg_welcome_version(const void *data, uint32_t len);
/* -EPROTO: it is none. A refusal is one too. */
int msg_welcome_check(const void *data, uint32_t len, struct msg_welcome *out);
const char *msg_refusal_text(unsigned refusal);

/* ---- messages in memory ---- */

enum msg_frame {
	MSG_PLAIN, /* bytes alone: SEND, WRITE_IMM, READ */
	MSG_MARKERS,
	MSG_NUMBERED,
	MSG_SUMMED, /* numbered, with a checksum */
	MSG_HEADED, /* a datagram */
};

/* How a message looks that somebody of those needs writes for a reader of those needs. */
static inline enum msg_frame msg_frame_of(bool markers, bool sums)
{
	return sums ? MSG_SUMMED : markers ? MSG_MARKERS : MSG_NUMBERED;
}

/* Where its bytes begin. */
static inline uint32_t msg_frame_head(enum msg_frame frame)
{
	return frame == MSG_PLAIN ? 0 : frame == MSG_MARKERS ? 5 : 16;
}

/* From its beginning to its end. */
static inline uint32_t msg_frame_bytes(enum msg_frame frame, uint32_t len)
{
	switch (frame) {
	case MSG_PLAIN:
		return len;
	case MSG_MARKERS:
		return len + 6;
	case MSG_HEADED:
		return 16 + len;
	default:
		return 16 + (len + 7) / 8 * 8 + 8;
	}
}

/* The last 8 bytes of message number on a connection of that nonce. */
static inline uint64_t msg_tail(uint32_t nonce, uint32_t number)
{
	return (((uint64_t)nonce << 32 | number) + 1) * 0x9e3779b97f4a7c15u;
}

/* The bytes are there already; length is len, with MSG_REFUSED or not. */
void msg_frame_put(enum msg_frame frame, uint8_t *place, uint32_t number, uint32_t nonce,
		   uint32_t length);

/* Does the first word of its place say that message number is there, or part of it? */
bool msg_frame_begun(enum msg_frame frame, uint64_t word, uint32_t number);
/*
 * Is message number there? Its length, or -EAGAIN: not yet; -EINPROGRESS: part of it; -EPROTO: it
 * says that it is longer than max.
 */
int64_t msg_frame_look(enum msg_frame frame, const uint8_t *place, uint32_t number, uint32_t nonce,
		       uint32_t max);

/* ---- datagrams ---- */

/* Before the bytes of a request or an answer. */
struct msg_datagram {
	uint16_t conn; /* the receiver's number of it */
	uint16_t place;
	uint32_t nonce, number;
	uint32_t length; /* of the bytes; MSG_REFUSED */
};
_Static_assert(sizeof(struct msg_datagram) == 16, "one layout everywhere");

/* data: without the GRH. -EPROTO: it is not whole. */
int msg_datagram_check(const void *data, uint32_t len, struct msg_datagram *out);

#endif
