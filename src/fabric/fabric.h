/* SPDX-License-Identifier: MIT */
/*
 * The fabric's objects as providers see them, and the table that a provider fills in.
 *
 * The generic layer allocates every object (with the provider's size; the generic struct comes
 * first), checks arguments, counts children, and keeps the send queue's bookkeeping and the
 * counters. A provider moves bytes. A provider's init finds the generic part filled in and the rest
 * zeroed; its fini runs only on objects without children.
 */
#ifndef GN_FABRIC_FABRIC_H
#define GN_FABRIC_FABRIC_H

#include <assert.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/exec.h"
#include "gannet/fabric.h"

struct epoll_event;

enum obj_type {
	OBJ_CTX,
	OBJ_MEM,
	OBJ_PD,
	OBJ_MR,
	OBJ_CQ,
	OBJ_CHAN,
	OBJ_QP,
	OBJ_AH,
	OBJ_LISTENER,
	OBJ_REQ,
	OBJ_TYPES
};

/*
 * The first member of every object. Destroyed objects stay readable for a while, so that their use
 * is detected (object.c).
 */
struct obj {
	uint32_t magic;
	enum obj_type type;
	uint32_t children; /* atomic: objects that must be destroyed first */
	struct gn_fabric *fabric;
	struct obj *next, **prev; /* the fabric's live objects of this type */
};

struct obj_pool {
	struct obj *live;
	struct obj *dead_first, **dead_last;
	uint32_t n_dead;
};

struct gn_fabric {
	uint32_t magic;
	struct provider *provider; /* a copy with all defaults filled in */
	struct gn_attr attr;
	struct gn_mutex lock; /* of pools and past_counters */
	struct obj_pool pool[OBJ_TYPES];
	struct gn_counters past_counters; /* counters of destroyed qps and cqs */
};

struct gn_ctx {
	struct obj obj;
	struct gn_mutex lock; /* for the GN_SHARED cqs and qps */
};

struct gn_mem {
	struct obj obj;
	uint8_t *addr;
	size_t size;
	unsigned rights; /* GN_REMOTE_*, GN_MEM_HUGE */
	bool foreign;
};

struct gn_pd {
	struct obj obj;
	struct gn_ctx *ctx;
};

struct gn_mr {
	struct obj obj;
	struct gn_pd *pd;
	struct gn_mem *mem;
	uint8_t *addr;
	size_t length;
	unsigned access;
	uint32_t lkey, rkey; /* set by the provider */
	uint64_t iova;	     /* address of the first byte as the provider counts; 0 if possible */
};

/* An event in a channel's queue. It is embedded in its object, so queueing cannot fail. */
struct chan_node {
	struct chan_node *next;
	bool queued;
	enum gn_event_type type;
	int status;
	struct obj *about; /* a cq, qp, req or the channel */
};

/* fds.c: an fd in a channel's epoll set, and its handler. */
struct chan_fd {
	int fd;
	void (*ready)(struct chan_fd *self);
};

struct gn_chan {
	struct obj obj;
	struct gn_ctx *ctx;
	struct gn_source source;
	struct gn_mutex lock; /* of the queue */
	struct chan_node *first, **last;
	int fd;		      /* epoll, or -1 */
	int wake_fd;	      /* eventfd in the set: readable while events are queued */
	struct chan_fd timer; /* of gn_chan_timer(); fd -1: not used yet */
	struct chan_node ev_timer, ev_wake;
	struct epoll_event *batch; /* events that the pumping thread is handling */
	int n_batch;
	uint64_t events;
};

struct gn_cq {
	struct obj obj;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_source source;
	uint32_t depth;
	bool shared, overrun;
	uint32_t waiters; /* atomic: threads that sleep in gn_wait() */
	bool user_armed;  /* atomic: gn_cq_arm() was called, its event not taken yet */
	struct chan_node ev_completion, ev_overrun;
	uint64_t polls_empty, arms;
	/*
	 * gn_cq_poll() after its argument checks: cq_poll_any(). A provider's init may set its own
	 * function for a cq that is not shared; it must do all that cq_poll_any() does.
	 */
	int (*poll)(struct gn_cq *cq, struct gn_wc *wc, int n);
};

/* Send queue entry of the generic layer. */
struct sq_entry {
	uint64_t id;
	uint64_t bytes_to; /* payload of all sends up to and including this one */
	uint32_t len_bytes;
	uint8_t op; /* enum gn_op */
};

#define PRIVATE_CONNECT_MAX 56u

struct gn_qp {
	struct obj obj;
	struct gn_pd *pd;
	struct gn_ctx *ctx;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_chan *chan;
	enum gn_qp_type type;
	enum gn_qp_state state;
	bool shared;
	uint32_t qpn, qkey;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
		max_inline; /* init may raise these */
	uint64_t caps;
	void *user;
	/* Longest WRITE (0), READ (1), inline WRITE (2) that needs no further check: post.c. */
	uint32_t plain_len[4];
	/*
	 * gn_post_one(): post_one_any(). A provider's init may set its own function. It gets any wr
	 * in any state, and passes to post_one_any() what it cannot execute at once. It may return
	 * 1 only if sq_head equals sq_tail; it makes no entry in sq, and calls post_counted().
	 */
	int (*post_one)(struct gn_qp *qp, const struct gn_wr *wr);
	/* gn_post_fixed() of a WRITE (0) and a READ (1): post_fixed_any(), or the provider's. */
	int (*post_fixed[2])(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id);

	/* A position counts requests since the qp's creation; entry = position & mask. */
	struct sq_entry *sq;
	uint64_t *rq; /* the users' ids */
	uint32_t sq_mask, rq_mask;
	uint64_t sq_head, sq_tail; /* posted, reclaimed */
	uint64_t rq_head, rq_tail;
	uint64_t sq_bytes, sq_bytes_done; /* payload posted, reclaimed */

	struct gn_counters count;
	struct chan_node ev_outcome, ev_disconnected;
	bool disconnect_reported;
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
};

struct gn_ah {
	struct obj obj;
	struct gn_qp *qp;
	struct gn_qp *conn; /* during init: an RC qp connected to the peer, or NULL */
	struct gn_ud_addr addr;
};

struct gn_listener {
	struct obj obj;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	unsigned flags;
};

struct gn_conn_req {
	struct obj obj;
	struct gn_ctx *ctx;
	struct gn_listener *listener; /* NULL after the listener was closed */
	struct chan_node ev;
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
};

/*
 * A provider's table. defaults.c fills in members that are NULL: they return -EOPNOTSUPP, do
 * nothing, or find nothing. init returns 0 or -errno, and logs the reason if only it knows.
 */
struct provider {
	const char *name;
	/* of the provider's structs; 0: the generic struct is enough */
	size_t fabric_size, size[OBJ_TYPES];

	int (*open)(struct gn_fabric *fabric, const char *device); /* fills attr */
	void (*close)(struct gn_fabric *fabric);
	int (*ctx_init)(struct gn_ctx *ctx);
	void (*ctx_fini)(struct gn_ctx *ctx);

	int (*mem_alloc)(struct gn_mem *mem); /* sets addr */
	int (*mem_wrap)(struct gn_mem *mem);  /* optional; addr is mapped */
	void (*mem_fini)(struct gn_mem *mem);
	int (*pd_init)(struct gn_pd *pd);
	void (*pd_fini)(struct gn_pd *pd);
	int (*mr_init)(struct gn_mr *mr); /* sets lkey and rkey */
	/*
	 * Optional; called before mr_fini and qp_fini, and again after -EAGAIN. Must not wait.
	 * Revokes the keys, or disconnects. 0: no peer accesses memory under the keys any more;
	 * -EAGAIN: for at most GN_TEARDOWN_US after the first call.
	 */
	int (*mr_revoke)(struct gn_mr *mr);
	void (*mr_fini)(struct gn_mr *mr);

	int (*chan_init)(
		struct gn_chan *chan); /* optional; providers with fds use chan_fds_init() */
	void (*chan_fini)(struct gn_chan *chan);
	void (*chan_pump)(struct gn_chan *chan); /* advances connections, queues events */
	/* Queues ev_timer at deadline_ns; replaces an earlier deadline; GN_FOREVER: never. */
	int (*chan_timer)(struct gn_chan *chan, uint64_t deadline_ns);

	int (*cq_init)(struct gn_cq *cq); /* may raise depth */
	void (*cq_fini)(struct gn_cq *cq);
	/* Fills wc; id is the request's position in the qp's send or receive queue. */
	int (*cq_poll)(struct gn_cq *cq, struct gn_wc *wc, int n);
	int (*cq_arm)(struct gn_cq *cq, bool solicited_only);
	bool (*cq_ready)(struct gn_cq *cq); /* would a poll find a completion? */

	int (*qp_init)(struct gn_qp *qp); /* may raise max_* */
	/*
	 * RC: disconnects, and removes the qp from cqs and channel: no more completions or events.
	 * Any thread may call qp_close and qp_fini afterwards.
	 */
	void (*qp_detach)(struct gn_qp *qp);
	int (*qp_close)(struct gn_qp *qp); /* see mr_revoke */
	void (*qp_fini)(struct gn_qp *qp);
	void (*qp_query)(struct gn_qp *qp); /* optional: updates state and caps */
	/* Optional: the owner of a qp that is not shared took its ESTABLISHED event. */
	void (*qp_adopt)(struct gn_qp *qp);
	int (*qp_error)(struct gn_qp *qp);
	int (*qp_reset)(struct gn_qp *qp); /* UD only, from any state */
	int (*ud_addr)(struct gn_qp *qp, struct gn_ud_addr *out);
	/* addr is set. With conn: use its path and resolve nothing. */
	int (*ah_init)(struct gn_ah *ah);
	void (*ah_fini)(struct gn_ah *ah);
	/* Completes the sender's address from a datagram's completion and GRH. */
	int (*ah_reverse)(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
			  struct gn_ud_addr *out);

	/*
	 * Posts n checked requests, which fit the queue; the first has position qp->sq_head
	 * (rq_head). Returns the number posted: fewer only if the device refused.
	 */
	unsigned (*post_send)(struct gn_qp *qp, const struct gn_wr *wr, unsigned n);
	/*
	 * post_send() for one WRITE or READ with one non-empty SGE, in a qp that is ready or in
	 * error. False: nothing was done, and the request comes again by post_send().
	 */
	bool (*post_plain)(struct gn_qp *qp, const struct gn_wr *wr);
	unsigned (*post_recv)(struct gn_qp *qp, const struct gn_recv_wr *wr, unsigned n);

	/* Could connect() use it? Looks up no names. Default: yes. */
	int (*addr_check)(struct gn_fabric *fabric, const char *addr);
	int (*listen_init)(struct gn_listener *listener,
			   const char *addr); /* addr: the part after "provider:" */
	void (*listen_fini)(struct gn_listener *listener);
	/*
	 * opts has its defaults filled in. These calls set qp->state. accept and reject may run in
	 * another thread than the owner of the qp's cqs and channel; after accept has handed the qp
	 * over it must not touch it.
	 */
	int (*connect)(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts);
	int (*accept)(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
	int (*reject)(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
	int (*disconnect)(struct gn_qp *qp);
};

/* post.c: call when max_inline is known */
void qp_set_plain(struct gn_qp *qp);
#define PLAIN_LEN 65536u /* every provider supports messages of this length */
int post_one_any(struct gn_qp *qp, const struct gn_wr *wr);
int post_fixed_any(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id);

/* cq.c */
int cq_poll_any(struct gn_cq *cq, struct gn_wc *wc, int n);

/* Copies own to out, with a default for each call it lacks. */
void provider_fill(struct provider *out, const struct provider *own);

extern const struct provider provider_shm, provider_verbs, provider_sim;

/* object.c */
int obj_create(struct gn_fabric *fabric, enum obj_type type, size_t base_size, void *out);
void obj_destroy(struct obj *obj); /* returns it to the pool */
static inline uint32_t obj_magic(enum obj_type type)
{
	return 0x67634301u + (uint32_t)type;
}
static inline bool obj_alive(const void *obj, enum obj_type type) /* false for NULL */
{
	return obj && ((const struct obj *)obj)->magic == obj_magic(type);
}
int fabric_check(const struct gn_fabric *fabric);   /* 0 or -EINVAL */
int obj_check(const void *obj, enum obj_type type); /* 0 or -EINVAL, logged if it was destroyed */
int obj_check_idle(const void *obj, enum obj_type type); /* … or -EBUSY */
static inline void obj_hold(struct obj *obj)
{
	__atomic_fetch_add(&obj->children, 1, __ATOMIC_RELAXED);
}
static inline void obj_release(struct obj *obj)
{
	__atomic_fetch_sub(&obj->children, 1, __ATOMIC_RELEASE);
}

/*
 * Delay between two tries of a blocking teardown: most copies end within microseconds, a stuck one
 * takes GN_TEARDOWN_US. The caller holds no lock.
 */
static inline void teardown_pause(unsigned tries)
{
	if (tries < 1000)
		gn_yield();
	else
		gn_sleep_us(100);
}

/* Counts a request that has no send queue entry. */
static inline void post_counted(struct gn_qp *qp, enum gn_op op, uint64_t len_bytes)
{
	counter_add(&qp->count.wrs[op], 1);
	counter_add(&qp->count.bytes[op], len_bytes);
	counter_add(&qp->count.doorbells, 1);
}

/* Frees the send queue entries up to position; unsignaled requests are complete, too. */
static inline void sq_reclaim(struct gn_qp *qp, uint64_t position)
{
	assert(position < qp->sq_head);
	qp->sq_tail = position + 1;
	qp->sq_bytes_done = qp->sq[position & qp->sq_mask].bytes_to;
	__atomic_store_n(&qp->count.bytes_in_flight, qp->sq_bytes - qp->sq_bytes_done,
			 __ATOMIC_RELAXED);
}

/* Translates a provider's completion, whose id is a position, into the user's. */
static inline void cq_finish(struct gn_wc *wc)
{
	struct gn_qp *qp = wc->qp;
	const uint64_t position = wc->id;

	if (wc->op == GN_OP_RECV || wc->op == GN_OP_RECV_WRITE_IMM) {
		assert(position < qp->rq_head);
		wc->id = qp->rq[position & qp->rq_mask];
		qp->rq_tail = position + 1;
		if (likely(wc->status == GN_WC_OK)) {
			counter_add(&qp->count.inbound, 1);
			counter_add(&qp->count.bytes[wc->op], wc->len_bytes);
		}
	} else {
		wc->id = qp->sq[position & qp->sq_mask].id;
		sq_reclaim(qp, position);
	}
	counter_add(&qp->count.cqes, 1);
	if (unlikely(wc->status != GN_WC_OK))
		counter_add(&qp->count.errors, 1);
}

/* A shared qp or cq uses its context's lock; one with an owner thread has no lock. */
static inline void qp_lock(struct gn_qp *qp)
{
	if (unlikely(qp->shared))
		gn_mutex_lock(&qp->ctx->lock);
}

static inline void qp_unlock(struct gn_qp *qp)
{
	if (unlikely(qp->shared))
		gn_mutex_unlock(&qp->ctx->lock);
}

static inline void cq_lock(struct gn_cq *cq)
{
	if (unlikely(cq->shared))
		gn_mutex_lock(&cq->ctx->lock);
}

static inline void cq_unlock(struct gn_cq *cq)
{
	if (unlikely(cq->shared))
		gn_mutex_unlock(&cq->ctx->lock);
}

/* sleep of a wait while its channel holds events of other objects */
#define PENDING_EVENTS_SLEEP_US 100

/* chan.c: queues an event. Any thread. */
void chan_push(struct gn_chan *chan, struct chan_node *node);
/* … the caller holds the lock */
void chan_push_locked(struct gn_chan *chan, struct chan_node *node);
void chan_remove(struct gn_chan *chan, struct chan_node *node);
/* Creates a request object for a provider's listener, to be filled and passed to req_push(). */
int req_create(struct gn_listener *listener, struct gn_conn_req **out);
void req_push(struct gn_conn_req *req);
void req_drop(struct gn_conn_req *req); /* if it was not pushed */

/* Connection events from a provider; each queues its event, with qp->private_data. */
void qp_established(struct gn_qp *qp);
/*
 * … by another thread than the qp's owner. hand_over() makes the qp visible to its owner and runs
 * under the channel's lock: the owner cannot destroy the qp before the lock is released, and this
 * thread does not touch the qp afterwards.
 */
void qp_established_for(struct gn_qp *qp, void (*hand_over)(struct gn_qp *qp));
void qp_refused(struct gn_qp *qp, enum gn_event_type type, int status);
void qp_disconnected(struct gn_qp *qp); /* at most one DISCONNECTED per connection */

/* fds.c: channels for providers with fds. */
int chan_fds_init(struct gn_chan *chan);
void chan_fds_fini(struct gn_chan *chan);
void chan_fds_pump(struct gn_chan *chan);
int chan_fds_timer(struct gn_chan *chan, uint64_t deadline_ns);
int chan_fds_add(struct gn_chan *chan, struct chan_fd *cfd);
void chan_fds_del(struct gn_chan *chan, struct chan_fd *cfd);

#endif
