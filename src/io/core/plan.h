/* SPDX-License-Identifier: MIT */
/*
 * The merge plan (RDMAbox, Algorithm 2): pieces of requests in, work requests out. Pieces that are
 * exactly adjacent in one remote region become one work request. Freestanding: no allocation, lock,
 * float or libc, because the kernel module compiles this file, too.
 */
#ifndef GN_IO_CORE_PLAN_H
#define GN_IO_CORE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IO_PLAN_WRS   64u /* work requests of one plan */
#define IO_PLAN_WORDS 4u  /* of each filter: four bits for each work request */

/* A part of a request that lies in one stripe, and so on one channel. */
struct io_piece {
	struct io_piece *next; /* in a queue; in a work request the next in address order */
	uint64_t start;	       /* remote address */
	uint32_t key;
	uint32_t len_bytes;
	uint32_t n_sge;
	uint32_t skip; /* bytes of the request before this piece */
};

/* A work request to be posted. */
struct io_planned {
	struct io_piece *first, *last;
	uint64_t start;
	uint32_t key;
	uint32_t len_bytes;
	uint32_t n_sge;
};

struct io_plan_limits {
	uint32_t wrs;	/* at most IO_PLAN_WRS */
	uint32_t sges;	/* of one work request; a piece alone may have as many */
	uint32_t bytes; /* of one work request; a piece alone may have more */
	bool merge;
};

struct io_plan {
	uint32_t n;
	struct io_planned wr[IO_PLAN_WRS];
	/*
	 * Bloom filters: does a work request end, or begin, at an address? Most pieces continue
	 * nothing, and a few bits say so. Cleared before the second piece.
	 */
	uint64_t ends[IO_PLAN_WORDS], starts[IO_PLAN_WORDS];
};

static inline void io_plan_init(struct io_plan *plan)
{
	plan->n = 0;
}

/* Adds a piece. False: it needs a further work request, and the plan is full. */
bool io_plan_add(struct io_plan *plan, struct io_piece *piece, const struct io_plan_limits *limits);

/*
 * The channel of an address: consecutive stripes are on different channels, and one stripe on one
 * channel whatever thread accesses it, because only one qp orders a READ behind a WRITE.
 */
#define IO_STRIPE_SHIFT 20u
#define IO_STRIPE_BYTES (1u << IO_STRIPE_SHIFT)

static inline uint32_t io_channel_of(uint64_t address, uint32_t n_channels)
{
	return (uint32_t)(address >> IO_STRIPE_SHIFT) % n_channels;
}

/* Bytes from address to the end of its stripe. */
static inline uint32_t io_stripe_left(uint64_t address)
{
	return IO_STRIPE_BYTES - (uint32_t)(address & (IO_STRIPE_BYTES - 1));
}

#endif
