/* SPDX-License-Identifier: MIT */
/*
 * The verbs provider: libibverbs moves the bytes, librdmacm establishes connections.
 *
 * A gn_ctx is an ibv_context, and all objects created from it belong to it. rdma_cm opens its own
 * context per device; it never sees a connection's qp, which is ours (the "external qp" flow:
 * cm.c).
 *
 * Locks, in the order of locking: ctx.lock (generic, shared objects), vrb_table.lock,
 * vrb_chan.lock, gn_chan.lock (generic, the event queue). A table's lock guards its entries. A
 * channel's lock guards the connections and event counts of its qps and cqs, because one thread
 * takes events while another destroys a listener or a request.
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
	struct ibv_context *ibv; /* for queries, and to keep the device open */
	uint8_t port;
	bool roce;
	/* READs and atomics in flight per qp, as target and as initiator. */
	uint8_t rd_atomic_in, rd_atomic_out;
};

/*
 * Maps a completion to its qp. A device may leave completions of a destroyed qp in a cq, so a wr_id
 * names its qp by index and generation instead of a pointer:
 *
 * 	63        40 39   24 23        1   0
 * 	generation   index   position      is it a receive?
 *
 * The low bits of the position suffice: outstanding requests are within max_*_wr of the queue's
 * tail.
 */
#define VRB_POSITION_BITS 23
#define VRB_POSITION_MASK ((1ull << VRB_POSITION_BITS) - 1)
#define VRB_TAG_SHIFT	  (VRB_POSITION_BITS + 1)
#define VRB_INDEX_BITS	  16
#define VRB_CHUNK	  256u /* slots per allocation; they never move */
#define VRB_QPS_MAX	  (1u << VRB_INDEX_BITS)
#define VRB_WR_MAX	  (1u << 14) /* per queue: well below the range of a position */

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
	/* The slot that has been free for longest is used first, so that generations wrap late. */
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

/* Verbs cannot peek at a cq: polled completions go to the stash first, where ready() finds them. */
struct vrb_cq {
	struct gn_cq base;
	struct ibv_cq *ibv;
	bool closing;		/* acknowledge its events at once */
	unsigned events;	/* of the completion channel, not acknowledged yet */
	unsigned n_empty_polls; /* since the last completion */
	struct ibv_wc *stash;
	unsigned stash_first, stash_end, stash_size;
};

enum vrb_conn_state {
	VRB_CONN_NONE,
	VRB_CONN_CONNECTING, /* gn_connect(): resolving address or route, or requesting */
	VRB_CONN_ACCEPTED,   /* gn_accept(): not established yet */
	VRB_CONN_UP,
	VRB_CONN_DOWN, /* disconnected by one side, or no acknowledgement */
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
	uint64_t tag; /* shifted into position for a wr_id */
	struct ibv_send_wr *send_wr;
	struct ibv_recv_wr *recv_wr;
	struct vrb_conn conn;
	bool order_queried; /* caps has the ordering guarantees */
	bool discarded;	    /* reset and not in a table: no completions now or later */
};

struct vrb_ah {
	struct gn_ah base;
	struct ibv_ah *ibv;
};

struct vrb_listener {
	struct gn_listener base;
	struct rdma_cm_id *id;
	bool device_logged; /* logged that requests arrive on another device */
};

struct vrb_req {
	struct gn_conn_req base;
	struct rdma_cm_id *id;
	/* the channel whose rdma_cm channel has the id; counted as its child */
	struct vrb_chan *chan;
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

/* errno of a failed libibverbs or librdmacm call; never 0. */
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
/* The tag, shifted into position for a wr_id. */
int vrb_table_add(struct vrb_table *table, struct vrb_qp *qp, uint64_t *tag);
void vrb_table_del(struct vrb_table *table, uint64_t tag);
/* fn must not take the table's lock. */
void vrb_table_each(struct vrb_table *table, void (*fn)(struct vrb_qp *qp, void *arg), void *arg);

static inline struct vrb_qp *vrb_table_find(const struct vrb_table *table, uint64_t wr_id)
{
	const uint64_t tag = wr_id >> VRB_TAG_SHIFT;
	const uint32_t index = tag & (VRB_QPS_MAX - 1);
	/* Pairs with the release in table_add_chunk(): the slots are initialised. */
	struct vrb_slot *chunk =
		__atomic_load_n(&table->chunk[index / VRB_CHUNK], __ATOMIC_ACQUIRE);
	const struct vrb_slot *slot;

	if (unlikely(!chunk))
		return NULL;
	slot = &chunk[index % VRB_CHUNK];
	/*
	 * Pairs with the release in vrb_table_add(), which may run in another thread than the
	 * owner's. If the tag is not that of a live qp, other threads may change it now, but never
	 * to the wanted tag.
	 */
	return likely(__atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE) == tag) ? slot->qp : NULL;
}

/* chan.c */
int vrb_chan_init(struct gn_chan *chan);
void vrb_chan_fini(struct gn_chan *chan);
/* The caller holds the channel's lock. Calls vrb_cm_expired(qp) at its deadline; cancels that. */
void vrb_chan_set_deadline(struct vrb_chan *chan, struct vrb_qp *qp);
void vrb_chan_clear_deadline(struct vrb_chan *chan, struct vrb_qp *qp);

/* async.c: events of a device, its cqs and its qps outside of completions. Any thread. */
void vrb_async_pump(struct vrb_ctx *ctx);

/* cq.c */
int vrb_cq_init(struct gn_cq *cq);
void vrb_cq_fini(struct gn_cq *cq);
int vrb_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
int vrb_cq_arm(struct gn_cq *cq, bool solicited_only);
bool vrb_cq_ready(struct gn_cq *cq);
/* Owner thread: removes completions of destroyed qps. */
void vrb_cq_purge(struct gn_cq *cq);
/* The caller holds the channel's lock. Takes events of the completion channel. */
void vrb_cq_events(struct vrb_chan *chan);

/* qp.c */
int vrb_qp_init(struct gn_qp *qp);
void vrb_qp_detach(struct gn_qp *qp);
void vrb_qp_fini(struct gn_qp *qp);
/* Any thread: the device drops its requests, and its completions are ignored. */
void vrb_qp_discard(struct vrb_qp *qp);
void vrb_qp_query(struct gn_qp *qp);
int vrb_qp_error(struct gn_qp *qp);
int vrb_qp_reset(struct gn_qp *qp);
/* Any thread: puts the qp in error and flushes it. A second call flushes requests posted since. */
int vrb_qp_fail(struct vrb_qp *qp);
/* Parameters of a connection besides those of rdma_cm. */
struct vrb_path {
	uint8_t rd_atomic_in, rd_atomic_out;
	uint32_t rnr_retry; /* of our sends */
	/* of the peer's sends: the receiver tells the sender how long to wait */
	uint32_t rnr_timer_us;
};
/* READs and atomics in flight: the minimum of the device's and the peer's limits. */
void vrb_path_depths(struct vrb_path *path, const struct gn_fabric *fabric,
		     uint8_t responder_resources, uint8_t initiator_depth);
/* Moves the qp from INIT to RTS along id's path. */
int vrb_qp_bring_up(struct vrb_qp *qp, struct rdma_cm_id *id, const struct vrb_path *path);

static inline void vrb_qp_state(struct vrb_qp *qp, enum gn_qp_state state)
{
	/* Read by the owner; a thread that found a device failure may write it. */
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
/* The port's best GID; with a peer's GID, our GID that can reach it. */
int vrb_gid_choose(struct ibv_context *ibv, uint8_t port, const union ibv_gid *peer,
		   struct vrb_gid *out);

/* addr.c: HOST:PORT, with an IPv6 HOST in brackets. A host name is resolved, which may block. */
int vrb_addr_check(struct gn_fabric *fabric, const char *addr);
int vrb_addr_parse(const char *addr, bool passive, struct sockaddr_storage *out);

/* Copy of an rdma_cm event, used after its acknowledgement. */
struct vrb_cm_event {
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
/* The caller holds the channel's lock. */
void vrb_connect_requested(struct vrb_listener *listener, const struct vrb_cm_event *what);

/* cm.c: the active side, events, and disconnects. */
int vrb_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts);
int vrb_disconnect(struct gn_qp *qp);
/* The caller holds the channel's lock: */
void vrb_cm_events(struct vrb_chan *chan);
void vrb_cm_expired(struct vrb_qp *qp);
/* The caller does not hold it: */
void vrb_cm_detach(struct vrb_qp *qp); /* disconnects; no more events of the qp */
void vrb_cm_fini(struct vrb_qp *qp);
void vrb_cm_peer_lost(struct vrb_qp *qp); /* the peer does not acknowledge, or the device failed */
/* A message arrived before ESTABLISHED. */
void vrb_cm_received_early(struct vrb_qp *qp);

/* Both sides. */
int vrb_cm_new_id(struct vrb_chan *chan, void *context, struct rdma_cm_id **out);
bool vrb_cm_on_our_device(const struct rdma_cm_id *id, const struct gn_fabric *fabric);

#endif
