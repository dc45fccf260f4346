/* SPDX-License-Identifier: MIT */
/*
 * Calls under faults: what the files of this test share. The world is the test's own memory, which
 * no simulated process has in its heap: what was called, executed and ended is written down there,
 * whoever crashes.
 */
#ifndef GN_TESTS_SIM_RPC_H
#define GN_TESTS_SIM_RPC_H

#include <string.h>

#include "gannet/rpc.h"
#include "gannet/sim.h"
#include "pattern.h"
#include "seeds.h"

#define CLIENTS_MAX 4u
#define BYTES_MAX   6000u	/* in a slot */
#define FAR_MAX	    300000u	/* more than that, of what is read */
#define PROMPT_NS   10000000ull /* where nothing goes wrong, everything is noticed by then */
#define ADDR	    "sim:n0:7"

enum method { NOW = 1, LATER, SLOW, LENT, OWN, NOBODY, METHODS, SCRIBBLED };
#define OWN_STATUS (GN_RPC_FAILED + 34u)

struct plan_client {
	struct gn_rpc_client_opts opts;
	unsigned window, calls;
	bool steady; /* it does nothing but call and wait, as fast as it can */
	uint32_t max_timeout_us;
	uint32_t think_us;					    /* the most it does nothing */
	uint32_t far_bytes;					    /* beyond what a slot holds */
	unsigned cancels, closes, reconnects, sleeps, pauses, fars; /* of 1000 steps, or calls */
};

struct plan {
	const char *profile;
	uint64_t caps_off;
	char faults[1024];
	bool breaks, no_memory, stalls; /* what they may do to calls */
	bool strict;			/* nothing in it can make an answered call late */
	unsigned n_clients;
	struct plan_client client[CLIENTS_MAX];
	struct gn_rpc_server_opts server;
	uint32_t defer_us;   /* the most that an answer is put off */
	uint32_t stop_us;    /* when the server ends for the first time; 0: with the run */
	uint32_t drain_us;   /* and how long it drains before; 0: not at all */
	uint32_t prompt_us;  /* how soon what is there is noticed, if it is strict; 0: 10 ms */
	unsigned raw;	     /* clients of our own making, 0 or 1 */
	unsigned scribblers; /* … that write over their requests, 0 or 1 */
	bool groups;	     /* handlers are given calls together */
};

/* A call as the test knows it. */
struct call {
	unsigned life; /* of its client */
	unsigned method;
	uint32_t result_len, result_room, request_len;
	bool far_request, far_result; /* too large for a slot */
	bool forbidden;		      /* it must not be executed */
	uint32_t executed, ended;
	uint64_t deadline_ns; /* by the client's clock; GN_FOREVER: none */
	/* of the simulation; 0: not */
	uint64_t begun_ns, received_ns, answered_ns;
	unsigned status;
};

/* A client process from its beginning to its end, or its node's. */
struct life {
	bool over; /* it returned: everything must have ended */
};

/* What happened over all seeds. */
struct sums {
	uint64_t statuses[GN_RPC_FAILED + 1];
	uint64_t executed, torn, twice_read, large, batched, switches, reconnects, parks, wakes;
	uint64_t grouped, lent, drained, undrained, emsgsize, old, again, scribbled, taken;
};

struct world {
	struct seeds run;
	struct plan plan;
	struct call *call;
	uint32_t n_calls, calls_room;
	struct life *life;
	unsigned n_lives;
	unsigned clients_over;
	bool drained;	    /* the first server was, in time */
	uint64_t active_ns; /* when a client last did something */
	struct sums sums;
};

#define world_fail(w, ...) seeds_fail(&(w)->run, __VA_ARGS__)
#define world_say(w, ...)  seeds_say(&(w)->run, __VA_ARGS__)

/* rpc.c */
/* A new call, or NULL when there are more than were planned; number may be 0 when it is NULL. */
struct call *world_call(struct world *w, unsigned life, uint32_t *number);

/* rpc_plan.c */
void plan_draw(struct plan *plan, uint64_t seed);
/* Small and regular, for one fault on schedule. */
void plan_small(struct plan *plan, const char *faults);
void plan_print(const struct plan *plan);

/* rpc_check.c */
struct check {
	struct world *w;
	const struct gn_rpc_limits *limits;
	uint32_t number;       /* of the call */
	uint32_t max_large;    /* the client's own */
	uint32_t wait_us;      /* that its request may wait for others */
	uint64_t idle_ns;      /* that the client did not look, since the call began */
	bool canceled, broken; /* by the client itself: it, or its connection */
};
/* A call has ended: may it, like this, now? */
void check_ended(const struct check *c, const struct gn_rpc_op *op);

/* rpc_client.c, rpc_raw.c, rpc_scribbler.c, rpc_server.c; arg: struct client_arg, struct world */
struct client_arg {
	struct world *w;
	unsigned index;
};
gn_node_main client_main, raw_main, scribbler_main, server_main;

static inline unsigned own_status(uint64_t call)
{
	return call % 2 ? OWN_STATUS : GN_RPC_DENIED;
}

/* What stands before a request's pattern. */
struct ask {
	uint64_t call;
	uint32_t len; /* of what follows */
	uint32_t reserved;
};

#endif
