/* SPDX-License-Identifier: MIT */
/*
 * Calls under faults: what the files of this test share. The world is the test's own memory, which
 * no simulated process has in its heap: what was called, executed and ended is written down there,
 * whoever crashes.
 */
#ifndef GN_TESTS_SIM_RPC_H
#define GN_TESTS_SIM_RPC_H

#include "gannet/rpc.h"
#include "gannet/sim.h"

#define CLIENTS_MAX 4u
#define BYTES_MAX   6000u
#define ROOM_MAX    (2 * BYTES_MAX)
#define KINDS_MAX   32u
#define ADDR	    "sim:n0:7"

enum method { NOW = 1, LATER, SLOW, OWN, TOO_MUCH, NOBODY, METHODS };
#define OWN_STATUS (GN_RPC_FAILED + 34u)

struct plan_client {
	struct gn_rpc_client_opts opts;
	unsigned window, calls;
	uint32_t max_timeout_us;
	unsigned cancels, closes, sleeps; /* of 1000 steps */
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
	uint32_t defer_us; /* the most that an answer is put off */
	uint32_t stop_us;  /* when the server ends for the first time; 0: with the run */
};

/* A call as the test knows it. */
struct call {
	unsigned life; /* of its client */
	unsigned method;
	uint32_t result_len, result_room, request_len;
	uint32_t executed, ended;
	uint64_t deadline_ns; /* by the client's clock; GN_FOREVER: none */
	uint64_t answered_ns; /* of the simulation; 0: not */
	unsigned status;
};

/* A client process from its beginning to its end, or its node's. */
struct life {
	bool over; /* it returned: everything must have ended */
};

struct world {
	uint64_t seed;
	bool verbose;
	struct plan plan;
	struct gn_sim *sim;
	struct call *call;
	uint32_t n_calls, calls_room;
	struct life *life;
	unsigned n_lives;
	unsigned clients_over;
	uint64_t active_ns; /* when a client last did something */
	char failure[512];
	char log[8192];
	/* over all seeds */
	uint64_t statuses[GN_RPC_FAILED + 1], faults[KINDS_MAX], executed, torn, twice_read;
};

/* rpc.c */
__attribute__((format(printf, 2, 3))) void world_fail(struct world *w, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) void world_say(const struct world *w, const char *fmt, ...);

/* rpc_plan.c */
void plan_draw(struct plan *plan, uint64_t seed);
/* Small and regular, for one fault on schedule. */
void plan_small(struct plan *plan, const char *faults);

/* rpc_client.c, rpc_server.c; arg: struct client_arg, struct world */
struct client_arg {
	struct world *w;
	unsigned index;
};
gn_node_main client_main, server_main;

/* The bytes of a request or its result: a function of the call and of where they are. */
static inline uint8_t pattern(uint64_t call, bool result, uint32_t i)
{
	uint64_t x = (call * 2 + result) * 0x9e3779b97f4a7c15u + i / 8 * 0xd6e8feb86659fd93u;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9u;
	return (uint8_t)(x >> (i % 8 * 8));
}

static inline bool pattern_is(const uint8_t *bytes, uint32_t len, uint64_t call, bool result,
			      uint32_t *bad)
{
	for (uint32_t i = 0; i < len; i++)
		if (bytes[i] != pattern(call, result, i)) {
			*bad = i;
			return false;
		}
	return true;
}

static inline void pattern_fill(uint8_t *bytes, uint32_t len, uint64_t call, bool result)
{
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = pattern(call, result, i);
}

/* What stands before a request's pattern. */
struct ask {
	uint64_t call;
	uint32_t len; /* of what follows */
	uint32_t reserved;
};

#endif
