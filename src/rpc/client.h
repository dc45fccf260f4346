/* SPDX-License-Identifier: MIT */
/* A client as its files see it. */
#ifndef GN_RPC_CLIENT_H
#define GN_RPC_CLIENT_H

#include "rpc/wire.h"

enum rpc_slot_state {
	RPC_FREE,
	RPC_WAITING, /* for its result; in the mode fetch, a read is to be posted */
	RPC_READING, /* a read is under way */
	RPC_READING_REST
};

/* A slot of a client, and the call in it. A call that ended early leaves its slot behind. */
struct rpc_slot {
	enum rpc_slot_state state;
	struct gn_rpc_op *op; /* NULL: nobody waits for the result */
	uint32_t number;
	struct rpc_head head;
};

struct gn_rpc_client {
	uint64_t owner; /* gn_thread_id() */
	enum gn_rpc_mode mode;
	bool dead;
	bool check_reply, check_fetch; /* no order is promised */
	uint32_t n_slots, max_request, max_result, fetch_bytes, max_inline;
	uint32_t epoch, number, oldest; /* of the next call; of the first that holds its slot */
	uint32_t unsignaled;
	uint64_t nonce, request_stride, result_stride;
	uint32_t request_key, result_key;

	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *local_mem, *reply_mem;
	struct gn_mr *local_mr, *reply_mr;
	uint8_t *requests, *fetched, *replies; /* slots */

	struct rpc_slot *slots;
	uint32_t reads;	   /* under way */
	bool slow_reads;   /* none is there as soon as it is posted */
	uint32_t polls;	   /* since the channel was looked at */
	uint64_t heard_ns; /* when the last result came; 0: just now */
	int ended;	   /* calls that this poll has ended */
	struct gn_rpc_counters count;
};

/* client.c */
int rpc_client_check(const struct gn_rpc_client *client); /* 0, -EINVAL, -EPERM */
/* The call in a slot ends; the slot is free if its result was seen. */
void rpc_end(struct gn_rpc_client *client, struct rpc_slot *slot, unsigned status,
	     uint32_t result_len);
/* The connection is gone: so are its calls. */
void rpc_client_die(struct gn_rpc_client *client);

/* fetch.c */
int rpc_client_poll(struct gn_rpc_client *client);

#endif
