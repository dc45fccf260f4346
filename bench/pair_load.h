/* SPDX-License-Identifier: MIT */
/* The client of the load of single operations, which the run needs for its limits. */
#ifndef GN_BENCH_PAIR_LOAD_H
#define GN_BENCH_PAIR_LOAD_H

#include "load.h"

struct pair_client {
	struct load_client base;
	struct pair *pair, own; /* processes have the parent's */
	struct side side;
	struct one_sided *one_sided; /* one of these, or none */
	struct messages *messages;
};

extern const struct load_kind load_pair;

#endif
