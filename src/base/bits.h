/* SPDX-License-Identifier: MIT */
/* Compiler and processor helpers: branch hints, cache line size, spin pause, prefetch; minima. */
#ifndef GN_BASE_BITS_H
#define GN_BASE_BITS_H

#include <stddef.h>
#include <stdint.h>

#define GN_CACHELINE 64

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* For the data path, where a call costs as much as the callee. */
#define force_inline inline __attribute__((always_inline))
#define no_inline    __attribute__((noinline))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}
static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * Prefetches the cache lines of a range, all at once instead of one miss after the other; for
 * reading or for writing. Inlined by force: gcc removes calls of functions that only prefetch.
 */
static force_inline void prefetch_lines(const void *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += GN_CACHELINE)
		__builtin_prefetch((const char *)at + i);
}
static force_inline void prefetch_lines_to_write(const void *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += GN_CACHELINE)
#if defined(__x86_64__)
		__asm__ volatile("prefetchw %0" : : "m"(*((const char *)at + i)));
#else
		__builtin_prefetch((const char *)at + i, 1);
#endif
}

/* Spin-wait hint: frees resources for the other hyperthread. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
