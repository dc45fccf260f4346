/* SPDX-License-Identifier: MIT */
/*
 * Between the files of the layer msg: who asks whom, and the programs against gannet/msg.h. Every
 * machine has one process; some of its threads ask, some answer. Phases and counting are those of
 * load.h.
 */
#ifndef GN_LAB_MSG_LOAD_H
#define GN_LAB_MSG_LOAD_H

#include <gannet/msg.h>

#include "lab.h"
#include "trial.h"

enum msg_topology { MSG_MANY_TO_ONE, MSG_ONE_TO_MANY, MSG_MANY_TO_MANY };

struct msg_load {
	bool paper; /* S003's way, or the library's own */
	enum msg_topology topology;
	enum gn_msg_protocol protocol;
	unsigned nodes;	       /* as S003 counts them: P, Q or N */
	unsigned threads;      /* S: that ask, of each machine that asks */
	unsigned resp_threads; /* that answer, of each machine that does */
	unsigned pending;      /* R */
	uint32_t key, value;   /* L, V: bytes */
};

struct msg_run {
	struct load_run load;
	const struct msg_load *opts;
	/* Of all sides, when they are through. */
	uint64_t requests, wrs, doorbells, cqes, repeats;
	unsigned askers_gone;
	uint8_t *key; /* that everyone asks for */
};

/* A machine's process. */
struct msg_site {
	struct msg_run *run;
	unsigned number; /* of its node */
	unsigned askers, answerers;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx; /* S003 has one to a process; else NULL */
};

/* Machines there are; those that answer come first, but for 1:M. */
unsigned msg_machines(const struct msg_load *load);
/* Requesting threads of all machines. */
unsigned msg_askers(const struct msg_load *load);
/* Connections that a requesting thread has, and that an answering one has at most. */
unsigned msg_conns_of_asker(const struct msg_load *load);
unsigned msg_conns_of_answerer(const struct msg_load *load);

/* The end of a connection. */
struct msg_place {
	unsigned node, thread; /* that answers */
	unsigned number;       /* of its connections */
};

/* Where connection i of a requesting thread of a node goes. */
struct msg_place msg_place_of(const struct msg_load *load, unsigned node, unsigned thread,
			      unsigned i);

/* env->arg: the struct msg_site. */
gn_node_main msg_program;

#endif
