/* SPDX-License-Identifier: MIT */
/*
 * Volumes under faults: what the files of this test share. The world is the test's own memory, which
 * no simulated process has in its heap. Nodes: the donors, the clients with a volume each, and the
 * conductor, which causes faults one after the other and ends them all.
 */
#ifndef GN_TESTS_SIM_VOL_H
#define GN_TESTS_SIM_VOL_H

#include "cluster_plan.h"
#include "gannet/vol.h"
#include "seeds.h"

#define DONORS_MAX     5u
#define CLIENTS_MAX    3u
#define THREADS_MAX    3u
#define DEPTH_MAX      8u
#define OPS_MAX	       (THREADS_MAX * DEPTH_MAX)
#define SECTOR	       512u /* the model's unit */
#define BLOCK_SECTORS  (GN_VOL_BLOCK / SECTOR)
#define BYTES_MAX      (8u << 20) /* of a volume */
#define SECTORS_MAX    (BYTES_MAX / SECTOR)
#define BLOCKS_MAX     (BYTES_MAX / GN_VOL_BLOCK)
#define VERSIONS_MAX   8192u /* WRITEs of a client */
#define CANDIDATES_MAX 32u
#define HOT_MAX	       12u
#define LEASE_LONG_US  30000000u
#define LOST_SHORT_US  300000u /* a lost_us that a fault can exceed */

struct plan {
	struct cluster_plan cluster;
	/*
	 * One failure of a donor at a time, and each copy exists again before the next one: nothing
	 * may be lost.
	 */
	bool careful;
	unsigned n_donors, n_clients, n_threads, depth, steps;
	uint32_t pace_us;		    /* between two steps, at most */
	uint32_t events;		    /* of the conductor */
	uint32_t event_us;		    /* between two, at most */
	uint32_t heal_us;		    /* all faults end by then */
	bool leaves, short_memory, crashes; /* kinds of events */
	uint64_t slab, bytes;
	uint32_t donor_slabs;
	unsigned reads, zeroes, flushes; /* of 100 requests */
	bool verify, backup, visible;
	unsigned authority; /* 0: none, 1: is slow, 2: refuses, too */
	unsigned copies;
	uint64_t headroom;
	uint32_t detect_us, lost_us, repair_share;
	uint64_t lease_us, take_back_us;
	unsigned n_hot;
	uint32_t hot[HOT_MAX]; /* sectors around which requests are */
	struct gn_io_opts io;
};

/* ---- the model of a volume ---- */

/* A WRITE, ZERO or DISCARD. Ticks count the begins and ends of requests. */
struct version {
	uint32_t start, end; /* end 0: under way */
	bool zero;
};

/* A version that a sector may hold; gone: not for requests that began after this tick. */
struct candidate {
	uint32_t version, gone;
};

struct sector {
	unsigned n;
	bool dirty; /* written since it was last checked after a flush */
	struct candidate c[CANDIDATES_MAX];
};

/* Whole writes of a block: only these heal it. */
struct block {
	uint32_t lost;	  /* tick at which it was lost; 0: not known */
	uint32_t covered; /* tick at which the last one ended */
	unsigned covering;
};

struct model {
	uint32_t tick, n_versions, n_sectors;
	struct version versions[VERSIONS_MAX];
	struct sector sectors[SECTORS_MAX];
	struct block blocks[BLOCKS_MAX];
	uint32_t reading[OPS_MAX]; /* tick at which the READ of this slot began */
};

struct op {
	struct gn_vol_req req;
	struct gn_io_sge sge[4];
	unsigned first, n; /* sectors */
	uint32_t version, start;
	uint64_t start_ns;
	unsigned events;     /* whose outage was over at the start */
	unsigned slot, room; /* room: sectors that bytes has space for */
	bool busy;
	uint8_t *bytes;
};

struct world;

void model_reset(struct model *m, uint64_t bytes);
/* False: the model has no space for this request. */
bool model_begin(struct model *m, struct op *op);
void model_cancel(struct model *m, struct op *op);
void model_fill(unsigned client, struct op *op);
/* Checks the result of the request. */
void model_end(struct world *w, unsigned client, struct op *op, int status);
/* Bytes of a sector in some memory are what they may be. */
bool model_sector_ok(const struct model *m, unsigned client, unsigned sector, const uint8_t *at);

/* ---- the world ---- */

struct donor_world {
	struct gn_donor_server *server; /* if its node has not crashed since: */
	uint32_t crashes;
	uint32_t missing; /* slabs that its system is short of */
	bool leave;
	bool faulted; /* it had an event */
	unsigned ends;
};

struct client_world {
	struct gn_vol *vol; /* as above */
	uint32_t crashes;
	unsigned lives;
	bool over, ready;  /* ready: waits for the end of all faults */
	unsigned deciding; /* calls of the authority under way */
	uint8_t backup[BYTES_MAX];
	struct model model;
};

struct sums {
	uint64_t ops[GN_VOL_OPS], failed, no_space, lost_blocks, healed_blocks, copies_lost,
		copies_made, copies_moved, serialised, crc_errors, refused, flush_checks,
		copy_checks, events[8], taken, left, ended, created, backup_reads, longest_us;
};

struct world {
	struct seeds run;
	struct plan plan;
	struct donor_world donors[DONORS_MAX];
	struct client_world clients[CLIENTS_MAX];
	unsigned n_events; /* begun so far */
	uint64_t event_ns; /* simulated: the last one began */
	uint64_t lossy;	   /* events that can have destroyed the memory of a donor */
	bool calm;	   /* no faults any more */
	uint64_t active_ns;
	struct sums sums;
};

gn_node_main client_main, donor_main, conductor_main;

bool all_over(const struct seeds *run);

/* ---- client: threads ---- */

struct client {
	struct world *w;
	unsigned index;
	struct gn_fabric *fabric;
	struct gn_vol *vol;
	struct gn_io_mem *mem;
	uint8_t *bytes; /* all buffers */
	struct gn_thread *threads[THREADS_MAX];
};

struct thread {
	struct client *c;
	unsigned index, steps;
	bool blocking;
	struct gn_vol_queue *queue;
	struct op op[DEPTH_MAX];
};

void thread_main(void *arg);
/* A request that the thread waits for; its status. */
int thread_run(struct thread *t, struct op *op, enum gn_vol_op kind, unsigned first, unsigned n);

/* ---- truth: what is in the memory of the donors, without their help ---- */

/* How often a node has crashed or its process was killed. */
uint32_t node_crashes(const struct world *w, unsigned node);
/* The client's volume, NULL if the client is gone. */
struct gn_vol *truth_vol(const struct world *w, unsigned client);
/* Every extent has all copies, all of them exist, and all donors are connected. */
bool truth_whole(const struct world *w, unsigned client);
/* A copy is in the map and does not exist: its extent, or -1. */
int64_t truth_promised(const struct world *w, unsigned client);
/*
 * After a WRITE, a WRITE with FUA or a FLUSH: the memory of all copies has what it must have, and
 * after the latter two so has the backup.
 */
void truth_check(struct world *w, unsigned client, const struct op *op);
/*
 * All copies of something may have been lost: a donor crashed or had an event, a lease may have
 * ended, or a donor may have been given up that has the last copy.
 */
bool truth_may_lose(const struct world *w);
/* A request ended with -EIO: notes the blocks that are lost. There must be one, and a reason. */
void truth_eio(struct world *w, unsigned client, const struct op *op);
/* All copies of all blocks that have data are equal. */
void truth_compare(struct world *w, unsigned client);
/* Changes a bit of a block in the copy that READs use: the block begins at *sector. */
bool truth_spoil(struct world *w, unsigned client, unsigned *sector);
/*
 * What the volume says about copies agrees with what the donors have. Returns whether all copies
 * exist.
 */
bool truth_check_stats(struct world *w, unsigned client, const struct gn_vol_stats *stats);

#endif
