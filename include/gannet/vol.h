/* SPDX-License-Identifier: MIT */
/*
 * gannet/vol.h - volumes: a range of bytes in the memory of several donors.
 *
 *     gn_vol_create()         a volume of some size, with copies on different donors
 *     gn_vol_read(), …        block the caller; any thread
 *     gn_vol_queue_create()   … or asynchronously: gn_vol_submit(), gn_vol_poll(), gn_vol_wait()
 *     gn_vol_query()          copies, lost blocks, progress of repair
 *
 * A volume is divided into extents of one slab. Each extent has opts.copies copies on different
 * donors. A WRITE ends when all copies have it; a READ reads the first copy. When a donor is lost,
 * requests go on with the other copies, and a thread of the volume makes new copies in the
 * background. A volume ends with its process: the donors then take their slabs back.
 *
 * Blocks. The volume keeps a state for each block of 4 KiB. A block that was never written, or was
 * discarded, is a hole and reads as zeros. A block whose last copy was lost reads as -EIO until it
 * is wholly written, zeroed or discarded; a write of a part of it fails with -EIO.
 *
 * Order. Requests that overlap and are under way at the same time are executed one after the other,
 * in some order. A request that crosses a multiple of 1 MiB is executed in two parts. A request
 * is under way until a poll of its queue has ended it, so a thread that waits for one request must
 * poll the queues of all its requests that overlap; a FLUSH of a volume with a backup overlaps all.
 * Requests have no deadline: each one ends when it is done, or when the donors that it needs are
 * lost.
 *
 * Threads. A queue belongs to one thread: only that thread submits to it, polls it and waits for
 * it. Any thread may call the other functions; only gn_vol_destroy() wants that no other thread
 * uses the volume.
 */
#ifndef GANNET_VOL_H
#define GANNET_VOL_H

#include <gannet/donor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_VOL_BLOCK	  4096u
#define GN_VOL_COPIES_MAX 4u
#define GN_VOL_DONORS_MAX 15u
#define GN_VOL_BYTES_MAX  (1u << 20) /* of one READ or WRITE of gn_vol_submit() */
#define GN_VOL_SGE_MAX	  16u
#define GN_VOL_SIZE_MAX	  (1ull << 44)
#define GN_VOL_ADDR	  128u

struct gn_vol;

/* One copy of one extent, as an authority sees it. */
struct gn_vol_copy {
	uint64_t extent; /* its number: offset in the volume / extent_bytes */
	const char *donor;
	uint64_t slab;
};

/*
 * Decides about the copies of a volume, where somebody else than this process owns the map. Called
 * by two threads of the volume, perhaps at the same time; may wait. lose_copy: this copy missed a
 * WRITE, cannot be accessed any more, or was moved. The WRITE ends when lose_copy has returned 0;
 * if it fails it is called again, until gn_vol_destroy(). add_copy: this copy is complete and
 * receives all WRITEs; if it fails the copy is given up. It is also called for the copies of an
 * extent that had none (not by gn_vol_create()), for a copy that is the only one left before it is
 * complete, and for one that was to be moved and stays, because the others failed meanwhile: if
 * that fails it is called again, and WRITEs end when it has returned 0.
 */
struct gn_vol_authority {
	int (*lose_copy)(void *arg, const struct gn_vol_copy *copy);
	int (*add_copy)(void *arg, const struct gn_vol_copy *copy);
	void *arg;
};

/*
 * A slower store for blocks whose copies are all lost, for example a file. Called by the volume's
 * threads, may wait; 0 or -errno. Offsets and lengths are multiples of GN_VOL_BLOCK.
 */
struct gn_vol_backup {
	int (*read)(void *arg, void *buf, size_t len_bytes, uint64_t offset);
	int (*write)(void *arg, const void *buf, size_t len_bytes, uint64_t offset);
	int (*sync)(void *arg);
	void *arg;
	/*
	 * WRITEs are copied to the backup after they have ended. At most lag_bytes have ended and
	 * are not in the backup yet: further WRITEs wait. 0: 64 MiB.
	 */
	uint64_t lag_bytes;
};

struct gn_vol_opts {
	size_t size;		   /* sizeof(struct gn_vol_opts) */
	uint64_t bytes;		   /* a multiple of GN_VOL_BLOCK */
	const char *const *donors; /* control addresses */
	uint32_t n_donors;
	uint32_t copies; /* on different donors: 1 to GN_VOL_COPIES_MAX; 0: 2 */
	/*
	 * Keep a CRC-32C of each block in this process, and check each READ. A copy that is wrong
	 * is lost and made anew from another one. Buffers of WRITEs must not change until they end.
	 */
	bool verify;
	/*
	 * Memory that is granted ahead of need, in bytes. 0: all: gn_vol_create() returns when the
	 * donors have granted the whole volume. Otherwise an extent gets its slabs with its first
	 * WRITE, and the volume tries to hold so much memory in reserve for that; a WRITE that
	 * finds none fails with -ENOSPC.
	 */
	uint64_t headroom;
	uint32_t repair_share; /* percent of the time that repair copies: 1 to 100; 0: 25 */
	/*
	 * With two or more copies: a donor that could not be reached for this long is given up, if
	 * every extent has another copy on a donor that can be reached. 0: 60 ms. A donor with the
	 * last copy of an extent is given up after lost_us.
	 */
	uint32_t detect_us;
	uint32_t lost_us;      /* 0: 40 s, as gn_io_opts */
	const char *owner;     /* the tag of its slabs: gn_donor_list(); NULL: "vol" */
	/*
	 * Of its engine; NULL: defaults. lost_us is ignored; channels of each donor, 0: four
	 * divided by the number of donors.
	 */
	const struct gn_io_opts *io;
	const struct gn_vol_authority *authority; /* NULL: this process decides */
	const struct gn_vol_backup *backup;	  /* NULL: none */
	uint32_t timeout_us; /* for gn_vol_create() to connect and get its memory; 0: 60 s */
	/* Called by gn_vol_create() while the donors grant memory: bytes of all copies. */
	void (*progress)(void *arg, uint64_t granted, uint64_t wanted);
	void *progress_arg;
};

/*
 * -ENOSPC: the donors do not have that much memory, on that many different donors. -ENOTUNIQ: a
 * donor is listed twice. -EINVAL. -ECONNREFUSED, -ETIMEDOUT: a donor cannot be reached. gn_error()
 * names it.
 */
GN_API int gn_vol_create(struct gn_fabric *fabric, const struct gn_vol_opts *opts,
			 struct gn_vol **out);
/*
 * Writes the backup, and returns the slabs. No call of the volume is under way. -EBUSY: there are
 * queues, or mems of gn_vol_engine(). vol may be NULL.
 */
GN_API int gn_vol_destroy(struct gn_vol *vol);
GN_API uint64_t gn_vol_bytes(const struct gn_vol *vol);
/* The engine, for gn_io_mem_register() and gn_io_query(). */
GN_API struct gn_io *gn_vol_engine(struct gn_vol *vol);

/* ---- blocking ---- */

/*
 * 0, -EINVAL: not inside the volume; -EIO: a block is lost; -ENOSPC: no memory was granted ahead.
 */
GN_API int gn_vol_read(struct gn_vol *vol, void *buf, size_t len_bytes, uint64_t offset);
enum gn_vol_flag {
	GN_VOL_FUA = 1 << 0, /* of a WRITE, ZERO or DISCARD: as if a FLUSH followed */
};
GN_API int gn_vol_write(struct gn_vol *vol, const void *buf, size_t len_bytes, uint64_t offset,
			unsigned flags);
/* Afterwards the range reads as zeros; blocks that are wholly inside become holes. */
GN_API int gn_vol_zero(struct gn_vol *vol, uint64_t len_bytes, uint64_t offset, unsigned flags);
/* The same for whole blocks; parts of blocks at the ends are zeroed. */
GN_API int gn_vol_discard(struct gn_vol *vol, uint64_t len_bytes, uint64_t offset, unsigned flags);
/*
 * Returns when all WRITEs that ended before are on all copies, visible to other connections, and in
 * the backup, which is synced.
 */
GN_API int gn_vol_flush(struct gn_vol *vol);

enum gn_vol_extent_kind { GN_VOL_HOLE, GN_VOL_DATA, GN_VOL_LOST };
/* Calls fn for each run of blocks of one kind, in order; fn returns 0 to go on. */
GN_API int gn_vol_extents(struct gn_vol *vol, uint64_t offset, uint64_t len_bytes,
			  int (*fn)(void *arg, uint64_t offset, uint64_t len_bytes,
				    enum gn_vol_extent_kind kind),
			  void *arg);

/* ---- asynchronous ---- */

struct gn_vol_queue;

enum gn_vol_op { GN_VOL_READ, GN_VOL_WRITE, GN_VOL_ZERO, GN_VOL_DISCARD, GN_VOL_FLUSH, GN_VOL_OPS };

struct gn_vol_req {
	/* Set by the caller, unchanged until the request has ended. */
	enum gn_vol_op op;
	unsigned flags; /* enum gn_vol_flag */
	uint64_t offset;
	uint64_t len_bytes;	     /* ZERO, DISCARD: any; READ, WRITE: set by gn_vol_submit() */
	const struct gn_io_sge *sge; /* READ and WRITE: 1 to GN_VOL_SGE_MAX */
	uint32_t n_sge;
	int status;			      /* result: as of the blocking calls */
	void (*done)(struct gn_vol_req *req); /* called by the owner's poll; NULL: listed there */
	void *user;			      /* for the caller */

	uint64_t opaque[6]; /* private; zeroed before the first submit */
};

/* depth: requests that may be under way at the same time: 1 to 4096. */
GN_API int gn_vol_queue_create(struct gn_vol *vol, uint32_t depth, struct gn_vol_queue **out);
/* -EBUSY while requests are under way or were not polled. */
GN_API int gn_vol_queue_destroy(struct gn_vol_queue *queue);
/* As gn_io_submit(), gn_io_poll() and gn_io_wait(). */
GN_API int gn_vol_submit(struct gn_vol_queue *queue, struct gn_vol_req *const *reqs, unsigned n);
GN_API int gn_vol_poll(struct gn_vol_queue *queue, struct gn_vol_req **reqs, unsigned n);
GN_API int gn_vol_wait(struct gn_vol_queue *queue, struct gn_vol_req **reqs, unsigned n,
		       uint64_t deadline_ns);
/* Ready when gn_vol_poll() should be called: as gn_io_queue_source(). */
GN_API int gn_vol_queue_source(struct gn_vol_queue *queue, struct gn_source **out);

/* ---- state ---- */

enum gn_vol_donor_state { GN_VOL_DONOR_UP, GN_VOL_DONOR_DOWN, GN_VOL_DONOR_LEAVING };

struct gn_vol_donor_stats {
	char addr[GN_VOL_ADDR];
	enum gn_vol_donor_state state;
	uint64_t copies;     /* extents with a copy here, complete or being made */
	uint64_t spare;	     /* slabs that are granted and unused */
	uint64_t free_bytes; /* that the donor had to lend when it was last asked */
	uint64_t lost;	     /* times that it was given up */
};

struct gn_vol_stats {
	size_t size; /* sizeof(struct gn_vol_stats) */
	uint64_t bytes, extent_bytes;
	uint32_t copies; /* wanted */
	uint32_t n_donors;
	uint64_t extents;			      /* of the volume */
	uint64_t with_copies[GN_VOL_COPIES_MAX + 1]; /* extents that had slabs, by live copies */
	uint64_t unused;			      /* extents without slabs: never written */
	uint64_t blocks_written, blocks_lost;
	/*
	 * Repair and moves that are under way or wait: bytes of blocks to copy, and copied of
	 * these. Holes are not copied.
	 */
	uint64_t repair_bytes, repair_done;
	uint64_t requests[GN_VOL_OPS], failed;
	uint64_t copies_lost, copies_made, copies_moved;
	uint64_t repaired_bytes; /* copied since the start */
	uint64_t crc_errors;
	uint64_t serialised;   /* requests that waited for one that overlaps */
	uint64_t backup_lag;   /* bytes that are not in the backup yet */
	int backup_error;      /* of its last call, or 0 */
	uint64_t headroom;     /* bytes granted and unused */
	struct gn_vol_donor_stats donors[GN_VOL_DONORS_MAX];
};

GN_API int gn_vol_query(struct gn_vol *vol, struct gn_vol_stats *out);
struct gn_vol_session {
	char addr[GN_VOL_ADDR]; /* of the donor */
	struct gn_donor_id id;
};

/*
 * The sessions with the donors as they are now, and how many; out has GN_VOL_DONORS_MAX. For a
 * process that watches this one: when this one has ended, however it did, the other takes each
 * session over (gn_donor_opts) and closes it, and the donors need not wait for the lease.
 */
GN_API int gn_vol_sessions(struct gn_vol *vol, struct gn_vol_session *out);
/* Waits until every extent has all its copies: 0 or -ETIMEDOUT. */
GN_API int gn_vol_wait_repaired(struct gn_vol *vol, uint64_t deadline_ns);

/* ---- monitor ---- */

struct gn_vol_monitor;
struct gn_rpc_client;

#define GN_VOL_MONITOR_CLIENTS 64u /* connections at a time */

/*
 * Answers other processes that ask for the state of vol: `gannet vol status`, or
 * gn_vol_monitor_query(). Listens at addr of a fabric, in a thread of its own that sleeps
 * otherwise. listener_flags: as gn_listener_create(). Destroy it before the volume.
 */
GN_API int gn_vol_monitor_create(struct gn_vol *vol, struct gn_fabric *fabric, const char *addr,
				 unsigned listener_flags, struct gn_vol_monitor **out);
/* monitor may be NULL. */
GN_API void gn_vol_monitor_destroy(struct gn_vol_monitor *monitor);
/*
 * Asks the monitor that client is connected to: gn_rpc_client_open(). -EPROTO: there is no monitor
 * of this version; -ETIMEDOUT; -ECONNRESET: the connection broke.
 */
GN_API int gn_vol_monitor_query(struct gn_rpc_client *client, struct gn_vol_stats *out,
				uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
