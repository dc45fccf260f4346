/* SPDX-License-Identifier: MIT */
/*
 * Copies to and from memory that a peer reads or writes at the same time. What was copied is looked
 * at only when a sequence says that it is whole, so a race does no harm; the thread sanitizer is
 * told so by bytewise atomics, which nobody else pays for.
 */
#ifndef GN_RPC_COPY_H
#define GN_RPC_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/preempt.h"

#ifdef __SANITIZE_THREAD__

#define RPC_RACES_SHOW 1

static inline void rpc_load(void *to, const void *shared, size_t len)
{
	exec_preempt();
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = __atomic_load_n((const uint8_t *)shared + i, __ATOMIC_RELAXED);
}

static inline void rpc_store(void *shared, const void *from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		__atomic_store_n((uint8_t *)shared + i, ((const uint8_t *)from)[i],
				 __ATOMIC_RELAXED);
}

#else

#define RPC_RACES_SHOW 0

static inline void rpc_load(void *to, const void *shared, size_t len)
{
	exec_preempt();
	memcpy(to, shared, len);
}

static inline void rpc_store(void *shared, const void *from, size_t len)
{
	memcpy(shared, from, len);
}

#endif

#endif
