/* SPDX-License-Identifier: MIT */
/*
 * A server as its files see it. Every thread owns its connections with all that belongs to them; a
 * request may be answered by any thread, so what answering touches is the request's own, and what
 * only the owner may do is sent there by a queue.
 */
#ifndef GN_RPC_SERVER_H
#define GN_RPC_SERVER_H

#include "rpc/wire.h"

#define RPC_PAGE_METHODS 256u

struct rpc_method {
	gn_rpc_handler *fn;
	void *arg;
};

/* What other threads ask of a server thread. */
enum rpc_ask { RPC_ASK_STOP, RPC_ASK_ACCEPT, RPC_ASK_POST };

struct rpc_work {
	enum rpc_ask ask;
};

struct rpc_newcomer {
	struct rpc_work work;
	struct gn_conn_req *req;
	struct rpc_hello hello;
};

struct gn_rpc_request {
	struct rpc_work work;
	struct rpc_conn *conn;
	uint32_t number;
	uint16_t flags, index; /* of the request message and its entry */
	bool busy;	       /* atomic: it was handed out, and not answered yet */
	uint16_t method;
	const uint8_t *data;
	uint32_t len;
	uint64_t begin_ns;
};

struct rpc_conn {
	struct rpc_thread *thread;
	struct rpc_conn *next, **prev;
	uint64_t client;
	bool established, dead;
	bool heard;  /* since the last round of probes */
	bool failed; /* it is to end, when nobody looks at it: rpc_thread.failed */
	bool check_request, check_fetch; /* no order is promised */
	uint32_t n_slots, max_request, max_result, epoch;
	uint32_t number; /* of the next request */
	uint32_t unsignaled;
	uint32_t pending; /* atomic: requests that were not answered yet */
	uint32_t reply_key;
	uint64_t nonce, request_stride, result_stride;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *request_mem, *result_mem;
	struct gn_mr *request_mr, *result_mr;
	uint8_t *requests, *results;
	uint8_t *scratch; /* RPC_RACES_SHOW */
	struct gn_rpc_request *slots;
};

struct rpc_thread {
	struct gn_rpc_server *server;
	unsigned index;
	struct gn_thread *thread;
	uint64_t id; /* gn_thread_id(), once it runs */
	bool stop;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_queue *queue;
	uint32_t asking; /* atomic: threads that are just pushing */
	struct rpc_conn *conns, *dying;
	bool failed;	   /* some of them have */
	uint64_t probe_ns; /* when clients are asked whether they are there */
	uint32_t turns, n_conns;
	struct rpc_work stop_work;
	struct gn_rpc_counters count;
};

struct gn_rpc_server {
	struct gn_fabric *fabric;
	char *addr;
	struct gn_rpc_server_opts opts;
	struct rpc_method *methods[GN_RPC_METHODS_MAX / RPC_PAGE_METHODS];
	struct gn_listener *listener;
	struct rpc_thread *threads;
	unsigned started;
	uint64_t clients; /* atomic: ever */
	unsigned next;	  /* thread of the next client */
};

/* conn.c */
void rpc_conn_accept(struct rpc_thread *thread, struct rpc_newcomer *newcomer);
void rpc_conn_established(struct rpc_conn *conn);
static inline void rpc_conn_fail(struct rpc_conn *conn)
{
	conn->failed = conn->thread->failed = true;
}
/* It is over: freed when its last request is answered (rpc_conn_bury()). */
void rpc_conn_end(struct rpc_conn *conn);
void rpc_conn_bury(struct rpc_thread *thread);
/* Its memory changed, perhaps: handle the requests that are there. How many. */
int rpc_conn_serve(struct rpc_conn *conn);
/* Every RPC_PROBE_NS: a client that was silent may have vanished without a word. */
void rpc_conn_probe(struct rpc_conn *conn);
/* Owner only: write an answer to the client. */
void rpc_conn_post(struct rpc_conn *conn, const struct gn_rpc_request *request);
static inline const uint64_t *rpc_conn_word(const struct rpc_conn *conn)
{
	return (const uint64_t *)(const void *)(conn->requests + conn->number % conn->n_slots *
									 conn->request_stride);
}

/* server.c */
const struct rpc_method *rpc_method_find(const struct gn_rpc_server *server, unsigned method);
void rpc_thread_ask(struct rpc_thread *thread, struct rpc_work *work);
void rpc_thread_completions(struct rpc_thread *thread);

#endif
