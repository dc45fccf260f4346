/* SPDX-License-Identifier: MIT */
/* threads.h - the suite with both sides as threads of this process. */
#ifndef CONFORM_THREADS_H
#define CONFORM_THREADS_H

#include "harness.h"

/* cf_lead() as A, with B in a thread of its own. */
int cf_thread(struct cf_run *run);

#endif
