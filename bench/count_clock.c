/* SPDX-License-Identifier: MIT */
/*
 * The one file of the benchmarks that looks inside the library: no public call sets its clock.
 */
#include "count_clock.h"

#include <time.h>

#include "base/real.h"
#include "base/ticks.h"

#define READ_NS 25u /* about what it costs to read the kernel's */

static uint64_t passed_ns;

static int stepping_clock(clockid_t id, struct timespec *out)
{
	(void)id;
	*out = ns_to_timespec(__atomic_add_fetch(&passed_ns, READ_NS, __ATOMIC_RELAXED));
	return 0;
}

void count_clock_begin(uint64_t start_ns)
{
	passed_ns = start_ns;
	__atomic_store_n(&real_ticks_mask, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&real_clock, stepping_clock, __ATOMIC_RELEASE);
}

void count_clock_end(void)
{
	__atomic_store_n(&real_clock, clock_gettime, __ATOMIC_RELEASE);
	__atomic_store_n(&real_ticks_mask, UINT64_MAX, __ATOMIC_RELAXED);
}

void count_clock_step(uint64_t ns)
{
	__atomic_add_fetch(&passed_ns, ns, __ATOMIC_RELAXED);
}

uint64_t count_clock_ns(void)
{
	return __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);
}
