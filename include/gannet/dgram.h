/* SPDX-License-Identifier: MIT */
/*
 * gannet/dgram.h - calls from all threads of a node to all threads of all others, over unreliable
 * datagrams.
 *
 * Each thread has an endpoint with one UD qp, however many peers it calls: cost does not grow with
 * the cluster. Calls are FaSST's ("FaSST: Fast, Scalable and Simple Distributed Transactions with
 * Two-Sided RDMA Datagram RPCs", OSDI '16), and reliable: lost datagrams are retransmitted, a call
 * is executed at most once, and every call completes with exactly one status, one of enum
 * gn_rpc_status.
 *
 * A *node* is a process: its address, its endpoints and its handlers. A *peer* is a thread of
 * another node, named by the node's address and the thread's number; a node cannot call itself. Two
 * nodes exchange the addresses of their endpoints and random numbers, their *epoch*, over a
 * connection that is then closed. Every datagram carries the epoch, so none is taken for one of an
 * earlier process.
 *
 * A call ends when
 *   - its answer arrives (GN_RPC_OK, or the status that the handler returned),
 *   - the peer's node does not have so many threads (GN_RPC_NO_METHOD),
 *   - its deadline passes (GN_RPC_TIMEOUT) or it is canceled (GN_RPC_CANCELED),
 *   - the peer is gone (GN_RPC_PEER_GONE): the peer's node has another epoch, was destroyed or has
 *     evicted this one, or the program says so with gn_dgram_peer_gone().
 * Retransmissions alone never end a call, and it does not end because nobody listens at the address
 * of a node that was killed: give calls a deadline. The log says once that a node is not reached.
 * After any other status than an answer's the call may have been executed, once, or may still be.
 *
 * An endpoint, its peers and its workers belong to the thread that created it: other threads get
 * -EPERM. All work happens inside the calls below. A node has one more thread, which only connects
 * and accepts. Functions return 0 or a negative errno; the outcome of a call is in its status.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT polls once.
 */
#ifndef GANNET_DGRAM_H
#define GANNET_DGRAM_H

#include <gannet/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_DGRAM_THREADS_MAX 64u /* endpoints of a node */
#define GN_DGRAM_METHODS_MAX 256u
#define GN_DGRAM_BYTES_MAX   (256u << 10) /* of a request, and of a result */
#define GN_DGRAM_ADDR_MAX    128u	  /* of a node's address, with the NUL */
#define GN_DGRAM_SLOTS	     64u	  /* outstanding calls from one endpoint to one peer */
#define GN_DGRAM_BYTES_MIN   256u	  /* smallest gn_dgram_opts.datagram_bytes */

struct gn_dgram_node;
struct gn_dgram_endpoint;
struct gn_dgram_peer;

/* ---- node ---- */

/*
 * What of FaSST's optimisations to leave out, to measure it; the default is all of them. A switch
 * changes the cost of calls and nothing else.
 */
enum gn_dgram_flag {
	GN_DGRAM_NO_BATCH = 1 << 0,	   /* one doorbell per request datagram */
	GN_DGRAM_NO_COALESCE = 1 << 1,	   /* one message per datagram */
	GN_DGRAM_NO_ANSWER_BATCH = 1 << 2, /* one doorbell per answer datagram */
	GN_DGRAM_NO_CHEAP_RECV = 1 << 3,   /* post receives one by one; copy requests */
	GN_DGRAM_SIGNAL_ALL = 1 << 4,	   /* every send has a completion */
	GN_DGRAM_NO_PREFETCH = 1 << 5,	   /* do not call prefetch functions of handlers */
	/*
	 * Thread i calls thread i of other nodes, and no other; both nodes must say so. An
	 * endpoint then has one peer per node, and needs receives for no more.
	 */
	GN_DGRAM_MAPPED = 1 << 6,
};

/* 0 is the default of every member. */
struct gn_dgram_opts {
	size_t size;		 /* sizeof(struct gn_dgram_opts) */
	uint32_t threads;	 /* endpoints of the node; 0: 1 */
	unsigned flags;		 /* enum gn_dgram_flag */
	unsigned listener_flags; /* GN_ANY_USER */
	uint32_t datagram_bytes; /* longest datagram; 0: the device's, at most 4096 */
	uint32_t receives;	 /* posted per endpoint; 0: 2048; the device may have less */
	uint32_t calls;		 /* outstanding calls per endpoint; 0: a quarter of receives */
	uint32_t window_bytes;	 /* of calls to one peer that are under way; 0: 28 KiB */
	uint32_t min_rto_us;	 /* shortest retransmission timeout; 0: 50 */
	uint32_t first_rto_us;	 /* … before a round trip was measured; 0: 2000 */
	uint32_t check_us; /* silence of a called peer before its epoch is asked for; 0: 50000 */
	/* of GN_DGRAM_IN_WORKER, per endpoint, for all callers; calls beyond: BUSY; 0: 64 */
	uint32_t handler_workers;
	uint32_t stack_bytes; /* of a worker; 0: 64 KiB */
	/* Limits on what peers can make an endpoint keep: see docs/limits.md. */
	uint32_t max_peers;	   /* 0: half of receives; idle ones give way to others */
	uint64_t max_peer_bytes;   /* large requests under reassembly of one peer; 0: 1 MiB */
	uint64_t max_bytes;	   /* … of all peers; 0: 64 MiB */
	uint64_t max_answer_bytes; /* memory of kept answers of all peers; 0: 64 MiB */
	uint32_t max_handshakes;   /* of the node, at the same time; a quarter its own; 0: 64 */
};

/*
 * Creates a node that listens at addr (see gn_listener_create()) once its endpoints exist. addr
 * NULL: the node calls others, and only nodes that it has called can call it. opts may be NULL.
 */
GN_API int gn_dgram_node_create(struct gn_fabric *fabric, const char *addr,
				const struct gn_dgram_opts *opts, struct gn_dgram_node **out);
/* Tells other nodes, which takes up to 100 ms. -EBUSY: the node has endpoints. */
GN_API int gn_dgram_node_destroy(struct gn_dgram_node *node);

/* A call at the side that executes it. Only the handler may use it, until the handler returns. */
struct gn_dgram_request {
	const void *data; /* len bytes, aligned to 8, in the receive buffer; do not change them */
	uint32_t len;
	uint32_t method;
	/*
	 * Store up to room bytes of the result here, and their number in result_len. A longer
	 * result needs gn_dgram_result(): with result_len > room the call ends with GN_RPC_FAILED,
	 * without a result, and the log says so once.
	 */
	void *result;
	uint32_t room;
	uint32_t result_len;	    /* 0 when the handler starts */
	struct gn_dgram_peer *peer; /* the caller */
	struct gn_dgram_endpoint *endpoint;
	void *internal; /* private */
};

/*
 * Executes a request and returns its status: GN_RPC_OK, GN_RPC_DENIED, GN_RPC_BUSY, GN_RPC_FAILED
 * or a code of its own from GN_RPC_FAILED + 1 to 65535; any other status becomes GN_RPC_FAILED, and
 * the log says so once. Runs within gn_dgram_poll() and must not wait or call, unless it is
 * registered with GN_DGRAM_IN_WORKER: then it runs in a worker of the endpoint and may do both, and
 * data is a copy.
 */
typedef unsigned gn_dgram_handler(void *arg, struct gn_dgram_request *request);
/*
 * Called with the requests of a batch before the handler of the first one: starts loading what the
 * handler will read. May change nothing.
 */
typedef void gn_dgram_prefetch(void *arg, const void *data, uint32_t len);

#define GN_DGRAM_IN_WORKER (1u << 0) /* flag of gn_dgram_handle() */

/*
 * Registers a handler for all endpoints, before the first one is created (-EBUSY). prefetch may be
 * NULL. -EEXIST: the method has a handler. -EINVAL: method is not below GN_DGRAM_METHODS_MAX.
 */
GN_API int gn_dgram_handle(struct gn_dgram_node *node, unsigned method, gn_dgram_handler *fn,
			   gn_dgram_prefetch *prefetch, void *arg, unsigned flags);

/*
 * In a handler: a buffer of at least bytes for the result, which replaces request->result and
 * request->room. For results that do not fit request->room. NULL: max_answer_bytes are kept, there
 * is no memory (return GN_RPC_BUSY), or more than GN_DGRAM_BYTES_MAX (return GN_RPC_FAILED or a
 * code of your own); gn_error() says which.
 */
GN_API void *gn_dgram_result(struct gn_dgram_request *request, uint32_t bytes);

/* ---- endpoint ---- */

/*
 * Creates endpoint number thread of the node for the calling thread. Nodes can exchange calls when
 * all opts.threads endpoints exist. -EEXIST: this number exists. -EOPNOTSUPP: the fabric has no UD.
 */
GN_API int gn_dgram_endpoint_create(struct gn_dgram_node *node, uint32_t thread,
				    struct gn_dgram_endpoint **out);
/*
 * Call it in the endpoint's thread, before the thread ends. Calls that are outstanding end with
 * GN_RPC_CANCELED. Workers that have not returned are discarded: their stacks are freed without
 * unwinding, and the code after their call never runs. -EDEADLK: called by a worker or a handler.
 */
GN_API int gn_dgram_endpoint_destroy(struct gn_dgram_endpoint *endpoint);

/*
 * Makes progress: receives, runs handlers, completes calls, retransmits, sends, and resumes ready
 * workers once each. Returns the number of calls executed and completed and of workers resumed.
 * -EDEADLK: called by a worker or a handler.
 */
GN_API int gn_dgram_poll(struct gn_dgram_endpoint *endpoint);
/* Polls until there was something to do: its number; -ETIMEDOUT; -EINTR. */
GN_API int gn_dgram_wait(struct gn_dgram_endpoint *endpoint, uint64_t deadline_ns);
/* Polls until all workers of gn_dgram_spawn() have returned: 0; -ETIMEDOUT; -EINTR. */
GN_API int gn_dgram_run(struct gn_dgram_endpoint *endpoint, uint64_t deadline_ns);
/*
 * A source for gn_wait(), or through gn_source_fd() for another event loop: ready when
 * gn_dgram_poll() should be called. The fd becomes readable only while the source is armed: poll
 * until there is nothing to do, then gn_source_arm(), then sleep (see gannet/base.h).
 */
GN_API struct gn_source *gn_dgram_source(struct gn_dgram_endpoint *endpoint);

/* ---- peers ---- */

/*
 * The peer that is thread number thread of the node at addr; the same pointer every time. Does not
 * wait and does not connect: the first call does. A peer lives as long as the endpoint, and stays
 * valid when its node restarts. -EINVAL: addr is not an address of the fabric's provider, or the
 * node's own; thread is too large, or another number than the endpoint's with GN_DGRAM_MAPPED.
 * -ENOSPC: the endpoint has max_peers.
 */
GN_API int gn_dgram_peer_open(struct gn_dgram_endpoint *endpoint, const char *addr, uint32_t thread,
			      struct gn_dgram_peer **out);
/*
 * Says that the node of the peer is gone, as membership knows it: calls from all endpoints of this
 * node to all its threads end with GN_RPC_PEER_GONE. The next call to it makes a new epoch.
 */
GN_API int gn_dgram_peer_gone(struct gn_dgram_peer *peer);
/*
 * The address and thread of a peer. addr is "" for a node without an address, or with one where it
 * could not be verified that the node listens there.
 */
GN_API const char *gn_dgram_peer_addr(const struct gn_dgram_peer *peer);
GN_API uint32_t gn_dgram_peer_thread(const struct gn_dgram_peer *peer);
/* The epoch of the peer's node, or 0 while none is known. Changes when the node restarts. */
GN_API uint64_t gn_dgram_peer_epoch(const struct gn_dgram_peer *peer);
/*
 * For the program's own use: one pointer per peer, NULL at first. A caller that the program has not
 * opened goes with its node's epoch, without a notice: do not let its peer own memory.
 */
GN_API void gn_dgram_peer_set_user(struct gn_dgram_peer *peer, void *user);
GN_API void *gn_dgram_peer_user(const struct gn_dgram_peer *peer);

/* ---- calls ---- */

/* A call. The library owns the struct and its buffers until the call has ended. */
struct gn_dgram_op {
	struct gn_dgram_peer *peer;
	const void *request;
	void *result;
	uint32_t request_len;
	uint32_t result_room;
	uint64_t deadline_ns;
	unsigned method;
	/* out */
	unsigned status;
	uint32_t result_len;
	/*
	 * gn_dgram_submit(): called within gn_dgram_poll() when the call has ended; may submit
	 * others, must not wait. May be NULL. gn_dgram_call() does not use it.
	 */
	void (*done)(struct gn_dgram_op *op);
	void *arg;
	/* private */
	uint32_t number;
	uint16_t slot;
	uint8_t state, attempt;
	struct gn_dgram_op *next;
	void *waiter;
};

/*
 * Calls and waits for the end. In a worker: other workers run meanwhile. Elsewhere: polls the
 * endpoint. Returns 0 with op->status, or an error as of gn_dgram_submit(); then nothing was sent,
 * and op->status is GN_RPC_CANCELED. Does not return -EAGAIN: calls beyond opts.calls wait.
 * -EDEADLK: called by a handler that is not in a worker, or by a done function.
 */
GN_API int gn_dgram_call(struct gn_dgram_op *op);
/*
 * Makes several calls, to one or several peers of one endpoint, and waits for all. Requests to one
 * peer share datagrams. n may exceed opts.calls: the rest waits. Returns 0 with a status in each
 * op, or the error of the first op that could not be submitted, when all before it have ended; that
 * op and all after it get GN_RPC_CANCELED.
 */
GN_API int gn_dgram_call_all(struct gn_dgram_op *ops, unsigned n);
/*
 * Starts a call. The request is sent by the next poll, or by gn_dgram_flush(). -EAGAIN: opts.calls
 * calls are outstanding. -EMSGSIZE: more than GN_DGRAM_BYTES_MAX. -EBUSY: the op is under way.
 * -EINVAL, -EPERM. After an error other than -EBUSY op->status is GN_RPC_CANCELED. A call to a peer
 * that has no free slot or no credit waits its turn, in order.
 */
GN_API int gn_dgram_submit(struct gn_dgram_op *op);
/* Sends all that was submitted and answered, as far as peers have granted it. */
GN_API int gn_dgram_flush(struct gn_dgram_endpoint *endpoint);
/*
 * Ends a call with GN_RPC_CANCELED; done is called before this returns. -ESRCH: the call has ended.
 */
GN_API int gn_dgram_cancel(struct gn_dgram_op *op);

/* ---- workers ---- */

/*
 * Starts fn in a worker: a fiber that gn_dgram_poll() of the endpoint resumes when its call has
 * ended. The worker ends when fn returns. May be called by workers.
 */
GN_API int gn_dgram_spawn(struct gn_dgram_endpoint *endpoint, void (*fn)(void *arg), void *arg);
/* In a worker: lets other workers run, and the endpoint poll. Elsewhere: gn_dgram_poll(). */
GN_API int gn_dgram_yield(struct gn_dgram_endpoint *endpoint);
/* The number of workers of gn_dgram_spawn() that have not returned. */
GN_API unsigned gn_dgram_workers(const struct gn_dgram_endpoint *endpoint);

/* ---- counters ---- */

/* Of one endpoint since its creation. Any thread may read them while the endpoint exists. */
struct gn_dgram_stats {
	size_t size;			   /* sizeof(struct gn_dgram_stats) */
	uint64_t calls;			   /* started */
	uint64_t ended[GN_RPC_FAILED + 1]; /* calls by status; codes of handlers under FAILED */
	uint64_t executed;		   /* handlers run */
	uint64_t answers;		   /* sent, without repeats */
	uint64_t sent, received;	   /* datagrams */
	uint64_t messages;		   /* sent in these datagrams */
	uint64_t doorbells, recv_doorbells;
	uint64_t repeats;	   /* requests and cancels that were sent again */
	uint64_t answers_repeated; /* kept answers that were sent again */
	uint64_t duplicates;	   /* requests that were not executed again */
	uint64_t late;		   /* answers to calls that have ended */
	uint64_t pieces;	   /* of large messages, sent */
	uint64_t pieces_repeated;
	uint64_t credit_waits; /* calls that had to wait for a credit, a slot or the window */
	uint64_t busy;	       /* requests refused with GN_RPC_BUSY by a limit */
	/* datagrams and messages dropped: */
	uint64_t malformed;    /* not of this protocol, truncated, or impossible values */
	uint64_t wrong_epoch;  /* of another epoch */
	uint64_t unknown_peer; /* of no peer of this endpoint */
	uint64_t over_credit;  /* requests beyond the credit of their sender */
	uint64_t over_limit;   /* what a limit did not allow to keep */
	uint64_t resets;       /* of the qp; datagrams in flight were lost */
	uint64_t epochs;       /* peers' epochs that this endpoint has used */
	uint64_t gone;	       /* … that ended */
	uint64_t workers_resumed;
	uint64_t longest_gap_ns; /* between two polls while workers and handlers ran */
	/* gauges */
	uint64_t outstanding;  /* calls */
	uint64_t peers;	       /* known to the endpoint */
	uint64_t active_peers; /* … with calls, or with answers kept */
	uint64_t granted;      /* receives set aside for requests of peers */
	uint64_t kept_bytes;   /* memory of kept answers */
	uint64_t reassembly_bytes;
	uint64_t srtt_ns; /* of the last peer measured */
};
GN_API int gn_dgram_endpoint_stats(const struct gn_dgram_endpoint *endpoint,
				   struct gn_dgram_stats *out);

/* Of a node: its handshakes. */
struct gn_dgram_node_stats {
	size_t size;	   /* sizeof(struct gn_dgram_node_stats) */
	uint64_t epochs;   /* made, with other nodes */
	uint64_t replaced; /* … that ended: restarts, goodbyes, evictions, gn_dgram_peer_gone() */
	uint64_t attempts; /* to connect */
	uint64_t refused;  /* handshakes refused by a limit, of another version, or that lie */
	uint64_t checks;   /* of a silent peer's epoch, and of the address of a hello */
	uint64_t nodes;	   /* known now */
};
GN_API int gn_dgram_node_stats_read(struct gn_dgram_node *node, struct gn_dgram_node_stats *out);

#ifdef __cplusplus
}
#endif

#endif
