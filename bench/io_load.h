/* SPDX-License-Identifier: MIT */
/* The control block of the load of the I/O engine, and what its client and its server share. */
#ifndef GN_BENCH_IO_LOAD_H
#define GN_BENCH_IO_LOAD_H

#include "io.h"

struct io_run {
	struct load_run load;
	struct bench_io_opts opts;
	struct gn_remote remote; /* the lent memory; set before the server listens */
};

/*
 * What the memory has at an offset that is a multiple of the block size: first the word below, then
 * io_fill()'s bytes, which are the same in all blocks. A WRITE stores the same.
 */
static inline uint64_t io_first_word(uint64_t offset, uint64_t seed)
{
	return (offset + 1) * 0x9e3779b97f4a7c15u ^ seed;
}

static inline void io_fill(uint8_t *block, uint32_t bytes, uint64_t offset, uint64_t seed)
{
	const uint64_t word = io_first_word(offset, seed);

	pattern_fill(block, bytes, seed);
	memcpy(block, &word, sizeof(word));
}

/* Fills a whole region. */
void io_fill_region(uint8_t *region, const struct bench_io_opts *opts);

/* ---- the server (io_server.c) ---- */

int io_serve(struct load_proc *proc, uint32_t number);

#endif
