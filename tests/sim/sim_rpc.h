/* SPDX-License-Identifier: MIT */
/*
 * Calls under faults: shared by the files of this test. The world is the test's own memory, outside
 * of the heap of any simulated process: calls, executions and completions are recorded there,
 * whoever crashes.
 */
#ifndef GN_TESTS_SIM_RPC_H
#define GN_TESTS_SIM_RPC_H

#include <string.h>

#include "cluster_plan.h"
#include "gannet/rpc.h"
#include "gannet/sim.h"
#include "pattern.h"
#include "seeds.h"

#define CLIENTS_MAX 4u
#define BYTES_MAX   6000u	/* per slot */
#define LARGE_BYTES_MAX	    300000u	/* beyond that: large messages */
#define PROMPT_NS   10000000ull /* without faults everything is noticed by then */
#define ADDR	    "sim:n0:7"

enum method { NOW = 1, LATER, SLOW, LENT, OWN, NOBODY, METHODS, SCRIBBLED };
#define OWN_STATUS (GN_RPC_FAILED + 34u)

struct plan_client {
	struct gn_rpc_client_opts opts;
	unsigned window, calls;
	bool steady; /* it only calls and waits, as fast as it can */
	uint32_t max_timeout_us;
	uint32_t think_us;					    /* longest idle time */
	uint32_t large_bytes;					    /* beyond what a slot holds */
	unsigned cancels, closes, reconnects, sleeps, pauses, fars; /* of 1000 steps, or calls */
};

struct plan {
	struct cluster_plan cluster;
	bool strict;			/* nothing in it can make an answered call late */
	unsigned n_clients;
	struct plan_client client[CLIENTS_MAX];
	struct gn_rpc_server_opts server;
	uint32_t defer_us;   /* longest delay of an answer */
	uint32_t stop_us;    /* when the server first ends; 0: with the run */
	uint32_t drain_us;   /* and how long it drains before; 0: not at all */
	uint32_t prompt_us;  /* how soon results are noticed, if strict; 0: 10 ms */
	unsigned raw;	     /* raw clients, 0 or 1 */
	unsigned scribblers; /* clients that overwrite their requests, 0 or 1 */
	bool groups;	     /* handlers receive groups */
};

/* A call as recorded by the test. */
struct call {
	unsigned life; /* of its client */
	unsigned method;
	uint32_t result_len, result_room, request_len;
	bool large_request, large_result; /* too large for a slot */
	bool forbidden;		      /* it must not be executed */
	uint32_t executed, ended;
	uint64_t deadline_ns; /* by the client's clock; GN_FOREVER: none */
	/* in simulated time; 0: not yet */
	uint64_t begun_ns, received_ns, answered_ns;
	unsigned status;
};

/* A client process from its start to its end, or its node's. */
struct life {
	bool over; /* it returned: everything must have completed */
};

/* What happened over all seeds. */
struct sums {
	uint64_t statuses[GN_RPC_FAILED + 1];
	uint64_t executed, torn, twice_read, large, batched, switches, reconnects, parks, wakes;
	uint64_t grouped, exported, drained, undrained, emsgsize, old, again, scribbled, taken;
};

struct world {
	struct seeds run;
	struct plan plan;
	struct call *call;
	uint32_t n_calls, calls_room;
	struct life *life;
	unsigned n_lives;
	bool drained; /* the first server drained in time */
	struct sums sums;
};

/* rpc.c */
/* A new call, or NULL if there are more than planned; number may be 0 when it is NULL. */
struct call *world_call(struct world *w, unsigned life, uint32_t *number);

/* rpc_check.c */
struct check {
	struct world *w;
	const struct gn_rpc_limits *limits;
	uint32_t number;       /* of the call */
	uint32_t max_large;    /* the client's own */
	uint32_t wait_us;      /* how long its request may wait for others */
	uint64_t idle_ns;      /* how long the client did not poll, since the call began */
	bool canceled, broken; /* by the client itself: the call, or its connection */
};
/* A call has completed: was it allowed to, with this status, now? */
void check_ended(const struct check *c, const struct gn_rpc_op *op);

/* rpc_client.c, rpc_raw.c, rpc_scribbler.c, rpc_server.c; arg: struct client_arg, struct world */
gn_node_main client_main, raw_main, scribbler_main, server_main;

static inline unsigned own_status(uint64_t call)
{
	return call % 2 ? OWN_STATUS : GN_RPC_DENIED;
}

/* Precedes a request's pattern. */
struct request_head {
	uint64_t call;
	uint32_t len; /* of what follows */
	uint32_t reserved;
};

#endif
