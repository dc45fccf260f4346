/* SPDX-License-Identifier: MIT */
/* Objects that belong to one thread: checks of the calling thread, also in a forked child. */
#ifndef GN_BASE_OWNER_H
#define GN_BASE_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/preempt.h"
#include "base/real.h"

/* Is owner this thread's gn_thread_id()? */
static inline bool exec_is_owner(uint64_t owner)
{
	return likely(owner == real_own_number);
}

/*
 * Returns -EPERM for a call by another thread than the owner. If the owner is a thread of the
 * parent process, also logs that: memory shared with peers is missing in a forked child.
 */
int exec_not_owner(uint64_t owner, const char *what);

/* Set in an owner's id: the object was released, and the first thread to adopt it owns it. */
#define OWNER_RELEASED (UINT64_C(1) << 63)

/* The old owner's accesses happen before the new owner's. */
static inline void exec_release(uint64_t *owner)
{
	const uint64_t own = __atomic_load_n(owner, __ATOMIC_RELAXED);

	__atomic_store_n(owner, own | OWNER_RELEASED, __ATOMIC_RELEASE); /* exec_adopt() */
}
/* 0: this thread owns the object; -EBUSY: another thread does; -EPERM: inherited, as above. */
int exec_adopt(uint64_t *owner, const char *what);

/* Is it a thread of the parent process? */
static inline bool exec_inherited(uint64_t thread)
{
	return unlikely(thread <= real_inherited) && !exec_installed;
}

#endif
