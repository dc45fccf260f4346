/* SPDX-License-Identifier: MIT */
/*
 * A peer may change shared memory between any two loads. With the fault "preempt", the simulator
 * runs other threads there, which exposes code that checks a value and then loads it again. A
 * process pays a thread-local load and a predicted branch.
 */
#ifndef GN_BASE_PREEMPT_H
#define GN_BASE_PREEMPT_H

#include "base/bits.h"
#include "gannet/exec.h"

struct exec_ops;

/* exec.c: the table of this OS thread; NULL in a process. */
extern _Thread_local const struct exec_ops *exec_installed
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
void exec_preempted(void);

static inline void exec_preempt(void)
{
	if (unlikely(exec_installed))
		exec_preempted();
}

/* gn_charge(), at the same cost. */
static inline void exec_charge(enum gn_work kind, uint64_t n)
{
	if (unlikely(exec_installed))
		gn_charge(kind, n);
}

#endif
