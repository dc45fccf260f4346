/* SPDX-License-Identifier: MIT */
/*
 * gannet/io.h - reads and writes of remote memory by many threads (RDMAbox).
 *
 * An engine takes requests of any number of threads and decides how they reach the device. Requests
 * that queue up are merged into fewer work requests (where they are exactly adjacent in remote
 * memory) and chained into fewer doorbells; a request that comes alone is posted at once. The
 * engine limits the bytes in flight, and reconnects broken connections and repeats their requests.
 *
 *     gn_io_create()          an engine on a fabric
 *     gn_io_target_open()     a donor, or another process that lends memory, over some channels
 *     gn_io_region_add()      a range of its memory
 *     gn_io_queue_create()    where the completions of one thread arrive
 *     gn_io_submit()          … then gn_io_poll() or gn_io_wait()
 *
 * Threads. A queue belongs to one thread: while it has requests under way, only the thread that
 * submitted them may submit, poll and wait (-EPERM). An idle queue may pass to another thread, if a
 * lock or a join orders the two. Any thread may use an engine, target, region or mem, and may
 * destroy it when no other thread uses it and no request refers to it. A request refers to its
 * region and mems until a poll of its queue has returned it or called its done. There is no thread
 * in the background, unless a queue's fd needs one: threads that submit, poll and wait make
 * progress for all. A forked child cannot use inherited objects (-EPERM).
 *
 * Order. Requests that are under way at the same time have no order, even if they overlap. A READ
 * that is submitted after a WRITE of the same bytes has ended returns the new bytes.
 *
 * Results. Every request that was submitted ends exactly once, in a poll of its queue. Until then
 * its buffers belong to the engine. Past its deadline, or after gn_io_cancel(), a request that is
 * still queued ends at once. One that was posted ends when it has completed, or when nothing of it
 * can land any more. After a failed WRITE each aligned 64-byte line of the range is old or new.
 */
#ifndef GANNET_IO_H
#define GANNET_IO_H

#include <gannet/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_io;	     /* an engine */
struct gn_io_target; /* a process whose memory is accessed, and the connections to it */
struct gn_io_region; /* a range of a target's memory */
struct gn_io_mem;    /* memory of the caller that is registered once, for many requests */
struct gn_io_queue;  /* the requests of one thread that have ended */

enum gn_io_op { GN_IO_READ, GN_IO_WRITE, GN_IO_OPS };

/* ---- engine ---- */

/* How queued requests are posted. */
enum gn_io_batching {
	GN_IO_HYBRID,	/* merge adjacent requests, chain the rest: one doorbell */
	GN_IO_SINGLE,	/* one work request and one doorbell each */
	GN_IO_DOORBELL, /* chain, do not merge */
	GN_IO_MERGE,	/* merge, do not chain */
	GN_IO_BATCHINGS
};

/* What happens to buffers that were not registered with gn_io_mem_register(). */
enum gn_io_mr {
	/*
	 * Copy short ones, register long ones: measured by gn_io_create(). If registering fails,
	 * copy all from then on.
	 */
	GN_IO_MR_AUTO,
	GN_IO_MR_PRE,  /* copy through buffers that are registered already */
	GN_IO_MR_DYN,  /* register for each request; copy requests of several buffers */
	GN_IO_MRS
};

/* How a thread that waits looks for completions. */
enum gn_io_polling {
	GN_IO_ADAPTIVE,	    /* poll; after max_retry empty polls in a row sleep until an event */
	GN_IO_BUSY,	    /* poll; sleep only while a request waits for a connection */
	GN_IO_EVENT,	    /* sleep; one completion per event */
	GN_IO_EVENT_BATCH,  /* sleep; up to poll_batch completions per event */
	GN_IO_NAIVE_HYBRID, /* poll until there is nothing, then sleep */
	GN_IO_SHARED_CQ,    /* busy, with one completion queue for all channels */
	GN_IO_POLLINGS
};

/*
 * Decides whether bytes of an operation may be posted while in_flight bytes of it are. Called by
 * the thread that posts; must not block or call the engine. A request that is refused stays in the
 * merge queue and is offered again when others have completed. While nothing is in flight the next
 * request is posted without a question.
 */
typedef bool gn_io_admit_fn(void *arg, enum gn_io_op op, uint64_t bytes, uint64_t in_flight);

#define GN_IO_WINDOW_NONE UINT64_MAX
#define GN_IO_WINDOW_AUTO (UINT64_MAX - 1)

struct gn_io_opts {
	size_t size; /* sizeof(struct gn_io_opts) */
	enum gn_io_batching batching;
	enum gn_io_mr mr;
	enum gn_io_polling polling;
	/*
	 * Bytes in flight of READs and of WRITEs: separate limits. 0: 7,000,000, RDMAbox's window.
	 * GN_IO_WINDOW_AUTO: the smallest window within 5 % of the best throughput.
	 */
	uint64_t read_window, write_window;
	gn_io_admit_fn *admit; /* decides instead of the windows; NULL: the windows do */
	void *admit_arg;
	uint32_t channels;	/* qps per target: 1 to 16; 0: 4 */
	uint32_t depth;		/* work requests in flight per channel; 0: 128 */
	uint32_t merge_bytes;	/* of one work request at most; 0: 1 MiB */
	uint32_t max_retry;	/* adaptive: empty polls in a row; 0: 120 */
	uint32_t poll_batch;	/* event-batch: completions per event, at most 32; 0: 16 */
	uint32_t staging_bytes; /* registered buffers for GN_IO_MR_PRE; 0: 16 MiB */
	/*
	 * A target that could not be reached for this long is lost: its requests end with -ESTALE.
	 * One that drops each connection before anything was done with it counts as not reached.
	 * 0: 40 s, which is longer than a donor's lease: after that a donor lets nothing land.
	 */
	uint32_t lost_us;
};

/* opts may be NULL. */
GN_API int gn_io_create(struct gn_fabric *fabric, const struct gn_io_opts *opts,
			struct gn_io **out);
/* -EBUSY while the engine has targets, mems or queues. */
GN_API int gn_io_destroy(struct gn_io *io);

struct gn_io_stats {
	size_t size;					/* sizeof(struct gn_io_stats) */
	uint64_t requests[GN_IO_OPS], bytes[GN_IO_OPS]; /* ended, with any status */
	uint64_t failed;				/* … with another status than 0 */
	uint64_t wrs, doorbells;			/* posted */
	uint64_t merged;     /* requests that share a work request with an earlier one */
	uint64_t waited;     /* times that a channel held requests back: window, send queue */
	uint64_t repeated;   /* requests that were in flight when their connection broke */
	uint64_t reconnects; /* connections made anew */
	uint64_t polls, polls_empty, arms, events, wakeups;
	uint64_t in_flight[GN_IO_OPS], in_flight_max[GN_IO_OPS]; /* bytes */
	uint64_t window[GN_IO_OPS]; /* as it is now: with GN_IO_WINDOW_AUTO it changes */
	uint64_t copy_below;	    /* GN_IO_MR_AUTO: buffers below this size are copied */
	uint64_t targets, mems, queues; /* that exist now */
};

/* Any thread. The numbers may be taken at slightly different times. */
GN_API int gn_io_query(const struct gn_io *io, struct gn_io_stats *out);

/* ---- targets and regions ---- */

#define GN_IO_TOKEN 16u

struct gn_io_target_opts {
	size_t size; /* sizeof(struct gn_io_target_opts) */
	uint8_t token[GN_IO_TOKEN];
	bool share;	      /* the token is one of gn_donor_share(), not of a session */
	uint64_t incarnation; /* of the donor that issued the token; 0: any */
	/*
	 * The first generation of the connections; each further one is higher. A donor refuses a
	 * generation that is not higher than the last: who resumes a session starts above all that
	 * went before, and an earlier user of the session is lost. 0: 1; of a share, above the
	 * last.
	 */
	uint32_t generation;
	uint32_t timeout_us;  /* to connect; 0: 2 s */
};

/* A range of a target's memory, as a donor describes it. */
struct gn_io_range {
	struct gn_remote remote;
	unsigned rights; /* GN_REMOTE_READ | GN_REMOTE_WRITE */
};

/*
 * Connects the engine's channels to a donor's data address. shared (may be NULL) gets the range of
 * a shared token. -EACCES: the donor does not know the token. -ESTALE: the donor is another
 * incarnation. -ECONNREFUSED, -ETIMEDOUT: as gn_connect_wait().
 */
GN_API int gn_io_target_open(struct gn_io *io, const char *addr,
			     const struct gn_io_target_opts *opts, struct gn_io_range *shared,
			     struct gn_io_target **out);
/*
 * Ends the connections. Returns when nothing of this engine can land in the target's memory any
 * more. -EBUSY: there are regions or requests.
 */
GN_API int gn_io_target_close(struct gn_io_target *target);
/* 0: connected, or connecting again. -ESTALE: lost; every request ends with -ESTALE. */
GN_API int gn_io_target_state(const struct gn_io_target *target);
/*
 * For how long a channel has had no connection; 0: all have one, as far as is known: what happens
 * to a connection is noticed by threads with requests on it, and by gn_io_target_check(). Any
 * thread.
 */
GN_API uint64_t gn_io_target_down_us(const struct gn_io_target *target);
/* Looks for connections that broke, and connects again if that is due. Does not wait. */
GN_API int gn_io_target_check(struct gn_io_target *target);
/*
 * Gives the target up: it is lost, and its requests end with -ESTALE. WRITEs that were posted may
 * still land in its memory. Any thread.
 */
GN_API int gn_io_target_abandon(struct gn_io_target *target);

GN_API int gn_io_region_add(struct gn_io_target *target, const struct gn_io_range *range,
			    struct gn_io_region **out);
/* -EBUSY while requests refer to it. */
GN_API int gn_io_region_remove(struct gn_io_region *region);
/* The channel of requests at this offset. A READ sees WRITEs that ended before on its channel. */
GN_API unsigned gn_io_region_channel(const struct gn_io_region *region, uint64_t offset);

/* ---- memory ---- */

/* Registers the caller's memory, which stays mapped until gn_io_mem_deregister(). */
GN_API int gn_io_mem_register(struct gn_io *io, void *addr, size_t length, struct gn_io_mem **out);
/* -EBUSY while requests refer to it. */
GN_API int gn_io_mem_deregister(struct gn_io_mem *mem);

/* ---- requests ---- */

#define GN_IO_BYTES_MAX (1u << 20) /* of one request */
#define GN_IO_SGE_MAX	32u	   /* of one request, if the device has as many */

struct gn_io_sge {
	void *addr;
	uint32_t len_bytes;
	struct gn_io_mem *mem; /* that contains the buffer; NULL: not registered */
};

struct gn_io_req {
	/* Set by the caller, unchanged until the request has ended. */
	enum gn_io_op op;
	uint32_t n_sge; /* at least 1 */
	struct gn_io_region *region;
	uint64_t offset; /* from the region's start */
	const struct gn_io_sge *sge;
	uint64_t deadline_ns;		     /* 0: GN_FOREVER */
	/*
	 * Called by the owner's poll; NULL: listed there. It may submit, poll and wait, but not
	 * destroy the queue. gn_io_run() does not call it.
	 */
	void (*done)(struct gn_io_req *req);
	void *user;			     /* for the caller */
	/*
	 * Result. 0; -ETIMEDOUT: past the deadline; -ECANCELED; -EACCES: the donor took the range
	 * back or never granted this access; -EFAULT: a buffer cannot be accessed; -ESTALE: the
	 * target is lost.
	 */
	int status;

	uint64_t opaque[24]; /* private; zeroed before the first submit */
};

/* depth: requests that may be under way at the same time, at most 65,536. */
GN_API int gn_io_queue_create(struct gn_io *io, uint32_t depth, struct gn_io_queue **out);
/* -EBUSY while requests are under way or have ended and were not polled, and in a done. */
GN_API int gn_io_queue_destroy(struct gn_io_queue *queue);
/*
 * A source for gn_wait(), and the fd of other event loops (gn_source_fd()). The first call starts
 * the engine's service thread, which then looks for completions in the way of opts.polling. The
 * source does not tell of requests that a call of the owner ended: poll until gn_io_poll() returns
 * 0, then sleep.
 */
GN_API int gn_io_queue_source(struct gn_io_queue *queue, struct gn_source **out);

/*
 * Submits requests in the order of the list and returns how many: fewer than n when the next one is
 * wrong or cannot be taken now. That number is 0 only for n = 0; otherwise an error of the first
 * request: -EAGAIN: the queue has depth requests under way, or the staging buffers are in use: poll
 * first; -EBUSY: it is under way; -ESTALE: the target is lost; -EFAULT, -ENOMEM, -ENOSPC: a buffer
 * cannot be registered; -EINVAL, -EMSGSIZE, -ERANGE, -EACCES, -EPERM: see gn_error(). Never waits
 * and never calls done. Buffers that are copied must be accessible, as for memcpy().
 */
GN_API int gn_io_submit(struct gn_io_queue *queue, struct gn_io_req *const *reqs, unsigned n);
/*
 * Makes progress, and takes up to n requests that have ended: those without done are listed in reqs
 * (which may be NULL if all have done). Returns the number of requests that ended in this call.
 */
GN_API int gn_io_poll(struct gn_io_queue *queue, struct gn_io_req **reqs, unsigned n);
/* As gn_io_poll(), and waits for the first: -ETIMEDOUT; -EINTR; -EAGAIN: nothing is under way. */
GN_API int gn_io_wait(struct gn_io_queue *queue, struct gn_io_req **reqs, unsigned n,
		      uint64_t deadline_ns);
/*
 * Asks for an early end with -ECANCELED. The request ends as always: in a poll of its queue, with
 * another status if it was done already. Any thread, if the owner does not poll req away meanwhile.
 */
GN_API int gn_io_cancel(struct gn_io_req *req);
/*
 * Submits one request, waits for it, and returns its status, or an error of gn_io_submit(). Does
 * not call done. Others that end meanwhile stay in the queue.
 */
GN_API int gn_io_run(struct gn_io_queue *queue, struct gn_io_req *req);
/*
 * For work of which another thread knows the end: adds a request that is under way until a call of
 * gn_io_end(), which any thread may make. Only its done and user are used. -EAGAIN, -EBUSY: as
 * gn_io_submit().
 */
GN_API int gn_io_expect(struct gn_io_queue *queue, struct gn_io_req *req);
GN_API int gn_io_end(struct gn_io_req *req, int status);

#ifdef __cplusplus
}
#endif

#endif
