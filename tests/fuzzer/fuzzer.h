/* SPDX-License-Identifier: MIT */
/*
 * The fuzzer of the fabric: random programs on a simulated cluster, with random faults, checked
 * against a simple model of memory, messages and completions. The seed decides everything, so a
 * seed that fails fails again.
 */
#ifndef FUZZER_H
#define FUZZER_H

#include <gannet/fabric.h>
#include <gannet/sim.h>

#define FUZZ_FAULTS	 32u  /* kinds of faults, at most */
#define FUZZ_PROFILE_MAX 256u /* bytes, with the terminator */
#define FUZZ_TEXT_MAX	 1024u

struct fuzz_opts {
	uint64_t seed;
	const char *profile;	 /* NULL: drawn from the seed */
	const char *faults;	 /* as gn_sim_inject() takes them; NULL: drawn from the seed */
	const char *only_faults; /* comma-separated kinds to draw from; NULL: all */
	bool verbose;		 /* trace on stderr */
};

struct fuzz_result {
	uint64_t hash;
	uint64_t events;
	uint64_t virtual_ns;
	uint64_t ops[GN_OPS]; /* requests posted; GN_OP_RECV: messages received */
	uint64_t datagrams;   /* sent */
	uint64_t connections; /* established */
	uint64_t broken;      /* endpoints that saw an error */
	uint64_t restarts;    /* of programs after a crash or kill */
	uint64_t faults[FUZZ_FAULTS];
	bool failed;
	char what[768]; /* failed: time, node, what was expected and found */
};

/* Runs one seed. 0: out says what came of it; -errno: the options permit no run. */
int fuzz_seed(const struct fuzz_opts *opts, struct fuzz_result *out);

/* Does a comma-separated list name only kinds of faults? If not, *bad is the first other name. */
bool fuzz_faults_known(const char *list, const char **bad, size_t *bad_len);

#endif
