/* SPDX-License-Identifier: MIT */
/*
 * gannet/msg.h - requests and answers by a protocol of one's choice.
 *
 * A requester asks, a responder answers, and the verbs that carry a request and its answer are a
 * choice: "An Evaluation of RDMA-based Message Passing Protocols" compares five over connected
 * qps, and two more are here. Which of them is best depends on who talks to whom, with what sizes
 * and how many requests under way; docs/protocols.md says more, and "gannet advise" answers it for
 * a cluster.
 *
 *                 request        answer         the responder's CPU
 *   SEND/SEND     SEND           SEND           takes a receive, posts the next, answers
 *   SEND/WRITE    SEND           WRITE          likewise
 *   WRITE/SEND    WRITE          SEND           looks at memory, answers
 *   WRITE/WRITE   WRITE          WRITE          likewise
 *   READ          READ           -              does nothing: the requester knows where data is
 *   WRITE_IMM     WRITE_IMM      WRITE_IMM      as SEND, but the bytes go to a known place
 *   UD            SEND           SEND           datagrams: what is lost is asked again
 *
 * A requester belongs to one thread, and so do its connections; a responder belongs to one thread.
 * Another may go on with either when the first has finished with it, and what it did is known to
 * the other: by a lock, a queue or a join.
 * A forked child cannot use what it inherits (-EPERM): it opens the provider anew.
 * Everything happens inside the calls: nothing runs behind them. What goes through one connection
 * is answered in the order it was asked, except over UD. A request is executed once at most: a
 * repeated datagram is answered with what is remembered.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT only looks.
 */
#ifndef GANNET_MSG_H
#define GANNET_MSG_H

#include <gannet/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_MSG_PENDING_MAX 4096u      /* requests under way on a connection */
#define GN_MSG_BYTES_MAX   (1u << 20) /* of a request, and of an answer; READ: attr.max_msg */
#define GN_MSG_CONNS_MAX   1024u      /* of a requester, and of a responder */

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

/* "SEND/SEND", …, "READ", "WRITE_IMM", "UD". Never NULL; the string is static. */
GN_API const char *gn_msg_protocol_str(unsigned protocol);
/* Letters may be small; -EINVAL: there is no such protocol. */
GN_API int gn_msg_protocol_parse(const char *text, enum gn_msg_protocol *out);

enum gn_msg_status {
	GN_MSG_OK,
	GN_MSG_GONE,	/* the peer is not there any more; it may have been executed */
	GN_MSG_LOST,	/* UD: no answer within request_timeout_us; likewise */
	GN_MSG_REFUSED, /* the responder's function did not answer it */
	GN_MSG_BROKEN,	/* the answer makes no sense; the connection is closed */
	GN_MSG_STATUSES
};
GN_API const char *gn_msg_status_str(unsigned status);

enum gn_msg_flag {
	/*
	 * As the paper does it: each message is posted by itself, all are signaled, and where
	 * WRITEs are placed in order a message in memory is a length, a marker, its bytes and a
	 * marker, which are zeroed when it was read. Without it messages that are there together
	 * are posted together, one in some is signaled, and a message is numbered at both ends.
	 * Where WRITEs are not placed in order it is numbered and has a checksum, flag or not.
	 */
	GN_MSG_PAPER = 1 << 0,
};

struct gn_msg_stats {
	size_t size; /* sizeof(struct gn_msg_stats) */
	uint64_t requests;  /* asked, or executed */
	uint64_t answers;   /* taken, or given */
	uint64_t failed;    /* requests that ended in another status than OK */
	uint64_t repeats;   /* UD: asked again, or answered again from what is remembered */
	uint64_t strays;    /* datagrams and messages that belong to nothing */
	uint64_t resets;    /* UD: of the qp, which broke; what was under way was lost */
	uint64_t looks;	    /* messages in memory that were looked for in vain */
	uint64_t wrs;	    /* posted, without receives */
	uint64_t doorbells; /* for them */
	uint64_t recvs;	    /* posted */
};

/* ---- the side that answers ---- */

struct gn_msg_responder;

/*
 * Answers a request: up to max bytes to value, and returns how many; or a negative number, which
 * the requester sees as REFUSED. value is one of the connection's buffers, of which there are
 * somewhat more than it may have pending. It holds what was answered last from it (zeros to begin
 * with), so what does not change need not be written. What is beyond that is undefined, and after a
 * refusal all of it. The peer may change the request's bytes in place at any time: look once.
 */
typedef int gn_msg_answer_fn(void *arg, const void *request, uint32_t len, void *value,
			     uint32_t max);

struct gn_msg_responder_opts {
	size_t size; /* sizeof(struct gn_msg_responder_opts) */
	gn_msg_answer_fn *answer; /* NULL: there are only READs to it */
	void *arg;
	/*
	 * What READs may see: memory with GN_REMOTE_READ, all of it, for whoever connects. NULL:
	 * none. It must outlive the responder.
	 */
	struct gn_mem *data;
	struct gn_ctx *ctx;   /* NULL: one of its own */
	uint32_t max_conns;   /* 0: 64 */
	uint32_t max_pending; /* that a connection may have; 0: 256 */
	uint32_t max_request; /* bytes, 0: 4096 */
	uint32_t max_value;   /* bytes, 0: 65536 */
	/*
	 * Bytes of buffers for all requesters together: for a connection about its pending requests
	 * times its largest request and answer, as its requester asks for them. One that does not
	 * fit is refused. 0: 256 MiB.
	 */
	uint64_t max_memory;
	unsigned flags;	       /* GN_MSG_PAPER */
	unsigned listener_flags; /* GN_ANY_USER */
};

/* Listens at addr, as gn_listener_create() has it. Requesters of all protocols are welcome. */
GN_API int gn_msg_responder_create(struct gn_fabric *fabric, const char *addr,
				   const struct gn_msg_responder_opts *opts,
				   struct gn_msg_responder **out);
GN_API void gn_msg_responder_destroy(struct gn_msg_responder *responder);
/*
 * Takes connections, executes requests and answers them: how many, or 0 when there was nothing
 * until the deadline, or -EINTR. A requester that is gone, or that breaks the
 * rules, is forgotten, and the others never notice: no call waits for a peer, and the datagram qp,
 * which all share, is reset when it breaks, at the cost of what was under way.
 *
 * The place of a requester that has disconnected is free when its farewell is at the responder's
 * host: for whoever connects on the same host (shm) after gn_msg_conn_close() has returned, at
 * once; across a network after the one-way trip. One that crashed is noticed when its process ends
 * (shm), or does not answer (verbs: 2 to 8 s).
 */
GN_API int gn_msg_respond(struct gn_msg_responder *responder, uint64_t deadline_ns);
/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_msg_respond() should be
 * called, with GN_NO_WAIT. A request that is a WRITE raises no event (SEND, WRITE_IMM and UD do):
 * a responder that sleeps tells its requesters so, and the next of them to ask wakes it. A request
 * that crosses with that is looked for by a timer, up to 10 ms late.
 */
GN_API struct gn_source *gn_msg_responder_source(struct gn_msg_responder *responder);
/* Connections that it has now. */
GN_API unsigned gn_msg_responder_conns(const struct gn_msg_responder *responder);
GN_API int gn_msg_responder_stats(const struct gn_msg_responder *responder,
				   struct gn_msg_stats *out);

/* ---- the side that asks ---- */

struct gn_msg_requester;
struct gn_msg_conn;

struct gn_msg_requester_opts {
	size_t size; /* sizeof(struct gn_msg_requester_opts) */
	enum gn_msg_protocol protocol;
	uint32_t pending;	/* requests under way on each connection; 0: 16 */
	uint32_t request_bytes; /* of the largest; 0: 64 */
	uint32_t value_bytes;	/* of the largest answer, or READ; 0: 4096, or a datagram's most */
	uint32_t max_conns;	/* 0: 64 */
	struct gn_ctx *ctx;	/* NULL: one of its own */
	uint32_t timeout_us;	/* to connect, 0: 2 s */
	/*
	 * UD: the shortest time after which an unanswered request is repeated, and the time until
	 * the first answer of a peer is there; 0: 100 us, and 10 ms. From then on the time-out is
	 * twice the peer's round trip at least, and more when that varies, each connection's its
	 * own. Each repeat doubles it, up to 2 s (or repeat_us, if that is more), and the next
	 * requests wait as long, until one is answered without a repeat.
	 */
	uint32_t repeat_us;
	/*
	 * UD: a request without an answer ends as GN_MSG_LOST after this, however often it was
	 * repeated; 0: 30 s. When the peer is gone it ends as GN_MSG_GONE before. With the other
	 * protocols requests have no time-out: they end when they are answered or the peer is gone.
	 */
	uint32_t request_timeout_us;
	unsigned flags; /* GN_MSG_PAPER */
};

/* -EMSGSIZE: UD cannot carry such values; -EOPNOTSUPP: the fabric has no datagrams. */
GN_API int gn_msg_requester_create(struct gn_fabric *fabric,
				   const struct gn_msg_requester_opts *opts,
				   struct gn_msg_requester **out);
/* Its connections are closed; what is under way is forgotten. */
GN_API void gn_msg_requester_destroy(struct gn_msg_requester *requester);

/*
 * -ECONNREFUSED: nobody there, or refused; why (may be NULL) gets a static text. -EINVAL,
 * -ETIMEDOUT, -ENOSPC: max_conns. -EPROTO: it speaks another version, which gn_error() names.
 */
GN_API int gn_msg_conn_open(struct gn_msg_requester *requester, const char *addr, const char **why,
			    struct gn_msg_conn **out);
/* What is under way is forgotten; no result names it any more. */
GN_API void gn_msg_conn_close(struct gn_msg_conn *conn);
/* Bytes at the responder that can be read. */
GN_API uint64_t gn_msg_data_bytes(const struct gn_msg_conn *conn);
/* Requests under way on it. */
GN_API uint32_t gn_msg_pending(const struct gn_msg_conn *conn);

/*
 * Ask. The bytes are copied. -EAGAIN: pending requests are under way, take some answers; or (UD)
 * the device has not yet sent what was asked from the same buffer before; -ENOTCONN: the connection
 * is gone; -EMSGSIZE; -EINVAL with protocol READ. Without GN_MSG_PAPER it may stay here until
 * gn_msg_take() or gn_msg_flush().
 */
GN_API int gn_msg_ask(struct gn_msg_conn *conn, const void *request, uint32_t len, uint64_t id);
/* With protocol READ: len bytes of the responder's data at offset; else -EINVAL. -ERANGE. */
GN_API int gn_msg_read(struct gn_msg_conn *conn, uint64_t offset, uint32_t len, uint64_t id);
/* What was asked is on its way when it returns. */
GN_API int gn_msg_flush(struct gn_msg_requester *requester);

struct gn_msg_result {
	uint64_t id;
	struct gn_msg_conn *conn;
	enum gn_msg_status status;
	uint32_t len;
	const void *value; /* see below */
};

/*
 * Up to n answers: how many, 0 when there was none until the deadline or nothing is
 * under way, or -EINTR. Also posts what was asked. A connection that is gone stays until its owner
 * disconnects it.
 *
 * A value stays where it is until the next gn_msg_take(), but a request takes the place of the
 * oldest result that was taken from its connection: look at results in their order, and at each
 * before asking again. Values need not be aligned.
 */
GN_API int gn_msg_take(struct gn_msg_requester *requester, struct gn_msg_result *out, unsigned n,
		       uint64_t deadline_ns);
/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_msg_take() should be
 * called, with GN_NO_WAIT. A responder whose answers are WRITEs wakes a requester that sleeps, as
 * above.
 */
GN_API struct gn_source *gn_msg_requester_source(struct gn_msg_requester *requester);
GN_API int gn_msg_requester_stats(const struct gn_msg_requester *requester,
				   struct gn_msg_stats *out);

#ifdef __cplusplus
}
#endif

#endif
