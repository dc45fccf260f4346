/* SPDX-License-Identifier: MIT */
/*
 * Has time passed since the last check? For hot paths that do not need the time itself: the
 * processor's cycle counter costs a third of the clock.
 */
#ifndef GN_BASE_TICKS_H
#define GN_BASE_TICKS_H

#include "base/preempt.h"

/* 7 to 33 us, at 1 to 5 GHz. In a simulation ticks are ns. */
#define EXEC_TICKS_SHORT 32768u

/* Mask of the counter: all bits, or none while a process counts instructions. */
extern uint64_t real_ticks_mask;

uint64_t real_ticks(void); /* real.c */

static inline uint64_t exec_ticks(void)
{
	return unlikely(exec_installed) ? gn_now_ns() : real_ticks();
}

#endif
