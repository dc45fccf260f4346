/* SPDX-License-Identifier: MIT */
/* Hellos that are almost well-formed: shared by hostile RPC clients and hostile requesters. */
#ifndef GN_TESTS_HOSTILE_EVIL_HELLO_H
#define GN_TESTS_HOSTILE_EVIL_HELLO_H

#include <string.h>

#include "../raw_endpoint.h"
#include "fuzz.h"

/* Overwrites one field of a quarter of all hellos. */
static inline void evil_hello_spoil(void *hello, uint32_t bytes)
{
	uint32_t word;

	if (fuzz_pick(4))
		return;
	word = fuzz_strange();
	memcpy((uint8_t *)hello + fuzz_pick(bytes / 4) * 4, &word, 4);
}

/* Connects with a hello, sometimes a truncated one. As gn_connect_wait(). */
static inline int evil_hello_send(struct raw_endpoint *ep, const char *addr, const void *hello,
				  uint32_t bytes, struct gn_event *event)
{
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = hello, .private_len = bytes};

	if (!fuzz_pick(16))
		opts.private_len = fuzz_pick(bytes);
	return gn_connect_wait(ep->qp, addr, &opts, event);
}

#endif
