/* SPDX-License-Identifier: MIT */
/*
 * Messages under faults: shared by the files of this test. The world is the test's own memory,
 * outside of the heap of any simulated process: requests, executions and completions are recorded
 * there, whichever process crashes.
 */
#ifndef GN_TESTS_SIM_MSG_H
#define GN_TESTS_SIM_MSG_H

#include "cluster_plan.h"
#include "gannet/msg.h"
#include "pattern.h"
#include "seeds.h"

#define REQUESTERS_MAX 4u
#define CONNS_MAX      3u
#define REQUESTS_MAX   32768u
#define LIVES_MAX      256u
#define BYTES_MAX      6000u
#define UD_BYTES_MAX   1000u
#define DATA_WORDS     4096u
#define ADDR	       "sim:n0:7"

struct plan_requester {
	struct gn_msg_requester_opts opts;
	unsigned conns, window, requests;
	uint32_t think_us;		  /* longest idle time */
	unsigned thinks, flushes, leaves; /* of 1000 steps: it pauses, flushes, disconnects */
};

struct plan {
	struct cluster_plan cluster;
	bool heals; /* faults end before the run does, and none is random */
	unsigned n_requesters;
	struct plan_requester requester[REQUESTERS_MAX];
	struct gn_msg_responder_opts responder;
	uint32_t stop_us;  /* when the responder first ends; 0: with the run */
	uint32_t pause_us; /* longest idle time */
	unsigned pauses;   /* of 1000 steps */
};

/* A request as recorded by the test. */
struct request {
	unsigned life; /* of its requester */
	unsigned conn; /* its connection's number there, and its own there */
	uint32_t number;
	enum gn_msg_protocol protocol;
	uint32_t len, value_len;
	uint64_t offset; /* READ */
	uint64_t least;	 /* version that it may see */
	uint64_t at_ns;	 /* by its node's clock */
	bool refuse;
	uint32_t executed, ended;
};

/* What happened over all seeds. */
struct sums {
	uint64_t statuses[GN_MSG_STATUSES], protocols[GN_MSG_PROTOCOLS], papers;
	uint64_t executed, reads, repeats, strays, looks, reconnects, restarts, refused_conns;
	uint64_t left, healed, torn_words;
};

struct world {
	struct seeds run;
	struct plan plan;
	struct request *requests;
	uint32_t n_requests;
	bool over[LIVES_MAX]; /* a requester returned: its requests must have completed */
	unsigned n_lives;
	uint64_t version; /* of the responder's data; it only grows */
	struct sums sums;
};

/* msg_requester.c, msg_responder.c; arg: struct requester_arg, struct world */
struct requester_arg {
	struct world *w;
	unsigned index;
};
gn_node_main requester_main, responder_main;

/* A word of what READs see: its index, and the version that wrote it. */
static inline uint64_t data_word(uint64_t version, uint32_t index)
{
	return version << 16 | (index & 0xffff);
}

#endif
