/* SPDX-License-Identifier: MIT */
/*
 * What other processes use: their CPU time, of all threads and to the nanosecond, and their memory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gannet/base.h>

#include "socket.h"

int bench_cpu_ns(const int *pids, unsigned n, uint64_t *out)
{
	uint64_t sum_ns = 0;

	for (unsigned i = 0; i < n; i++) {
		struct timespec used;
		clockid_t clock;
		const int rc = clock_getcpuclockid(pids[i], &clock);

		if (rc || clock_gettime(clock, &used)) {
			gn_log(GN_LOG_ERROR, "cannot read the CPU time of process %d: %s", pids[i],
			       gn_strerror(rc ? -rc : -errno));
			return rc ? -rc : -errno;
		}
		sum_ns += (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
	}
	*out = sum_ns;
	return 0;
}

static int resident_pages(int pid, unsigned long *out)
{
	char path[32];
	unsigned long size;
	FILE *f;
	int got;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	got = fscanf(f, "%lu %lu", &size, out);
	fclose(f);
	return got == 2 ? 0 : -EIO;
}

int bench_rss_bytes(const int *pids, unsigned n, uint64_t *out)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		unsigned long pages;
		const int rc = resident_pages(pids[i], &pages);

		if (rc) {
			gn_log(GN_LOG_ERROR, "cannot read the memory use of process %d: %s",
			       pids[i], gn_strerror(rc));
			return rc;
		}
		sum += pages * page;
	}
	*out = sum;
	return 0;
}
