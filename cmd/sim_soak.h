/* SPDX-License-Identifier: MIT */
/*
 * gannet sim soak, inside: the options and the sums (sim_soak.c), the worker processes
 * (sim_soak_jobs.c), and the file that lets a run be taken up again (sim_soak_state.c).
 */
#ifndef GN_CMD_SIM_SOAK_H
#define GN_CMD_SIM_SOAK_H

#include <swarm.h>

#include "command.h"

#define SOAK_JOBS_MAX  256u
#define SOAK_SEEDS_MAX 10000000u

extern const struct command command_sim_soak;

struct soak_seed {
	uint64_t hash;
	bool done;
};

struct soak {
	struct swarm_opts swarm; /* all but the seed */
	uint64_t first, last;
	unsigned jobs;
	bool hash, json;
	const char *state; /* file, or NULL */

	struct soak_seed *seed; /* first to last */
	uint64_t n_done, n_failed, n_resumed;
	struct swarm_result sum; /* of the counts */
	int state_fd;
	uint64_t lowest_failed;
};

/* Adds one seed's outcome: to the sums, to the state file unless it came from there, to stderr. */
void soak_add(struct soak *soak, uint64_t seed, const struct swarm_result *result, bool resumed);
/* The command that runs this seed alone. */
void soak_print_replay(const struct soak *soak, uint64_t seed);

/* Runs what is not done yet. 0, -EINTR after Ctrl-C, or another error that was reported. */
int soak_run(struct soak *soak);

/* Reads what an earlier run did, and opens the file to add to it. 0 or an exit status. */
int soak_state_open(struct soak *soak);
int soak_state_add(struct soak *soak, uint64_t seed, const struct swarm_result *result);

#endif
