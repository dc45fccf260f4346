/* SPDX-License-Identifier: MIT */
/*
 * Deadlines inside the library: GN_FOREVER means none, and 0 does not occur, so that times compare
 * as numbers. A public call converts its argument first.
 */
#ifndef GN_BASE_DEADLINE_H
#define GN_BASE_DEADLINE_H

#include "gannet/base.h"

/* Converts a caller's deadline. */
static inline uint64_t deadline_given(uint64_t deadline_ns)
{
	return deadline_ns ? deadline_ns : GN_FOREVER;
}

/* Converts a due time, which is 0 if due at once. */
static inline uint64_t deadline_due(uint64_t due_ns)
{
	return due_ns ? due_ns : GN_NO_WAIT;
}

#endif
