/* SPDX-License-Identifier: MIT */
/* What belongs to one thread, and is used by another, or in a forked child. */
#ifndef GN_BASE_OWNER_H
#define GN_BASE_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/preempt.h"
#include "gannet/exec.h"

/* This thread's number; 0 until real_thread_number() has given it one. */
extern _Thread_local uint64_t real_own_number __attribute__((tls_model("initial-exec")));

/* Is it this thread's gn_thread_id(), which somebody has asked for? */
static inline bool exec_is_thread(uint64_t id)
{
	return likely(!exec_installed) ? real_own_number == id : gn_thread_id() == id;
}

/*
 * For what another thread than its owner uses: -EPERM. If the owner is a thread of the process that
 * this one was forked from, a line in the log says so: memory that is shared with others is not
 * there in the child.
 */
int exec_not_owner(uint64_t owner, const char *what);
/* Is it a thread of the process that this one was forked from? */
bool exec_inherited(uint64_t thread);

#endif
