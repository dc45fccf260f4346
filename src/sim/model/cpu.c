/* SPDX-License-Identifier: MIT */
/*
 * Processors. A thread belongs to one core of its node, and the work of the threads of a core comes
 * one after the other. Waiting takes no core: whether a thread that waits spins or sleeps makes no
 * difference to the others of its core.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/model/model.h"

int sim_cpu_init(struct sim_cpu *cpu, const struct sim_profile *profile)
{
	*cpu = (struct sim_cpu){.n_cores = (unsigned)profile->cores};
	if (!cpu->n_cores)
		return 0;
	cpu->cores = calloc(cpu->n_cores, sizeof(*cpu->cores));
	return cpu->cores ? 0 : -ENOMEM;
}

void sim_cpu_fini(struct sim_cpu *cpu)
{
	free(cpu->cores);
	cpu->cores = NULL;
}

uint64_t sim_cpu_work(struct sim_cpu *cpu, unsigned core, uint64_t at_ps, uint64_t ps)
{
	if (ps >= SIM_NEVER - at_ps)
		return SIM_NEVER;
	cpu->busy_ps += ps;
	if (!cpu->n_cores)
		return at_ps + ps;
	return sim_station_pass(&cpu->cores[core % cpu->n_cores], at_ps, ps);
}
