/* SPDX-License-Identifier: MIT */
/*
 * Wire formats of requester and responder: connection private data, messages in memory, datagrams.
 *
 * A message that is WRITTEN into a slot shows by itself when it is complete:
 *
 *   sequenced  seq 4 │ length 4 │ checksum 4 │ 0 4 │ payload, padded to 8·n │ tail 8
 *   markers    length 4 │ marker 1 │ payload │ marker 1    zeroed after it was read
 *
 * (Markers: "An Evaluation of RDMA-based Message Passing Protocols", III.) The tail is a hash of
 * the sequence number and the connection's nonce; earlier content of the slot cannot match it by
 * accident. The checksum covers payload, sequence number and length. It is used only where the
 * reader's device does not place the bytes of a WRITE in order; markers are not used there. The
 * first 8 bytes are read at once.
 *
 * A peer may write anything and change it at any time: every checked value is loaded once.
 */
#ifndef GN_MSG_WIRE_H
#define GN_MSG_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/exec.h"
#include "gannet/msg.h"

#define MSG_MAGIC      0x67734d67u /* "gMsg" */
#define MSG_VERSION    2u
#define MSG_REFUSED    0x80000000u /* in a length: the request was refused */
#define MSG_CACHE_LINE 64u

enum msg_hello_flag {
	MSG_HELLO_MARKERS = 1 << 0,   /* the requester prefers markers */
	MSG_HELLO_CHECKSUMS = 1 << 1, /* answers need a checksum */
};

/* Private data of the connection request. */
struct msg_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t protocol, flags;
	uint32_t pending, request_bytes, value_bytes;
	uint32_t nonce; /* the low bits are the requester's index of the connection */
	union {
		struct {
			uint32_t answer_key; /* rkey of the answer slots, if answers are WRITTEN */
			uint32_t sleep_key;  /* rkey of the requester's sleep words */
		};
		struct gn_ud_addr ud;
	};
};
_Static_assert(sizeof(struct msg_hello) == 56, "what every provider carries");

#define MSG_NONCE_CONN 0x3ffu
_Static_assert(MSG_NONCE_CONN + 1 >= GN_MSG_CONNS_MAX, "a connection's seq fits");

enum msg_refusal {
	MSG_ACCEPTED,
	MSG_NO_VERSION,
	MSG_NO_PROTOCOL,
	MSG_NO_DATA,
	MSG_READ_ONLY,
	MSG_TOO_MANY_PENDING,
	MSG_TOO_LARGE_REQUEST,
	MSG_TOO_LARGE_VALUE,
	MSG_FULL,
	MSG_NO_MEMORY,
	MSG_NO_DATAGRAMS,
	MSG_REFUSALS
};

/* Private data of the ACCEPT. A REJECT carries it up to refusal. */
struct msg_welcome {
	uint32_t magic;
	uint16_t version;
	uint8_t refusal, checksums; /* checksums: requests need one */
	uint32_t request_key, data_key;
	uint64_t data_bytes;
	uint32_t conn; /* the responder's index of the connection, for datagrams */
	uint32_t sleep_key;
	struct gn_ud_addr ud;
};
_Static_assert(sizeof(struct msg_welcome) == 64, "one layout everywhere");
_Static_assert(sizeof(struct msg_welcome) <= GN_PRIVATE_MAX, "what an acceptance carries");

/* MSG_ACCEPTED, or the reason for a refusal. */
enum msg_refusal msg_hello_check(const void *data, uint32_t len, struct msg_hello *out);
/* The sender's version; our own if data is not a welcome at all. */
unsigned msg_welcome_version(const void *data, uint32_t len);
/* -EPROTO: not a valid welcome. A refusal is valid. */
int msg_welcome_check(const void *data, uint32_t len, struct msg_welcome *out);
const char *msg_refusal_text(unsigned refusal);

/* ---- messages in memory ---- */

enum msg_frame {
	MSG_PLAIN, /* payload only: SEND, WRITE_IMM, READ */
	MSG_MARKERS,
	MSG_SEQUENCED,
	MSG_CHECKSUMMED,    /* sequenced, with a checksum */
	MSG_DATAGRAM_FRAME, /* header and payload */
};

/* The frame for a sender that prefers markers and a reader that needs checksums. */
static inline enum msg_frame msg_frame_of(bool markers, bool checksums)
{
	return checksums ? MSG_CHECKSUMMED : markers ? MSG_MARKERS : MSG_SEQUENCED;
}

/* Offset of the payload. */
static inline uint32_t msg_frame_head(enum msg_frame frame)
{
	return frame == MSG_PLAIN ? 0 : frame == MSG_MARKERS ? 5 : 16;
}

/* Length of the whole frame. */
static inline uint32_t msg_frame_bytes(enum msg_frame frame, uint32_t len)
{
	switch (frame) {
	case MSG_PLAIN:
		return len;
	case MSG_MARKERS:
		return len + 6;
	case MSG_DATAGRAM_FRAME:
		return 16 + len;
	default:
		return 16 + (len + 7) / 8 * 8 + 8;
	}
}

/* The tail of message seq on the connection with this nonce. */
static inline uint64_t msg_tail(uint32_t nonce, uint32_t seq)
{
	return (((uint64_t)nonce << 32 | seq) + 1) * 0x9e3779b97f4a7c15u;
}

/* Adds header and tail to the payload in slot. length: of the payload, may include MSG_REFUSED. */
void msg_frame_put(enum msg_frame frame, uint8_t *slot, uint32_t seq, uint32_t nonce,
		   uint32_t length);

/* Does the first word of the slot show message seq, or part of it? */
bool msg_frame_started(enum msg_frame frame, uint64_t word, uint32_t seq);
/*
 * Returns the length of message seq in the slot, or -EAGAIN: not there; -EINPROGRESS: partly there;
 * -EPROTO: longer than max.
 */
int64_t msg_frame_peek(enum msg_frame frame, const uint8_t *slot, uint32_t seq, uint32_t nonce,
		       uint32_t max);

/* ---- datagrams ---- */

/* Precedes the payload of a request or an answer. */
struct msg_datagram {
	uint16_t conn; /* the receiver's index of the connection */
	uint16_t slot;
	uint32_t nonce, seq;
	uint32_t length; /* of the payload; may include MSG_REFUSED */
};
_Static_assert(sizeof(struct msg_datagram) == 16, "one layout everywhere");

/* data: behind the GRH. -EPROTO: the length is wrong. */
int msg_datagram_check(const void *data, uint32_t len, struct msg_datagram *out);

#endif
