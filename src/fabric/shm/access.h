/* SPDX-License-Identifier: MIT */
/*
 * How a post reaches the peer's memory: what post.c and plain.c share. While it may be copying, the
 * connection's busy word is odd.
 */
#ifndef GN_SHM_ACCESS_H
#define GN_SHM_ACCESS_H

#include "fabric/shm/shm.h"
#include "fabric/soft/copy.h"

/*
 * Odd while we may be copying under the peer's keys. Pairs with the fences in shm_peers_quiet():
 * once a teardown has cleared a grant or closed the connection, we either see that or are seen as
 * busy until we are done. Only we write the word.
 */
#if defined(__x86_64__) && !COPY_BY_WORD
/* A locked instruction is a fence, too; and every store is a release. */
static inline void shm_busy_begin(uint64_t *word)
{
	__asm__ volatile("lock addq $1, %0" : "+m"(*word) : : "memory", "cc");
}

static inline void shm_busy_end(uint64_t *word)
{
	__asm__ volatile("addq $1, %0" : "+m"(*word) : : "memory", "cc");
}
#else
static inline void shm_busy_begin(uint64_t *word)
{
	__atomic_store_n(word, *word + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void shm_busy_end(uint64_t *word)
{
	__atomic_store_n(word, *word + 1, __ATOMIC_RELEASE);
}
#endif

static inline bool shm_peer_open(const struct shm_conn *c)
{
	return likely(__atomic_load_n(&c->peer->mood.state, __ATOMIC_RELAXED) == AREA_OPEN);
}

/*
 * May len bytes, at least one, be used while we are busy? Then *addr is where they are. False when
 * the peer does not allow it, or this was not looked up before: shm_view_make() tells.
 */
static force_inline bool shm_view_find(const struct shm_conn *c, uint32_t key, uint64_t offset,
				       uint64_t len, enum view_use use, uint8_t **addr)
{
	const uint64_t index = soft_key_index(key);
	const struct peer_view *view = &c->views[index % SHM_VIEWS];
	/* Pairs with the release in put_in_force(). */
	const uint64_t word = __atomic_load_n(&c->grants[index].word, __ATOMIC_ACQUIRE);
	uint64_t end;

	if (unlikely((uint32_t)word != key || word != view->word ||
		     __builtin_add_overflow(offset, len, &end) || end > view->limit[use]))
		return false;
	*addr = view->addr + offset;
	return true;
}

/*
 * A CAS or FAA of an aligned word (regions start on a page, offsets are checked): the old value.
 */
static inline uint64_t shm_atomic(const struct gn_wr *wr, uint8_t *remote)
{
	uint64_t old = wr->to.remote.compare;

	if (wr->op == GN_OP_FAA)
		return __atomic_fetch_add((copy_u64 *)remote, old, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n((copy_u64 *)remote, &old, wr->to.remote.swap, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}

/* Look the grant of this key up and keep what may be done with it, if anything may be. */
void shm_view_make(struct shm_qp *qp, uint32_t key);

#endif
