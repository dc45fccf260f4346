/* SPDX-License-Identifier: MIT */
/*
 * A fuzzing campaign: many seeds in several processes (campaign.c), and the state file that lets an
 * interrupted campaign be resumed (state_file.c).
 */
#ifndef FUZZER_CAMPAIGN_H
#define FUZZER_CAMPAIGN_H

#include "fuzzer.h"

#define CAMPAIGN_SEEDS_MAX 10000000u

struct campaign_seed {
	uint64_t hash;
	bool done;
};

struct campaign {
	struct fuzz_opts fuzz; /* all but the seed */
	uint64_t first, last;
	uint32_t jobs;
	bool hash, json;
	const char *state; /* file name, or NULL */

	struct campaign_seed *seed; /* first to last */
	uint64_t n_done, n_failed, n_resumed;
	struct fuzz_result sum; /* of the counters */
	uint64_t lowest_failed;
	uint32_t *todo; /* the seeds to run, less first */
	uint64_t began_ms;
	int state_fd;
	bool state_failed; /* it could not be written */
};

/* Adds the result of one seed to the sums; prints a failure. */
void campaign_add(struct campaign *c, uint64_t seed, const struct fuzz_result *result,
		  bool resumed);
/* Runs the seeds that are not done. 0, -EINTR after a signal, or an error that was printed. */
int campaign_run(struct campaign *c);
/* The sums, or with c->hash the trace hashes, on stdout. */
void campaign_print(const struct campaign *c);
/* The command that runs this seed alone, on stderr. */
void campaign_print_replay(const struct campaign *c, uint64_t seed);

/* Reads the results of an earlier run and opens the file for appending. 0 or an exit status. */
int state_file_open(struct campaign *c);
int state_file_add(struct campaign *c, uint64_t seed, const struct fuzz_result *result);

#endif
