/* SPDX-License-Identifier: MIT */
/*
 * Copies to and from memory that a peer reads or writes at the same time. The copy is used only
 * after a sequence number says that it is complete, so a race is harmless. Under the thread
 * sanitizer the copies are bytewise atomics; other builds do not pay for this.
 */
#ifndef GN_RPC_COPY_H
#define GN_RPC_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/preempt.h"

#define RPC_STORE_SHORT 64u /* bytes that are stored without a call of memcpy() */

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

/* Most copies are short, and a call of memcpy() would cost more than the copy. */
static force_inline void rpc_store(void *shared, const void *from, size_t len)
{
	uint8_t *to = shared;
	const uint8_t *at = from;

	if (unlikely(len > RPC_STORE_SHORT)) {
		memcpy(to, at, len);
	} else if (len > 32) {
		memcpy(to, at, 32);
		memcpy(to + len - 32, at + len - 32, 32);
	} else if (len >= 16) {
		memcpy(to, at, 16);
		memcpy(to + len - 16, at + len - 16, 16);
	} else if (len >= 8) {
		memcpy(to, at, 8);
		memcpy(to + len - 8, at + len - 8, 8);
	} else if (len >= 4) {
		memcpy(to, at, 4);
		memcpy(to + len - 4, at + len - 4, 4);
	} else if (len) {
		to[0] = at[0];
		to[len / 2] = at[len / 2];
		to[len - 1] = at[len - 1];
	}
}

#endif

#endif
