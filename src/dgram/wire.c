/* SPDX-License-Identifier: MIT */
/*
 * Checks of what arrives. Any host on the network may send any bytes: nothing is used before it was
 * checked here, and nothing is read twice from a buffer.
 */
#include <errno.h>
#include <string.h>

#include "dgram/wire.h"

int dgram_hello_check(const void *bytes, uint32_t len, struct dgram_hello *out)
{
	if (len < DGRAM_HELLO_BYTES(0) || len > sizeof(*out))
		return -EPROTO;
	memset(out, 0, sizeof(*out));
	memcpy(out, bytes, len);
	if (out->magic != DGRAM_MAGIC || !out->kind || out->kind >= DGRAM_HELLO_KINDS)
		return -EPROTO;
	if (out->threads > GN_DGRAM_THREADS_MAX || len < DGRAM_HELLO_BYTES(out->threads))
		return -EPROTO;
	if (!memchr(out->addr, 0, sizeof(out->addr)))
		return -EPROTO;
	if (out->kind != DGRAM_HELLO_NEW && out->kind != DGRAM_HELLO_OK)
		return 0;
	if (!out->threads || !out->incarnation || out->datagram_bytes < GN_DGRAM_BYTES_MIN)
		return -EPROTO;
	return 0;
}

int dgram_head_check(const void *bytes, uint32_t len, struct dgram_head *out)
{
	if (len < sizeof(*out))
		return -EPROTO;
	memcpy(out, bytes, sizeof(*out));
	return out->version == DGRAM_VERSION ? 0 : -EPROTO;
}

static bool msg_is_possible(const struct dgram_msg *msg)
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

int dgram_msg_check(const uint8_t *bytes, uint32_t len, uint32_t *at, struct dgram_msg *out)
{
	const uint32_t left = len - *at;

	if (left < sizeof(*out))
		return -EPROTO;
	memcpy(out, bytes + *at, sizeof(*out));
	/* The padding of the last payload need not have been sent. */
	if (out->bytes > left - sizeof(*out) || !msg_is_possible(out))
		return -EPROTO;
	*at += (uint32_t)sizeof(*out) + dgram_padded(out->bytes);
	if (*at > len)
		*at = len;
	return 0;
}
