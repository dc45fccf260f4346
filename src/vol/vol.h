/* SPDX-License-Identifier: MIT */
/*
 * vol: the parts of a volume.
 *
 *     gn_vol_submit ─▶ op (1 MiB at most) ─ range lock ─▶ gn_io requests, one for each copy
 *                                                             │ all ended
 *         the keeper retires copies that failed ◀─ failed ────┤
 *                        └─▶ op goes on or starts again       ▼
 *                                              block states, unlock, end
 *
 *     agent     one thread for each donor: owns the session; grants, releases, notices
 *     keeper    one thread: failed copies, donors that cannot be reached, how much to grant ahead
 *     repair    one thread: copies extents to new slabs
 *
 * The *map* is: the copies of extents, the states of blocks, the slabs of donors. A thread that
 * holds a bucket reads the map, and changes the states of blocks whose range it has
 * locked in this bucket. A thread that holds all buckets (vol_map_lock()) may change all of it. The
 * volume's lock protects what is left, and is never held while a bucket is taken.
 */
#ifndef GN_VOL_VOL_H
#define GN_VOL_VOL_H

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "base/list.h"
#include "base/mutant.h"
#include "gannet/exec.h"
#include "gannet/vol.h"

#define VOL_STRIPE_SHIFT 20u /* as the engine's: an op becomes one piece for each copy */
#define VOL_STRIPE	 (UINT64_C(1) << VOL_STRIPE_SHIFT)
#define VOL_BLOCK_SHIFT	 12u
#define VOL_BUCKETS	 256u
#define VOL_COPIES	 (GN_VOL_COPIES_MAX + 1) /* … and one that is being made */
#define VOL_CHUNK	 (256u << 10)		 /* that repair copies under one lock */
#define VOL_QUEUE_MAX	 4096u
#define VOL_POOL_QUEUES	 64u /* of the blocking calls */
#define VOL_POOL_DEPTH	 8u
#define VOL_TICK_NS	 UINT64_C(20000000) /* the keeper looks at the donors so often */
#define VOL_CALL_US	 1000000u	    /* a call of a donor */
#define VOL_GRANTS	 8u		    /* slabs of one call */

struct vol_donor;
struct vol_op;

/* ---- range.c: ranges of bytes that requests have locked ---- */

struct vol_range {
	uint64_t start, end;		/* in one stripe */
	struct vol_range *next, **prev; /* of the bucket, in the order of arrival */
	struct gn_io_req *wake;		/* under way while the range waits */
	bool exclusive;
	bool granted;
};

/* Locked for a few hundred instructions at most, without calls that wait. */
struct vol_bucket {
	_Alignas(GN_CACHELINE) uint32_t lock; /* atomic: 1 while a thread has it */
	struct vol_range *first, **last;
};

static inline bool vol_bucket_try(struct vol_bucket *bucket)
{
	return !__atomic_exchange_n(&bucket->lock, 1, __ATOMIC_ACQUIRE);
}

/* Another thread has it. */
void vol_bucket_await(struct vol_bucket *bucket);

static inline void vol_bucket_lock(struct vol_bucket *bucket)
{
	if (unlikely(!vol_bucket_try(bucket)))
		vol_bucket_await(bucket);
}

static inline void vol_bucket_unlock(struct vol_bucket *bucket)
{
	__atomic_store_n(&bucket->lock, 0, __ATOMIC_RELEASE);
}

/* ---- map ---- */

enum vol_copy_state {
	VOL_SPARE,
	VOL_FILLING, /* receives WRITEs, is not read: repair copies into it */
	VOL_LIVE,
	VOL_RETIRED, /* not part of the map any more: released when nobody uses it */
};

/* A slab: a copy of an extent, or a spare. */
struct vol_copy {
	struct vol_donor *donor;
	struct gn_donor_slab *slab; /* touched by the agent only */
	struct gn_io_region *region;
	uint64_t id;	 /* of the slab */
	uint32_t extent; /* its number */
	enum vol_copy_state state;
	bool joining;		       /* the authority is adding it: it stays until then */
	bool untold;		       /* LIVE, and the keeper has to tell the authority of it */
	bool moving;		       /* it must go: the donor wants it back */
	uint64_t move_until_ns;	       /* the agent's: … by then; 0: it does not */
	bool listed;		       /* the agent's: the donor says that it is held */
	bool failed;		       /* the volume's lock: in vol.failed */
	bool wrong;		       /* atomic: a block is wrong, and no other copy can be read */
	uint64_t users;		       /* atomic: ops and repairs that use it now; << 32: so far */
	struct vol_copy *next, **prev; /* of the donor */
	struct vol_copy *failed_next;
};

struct vol_extent {
	struct vol_copy *copy[VOL_COPIES]; /* n_live complete ones, then one that is FILLING */
	uint8_t n_live, n_copies;
	bool was_used; /* had copies once */
};

enum vol_block { VOL_HOLE, VOL_DATA, VOL_STALE, VOL_LOST, VOL_BLOCK_KINDS };

struct vol_donor {
	struct gn_vol *vol;
	const char *addr;
	unsigned index;
	struct gn_thread *thread;
	struct gn_queue *wake;
	/* The map. */
	struct gn_io_target *target; /* NULL: no session */
	struct vol_copy *copies;
	uint32_t n_spare, n_used; /* slabs: spare; LIVE or FILLING */
	bool leaving;		  /* it grants nothing, and its copies must move */
	bool losing;		  /* only the keeper: its copies are being retired */
	bool left;		  /* … of a donor that was leaving and had none */
	bool given_up;		  /* the agent ends the session */
	/* The volume's lock. */
	uint32_t want, want_repair; /* spare slabs that the agent should hold */
	bool ready;		    /* the agent has connected, or failed */
	bool full;		    /* the donor refused the last grant */
	bool gone;		    /* the session has ended: the keeper gives the donor up */
	int rc;			    /* of the last connect or grant */
	char error[192];	    /* … in words */
	struct gn_donor_id id; /* of the session; incarnation 0: there is none */
	uint64_t slab_bytes, free_slabs;
	uint64_t times_lost;
	/* Atomic: WRITEs have ended since the last FLUSH began; FLUSHes under way. */
	uint32_t written, flushing;
};

struct gn_vol {
	struct gn_fabric *fabric;
	struct gn_vol_opts opts;
	char owner[GN_DONOR_OWNER + 1];
	struct gn_io_opts io_opts;
	struct gn_vol_authority authority;
	struct gn_io *io;
	uint32_t max_sge;
	uint64_t extent_bytes;
	unsigned extent_shift;	    /* 0: not a power of two */
	uint32_t n_extents, n_used; /* n_used: the map: extents that have copies */
	uint32_t n_untold;	    /* the map: copies */
	struct vol_extent *extents;
	uint64_t *blocks; /* the map: two bits each */
	uint32_t *crcs;	  /* of blocks that are DATA, if opts.verify */
	struct vol_bucket *buckets;
	struct vol_donor *donors;
	char (*addrs)[GN_VOL_ADDR];
	struct gn_mutex lock;
	struct gn_cond changed; /* agents and repair have done something */
	struct gn_cond keeper_cond, repair_cond, pool_cond;
	struct gn_thread *keeper, *repair;
	struct gn_io_queue *repair_queue;
	struct gn_io_mem *repair_mem; /* of repair_buf, VOL_CHUNK bytes */
	uint8_t *repair_buf;
	struct vol_copy *failed;     /* copies for the keeper */
	struct vol_op *waiting;	     /* ops that wait until their failed copies are retired */
	struct gn_vol_queue *pool;   /* free ones */
	struct gn_vol_queue *queues; /* all */
	unsigned n_pool, n_queues;   /* made for the blocking calls; by the user */
	bool claimed;		     /* atomic: claim.h */
	bool stop, stop_keeper, stop_agents; /* stop: atomic: the volume ends, repair first */
	bool kicked;			     /* the keeper has work */
	/* backup.c; the lists: the volume's lock */
	struct gn_vol_backup backup;
	uint64_t *behind;		   /* the map: a bit for each block; NULL: no backup */
	uint64_t behind_bytes;		   /* atomic: that are behind or being written */
	uint64_t backing_from, backing_to; /* atomic: blocks that are being copied */
	struct vol_op *throttled, *restoring, *syncing;
	struct gn_cond backup_cond;
	struct gn_thread *backup_thread;
	struct gn_vol_queue *backup_queue;
	uint8_t *backup_buf;
	bool stop_backup, backup_kicked; /* kicked: it has work */
	bool work;		   /* repair should look for extents */
	struct gn_vol_stats stats; /* atomic counters; of queues that are gone */
	uint32_t copying;	   /* number of the extent that repair copies, + 1 */
	uint64_t cursor;	   /* atomic: bytes of it that are copied */
};

static inline struct vol_bucket *vol_bucket(const struct gn_vol *vol, uint64_t offset)
{
	return &vol->buckets[(offset >> VOL_STRIPE_SHIFT) % VOL_BUCKETS];
}

void vol_map_lock(struct gn_vol *vol);
void vol_map_unlock(struct gn_vol *vol);

/* The same if the bucket has other ranges. */
bool vol_range_lock_behind(struct vol_bucket *bucket, struct vol_range *range,
			   struct gn_io_queue *queue);
void vol_range_unlock_others(struct vol_bucket *bucket, struct vol_range *range);

/*
 * The bucket is held. Locks the range, or begins to wait: then wake is under way in queue,
 * and ends when the range is locked. Returns whether it is locked.
 */
static inline bool vol_range_lock(struct vol_bucket *bucket, struct vol_range *range,
				  struct gn_io_queue *queue)
{
	range->next = NULL;
	range->prev = bucket->last;
	*bucket->last = range;
	bucket->last = &range->next;
	range->granted = true;
	return likely(bucket->first == range) || vol_range_lock_behind(bucket, range, queue);
}

/* The bucket is held. */
static inline void vol_range_unlock(struct vol_bucket *bucket, struct vol_range *range)
{
	if (unlikely(bucket->first != range || range->next)) {
		vol_range_unlock_others(bucket, range);
		return;
	}
	bucket->first = NULL;
	bucket->last = &bucket->first;
}

/* ---- map.c: states of blocks, copies of extents ---- */

static inline enum vol_block vol_block_get(const struct gn_vol *vol, uint64_t block)
{
	return (enum vol_block)(__atomic_load_n(&vol->blocks[block / 32], __ATOMIC_RELAXED) >>
					(block % 32 * 2) &
				3);
}

/* Sets blocks [from, to). A bucket is held that covers them. */
void vol_blocks_set(struct gn_vol *vol, uint64_t from, uint64_t to, enum vol_block kind);
/* The bucket is held: one block is lost. */
void vol_block_lose(struct gn_vol *vol, uint64_t block);
/* Which kinds there are in [from, to): a mask of 1 << kind. */
unsigned vol_blocks_kinds(const struct gn_vol *vol, uint64_t from, uint64_t to);

/* The same, quickly for one block. */
static inline unsigned vol_block_kinds(const struct gn_vol *vol, uint64_t from, uint64_t to)
{
	return likely(to - from == 1) ? 1u << vol_block_get(vol, from) :
					vol_blocks_kinds(vol, from, to);
}

/* The end of the run of blocks of one kind that begins at from, at most to. */
uint64_t vol_blocks_run(const struct gn_vol *vol, uint64_t from, uint64_t to);

static inline uint32_t vol_extent_of(const struct gn_vol *vol, uint64_t offset)
{
	return (uint32_t)(likely(vol->extent_shift) ? offset >> vol->extent_shift :
						      offset / vol->extent_bytes);
}

/* Gives copies to an extent without one, from the spares. 0 or -ENOSPC. Takes all buckets. */
int vol_extent_fill(struct gn_vol *vol, uint32_t extent);
/* All buckets are held: makes a spare of the donor a copy. NULL: it has none. */
struct vol_copy *vol_copy_take(struct vol_donor *donor, uint32_t extent, enum vol_copy_state state);
/* All buckets are held: the authority has to be told of a LIVE copy, or (false) was. */
void vol_copy_set_untold(struct vol_copy *copy, bool untold);
/* All buckets are held: a copy leaves the map; if it was the last one, its data are lost. */
void vol_copy_retire(struct vol_copy *copy);
/* Takes a bucket. */
enum vol_copy_state vol_copy_state(struct vol_copy *copy);
struct gn_vol_copy vol_copy_describe(struct vol_copy *copy);
/* A bucket is held: does the extent have another LIVE copy that can be read now? */
bool vol_copy_has_other(const struct vol_copy *copy);
/* All buckets are held: can new copies be put on this donor? */
bool vol_donor_usable(const struct vol_donor *donor);

static inline void vol_copy_use(struct vol_copy *copy)
{
	__atomic_fetch_add(&copy->users, UINT64_C(1) << 32 | 1, __ATOMIC_RELAXED);
}

static inline void vol_copy_unuse(struct vol_copy *copy)
{
	__atomic_fetch_sub(&copy->users, 1, __ATOMIC_RELEASE); /* vol_copy_idle() */
}

/* Nobody has used it since it was retired. */
static inline bool vol_copy_idle(const struct vol_copy *copy)
{
	return !(uint32_t)__atomic_load_n(&copy->users, __ATOMIC_ACQUIRE);
}

/* ---- queue.c, op.c ---- */

/* What an op does next. */
enum vol_step {
	VOL_STEP_LOCK,	/* waits for its range */
	VOL_STEP_EDGES, /* reads the blocks of which it writes parts */
	VOL_STEP_DATA,
	VOL_STEP_FAILED, /* waits for the keeper */
	VOL_STEP_ADMIT,
	VOL_STEP_RESTORE,
	VOL_STEP_SYNC, /* waits for the backup */
};

/* A part of a request: inside one stripe. Only the thread of its queue touches it. */
struct vol_op {
	/* These two lines are all that a request of one copy needs, unless something fails. */
	_Alignas(GN_CACHELINE) struct vol_range range; /* in whole blocks */
	struct gn_vol_queue *queue;
	uint32_t extent;     /* its number */
	uint8_t op;	     /* enum gn_vol_op */
	uint8_t step;	     /* enum vol_step */
	uint8_t n_copies;    /* of copy[] */
	uint8_t pending;     /* requests under way */
	uint64_t start, end; /* the request's bytes */
	struct gn_vol_req *req;
	const struct gn_io_sge *user;
	struct vol_op *next; /* free, or waiting for the keeper */
	uint32_t n_sge;	     /* of user */
	int status;
	uint8_t failed;	      /* which of copy[] */
	uint8_t live;	      /* which of copy[] were complete */
	uint8_t refused;      /* which of io[] the engine did not take */
	uint8_t edges;	      /* bit 0: the first block is in edge; bit 1: the last */
	bool holes;	      /* blocks of the range are STALE or holes */
	bool issued, written; /* WRITEs were issued; are on all copies */
	bool restore;	      /* blocks of the range are LOST, and in the backup */
	struct vol_copy *copy[VOL_COPIES];

	uint8_t *edge;		 /* two blocks */
	uint64_t marked;	 /* bytes that are behind since this op: backup.c */
	unsigned donor, channel; /* FLUSH: the next one to read */
	struct gn_io_req io[VOL_COPIES];
	struct gn_io_req wake;
	struct gn_io_sge slice[GN_VOL_SGE_MAX]; /* user, if the request has two parts */
	struct gn_io_sge sge[GN_VOL_SGE_MAX + 2];
};

static_assert(offsetof(struct vol_op, copy) + sizeof(void *) <= 2 * GN_CACHELINE,
	      "the first copy is in the first two lines");

/* The private part of a struct gn_vol_req. */
struct vol_req {
	struct gn_vol_queue *queue; /* NULL: not under way */
	struct gn_vol_req *next;
	uint64_t cursor; /* ZERO, DISCARD: up to here ops were made */
	uint32_t ops;	 /* under way */
	int status;
	bool flushing;	/* FUA: the rest is done */
	bool advancing; /* req_advance() makes ops */
};

static_assert(sizeof(struct vol_req) <= sizeof(((struct gn_vol_req *)0)->opaque),
	      "struct gn_vol_req has no space for its private part");

static inline struct vol_req *vol_req_of(struct gn_vol_req *req)
{
	return (struct vol_req *)(void *)req->opaque;
}

struct gn_vol_queue {
	struct gn_vol *vol;
	struct gn_io_queue *io;
	uint32_t depth, under_way;
	struct vol_op *ops, *free_ops;
	uint8_t *edges;
	struct gn_vol_req *ended, **ended_last;
	struct gn_io_req **out; /* requests to submit: a ring that has space for all */
	uint32_t out_head, out_tail, out_mask;
	unsigned reaping;
	bool in_pool;
	bool has_source, nudged; /* nudged: nudge is under way */
	struct gn_io_req nudge;	 /* makes the source ready */
	struct gn_vol_queue *next, **prev; /* of all */
	struct gn_vol_queue *pool_next;
	/* Counters of this thread. */
	uint64_t requests[GN_VOL_OPS], failed, serialised, crc_errors;
};

static inline uint64_t vol_op_first(const struct vol_op *op)
{
	return op->range.start >> VOL_BLOCK_SHIFT;
}

static inline uint64_t vol_op_end(const struct vol_op *op)
{
	return op->range.end >> VOL_BLOCK_SHIFT;
}

/* The engine did not take a request of an op. */
void vol_op_refused(struct gn_io_req *io, int status);
/* For the requests of an op. */
void vol_op_init(struct vol_op *op);
/* Begins an op: locks its range. */
void vol_op_start(struct vol_op *op);
/* The bucket is held: adds a copy to those of the op. */
void vol_op_use(struct vol_op *op, struct vol_copy *copy);
/* Adds the READ or WRITE of copy i. */
void vol_op_io(struct vol_op *op, unsigned i, enum gn_io_op what, uint64_t offset,
	       const struct gn_io_sge *sge, uint32_t n_sge);

/* edges.c */
/* Which blocks the op has only a part of: as op->edges. */
unsigned vol_partial_blocks(const struct vol_op *op);
/* The edge buffer of a block, or NULL: the block is wholly in the user's buffers. */
uint8_t *vol_edge_of(const struct vol_op *op, uint64_t block);
/* The op's bytes of a block: [*from, *to). */
void vol_block_part(const struct vol_op *op, uint64_t block, uint64_t *from, uint64_t *to);
/* Copies the op's parts of blocks between edge buffers and the user's buffers. */
void vol_edges_copy(const struct vol_op *op, bool to_user);
/* Zeroes bytes [skip, skip + len) of the user's buffers. */
void vol_user_zero(const struct vol_op *op, uint64_t skip, uint64_t len);
uint32_t vol_block_crc(const struct vol_op *op, uint64_t block);
/* The buffers of the op's READs or WRITEs, if it has edges; returns their number. */
uint32_t vol_op_sges(struct vol_op *op, const struct gn_io_sge **out);

/* Copies bytes [skip, skip + len) of the op from (to_user: to) the user's buffers. */
void vol_user_copy(const struct vol_op *op, uint64_t skip, uint8_t *buf, uint64_t len,
		   bool to_user);

/* backup.c */
int vol_backup_start(struct gn_vol *vol);
/* Before a WRITE, ZERO or DISCARD begins. false: its wake ends when it may. */
bool vol_backup_admit(struct vol_op *op);
/* The op has ended. */
void vol_backup_settle(struct vol_op *op);
/* The bucket is held: the op changes these blocks. */
void vol_backup_mark(struct vol_op *op, uint64_t from, uint64_t to);
/* The bucket is held: these blocks become LOST. */
void vol_backup_lost(struct gn_vol *vol, uint64_t from, uint64_t to);
/* The bucket is held: is the block as it was last written in the backup? */
bool vol_backup_has(const struct gn_vol *vol, uint64_t block);
/* Reads the blocks of the op that are LOST; syncs: wake ends with the result. */
void vol_backup_restore(struct vol_op *op);
void vol_backup_sync(struct vol_op *op);

/* flush.c */
enum vol_next { VOL_OP_ISSUE, VOL_OP_READ_EDGES, VOL_OP_ZEROS, VOL_OP_FINISH, VOL_OP_NEEDS_COPIES };
/* The bucket is held: the READs of the next channels. */
enum vol_next vol_flush_prepare(struct vol_op *op);
/* The READs of some channels have ended. */
void vol_flush_step_ended(struct vol_op *op);

/* Queues a request of an op for the engine. */
static inline void vol_queue_add(struct gn_vol_queue *queue, struct gn_io_req *io)
{
	queue->out[queue->out_tail++ & queue->out_mask] = io;
}

/* An op of a request has ended. */
void vol_req_part_ended(struct vol_op *op);
int vol_queue_make(struct gn_vol *vol, uint32_t depth, struct gn_vol_queue **out);
void vol_queue_free(struct gn_vol_queue *queue);

/* ---- agent.c, keeper.c, repair.c ---- */

void vol_agent_main(void *donor);
void vol_agent_wake(struct vol_donor *donor);
void vol_keeper_main(void *vol);
/* Any thread: copies of an op failed; wake of its range ends when they are out of the map. */
void vol_keeper_report(struct vol_op *op);
void vol_keeper_report_copy(struct vol_copy *copy);
void vol_keeper_wake(struct gn_vol *vol);
/* Says how many spare slabs the agents should hold. */
void vol_keeper_set_wants(struct gn_vol *vol);
int vol_repair_start(struct gn_vol *vol);

#endif
