/* SPDX-License-Identifier: MIT */
/* Between the files of the layer rpc: its load, and its programs against gannet/rpc.h. */
#ifndef GN_LAB_RPC_LOAD_H
#define GN_LAB_RPC_LOAD_H

#include "calls.h"

#define RPC_METHOD 1u

struct rpc_load {
	struct call_load call;
	bool hashed; /* a client calls all server threads, one drawn for each call; or its own */
	uint32_t req, resp;
	uint64_t work_ns; /* of the handler */
};

struct rpc_run {
	struct call_run call; /* the first: this is found by it */
	const struct rpc_load *opts;
	uint8_t *result; /* that a server may answer with */
};

/* The server. env->arg: the struct rpc_run. */
gn_node_main rpc_server_program;
/* A client. */
void rpc_call(struct caller *caller);

#endif
