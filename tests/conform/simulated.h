/* SPDX-License-Identifier: MIT */
/* simulated.h - the suite on a simulated cluster: both sides in this process, in virtual time. */
#ifndef CONFORM_SIMULATED_H
#define CONFORM_SIMULATED_H

#include "harness.h"

/* Run A and B as programs of two nodes. 0, or a negative errno when the run could not be done. */
int cf_simulate(struct cf_run *run);

#endif
