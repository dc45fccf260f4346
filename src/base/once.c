/* SPDX-License-Identifier: MIT */
/*
 * gn_once_run() for process and simulation: the first caller runs fn, the others wait. fn may
 * block, and parks its fiber in a simulation, so others wait by yielding and short sleeps, not by a
 * lock.
 */
#include "base/bits.h"
#include "gannet/exec.h"

enum { ONCE_NEW, ONCE_RUNNING, ONCE_DONE };

#define ONCE_YIELDS   64
#define ONCE_SLEEP_US 50

void gn_once_run(struct gn_once *once, void (*fn)(void *arg), void *arg)
{
	uint32_t *state = &once->opaque[0];
	uint32_t seen = ONCE_NEW;

	/*
	 * The acquires pair with the release below: a thread that sees ONCE_DONE sees fn's effects.
	 */
	if (likely(__atomic_load_n(state, __ATOMIC_ACQUIRE) == ONCE_DONE))
		return;
	if (__atomic_compare_exchange_n(state, &seen, ONCE_RUNNING, false, __ATOMIC_ACQUIRE,
					__ATOMIC_ACQUIRE)) {
		fn(arg);
		__atomic_store_n(state, ONCE_DONE, __ATOMIC_RELEASE);
		return;
	}
	for (unsigned i = 0; __atomic_load_n(state, __ATOMIC_ACQUIRE) != ONCE_DONE; i++) {
		if (i < ONCE_YIELDS)
			gn_yield();
		else
			gn_sleep_us(ONCE_SLEEP_US);
	}
}
