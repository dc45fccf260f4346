/* SPDX-License-Identifier: MIT */
/*
 * gannet/rpc.h - remote procedure calls with client-fetched results.
 *
 * A client WRITEs its request into the server's memory. A server thread finds the request by
 * polling, runs the method's handler and stores the result in the server's memory. The client
 * fetches the result with READs (fetch mode): the server posts nothing. If a handler takes long, it
 * is cheaper that the server WRITEs the result to the client (reply mode). By default a client
 * chooses the mode itself, per method (hybrid mode).
 *
 * Requests can be sent in batches; the library can choose the batch size. A request or result that
 * does not fit a slot is a large message, of up to 64 MiB: its receiver READs it.
 *
 * Every call completes with exactly one status. A call is executed at most once. After a call has
 * completed, the library does not touch the caller's request and result buffers any more. The peer
 * never accesses them: remote WRITEs land only in slots that the library owns.
 *
 * A client must be used by the thread that opened it; calls from another thread return -EPERM. A
 * server has its own threads. Functions return 0 or a negative errno; the outcome of a call is in
 * its status.
 *
 * A deadline_ns is an absolute time of gn_now_ns(). GN_FOREVER and 0 mean no deadline; GN_NO_WAIT
 * means do not wait.
 */
#ifndef GANNET_RPC_H
#define GANNET_RPC_H

#include <gannet/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gn_rpc_status {
	GN_RPC_OK,
	GN_RPC_TIMEOUT,	  /* no result by the deadline; the call may be executed */
	GN_RPC_CANCELED,  /* by gn_rpc_cancel(); the call may be executed */
	GN_RPC_PEER_GONE, /* the connection or epoch ended; the call may have been executed */
	GN_RPC_NO_METHOD, /* the server has no handler for the method */
	GN_RPC_TOO_BIG,	  /* the result exceeds result_room or max_large */
	GN_RPC_DENIED,
	GN_RPC_BUSY,
	GN_RPC_FAILED, /* reported by the handler; 8 to 65535 are the handler's own codes */
};

/* Returns a static string, never NULL; "failed" for all codes of a handler. */
GN_API const char *gn_rpc_status_str(unsigned status);

/* How a client gets its results. */
enum gn_rpc_mode {
	GN_RPC_HYBRID, /* fetch or reply, chosen per method */
	GN_RPC_FETCH,  /* the client READs results from the server's memory */
	GN_RPC_REPLY,  /* the server WRITEs results into the client's memory */
	GN_RPC_MODES
};

#define GN_RPC_SLOTS_DEFAULT 16u
#define GN_RPC_SLOTS_MAX     1024u
#define GN_RPC_BYTES_DEFAULT 4096u
#define GN_RPC_BYTES_MAX     (1u << 20)
#define GN_RPC_LARGE_MAX     (64u << 20)
#define GN_RPC_BATCH_MAX     1024u
#define GN_RPC_WINDOW_MAX    32768u /* outstanding calls of a client: slots * batch.entries */
#define GN_RPC_METHODS_MAX   0xff00u

/* Defaults of a server's limits: see struct gn_rpc_server_opts. */
#define GN_RPC_CLIENTS_DEFAULT	    1024u
#define GN_RPC_SERVER_BYTES_DEFAULT (1ull << 30)

/* Methods that every server has. */
enum gn_rpc_builtin {
	GN_RPC_PING = 0xff00,	 /* returns an empty result */
	GN_RPC_STATS_JSON,	 /* the server's metrics as JSON */
	GN_RPC_STATS_PROMETHEUS, /* … in the Prometheus text format */
	GN_RPC_BUILTIN_END
};

enum gn_rpc_flag {
	/* client */
	/*
	 * gn_rpc_call() reconnects until its deadline if the connection is known to be broken. The
	 * first call after a server's restart may be the one that detects this: GN_RPC_PEER_GONE.
	 */
	GN_RPC_RECONNECT = 1 << 0,
	GN_RPC_SIGNALED = 1 << 1, /* post the first fetch after the request's completion */
	GN_RPC_EAGER = 1 << 2,	  /* … and without further delay; the same for later fetches */
	GN_RPC_BY_FAILS = 1 << 3, /* hybrid: decide by failed fetches, not by the server's time */
	/* server */
	GN_RPC_SYNC_REPLY = 1 << 4, /* wait, up to 1 ms, until a reply has arrived */
	GN_RPC_ONE_CTX = 1 << 5,    /* all threads share one context */
	GN_RPC_POLLED = 1 << 6,	    /* no threads: the caller runs gn_rpc_server_poll() */
	/* call */
	GN_RPC_IN_PLACE = 1 << 7, /* do not copy the result: done finds it in data */
	/* method, for gn_rpc_server_handle_group() */
	GN_RPC_ORDERED = 1 << 8, /* later calls wait while a large request is being read */
};

/* ---- server ---- */

struct gn_rpc_server;
struct gn_rpc_request; /* a call, valid until it is answered */

/*
 * Handles one call. Runs on a server thread. The handler must call gn_rpc_answer() once, before it
 * returns or later, from any thread. The client may change the request's bytes while the handler
 * runs: copy what you check.
 */
typedef void gn_rpc_handler(struct gn_rpc_request *request, void *arg);

/*
 * Handles a group of calls: see gn_rpc_server_handle_group(). Runs on a server thread. Only this
 * thread may use the group. The handler must answer every call of the group before it returns.
 */
struct gn_rpc_group;
typedef void gn_rpc_group_handler(struct gn_rpc_group *group, void *arg);

/*
 * Reports a connect (came) or a disconnect. For a server: called on the thread that serves the
 * client; peer is the number that gn_rpc_request_client() returns. For a client: peer identifies
 * the connection. Functions that wait, poll or close the client return -EDEADLK there.
 */
typedef void gn_rpc_peer_fn(void *arg, uint64_t peer, bool came);

struct gn_rpc_server_opts {
	size_t size;	      /* sizeof(struct gn_rpc_server_opts) */
	unsigned threads;     /* 0: 1 */
	uint32_t max_slots;   /* outstanding messages per client; 0: GN_RPC_SLOTS_DEFAULT */
	uint32_t max_request; /* bytes per slot; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_result;  /* bytes per slot; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_large;   /* bytes of a large message; 0: GN_RPC_LARGE_MAX */
	/*
	 * Idle time after which the server stops polling a client's slots; 0: 1000. The client's
	 * next request wakes the server. A thread that polls no client sleeps.
	 */
	uint32_t park_us;
	unsigned flags;		 /* enum gn_rpc_flag */
	unsigned listener_flags; /* as gn_listener_create() */
	gn_rpc_peer_fn *peer;	 /* may be NULL */
	void *peer_arg;
	/*
	 * Limits on what clients can make the server keep; docs/rpc.md says what counts. Beyond a
	 * limit a new connection gets less or is refused, and a call completes with GN_RPC_BUSY.
	 */
	uint32_t max_clients;	   /* connections; 0: GN_RPC_CLIENTS_DEFAULT per thread */
	uint32_t max_window;	   /* outstanding calls per client; 0: see docs/rpc.md */
	uint64_t max_client_bytes; /* 0: slots, window and results, 4 * max_large */
	/* of all clients; 0: GN_RPC_SERVER_BYTES_DEFAULT, or four clients */
	uint64_t max_bytes;
};

/* Creates a server for addr. Clients can connect after gn_rpc_server_start(). opts may be NULL. */
GN_API int gn_rpc_server_create(struct gn_fabric *fabric, const char *addr,
				const struct gn_rpc_server_opts *opts, struct gn_rpc_server **out);
/* Registers a handler. Must be called before gn_rpc_server_start(). -EEXIST: the method has one. */
GN_API int gn_rpc_server_handle(struct gn_rpc_server *server, unsigned method, gn_rpc_handler *fn,
				void *arg);
GN_API int gn_rpc_server_start(struct gn_rpc_server *server);
/*
 * GN_RPC_POLLED only, on the thread that started the server. gn_rpc_server_poll() serves pending
 * requests and returns their number. gn_rpc_server_wait() waits for work: 0, -ETIMEDOUT or -EINTR.
 */
GN_API int gn_rpc_server_poll(struct gn_rpc_server *server);
GN_API int gn_rpc_server_wait(struct gn_rpc_server *server, uint64_t deadline_ns);
/*
 * A source for gn_wait(), or through gn_source_fd() for another event loop. The source is ready
 * when gn_rpc_server_poll() should be called. NULL if the server is not GN_RPC_POLLED.
 *
 * A server that is armed or waited for stops polling all clients at once, and each client's next
 * request must wake the server. A client whose last request is older than park_us / 4 wakes the
 * server, or checks whether it sleeps, at once. A client with a more recent request assumes that
 * the server polls: in fetch mode the first READ corrects this, in reply mode the client checks
 * after park_us + 20 us. Such a call takes that much longer: choose a small park_us.
 */
GN_API struct gn_source *gn_rpc_server_source(struct gn_rpc_server *server);
/*
 * Shuts the server down gracefully: refuses new connections, answers new requests with GN_RPC_BUSY
 * and waits for outstanding ones. Returns 0 when all clients have received their results, or
 * -ETIMEDOUT. Requests of disconnected clients are not waited for. Afterwards destroy the server;
 * it cannot be started again.
 */
GN_API int gn_rpc_server_drain(struct gn_rpc_server *server, uint64_t deadline_ns);
/*
 * Disconnects all clients and ends the threads. Requests that are not answered yet stay valid until
 * they are. gn_rpc_server_destroy() waits for them without a deadline, also for requests of
 * disconnected clients, and logs their number after 1 s. So threads that answer later must run
 * until gn_rpc_server_destroy() returns, or answer all requests before.
 */
GN_API void gn_rpc_server_destroy(struct gn_rpc_server *server);

GN_API unsigned gn_rpc_request_method(const struct gn_rpc_request *request);
/*
 * The request's bytes. A pointer obtained on the handler's thread while the handler runs is valid
 * until the handler returns or answers. A pointer obtained later is valid until the request is
 * answered: a thread that answers later must call this function again.
 */
GN_API const void *gn_rpc_request_data(struct gn_rpc_request *request, uint32_t *len_bytes);
/* Clients are numbered from 1 in the order of their connecting. */
GN_API uint64_t gn_rpc_request_client(const struct gn_rpc_request *request);
/* The index of the server thread that runs the handler. */
GN_API unsigned gn_rpc_request_thread(const struct gn_rpc_request *request);
/* State of a request's caller. Deadlines and cancellations are known as far as messages arrive. */
enum gn_rpc_caller {
	GN_RPC_CALLER_WAITS,
	GN_RPC_CALLER_EXPIRED, /* the deadline has passed */
	/*
	 * The client canceled the call, or reports that the deadline has passed by its own clock.
	 */
	GN_RPC_CALLER_CANCELED,
	GN_RPC_CALLER_GONE, /* the client has disconnected */
};
/*
 * May be called from any thread until the request is answered. In every state the request must be
 * answered.
 */
GN_API enum gn_rpc_caller gn_rpc_request_state(const struct gn_rpc_request *request);
/*
 * Registers fn, to be called once, on the server thread that runs the handler, when the caller
 * stops waiting. fn may answer the request. fn is not called after the request was answered. Call
 * this on the handler's thread only, else -EPERM. -EINVAL: the request was answered. fn NULL:
 * unregister.
 */
typedef void gn_rpc_abandon_fn(struct gn_rpc_request *request, enum gn_rpc_caller state, void *arg);
GN_API int gn_rpc_request_on_abandon(struct gn_rpc_request *request, gn_rpc_abandon_fn *fn,
				     void *arg);
/*
 * A buffer of up to *room bytes in which to build the result; gn_rpc_answer() then does not copy
 * it. Valid while the handler runs. NULL if the handler has returned or no buffer is available.
 */
GN_API void *gn_rpc_request_room(struct gn_rpc_request *request, uint32_t *room);
/*
 * Completes the call. status is 0 to 65535; a larger one becomes GN_RPC_FAILED. If the result is
 * too large for the client, the call completes with GN_RPC_TOO_BIG. The request must not be used
 * afterwards.
 */
GN_API void gn_rpc_answer(struct gn_rpc_request *request, unsigned status, const void *data,
			  uint32_t len_bytes);

/*
 * Completes the call with bytes of the handler's own memory, which was allocated with
 * GN_REMOTE_READ. If they do not fit a slot, the client READs them in place; until then the client
 * can read the pages that hold them. release is called when the bytes may be reused, on any server
 * thread, also if the call completes otherwise.
 */
GN_API void gn_rpc_answer_mem(struct gn_rpc_request *request, unsigned status, struct gn_mem *mem,
			      size_t offset, uint32_t len_bytes, void (*release)(void *arg),
			      void *arg);

/*
 * Server memory that one client may READ with gn_rpc_read(). Send the struct to the client as is.
 * Valid for the connection that the request came over, and no longer.
 */
struct gn_rpc_view {
	uint64_t bytes;
	uint32_t key;
	uint32_t epoch; /* of the connection */
};
#define GN_RPC_VIEWS_MAX 64u /* per connection */

/*
 * Exposes all of mem, which was allocated with GN_REMOTE_READ, to the client of a request. (On shm
 * READs are slower if mem was allocated for remote writing, too.) Only while the handler runs, else
 * -EPERM. The same mem again returns the same view. Do not free mem before the connection has
 * ended, that is, before the server is destroyed. -ENOSPC: too many views.
 */
GN_API int gn_rpc_request_show(struct gn_rpc_request *request, struct gn_mem *mem,
			       struct gn_rpc_view *out);

/* ---- groups ---- */

#define GN_RPC_GROUP_MAX 64u /* calls */

/*
 * Same as gn_rpc_server_handle(), but fn receives a group of calls that one client sent together:
 * consecutive calls of one batch whose methods have the same fn and arg, in the order of the batch.
 * A group costs less per call, and its handler can overlap memory accesses. A large request is a
 * group of its own. flags: 0, or GN_RPC_ORDERED: while a large request of this method is being
 * read, no later call of the same client begins, so that calls are executed in order.
 */
GN_API int gn_rpc_server_handle_group(struct gn_rpc_server *server, unsigned method,
				      gn_rpc_group_handler *fn, void *arg, unsigned flags);
/* Number of calls in the group, at most GN_RPC_GROUP_MAX. Calls are indexed from 0. */
GN_API unsigned gn_rpc_group_size(const struct gn_rpc_group *group);
GN_API unsigned gn_rpc_group_method(const struct gn_rpc_group *group, unsigned i);
/*
 * The bytes of a request. Valid until the call is answered or the handler returns. The client may
 * change them while the handler runs.
 */
GN_API const void *gn_rpc_group_data(const struct gn_rpc_group *group, unsigned i,
				     uint32_t *len_bytes);
/* Same as gn_rpc_request_client() and gn_rpc_request_thread(). */
GN_API uint64_t gn_rpc_group_client(const struct gn_rpc_group *group);
GN_API unsigned gn_rpc_group_thread(const struct gn_rpc_group *group);
/*
 * A buffer of up to most bytes in which to build the result; gn_rpc_group_answer() then does not
 * copy it. Valid until the next gn_rpc_group_room() or answer. If no result slot is free, the
 * buffer is memory that the library keeps until one is. NULL: the limits do not allow the result,
 * and the call is already answered: with GN_RPC_BUSY, or with GN_RPC_TOO_BIG if most exceeds the
 * server's max_large. So call this before executing the request.
 */
GN_API void *gn_rpc_group_room(struct gn_rpc_group *group, unsigned i, uint32_t most);
/*
 * Reserves the buffer and answers at once, for a result of known length. Write the len_bytes before
 * the next call of any function of the group. NULL: the result message has no space left, and the
 * call is not answered; use gn_rpc_group_room() and gn_rpc_group_answer().
 */
GN_API void *gn_rpc_group_put(struct gn_rpc_group *group, unsigned i, unsigned status,
			      uint32_t len_bytes);
/*
 * Answers a call of the group; the order is free. data is the buffer of gn_rpc_group_room(), or any
 * other bytes, which are copied. A call that the handler does not answer completes with
 * GN_RPC_FAILED.
 */
GN_API void gn_rpc_group_answer(struct gn_rpc_group *group, unsigned i, unsigned status,
				const void *data, uint32_t len_bytes);
/* Same as gn_rpc_answer_mem(). */
GN_API void gn_rpc_group_answer_mem(struct gn_rpc_group *group, unsigned i, unsigned status,
				    struct gn_mem *mem, size_t offset, uint32_t len_bytes,
				    void (*release)(void *arg), void *arg);

/* ---- client ---- */

struct gn_rpc_client;

/*
 * Parameters of a network, measured by `gannet rpc tune`: how to fetch, and when to switch to
 * reply.
 */
#define GN_RPC_TUNING_RETRIES 8u
#define GN_RPC_TUNING_SIZES   16u
struct gn_rpc_tuning {
	size_t size; /* sizeof(struct gn_rpc_tuning) */
	/* R: most fetches per call with which fetch is 10 % faster than reply */
	uint32_t retries;
	uint32_t switch_us; /* Tx: server time from which on reply is faster */
	uint32_t n_retries, n_sizes;
	uint32_t bytes[GN_RPC_TUNING_SIZES]; /* F, ascending */
	/* I(R, F): calls per millisecond, of all clients, with 1 … n_retries fetches per call. */
	uint32_t rate[GN_RPC_TUNING_RETRIES][GN_RPC_TUNING_SIZES];
};
/* -EINVAL: the file is not a tuning; the log says why. */
GN_API int gn_rpc_tuning_read(const char *path, struct gn_rpc_tuning *out);
GN_API int gn_rpc_tuning_write(const char *path, const struct gn_rpc_tuning *tuning);

/*
 * A batch is sent when it has this many entries, bytes or microseconds, or when its client waits.
 */
struct gn_rpc_batch {
	uint32_t entries; /* N; 0: 1, no batching */
	uint32_t bytes;	  /* L; 0: the size of a slot */
	uint32_t wait_us; /* T; 0: 5000 */
	/*
	 * Not 0: the library chooses N, up to entries (0: 128), as the largest with which at most
	 * alpha_pct of the calls take longer than limit_us.
	 */
	uint32_t limit_us;
	uint32_t alpha_pct; /* 0: 5 */
};

/* Identifies a connection: see gn_rpc_client_limits() and gn_rpc_client_opts.previous. */
struct gn_rpc_conn_id {
	uint64_t name; /* 0: none */
	uint32_t thread;
};

struct gn_rpc_client_opts {
	size_t size; /* sizeof(struct gn_rpc_client_opts) */
	enum gn_rpc_mode mode;
	unsigned flags;	      /* enum gn_rpc_flag */
	uint32_t slots;	      /* outstanding requests or batches; 0: GN_RPC_SLOTS_DEFAULT */
	uint32_t max_request; /* bytes per slot; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_result;  /* the server may grant less of these three */
	uint32_t max_large;   /* bytes of a large message; 0: GN_RPC_LARGE_MAX */
	struct gn_rpc_batch batch;
	uint32_t fetch_bytes; /* F: result bytes of the first READ; 0: adapt to results */
	uint32_t retries;     /* R; 0: from the tuning */
	uint32_t switch_us;   /* Tx; 0: from the tuning */
	const struct gn_rpc_tuning *tuning; /* NULL: from GANNET_RPC_TUNING, or a rule of thumb */
	/* The server thread to connect to, from 1. 0 or more than the server has: any thread. */
	uint32_t thread;
	struct gn_ctx *ctx;   /* NULL: the client creates its own */
	uint64_t timeout_us;  /* for connecting; 0: 2 s */
	gn_rpc_peer_fn *peer; /* on connect and disconnect; may be NULL */
	void *peer_arg;
	/*
	 * A closed client's connection: the server does not begin its requests after this client is
	 * connected.
	 */
	struct gn_rpc_conn_id previous;
};

/* Behave as in the papers: synchronous, without adapting to the server's time. */
#define GN_RPC_CLIENT_PAPER (GN_RPC_SIGNALED | GN_RPC_EAGER | GN_RPC_BY_FAILS)
#define GN_RPC_SERVER_PAPER (GN_RPC_SYNC_REPLY | GN_RPC_ONE_CTX)

/* -ECONNREFUSED, -ETIMEDOUT, -EPROTO (not an RPC server of this version). opts may be NULL. */
GN_API int gn_rpc_client_open(struct gn_fabric *fabric, const char *addr,
			      const struct gn_rpc_client_opts *opts, struct gn_rpc_client **out);
/*
 * Asynchronous gn_rpc_client_open(). gn_rpc_client_open_wait() returns 0 when the client is
 * connected, -EAGAIN if it is not by the deadline, or the error of the attempt; then close the
 * client. Calls return -ENOTCONN until the client is connected.
 */
GN_API int gn_rpc_client_open_begin(struct gn_fabric *fabric, const char *addr,
				    const struct gn_rpc_client_opts *opts,
				    struct gn_rpc_client **out);
GN_API int gn_rpc_client_open_wait(struct gn_rpc_client *client, uint64_t deadline_ns);
/*
 * Reconnects to the same address. Outstanding calls complete with GN_RPC_PEER_GONE. Errors are
 * those of gn_rpc_client_open(); after an error the client may be closed or reconnected. -EAGAIN:
 * an earlier server may still be copying from the client's memory, for up to GN_TEARDOWN_US.
 */
GN_API int gn_rpc_reconnect(struct gn_rpc_client *client);
/*
 * A client belongs to the thread that opened it. To hand a client over, its owner releases it and
 * another thread adopts it. Release requires that nothing is outstanding. -EBUSY: calls or reads
 * are outstanding, or the client is connecting, or (adopt) another thread owns the client.
 * -EDEADLK: called from within done. Calls on a released client return -EPERM, and any thread may
 * close it. The owner must release or close the client before its thread ends; afterwards no thread
 * can adopt or close it.
 */
GN_API int gn_rpc_client_release(struct gn_rpc_client *client);
GN_API int gn_rpc_client_adopt(struct gn_rpc_client *client);
/* Completes outstanding calls with GN_RPC_CANCELED. client may be NULL. */
GN_API int gn_rpc_client_close(struct gn_rpc_client *client);

struct gn_rpc_limits {
	size_t size;					    /* sizeof(struct gn_rpc_limits) */
	uint32_t slots, max_request, max_result, max_large; /* as granted by the server */
	uint32_t window;				    /* outstanding calls */
	uint32_t reads;					    /* outstanding gn_rpc_read()s */
	struct gn_rpc_conn_id conn;			    /* this connection */
};
GN_API int gn_rpc_client_limits(const struct gn_rpc_client *client, struct gn_rpc_limits *out);

/*
 * Calls a method and waits. Returns 0 with *status and *result_len (both may be NULL). -EAGAIN: too
 * many calls were outstanding until the deadline. -EMSGSIZE: the request is too large. -ENOTCONN:
 * the connection broke.
 */
GN_API int gn_rpc_call(struct gn_rpc_client *client, unsigned method, const void *request,
		       uint32_t request_len, void *result, uint32_t result_room,
		       uint32_t *result_len, uint64_t deadline_ns, unsigned *status);

/* An asynchronous call. The library owns the struct until done is called. */
struct gn_rpc_op {
	unsigned method;
	const void *request;
	uint32_t request_len;
	void *result;
	uint32_t result_room;
	uint64_t deadline_ns;
	void (*done)(struct gn_rpc_op *op);
	void *arg;
	unsigned flags; /* 0 or GN_RPC_IN_PLACE */
	/* out, valid in done */
	unsigned status;
	uint32_t result_len;
	/*
	 * GN_RPC_IN_PLACE: the result_len bytes of the result, aligned to 8, in memory of the
	 * library, valid until done returns; NULL if the result is empty. The server may change
	 * them meanwhile: copy what you check. result is not used; result_room limits the length.
	 */
	const void *data;
	/* private */
	uint32_t slot;
	struct gn_rpc_client *client;
};

/*
 * Calls several methods and waits for all. Returns 0 with a status in each op, or the error of the
 * first op that could not be submitted; that op and all after it get the status GN_RPC_CANCELED,
 * without a call of done. Each submission waits like gn_rpc_call(). done may be NULL.
 */
GN_API int gn_rpc_call_all(struct gn_rpc_client *client, struct gn_rpc_op *ops, unsigned n);

/*
 * Starts a call. Returns 0, or an error as gn_rpc_call(); then done is not called. -EAGAIN: too
 * many calls are outstanding, or the server has not freed the next request slot yet.
 */
GN_API int gn_rpc_submit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/*
 * gn_rpc_submit() in two steps, for a caller that builds its request in the send buffer. Prepare
 * returns in *out a buffer for op->request_len bytes, aligned to 8; op->request is not used. Write
 * the request, then commit. Until then request_len may be reduced; no other member may change. A
 * prepared call that is not committed has no effect.
 *
 * Errors of commit; the call was not started:
 * -EINVAL: the method was changed, the request is longer than prepared, or a call of another method
 *          was tried since;
 * -ESRCH: op is not the last prepared call, a call was started or a message sent since, or the op's
 *         deadline was set or cleared;
 * -ENOTCONN: the connection broke.
 *
 * Prepare returns the errors of gn_rpc_submit(), and -EMSGSIZE for more than max_request bytes
 * (gn_rpc_client_limits()): submit such a request.
 */
GN_API int gn_rpc_prepare(struct gn_rpc_client *client, struct gn_rpc_op *op, void **out);
GN_API int gn_rpc_commit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/* Sends the open batch, if there is one. -ENOTCONN: the connection broke. */
GN_API int gn_rpc_flush(struct gn_rpc_client *client);
/*
 * Makes progress and completes calls. Returns the number of completed calls. done is called for
 * each and may submit more. The poll that detects a disconnect completes all calls and calls peer;
 * later polls return 0. If no call is outstanding, a disconnect is reported by peer, or by the next
 * gn_rpc_submit() or gn_rpc_flush().
 */
GN_API int gn_rpc_poll(struct gn_rpc_client *client);
/*
 * Polls until at least one call has completed. Returns the number of completed calls, -ETIMEDOUT or
 * -EINTR. Returns 0 if no call is outstanding, also after a disconnect. After a submission failed
 * with -EAGAIN, 0 means that it can be repeated.
 */
GN_API int gn_rpc_wait(struct gn_rpc_client *client, uint64_t deadline_ns);
/*
 * A source for gn_wait(), or through gn_source_fd() for another event loop. The source is ready
 * when gn_rpc_poll() should be called, or gn_rpc_client_open_wait() while the client connects.
 * Submitted calls that are not sent yet are sent after batch.wait_us, or by gn_rpc_flush(). The
 * source becomes ready when the connection breaks, but not again after the poll that detects this:
 * then gn_source_arm() returns 0 until gn_rpc_reconnect(). An event loop is told by peer.
 */
GN_API struct gn_source *gn_rpc_client_source(struct gn_rpc_client *client);
/*
 * Completes the call now, with GN_RPC_CANCELED; done is called before this returns. -ESRCH: the
 * call has completed.
 */
GN_API int gn_rpc_cancel(struct gn_rpc_op *op);

/* ---- reads of a server's memory ---- */

#define GN_RPC_READ_SHORT 4096u

/* A READ of memory that a server exposes. The library owns the struct until done is called. */
struct gn_rpc_read_op {
	struct gn_rpc_view view;
	uint64_t offset;
	uint32_t len;
	/* Destination. NULL: no copy is made, and done finds the bytes of a short read in data. */
	void *to;
	void (*done)(struct gn_rpc_read_op *read);
	void *arg;
	struct gn_rpc_read_op *next; /* another read to post with this one; short reads only */
	/* out, valid in done */
	unsigned status; /* GN_RPC_OK, GN_RPC_PEER_GONE or GN_RPC_CANCELED */
	const void *data;
	/* private */
	uint32_t slot;
};

/*
 * Starts a read, and all reads that next links to, or none of them. Each needs one work request;
 * all share one doorbell. gn_rpc_poll() and gn_rpc_wait() complete and count them. A read of more
 * than GN_RPC_READ_SHORT bytes is split and must not be linked. The server may write to the memory
 * meanwhile: the data must tell by itself whether it is consistent. -EINVAL: outside of the view.
 * -ESTALE: the view belongs to another connection. -EAGAIN: too many reads are outstanding.
 * -ENOTCONN.
 */
GN_API int gn_rpc_read(struct gn_rpc_client *client, struct gn_rpc_read_op *read);

/* ---- counters ---- */

struct gn_rpc_counters {
	size_t size;	/* sizeof(struct gn_rpc_counters) */
	uint64_t calls; /* started; server: executed */
	uint64_t ended[GN_RPC_FAILED + 1];
	uint64_t batches;				/* request messages */
	uint64_t results;				/* result messages */
	uint64_t fetches, failed_fetches, second_reads; /* client */
	uint64_t switches;				/* between fetch and reply */
	/* requests and results READ by their receiver */
	uint64_t large;
	uint64_t reads;	       /* gn_rpc_read(), client */
	uint64_t torn;	       /* messages seen while incomplete */
	uint64_t probes;       /* probes of an idle peer */
	uint64_t parks, wakes; /* clients no longer polled, and woken */
	uint64_t notifies;     /* result notifications requested (client) or sent (server) */
	uint64_t reconnects;
	uint64_t clients; /* server: connected now */
	uint64_t bytes;	  /* server: kept for clients now, see max_bytes */
	uint64_t refused; /* server: connections refused by a limit */
	uint64_t dropped; /* server: requests and results that a limit turned into BUSY */
};

GN_API int gn_rpc_client_counters(const struct gn_rpc_client *client, struct gn_rpc_counters *out);
GN_API int gn_rpc_server_counters(struct gn_rpc_server *server, struct gn_rpc_counters *out);

/* What a client has chosen for a method. */
struct gn_rpc_choice {
	size_t size;	       /* sizeof(struct gn_rpc_choice) */
	enum gn_rpc_mode mode; /* FETCH or REPLY */
	uint32_t retries, fetch_bytes, switch_us, batch;
};
GN_API int gn_rpc_client_choice(const struct gn_rpc_client *client, unsigned method,
				struct gn_rpc_choice *out);

/*
 * All counters and a latency histogram per method, as text. Returns the length of the text without
 * its NUL; buf receives at most room bytes of it, with a NUL. For a client: on its own thread only.
 */
enum gn_rpc_format { GN_RPC_JSON, GN_RPC_PROMETHEUS };
GN_API int gn_rpc_client_metrics(const struct gn_rpc_client *client, enum gn_rpc_format format,
				 char *buf, size_t room);
GN_API int gn_rpc_server_metrics(struct gn_rpc_server *server, enum gn_rpc_format format, char *buf,
				 size_t room);

#ifdef __cplusplus
}
#endif

#endif
