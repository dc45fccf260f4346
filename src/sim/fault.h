/* SPDX-License-Identifier: MIT */
/*
 * Faults of a run, random from its seed or scheduled: the list of scheduled faults, and the counts
 * of those that happened.
 *
 * There are two sorts. A fault of an operation is queried where that operation is executed, by
 * sim_fault(). A fault of a node starts with an event (fault_node.c) and is then part of the node's
 * state, with its end time: its end needs no event. The query is inline (struct gn_sim): a run
 * without faults pays one load.
 */
#ifndef GN_SIM_FAULT_H
#define GN_SIM_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/engine.h"

struct gn_sim;
struct sim_node;

enum sim_fault {
	/* of a datagram that a node sends: */
	SIM_UD_LOSS,
	SIM_UD_DUP,
	SIM_UD_REORDER,
	SIM_UD_DELAY,
	/* of a request of a connected qp: */
	SIM_QP_ERROR,	     /* the qp fails instead */
	SIM_RNR,	     /* the target reports that no receive was posted */
	SIM_ACK_LOSS,	     /* the request takes effect, its ACK is lost, and it is repeated */
	SIM_LATE_COMPLETION, /* at the initiator */
	SIM_LATE_VISIBILITY, /* a WRITE becomes visible long after it completed */
	/* … cache line by cache line, in any order (without GN_CAP_INORDER_WRITE) */
	SIM_LINES,
	SIM_TORN_READ, /* a READ is sampled over a period (without GN_CAP_READ_HEAD_FIRST) */
	/* of a connection that a node accepted: */
	SIM_LATE_ESTABLISHED, /* ESTABLISHED arrives after the client's first messages */
	/* of a node: */
	SIM_CRASH, /* the machine: peers get no notice */
	SIM_KILL,  /* the processes: kernel and card notify the peers */
	SIM_PAUSE,
	SIM_SLOW_NODE,
	SIM_SLOW_LINK,
	SIM_PARTITION,
	SIM_DRIFT,
	/* of a call on a node: */
	SIM_ALLOC,
	SIM_REGISTER,
	SIM_PREEMPT, /* between two loads of memory that peers may write */
	/* of a node, as above: */
	SIM_LOW_MEMORY, /* exec_memory_available() is 0 */
	SIM_FAULTS
};

static inline bool sim_fault_is_of_node(enum sim_fault kind)
{
	return (kind >= SIM_CRASH && kind <= SIM_DRIFT) || kind == SIM_LOW_MEMORY;
}

/* Does the fault end the node's processes? */
static inline bool sim_fault_ends(enum sim_fault kind)
{
	return kind == SIM_CRASH || kind == SIM_KILL;
}

#define SIM_ANY_NODE	   UINT32_MAX
#define SIM_FACTOR_ONE	   256u		 /* factors are in units of 1/256 */
#define SIM_RATE_ONE	   1000000000u	 /* rates are in units of 1e-9 */
#define SIM_RATE_PERIOD_PS 1000000000ull /* period of a node's rates: 1 ms */

/* A scheduled fault. */
struct sim_plan {
	struct sim_plan *next;
	struct gn_sim *sim;
	enum sim_fault kind;
	uint32_t node;	  /* or SIM_ANY_NODE */
	uint64_t at_ps;	  /* earliest time */
	uint64_t span_ps; /* 0: no duration given */
	uint64_t skip;	  /* opportunities to skip */
	uint32_t factor;  /* slow-* */
	int32_t ppm;	  /* drift */

	struct sim_event event; /* of a node: the start */
	bool has_event;

	/* partition: bitmaps of nodes; groups: two lists were given */
	bool groups, both_ways;
	uint64_t *from, *to;
	uint64_t until_ps; /* after it has begun */
};

/* Random faults of one kind of nodes: see fault_node.c. */
struct sim_arrivals {
	struct sim_event event;
	struct gn_sim *sim;
	enum sim_fault kind;
	bool has_event, strikes;
	uint64_t chance;
};

struct sim_faults {
	uint32_t named;	       /* bits: configured kinds */
	uint32_t n_idle;       /* queued events that wake no thread: see sim_only_idle() */
	uint64_t cut_until_ps; /* there may be a partition until then */
	uint64_t count[SIM_FAULTS];
	uint32_t rate[SIM_FAULTS];
	struct sim_plan *plans[SIM_FAULTS]; /* scheduled, not over yet */
	struct sim_plan *cuts;		    /* partitions in effect */
	struct sim_arrivals arrivals[SIM_FAULTS];
	uint64_t split_until_ps; /* random partition into two groups: sim_node.side */
	bool split_both_ways;
};

/* ---- interface for the affected operations, besides the inline part in sim/nodes.h ---- */

/* A random delay: mostly short, sometimes long (1 us to 1 ms). */
uint64_t sim_fault_delay_ps(struct gn_sim *sim);
/* … or, one time in SIM_LONG_ONE_IN, beyond common timeouts (1 ms to 4 s). */
uint64_t sim_fault_long_delay_ps(struct gn_sim *sim);
#define SIM_LONG_ONE_IN 16u
/* least_ps to least_ps << doublings, each octave with the same probability. */
uint64_t sim_fault_span_ps(struct gn_sim *sim, uint64_t least_ps, unsigned doublings);
bool sim_fault_taken(struct gn_sim *sim, enum sim_fault kind, unsigned node);
bool sim_fault_is_cut(const struct gn_sim *sim, unsigned from, unsigned to);

/* ---- internal ---- */

/* fault_parse.c: parses all of text, or -EINVAL, logged. */
struct sim_fault_list {
	struct sim_plan *plans;
	uint32_t rated; /* bits: kinds with a new rate */
	uint32_t rate[SIM_FAULTS];
};
int sim_fault_parse(struct gn_sim *sim, const char *text, struct sim_fault_list *out);

/* fault.c */
void sim_faults_fini(struct gn_sim *sim);
void sim_plan_free(struct sim_plan *plan);
/* Counts the fault and adds it to the trace. */
void sim_fault_note(struct gn_sim *sim, enum sim_fault kind, unsigned node);

/* fault_node.c */
int sim_plan_prepare(struct sim_plan *plan); /* the part that can fail */
void sim_plan_arm(struct sim_plan *plan);
int sim_arrivals_prepare(struct gn_sim *sim, enum sim_fault kind);
void sim_arrivals_arm(struct gn_sim *sim, enum sim_fault kind);
void sim_fault_nodes_fini(struct gn_sim *sim);

#endif
