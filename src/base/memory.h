/* SPDX-License-Identifier: MIT */
/* The system's memory: what a process that lends memory must know. */
#ifndef GN_BASE_MEMORY_H
#define GN_BASE_MEMORY_H

#include <stdint.h>

/*
 * Bytes that programs could allocate without swapping (MemAvailable). UINT64_MAX: not known, or
 * a simulated node without the fault low-memory.
 */
uint64_t exec_memory_available(void);

#endif
