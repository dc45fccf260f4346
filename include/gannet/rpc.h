/* SPDX-License-Identifier: MIT */
/*
 * gannet/rpc.h - remote procedure calls whose results the client fetches.
 *
 * A client writes its request into the server's memory. A server thread finds it there, runs the
 * method's handler and leaves the result in its own memory, from where the client fetches it with
 * one-sided reads: the server posts nothing. Where that is worse, because the handler takes long,
 * the server writes the result back instead (reply). By default a client finds out by itself, for
 * each method (hybrid).
 *
 * Requests may be sent in batches, of a size that may be left to the library as well. What is too
 * large for a slot is read by its receiver: requests and results of up to 64 MiB.
 *
 * Every call ends with exactly one status. A call is executed at most once. What a caller lends,
 * request and room for the result, is touched by nobody else after the call has ended, and remotely
 * never: remote writes land in the library's slots only.
 *
 * A client belongs to the thread that connected it; calls from another return -EPERM. A server has
 * threads of its own. Calls return 0 or a negative errno; what became of a call is in its status.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT only looks.
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
	GN_RPC_HYBRID, /* as is better, for each method */
	GN_RPC_FETCH,  /* it reads them from the server's memory */
	GN_RPC_REPLY,  /* the server writes them into its memory */
	GN_RPC_MODES
};

#define GN_RPC_SLOTS_DEFAULT 16u
#define GN_RPC_SLOTS_MAX     1024u
#define GN_RPC_BYTES_DEFAULT 4096u
#define GN_RPC_BYTES_MAX     (1u << 20)
#define GN_RPC_LARGE_MAX     (64u << 20)
#define GN_RPC_BATCH_MAX     1024u
#define GN_RPC_WINDOW_MAX    32768u /* calls of a client under way: slots * batch.entries */
#define GN_RPC_METHODS_MAX   0xff00u

/* Defaults of a server's limits, see struct gn_rpc_server_opts. */
#define GN_RPC_CLIENTS_DEFAULT	    1024u
#define GN_RPC_SERVER_BYTES_DEFAULT (1ull << 30)

/* Methods that every server has. */
enum gn_rpc_builtin {
	GN_RPC_PING = 0xff00,	 /* answers with nothing */
	GN_RPC_STATS_JSON,	 /* the server's metrics */
	GN_RPC_STATS_PROMETHEUS, /* … as text for Prometheus */
	GN_RPC_BUILTIN_END
};

enum gn_rpc_flag {
	/* of a client */
	/*
	 * gn_rpc_call() connects again, until its deadline, if the connection is known to be gone.
	 * The first call after a restart may be what finds that out: GN_RPC_PEER_GONE.
	 */
	GN_RPC_RECONNECT = 1 << 0,
	GN_RPC_SIGNALED = 1 << 1, /* the first fetch waits for the request's completion */
	GN_RPC_EAGER = 1 << 2,	  /* … but for nothing else, nor do the others */
	GN_RPC_BY_FAILS = 1 << 3, /* hybrid: failed fetches decide, not the server's time */
	/* of a server */
	GN_RPC_SYNC_REPLY = 1 << 4, /* a thread waits, up to 1 ms, until a reply has arrived */
	GN_RPC_ONE_CTX = 1 << 5,    /* its threads share one context */
	GN_RPC_POLLED = 1 << 6,	    /* it has no thread: gn_rpc_server_poll() does the work */
	/* of a call */
	GN_RPC_IN_PLACE = 1 << 7, /* the result is not copied: done finds it in data */
	/* of a method, gn_rpc_server_handle_group() */
	GN_RPC_ORDERED = 1 << 8, /* later calls wait until a large request has been read */
};

/* ---- server ---- */

struct gn_rpc_server;
struct gn_rpc_request; /* a call as its handler sees it, until it is answered */

/*
 * Handles one call: runs on a server thread, and answers with gn_rpc_answer(), before it returns or
 * later and from any thread. While it runs, the client may change the request's bytes, so what is
 * checked must be copied first.
 */
typedef void gn_rpc_handler(struct gn_rpc_request *request, void *arg);

/*
 * Handles the calls of a group together: see gn_rpc_server_handle_group(). Runs on a server thread,
 * which alone may use the group, and ends every call of it before it returns.
 */
struct gn_rpc_group;
typedef void gn_rpc_group_handler(struct gn_rpc_group *group, void *arg);

/*
 * Of a server: a client came, or went; called on the server thread that serves it, with the number
 * that gn_rpc_request_client() gives. Of a client: its server came, or went; the number is the
 * connection's and only the same for both calls. Functions that wait, poll or close the client
 * return -EDEADLK there.
 */
typedef void gn_rpc_peer_fn(void *arg, uint64_t peer, bool came);

struct gn_rpc_server_opts {
	size_t size; /* sizeof(struct gn_rpc_server_opts) */
	unsigned threads;	 /* 0: 1 */
	uint32_t max_slots;	 /* calls a client may have under way; 0: GN_RPC_SLOTS_DEFAULT */
	uint32_t max_request;	 /* bytes in a slot; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_result;	 /* bytes in a slot; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_large;	 /* bytes of anything; 0: GN_RPC_LARGE_MAX */
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
	 * What clients may make the server keep; docs/rpc.md says what counts. A hello beyond a
	 * limit is granted less or refused, a call ends with GN_RPC_BUSY.
	 */
	uint32_t max_clients;	   /* connections; 0: GN_RPC_CLIENTS_DEFAULT for each thread */
	uint32_t max_window;	   /* calls of a client under way; 0: see docs/rpc.md */
	uint64_t max_client_bytes; /* 0: its slots, window and its results, 4 * max_large */
	uint64_t max_bytes;	   /* of all; 0: GN_RPC_SERVER_BYTES_DEFAULT, or four clients' */
};

/* Make a server for addr, which nobody can call before gn_rpc_server_start(). opts may be NULL. */
GN_API int gn_rpc_server_create(struct gn_fabric *fabric, const char *addr,
				const struct gn_rpc_server_opts *opts, struct gn_rpc_server **out);
/* Before it is started. -EEXIST: the method has a handler. */
GN_API int gn_rpc_server_handle(struct gn_rpc_server *server, unsigned method, gn_rpc_handler *fn,
				void *arg);
GN_API int gn_rpc_server_start(struct gn_rpc_server *server);
/*
 * GN_RPC_POLLED only, from the thread that started it: serve what there is, how much; or wait for
 * something first, 0 or -ETIMEDOUT, -EINTR.
 */
GN_API int gn_rpc_server_poll(struct gn_rpc_server *server);
GN_API int gn_rpc_server_wait(struct gn_rpc_server *server, uint64_t deadline_ns);
/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_rpc_server_poll()
 * should be called. NULL: it is not GN_RPC_POLLED. A server that is armed, or waited for, stops
 * polling all clients at once, and each client's next request has to wake it. A client whose last
 * request is more than park_us / 4 old wakes the server, or looks whether it sleeps, at once. A
 * client that called just before takes the server for awake: with fetch the first read corrects
 * that, but with reply the client looks only after park_us + 20 us. Such a call takes that much
 * longer: choose a small park_us.
 */
GN_API struct gn_source *gn_rpc_server_source(struct gn_rpc_server *server);
/*
 * Nobody is let in any more, new requests end with GN_RPC_BUSY, and what is under way is answered:
 * 0 when clients have all their answers, -ETIMEDOUT when not all have by the deadline. A request
 * whose client has gone is not waited for. After either, destroy the server; it cannot be started
 * again.
 */
GN_API int gn_rpc_server_drain(struct gn_rpc_server *server, uint64_t deadline_ns);
/*
 * Clients are disconnected, threads end. Requests not answered yet stay valid until they are, and
 * destroying waits for them without a deadline, also for those whose client has gone: after 1 s a
 * line of the log says for how many. So threads that answer later must run until this returns, or
 * answer everything before.
 */
GN_API void gn_rpc_server_destroy(struct gn_rpc_server *server);

GN_API unsigned gn_rpc_request_method(const struct gn_rpc_request *request);
/*
 * The request's bytes. A pointer got on the handler's thread while the handler runs is good until
 * it returns or answers; every other one until the request is answered: who answers later, asks
 * again.
 */
GN_API const void *gn_rpc_request_data(struct gn_rpc_request *request, uint32_t *len_bytes);
/* Numbers clients in the order of their coming, from 1. */
GN_API uint64_t gn_rpc_request_client(const struct gn_rpc_request *request);
/* Which of the server's threads runs the handler. */
GN_API unsigned gn_rpc_request_thread(const struct gn_rpc_request *request);
/* What a request's caller does. Deadlines and cancelled calls are told as far as messages get. */
enum gn_rpc_caller {
	GN_RPC_CALLER_WAITS,
	GN_RPC_CALLER_EXPIRED, /* its deadline has passed */
	/* It has cancelled the call; or it says that the deadline has passed by its own clock. */
	GN_RPC_CALLER_CANCELED,
	GN_RPC_CALLER_GONE, /* its connection has ended */
};
/* Any thread, until the request is answered. It must be answered all the same. */
GN_API enum gn_rpc_caller gn_rpc_request_state(const struct gn_rpc_request *request);
/*
 * Have fn called once, by the server's thread that runs the handler, when the caller does not wait
 * any more; it may answer the request. Not when the request was answered before. On that thread
 * only, else -EPERM. -EINVAL: it was answered. fn NULL: not any more.
 */
typedef void gn_rpc_abandon_fn(struct gn_rpc_request *request, enum gn_rpc_caller state, void *arg);
GN_API int gn_rpc_request_on_abandon(struct gn_rpc_request *request, gn_rpc_abandon_fn *fn,
				     void *arg);
/*
 * Where a result of up to *room bytes may be put together, to be given to gn_rpc_answer() without a
 * copy, while the handler runs. NULL when it has returned, or there is no such place now.
 */
GN_API void *gn_rpc_request_room(struct gn_rpc_request *request, uint32_t *room);
/*
 * End the call with a status of 0 to 65535; a larger one ends it with GN_RPC_FAILED. A result too
 * large for the client ends it with GN_RPC_TOO_BIG. The request is the library's again.
 */
GN_API void gn_rpc_answer(struct gn_rpc_request *request, unsigned status, const void *data,
			  uint32_t len_bytes);

/*
 * End the call with bytes that are the caller's own, in memory that was allocated with
 * GN_REMOTE_READ. They are read by the client where they lie, if they are too many for a slot, and
 * the pages they lie in are open to it until then. release is called when they are free again, by
 * any of the server's threads, also when the call ends otherwise.
 */
GN_API void gn_rpc_answer_mem(struct gn_rpc_request *request, unsigned status, struct gn_mem *mem,
			      size_t offset, uint32_t len_bytes, void (*release)(void *arg),
			      void *arg);

/*
 * Memory of a server that one client may read by itself, with gn_rpc_read(): to be sent to it as it
 * is. Good for the connection that the request came over, and no longer.
 */
struct gn_rpc_view {
	uint64_t bytes;
	uint32_t key;
	uint32_t epoch; /* of the connection */
};
#define GN_RPC_VIEWS_MAX 64u /* of a connection */

/*
 * Show all of mem, which was allocated with GN_REMOTE_READ, to the client of a request, while its
 * handler runs (else -EPERM). The same mem again gives the same view. It must not be freed before
 * the connection has ended: not before the server is destroyed. -ENOSPC: too many.
 */
GN_API int gn_rpc_request_show(struct gn_rpc_request *request, struct gn_mem *mem,
			       struct gn_rpc_view *out);

/* ---- groups ---- */

#define GN_RPC_GROUP_MAX 64u /* calls */

/*
 * As gn_rpc_server_handle(), but fn is given the calls of a client that came together: consecutive
 * calls of one batch whose methods have the same fn and arg, in the order of the batch. A group
 * costs less for each call, and its handler can overlap their memory accesses. A large request is a
 * group of its own. flags: 0, or GN_RPC_ORDERED: while a large request of this method is being read
 * no later call of the same client begins, so that its calls are executed in their order.
 */
GN_API int gn_rpc_server_handle_group(struct gn_rpc_server *server, unsigned method,
				      gn_rpc_group_handler *fn, void *arg, unsigned flags);
/* Calls of the group, from 0 to below this, at most GN_RPC_GROUP_MAX. */
GN_API unsigned gn_rpc_group_size(const struct gn_rpc_group *group);
GN_API unsigned gn_rpc_group_method(const struct gn_rpc_group *group, unsigned i);
/*
 * The bytes of a request, until its call ends or the handler returns. While the handler runs, the
 * client may change them.
 */
GN_API const void *gn_rpc_group_data(const struct gn_rpc_group *group, unsigned i,
				     uint32_t *len_bytes);
/* As gn_rpc_request_client() and gn_rpc_request_thread(). */
GN_API uint64_t gn_rpc_group_client(const struct gn_rpc_group *group);
GN_API unsigned gn_rpc_group_thread(const struct gn_rpc_group *group);
/*
 * Where a result of up to most bytes may be put together, to be given to gn_rpc_group_answer()
 * without a copy. Good until the next call of gn_rpc_group_room() or of an answer. If no slot of
 * results is free, this is memory that the library keeps until one is. NULL: limits allow no such
 * result, and the call has ended already: with GN_RPC_BUSY, or with GN_RPC_TOO_BIG if most is more
 * than the server's max_large. So ask before executing.
 */
GN_API void *gn_rpc_group_room(struct gn_rpc_group *group, unsigned i, uint32_t most);
/*
 * Both in one, where the result's length is known: end a call with len bytes that go there. Write
 * them before the next call of any function of the group. NULL: the message with results has no
 * room for them, and the call has not ended; ask for room, and answer.
 */
GN_API void *gn_rpc_group_put(struct gn_rpc_group *group, unsigned i, unsigned status,
			      uint32_t len_bytes);
/*
 * End a call of the group, in any order. data: where gn_rpc_group_room() said, or any other bytes,
 * which are copied. A call that the handler does not end has GN_RPC_FAILED.
 */
GN_API void gn_rpc_group_answer(struct gn_rpc_group *group, unsigned i, unsigned status,
				const void *data, uint32_t len_bytes);
/* As gn_rpc_answer_mem(). */
GN_API void gn_rpc_group_answer_mem(struct gn_rpc_group *group, unsigned i, unsigned status,
				    struct gn_mem *mem, size_t offset, uint32_t len_bytes,
				    void (*release)(void *arg), void *arg);

/* ---- client ---- */

struct gn_rpc_client;

/* What rpc tune found out about a network: how to fetch, and until when. */
#define GN_RPC_TUNING_RETRIES 8u
#define GN_RPC_TUNING_SIZES   16u
struct gn_rpc_tuning {
	size_t size; /* sizeof(struct gn_rpc_tuning) */
	uint32_t retries;   /* R: the most fetches with which fetch is 10 % better than reply */
	uint32_t switch_us; /* Tx: the server's time from which on it is not */
	uint32_t n_retries, n_sizes;
	uint32_t bytes[GN_RPC_TUNING_SIZES]; /* F, ascending */
	/* I(R, F): calls in a millisecond, of all clients, with 1 … n_retries fetches each */
	uint32_t rate[GN_RPC_TUNING_RETRIES][GN_RPC_TUNING_SIZES];
};
/* -EINVAL with a word in the log when the file is none of ours. */
GN_API int gn_rpc_tuning_read(const char *path, struct gn_rpc_tuning *out);
GN_API int gn_rpc_tuning_write(const char *path, const struct gn_rpc_tuning *tuning);

/* A batch goes when it has so many entries, bytes or microseconds; or when its client waits. */
struct gn_rpc_batch {
	uint32_t entries; /* N; 0: 1, every request by itself */
	uint32_t bytes;	  /* L; 0: what a slot holds */
	uint32_t wait_us; /* T; 0: 5000 */
	/*
	 * The library chooses N, at most entries (0: 128): the largest with which not more than
	 * alpha_pct of calls take longer than limit_us. 0: it does not.
	 */
	uint32_t limit_us;
	uint32_t alpha_pct; /* 0: 5 */
};

/* A connection, as gn_rpc_client_limits() names it: for the client that takes its place. */
struct gn_rpc_conn_id {
	uint64_t name; /* 0: none */
	uint32_t thread;
};

struct gn_rpc_client_opts {
	size_t size; /* sizeof(struct gn_rpc_client_opts) */
	enum gn_rpc_mode mode;
	unsigned flags;	      /* enum gn_rpc_flag */
	uint32_t slots;	      /* requests or batches under way; 0: GN_RPC_SLOTS_DEFAULT */
	uint32_t max_request; /* bytes in a slot; 0: GN_RPC_BYTES_DEFAULT */
	uint32_t max_result;  /* the server may grant less of all three */
	uint32_t max_large;   /* bytes of anything; 0: GN_RPC_LARGE_MAX */
	struct gn_rpc_batch batch;
	uint32_t fetch_bytes; /* F: of a result that the first read brings; 0: as results are */
	uint32_t retries;     /* R; 0: the table's */
	uint32_t switch_us;   /* Tx; 0: the table's */
	const struct gn_rpc_tuning *tuning; /* NULL: GANNET_RPC_TUNING's, or a rule of thumb */
	/* The server's thread, from 1. 0, or one that the server does not have: any. */
	uint32_t thread;
	struct gn_ctx *ctx;		    /* NULL: one of its own */
	uint64_t timeout_us;		    /* to connect; 0: 2 s */
	gn_rpc_peer_fn *peer;		    /* the server came, or went; may be NULL */
	void *peer_arg;
	/* Of a client that was closed: its requests are not begun when this one is connected. */
	struct gn_rpc_conn_id previous;
};

/* The papers' way: everything synchronous, nothing learnt from the server's time. */
#define GN_RPC_CLIENT_PAPER (GN_RPC_SIGNALED | GN_RPC_EAGER | GN_RPC_BY_FAILS)
#define GN_RPC_SERVER_PAPER (GN_RPC_SYNC_REPLY | GN_RPC_ONE_CTX)

/* -ECONNREFUSED, -ETIMEDOUT, -EPROTO (no RPC server of this version). opts may be NULL. */
GN_API int gn_rpc_client_open(struct gn_fabric *fabric, const char *addr,
			      const struct gn_rpc_client_opts *opts, struct gn_rpc_client **out);
/*
 * The same in two steps, so that nobody has to wait: begin, and then ask whether the client is
 * connected: 0; -EAGAIN: not by the deadline; or why it will not be, and then it is to be closed.
 * Until it is connected calls return -ENOTCONN.
 */
GN_API int gn_rpc_client_open_begin(struct gn_fabric *fabric, const char *addr,
				    const struct gn_rpc_client_opts *opts,
				    struct gn_rpc_client **out);
GN_API int gn_rpc_client_open_wait(struct gn_rpc_client *client, uint64_t deadline_ns);
/*
 * Connect again, to the same address; calls under way end with GN_RPC_PEER_GONE. Errors as of
 * gn_rpc_client_open(), and the client stays as it was: closed or to be connected again. -EAGAIN:
 * its earlier servers may still be copying from its memory, for up to GN_TEARDOWN_US.
 */
GN_API int gn_rpc_reconnect(struct gn_rpc_client *client);
/*
 * A client belongs to the thread that opened it. To hand it over, its owner releases it when
 * nothing is under way (-EBUSY: calls or reads are, or it connects; -EDEADLK: from within done),
 * and another thread adopts it: 0, -EBUSY when it belongs to another thread. Between the two it
 * belongs to nobody, calls return -EPERM, and any thread may close it. Release or close it before
 * its owner's thread ends: afterwards no thread can adopt or close it.
 */
GN_API int gn_rpc_client_release(struct gn_rpc_client *client);
GN_API int gn_rpc_client_adopt(struct gn_rpc_client *client);
/* Calls under way end with GN_RPC_CANCELED. NULL is fine. */
GN_API int gn_rpc_client_close(struct gn_rpc_client *client);

struct gn_rpc_limits {
	size_t size; /* sizeof(struct gn_rpc_limits) */
	uint32_t slots, max_request, max_result, max_large; /* as granted */
	uint32_t window;				    /* calls under way */
	uint32_t reads;					    /* gn_rpc_read() under way */
	struct gn_rpc_conn_id conn;			    /* this connection */
};
GN_API int gn_rpc_client_limits(const struct gn_rpc_client *client, struct gn_rpc_limits *out);

/*
 * Call and wait. Returns 0 with *status and *result_len (both may be NULL), or -EAGAIN when as many
 * calls as may be were under way until the deadline, -EMSGSIZE when the request is too large,
 * -ENOTCONN when the server is gone.
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
	uint64_t deadline_ns;
	void (*done)(struct gn_rpc_op *op);
	void *arg;
	unsigned flags; /* 0 or GN_RPC_IN_PLACE */
	/* out, valid in done */
	unsigned status;
	uint32_t result_len;
	/*
	 * GN_RPC_IN_PLACE: the result_len bytes of the result, in memory of the library, aligned to
	 * 8, good until done returns; NULL when there are none. The server may change them
	 * meanwhile: copy what you check. result is not used; result_room is the most that may
	 * come.
	 */
	const void *data;
	/* private */
	uint32_t slot;
	struct gn_rpc_client *client;
};

/*
 * Call several and wait for all: 0, with a status in each that began, or the error of the first
 * that did not; those behind it did not either, and have GN_RPC_CANCELED. Each waits until it may
 * begin, as gn_rpc_call() does. done may be NULL.
 */
GN_API int gn_rpc_call_all(struct gn_rpc_client *client, struct gn_rpc_op *ops, unsigned n);

/*
 * Begin a call: 0, or an error as gn_rpc_call(), and then done is not called. -EAGAIN: as many
 * calls as may be are under way, or the server has not taken the message in the next slot.
 */
GN_API int gn_rpc_submit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/*
 * The same in two steps, for a caller that writes its request where it is sent from: *out is room
 * for op->request_len bytes, aligned to 8; op->request is not used. Write them, and commit; until
 * then request_len may be made smaller, and nothing else of the op may change. A call that is not
 * committed has not begun and leaves nothing behind.
 *
 * Errors of commit, after which nothing has begun:
 * -EINVAL: the method was changed, or the request is longer than it was prepared; or a call of
 *          another method was tried since;
 * -ESRCH: op is not the last that was prepared, a call was begun or a message sent since, or the
 *         op's deadline was set or cleared;
 * -ENOTCONN: the connection is gone.
 *
 * Prepare returns the errors of gn_rpc_submit(); and -EMSGSIZE for more than max_request bytes
 * (gn_rpc_client_limits()): submit such a request.
 */
GN_API int gn_rpc_prepare(struct gn_rpc_client *client, struct gn_rpc_op *op, void **out);
GN_API int gn_rpc_commit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/* Send the batch that is being gathered, if there is one. -ENOTCONN: the connection is gone. */
GN_API int gn_rpc_flush(struct gn_rpc_client *client);
/*
 * Move calls on and end those that are done: how many. Calls done for each, which may submit
 * others. The poll that finds the connection gone ends all calls and calls peer; later ones return
 * 0. Without calls under way only peer tells of it, or the next gn_rpc_submit() or gn_rpc_flush().
 */
GN_API int gn_rpc_poll(struct gn_rpc_client *client);
/*
 * … until at least one has ended: how many, or -ETIMEDOUT, -EINTR. 0 when none is under way, also
 * because the connection is gone; but after a call was refused with -EAGAIN, 0 when it can be
 * begun.
 */
GN_API int gn_rpc_wait(struct gn_rpc_client *client, uint64_t deadline_ns);
/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_rpc_poll() should be
 * called, or gn_rpc_client_open_wait() as long as it connects. What was submitted and not sent yet
 * is sent when its time has come, or by gn_rpc_flush(). It is ready when the connection breaks, and
 * not again after the poll that finds it gone: then gn_source_arm() returns 0, and only
 * gn_rpc_reconnect() helps. An event loop learns of it from peer.
 */
GN_API struct gn_source *gn_rpc_client_source(struct gn_rpc_client *client);
/* End it now, with GN_RPC_CANCELED; done is called before this returns. -ESRCH: it has ended. */
GN_API int gn_rpc_cancel(struct gn_rpc_op *op);

/* ---- a server's memory ---- */

#define GN_RPC_READ_SHORT 4096u

/* A read of what a server shows, without it: the caller's again when done is called for it. */
struct gn_rpc_read_op {
	struct gn_rpc_view view;
	uint64_t offset;
	uint32_t len;
	/* Where the bytes go. NULL: nowhere, done finds a short one's in data. */
	void *to;
	void (*done)(struct gn_rpc_read_op *read);
	void *arg;
	struct gn_rpc_read_op *next; /* to be begun with it; short ones only */
	/* out, valid in done */
	unsigned status; /* GN_RPC_OK, GN_RPC_PEER_GONE or GN_RPC_CANCELED */
	const void *data;
	/* private */
	uint32_t slot;
};

/*
 * Begin to read; with all that next leads to, or none of them. They need one request of the card
 * each, and all of them one doorbell; gn_rpc_poll() and gn_rpc_wait() end them and count them. One
 * of more than GN_RPC_READ_SHORT bytes goes in pieces, by itself. The server may write meanwhile:
 * what is read must tell by itself whether it is whole. -EINVAL: outside of the view, -ESTALE: it
 * is another connection's, -EAGAIN: too many are under way, -ENOTCONN.
 */
GN_API int gn_rpc_read(struct gn_rpc_client *client, struct gn_rpc_read_op *read);

/* ---- counters ---- */

struct gn_rpc_counters {
	size_t size; /* sizeof(struct gn_rpc_counters) */
	uint64_t calls; /* begun; of a server: executed */
	uint64_t ended[GN_RPC_FAILED + 1];
	uint64_t batches;				/* messages with requests */
	uint64_t results;				/* messages with results */
	uint64_t fetches, failed_fetches, second_reads; /* of a client */
	uint64_t switches;				/* between fetch and reply */
	uint64_t large;					/* requests and results that were read */
	uint64_t reads;					/* gn_rpc_read(), of a client */
	uint64_t torn;					/* looked at and found incomplete */
	uint64_t probes;				/* questions to a silent peer */
	uint64_t parks, wakes;				/* clients put aside, and woken */
	uint64_t notifies; /* a client asked to be told of a result; a server told it */
	uint64_t reconnects;
	uint64_t clients; /* of a server: connected now */
	uint64_t bytes;	  /* of a server: kept for its clients now, see max_bytes */
	uint64_t refused; /* of a server: clients that a limit kept out */
	uint64_t dropped; /* of a server: requests and results that a limit turned into BUSY */
};

GN_API int gn_rpc_client_counters(const struct gn_rpc_client *client, struct gn_rpc_counters *out);
GN_API int gn_rpc_server_counters(struct gn_rpc_server *server, struct gn_rpc_counters *out);

/* What a client has chosen, for a method. */
struct gn_rpc_choice {
	size_t size; /* sizeof(struct gn_rpc_choice) */
	enum gn_rpc_mode mode; /* FETCH or REPLY */
	uint32_t retries, fetch_bytes, switch_us, batch;
};
GN_API int gn_rpc_client_choice(const struct gn_rpc_client *client, unsigned method,
				struct gn_rpc_choice *out);

/*
 * All of that and a latency histogram per method, as text: how long it is, without its NUL; at most
 * room bytes of it with a NUL are in buf. Of a client, from its own thread.
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
