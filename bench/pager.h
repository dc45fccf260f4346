/* SPDX-License-Identifier: MIT */
/*
 * The pager benchmark, as the gannet command sees it: one thread touches pages of a pager whose
 * volume is on one donor. It runs next to its limit: a page fault that a bare handler answers by
 * UFFDIO_COPY from local memory, on the same core.
 */
#ifndef GN_BENCH_PAGER_H
#define GN_BENCH_PAGER_H

#include <gannet/pager.h>

#include "bench.h"

enum pager_pattern { PAGER_RANDOM, PAGER_SEQUENTIAL, PAGER_ZIPF, PAGER_SINGLE, PAGER_PATTERNS };
extern const char *const bench_pager_patterns[PAGER_PATTERNS + 1];

#define BENCH_PAGER_SIZE_MAX (1ull << 40)

struct bench_pager_opts {
	enum pager_pattern pattern;
	uint64_t bytes;	    /* that are touched */
	uint32_t local_pct; /* of them that may be local */
	uint32_t write_pct; /* of touches */
	uint32_t prefetch;  /* as struct gn_pager_opts */
	bool write_faults, stay;
	double seconds;
	uint64_t seed;
	int cpu; /* of the touching thread; -1: any */
};

struct bench_pager_result {
	double mops; /* touches */
	/* Medians over blocks of time; a block has all of what eviction does. */
	double fault_us, bare_us, fault_ratio;
	double seconds;
	uint64_t wrong;		     /* pages with other bytes than expected */
	struct gn_pager_stats stats; /* of what was measured */
	unsigned blocks, blocks_dropped;
};

/* 0, -EINTR, or what went wrong, which has been logged. */
int bench_pager_run(const struct bench_pager_opts *opts, bench_progress_fn *progress,
		    struct bench_pager_result *out);

/* ---- inside ---- */

struct bare_pager;
/* The calling thread will touch; the handler runs on cpu; -1: anywhere. */
int bare_pager_create(uint64_t pages, int cpu, uint64_t seed, struct bare_pager **out);
void bare_pager_destroy(struct bare_pager *b);
struct block;
int bare_pager_run(void *bare, uint64_t block_ns, struct block *out); /* a load of blocks.c */

#endif
