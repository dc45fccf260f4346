/* SPDX-License-Identifier: MIT */
/*
 * Counters that are always on: one thread writes a counter, any thread may read it. A relaxed load
 * and store cost what plain ones do, and a reader sees some value the counter had, never half of
 * one.
 */
#ifndef GN_BASE_COUNTER_H
#define GN_BASE_COUNTER_H

#include <stdint.h>

/* The counter's one writer only: two writers would lose counts. */
static inline void counter_add(uint64_t *counter, uint64_t n)
{
	uint64_t value = __atomic_load_n(counter, __ATOMIC_RELAXED);

	__atomic_store_n(counter, value + n, __ATOMIC_RELAXED);
}

/* Any thread. */
static inline uint64_t counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#endif
