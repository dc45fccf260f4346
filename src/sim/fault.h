/* SPDX-License-Identifier: MIT */
/*
 * Faults: what goes wrong in a run, at random from its seed or on schedule. Here is the list of
 * what is to happen and the count of what did; the places where it happens ask.
 */
#ifndef GN_SIM_FAULT_H
#define GN_SIM_FAULT_H

#include <stdbool.h>
#include <stdint.h>

struct gn_sim;

enum sim_fault {
	/* of one datagram that a node sends */
	SIM_UD_LOSS,
	SIM_UD_DUP,
	SIM_UD_REORDER,
	SIM_UD_DELAY,
	/* of one request of a connected qp */
	SIM_QP_ERROR,	     /* its qp fails instead */
	SIM_RNR,	     /* its target says that no receive was posted */
	SIM_LATE_COMPLETION, /* at the initiator */
	SIM_LATE_VISIBILITY, /* a WRITE is seen at its target long after it completed */
	SIM_LINES,	     /* … line by line, in any order (without GN_CAP_INORDER_WRITE) */
	SIM_TORN_READ,	     /* a READ is sampled over a time (without GN_CAP_READ_HEAD_FIRST) */
	/* of a node */
	SIM_CRASH,
	SIM_PAUSE,
	SIM_SLOW_NODE,
	SIM_SLOW_LINK,
	SIM_PARTITION,
	SIM_DRIFT,
	/* of one call on a node */
	SIM_ALLOC,
	SIM_REGISTER,
	SIM_FAULTS
};

/*
 * Whether this chance is taken: by the schedule, or by a draw; counts it if so. A kind that no list
 * names costs one load and draws nothing.
 */
bool sim_fault(struct gn_sim *sim, enum sim_fault kind, unsigned node);

/* A delay such as faults have: mostly short, sometimes long (1 us to 1 ms). */
uint64_t sim_fault_delay_ps(struct gn_sim *sim);

/* What from sends does not reach to. */
bool sim_fault_cut(const struct gn_sim *sim, unsigned from, unsigned to);

/* Factors in 1/256, 256 for a healthy one: how much longer work, or bytes on the link, take. */
uint32_t sim_fault_cpu_factor(const struct gn_sim *sim, unsigned node);
uint32_t sim_fault_link_factor(const struct gn_sim *sim, unsigned node);

#endif
