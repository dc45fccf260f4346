/* SPDX-License-Identifier: MIT */
/*
 * A key-value store under faults: shared by the files of this test. The world is the test's own
 * memory, outside of the heap of any simulated process: requests and responses are recorded there,
 * whoever crashes.
 */
#ifndef GN_TESTS_SIM_KV_H
#define GN_TESTS_SIM_KV_H

#include <string.h>

#include "cluster_plan.h"
#include "gannet/kv.h"
#include "gannet/sim.h"
#include "history.h"
#include "seeds.h"

#define CLIENTS_MAX 4u
#define THREADS_MAX 3u
#define KEYS_MAX    2048u
#define BYTES_MAX   40000u /* of a value that is written */
#define ROOM_MAX    65536u /* buffer for a value that is read */
#define ADDR	    "sim:n0:7"

struct plan_client {
	struct gn_kv_client_opts opts;
	unsigned threads; /* each with its own client */
	unsigned window;  /* operations submitted without waiting */
	unsigned batch;	  /* … of one gn_kv_do(), at most */
	unsigned ops;
	uint32_t max_timeout_us; /* of operations with a short deadline */
	unsigned hurries;	 /* of 1000 operations, which have one */
	unsigned closes, sleeps, clears, looks, singles, asyncs; /* of 1000 steps */
	unsigned writes, removes, numbers, joins; /* of 1000 operations; the rest reads */
};

struct plan {
	const char *kind;
	struct cluster_plan cluster;
	bool strict;			/* nothing in it can break a connection, or be late */
	bool ample;			/* memory: nothing is evicted */
	bool plain;			/* only GET and SET */
	bool naps;			/* clients sleep for seconds, and items expire meanwhile */
	unsigned ttls;			/* of 1000 stores: with a time to live */
	unsigned hot, cold, counters;	/* keys; the first hot ones are numbers */
	uint32_t small, large;		/* bytes of a value: mostly up to, at most */
	uint32_t least;			/* … and at least */
	unsigned heat;			/* of 1000 operations: on hot keys */
	unsigned scribblers;		/* hostile clients, 0 or 1 */
	unsigned n_clients;
	struct plan_client client[CLIENTS_MAX];
	struct gn_kv_server_opts server;
	uint32_t stop_us;  /* when the server first ends; 0: with the run */
	uint32_t drain_us; /* and how long it drains before; 0: not at all */
};

/* What happened over all seeds. */
struct sums {
	uint64_t statuses[GN_KV_STATUSES], verbs[GN_KV_VERBS];
	uint64_t ops, keys, steps, undecided;
	uint64_t reconnects, restarts, bypassed, torn, fell_back, messages;
	uint64_t evicted_bucket, evicted_log, moved, splits, kicks, expired;
	uint64_t made_room; /* evictions in kv_lru.c */
	uint64_t large, scribbled;
};

struct world {
	struct seeds run;
	bool points, bypass; /* a small run; with bypass */
	struct plan plan;
	struct history *history;
	uint32_t batches;   /* of operations, so far */
	uint32_t epoch;	    /* of the server */
	bool begun;	    /* a server has started at least once */
	uint64_t alive_ns;  /* when it was last seen */
	uint64_t lives[CLIENTS_MAX];
	struct sums sums;
};

/* kv_value.c: keys and values that identify their writers. */
uint32_t key_make(char *to, uint32_t key);
/* len is 0, 8, or at least 16: see value_len(). */
void value_make(uint8_t *to, uint32_t len, uint32_t key, uint32_t op);
uint32_t value_len(uint32_t wanted);
/* The pieces of a value that was read, and their number; -1: not all belong to this key. */
#define PIECES 128
int value_parse(const uint8_t *from, uint32_t len, uint32_t key, struct piece *out);

/* kv_client.c, kv_scribbler.c, kv_server.c; arg: struct client_arg, or struct world */
gn_node_main client_main, scribbler_main, server_main;

#endif
