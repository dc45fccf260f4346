/* SPDX-License-Identifier: MIT */
/* The control block of the load of calls, and what its client and its server share. */
#ifndef GN_BENCH_RPC_LOAD_H
#define GN_BENCH_RPC_LOAD_H

#include "limit.h"
#include "rpc.h"

enum rpc_method {
	METHOD_ECHO,
	METHOD_CACHELINE, /* answer pings until CACHELINE_END, then the call */
	METHOD_BARE,	  /* answer what is in the rings of the limit until the next order */
};

struct rpc_run {
	struct load_run load;
	struct bench_rpc_opts opts;
	uint64_t bare_batches; /* that the limit's other side has answered */
	LINE uint64_t held;    /* the order that METHOD_BARE obeys */
	LINE uint8_t limit[];  /* rings without calls: slots for requests, slots for results */
};

static inline struct limit_opts rpc_limit_opts(const struct bench_rpc_opts *o)
{
	return (struct limit_opts){.request_bytes = o->request_bytes,
				   .result_bytes = o->result_bytes,
				   .batch = o->load.batch,
				   .inflight = o->load.inflight,
				   .work_us = o->work_us,
				   .seed = o->load.seed};
}

static inline struct limit_place rpc_limit_place(struct rpc_run *run)
{
	return (struct limit_place){.shared = &run->load.pair,
				    .opts = rpc_limit_opts(&run->opts),
				    .answered = &run->bare_batches,
				    .rings = run->limit};
}

static inline enum gn_rpc_mode rpc_mode_of(enum bench_rpc_mode mode)
{
	return mode == BENCH_RPC_REPLY	? GN_RPC_REPLY :
	       mode == BENCH_RPC_HYBRID ? GN_RPC_HYBRID :
					  GN_RPC_FETCH;
}

/*
 * Batches that a client may have under way, as a client's or server's option. Two at least, so that
 * one is gathered while one is away. The papers have one.
 */
uint32_t rpc_slots(const struct bench_rpc_opts *opts);
/* Bytes of a slot for a batch of requests or results of so many bytes. */
uint32_t rpc_slot_bytes(const struct bench_rpc_opts *opts, uint32_t each);

/* ---- the echo (rpc_server.c) ---- */

struct rpc_echo {
	uint32_t bytes; /* of a result */
	uint64_t work_ns;
	bool in_place, grouped;
	uint8_t *fill; /* the bytes of a result behind those that are the request's */
};

int rpc_echo_init(struct rpc_echo *echo, const struct bench_rpc_opts *opts);
void rpc_echo_free(struct rpc_echo *echo);
/* Handles METHOD_ECHO: call by call, or in groups where calls come in batches. */
int rpc_echo_handle(struct rpc_echo *echo, struct gn_rpc_server *server);

/* ---- calls (rpc_client.c) ---- */

/* n operations of METHOD_ECHO; *bytes has requests and results. gn_free() frees both. */
int rpc_ops_make(const struct bench_rpc_opts *opts, uint32_t n, uint64_t seed,
		 void (*done)(struct gn_rpc_op *op), void *arg, struct gn_rpc_op **ops,
		 uint8_t **bytes);

/* The first connection. */
struct gn_rpc_client *rpc_client_connection(const struct load_client *client);

/* ---- the server (rpc_server.c) ---- */

int rpc_serve(struct load_proc *proc, uint32_t number);

#endif
