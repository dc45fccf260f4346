/* SPDX-License-Identifier: MIT */
/*
 * gannet/fabric.h - remote memory and messages with the vocabulary and the semantics of verbs, and
 * one error convention.
 *
 * The same calls work over shared memory ("shm"), over an RDMA device ("verbs:mlx5_0") and on a
 * simulated cluster ("sim:n3"). Providers differ only in gn_attr.caps. The rules:
 *
 *  1. Every call returns 0 (or a count) or a negative errno. The status of a posted operation is
 *     in its completion. Outputs are untouched on failure. Destroying NULL does nothing.
 *  2. A post stops at the first bad request and reports it; all requests before it were posted.
 *  3. A failed request always completes, signaled or not. Its qp is then in the error state: all
 *     outstanding and all later requests complete as GN_WC_FLUSHED, once each. A receive of a UD
 *     qp may also fail alone, on a datagram that does not fit: the qp stays ready, and
 *     gn_qp_query() tells the two cases apart.
 *  4. A qp, a cq and an ah have one owner thread and no lock. The owner of a cq owns its qps, and
 *     takes the events of their channel. Created GN_SHARED, they may be used from any thread and
 *     share their context's lock; a shared qp needs shared cqs and vice versa. One thread at a
 *     time takes a channel's events. Any thread may use a fabric, ctx, mem, pd, mr, listener or
 *     connection request, but may destroy it only when no other thread uses it. Another thread
 *     than the owner may create and destroy an RC qp: see gn_accept() and gn_qp_detach().
 *  5. Branch on capabilities, never on a provider's name.
 *  6. Without GN_CAP_INORDER_WRITE the bytes of one WRITE become visible in any order: a message
 *     in memory must validate itself (a sequence number at both ends and a checksum). Without
 *     GN_CAP_READ_HEAD_FIRST the same holds for the result of a READ. Never look at a READ's
 *     destination before its completion.
 *  7. A completed WRITE has left the initiator. It may not be visible to the target's CPU yet,
 *     and is no acknowledgement. A later READ of the same bytes on the same qp returns the new
 *     ones; a receive completion at the target (SEND, WRITE_IMM) implies that all earlier WRITEs
 *     of that qp are visible there.
 *  8. Keys are checked on every remote access: key, protection domain of the target qp, range,
 *     access rights. One pd per client isolates clients. Keys are not secrets: isolation comes
 *     from the pd.
 *  9. Counters are always on and mean the same on every provider (struct gn_counters).
 * 10. A send queue entry is free again when the completion of its request, or of a later one, has
 *     been polled. So at least one request in every max_send_wr must be signaled; otherwise posts
 *     return -EAGAIN for ever.
 * 11. RC requests of one qp take effect in order and complete in order. GN_FENCE makes a request
 *     wait for earlier READs and atomics; without it a READ's destination may still be written
 *     while a later WRITE reads it.
 * 12. Zero-length WRITEs and READs are legal; their key and offset are not checked. Zero-length
 *     memory regions are not legal.
 * 13. GN_INLINE copies the payload during the post: the buffer may be reused at once, and its
 *     lkey is not checked.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT polls once.
 */
#ifndef GANNET_FABRIC_H
#define GANNET_FABRIC_H

#include <gannet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_fabric;   /* an opened provider */
struct gn_ctx;	    /* device context; use one per thread: posts through one context contend */
struct gn_mem;	    /* registrable memory; belongs to no pd */
struct gn_pd;	    /* protection domain: the unit of isolation */
struct gn_mr;	    /* a range of a mem, registered in a pd with rights */
struct gn_cq;	    /* completion queue */
struct gn_chan;	    /* event channel: a pollable fd for completion and connection events */
struct gn_qp;	    /* RC or UD endpoint */
struct gn_ah;	    /* destination of datagrams */
struct gn_listener; /* an address that accepts connections */
struct gn_conn_req; /* an incoming connection request: accept or reject it */

/* ---- fabric ---- */

/*
 * Guarantees beyond the rules above, of a provider (gn_attr.caps) or a connection
 * (gn_qp_attr.caps).
 */
enum gn_cap {
	GN_CAP_UD = 1 << 0,	       /* datagrams */
	GN_CAP_ATOMICS = 1 << 1,       /* CAS and FAA, atomic among themselves */
	GN_CAP_ATOMIC_CPU = 1 << 2,    /* … and with the CPU's atomics on the target */
	GN_CAP_INORDER_WRITE = 1 << 3, /* a WRITE's last bytes are never visible before its first */
	GN_CAP_INORDER_128 = 1 << 4,   /* … within each aligned 128-byte block */
	/* a WRITE is never visible before an earlier WRITE of its qp */
	GN_CAP_WRITE_ORDER = 1 << 5,
	/* a READ samples its first word, with acquire, before any later byte */
	GN_CAP_READ_HEAD_FIRST = 1 << 6,
	GN_CAP_EVENT_FD = 1 << 7, /* channels have an fd */
	/* messages make progress only while the target polls or waits */
	GN_CAP_TARGET_PROGRESS = 1 << 8,
	GN_CAP_FOREIGN_REMOTE = 1 << 9, /* gn_mem_wrap() memory can have remote rights */
	GN_CAP_HUGE = 1 << 10,		/* GN_MEM_HUGE is supported */
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
	uint32_t max_rd_atomic; /* outstanding READs and atomics per qp; more are queued */
	uint32_t max_mr;
	uint32_t ud_mtu;      /* largest datagram; 0 without GN_CAP_UD */
	uint64_t max_msg;     /* bytes of one RC message, WRITE or READ */
	uint32_t max_private; /* private data bytes of gn_connect(): at least 56 */
};

/*
 * Opens a provider. name: "shm", "verbs", "verbs:DEVICE", "sim:NODE". For errors other than -EINVAL
 * the log has the reason.
 */
GN_API int gn_fabric_open(const char *name, struct gn_fabric **out);
/* -EBUSY while the fabric has objects. All destroy calls below return -EBUSY likewise. */
GN_API int gn_fabric_close(struct gn_fabric *fabric);
GN_API int gn_fabric_query(const struct gn_fabric *fabric, struct gn_attr *out);

GN_API int gn_ctx_create(struct gn_fabric *fabric, struct gn_ctx **out);
GN_API int gn_ctx_destroy(struct gn_ctx *ctx);

/* ---- memory ---- */

enum gn_access {
	GN_LOCAL_WRITE = 1 << 0, /* receives, READs and atomics may store here */
	GN_REMOTE_WRITE = 1 << 1,
	GN_REMOTE_READ = 1 << 2,
	GN_REMOTE_ATOMIC = 1 << 3,
	GN_CONFINED = 1 << 4, /* gn_mr_register() only: see there */
	GN_MEM_HUGE = 1 << 8, /* gn_mem_alloc() only: huge pages, or -ENOMEM */
};

#define GN_PAGE 4096u

/*
 * Allocates zeroed, page-aligned memory for regions. A forked child does not inherit it. rights:
 * the remote rights that its regions may have (GN_REMOTE_*), 0 for local memory.
 */
GN_API int gn_mem_alloc(struct gn_fabric *fabric, size_t size, unsigned rights,
			struct gn_mem **out);
/*
 * Wraps memory that the caller owns and keeps mapped. Regions of it may be local buffers on every
 * provider, and have remote rights with GN_CAP_FOREIGN_REMOTE. -EFAULT: not mapped.
 */
GN_API int gn_mem_wrap(struct gn_fabric *fabric, void *addr, size_t size, struct gn_mem **out);
GN_API int gn_mem_free(struct gn_mem *mem);
GN_API void *gn_mem_addr(const struct gn_mem *mem);
GN_API size_t gn_mem_size(const struct gn_mem *mem);

GN_API int gn_pd_create(struct gn_ctx *ctx, struct gn_pd **out);
GN_API int gn_pd_destroy(struct gn_pd *pd);

/*
 * What a peer needs to access a region: send this struct to the peer. Offsets count from the
 * region's start.
 */
struct gn_remote {
	uint64_t offset;
	uint64_t length;
	uint32_t key;
	uint32_t reserved;
};

/*
 * Registers [offset, offset + length) of mem. access: GN_LOCAL_WRITE | GN_REMOTE_*. Remote write
 * and atomic need local write, and the remote rights must not exceed the mem's. A region with
 * remote rights starts on a page boundary (GN_PAGE).
 *
 * Regions of one mem may lie in several pds, with different rights and ranges. A device enforces
 * both. On shm a peer that does not use this library can access all of a mem with a region in its
 * pd, and can write there if one of these regions allows it; a region that allows reading only
 * never gives it more. GN_CONFINED makes range, rights and their end hold exactly, also for a peer
 * that is stopped. On shm a region that is confined, or is read-only while its mem is not, is
 * slower: the owner's process executes the requests, in a thread of its own.
 */
GN_API int gn_mr_register(struct gn_pd *pd, struct gn_mem *mem, size_t offset, size_t length,
			  unsigned access, struct gn_mr **out);
/*
 * Revokes the region's key and returns when no remote access under it is in progress: no request of
 * a peer takes effect afterwards. On shm a peer whose access takes longer than a second is
 * disconnected instead; a thread that is stopped inside that access completes it when it continues.
 */
GN_API int gn_mr_deregister(struct gn_mr *mr);
/*
 * gn_mr_deregister() for a thread that must not wait for a peer. The first call revokes the
 * region's keys; the caller must not use the region any more. 0: the region is gone. -EAGAIN: a
 * peer may still be copying under the keys, and the region and its mem stay; call this function or
 * gn_mr_deregister() again later. GN_TEARDOWN_US after the first call a peer that still copies is
 * disconnected, and -EAGAIN ends. Only shm returns -EAGAIN.
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
	GN_WC_LOCAL_LENGTH,   /* the message is longer than the receive, or than max_msg */
	GN_WC_LOCAL_ACCESS,   /* local buffer: bad lkey, range or access right */
	GN_WC_LOCAL_QP,	      /* internal error of the qp */
	GN_WC_FLUSHED,	      /* the qp was in the error state */
	GN_WC_REMOTE_ACCESS,  /* the target refused key, pd, range or access right */
	GN_WC_REMOTE_INVALID, /* the target cannot accept it: receive too small, … */
	GN_WC_REMOTE_FAILED,  /* the target failed during the operation */
	GN_WC_RETRY,	      /* the peer does not acknowledge */
	GN_WC_RNR,	      /* receiver not ready: the peer posted no receive in time */
	GN_WC_FATAL,	      /* the device failed */
	GN_WC_STATUSES
};

enum gn_wc_flag {
	GN_WC_IMM = 1 << 0, /* imm is valid */
	GN_WC_GRH = 1 << 1, /* UD: the payload starts GN_GRH_BYTES into the receive */
};

struct gn_wc {
	uint64_t id;
	struct gn_qp *qp;
	enum gn_wc_status status; /* unless OK, only id, qp, status and vendor are valid */
	enum gn_op op;
	uint32_t len_bytes; /* stored by a receive (with the GRH), READ or atomic */
	uint32_t imm;
	uint32_t flags;	  /* enum gn_wc_flag */
	uint32_t src_qpn; /* UD: the sender's qp number */
	uint16_t src_lid; /* … and LID, on InfiniBand */
	uint32_t vendor;  /* provider-specific error code */
};

GN_API const char *gn_wc_status_str(enum gn_wc_status status);
GN_API const char *gn_op_str(enum gn_op op);

enum gn_flag {
	GN_SHARED = 1 << 0,   /* cq and qp: any thread may use it */
	GN_ANY_USER = 1 << 1, /* listener: accept processes of other users (shm) */
};

struct gn_cq_opts {
	size_t size; /* sizeof(struct gn_cq_opts) */
	uint32_t depth;	      /* completions it can hold, at least 1 */
	struct gn_chan *chan; /* for its events; without one a wait cannot sleep */
	unsigned flags;	      /* GN_SHARED */
};

GN_API int gn_cq_create(struct gn_ctx *ctx, const struct gn_cq_opts *opts, struct gn_cq **out);
GN_API int gn_cq_destroy(struct gn_cq *cq);
/* Returns how many completions the cq holds: at least opts.depth. */
GN_API uint32_t gn_cq_depth(const struct gn_cq *cq);
/* Polls at most n completions, oldest first. 0: none; -EOVERFLOW: the cq was overrun. */
GN_API int gn_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
/*
 * Requests one event on the channel for the next completion (solicited_only: the next solicited
 * receive or error). Always poll again between arming and sleeping. Spurious events are possible.
 * -EINVAL: the cq has no channel.
 */
GN_API int gn_cq_arm(struct gn_cq *cq, bool solicited_only);
/* Polls, waits with gn_wait() and polls again: completions, or -ETIMEDOUT, -EINTR. */
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
	struct gn_chan *chan;  /* for its connection events; required for RC */
	uint32_t max_send_wr;  /* 0: 128 */
	uint32_t max_recv_wr;  /* 0: 128 */
	uint32_t max_send_sge; /* 0: 1 */
	uint32_t max_recv_sge; /* 0: 1 */
	uint32_t max_inline;   /* bytes; default 0 */
	uint32_t qkey;	       /* UD: received datagrams must carry it */
	unsigned flags;	       /* GN_SHARED */
	void *user;	       /* for the caller, see gn_qp_user() */
};

struct gn_qp_attr {
	size_t size; /* sizeof(struct gn_qp_attr) */
	enum gn_qp_state state;
	uint64_t caps; /* the fabric's, and those of this connection */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
		max_inline; /* at least what was requested */
	uint32_t qpn;
};

/* A UD qp is ready at once. An RC qp accepts receives at once, and sends once it is connected. */
GN_API int gn_qp_create(struct gn_pd *pd, const struct gn_qp_opts *opts, struct gn_qp **out);
/*
 * Drops the qp's completions and events that were not taken. Returns when the peer accesses no
 * memory of the qp's pd any more: no request that the peer has posted to this qp takes effect
 * afterwards. (After gn_qp_error() and gn_disconnect() one still may.) On shm a peer whose access
 * takes longer than a second is disconnected instead; a thread that is stopped inside that access
 * completes it when it continues.
 */
GN_API int gn_qp_destroy(struct gn_qp *qp);
/*
 * gn_qp_destroy() for a thread that must not wait for a peer, with the rules of
 * gn_mr_deregister_try(). The first call disconnects and ends all completions and events of the qp.
 * After -EAGAIN only destroy calls are allowed on the qp.
 */
GN_API int gn_qp_destroy_try(struct gn_qp *qp);
/*
 * The owner's part of destroying an RC qp, if another thread does the rest. Disconnects, and
 * removes the qp from its cqs and its channel. Does not wait and unmaps nothing. Completions and
 * events that were not taken are dropped. Afterwards one thread, any, calls gn_qp_destroy() or
 * gn_qp_destroy_try(), and nothing else may be called on the qp. That thread may also destroy the
 * regions, mems and the pd that only this qp used.
 */
GN_API int gn_qp_detach(struct gn_qp *qp);
GN_API int gn_qp_query(struct gn_qp *qp, struct gn_qp_attr *out);
/* Moves the qp to the error state: all outstanding requests are flushed. */
GN_API int gn_qp_error(struct gn_qp *qp);
/*
 * Makes a UD qp ready again, from any state. It keeps its number and qkey, so address handles of
 * peers and its own stay valid. Outstanding requests and completions that were not polled are
 * dropped. -EINVAL for an RC qp.
 */
GN_API int gn_qp_reset(struct gn_qp *qp);
GN_API void *gn_qp_user(const struct gn_qp *qp);

/* The address of a UD qp: send this struct to the peer. */
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
 * Creates an address handle for datagrams from qp; the owner of qp owns it. A device may need to
 * resolve addr, which takes a second if nothing answers: do not call this while serving others.
 */
GN_API int gn_ah_create(struct gn_qp *qp, const struct gn_ud_addr *addr, struct gn_ah **out);
/*
 * Creates an address handle to a UD qp of the process that conn, an RC qp, is connected to (after
 * gn_accept() or ESTABLISHED). Does not wait: datagrams take conn's path, whatever GID and LID addr
 * has. -ENOTCONN. -EPERM: addr belongs to another process (shm).
 */
GN_API int gn_ah_create_peer(struct gn_qp *qp, struct gn_qp *conn, const struct gn_ud_addr *addr,
			     struct gn_ah **out);
/*
 * Creates an address handle to the sender of a received datagram. wc: as polled. grh: the first 40
 * bytes of the receive.
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
	GN_SIGNALED = 1 << 0,  /* report success, too */
	GN_INLINE = 1 << 1,    /* SEND, WRITE: copy the payload during the post */
	GN_FENCE = 1 << 2,     /* wait for earlier READs and atomics */
	GN_SOLICITED = 1 << 3, /* SEND, WRITE_IMM: raises a solicited event at the target */
};

struct gn_wr {
	uint64_t id;
	struct gn_wr *next;
	const struct gn_sge *sge;
	uint32_t n_sge;
	enum gn_op op;
	uint32_t flags; /* enum gn_wr_flag */
	uint32_t imm;	/* in host byte order on both sides */
	union {
		struct {
			uint64_t offset;
			uint32_t key;
			uint64_t compare; /* CAS: expected; FAA: addend */
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
 * Posts a chain with one doorbell. On failure *bad (may be NULL) is the first request that was not
 * posted: -EINVAL: bad request; -EMSGSIZE: too long for the qp (inline, UD); -ENOTCONN; -EAGAIN:
 * the send queue is full.
 *
 * The chain, the SGEs and inline data may be reused on return. Other data may be reused when the
 * request has completed: until then the device may read it at any time, in pieces and repeatedly. A
 * response of the peer to an RC request is as good as its completion: the peer ignores what the
 * device retransmits.
 */
GN_API int gn_post_send(struct gn_qp *qp, const struct gn_wr *wr, const struct gn_wr **bad);
/*
 * Posts one request; wr->next is ignored. 0, or an error as of gn_post_send(). 1: the request has
 * been executed successfully, after all earlier ones. It then has no completion, signaled or not,
 * and uses no send queue entry; its buffers may be reused, and the result of a READ or atomic is
 * there. A failed request never returns 1: it completes. The provider chooses between 0 and 1 for
 * each request; only providers that execute requests during the post return 1.
 */
GN_API int gn_post_one(struct gn_qp *qp, const struct gn_wr *wr);

/*
 * A WRITE or READ with one SGE that is posted repeatedly between a local and a remote region, at
 * the same offset in both. The caller allocates the struct and need not free anything. It belongs
 * to the owner of the qp and is valid as long as the qp. The provider caches its checks of both
 * regions and repeats them when a region may have changed: each post is checked like any other, at
 * less cost.
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
 * wr: as for gn_post_one(), a WRITE or READ of an RC qp with one SGE; its addresses are those of
 * offset 0; length, id and GN_INLINE are ignored. WRITEs of up to max_inline bytes are posted with
 * GN_INLINE. 0 or -EINVAL.
 */
GN_API int gn_fixed_init(struct gn_fixed *fixed, struct gn_qp *qp, const struct gn_wr *wr,
			 uint32_t max_inline);
/* gn_post_one() of the prepared request at offset, with this length and id. */
GN_API int gn_post_fixed(struct gn_fixed *fixed, uint64_t offset, uint32_t len_bytes, uint64_t id);
GN_API int gn_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr,
			const struct gn_recv_wr **bad);

/* Helpers that fill one request. sge must stay valid until the post. */
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

/* qpn: from the address that ah was created with. */
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
	GN_EVENT_CQ,	     /* an armed cq has a completion */
	GN_EVENT_CQ_OVERRUN, /* completions were lost: the cq is unusable, its qps are in error */
	GN_EVENT_CONNECT_REQUEST,
	GN_EVENT_ESTABLISHED,  /* sends may be posted to the qp */
	GN_EVENT_REJECTED,     /* by the listener's owner, with private data */
	GN_EVENT_UNREACHABLE,  /* no listener, or no reply in time: see status */
	GN_EVENT_DISCONNECTED, /* by either side, or the peer died; once */
	GN_EVENT_WAKE,	       /* gn_chan_wake() was called, at least once */
	GN_EVENT_TIMER,	       /* the deadline of gn_chan_timer() has passed */
	GN_EVENTS
};

#define GN_PRIVATE_MAX 196u

struct gn_event {
	enum gn_event_type type;
	/*
	 * UNREACHABLE: -ECONNREFUSED, -ETIMEDOUT, …. REJECTED: -ECONNREFUSED; -EMFILE: the server
	 * has no file descriptors left; -EACCES: the server does not accept other users.
	 */
	int status;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct gn_listener *listener;
	struct gn_conn_req *req; /* CONNECT_REQUEST: call gn_accept() or gn_reject() */
	/*
	 * The peer's private data; private_len may include trailing zero bytes. UNREACHABLE: a text
	 * of the provider, without a NUL, that says where it looked.
	 */
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
};

GN_API const char *gn_event_str(enum gn_event_type type);

GN_API int gn_chan_create(struct gn_ctx *ctx, struct gn_chan **out);
GN_API int gn_chan_destroy(struct gn_chan *chan);
/*
 * Returns an fd for poll and epoll: readable when gn_chan_next() may have an event. -EOPNOTSUPP
 * without GN_CAP_EVENT_FD.
 */
GN_API int gn_chan_fd(const struct gn_chan *chan);
/*
 * Takes the next event, or -EAGAIN. Also advances connections that are being set up: call it while
 * there are any.
 */
GN_API int gn_chan_next(struct gn_chan *chan, struct gn_event *out);
GN_API int gn_chan_wait(struct gn_chan *chan, uint64_t deadline_ns, struct gn_event *out);
GN_API struct gn_source *gn_chan_source(struct gn_chan *chan);
/* Any thread: queues GN_EVENT_WAKE, which wakes a thread that waits for the channel. */
GN_API int gn_chan_wake(struct gn_chan *chan);
/* Any thread: returns the number of queued events of a type, or -EINVAL. Takes none. */
GN_API int gn_chan_count(struct gn_chan *chan, enum gn_event_type type);
/*
 * Sets the channel's timer: at deadline_ns, or at once if that has passed, the channel gets one
 * GN_EVENT_TIMER, which makes its fd readable and wakes a wait. Each call replaces the last
 * deadline and drops a timer event that was not taken. 0 or GN_FOREVER: stops the timer. Only for
 * the thread that takes the channel's events.
 */
GN_API int gn_chan_timer(struct gn_chan *chan, uint64_t deadline_ns);

struct gn_conn_opts {
	size_t size; /* sizeof(struct gn_conn_opts) */
	/* gn_connect(): at most attr.max_private bytes; gn_accept(): GN_PRIVATE_MAX */
	const void *private_data;
	uint32_t private_len;
	uint32_t rnr_retry;    /* retries of a send without a receive, 1 to 6; 0: 6 */
	uint32_t rnr_timer_us; /* between two retries; 0: 640 */
	uint32_t timeout_us;   /* to establish the connection; 0: 2 s */
};

#define GN_RNR_RETRY_DEFAULT 6u
#define GN_RNR_NONE	     UINT32_MAX /* rnr_retry: no retries */

/*
 * Listens at addr: "shm:NAME", "verbs:HOST:PORT" (HOST may be empty or *: any), "sim:NODE:PORT".
 * -EADDRINUSE.
 */
GN_API int gn_listener_create(struct gn_ctx *ctx, const char *addr, struct gn_chan *chan,
			      unsigned flags, struct gn_listener **out);
/* Rejects requests that were not taken from the channel; taken ones stay valid. */
GN_API int gn_listener_destroy(struct gn_listener *listener);

/*
 * Starts connecting an RC qp. Its channel gets ESTABLISHED, REJECTED or UNREACHABLE. opts may be
 * NULL.
 */
GN_API int gn_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts);
/*
 * gn_connect(), and waits for the outcome: 0, -ECONNREFUSED (rejected, or no listener), -ETIMEDOUT,
 * … reply (may be NULL) gets the event. Other events of the channel stay queued.
 */
GN_API int gn_connect_wait(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts,
			   struct gn_event *reply);
/*
 * gn_accept() and gn_reject() consume req, whatever they return. After gn_accept() returns 0, sends
 * may be posted to the qp, and ESTABLISHED or UNREACHABLE follows. After a failure the qp has no
 * completions and no events: destroy it.
 *
 * A thread that does not own the qp's cqs and channel may create an RC qp, post receives to it,
 * query it, and accept a request with it, while the owner polls, arms or sleeps. Until gn_accept()
 * the qp belongs to that thread; it may destroy the qp, and must do so after a failure. After
 * success the owner has the qp, and the accepting thread must not use it any more. Completions,
 * ESTABLISHED and DISCONNECTED may reach the owner before gn_accept() has returned in the other
 * thread; the owner may use and destroy the qp at once. The cqs and the channel must live until
 * gn_accept() has returned.
 */
GN_API int gn_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
GN_API int gn_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
/* Both qps go to the error state and flush; both channels get DISCONNECTED. */
GN_API int gn_disconnect(struct gn_qp *qp);

/* ---- counters ---- */

struct gn_counters {
	size_t size; /* sizeof(struct gn_counters) */
	uint64_t wrs[GN_OPS];	/* requests posted, by operation; receives under GN_OP_RECV */
	uint64_t bytes[GN_OPS]; /* their payload; GN_OP_RECV*: bytes received */
	uint64_t inbound;	/* messages received (one-sided accesses are not counted) */
	uint64_t doorbells;	/* gn_post_send() and gn_post_one() calls that posted something */
	uint64_t recv_doorbells;
	uint64_t cqes;	      /* completions polled */
	uint64_t errors;      /* … with a status other than OK */
	uint64_t polls_empty; /* gn_cq_poll() calls that found nothing */
	uint64_t arms;
	uint64_t events;	  /* events taken from channels */
	uint64_t bytes_in_flight; /* a gauge: posted and not known to be complete */
	uint64_t drops;		  /* UD: datagrams that found no receive */
};

GN_API int gn_qp_counters(const struct gn_qp *qp, struct gn_counters *out);
/* The sum over all qps and cqs, including destroyed ones. */
GN_API int gn_fabric_counters(struct gn_fabric *fabric, struct gn_counters *out);

#ifdef __cplusplus
}
#endif

#endif
