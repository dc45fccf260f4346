/* SPDX-License-Identifier: MIT */
/*
 * The post path of a context: the lock around its doorbell. A poster holds it for
 *
 *     hold + handover, if another thread held it last + waiter × number of waiters
 *
 * The first is the doorbell itself, the second the cache line transfer between cores, the third the
 * effect of spinning waiters on both.
 */
#include "sim/model/model.h"

#define MASK (SIM_PATH_MAX - 1)

uint64_t sim_path_pass(struct sim_path *path, const struct sim_device *device, uint64_t who,
		       uint64_t at_ps)
{
	const struct sim_profile *p = device->profile;
	uint64_t start = at_ps, hold = p->hold_ps;
	uint32_t present;

	while (path->tail != path->head && path->ends[path->tail & MASK] <= at_ps)
		path->tail++;
	present = path->head - path->tail;
	if (present)
		start = path->ends[(path->head - 1) & MASK];
	if (path->last && path->last != who)
		hold += p->hold_handover_ps;
	hold += present * p->hold_waiter_ps;
	path->last = who;
	if (present == SIM_PATH_MAX)
		path->tail++;
	start += sim_jitter(device, hold);
	path->ends[path->head++ & MASK] = start;
	return start;
}
