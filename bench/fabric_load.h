/* SPDX-License-Identifier: MIT */
/* The control block of the load of a cluster's fabric, and what its clients and servers share. */
#ifndef GN_BENCH_FABRIC_LOAD_H
#define GN_BENCH_FABRIC_LOAD_H

#include "fabric.h"

#define FABRIC_QKEY 0x6c616274u

struct fabric_run {
	struct load_run load;
	struct bench_fabric_opts opts;
};

/* What an accepted connection is told. */
struct fabric_hello {
	struct gn_remote remote;
	struct gn_ud_addr ud;
};

static inline struct fabric_run *fabric_run_of(struct load_run *run)
{
	return (struct fabric_run *)run;
}

static inline bool fabric_ud(const struct bench_fabric_opts *o)
{
	return o->op == BENCH_UD_SEND;
}

/* From one buffer to the next, of a requester or a target. */
static inline uint32_t fabric_buffer_bytes(const struct bench_fabric_opts *o)
{
	const uint32_t bytes = o->lead_bytes ? o->lead_bytes + o->size_bytes :
					       (o->size_bytes + 63) / 64 * 64;

	return bytes + (fabric_ud(o) ? GN_GRH_BYTES : 0);
}

/* Bytes of a target's memory that one connection uses. */
static inline uint64_t fabric_target_bytes(const struct bench_fabric_opts *o)
{
	return (uint64_t)fabric_buffer_bytes(o) * (o->window_qp ? o->window_qp : 1);
}

/* ---- connections (fabric_topology.c) ---- */

/* Nodes and processes that request and that are reached; threads of a node or process. */
struct fabric_shape {
	uint32_t nodes;
	uint32_t first_client_node, client_nodes, client_procs_per_node, threads_per_proc;
	uint32_t first_server_node, server_nodes, servers_per_node;
};

struct fabric_shape fabric_shape(const struct bench_fabric_opts *opts);
/* The connections of each client, or of each group of clients that share them. */
uint32_t fabric_conns(const struct bench_fabric_opts *opts);
/* The server at the other end of connection i of a process with clients. */
uint32_t fabric_server_of(const struct bench_fabric_opts *opts, uint32_t client_proc, uint32_t i);
/* Connections that clients make to a server. */
uint32_t fabric_accepts(const struct bench_fabric_opts *opts, uint32_t server);
/* Requests that a client can have under way. */
uint32_t fabric_window(const struct bench_fabric_opts *opts, uint32_t client);

/* ---- a process (fabric_server.c, fabric_client.c) ---- */

struct fabric_end;

struct fabric_side {
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	/* Of clients. */
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct fabric_end *ends;
	uint32_t n_ends;
};

int fabric_serve(struct load_proc *proc, uint32_t number);

#endif
