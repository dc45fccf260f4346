/* SPDX-License-Identifier: MIT */
/* What this thread allocates with gn_alloc(): how often, and how much of it there is at once. */
#ifndef GN_TESTS_HOSTILE_HEAP_H
#define GN_TESTS_HOSTILE_HEAP_H

#include <malloc.h>
#include <string.h>

#include "base/exec.h"
#include "base/real.h"
#include "unit.h"

static struct {
	uint64_t allocs, bytes, most_bytes;
	size_t refused_from; /* a single allocation of so many bytes fails; 0: none does */
} heap;
static const struct exec_ops *heap_below;

static void *heap_alloc(size_t size, size_t align)
{
	void *ptr = heap.refused_from && size >= heap.refused_from ? NULL :
								     exec_real.alloc(size, align);

	heap.allocs++;
	if (ptr)
		heap.bytes += malloc_usable_size(ptr);
	if (heap.bytes > heap.most_bytes)
		heap.most_bytes = heap.bytes;
	return ptr;
}

static void heap_free(void *ptr)
{
	heap.bytes -= malloc_usable_size(ptr);
	exec_real.free(ptr);
}

static uint64_t heap_random(void)
{
	static uint64_t state = 1;

	return unit_next(&state);
}

static void heap_preempt(void)
{
}

/*
 * From here on memory is counted, and nothing may wait. What was allocated before is not to be freed
 * before the end.
 */
static inline void heap_watch(void)
{
	static struct exec_ops ops;

	ops = exec_real;
	ops.now_ns = real_clock_ns;
	ops.random = heap_random;
	ops.preempt = heap_preempt;
	ops.alloc = heap_alloc;
	ops.free = heap_free;
	memset(&heap, 0, sizeof(heap));
	heap_below = exec_install(&ops);
}

/* How many bytes there were at once, at most. */
static inline uint64_t heap_most(void)
{
	exec_install(heap_below);
	return heap.most_bytes;
}

#endif
