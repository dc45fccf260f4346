/* SPDX-License-Identifier: MIT */
/*
 * Remote memory under faults: what the files of this test share. The world is the test's own memory,
 * which no simulated process has in its heap: what was written is noted there, whoever crashes.
 */
#ifndef GN_TESTS_SIM_IO_H
#define GN_TESTS_SIM_IO_H

#include "cluster_plan.h"
#include "gannet/io.h"
#include "io/core/attach.h"
#include "seeds.h"

#define CLIENTS_MAX   3u
#define THREADS_MAX   3u
#define BLOCK	      512u
#define LINES	      (BLOCK / 64u)
#define GROUP	      8u   /* blocks in a row that belong to one thread */
#define BLOCKS	      192u /* of a client */
#define CLIENT_STRIDE (2u << 20)
/* A client's blocks lie on both sides of the border of two stripes. */
#define CLIENT_START ((1u << 20) - BLOCKS / 2 * BLOCK)
#define MEMORY	     (CLIENTS_MAX * CLIENT_STRIDE)
#define MAYBE_MAX    24u
#define ADDR	     "sim:n0:9"

struct plan {
	struct cluster_plan cluster;
	bool heals, intrudes, rounds;
	unsigned n_clients, n_threads, depth, steps;
	unsigned groups;		    /* of blocks, of each thread */
	unsigned deadlines, cancels, reads; /* of 100 requests */
	uint32_t stop_us;
	struct gn_io_opts opts;
};

/*
 * What a block may hold: the last version that was written and, line by line, versions whose WRITE
 * failed or has not ended.
 */
struct block {
	uint32_t written;
	uint32_t maybe[MAYBE_MAX];
	unsigned n_maybe;
};

struct sums {
	uint64_t reads, writes, merged, waited, repeated, reconnects, timeouts, cancelled, lost,
		uncertain, restarts, slept, healed;
};

struct world {
	struct seeds run;
	struct plan plan;
	struct block blocks[CLIENTS_MAX][BLOCKS];
	uint32_t version; /* of all blocks: it only grows */
	uint64_t incarnation, seen[CLIENTS_MAX];
	uint32_t generation[CLIENTS_MAX]; /* where the next connections begin */
	unsigned lives;
	struct gn_remote remote; /* of the lent memory, the same for all clients */
	uint32_t keys[CLIENTS_MAX];
	struct sums sums;
};

/* The arg of clients is a struct seeds_client. */
gn_node_main client_main, lender_main;

/* The words of a line: all zero, or client, block, line and version in each. */
static inline uint64_t line_word(unsigned client, unsigned block, unsigned line, uint32_t version)
{
	return version ? (uint64_t)version << 32 | (client + 1) << 24 | block << 8 | line : 0;
}

#endif
