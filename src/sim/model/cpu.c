/* SPDX-License-Identifier: MIT */
/*
 * CPUs. A thread runs on its own core of its node while that is free, else on the core that is free
 * first, as an operating system schedules it: a thread that mostly sleeps does not slow the others
 * of its core. Waiting uses no core: it makes no difference to other threads whether a waiting
 * thread spins or sleeps.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"
#include "sim/model/model.h"

int sim_cpu_init(struct sim_cpu *cpu, const struct sim_profile *profile)
{
	*cpu = (struct sim_cpu){.n_cores = (unsigned)profile->cores};
	if (!cpu->n_cores)
		return 0;
	cpu->cores = calloc(cpu->n_cores, sizeof(*cpu->cores));
	return cpu->cores ? 0 : gn_fail_text(-ENOMEM, NO_MEMORY);
}

void sim_cpu_fini(struct sim_cpu *cpu)
{
	free(cpu->cores);
	cpu->cores = NULL;
}

uint64_t sim_cpu_work(struct sim_cpu *cpu, unsigned core, uint64_t at_ps, uint64_t ps)
{
	struct sim_station *own, *first;

	if (ps >= SIM_NEVER - at_ps)
		return SIM_NEVER;
	cpu->busy_ps += ps;
	if (!cpu->n_cores)
		return at_ps + ps;
	own = first = &cpu->cores[core % cpu->n_cores];
	for (unsigned i = 0; own->free_ps > at_ps && i < cpu->n_cores; i++)
		if (cpu->cores[i].free_ps < first->free_ps)
			first = &cpu->cores[i];
	return sim_station_pass(first, at_ps, ps);
}
