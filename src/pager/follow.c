/* SPDX-License-Identifier: MIT */
/* Which core a thread runs on is read from /proc: the kernel tells no cheaper way. */
#include "pager/follow.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/counter.h"

#define LOOK_EVERY  32u /* faults of a thread */
#define VOTE_FAULTS 8u
#define STAT_CPU    39 /* the number of the field; the second one ends with the last ')' */

void follow_init(struct follow *f)
{
	memset(f, 0, sizeof(*f));
	f->cpu = -1;
	f->candidate = -1;
	for (unsigned i = 0; i < FOLLOW_THREADS; i++)
		f->threads[i].fd = -1;
	if (sched_getaffinity(0, sizeof(f->allowed), &f->allowed))
		CPU_ZERO(&f->allowed);
}

void follow_fini(struct follow *f)
{
	for (unsigned i = 0; i < FOLLOW_THREADS; i++)
		if (f->threads[i].fd >= 0)
			close(f->threads[i].fd);
}

static int stat_open(pid_t thread)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* -1: unknown, the thread has ended. */
static int stat_cpu(int fd)
{
	char line[1024], *at;
	const ssize_t got = fd < 0 ? -1 : pread(fd, line, sizeof(line) - 1, 0);

	if (got <= 0)
		return -1;
	line[got] = '\0';
	at = strrchr(line, ')');
	for (int field = 2; at && field < STAT_CPU; field++)
		at = strchr(at + 1, ' ');
	return at ? atoi(at + 1) : -1;
}

static int thread_cpu(struct follow *f, pid_t thread)
{
	const unsigned i = (unsigned)thread % FOLLOW_THREADS;

	if (f->threads[i].thread != thread) {
		/* Threads that share an entry take turns, and not at each fault. */
		if (f->threads[i].thread && ++f->threads[i].age < LOOK_EVERY)
			return -1;
		if (f->threads[i].fd >= 0)
			close(f->threads[i].fd);
		f->threads[i].thread = thread;
		f->threads[i].fd = stat_open(thread);
		f->threads[i].age = LOOK_EVERY;
	}
	if (++f->threads[i].age > LOOK_EVERY) {
		f->threads[i].age = 0;
		f->threads[i].cpu = stat_cpu(f->threads[i].fd);
	}
	return f->threads[i].cpu;
}

static void move_to(struct follow *f, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return;
	f->cpu = cpu;
	counter_add(&f->moves, 1);
}

void follow_fault(struct follow *f, pid_t thread)
{
	const int cpu = thread_cpu(f, thread);

	if (cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET((size_t)cpu, &f->allowed)) {
		if (!f->votes)
			f->candidate = cpu;
		f->votes += f->candidate == cpu ? 1u : -1u;
	}
	if (++f->faults < VOTE_FAULTS)
		return;
	if (f->votes && f->candidate != f->cpu)
		move_to(f, f->candidate);
	f->votes = 0;
	f->faults = 0;
}
