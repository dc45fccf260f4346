/* SPDX-License-Identifier: MIT */
/*
 * The parts of a pager's core.
 *
 *     core.c       creation, faults, READs, the loop
 *     evict.c      chunks: unmapping, write-back, freeing
 *     prefetch.c   what else is mapped at a fault
 *     command.c    map, unmap, advice
 *     ranges.c     ranges of pages that no mapping has
 *
 * Only the handler calls any of this; other threads read the counters.
 */
#ifndef GN_PAGER_PAGES_H
#define GN_PAGER_PAGES_H

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "gannet/exec.h"
#include "pager/core.h"

#define PAGE_BYTES   GN_PAGER_PAGE
#define READS_SINGLE 64u /* buffers of one page */
#define READS_RUN    8u	 /* … of a chunk */
#define BATCHES	     8u	 /* of write-back, a chunk each */
#define BATCHES_MORE 2u	 /* … while those do not end */
#define BATCH_WRITES (PAGER_CHUNK / 2)
#define QUEUE_DEPTH  (READS_SINGLE + READS_RUN + (BATCHES + BATCHES_MORE) * BATCH_WRITES + 1)
#define WAITERS	     1024u /* faults that wait for a free frame; more are asked to try again */

/* ---- pages ---- */

enum page_state {
	PAGE_NONE, /* of no mapping */
	PAGE_FRESH,
	PAGE_REMOTE,
	PAGE_READING,
	PAGE_CACHED,
	PAGE_MAPPED,
	PAGE_LOST,
	PAGE_STATE = 7, /* mask */
};

enum page_flag {
	PAGE_DIRTY = 1 << 3,   /* the file has other bytes than the volume */
	PAGE_WRITING = 1 << 4, /* a WRITE is under way: the page stays in the file */
	PAGE_PINNED = 1 << 5,
	/*
	 * The volume has the page, or will have it when its WRITE has ended. A page that is neither
	 * STORED nor DIRTY is all zeros: the volume is not asked, whatever it has there.
	 */
	PAGE_STORED = 1 << 6,
	PAGE_WANTED = 1 << 7, /* READING: a thread waits for it */
	PAGE_SAVED = 1 << 7,  /* CACHED: it was written to the volume since it was unmapped */
};

/* Pages that are unmapped and freed together. Circular lists, by index. */
struct pager_chunk {
	uint32_t next, prev;
	uint32_t freed_at; /* core->freed when pages of it were freed last; 0: never */
	uint8_t list;	   /* enum pager_list */
};

enum pager_list { CHUNK_IDLE, CHUNK_ACTIVE, CHUNK_SCANNED, CHUNK_INACTIVE, CHUNK_LISTS };

/* ---- I/O ---- */

/* A READ of pages, from the submit to the copy. */
struct pager_read {
	struct gn_vol_req req;
	struct gn_io_sge sge;
	struct pager_core *core;
	struct pager_read *next; /* of the free ones */
	uint8_t *bytes;
	uint64_t page;
	uint64_t start_ns; /* of the fault that caused it */
	unsigned n, room; /* n: 0 if it is free */
	bool scan; /* see pager_pages_scanned() */
	/* A READ of several pages failed: they are read one by one. */
	bool single;
	unsigned at;
	uint64_t failed; /* bits of pages */
	int error;	 /* of the last one */
};

struct pager_write {
	struct gn_vol_req req;
	struct gn_io_sge sge;
	struct pager_batch *batch;
	uint64_t page;
	unsigned n;
};

/* The changed pages of a chunk. */
struct pager_batch {
	struct pager_core *core;
	struct pager_batch *next;
	uint8_t *bytes;
	uint64_t start_ns;
	unsigned pending, n;
	struct pager_write write[BATCH_WRITES];
};

struct pager_waiter {
	uint64_t page, thread, start_ns;
	bool writes;
};

/* ---- ranges.c ---- */

struct pager_range {
	uint64_t start, n;
};

/* Ranges of PAGE_NONE, by address, without neighbours that touch. */
struct pager_ranges {
	struct pager_range *free;
	uint32_t n, max;
	bool partial; /* there are more, which did not fit */
};

/* ---- prefetch.c ---- */

#define STREAMS	       16u
#define HISTORIES_BITS 4u
#define HISTORY	       32u
#define RECENT_BITS    6u
#define FILLS	       16u

/* The last faults of a thread, or of threads with the same hash. */
struct pager_history {
	uint64_t last;
	unsigned at, n;
	unsigned no_pair; /* the last so many differences are no two neighbours that are the same */
	int64_t delta[HISTORY];
	uint64_t recent[1u << RECENT_BITS]; /* a set of pages, by their hash */
};

struct pager_stream {
	int64_t delta;
	uint64_t used_at;
	uint64_t length; /* pages that it has brought */
	uint32_t window;
	uint32_t pages; /* that the last window read ahead */
};

/* Fresh pages [start, end) that were filled one after the other. */
struct pager_fill {
	uint64_t start, end, used_at;
	uint32_t n; /* pages of the last call */
	bool continued;
};

struct pager_prefetch {
	uint64_t expected[STREAMS]; /* the page behind the last window */
	struct pager_stream stream[STREAMS];
	struct pager_history history[1u << HISTORIES_BITS];
	struct pager_fill fill[FILLS];
	uint64_t clock; /* of the entries' last uses */
	uint32_t first_window, first_fill;
};

/* ---- core ---- */

/* Pages that the program said it will need. */
#define NEEDS 4u
struct pager_need {
	uint64_t page, end;
};

struct pager_core {
	struct gn_vol *vol;
	struct gn_vol_queue *queue;
	const struct pager_ops *ops;
	void *arg;
	void (*faults)(void *arg); /* pager_core_opts */
	void *faults_arg;
	uint64_t pages, local;
	uint64_t low, high, cached_target; /* of free frames; of CACHED pages */
	uint8_t *state;			   /* of each page */
	struct pager_chunk *chunks;	   /* and the heads of the lists */
	uint32_t n_chunks;
	uint32_t listed[CHUNK_LISTS];
	uint32_t freed;	  /* pages so far, beginning with 1 */
	uint32_t scanned; /* chunks that scans brought so far */
	bool scanning;	  /* the fault that is being answered belongs to a scan */
	bool reclaiming;
	uint32_t requests; /* under way */

	uint8_t *buffers;
	struct gn_io_mem *mem;
	struct pager_read *reads, *free_single, *free_run;
	struct gn_vol_req *prepared[READS_SINGLE + READS_RUN];
	unsigned n_prepared;
	struct pager_batch *batches, *free_batches, *more_batches;

	uint64_t fault_ns; /* when the fault that is being answered arrived */
	bool fault_writes; /* it is one of a write */
	/* A ring. */
	struct pager_waiter *waiters;
	uint32_t waiters_head, n_waiters;
	/* WRITEs fail, the last one with this error. */
	int write_error;
	uint64_t write_failed_ns, write_retry_ns;

	/*
	 * Pages of a command, which waits for their requests since held_ns. Meanwhile faults of
	 * other pages are answered; those of these pages begin nothing.
	 */
	uint64_t held, n_held, held_ns;

	/* When the handler waited last; when to look again for faults that wait for long. */
	uint64_t waited_ns, stall_ns;
	uint64_t lost_log_ns, lost_unlogged; /* when to log again; pages since the last line */

	struct pager_ranges ranges;
	uint32_t window; /* of prefetch; 0: none */
	struct pager_prefetch prefetch;
	struct pager_need needs[NEEDS];
	unsigned n_needs;
	uint64_t *was_pinned; /* bits: pages of a range that were pinned before */
	struct gn_pager_stats stats; /* counters; resident, cached and pinned are exact here */
};

static inline enum page_state page_state(const struct pager_core *core, uint64_t page)
{
	return (enum page_state)(core->state[page] & PAGE_STATE);
}

static inline void page_set(struct pager_core *core, uint64_t page, enum page_state state)
{
	core->state[page] = (uint8_t)((core->state[page] & ~(unsigned)PAGE_STATE) | state);
}

static inline bool page_is_held(const struct pager_core *core, uint64_t page)
{
	return page - core->held < core->n_held;
}

static inline uint64_t frames_free(const struct pager_core *core)
{
	/* page_revive() may have taken one more. */
	return core->local > core->stats.resident ? core->local - core->stats.resident : 0;
}

/* Counters that also go down: the handler is their only writer. */
static inline void gauge_add(uint64_t *gauge, int64_t n)
{
	__atomic_store_n(gauge, *gauge + (uint64_t)n, __ATOMIC_RELAXED);
}

/* Pages of the file are in the page table now. */
void pager_pages_mapped(struct pager_core *core, uint64_t page, unsigned n);
/* The same for pages that a scan brought. */
void pager_pages_scanned(struct pager_core *core, uint64_t page, unsigned n);
/* Reads n adjacent REMOTE pages; false: there is no buffer, or not enough free frames. */
bool pager_read(struct pager_core *core, uint64_t page, unsigned n);
/* Submits what pager_read() has prepared. */
void pager_read_submit(struct pager_core *core);
/* Maps n adjacent CACHED pages that are all DIRTY, or none is. 0, or -errno: some stay CACHED. */
int pager_map_cached(struct pager_core *core, uint64_t page, unsigned n);
/* Answers a fault, or begins to. False: frames or buffers are missing. */
bool pager_fault_start(struct pager_core *core, uint64_t page, uint64_t thread);
/* For commands that take long: answers faults of other threads. */
void pager_serve(struct pager_core *core);
/* For commands: waits a moment for frames or buffers. */
void pager_pause(struct pager_core *core);
void pager_submit(struct pager_core *core, struct gn_vol_req *const *reqs, unsigned n);
/* Takes completions. */
void pager_poll(struct pager_core *core);
/* A touch of the page raises SIGBUS from now on. */
void pager_lose(struct pager_core *core, uint64_t page, const char *why, int rc);

/* ---- evict.c ---- */

void chunk_move(struct pager_core *core, uint32_t chunk, enum pager_list list);
/* Puts a chunk on the list that it belongs to after pages of it were freed or unmapped. */
void chunk_sort(struct pager_core *core, uint32_t chunk);
void pager_batches_init(struct pager_core *core, uint8_t *bytes);
/* The next one of its list. */
void chunk_make_oldest(struct pager_core *core, uint32_t chunk);
/* Unmaps those pages of a chunk and starts their write-back. Returns how many were unmapped. */
unsigned pager_deactivate(struct pager_core *core, uint32_t chunk, uint64_t mask);
/* WRITEs have failed for so long that no frame will be free. */
bool pager_is_out_of_memory(const struct pager_core *core);
/* Frees what the watermarks ask for, a chunk at most. True: there is more to do at once. */
bool pager_evict(struct pager_core *core);

/* ---- prefetch.c ---- */

void pager_prefetch_init(struct pager_core *core);
/* Pages of zeros around a FRESH page; 0 or -errno. */
int pager_zero_fill(struct pager_core *core, uint64_t page);
/*
 * Whether the donors of a page are connected. A READ that nobody waits for would have its buffer
 * until they are again, or are given up.
 */
bool pager_may_read_ahead(const struct pager_core *core, uint64_t page);
/*
 * Maps CACHED pages, and prepares READs of REMOTE ones: n pages from page on, delta apart, as long
 * as there are buffers, and more than spare free frames. The first one may be one that a thread
 * waits for, the others are read ahead. *end: where it stopped. Returns how many
 * are read.
 */
unsigned pager_bring(struct pager_core *core, uint64_t page, int64_t delta, unsigned n,
		     uint64_t spare, uint64_t *end);
/*
 * Takes note of a fault of a REMOTE or CACHED page. If it belongs to a trend, brings a window of
 * pages, this one first.
 */
void pager_fault_window(struct pager_core *core, uint64_t page, uint64_t thread);

/* ---- command.c ---- */

/* Waits until no request is under way for the page. */
void page_settle(struct pager_core *core, uint64_t page);
/* Goes on reading what the program said it will need. */
void pager_needs_go_on(struct pager_core *core);

/* ---- ranges.c ---- */

int ranges_init(struct pager_ranges *ranges, uint64_t pages);
void ranges_fini(struct pager_ranges *ranges);
/* -ENOMEM: there is no range of n pages. */
int ranges_take(struct pager_ranges *ranges, uint64_t n, uint64_t *start);
void ranges_give(struct pager_ranges *ranges, uint64_t start, uint64_t n);
/* Finds the ranges in the states of the pages. */
void ranges_rebuild(struct pager_ranges *ranges, const uint8_t *state, uint64_t pages);

#endif
