/* SPDX-License-Identifier: MIT */
/*
 * io: the parts of an engine.
 *
 *     submit (any thread) ─ splits at stripes ─▶ channel.incoming[op]   a stack, lock-free
 *                                                     │ the leader takes all of it
 *                                                     ▼
 *     leader (holds poller.lock)           channel.waiting[op] ─ plan, window ─▶ gn_post_send()
 *                                                     ▲                               │
 *                            channel.repeat[op] ──────┘      channel.posted, a ring ◀─┘
 *                              after a failure                        │ gn_cq_poll()
 *     owner (polls its queue)         queue.mine or queue.ended ◀─────┘
 *
 * A *poller* is a completion queue, an event channel, and the channels on them. Its lock is a
 * try-lock. It covers posting, polling and connection events, because the fabric wants one thread
 * at a time for all three. No thread ever waits for it: a thread that does not get the lock sets
 * `attention`, and the holder looks again after unlocking.
 */
#ifndef GN_IO_ENGINE_H
#define GN_IO_ENGINE_H

#include <assert.h>
#include <errno.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/owner.h"
#include "base/source.h"
#include "base/ticks.h"
#include "gannet/exec.h"
#include "gannet/io.h"
#include "io/core/attach.h"
#include "io/core/plan.h"
#include "io/core/poll.h"
#include "io/core/window.h"
#include "link/link.h"

#define IO_POLLERS_MAX	     60u /* a thread that sleeps waits for all of them, and for its queue */
#define IO_CHAIN_SGES	     256u
#define IO_POLL_WCS	     32u
#define IO_QUEUE_DEPTH_MAX   65536u
#define IO_CHANNEL_DEPTH_MAX 4096u
#define IO_LOCKED_NAP_US     20u     /* of a waiter, while another thread holds a poller's lock */
#define IO_SERVICE_LOOK_US   100000u /* the service thread wakes at least so often */
#define IO_SERVICE_WAKES     64u
#define IO_SIGNAL_EVERY	     16u  /* work requests */
#define IO_PROMPT_SKIP	     255u /* posts without a poll, after one that was not yet executed */
#define IO_MAINTAIN_POLLS    256u /* between two maintenances, if all polls find something */
#define IO_MAINTAIN_TICKS    (4 * EXEC_TICKS_SHORT) /* … and if polls find nothing */

/* A piece and its request. */
struct io_part {
	struct io_piece piece;
	struct gn_io_req *req;
	bool unfenced; /* a broken qp may still access its bytes: the request must not end */
};

/*
 * The private part of a struct gn_io_req. Large copies evict it from the caches again and again: a
 * request in one stripe uses the public line and two of these.
 */
struct io_req {
	struct gn_io_queue *queue; /* NULL: not under way */
	struct gn_io_req *next;	   /* in a list of ended requests */
	uint8_t *buffer;	   /* of the staging area; NULL: none */
	struct gn_mem *dyn;	   /* registered for this request; NULL: not */
	struct gn_mr *dyn_mr;
	uint32_t len_bytes;
	uint32_t lkey;	      /* of buffer, of dyn, or of the only SGE */
	uint32_t pieces_left; /* atomic */
	int status;	      /* atomic: of the pieces that ended */
	bool cancelled;	      /* atomic */
	struct io_part part[2];
};

static_assert(offsetof(struct gn_io_req, opaque) == GN_CACHELINE &&
		      offsetof(struct io_req, part) == GN_CACHELINE,
	      "a request uses more cache lines");
static_assert(sizeof(struct io_req) <= sizeof(((struct gn_io_req *)0)->opaque),
	      "struct gn_io_req has no space for its private part");

static inline struct io_req *io_req_of(struct gn_io_req *req)
{
	return (struct io_req *)(void *)req->opaque;
}

static inline struct io_part *io_part_of(struct io_piece *piece)
{
	return container_of(piece, struct io_part, piece);
}

/* A list of pieces. */
struct io_list {
	struct io_piece *first, **last;
};

static inline void io_list_init(struct io_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

static inline void io_list_add(struct io_list *list, struct io_piece *piece)
{
	piece->next = NULL;
	*list->last = piece;
	list->last = &piece->next;
}

/* Puts the pieces of head before those of list. */
static inline void io_list_put_back(struct io_list *list, struct io_list *head)
{
	if (!head->first)
		return;
	*head->last = list->first;
	if (!list->first)
		list->last = head->last;
	list->first = head->first;
	io_list_init(head);
}

/* A posted work request. Positions in the ring are the ids of completions. */
struct io_posted {
	struct io_piece *first;
	uint32_t len_bytes;
	enum gn_io_op op;
};

enum io_channel_state {
	IO_CHANNEL_IDLE, /* not connected: tries at due_ns */
	IO_CHANNEL_CONNECTING,
	IO_CHANNEL_UP,
	IO_CHANNEL_BROKEN, /* its qp must be destroyed */
	IO_CHANNEL_LOST,   /* for good: requests end with -ESTALE */
};

/* One connection to a target. Unless noted, only the holder of the poller's lock touches it. */
struct io_channel {
	_Alignas(GN_CACHELINE) struct io_piece *incoming[GN_IO_OPS]; /* atomic, newest first */
	_Alignas(GN_CACHELINE) struct io_poller *poller;
	struct gn_io_target *target;
	struct io_channel *next; /* of the poller */
	struct gn_qp *qp;
	enum io_channel_state state; /* atomic for readers without the lock */
	bool starved;		     /* a window, or a full send queue, holds its requests back */
	bool had_claim[GN_IO_OPS];   /* … to the window, and nobody else had one since */
	struct io_list waiting[GN_IO_OPS];
	struct io_list repeat[GN_IO_OPS];
	struct io_posted *posted;
	uint64_t head, tail; /* positions of the ring: oldest posted, next */
	uint32_t mask, depth, max_sge;
	uint32_t unsignaled; /* work requests since the last signaled one */
	uint32_t index;	     /* in its target */
	uint32_t generation; /* of the next connection: attach.h */
	bool was_up;
	bool proven;		   /* a work request has completed since it is UP */
	enum gn_io_op first;	   /* which operation has the first choice of the send queue */
	struct gn_io_range shared; /* IO_ATTACH_SHARE: as the donor described it */
	uint64_t deadline_ns;	   /* none of the waiting requests is due before */
	uint64_t down_ns; /* atomic: since when nothing is known to reach the target */
	uint64_t up_ns;		   /* since when it is UP */
	struct link_backoff backoff;
};

struct io_poller_stats {
	uint64_t requests[GN_IO_OPS], bytes[GN_IO_OPS];
	uint64_t failed, wrs, doorbells, merged, waited, repeated, reconnects;
	uint64_t polls, polls_empty, arms, events;
};

/*
 * What a leader needs while it posts or polls. A part of its queue and not of the poller: the same
 * lines serve all channels, and stay in the cache of the thread.
 */
struct io_scratch {
	struct io_plan plan;
	struct gn_wr wrs[IO_PLAN_WRS];
	struct gn_sge sges[IO_CHAIN_SGES];
	struct gn_wc wcs[IO_POLL_WCS];
};

struct io_poller {
	_Alignas(GN_CACHELINE) uint32_t lock; /* atomic: 1 while a thread has it */
	uint32_t attention;		      /* atomic: look again after unlocking */
	uint32_t sleepers;		      /* atomic: threads that sleep until an event */
	_Alignas(GN_CACHELINE) struct gn_io *io;
	struct gn_cq *cq;
	struct gn_chan *chan;
	struct io_channel *channels;
	uint32_t index;
	uint32_t cq_free; /* completions that no channel has reserved */
	bool armed;	  /* the cq: an event will come */
	bool purge;	  /* atomic: a request was cancelled */
	bool broken;	  /* a channel is BROKEN, or LOST and has requests */
	bool freed;	  /* bytes of a window, or a claim to it: others may be waiting */
	unsigned polls;	  /* since the last maintenance */
	uint64_t due_ns;  /* atomic: a maintenance is needed then */
	uint32_t prompt_skip; /* posts until io_poller_post_channel() polls again */
	struct io_poller_stats stats;
	struct io_scratch scratch; /* of threads without a queue */
};

struct gn_io_target {
	struct gn_io *io;
	char *addr;
	struct io_attach attach; /* without channel and generation */
	uint32_t timeout_us;
	int lost; /* atomic: 0, or the error of gn_io_target_open(); requests end with -ESTALE */
	const char *why_lost; /* … in words; atomic, set before lost */
	int refused;	      /* atomic: why the last attempt failed */
	bool takes_over; /* atomic: a share is being opened, and may be taken from others */
	uint32_t first_generation; /* atomic: lower ones are refused */
	unsigned n_regions, n_channels;
	struct io_channel *channels; /* n_channels of them */
};

struct gn_io_region {
	struct gn_io_target *target;
	uint64_t start, length;
	uint32_t key;
	unsigned rights;
	uint32_t refs; /* atomic: requests */
};

struct gn_io_mem {
	struct gn_io *io;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *addr;
	size_t length;
	uint32_t lkey;
	uint32_t refs; /* atomic: buffers of requests */
};

/* References that many requests in a row take or drop: one atomic operation for all of them. */
struct io_refs {
	uint32_t *of;
	uint32_t n;
};

static inline void io_refs_apply(struct io_refs *refs, int sign)
{
	if (refs->n)
		__atomic_fetch_add(refs->of, (uint32_t)sign * refs->n, __ATOMIC_RELEASE);
	refs->n = 0;
}

static inline void io_refs_count(struct io_refs *refs, uint32_t *of, int sign)
{
	if (unlikely(refs->of != of)) {
		io_refs_apply(refs, sign);
		refs->of = of;
	}
	refs->n++;
}

/* What a list of requests refers to. */
struct io_refs_list {
	struct io_refs region, mem;
};

static inline void io_refs_count_req(struct io_refs_list *refs, const struct gn_io_req *req,
				     int sign)
{
	io_refs_count(&refs->region, &req->region->refs, sign);
	for (uint32_t i = 0; i < req->n_sge; i++)
		if (req->sge[i].mem)
			io_refs_count(&refs->mem, &req->sge[i].mem->refs, sign);
}

static inline void io_refs_apply_all(struct io_refs_list *refs, int sign)
{
	io_refs_apply(&refs->region, sign);
	io_refs_apply(&refs->mem, sign);
}

static inline bool io_range_equal(const struct gn_io_range *a, const struct gn_io_range *b)
{
	return a->remote.key == b->remote.key && a->remote.offset == b->remote.offset &&
	       a->remote.length == b->remote.length && a->rights == b->rights;
}

/* Registered buffers of one size; free ones are a lock-free stack of indexes. */
struct io_staging_class {
	uint32_t size, n;
	uint8_t *base;
	uint32_t *next;			     /* atomic: index + 1 of the next free one */
	_Alignas(GN_CACHELINE) uint64_t top; /* atomic: tag << 32 | index + 1 */
};
#define IO_STAGING_CLASSES 4u

struct gn_io {
	struct gn_fabric *fabric;
	uint64_t creator; /* gn_thread_id(): is this a forked child? */
	struct gn_attr attr;
	struct gn_io_opts opts;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	uint32_t max_sge;
	uint64_t copy_below; /* atomic: shorter buffers are copied, others registered */
	struct io_window window[GN_IO_OPS];
	struct io_auto adapt[GN_IO_OPS];
	uint32_t auto_lock; /* atomic: a try-lock of adapt */
	uint32_t starved;   /* atomic: channels are held back by a window */
	uint32_t n_pollers; /* atomic; only grows */
	struct io_poller *pollers[IO_POLLERS_MAX];
	struct gn_mem *staging_mem;
	struct gn_mr *staging_mr;
	struct io_staging_class staging[IO_STAGING_CLASSES];
	uint64_t wakeups;		      /* atomic */
	struct gn_mutex lock;		      /* of the lists, and of creating and destroying */
	unsigned n_targets, n_mems, n_queues; /* atomic */
	struct gn_thread *service;
	struct gn_io_queue *service_queue;
	bool service_runs, service_stop; /* atomic */
};

struct gn_io_queue {
	struct gn_io *io;
	uint64_t owner;			     /* gn_thread_id() of the last thread that used it */
	struct gn_queue *ended;		     /* requests that other threads ended */
	struct gn_io_req *mine, **mine_last; /* … and this thread */
	uint32_t depth, under_way;
	uint32_t out[IO_POLLERS_MAX]; /* pieces under way by poller */
	struct io_poll poll;
	uint64_t maintained_ticks;
	unsigned reaping; /* calls of queue_reap() that may be inside a done */
	bool service;	  /* of the service thread, which looks after all pollers */
	bool has_source;  /* gn_io_queue_source() was called: all that ends must wake it */
	struct io_scratch scratch;
};

static inline struct io_scratch *io_scratch_of(struct io_poller *poller, struct gn_io_queue *self)
{
	return self ? &self->scratch : &poller->scratch;
}

/* -EPERM in a forked child. */
static inline int io_check(const struct gn_io *io, const char *call)
{
	return exec_inherited(io->creator) ? exec_not_owner(io->creator, call) : 0;
}

/* ---- poller.c: the lock, completions, events ---- */

int io_poller_get(struct gn_io *io, struct io_channel *channel, struct io_poller **out);
/* Removes a channel that has no requests. The lock is held. */
void io_poller_remove(struct io_poller *poller, struct io_channel *channel);
void io_poller_destroy(struct io_poller *poller);

static inline bool io_poller_try(struct io_poller *poller)
{
	/* Pairs with the store of io_poller_leave(). */
	return !__atomic_exchange_n(&poller->lock, 1, __ATOMIC_SEQ_CST);
}

/*
 * As io_poller_try(), for a thread that has left work: if it does not get the lock, the holder
 * looks again.
 */
static inline bool io_poller_try_or_notify(struct io_poller *poller)
{
	if (likely(io_poller_try(poller)))
		return true;
	__atomic_store_n(&poller->attention, 1, __ATOMIC_SEQ_CST);
	return io_poller_try(poller);
}

/*
 * Unlocks, and looks again if another thread asked for it. If bytes of a window became free, lets
 * channels post that it held back. self: the caller's queue, or NULL.
 */
void io_poller_leave(struct io_poller *poller, struct gn_io_queue *self);
/* For set-up and teardown: waits for the lock. */
void io_poller_lock(struct io_poller *poller);
/* The lock is held: takes incoming requests, posts what it can. */
void io_poller_post(struct io_poller *poller, struct gn_io_queue *self);
/*
 * The lock is held: posts the incoming requests of one channel. If the provider executes requests
 * during the post, takes their completions, too.
 */
void io_poller_post_channel(struct io_poller *poller, struct io_channel *ch,
			    struct gn_io_queue *self);
/* The lock is held: polls up to batch completions, and posts what became possible. */
uint32_t io_poller_poll(struct io_poller *poller, uint32_t batch, struct gn_io_queue *self);
/* The lock is held: events, connections, deadlines. */
void io_poller_maintain(struct io_poller *poller, struct gn_io_queue *self);
/* The lock is held: requests an event for the next completion. */
void io_poller_arm(struct io_poller *poller);
static inline void io_poller_due(struct io_poller *poller, uint64_t due_ns)
{
	if (due_ns < __atomic_load_n(&poller->due_ns, __ATOMIC_RELAXED))
		__atomic_store_n(&poller->due_ns, due_ns, __ATOMIC_RELAXED);
}

/* The pieces of a work request end. */
void io_posted_end(struct io_poller *poller, struct io_piece *first, int status,
		   struct gn_io_queue *self);

/* ---- post.c ---- */

/* The lock is held: moves incoming pieces to the waiting ones. */
void io_channel_collect(struct io_channel *ch);
/* The lock is held: posts waiting pieces of an UP channel. */
void io_channel_post(struct io_channel *ch, struct gn_io_queue *self);

/* ---- target.c ---- */

/* -ESTALE, with the reason as text. */
int io_target_lost(const struct gn_io_target *target);

/* ---- channel.c: connections ---- */

void io_channel_init(struct io_channel *ch, struct gn_io_target *target, uint32_t index);
/* A completion, or an event, says that the connection is gone. */
void io_channel_fail(struct io_channel *ch);
/* The lock is held: the connection's next step, and expired or cancelled requests. */
void io_channel_advance(struct io_channel *ch, uint64_t now_ns, struct gn_io_queue *self);
void io_channel_event(struct io_channel *ch, const struct gn_event *event,
		      struct gn_io_queue *self);
/* Ends waiting requests that are expired or cancelled. */
void io_channel_purge(struct io_channel *ch, uint64_t now_ns, struct gn_io_queue *self);
/* Gives up the claims to windows of requests that the channel does not have any more. */
void io_channel_drop_claims(struct io_channel *ch);
bool io_channel_busy(struct io_channel *ch);
/* why: a text that stays. The channels notice it when they are advanced. */
void io_target_lose(struct gn_io_target *target, int error, const char *why, bool log);
void io_channel_close(struct io_channel *ch);

/* ---- queue.c ---- */

/* An idle queue becomes the caller's. -EPERM: another thread's, or a forked child. */
int io_queue_adopt(struct gn_io_queue *queue, const char *call);

static inline int io_queue_check(struct gn_io_queue *queue, const char *call)
{
	if (unlikely(!queue))
		return gn_fail(-EINVAL, "%s: queue is NULL", call);
	return exec_is_owner(queue->owner) ? 0 : io_queue_adopt(queue, call);
}

/* A piece ended. Any thread; self: its queue, or NULL. */
void io_piece_end(struct io_poller *poller, struct io_piece *piece, int status,
		  struct gn_io_queue *self);
/* The service thread has a new poller to look after, or an earlier deadline. Any thread. */
void io_service_wake(struct gn_io *io);
void io_service_stop(struct gn_io *io);

/* ---- memory.c ---- */

int io_memory_init(struct gn_io *io);
void io_memory_fini(struct gn_io *io);
/*
 * Before a request is queued: copies or registers buffers that are not registered. -EAGAIN: the
 * staging buffers are in use.
 */
int io_memory_prepare(struct gn_io *io, struct gn_io_req *req);
/* By the owner, when the request has ended. */
void io_memory_finish(struct gn_io *io, struct gn_io_req *req);

#endif
