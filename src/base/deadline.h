/* SPDX-License-Identifier: MIT */
/*
 * Deadlines inside the library: GN_FOREVER is none, and 0 never occurs, so that times compare as
 * numbers. A public call turns what it was given into one first.
 */
#ifndef GN_BASE_DEADLINE_H
#define GN_BASE_DEADLINE_H

#include "gannet/base.h"

/* What a caller gave. */
static inline uint64_t deadline_given(uint64_t deadline_ns)
{
	return deadline_ns ? deadline_ns : GN_FOREVER;
}

/* A time at which something is due, which is 0 if it is due at once. */
static inline uint64_t deadline_due(uint64_t due_ns)
{
	return due_ns ? due_ns : GN_NO_WAIT;
}

#endif
