/* SPDX-License-Identifier: MIT */
/*
 * Counters: one thread writes a counter, any thread may read it. Relaxed loads and stores cost as
 * much as plain ones, and a reader never sees a torn value.
 */
#ifndef GN_BASE_COUNTER_H
#define GN_BASE_COUNTER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define COUNTER_ADD_IN_PLACE 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COUNTER_ADD_IN_PLACE 0
#endif
#endif
#if !defined(COUNTER_ADD_IN_PLACE) && defined(__x86_64__)
#define COUNTER_ADD_IN_PLACE 1
#endif

/*
 * Only for the counter's single writer: two writers would lose counts. On x86 one instruction adds
 * in memory, and its store is not torn; for an atomic load and store compilers emit three.
 */
static inline void counter_add(uint64_t *counter, uint64_t n)
{
#if defined(COUNTER_ADD_IN_PLACE) && COUNTER_ADD_IN_PLACE
	__asm__("addq %1, %0" : "+m"(*counter) : "er"(n) : "cc");
#else
	const uint64_t value = __atomic_load_n(counter, __ATOMIC_RELAXED);

	__atomic_store_n(counter, value + n, __ATOMIC_RELAXED);
#endif
}

/* The same for a gauge, which also falls. */
static inline void counter_sub(uint64_t *counter, uint64_t n)
{
	counter_add(counter, 0 - n);
}

static inline void counter_set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Any thread. */
static inline uint64_t counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Any thread: reads all counters of a struct that has nothing else. */
static inline void counters_read(uint64_t *to, const uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(*to); i++)
		to[i] = counter_read(&from[i]);
}

#endif
