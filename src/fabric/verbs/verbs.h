/* SPDX-License-Identifier: MIT */
/*
 * The verbs provider: libibverbs moves the bytes, librdmacm makes the connections.
 *
 * A gn_ctx is an ibv_context of its own, and everything made from it belongs to that. rdma_cm opens
 * a context of its own per device; a connection's qp is ours and is never shown to it (the
 * "external qp" flow: cm.c).
 *
 * Locks, in the order they are taken: ctx.lock (generic, shared objects), vrb_table.lock,
 * vrb_chan.lock, gn_chan.lock (generic, the event queue). A table's lock guards who is in it; a
 * channel's lock guards the connections and event counts of the qps and cqs on it, because the
 * thread that takes events and the one that destroys a listener or a request may differ.
 */
#ifndef GN_FABRIC_VERBS_H
#define GN_FABRIC_VERBS_H

#include "fabric/fabric.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

struct vrb_fabric {
	struct gn_fabric base;
	struct ibv_context *ibv; /* to ask about the device, and to keep it known */
	uint8_t port;
	bool roce;
	/* READs and atomics that one qp answers, and asks for, at a time. */
	uint8_t rd_atomic_in, rd_atomic_out;
};

/*
 * Which qp a completion belongs to. A device may leave completions of a destroyed qp in a cq, so a
 * wr_id names its qp by an index and a generation instead of a pointer:
 *
 *	63        40 39   24 23        1   0
 *	generation   index   position      is it a receive?
 *
 * The position's low bits suffice: what is outstanding lies within max_*_wr of the queue's tail.
 */
#define VRB_POSITION_BITS 23
#define VRB_POSITION_MASK ((1ull << VRB_POSITION_BITS) - 1)
#define VRB_TAG_SHIFT	  (VRB_POSITION_BITS + 1)
#define VRB_INDEX_BITS	  16
#define VRB_CHUNK	  256u /* slots allocated at a time; they never move */
#define VRB_QPS_MAX	  (1u << VRB_INDEX_BITS)
#define VRB_WR_MAX	  (1u << 14) /* per queue: far inside what a position can tell apart */

struct vrb_qp;

struct vrb_slot {
	uint64_t tag; /* generation and index; 0 while free */
	struct vrb_qp *qp;
	uint32_t generation;
	uint32_t next_free;
};

struct vrb_table {
	struct gn_mutex lock;
	struct vrb_slot *chunk[VRB_QPS_MAX / VRB_CHUNK];
	uint32_t n_chunks;
	/*
	 * The slot that is free longest goes first, so that a generation lasts as long as it can.
	 */
	uint32_t free_first, free_last;
};

struct vrb_ctx {
	struct gn_ctx base;
	struct ibv_context *ibv;
	struct vrb_table table;
};

struct vrb_mem {
	struct gn_mem base;
	size_t mapped_bytes;
};

struct vrb_pd {
	struct gn_pd base;
	struct ibv_pd *ibv;
};

struct vrb_mr {
	struct gn_mr base;
	struct ibv_mr *local, *remote; /* remote: NULL without remote rights */
};

struct vrb_chan {
	struct gn_chan base;
	struct gn_mutex lock;
	struct ibv_comp_channel *comp;
	struct rdma_event_channel *cm;
	struct chan_fd comp_fd, cm_fd, async_fd, timer_fd;
	struct vrb_qp *pending; /* connections with a deadline */
	uint32_t n_reqs;	/* atomic: requests neither accepted nor rejected */
};

/* Verbs cannot peek at a cq: what it polls goes to the stash first, where ready() finds it. */
struct vrb_cq {
	struct gn_cq base;
	struct ibv_cq *ibv;
	bool closing;	  /* acknowledge its events at once */
	unsigned events;  /* taken from the comp channel and not acknowledged */
	unsigned empties; /* polls that found nothing */
	struct ibv_wc *stash;
	unsigned stash_first, stash_end, stash_size;
};

enum vrb_conn_state {
	VRB_CONN_NONE,
	VRB_CONN_ASKING,   /* connect was called: address, route, request under way */
	VRB_CONN_ACCEPTED, /* accept was called: the peer's last word is missing */
	VRB_CONN_UP,
	VRB_CONN_DOWN, /* one side has said goodbye, or does not answer */
};

struct vrb_conn {
	enum vrb_conn_state state;
	struct rdma_cm_id *id;
	uint64_t deadline_ns;
	struct vrb_qp *next, **prev; /* pending in the channel */
	uint32_t rnr_retry, rnr_timer_us;
	uint32_t private_len;
	uint8_t private_data[PRIVATE_CONNECT_MAX];
};

struct vrb_qp {
	struct gn_qp base;
	struct ibv_qp *ibv;
	uint64_t tag; /* in place in a wr_id */
	struct ibv_send_wr *send_wr;
	struct ibv_recv_wr *recv_wr;
	struct vrb_conn conn;
	bool asked_order; /* data_in_order is in caps */
	bool silent;	  /* reset, and in no table: nothing of it is in a cq, or comes to one */
};

struct vrb_ah {
	struct gn_ah base;
	struct ibv_ah *ibv;
};

struct vrb_listener {
	struct gn_listener base;
	struct rdma_cm_id *id;
	bool told_device; /* that requests arrive on another device */
};

struct vrb_req {
	struct gn_conn_req base;
	struct rdma_cm_id *id;
	struct vrb_chan *chan; /* whose event channel the id is on: held */
	uint8_t responder_resources, initiator_depth;
};

static inline struct vrb_fabric *vrb_fabric(struct gn_fabric *fabric)
{
	return container_of(fabric, struct vrb_fabric, base);
}

static inline struct vrb_ctx *vrb_ctx(struct gn_ctx *ctx)
{
	return container_of(ctx, struct vrb_ctx, base);
}

static inline struct vrb_pd *vrb_pd(struct gn_pd *pd)
{
	return container_of(pd, struct vrb_pd, base);
}

static inline struct vrb_chan *vrb_chan(struct gn_chan *chan)
{
	return container_of(chan, struct vrb_chan, base);
}

static inline struct vrb_cq *vrb_cq(struct gn_cq *cq)
{
	return container_of(cq, struct vrb_cq, base);
}

static inline struct vrb_qp *vrb_qp(struct gn_qp *qp)
{
	return container_of(qp, struct vrb_qp, base);
}

/* Why a call of libibverbs or librdmacm that says so in errno has failed; never 0. */
static inline int vrb_errno(void)
{
	return errno ? -errno : -EIO;
}

/* device.c */
int vrb_open(struct gn_fabric *fabric, const char *device);
void vrb_close(struct gn_fabric *fabric);
int vrb_ctx_init(struct gn_ctx *ctx);
void vrb_ctx_fini(struct gn_ctx *ctx);
int vrb_nonblocking(int fd);

/* mem.c, mr.c */
int vrb_mem_alloc(struct gn_mem *mem);
void vrb_mem_fini(struct gn_mem *mem);
int vrb_pd_init(struct gn_pd *pd);
void vrb_pd_fini(struct gn_pd *pd);
int vrb_mr_init(struct gn_mr *mr);
void vrb_mr_fini(struct gn_mr *mr);

/* table.c */
void vrb_table_init(struct vrb_table *table);
void vrb_table_fini(struct vrb_table *table);
/* The tag, in place in a wr_id. */
int vrb_table_add(struct vrb_table *table, struct vrb_qp *qp, uint64_t *tag);
void vrb_table_del(struct vrb_table *table, uint64_t tag);
/* fn must not take the table's lock. */
void vrb_table_each(struct vrb_table *table, void (*fn)(struct vrb_qp *qp, void *arg), void *arg);

static inline struct vrb_qp *vrb_table_find(const struct vrb_table *table, uint64_t wr_id)
{
	const uint64_t tag = wr_id >> VRB_TAG_SHIFT;
	const uint32_t index = tag & (VRB_QPS_MAX - 1);
	/* Pairs with the release in add_chunk(): the slots are initialised. */
	struct vrb_slot *chunk =
		__atomic_load_n(&table->chunk[index / VRB_CHUNK], __ATOMIC_ACQUIRE);
	const struct vrb_slot *slot;

	if (unlikely(!chunk))
		return NULL;
	slot = &chunk[index % VRB_CHUNK];
	/*
	 * Pairs with the release in vrb_table_add(), which another thread than the owner may have
	 * called. If the tag is not that of a living qp, then others may be changing it now, but
	 * never to the one looked for.
	 */
	return likely(__atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE) == tag) ? slot->qp : NULL;
}

/* chan.c */
int vrb_chan_init(struct gn_chan *chan);
void vrb_chan_fini(struct gn_chan *chan);
/* The channel's lock is held. Ask for vrb_cm_expired(qp) at its deadline; ask no more. */
void vrb_chan_expect(struct vrb_chan *chan, struct vrb_qp *qp);
void vrb_chan_expect_no_more(struct vrb_chan *chan, struct vrb_qp *qp);

/* async.c: what happens to a device, its cqs and its qps outside of any completion. Any thread. */
void vrb_async_pump(struct vrb_ctx *ctx);

/* cq.c */
int vrb_cq_init(struct gn_cq *cq);
void vrb_cq_fini(struct gn_cq *cq);
int vrb_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
int vrb_cq_arm(struct gn_cq *cq, bool solicited_only);
bool vrb_cq_ready(struct gn_cq *cq);
/* Make the room that completions of destroyed qps take up free. The cq's owner. */
void vrb_cq_forget(struct gn_cq *cq);
/* The channel's lock is held. Takes the comp channel's events. */
void vrb_cq_events(struct vrb_chan *chan);

/* qp.c */
int vrb_qp_init(struct gn_qp *qp);
void vrb_qp_detach(struct gn_qp *qp);
void vrb_qp_fini(struct gn_qp *qp);
/* Whoever owns it: the device drops what was posted, and completions of it are nobody's. */
void vrb_qp_silence(struct vrb_qp *qp);
void vrb_qp_query(struct gn_qp *qp);
int vrb_qp_error(struct gn_qp *qp);
int vrb_qp_reset(struct gn_qp *qp);
/* To error, if it is not there, and flush; once more flushes what was posted since. Any thread. */
int vrb_qp_fail(struct vrb_qp *qp);
/* What connecting a qp needs besides what rdma_cm knows. */
struct vrb_path {
	uint8_t rd_atomic_in, rd_atomic_out;
	uint32_t rnr_retry;    /* of our sends */
	uint32_t rnr_timer_us; /* of the peer's: a receiver tells how long to wait for it */
};
/* READs and atomics: the least of what the device can do and the peer said. */
void vrb_path_depths(struct vrb_path *path, const struct gn_fabric *fabric,
		     uint8_t responder_resources, uint8_t initiator_depth);
/* From INIT to RTS along id's path. */
int vrb_qp_bring_up(struct vrb_qp *qp, struct rdma_cm_id *id, const struct vrb_path *path);

static inline void vrb_qp_state(struct vrb_qp *qp, enum gn_qp_state state)
{
	/* Its owner reads it; a thread that found a device's failure may write it. */
	__atomic_store_n(&qp->base.state, state, __ATOMIC_RELAXED);
}

/* post.c */
unsigned vrb_post_send(struct gn_qp *qp, const struct gn_wr *wr, unsigned n);
unsigned vrb_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr, unsigned n);
int vrb_post_init(struct vrb_qp *qp);
void vrb_post_fini(struct vrb_qp *qp);

/* ud.c */
int vrb_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out);
int vrb_ah_init(struct gn_ah *ah);
void vrb_ah_fini(struct gn_ah *ah);
int vrb_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		   struct gn_ud_addr *out);

/* gid.c */
struct vrb_gid {
	union ibv_gid gid;
	uint8_t index;
};
/* The port's best GID to be reached at; with a peer's GID, the one of ours that can talk to it. */
int vrb_gid_choose(struct ibv_context *ibv, uint8_t port, const union ibv_gid *peer,
		   struct vrb_gid *out);

/* addr.c: HOST:PORT, with an IPv6 HOST in brackets. A name is looked up, which may take a while. */
int vrb_addr_parse(const char *addr, bool passive, struct sockaddr_storage *out);

/* What of an event of rdma_cm outlives its acknowledgement. */
struct vrb_happening {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct obj *about; /* the qp or listener */
	uint8_t responder_resources, initiator_depth;
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
};

/* listen.c: the passive side. */
int vrb_listen_init(struct gn_listener *listener, const char *addr);
void vrb_listen_fini(struct gn_listener *listener);
int vrb_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
int vrb_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
/* The channel's lock is held. */
void vrb_requested(struct vrb_listener *listener, const struct vrb_happening *what);

/* cm.c: the active side, events, and the end. */
int vrb_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts);
int vrb_disconnect(struct gn_qp *qp);
/* The channel's lock is held in these. */
void vrb_cm_events(struct vrb_chan *chan);
void vrb_cm_expired(struct vrb_qp *qp);
/* And is not in these. */
void vrb_cm_leave(struct vrb_qp *qp); /* say goodbye; no event of it comes any more */
void vrb_cm_fini(struct vrb_qp *qp);
void vrb_cm_lost(struct vrb_qp *qp); /* the peer does not answer, or the device is gone */
/* From the peer, before its last word of the handshake came. */
void vrb_cm_heard(struct vrb_qp *qp);

/* Both sides. */
int vrb_cm_new_id(struct vrb_chan *chan, void *context, struct rdma_cm_id **out);
bool vrb_cm_on_our_device(const struct rdma_cm_id *id, const struct gn_fabric *fabric);

#endif
