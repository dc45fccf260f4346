/* SPDX-License-Identifier: MIT */
/* Checks of hellos; those of datagrams are in wire.h. */
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
