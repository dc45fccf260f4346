/* SPDX-License-Identifier: MIT */
/*
 * Keeps the handler on the core of the threads that fault. A fault that is answered on another core
 * takes five to ten times as long: each of its two wake-ups is an interrupt to a core that sleeps.
 */
#ifndef GN_PAGER_FOLLOW_H
#define GN_PAGER_FOLLOW_H

#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

#define FOLLOW_THREADS 16u

struct follow {
	cpu_set_t allowed; /* where the process may run */
	int cpu;	   /* the handler's, or -1: anywhere */
	struct {
		pid_t thread;
		int fd, cpu;
		unsigned age; /* faults since the look at its core */
	} threads[FOLLOW_THREADS];
	/* The core of most faults, by Boyer and Moore's vote. */
	int candidate;
	unsigned votes, faults;
	uint64_t moves; /* counter */
};

void follow_init(struct follow *f);
void follow_fini(struct follow *f);
/* The handler: a thread has faulted. */
void follow_fault(struct follow *f, pid_t thread);

#endif
