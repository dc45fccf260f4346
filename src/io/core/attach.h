/* SPDX-License-Identifier: MIT */
/*
 * How a data connection attaches to a donor: the private data of the connect request and of the
 * donor's reply. Freestanding: the kernel module compiles this header, too. Integers are
 * little-endian.
 *
 * A data connection is one channel of a session (IO_ATTACH_SESSION, with the token that the
 * donor's HELLO call returned), or it has access to one shared range (IO_ATTACH_SHARE, with a
 * token that SHARE returned; such a connection is its own session and has one or more channels).
 *
 * generation counts the connections of one channel. Before the donor accepts generation g it has
 * *destroyed* the qp of every lower generation of that channel, so that no WRITE of the old qp can
 * land after the new qp carries data (the fence). It rejects a generation that is not higher than
 * the last one that it accepted. A client that resumes a session begins with a generation above all
 * earlier ones, which the donor's HELLO call returns; an earlier user of the session that comes
 * back is refused for good. A client that opens a share again does not know the last generation:
 * the donor's refusal of generation 1 states it, and the client begins in the next epoch.
 *
 * The upper bits of a generation are its epoch: they count the clients that took the session or
 * the share over. A connection of a later epoch ends those of all channels of earlier ones.
 */
#ifndef GN_IO_CORE_ATTACH_H
#define GN_IO_CORE_ATTACH_H

#include <stddef.h>
#include <stdint.h>

#define IO_ATTACH_MAGIC	  0x6f696e67u /* "gnio" */
#define IO_ATTACH_VERSION 1u
#define IO_TOKEN_BYTES	  16u
#define IO_CHANNELS_MAX	  16u /* of one session, or of one share token */
#define IO_EPOCH_SHIFT	  20u
#define IO_EPOCH_MAX	  4095u

enum io_attach_kind { IO_ATTACH_SESSION = 1, IO_ATTACH_SHARE = 2 };

/* Private data of the connect request: fits the 56 bytes that every provider carries. */
struct io_attach {
	uint32_t magic;
	uint16_t version;
	uint8_t kind; /* enum io_attach_kind */
	uint8_t reserved;
	uint8_t token[IO_TOKEN_BYTES];
	uint64_t incarnation; /* the donor that issued the token; 0: any */
	uint32_t channel;     /* below IO_CHANNELS_MAX */
	uint32_t generation;  /* from 1 */
};

enum io_attach_status {
	IO_ATTACH_OK,
	IO_ATTACH_BAD_REQUEST, /* magic, length, kind or channel */
	IO_ATTACH_BAD_VERSION,
	IO_ATTACH_BAD_TOKEN,	     /* unknown, expired or revoked: the same answer for all */
	IO_ATTACH_OTHER_INCARNATION, /* the donor restarted: what it held is lost */
	IO_ATTACH_OLD_GENERATION,
	IO_ATTACH_BUSY, /* a limit is reached, or the old qp is still being destroyed: try again */
	IO_ATTACH_STATUSES
};

/* Private data of the donor's accept or reject. */
struct io_attach_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t status; /* enum io_attach_status */
	uint64_t incarnation;
	/* IO_ATTACH_SHARE: the range as the fabric's remote address, and its rights. */
	uint64_t offset, length;
	uint32_t key;
	uint32_t rights; /* IO_RIGHT_READ | IO_RIGHT_WRITE */
	/* OLD_GENERATION: the last that was accepted, or its epoch's first; else the request's. */
	uint32_t generation;
	uint32_t reserved;
};

#define IO_RIGHT_READ  1u
#define IO_RIGHT_WRITE 2u

_Static_assert(sizeof(struct io_attach) == 40, "wire format");
_Static_assert(offsetof(struct io_attach, token) == 8, "wire format");
_Static_assert(offsetof(struct io_attach, incarnation) == 24, "wire format");
_Static_assert(offsetof(struct io_attach, channel) == 32, "wire format");
_Static_assert(sizeof(struct io_attach_reply) == 48, "wire format");
_Static_assert(offsetof(struct io_attach_reply, incarnation) == 8, "wire format");
_Static_assert(offsetof(struct io_attach_reply, key) == 32, "wire format");

#endif
