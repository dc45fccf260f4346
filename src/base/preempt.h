/* SPDX-License-Identifier: MIT */
/*
 * Between two loads of memory that a peer may write, anything can change there. In a simulation
 * whose faults say "preempt", it does: others run. So code that checks what it has loaded, and then
 * loads it again, is found out. A process pays a thread-local load and a predicted branch.
 */
#ifndef GN_BASE_PREEMPT_H
#define GN_BASE_PREEMPT_H

#include "base/bits.h"
#include "gannet/exec.h"

struct exec_ops;

/* exec.c: the table in force on this OS thread; NULL in a process. */
extern _Thread_local const struct exec_ops *exec_installed
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
void exec_preempted(void);

static inline void exec_preempt(void)
{
	if (unlikely(exec_installed))
		exec_preempted();
}

/* gn_charge(), which costs a process as little. */
static inline void exec_charge(enum gn_work kind, uint64_t n)
{
	if (unlikely(exec_installed))
		gn_charge(kind, n);
}

#endif
