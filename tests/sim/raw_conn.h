/* SPDX-License-Identifier: MIT */
/* A connection to an RPC server without the library's client: only the hello is well-formed. */
#ifndef GN_TESTS_SIM_RAW_CONN_H
#define GN_TESTS_SIM_RAW_CONN_H

#include <string.h>

#include "../raw_endpoint.h"
#include "rpc/wire.h"

struct raw_conn_opts {
	const char *addr;
	uint32_t slots, max_bytes; /* of requests, and of results */
	uint64_t nonce;
};

/* Connects, with replies to the endpoint's own memory. 0 or -errno. */
static inline int raw_conn_open(struct raw_endpoint *e, const struct raw_conn_opts *o,
				struct rpc_welcome *welcome)
{
	struct gn_remote reply;
	struct gn_event event;
	struct rpc_hello hello = {
		.magic = RPC_MAGIC,
		.version = RPC_VERSION,
		.bytes = sizeof(hello),
		.slots = o->slots,
		.max_request = o->max_bytes,
		.max_result = o->max_bytes,
		.window = o->slots,
		.nonce = o->nonce,
	};
	const struct gn_conn_opts opts = {.size = sizeof(opts),
					  .private_data = &hello,
					  .private_len = sizeof(hello),
					  .timeout_us = 5000};
	int rc = gn_mr_remote(e->mr, &reply);

	hello.reply_key = reply.key;
	if (!rc)
		rc = gn_connect_wait(e->qp, o->addr, &opts, &event);
	if (!rc)
		memcpy(welcome, event.private_data, sizeof(*welcome));
	return rc;
}

#endif
