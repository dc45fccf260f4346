/* SPDX-License-Identifier: MIT */
/*
 * What a hostile peer costs its victim: resident bytes and descriptors of a process, and the time
 * that honest calls take meanwhile. docs/limits.md states the limits that these tests assert.
 */
#ifndef GN_TESTS_HOSTILE_COST_H
#define GN_TESTS_HOSTILE_COST_H

#include <dirent.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "gannet/base.h"

#define HOSTILE_UID 65534u /* nobody: another user than the victim's */

/* Resident bytes of a process; 0 when it is gone. */
static inline uint64_t cost_rss_bytes(pid_t pid)
{
	unsigned long long pages = 0;
	char path[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Open descriptors of a process; 0 when it is gone. */
static inline unsigned cost_fds(pid_t pid)
{
	unsigned n = 0;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* For how long this thread was ready to run and had no processor, so far; 0: the kernel is silent. */
static inline uint64_t cost_queued_ns(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	unsigned long long ns = 0;

	if (f && fscanf(f, "%*u %llu", &ns) != 1)
		ns = 0;
	if (f)
		fclose(f);
	return ns;
}

/* … and so many threads of another process that have this name, all together. */
static inline uint64_t cost_threads_queued_ns(pid_t pid, const char *name)
{
	uint64_t all_ns = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
		unsigned long long ns = 0;
		char own[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", (int)pid, entry->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%31s", own) != 1)
			own[0] = 0;
		if (f)
			fclose(f);
		if (strcmp(own, name))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)pid,
			 entry->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%*u %llu", &ns) == 1)
			all_ns += ns;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return all_ns;
}

/* How long a call takes, without the time for which others had the processor. */
struct cost_call {
	pid_t pid; /* of the server */
	uint64_t begin_ns, client_ns, server_ns;
};

static inline struct cost_call cost_call_begin(pid_t pid)
{
	return (struct cost_call){.pid = pid,
				  .client_ns = cost_queued_ns(),
				  .server_ns = cost_threads_queued_ns(pid, "rpc"),
				  .begin_ns = gn_now_ns()};
}

/* Client and server wait for a processor at the same time, mostly: so the longer of both counts. */
static inline uint64_t cost_call_ns(const struct cost_call *c)
{
	const uint64_t ns = gn_now_ns() - c->begin_ns;
	const uint64_t client_ns = cost_queued_ns() - c->client_ns;
	const uint64_t server_ns = cost_threads_queued_ns(c->pid, "rpc") - c->server_ns;
	const uint64_t queued_ns = client_ns > server_ns ? client_ns : server_ns;

	return ns > queued_ns ? ns - queued_ns : 0;
}

/* Become another user, for good: 0, or -1 when this process may not. */
static inline int cost_other_user(void)
{
	return setgroups(0, NULL) || setgid(HOSTILE_UID) || setuid(HOSTILE_UID) ? -1 : 0;
}

#endif
