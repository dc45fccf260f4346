/* SPDX-License-Identifier: MIT */
/*
 * gannet/msg.h - requests and answers over seven message passing protocols.
 *
 * A requester sends requests, a responder answers them. The protocol selects the verbs that carry
 * both. Five protocols are from "An Evaluation of RDMA-based Message Passing Protocols", two are
 * additions. The best choice depends on the topology, the message sizes and the number of pending
 * requests: see docs/protocols.md and "gannet advise".
 *
 *                 request        answer         CPU work of the responder
 *   SEND/SEND     SEND           SEND           polls a receive, posts the next, answers
 *   SEND/WRITE    SEND           WRITE          the same
 *   WRITE/SEND    WRITE          SEND           polls memory, answers
 *   WRITE/WRITE   WRITE          WRITE          the same
 *   READ          READ           -              none: the requester knows the offset
 *   WRITE_IMM     WRITE_IMM      WRITE_IMM      as SEND, but into a slot the sender chose
 *   UD            SEND           SEND           datagrams: lost requests are retransmitted
 *
 * A requester with its connections, and a responder, belong to one thread. Another thread may take
 * over after the first has finished and the two have synchronised by a lock, a queue or a join. A
 * forked child cannot use an inherited object (-EPERM): it must open the provider itself.
 *
 * All work happens inside the calls; there are no background threads. Answers on one connection
 * arrive in the order of the requests, except over UD. The responder executes a request at most
 * once: it answers a retransmitted request from memory.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT polls once.
 */
#ifndef GANNET_MSG_H
#define GANNET_MSG_H

#include <gannet/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_MSG_PENDING_MAX 4096u      /* requests in flight per connection */
#define GN_MSG_BYTES_MAX   (1u << 20) /* bytes of a request, and of an answer; READ: attr.max_msg */
#define GN_MSG_CONNS_MAX   1024u      /* connections per requester, and per responder */

enum gn_msg_protocol {
	GN_MSG_SEND_SEND,
	GN_MSG_SEND_WRITE,
	GN_MSG_WRITE_SEND,
	GN_MSG_WRITE_WRITE,
	GN_MSG_READ,
	GN_MSG_WRITE_IMM,
	GN_MSG_UD,
	GN_MSG_PROTOCOLS
};

/* Returns "SEND/SEND", …, "READ", "WRITE_IMM", "UD". Never NULL; the string is static. */
GN_API const char *gn_msg_protocol_str(unsigned protocol);
/* Ignores case. -EINVAL: unknown protocol. */
GN_API int gn_msg_protocol_parse(const char *text, enum gn_msg_protocol *out);

enum gn_msg_status {
	GN_MSG_OK,
	GN_MSG_GONE,	/* the peer disconnected; the request may have been executed */
	GN_MSG_LOST,	/* UD: no answer within request_timeout_us; may have been executed */
	GN_MSG_REFUSED, /* the responder's answer function returned a negative number */
	GN_MSG_BROKEN,	/* the answer is invalid; the connection is closed */
	GN_MSG_STATUSES
};
GN_API const char *gn_msg_status_str(unsigned status);

enum gn_msg_flag {
	/*
	 * Behave as in the paper: each message is posted by itself and signaled. Where WRITEs are
	 * placed in order, a message in memory is a length, a marker, the payload and a marker, and
	 * is zeroed after it was read. Without this flag, messages are posted in batches, some are
	 * signaled, and a message in memory carries its sequence number at both ends. Where WRITEs
	 * are not placed in order, a message always has sequence numbers and a checksum.
	 */
	GN_MSG_PAPER = 1 << 0,
};

struct gn_msg_stats {
	size_t size; /* sizeof(struct gn_msg_stats) */
	uint64_t requests;  /* requester: sent; responder: executed */
	uint64_t answers;   /* requester: taken; responder: sent */
	uint64_t failed;    /* requests that ended with another status than OK */
	uint64_t repeats;   /* UD: requests retransmitted, or answered again from memory */
	uint64_t strays;    /* datagrams and messages that match no request */
	uint64_t resets;    /* UD: resets of a failed qp; datagrams in flight were lost */
	uint64_t looks;	    /* polls of a memory slot that held no message */
	uint64_t wrs;	    /* posted, without receives */
	uint64_t doorbells; /* for these */
	uint64_t recvs;	    /* receives posted */
};

/* ---- responder ---- */

struct gn_msg_responder;

/*
 * Answers a request: writes at most max bytes to value and returns their number, or a negative
 * number, which the requester sees as REFUSED. value is a send buffer of the connection and still
 * holds the last answer sent from it (at first zeros), so unchanged bytes need not be written
 * again. Its content beyond the last answer, and after a refusal, is undefined. The peer may change
 * the request's bytes at any time: read each byte once.
 */
typedef int gn_msg_answer_fn(void *arg, const void *request, uint32_t len, void *value,
			     uint32_t max);

struct gn_msg_responder_opts {
	size_t size; /* sizeof(struct gn_msg_responder_opts) */
	gn_msg_answer_fn *answer; /* NULL: the responder serves READs only */
	void *arg;
	/*
	 * Exposed to READs: all of it, to every requester that connects. Must allow GN_REMOTE_READ
	 * and outlive the responder. NULL: none.
	 */
	struct gn_mem *data;
	struct gn_ctx *ctx;   /* NULL: creates its own */
	uint32_t max_conns;   /* 0: 64 */
	uint32_t max_pending; /* per connection; 0: 256 */
	uint32_t max_request; /* bytes, 0: 4096 */
	uint32_t max_value;   /* bytes, 0: 65536 */
	/*
	 * Buffer bytes of all connections: each needs about its pending requests times its largest
	 * request plus answer, as its requester asks. A connection beyond the limit is refused. 0:
	 * 256 MiB.
	 */
	uint64_t max_memory;
	unsigned flags;	       /* GN_MSG_PAPER */
	unsigned listener_flags; /* GN_ANY_USER */
};

/* Listens at addr (see gn_listener_create()) and accepts requesters of all protocols. */
GN_API int gn_msg_responder_create(struct gn_fabric *fabric, const char *addr,
				   const struct gn_msg_responder_opts *opts,
				   struct gn_msg_responder **out);
GN_API void gn_msg_responder_destroy(struct gn_msg_responder *responder);
/*
 * Accepts connections, executes requests and answers them. Returns their number, 0 if there was
 * none before the deadline, or -EINTR. A requester that disconnected or violated the protocol is
 * removed without affecting the others. No call waits for a peer. The UD qp, which all connections
 * share, is reset when it fails; datagrams in flight are lost.
 *
 * The connection slot of a requester is free when its disconnect has arrived: on shm at once after
 * gn_msg_conn_close() has returned; across a network after one way. A crash is detected when the
 * process ends (shm), or does not acknowledge (verbs: 2 to 8 s).
 */
GN_API int gn_msg_respond(struct gn_msg_responder *responder, uint64_t deadline_ns);
/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_msg_respond() should be
 * called with GN_NO_WAIT. A WRITTEN request raises no event (SEND, WRITE_IMM and UD do): a sleeping
 * responder tells its requesters, and the next request wakes it. If the two cross, a timer finds
 * the request up to 10 ms late.
 */
GN_API struct gn_source *gn_msg_responder_source(struct gn_msg_responder *responder);
/* Returns the number of open connections. */
GN_API unsigned gn_msg_responder_conns(const struct gn_msg_responder *responder);
GN_API int gn_msg_responder_stats(const struct gn_msg_responder *responder,
				   struct gn_msg_stats *out);

/* ---- requester ---- */

struct gn_msg_requester;
struct gn_msg_conn;

struct gn_msg_requester_opts {
	size_t size; /* sizeof(struct gn_msg_requester_opts) */
	enum gn_msg_protocol protocol;
	uint32_t pending;	/* requests in flight per connection; 0: 16 */
	uint32_t request_bytes; /* largest request; 0: 64 */
	uint32_t value_bytes;	/* largest answer, or READ; 0: 4096, or the largest datagram */
	uint32_t max_conns;	/* 0: 64 */
	struct gn_ctx *ctx;	/* NULL: creates its own */
	uint32_t timeout_us;	/* to connect; 0: 2 s */
	/*
	 * UD: the shortest retransmission timeout, and the timeout before the first answer of a
	 * peer; 0: 100 us and 10 ms. After that the timeout is at least twice the connection's
	 * round trip time, more if it varies. Each retransmission doubles it, up to 2 s (or
	 * repeat_us, if longer), also for the next requests, until a request is answered without a
	 * retransmission.
	 */
	uint32_t repeat_us;
	/*
	 * UD: a request without an answer fails as GN_MSG_LOST after this time, however often it
	 * was retransmitted; 0: 30 s. A disconnect fails it earlier as GN_MSG_GONE. With other
	 * protocols requests have no timeout: they end by an answer or a disconnect.
	 */
	uint32_t request_timeout_us;
	unsigned flags; /* GN_MSG_PAPER */
};

/* -EMSGSIZE: the sizes exceed a UD datagram; -EOPNOTSUPP: the fabric has no UD. */
GN_API int gn_msg_requester_create(struct gn_fabric *fabric,
				   const struct gn_msg_requester_opts *opts,
				   struct gn_msg_requester **out);
/* Closes all connections. Requests in flight get no result. */
GN_API void gn_msg_requester_destroy(struct gn_msg_requester *requester);

/*
 * Connects to a responder. -ECONNREFUSED: no responder, or refused; why (may be NULL) gets the
 * reason as a static string. -EINVAL, -ETIMEDOUT. -ENOSPC: max_conns are open. -EPROTO: the
 * responder has another version; gn_error() names it.
 */
GN_API int gn_msg_conn_open(struct gn_msg_requester *requester, const char *addr, const char **why,
			    struct gn_msg_conn **out);
/* Requests in flight get no result. */
GN_API void gn_msg_conn_close(struct gn_msg_conn *conn);
/* Returns the size of the responder's data in bytes. */
GN_API uint64_t gn_msg_data_bytes(const struct gn_msg_conn *conn);
/* Returns the number of requests in flight. */
GN_API uint32_t gn_msg_pending(const struct gn_msg_conn *conn);

/*
 * Sends a request; the bytes are copied. Without GN_MSG_PAPER the request may be posted as late as
 * gn_msg_take() or gn_msg_flush(). -EAGAIN: opts.pending requests are in flight, take some answers;
 * or (UD) the device still reads the buffer. -ENOTCONN: disconnected. -EMSGSIZE. -EINVAL with
 * protocol READ.
 */
GN_API int gn_msg_ask(struct gn_msg_conn *conn, const void *request, uint32_t len, uint64_t id);
/* Protocol READ only (else -EINVAL): reads len bytes of the responder's data at offset. -ERANGE. */
GN_API int gn_msg_read(struct gn_msg_conn *conn, uint64_t offset, uint32_t len, uint64_t id);
/* Posts all requests that gn_msg_ask() and gn_msg_read() have batched. */
GN_API int gn_msg_flush(struct gn_msg_requester *requester);

struct gn_msg_result {
	uint64_t id;
	struct gn_msg_conn *conn;
	enum gn_msg_status status;
	uint32_t len;
	const void *value; /* valid as described below */
};

/*
 * Takes up to n results. Returns their number; 0 if there was none before the deadline, or nothing
 * is in flight; or -EINTR. Also posts batched requests. A failed connection stays until the caller
 * closes it.
 *
 * A value stays valid until the next gn_msg_take(). A new request on the connection overwrites the
 * value of the oldest result taken from it: use the results in order, and each one before the next
 * request. Values may be unaligned.
 */
GN_API int gn_msg_take(struct gn_msg_requester *requester, struct gn_msg_result *out, unsigned n,
		       uint64_t deadline_ns);
/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_msg_take() should be
 * called with GN_NO_WAIT. A responder that WRITES its answers wakes a sleeping requester, as above.
 */
GN_API struct gn_source *gn_msg_requester_source(struct gn_msg_requester *requester);
GN_API int gn_msg_requester_stats(const struct gn_msg_requester *requester,
				   struct gn_msg_stats *out);

#ifdef __cplusplus
}
#endif

#endif
