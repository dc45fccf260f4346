/* SPDX-License-Identifier: MIT */
/*
 * The core of a pager: which pages are where, what is read, evicted and written back. It touches no
 * page table itself: it calls pager_ops, which are those of userfaultfd (uffd.c) or of a model in
 * the simulator (tests/sim/sim_pager.c). One thread, the handler, makes all calls.
 *
 *            fault: zero                unmap            written back or clean: punch
 *     FRESH ────────────▶ MAPPED ◀───────────────▶ CACHED ─────────────▶ REMOTE (or FRESH: zeros)
 *                           ▲   fault: map                                  │
 *                           └─────────────── copy ◀── READING ◀─────────────┘ fault, prefetch
 *
 * A page is resident if it is MAPPED or CACHED; READING counts too, since its frame is promised.
 * Page p is block p of the volume, page p of the file and of the address range.
 */
#ifndef GN_PAGER_CORE_H
#define GN_PAGER_CORE_H

#include "gannet/pager.h"

#define PAGER_CHUNK 64u /* pages that are unmapped by one call */

/*
 * The page tables of the program, and the file of the pages. Ranges are n pages from page on. 0 or
 * -errno; an error is only one that the handler cannot mend (logged by the callee).
 *
 * copy(), zero() and map() return the number of pages that are in the page table now, from the
 * first one on, or -errno if the first one cannot be. The program may have used the others already.
 */
struct pager_ops {
	/*
	 * Pages of bytes that are not in the file: into the file and the page table, then wakes
	 * threads that wait for them. protect: noticed by written() when the program writes there.
	 */
	int (*copy)(void *arg, uint64_t page, unsigned n, const void *bytes, bool protect);
	/* The same with zeros. These pages count as written. */
	int (*zero)(void *arg, uint64_t page, unsigned n);
	/* Pages of the file into the page table; wakes. Without protect they count as written. */
	int (*map)(void *arg, uint64_t page, unsigned n, bool protect);
	/* Out of the page table. The file keeps them. Any pages may be in the range. */
	int (*unmap)(void *arg, uint64_t page, unsigned n);
	/*
	 * After unmap(): a bit for each of n <= 64 pages: set if the page was written while it was
	 * mapped, or cannot be told (bits of pages that were not mapped mean nothing).
	 */
	int (*written)(void *arg, uint64_t page, unsigned n, uint64_t *bits);
	/* Copies bytes of pages of the file that are not mapped. */
	int (*load)(void *arg, uint64_t page, unsigned n, void *bytes);
	/* Frees pages of the file that are not mapped. Any pages may be missing. */
	int (*punch)(void *arg, uint64_t page, unsigned n);
	/* From now on a touch raises SIGBUS; wakes. */
	int (*poison)(void *arg, uint64_t page);
	/*
	 * A thread waits for a page that was mapped. Another fault has mapped it meanwhile; or the
	 * program has unmapped it by itself (MADV_DONTNEED): then maps it again, and it counts as
	 * written. Wakes.
	 */
	int (*remap)(void *arg, uint64_t page);
	/* Only wakes threads that wait for pages. */
	int (*wake)(void *arg, uint64_t page, unsigned n);
};

struct pager_core;

struct pager_core_opts {
	uint64_t pages;	 /* of the volume */
	uint64_t local;	 /* pages that may be resident */
	uint32_t window; /* of prefetch; 0: none */
	/*
	 * Calls pager_core_fault() for faults that have arrived, and does not wait: a command that
	 * takes long calls it again and again. NULL: there are none meanwhile.
	 */
	void (*faults)(void *arg);
	void *faults_arg;
};

/* Creates a queue of vol, which belongs to the calling thread. */
int pager_core_create(struct gn_vol *vol, const struct pager_core_opts *opts,
		      const struct pager_ops *ops, void *arg, struct pager_core **out);
/* Waits for requests that are under way. */
void pager_core_destroy(struct pager_core *core);

/*
 * A thread waits for page. thread: any number that is the same for faults of one thread. writes:
 * the thread will write to the page.
 */
void pager_core_fault(struct pager_core *core, uint64_t page, uint64_t thread, bool writes);
/*
 * Takes completions, frees and writes back what the watermarks ask for, starts faults that waited
 * for free frames. Returns true if it should be called again at once. Never waits.
 */
bool pager_core_work(struct pager_core *core);
/* Whether requests are under way: then pager_core_work() must be called when they have ended. */
bool pager_core_busy(const struct pager_core *core);
/* Waits for the volume, at most until deadline_ns, then as pager_core_work(). */
bool pager_core_wait(struct pager_core *core, uint64_t deadline_ns);

/*
 * Commands. They may wait for requests of their range, as long as one of the volume takes, and
 * answer faults of other threads meanwhile.
 */
/* A range of free pages becomes FRESH. -ENOMEM. */
int pager_core_map(struct pager_core *core, uint64_t n, uint64_t *page);
/* -EINVAL: a page is not mapped by pager_core_map(). call is for gn_error(). */
int pager_core_check(const struct pager_core *core, uint64_t page, uint64_t n, const char *call);
/* -EINVAL. The pages are unmapped and punched. */
int pager_core_unmap(struct pager_core *core, uint64_t page, uint64_t n);
int pager_core_advise(struct pager_core *core, uint64_t page, uint64_t n,
		      enum gn_pager_advice advice);
/* Any thread. */
void pager_core_query(const struct pager_core *core, struct gn_pager_stats *out);

#endif
