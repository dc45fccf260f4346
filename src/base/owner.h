/* SPDX-License-Identifier: MIT */
/* What belongs to one thread, and is used by another, or in a forked child. */
#ifndef GN_BASE_OWNER_H
#define GN_BASE_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/preempt.h"
#include "base/real.h"

/* Does it belong to this thread: is owner gn_thread_id()? */
static inline bool exec_is_owner(uint64_t owner)
{
	return likely(owner == real_own_number);
}

/*
 * For what another thread than its owner uses: -EPERM. If the owner is a thread of the process that
 * this one was forked from, a line in the log says so: memory that is shared with others is not
 * there in the child.
 */
int exec_not_owner(uint64_t owner, const char *what);

/* An owner's id with this bit has given its object away: whoever adopts it first has it. */
#define OWNER_RELEASED (UINT64_C(1) << 63)

/* What the owner did with it happens before whatever its next owner does. */
static inline void exec_release(uint64_t *owner)
{
	const uint64_t own = __atomic_load_n(owner, __ATOMIC_RELAXED);

	__atomic_store_n(owner, own | OWNER_RELEASED, __ATOMIC_RELEASE); /* exec_adopt() */
}
/* 0: it belongs to this thread; -EBUSY: another has it; -EPERM: inherited, as above. */
int exec_adopt(uint64_t *owner, const char *what);

/* Is it a thread of the process that this one was forked from? */
static inline bool exec_inherited(uint64_t thread)
{
	return unlikely(thread <= real_inherited) && !exec_installed;
}

#endif
