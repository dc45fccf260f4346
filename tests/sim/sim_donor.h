/* SPDX-License-Identifier: MIT */
/* A donor and its clients under faults: what the files of this test share. */
#ifndef GN_TESTS_SIM_DONOR_H
#define GN_TESTS_SIM_DONOR_H

#include "cluster_plan.h"
#include "gannet/donor.h"
#include "seeds.h"

#define CLIENTS_MAX 3u
#define SLAB	    (64u << 10)
#define BLOCK	    512u
#define LINES	    (BLOCK / 64u)
#define BLOCKS	    8u /* of a slab that are used, a page each */
#define ADDR	    "sim:n0:9"

struct plan {
	struct cluster_plan cluster;
	bool heals;
	unsigned n_clients, steps, depth, channels;
	unsigned blocks;		 /* of each slab that are used */
	bool intrudes;			 /* earlier users of sessions come back */
	uint32_t slabs;			 /* of the donor */
	uint32_t stop_us;		 /* when the first donor ends; 0: with the run */
	uint64_t lease_us, take_back_us; /* the donor's */
};

struct sums {
	uint64_t writes, reads, failed, grants, releases, refused, lost, resumed, asked, taken,
		leaving, shared, reopened, revoked, intruded, repeated, restarts, ended;
};

struct world {
	struct seeds run;
	struct plan plan;
	uint32_t version; /* of all blocks: it only grows */
	uint32_t stop_us; /* when the donor that serves now ends */
	struct sums sums;
};

/* The arg of clients is a struct seeds_client. */
gn_node_main client_main;

/* The words of a line: all zero, or client, slab, block, line and version in each. */
static inline uint64_t line_word(unsigned client, uint64_t slab, unsigned block, unsigned line,
				 uint32_t version)
{
	return version ? (uint64_t)version << 32 | (slab & 0xffff) << 16 | (client + 1) << 12 |
				 block << 8 | line :
			 0;
}

#endif
