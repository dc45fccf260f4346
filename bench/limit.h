/* SPDX-License-Identifier: MIT */
/*
 * What requests and answers could be at best: their bytes there and back between two cores, without
 * any protocol. The benchmarks of calls and of messages run next to it.
 */
#ifndef GN_BENCH_LIMIT_H
#define GN_BENCH_LIMIT_H

#include "pair.h"

struct limit_opts {
	uint32_t request_bytes, result_bytes;
	uint32_t batch;	   /* calls that go together */
	uint32_t inflight; /* calls under way */
	double work_us;	   /* that the other side computes for each */
	uint64_t seed;
};

/* Where the two sides meet; both fill it in for themselves. */
struct limit_place {
	struct shared *shared;
	struct limit_opts opts;
	uint64_t *answered; /* batches, by the side that answers; shared */
	uint8_t *rings;	    /* limit_bytes() of shared memory */
};

size_t limit_bytes(const struct limit_opts *opts);

/* The bytes of a result behind those that are the request's. */
#define RESULT_SEED 0x726573756c74u

struct bare;
int bare_create(struct pair *pair, const struct limit_place *place, struct bare **out);
void bare_destroy(struct bare *b);
/* A load; the other side is ordered to answer. */
int bare_run(void *bare, uint64_t block_ns, struct block *out);
/* The same without an order: the other side is there. */
int bare_block(struct bare *b, uint64_t block_ns, struct block *out);
int bare_check(const struct bare *b);
/* The other side, until the order is not mine any more. */
int bare_answer(const struct limit_place *place, uint64_t mine);

#endif
