/* SPDX-License-Identifier: MIT */
/* simulated.h - the suite on a simulated cluster: both sides in this process, in virtual time. */
#ifndef CONFORM_SIMULATED_H
#define CONFORM_SIMULATED_H

#include "harness.h"

/* What a run leaves behind that the same seed must give again. */
struct cf_trace {
	uint64_t hash, events, end_ns;
};

/* "all", "none" or a list of names. Says which name is not known. */
bool cf_caps_parse(const char *list, uint64_t *out);

/* True: the library accepts these options; otherwise it has logged why not. */
int cf_sim_check(const struct cf_sim *sim);

/*
 * Run A and B as programs of two nodes. 0, or a negative errno when the run could not be done.
 */
int cf_simulate(struct cf_run *run, struct cf_trace *trace);

#endif
