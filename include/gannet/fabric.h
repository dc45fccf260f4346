/* SPDX-License-Identifier: MIT */
/*
 * gannet/fabric.h - remote memory and messages: verbs vocabulary, verbs semantics, one error
 * convention.
 *
 * The same calls work over shared memory ("shm"), over an RDMA device ("verbs:mlx5_0") and on a
 * simulated cluster ("sim:n3"). What may differ between them is in gn_attr.caps; nothing else
 * does. The rules:
 *
 *  1. Every call returns 0 (or a count) or a negative errno. The status of a posted operation is
 *     in its completion. Outputs are untouched on failure. Destroying NULL is allowed and does
 *     nothing.
 *  2. A post stops at the first bad request, reports it, and has posted exactly the ones before
 *     it.
 *  3. A request that fails always completes, signaled or not. Then its qp is in error:
 *     everything outstanding and everything posted later completes as GN_WC_FLUSHED, once each.
 *     A receive of a UD qp may also fail alone, on a datagram that does not fit it: the qp stays
 *     ready, and gn_qp_query() tells which of the two has happened.
 *  4. A qp, a cq and an ah have one owner thread and no lock. The qps of a cq have the cq's
 *     owner, who also takes the events of their channel. Created GN_SHARED they may be used from
 *     any thread and share their context's lock; a shared qp needs shared cqs and the other way
 *     round. A channel's events are taken by one thread at a time. Fabric, ctx, mem, pd, mr,
 *     listener and connection request may be used from any thread, but destroyed only when no
 *     other thread uses them. An RC qp may begin and end in other threads than its owner's:
 *     see gn_accept() and gn_qp_detach().
 *  5. Branch on capabilities, never on a provider's name.
 *  6. Without GN_CAP_INORDER_WRITE the bytes of one WRITE become visible in any order: a message
 *     in memory must validate itself (sequence at both ends and a checksum). Without
 *     GN_CAP_READ_HEAD_FIRST the same holds for a fetched READ. Never look at a READ's target
 *     before its completion.
 *  7. A completed WRITE has left the initiator. It may not be visible to the target's CPU yet,
 *     and is no acknowledgement. A later READ of the same bytes on the same qp returns the new
 *     ones; a receive completion at the target (SEND, WRITE_IMM) implies that all earlier WRITEs
 *     of that qp are visible there.
 *  8. Keys are checked on every remote access: key, protection domain of the target qp, range,
 *     rights. One pd per client keeps clients apart. Keys are not secrets: isolation comes from
 *     the pd.
 *  9. Counters are always on and mean the same everywhere (struct gn_counters).
 * 10. A send-queue slot is free again when the completion of its request or of a later one has
 *     been polled. So at least one request in every max_send_wr must be signaled, or posting
 *     ends in -EAGAIN for good.
 * 11. RC requests of one qp take effect in order, and complete in order. GN_FENCE makes a
 *     request wait for the earlier READs and atomics; without it a READ's target may still be
 *     written while a later WRITE reads it.
 * 12. Zero-length WRITEs and READs are legal, and their key and offset are not checked. Zero-
 *     length memory regions are not legal.
 * 13. GN_INLINE copies the payload during the post: the buffer is reusable at once and its lkey
 *     is not looked at.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT only looks.
 */
#ifndef GANNET_FABRIC_H
#define GANNET_FABRIC_H

#include <gannet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_fabric;   /* an opened provider */
struct gn_ctx;	    /* posts through one context contend; one per thread is the fast way */
struct gn_mem;	    /* registrable memory; belongs to no pd */
struct gn_pd;	    /* protection domain: the unit of isolation */
struct gn_mr;	    /* a range of a mem, registered in a pd with rights */
struct gn_cq;	    /* completion queue */
struct gn_chan;	    /* event channel: a pollable fd for completion and connection events */
struct gn_qp;	    /* RC or UD endpoint */
struct gn_ah;	    /* destination of datagrams */
struct gn_listener; /* a name others connect to */
struct gn_conn_req; /* somebody connecting; accept or reject it */

/* ---- fabric ---- */

/*
 * What a provider promises beyond the rules above (gn_attr.caps, and per connection
 * gn_qp_attr.caps).
 */
enum gn_cap {
	GN_CAP_UD = 1 << 0,	       /* datagrams */
	GN_CAP_ATOMICS = 1 << 1,       /* CAS and FAA, atomic among themselves */
	GN_CAP_ATOMIC_CPU = 1 << 2,    /* … and with the CPU's atomics on the target */
	GN_CAP_INORDER_WRITE = 1 << 3, /* a WRITE's last bytes are never visible before its first */
	GN_CAP_INORDER_128 = 1 << 4,   /* … within each aligned 128-byte block */
	GN_CAP_WRITE_ORDER =
		1 << 5, /* a WRITE is never visible before an earlier WRITE of its qp */
	GN_CAP_READ_HEAD_FIRST =
		1 << 6, /* a READ's first word is sampled, with acquire, before any later byte */
	GN_CAP_EVENT_FD = 1 << 7, /* channels have an fd */
	GN_CAP_TARGET_PROGRESS = 1
				 << 8, /* messages move on only while their target polls or waits */
	GN_CAP_FOREIGN_REMOTE = 1 << 9, /* gn_mem_wrap()'s memory can have remote rights */
	GN_CAP_HUGE = 1 << 10,		/* GN_MEM_HUGE can be asked for */
};

struct gn_attr {
	size_t size; /* sizeof(struct gn_attr) */
	char provider[16];
	char device[64];
	uint64_t caps;		/* enum gn_cap */
	uint32_t max_send_wr;	/* per qp */
	uint32_t max_recv_wr;	/* per qp */
	uint32_t max_sge;	/* per request */
	uint32_t max_inline;	/* bytes */
	uint32_t max_cqe;	/* per cq */
	uint32_t max_rd_atomic; /* READs and atomics under way per qp; more are queued */
	uint32_t max_mr;
	uint32_t ud_mtu;      /* largest datagram; 0 without GN_CAP_UD */
	uint64_t max_msg;     /* bytes of one RC message, WRITE or READ */
	uint32_t max_private; /* bytes of private data that connect can carry: at least 56 */
};

/*
 * name: "shm", "verbs", "verbs:DEVICE", "sim:NODE". Other errors than -EINVAL have said why in the
 * log.
 */
GN_API int gn_fabric_open(const char *name, struct gn_fabric **out);
/* -EBUSY while objects of it live, here and in every destroy below. */
GN_API int gn_fabric_close(struct gn_fabric *fabric);
GN_API int gn_fabric_query(const struct gn_fabric *fabric, struct gn_attr *out);

GN_API int gn_ctx_create(struct gn_fabric *fabric, struct gn_ctx **out);
GN_API int gn_ctx_destroy(struct gn_ctx *ctx);

/* ---- memory ---- */

enum gn_access {
	GN_LOCAL_WRITE = 1 << 0, /* a receive, READ or atomic may store its result here */
	GN_REMOTE_WRITE = 1 << 1,
	GN_REMOTE_READ = 1 << 2,
	GN_REMOTE_ATOMIC = 1 << 3,
	GN_MEM_HUGE = 1 << 8, /* gn_mem_alloc() only: huge pages, or -ENOMEM */
};

#define GN_PAGE 4096u

/*
 * Zeroed, page-aligned memory that regions may be registered in. A forked child does not inherit
 * it. rights names the remote rights they may have (GN_REMOTE_*), 0 for memory that never leaves
 * the process.
 */
GN_API int gn_mem_alloc(struct gn_fabric *fabric, size_t size, unsigned rights,
			struct gn_mem **out);
/*
 * Memory the caller owns and keeps mapped. Everywhere good as a local end; as a remote one only
 * with GN_CAP_FOREIGN_REMOTE. -EFAULT when it is not mapped.
 */
GN_API int gn_mem_wrap(struct gn_fabric *fabric, void *addr, size_t size, struct gn_mem **out);
GN_API int gn_mem_free(struct gn_mem *mem);
GN_API void *gn_mem_addr(const struct gn_mem *mem);
GN_API size_t gn_mem_size(const struct gn_mem *mem);

GN_API int gn_pd_create(struct gn_ctx *ctx, struct gn_pd **out);
GN_API int gn_pd_destroy(struct gn_pd *pd);

/* What a peer needs to reach a region: send it as it is. Offsets count from the region's start. */
struct gn_remote {
	uint64_t offset;
	uint64_t length;
	uint32_t key;
	uint32_t reserved;
};

/*
 * Register [offset, offset + length) of mem. access: GN_LOCAL_WRITE | GN_REMOTE_*; remote write or
 * atomic needs local write, and no remote right may exceed the mem's. A region with remote rights
 * starts on a page boundary (GN_PAGE).
 */
GN_API int gn_mr_register(struct gn_pd *pd, struct gn_mem *mem, size_t offset, size_t length,
			  unsigned access, struct gn_mr **out);
/*
 * Returns when no remote copy under its key is under way any more. On shm a peer that does not come
 * to the end of one within a second is cut off instead.
 */
GN_API int gn_mr_deregister(struct gn_mr *mr);
/*
 * The same for a thread that must not wait for a peer. The first call revokes the region's keys; it
 * must not be used any more. 0: the region is gone. -EAGAIN: a peer may still be copying under its
 * keys, and the region and its mem stay; call again later (this, or gn_mr_deregister()).
 * -EAGAIN ends GN_TEARDOWN_US after the first call: a peer that still copies then is cut off. Only
 * shm ever answers -EAGAIN.
 */
GN_API int gn_mr_deregister_try(struct gn_mr *mr);
#define GN_TEARDOWN_US 1000000u
GN_API uint32_t gn_mr_lkey(const struct gn_mr *mr);
GN_API void *gn_mr_addr(const struct gn_mr *mr);
GN_API size_t gn_mr_length(const struct gn_mr *mr);
GN_API int gn_mr_remote(const struct gn_mr *mr, struct gn_remote *out);

/* ---- completions ---- */

enum gn_op {
	GN_OP_WRITE,
	GN_OP_READ,
	GN_OP_WRITE_IMM,
	GN_OP_SEND,
	GN_OP_SEND_IMM,
	GN_OP_CAS,
	GN_OP_FAA,
	GN_OP_RECV,	      /* completions only: a SEND arrived */
	GN_OP_RECV_WRITE_IMM, /* completions only: a WRITE_IMM arrived */
	GN_OPS
};

enum gn_wc_status {
	GN_WC_OK,
	GN_WC_LOCAL_LENGTH,   /* the message did not fit the receive, or exceeds max_msg */
	GN_WC_LOCAL_ACCESS,   /* bad lkey, range or right of a local buffer */
	GN_WC_LOCAL_QP,	      /* internal consistency of the qp */
	GN_WC_FLUSHED,	      /* the qp was in error before this was done */
	GN_WC_REMOTE_ACCESS,  /* key, pd, range or right refused by the target */
	GN_WC_REMOTE_INVALID, /* the target could not take it: receive too small, … */
	GN_WC_REMOTE_FAILED,  /* the target failed while doing it */
	GN_WC_RETRY,	      /* the peer does not answer */
	GN_WC_RNR,	      /* the peer posted no receive in time */
	GN_WC_FATAL,	      /* the device failed */
	GN_WC_STATUSES
};

enum gn_wc_flag {
	GN_WC_IMM = 1 << 0, /* imm is valid */
	GN_WC_GRH = 1 << 1, /* datagram: the payload starts GN_GRH_BYTES into the receive */
};

struct gn_wc {
	uint64_t id;
	struct gn_qp *qp;
	enum gn_wc_status status; /* unless OK, only id, qp, status and vendor are valid */
	enum gn_op op;
	uint32_t len_bytes; /* placed by a receive (with the GRH), READ or atomic */
	uint32_t imm;
	uint32_t flags;	  /* enum gn_wc_flag */
	uint32_t src_qpn; /* datagrams: who sent it */
	uint16_t src_lid; /* … and from where, on InfiniBand */
	uint32_t vendor;  /* the provider's own error code */
};

GN_API const char *gn_wc_status_str(enum gn_wc_status status);
GN_API const char *gn_op_str(enum gn_op op);

enum gn_flag {
	GN_SHARED = 1 << 0,   /* cq and qp: usable from any thread */
	GN_ANY_USER = 1 << 1, /* listener: other users' processes may connect too (shm) */
};

struct gn_cq_opts {
	size_t size; /* sizeof(struct gn_cq_opts) */
	uint32_t depth;	      /* completions it can hold, at least 1 */
	struct gn_chan *chan; /* where its events go; with NULL a wait on it cannot sleep */
	unsigned flags;	      /* GN_SHARED */
};

GN_API int gn_cq_create(struct gn_ctx *ctx, const struct gn_cq_opts *opts, struct gn_cq **out);
GN_API int gn_cq_destroy(struct gn_cq *cq);
/* How many completions it really holds: at least what was asked for. */
GN_API uint32_t gn_cq_depth(const struct gn_cq *cq);
/* At most n completions, oldest first. 0 when there are none; -EOVERFLOW once it was overrun. */
GN_API int gn_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
/*
 * One event on the channel for the next completion (solicited_only: the next solicited receive or
 * error). Always poll again between arming and sleeping. An event without a completion is possible.
 * -EINVAL without a channel.
 */
GN_API int gn_cq_arm(struct gn_cq *cq, bool solicited_only);
/* Polls, waits by gn_wait() and polls again: completions, or -ETIMEDOUT, -EINTR. */
GN_API int gn_cq_wait(struct gn_cq *cq, struct gn_wc *wc, int n, uint64_t deadline_ns,
		      const char *reason);
GN_API struct gn_source *gn_cq_source(struct gn_cq *cq);

/* ---- endpoints ---- */

enum gn_qp_type { GN_QP_RC, GN_QP_UD };
enum gn_qp_state { GN_QP_NEW, GN_QP_CONNECTING, GN_QP_READY, GN_QP_ERROR };

struct gn_qp_opts {
	size_t size; /* sizeof(struct gn_qp_opts) */
	enum gn_qp_type type;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_chan *chan;  /* where its connection events go; RC needs one */
	uint32_t max_send_wr;  /* 0: 128 */
	uint32_t max_recv_wr;  /* 0: 128 */
	uint32_t max_send_sge; /* 0: 1 */
	uint32_t max_recv_sge; /* 0: 1 */
	uint32_t max_inline;   /* bytes; 0 is 0 */
	uint32_t qkey;	       /* UD: datagrams must carry it */
	unsigned flags;	       /* GN_SHARED */
	void *user;	       /* the caller's, see gn_qp_user() */
};

struct gn_qp_attr {
	size_t size; /* sizeof(struct gn_qp_attr) */
	enum gn_qp_state state;
	uint64_t caps; /* the fabric's, and what this connection promises beyond them */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
		max_inline; /* at least what was asked for */
	uint32_t qpn;
};

/* A UD qp is ready at once; an RC qp takes receives at once and sends when connected. */
GN_API int gn_qp_create(struct gn_pd *pd, const struct gn_qp_opts *opts, struct gn_qp **out);
/*
 * Completions and events of it that were not taken yet are dropped. Returns when the peer copies
 * under no key of the qp's pd any more; on shm a peer that does not come to an end within a second
 * is cut off instead.
 */
GN_API int gn_qp_destroy(struct gn_qp *qp);
/*
 * The same for a thread that must not wait for a peer, by the rules of gn_mr_deregister_try(). The
 * first call ends the connection: the peer is told, and there are no more completions and events of
 * the qp. After -EAGAIN only the destroy calls may be used on it.
 */
GN_API int gn_qp_destroy_try(struct gn_qp *qp);
/*
 * The owner's part of destroying an RC qp, for one that leaves the rest to another thread: ends the
 * connection, tells the peer, and leaves the cqs and the channel. It waits for nobody and unmaps
 * nothing. There are no more completions and events of the qp; those not taken yet are dropped.
 * Then any one thread may call gn_qp_destroy() or gn_qp_destroy_try(), and nobody anything else on
 * the qp. The regions, mems and the pd that only this qp used may go in that thread, too.
 */
GN_API int gn_qp_detach(struct gn_qp *qp);
GN_API int gn_qp_query(struct gn_qp *qp, struct gn_qp_attr *out);
/* Put it in error: everything outstanding flushes. */
GN_API int gn_qp_error(struct gn_qp *qp);
/*
 * Make a UD qp ready again, in error or not, with the same number and qkey, so that its peers'
 * address handles stay good, and so do its own. Its queues are empty: what was outstanding is
 * dropped, with the completions that were not polled yet. -EINVAL for an RC qp.
 */
GN_API int gn_qp_reset(struct gn_qp *qp);
GN_API void *gn_qp_user(const struct gn_qp *qp);

/* The address of a UD qp: send it as it is. */
struct gn_ud_addr {
	uint8_t gid[16];
	uint32_t qpn;
	uint32_t qkey;
	uint16_t lid;
	uint8_t reserved[6];
};

#define GN_GRH_BYTES 40u

GN_API int gn_qp_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out);
/*
 * qp: the UD qp that will send through it, and whose owner owns it. A device may have to find out
 * how addr is reached, which takes a second when it cannot be: do not serve others meanwhile.
 */
GN_API int gn_ah_create(struct gn_qp *qp, const struct gn_ud_addr *addr, struct gn_ah **out);
/*
 * To a UD qp of the peer that conn, an RC qp, is connected to (after gn_accept() or ESTABLISHED),
 * for a thread that must not wait: datagrams take conn's path, which is known, whatever GID and LID
 * addr names. -ENOTCONN; -EPERM: addr is another process's (shm, where the path does not tell the
 * peer).
 */
GN_API int gn_ah_create_peer(struct gn_qp *qp, struct gn_qp *conn, const struct gn_ud_addr *addr,
			     struct gn_ah **out);
/*
 * The way back to the sender of a received datagram: wc as polled, grh the first 40 bytes of the
 * receive.
 */
GN_API int gn_ah_create_from_wc(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
				struct gn_ah **out);
GN_API int gn_ah_destroy(struct gn_ah *ah);

/* ---- work requests ---- */

struct gn_sge {
	void *addr;
	uint32_t len_bytes;
	uint32_t lkey;
};

enum gn_wr_flag {
	GN_SIGNALED = 1 << 0,  /* complete even when it succeeds */
	GN_INLINE = 1 << 1,    /* SEND, WRITE: copy the payload now */
	GN_FENCE = 1 << 2,     /* wait for earlier READs and atomics */
	GN_SOLICITED = 1 << 3, /* SEND, WRITE_IMM: wakes a solicited-only arm at the target */
};

struct gn_wr {
	uint64_t id;
	struct gn_wr *next;
	const struct gn_sge *sge;
	uint32_t n_sge;
	enum gn_op op;
	uint32_t flags; /* enum gn_wr_flag */
	uint32_t imm;	/* host order; the same number arrives */
	union {
		struct {
			uint64_t offset;
			uint32_t key;
			uint64_t compare; /* CAS: expected; FAA: what to add */
			uint64_t swap;	  /* CAS: new value */
		} remote;
		struct {
			struct gn_ah *ah;
			uint32_t qpn;
			uint32_t qkey;
		} ud;
	} to;
};

struct gn_recv_wr {
	uint64_t id;
	struct gn_recv_wr *next;
	const struct gn_sge *sge;
	uint32_t n_sge;
};

/*
 * Post a chain, ringing one doorbell. On failure *bad (may be NULL) is the first request not
 * posted: -EINVAL bad request, -EMSGSIZE too long for the qp (inline, datagram), -ENOTCONN not
 * connected, -EAGAIN queue full. Chain, SGEs and inline data may be reused at return; other data
 * when it completed: until then the device may read it at any time, in pieces and repeatedly. An
 * answer of the peer to an RC request is as good as its completion: what the device then repeats,
 * the peer has had.
 */
GN_API int gn_post_send(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad);
/*
 * Post one request; wr->next is not looked at. 0, or an error as of gn_post_send(): it was posted
 * like that, or it was not. 1: it was executed and has succeeded, after everything that was posted
 * before it. Then it has no completion, signaled or not, and takes no slot of the send queue; its
 * buffers are the caller's again, and what a READ or atomic brought is there. A request that fails
 * is never answered with 1: it completes. Which of 0 and 1 a request gets is the provider's choice,
 * each time; only those that execute requests in the caller's time ever answer 1.
 */
GN_API int gn_post_one(struct gn_qp *qp, const struct gn_wr *wr);

/*
 * A WRITE or READ of one piece that is posted again and again, between a region here and one at the
 * peer, at an offset that is the same in both. It is the caller's memory, without anything to undo,
 * and belongs to the owner of the qp: good as long as that. What a provider has found out of the
 * two regions it keeps, and finds out again when one of them may not be as it was: so each post is
 * checked like any other, at less expense.
 */
struct gn_fixed {
	/* private */
	struct gn_qp *qp;
	int (*post)(struct gn_fixed *fixed, uint64_t offset, uint32_t len_bytes, uint64_t id);
	uint64_t known[7];
	struct gn_wr wr;
	struct gn_sge sge;
	uint8_t *addr;
	uint64_t remote;
	uint32_t max_inline;
};

/*
 * wr: as for gn_post_one(), a WRITE or READ of an RC qp, with one sge; address and remote offset
 * are those of offset 0; length, id and GN_INLINE are not looked at. WRITEs of up to max_inline
 * bytes are posted with GN_INLINE. 0 or -EINVAL.
 */
GN_API int gn_fixed_init(struct gn_fixed *fixed, struct gn_qp *qp, const struct gn_wr *wr,
			 uint32_t max_inline);
/* gn_post_one() of that, with this id. */
GN_API int gn_post_fixed(struct gn_fixed *fixed, uint64_t offset, uint32_t len_bytes, uint64_t id);
GN_API int gn_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr,
			const struct gn_recv_wr **bad);

/* Fill one request. sge must live until the post. */
static inline void gn_wr_init(struct gn_wr *wr, enum gn_op op, uint64_t id,
			      const struct gn_sge *sge, uint32_t n_sge, uint32_t flags)
{
	wr->id = id;
	wr->next = NULL;
	wr->sge = sge;
	wr->n_sge = n_sge;
	wr->op = op;
	wr->flags = flags;
	wr->imm = 0;
	wr->to.remote.offset = 0;
	wr->to.remote.key = 0;
	wr->to.remote.compare = 0;
	wr->to.remote.swap = 0;
}

static inline void gn_wr_rdma(struct gn_wr *wr, enum gn_op op, uint64_t id,
			      const struct gn_sge *sge, const struct gn_remote *remote,
			      uint64_t offset, uint32_t flags)
{
	gn_wr_init(wr, op, id, sge, 1, flags);
	wr->to.remote.offset = remote->offset + offset;
	wr->to.remote.key = remote->key;
}

static inline void gn_wr_cas(struct gn_wr *wr, uint64_t id, const struct gn_sge *old8,
			     const struct gn_remote *remote, uint64_t offset, uint64_t expected,
			     uint64_t desired, uint32_t flags)
{
	gn_wr_rdma(wr, GN_OP_CAS, id, old8, remote, offset, flags);
	wr->to.remote.compare = expected;
	wr->to.remote.swap = desired;
}

static inline void gn_wr_faa(struct gn_wr *wr, uint64_t id, const struct gn_sge *old8,
			     const struct gn_remote *remote, uint64_t offset, uint64_t add,
			     uint32_t flags)
{
	gn_wr_rdma(wr, GN_OP_FAA, id, old8, remote, offset, flags);
	wr->to.remote.compare = add;
}

static inline void gn_wr_send(struct gn_wr *wr, uint64_t id, const struct gn_sge *sge,
			      uint32_t flags)
{
	gn_wr_init(wr, GN_OP_SEND, id, sge, 1, flags);
}

/* qpn: the one of the address that ah was made from. */
static inline void gn_wr_ud(struct gn_wr *wr, uint64_t id, const struct gn_sge *sge,
			    struct gn_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t flags)
{
	gn_wr_init(wr, GN_OP_SEND, id, sge, 1, flags);
	wr->to.ud.ah = ah;
	wr->to.ud.qpn = qpn;
	wr->to.ud.qkey = qkey;
}

/* ---- events and connections ---- */

enum gn_event_type {
	GN_EVENT_CQ,	     /* an armed cq has something */
	GN_EVENT_CQ_OVERRUN, /* completions were lost: the cq is dead and its qps are in error */
	GN_EVENT_CONNECT_REQUEST,
	GN_EVENT_ESTABLISHED,  /* the qp may be posted to */
	GN_EVENT_REJECTED,     /* by the listener's owner, with private data */
	GN_EVENT_UNREACHABLE,  /* nobody there, or no answer in time: status */
	GN_EVENT_DISCONNECTED, /* by either side, or the peer is gone; once */
	GN_EVENT_WAKE,	       /* gn_chan_wake() was called, once or more often */
	GN_EVENT_TIMER,	       /* the time of gn_chan_timer() has come */
	GN_EVENTS
};

#define GN_PRIVATE_MAX 196u

struct gn_event {
	enum gn_event_type type;
	/*
	 * UNREACHABLE: -ECONNREFUSED, -ETIMEDOUT, …. REJECTED: -ECONNREFUSED; -EMFILE: the server's
	 * process has no descriptors left; -EACCES: it does not let other users in.
	 */
	int status;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct gn_listener *listener;
	struct gn_conn_req *req; /* CONNECT_REQUEST: the taker's to accept or reject */
	/*
	 * What the peer sent; private_len may count zero bytes beyond that. UNREACHABLE: a text of
	 * the provider for people, without a NUL: where it has looked.
	 */
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
};

GN_API const char *gn_event_str(enum gn_event_type type);

GN_API int gn_chan_create(struct gn_ctx *ctx, struct gn_chan **out);
GN_API int gn_chan_destroy(struct gn_chan *chan);
/*
 * Readable when gn_chan_next() may have something; for poll and epoll. -EOPNOTSUPP without
 * GN_CAP_EVENT_FD.
 */
GN_API int gn_chan_fd(const struct gn_chan *chan);
/* The next event, or -EAGAIN. Also moves connections on: take events while any is being set up. */
GN_API int gn_chan_next(struct gn_chan *chan, struct gn_event *out);
GN_API int gn_chan_wait(struct gn_chan *chan, uint64_t deadline_ns, struct gn_event *out);
GN_API struct gn_source *gn_chan_source(struct gn_chan *chan);
/* Any thread: queue GN_EVENT_WAKE, so that a thread that waits for the channel looks up. */
GN_API int gn_chan_wake(struct gn_chan *chan);
/* Any thread: how many events of a type are queued in the channel, or -EINVAL. It takes none. */
GN_API int gn_chan_count(struct gn_chan *chan, enum gn_event_type type);
/*
 * The channel's timer: at deadline_ns (of gn_now_ns()), or at once if that has passed, the channel
 * gets GN_EVENT_TIMER, which makes its fd readable and wakes a wait. Once; then the timer is off.
 * Each call replaces the deadline of the one before, and drops an event of it that was not taken.
 * 0 or GN_FOREVER: off. By the thread that takes the channel's events.
 */
GN_API int gn_chan_timer(struct gn_chan *chan, uint64_t deadline_ns);

struct gn_conn_opts {
	size_t size; /* sizeof(struct gn_conn_opts) */
	const void *private_data; /* at most attr.max_private bytes, to accept GN_PRIVATE_MAX */
	uint32_t private_len;
	uint32_t rnr_retry;    /* how often a missing receive is waited for, 1 to 6; 0: 6 */
	uint32_t rnr_timer_us; /* each time; 0: 640 */
	uint32_t timeout_us;   /* for the connection to be set up; 0: 2 s */
};

#define GN_RNR_RETRY_DEFAULT 6u
#define GN_RNR_NONE	     UINT32_MAX /* rnr_retry: not at all */

/*
 * addr: "shm:NAME", "verbs:HOST:PORT" (HOST may be empty or *: any), "sim:NODE:PORT". -EADDRINUSE
 * when taken.
 */
GN_API int gn_listener_create(struct gn_ctx *ctx, const char *addr, struct gn_chan *chan,
			      unsigned flags, struct gn_listener **out);
/* Requests nobody has taken yet are refused; taken ones stay valid. */
GN_API int gn_listener_destroy(struct gn_listener *listener);

/*
 * Begin to connect an RC qp. Its channel gets ESTABLISHED, REJECTED or UNREACHABLE. opts may be
 * NULL.
 */
GN_API int gn_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts);
/*
 * gn_connect() and wait for its outcome: 0, -ECONNREFUSED (rejected, nobody there), -ETIMEDOUT …
 * reply (may be NULL) gets the event. Other events of the channel stay queued.
 */
GN_API int gn_connect_wait(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts,
			   struct gn_event *reply);
/*
 * Both consume req, whatever they return. After 0 the qp may be posted to; ESTABLISHED or
 * UNREACHABLE follows. After a failure the qp has no completions and no events: destroy it.
 *
 * Another thread than the owner of the qp's cqs and channel may create an RC qp, post receives to
 * it, query it, and accept a request with it, while the owner polls, arms or sleeps on them. Until
 * gn_accept() the qp is that thread's; it may also destroy it, and must after a failure. With 0 the
 * qp is the owner's, and the accepting thread does not touch it any more. Completions, ESTABLISHED
 * and DISCONNECTED may come to the owner, and wake it, before gn_accept() has returned in the
 * other thread; the owner may do all it likes with the qp then. The cqs and the channel live until
 * gn_accept() has returned.
 */
GN_API int gn_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
GN_API int gn_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
/* Both sides' qps go to error and flush, and both channels get DISCONNECTED. */
GN_API int gn_disconnect(struct gn_qp *qp);

/* ---- counters ---- */

struct gn_counters {
	size_t size; /* sizeof(struct gn_counters) */
	uint64_t wrs[GN_OPS];	/* requests posted, by operation; receives under GN_OP_RECV */
	uint64_t bytes[GN_OPS]; /* their payload; GN_OP_RECV*: messages received */
	uint64_t inbound;	/* messages received (one-sided accesses are seen by no CPU) */
	uint64_t doorbells;	/* gn_post_send() and gn_post_one() calls that posted something */
	uint64_t recv_doorbells;
	uint64_t cqes;	      /* completions polled */
	uint64_t errors;      /* … with a status other than OK */
	uint64_t polls_empty; /* gn_cq_poll() calls that found nothing */
	uint64_t arms;
	uint64_t events;	  /* events taken from channels */
	uint64_t bytes_in_flight; /* posted and not known to be done: a level, not a sum */
	uint64_t drops;		  /* datagrams that arrived and found no receive */
};

GN_API int gn_qp_counters(const struct gn_qp *qp, struct gn_counters *out);
/* The sum over all qps and cqs there are or were. */
GN_API int gn_fabric_counters(struct gn_fabric *fabric, struct gn_counters *out);

#ifdef __cplusplus
}
#endif

#endif
