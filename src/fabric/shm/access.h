/* SPDX-License-Identifier: MIT */
/*
 * How a post accesses the peer's memory; shared by post.c, plain.c and fixed.c. The connection's
 * busy counter is odd during an access.
 */
#ifndef GN_SHM_ACCESS_H
#define GN_SHM_ACCESS_H

#include "fabric/shm/shm.h"
#include "fabric/soft/copy.h"

/*
 * Odd while this side may be copying under the peer's keys. Pairs with the fences in
 * shm_peers_quiesced(): after a teardown has cleared a grant or closed the connection, this side
 * either sees that, or is seen as busy until it has finished. Only this side writes the counter.
 */
#if defined(__x86_64__) && !COPY_BY_WORD
/* A locked instruction is also a fence, and every store is a release. */
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
	return likely(__atomic_load_n(&c->peer->conn_state.state, __ATOMIC_RELAXED) == AREA_OPEN);
}

/*
 * May len (at least 1) bytes at offset be accessed while this side is busy? Then sets *addr. False:
 * the peer does not allow it, or the grant was not looked up yet (shm_view_make()).
 */
static force_inline bool shm_view_find(const struct shm_conn *c, uint32_t key, uint64_t offset,
				       uint64_t len, enum view_use use, uint8_t **addr)
{
	const uint64_t index = soft_key_index(key);
	const struct peer_view *view = &c->views[index % SHM_VIEWS];
	/* Pairs with the release in grant_publish(). */
	const uint64_t word = __atomic_load_n(&c->grants[index].word, __ATOMIC_ACQUIRE);
	uint64_t end;

	if (unlikely((uint32_t)word != key || word != view->word ||
		     __builtin_add_overflow(offset, len, &end) || end > view->limit[use]))
		return false;
	*addr = view->addr + offset;
	return true;
}

/*
 * CAS or FAA of an aligned word (regions start on a page, offsets are checked). Returns the old
 * value.
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

/* Looks up the key's grant and caches the access rights in a view, if there are any. */
void shm_view_make(struct shm_qp *qp, uint32_t key);

#endif
