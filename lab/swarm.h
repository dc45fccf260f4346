/* SPDX-License-Identifier: MIT */
/*
 * The swarm: random programs on a simulated cluster, with random faults, checked against a simple
 * model of what memory, messages and completions must be. A seed decides everything, so a run that
 * fails fails again.
 */
#ifndef GN_LAB_SWARM_H
#define GN_LAB_SWARM_H

#include <gannet/fabric.h>
#include <gannet/sim.h>

#define SWARM_FAULTS	  32u  /* kinds of faults there is room for */
#define SWARM_PROFILE_MAX 256u /* bytes of options, with their end */
#define SWARM_TEXT_MAX	  1024u

struct swarm_opts {
	uint64_t seed;
	const char *profile;	 /* NULL: drawn from the seed */
	const char *faults;	 /* as for gn_sim_inject(); NULL: drawn from the seed */
	const char *only_faults; /* names and commas: the only kinds that may be drawn; NULL: all */
	bool verbose;		 /* tell on stderr what happens */
};

struct swarm_result {
	uint64_t hash;
	uint64_t events;
	uint64_t virtual_ns;
	uint64_t ops[GN_OPS]; /* requests posted; RECV: messages that arrived */
	uint64_t datagrams;   /* sent */
	uint64_t connections; /* that came up */
	uint64_t broken;      /* … and saw an error */
	uint64_t restarts;    /* of programs whose node had crashed */
	uint64_t faults[SWARM_FAULTS];
	bool failed;
	char what[768]; /* time, node, what was expected and found */
};

/* 0 when the seed was run, whatever came of it; -EINVAL for options that make no run. */
int swarm_run(const struct swarm_opts *opts, struct swarm_result *out);

/* Whether a list, with commas, names only kinds of faults; else *bad is the first that is none. */
bool swarm_faults_known(const char *list, const char **bad, size_t *bad_len);

#endif
