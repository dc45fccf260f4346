/* SPDX-License-Identifier: MIT */
/*
 * Where a benchmark runs: the processor's name, and two cores of it to pin the two processes to.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "bench.h"

static void copy_string(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

static void read_cpu_model(char *to, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	copy_string(to, size, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, "model name", 10))
			continue;
		line[strcspn(line, "\n")] = '\0';
		copy_string(to, size, colon + 1 + strspn(colon + 1, " "));
		break;
	}
	if (f)
		fclose(f);
}

/* A number that hyperthreads of one core have in common, -1 if unknown. */
static int core_of(int cpu)
{
	char path[96];
	int core = -1, package = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &core) != 1)
		core = -1;
	fclose(f);
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
		 cpu);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%d", &package) != 1)
			package = 0;
		fclose(f);
	}
	return core < 0 ? -1 : package << 16 | core;
}

/* The first cpu, and the next one that is another core, or at least another hyperthread. */
void bench_pick_cpus(int cpus[2])
{
	cpu_set_t set;
	int first = -1, sibling = -1;

	cpus[0] = cpus[1] = 0;
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET((size_t)cpu, &set))
			continue;
		if (first < 0) {
			first = cpu;
		} else if (core_of(cpu) < 0 || core_of(cpu) != core_of(first)) {
			cpus[0] = first;
			cpus[1] = cpu;
			return;
		} else if (sibling < 0) {
			sibling = cpu;
		}
	}
	cpus[0] = first < 0 ? 0 : first;
	cpus[1] = sibling < 0 ? cpus[0] : sibling;
}

int bench_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

void bench_machine_get(struct bench_machine *out)
{
	struct utsname name;
	cpu_set_t set;

	read_cpu_model(out->cpu, sizeof(out->cpu));
	out->cores = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
	copy_string(out->kernel, sizeof(out->kernel), uname(&name) ? "unknown" : name.release);
}
