/* SPDX-License-Identifier: MIT */
/*
 * gannet/rpc.h - remote procedure calls whose results the client fetches.
 *
 * A client writes its request into the server's memory. A server thread finds it there, runs the
 * method's handler and leaves the result in its own memory, from where the client fetches it with
 * one-sided reads: the server posts nothing. Where that is worse, because the handler takes long,
 * the server writes the result back instead (reply).
 *
 * Every call ends with exactly one status. A call is executed at most once. What a caller lends,
 * request and room for the result, is touched by nobody else after the call has ended, and remotely
 * never: remote writes land in the library's slots only.
 *
 * A client belongs to the thread that connected it; calls from another return -EPERM. A server has
 * threads of its own. Calls return 0 or a negative errno; what became of a call is in its status.
 */
#ifndef GANNET_RPC_H
#define GANNET_RPC_H

#include <gannet/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gn_rpc_status {
	GN_RPC_OK,
	GN_RPC_TIMEOUT,	  /* no result by the deadline; it may still have been executed */
	GN_RPC_CANCELED,  /* by gn_rpc_cancel(); likewise */
	GN_RPC_PEER_GONE, /* the connection broke; likewise */
	GN_RPC_NO_METHOD, /* nobody handles that method */
	GN_RPC_TOO_BIG, /* the result does not fit what the caller or the connection has room for */
	GN_RPC_DENIED,
	GN_RPC_BUSY,
	GN_RPC_FAILED, /* the handler says so; it may have own codes from here on, to 65535 */
};

/* Text for a status; a handler's own codes are all "failed". Never NULL; the string is static. */
GN_API const char *gn_rpc_status_str(unsigned status);

/* How a client gets its results. */
enum gn_rpc_mode {
	GN_RPC_FETCH, /* it reads them from the server's memory */
	GN_RPC_REPLY, /* the server writes them into its memory */
};

#define GN_RPC_SLOTS_DEFAULT 16u
#define GN_RPC_SLOTS_MAX     1024u
#define GN_RPC_BYTES_DEFAULT 4096u
#define GN_RPC_BYTES_MAX     (1u << 20)
#define GN_RPC_METHODS_MAX   65536u

/* ---- server ---- */

struct gn_rpc_server;
struct gn_rpc_request; /* a call as its handler sees it, until it is answered */

/*
 * Handles one call: runs on a server thread, and answers with gn_rpc_answer(), before it returns or
 * later and from any thread. Until then the request's bytes are the handler's to read; the client
 * may change them, so what is checked must be copied first.
 */
typedef void gn_rpc_handler(struct gn_rpc_request *request, void *arg);

/* A client came, or went. On the server thread that serves it. */
typedef void gn_rpc_peer_fn(void *arg, uint64_t client, bool came);

struct gn_rpc_server_opts {
	unsigned threads;	 /* 0: 1 */
	uint32_t max_slots;	 /* calls a client may have under way; 0: GN_RPC_SLOTS_DEFAULT */
	uint32_t max_request;	 /* bytes; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_result;	 /* bytes; 0: GN_RPC_BYTES_DEFAULT */
	unsigned listener_flags; /* as gn_listen() */
	gn_rpc_peer_fn *peer;	 /* may be NULL */
	void *peer_arg;
};

/* Make a server for addr, which nobody can call before gn_rpc_server_start(). opts may be NULL. */
GN_API int gn_rpc_server_create(struct gn_fabric *fabric, const char *addr,
				const struct gn_rpc_server_opts *opts, struct gn_rpc_server **out);
/* Before it is started. -EEXIST: the method has a handler. */
GN_API int gn_rpc_server_handle(struct gn_rpc_server *server, unsigned method, gn_rpc_handler *fn,
				void *arg);
GN_API int gn_rpc_server_start(struct gn_rpc_server *server);
/*
 * Clients are disconnected, threads end. Requests not answered yet stay valid until they are;
 * destroying waits for them.
 */
GN_API void gn_rpc_server_destroy(struct gn_rpc_server *server);

GN_API unsigned gn_rpc_request_method(const struct gn_rpc_request *request);
GN_API const void *gn_rpc_request_data(const struct gn_rpc_request *request, uint32_t *len_bytes);
/* Numbers clients in the order of their coming, from 1. */
GN_API uint64_t gn_rpc_request_client(const struct gn_rpc_request *request);
/* Which of the server's threads runs the handler. */
GN_API unsigned gn_rpc_request_thread(const struct gn_rpc_request *request);
/*
 * Where a result of up to *room bytes may be put together, to be given to gn_rpc_answer() without a
 * copy.
 */
GN_API void *gn_rpc_request_room(struct gn_rpc_request *request, uint32_t *room);
/*
 * End the call. A result too large for the client ends it with GN_RPC_TOO_BIG. The request is the
 * library's again.
 */
GN_API void gn_rpc_answer(struct gn_rpc_request *request, unsigned status, const void *data,
			  uint32_t len_bytes);

/* ---- client ---- */

struct gn_rpc_client;

#define GN_RPC_ANY_THREAD UINT32_MAX

struct gn_rpc_client_opts {
	enum gn_rpc_mode mode;
	uint32_t slots; /* calls under way; 0: GN_RPC_SLOTS_DEFAULT; the server may grant less */
	uint32_t max_request; /* bytes; 0: GN_RPC_BYTES_DEFAULT; the server may grant less */
	uint32_t max_result;
	uint32_t fetch_bytes; /* of a result that the first read brings; 0: 256 */
	uint32_t thread;      /* of the server, that is to serve it: 0 and on, or ANY (as 0 opts) */
	uint64_t timeout_us;  /* to connect; 0: 2 s */
};

/* Zero, and any server thread. */
#define GN_RPC_CLIENT_OPTS_INIT                                \
	{                                                      \
		GN_RPC_FETCH, 0, 0, 0, 0, GN_RPC_ANY_THREAD, 0 \
	}

/* -ECONNREFUSED, -ETIMEDOUT, -EPROTO (no RPC server of this version). opts may be NULL. */
GN_API int gn_rpc_connect(struct gn_fabric *fabric, const char *addr,
			  const struct gn_rpc_client_opts *opts, struct gn_rpc_client **out);
/* Calls under way end with GN_RPC_CANCELED. */
GN_API int gn_rpc_close(struct gn_rpc_client *client);

struct gn_rpc_limits {
	uint32_t slots, max_request, max_result; /* as granted */
};
GN_API int gn_rpc_limits(const struct gn_rpc_client *client, struct gn_rpc_limits *out);

/*
 * Call and wait. Returns 0 with *status and *result_len (both may be NULL), or -EAGAIN when all
 * slots are taken, -EMSGSIZE when the request is too large. deadline_ns: absolute, gn_now_ns(), or
 * GN_FOREVER.
 */
GN_API int gn_rpc_call(struct gn_rpc_client *client, unsigned method, const void *request,
		       uint32_t request_len, void *result, uint32_t result_room,
		       uint32_t *result_len, uint64_t deadline_ns, unsigned *status);

/* A call in the air: the caller's again when done is called for it. */
struct gn_rpc_op {
	unsigned method;
	const void *request;
	uint32_t request_len;
	void *result;
	uint32_t result_room;
	uint64_t deadline_ns; /* 0: GN_FOREVER */
	void (*done)(struct gn_rpc_op *op);
	void *arg;
	/* out, valid in done */
	unsigned status;
	uint32_t result_len;
	/* private */
	uint32_t slot;
	struct gn_rpc_client *client;
};

/* Begin a call: 0, or an error as gn_rpc_call(), and then done is not called. */
GN_API int gn_rpc_submit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/*
 * Move calls on and end those that are done: how many. Calls done for each, which may submit
 * others.
 */
GN_API int gn_rpc_poll(struct gn_rpc_client *client);
/* … until at least one has ended: how many, or -ETIMEDOUT, -EINTR. 0 when none is under way. */
GN_API int gn_rpc_wait(struct gn_rpc_client *client, uint64_t deadline_ns);
/* End it now, with GN_RPC_CANCELED; done is called before this returns. -ESRCH: it has ended. */
GN_API int gn_rpc_cancel(struct gn_rpc_op *op);

/* ---- counters ---- */

struct gn_rpc_counters {
	uint64_t calls; /* begun; of a server: executed */
	uint64_t ended[GN_RPC_FAILED + 1];
	uint64_t fetches, failed_fetches, second_reads; /* of a client */
	uint64_t torn;					/* looked at and found incomplete */
	uint64_t probes;				/* empty WRITEs to a silent peer */
	uint64_t clients;				/* of a server: connected now */
};

GN_API int gn_rpc_client_counters(const struct gn_rpc_client *client, struct gn_rpc_counters *out);
GN_API int gn_rpc_server_counters(struct gn_rpc_server *server, struct gn_rpc_counters *out);

#ifdef __cplusplus
}
#endif

#endif
