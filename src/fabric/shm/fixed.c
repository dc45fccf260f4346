/* SPDX-License-Identifier: MIT */
/*
 * gn_post_fixed(). The result of plain.c's checks is cached: the local and the remote address, and
 * up to which offset both regions may be accessed. The cache is valid while no key of this fabric
 * was removed, no mapping of the peer was dropped, and the peer's grant has the same tag word.
 * Every post checks these, the grant while busy. Any other post takes the normal path and fills the
 * cache.
 */
#include "fabric/shm/access.h"

struct shm_fixed {
	uint64_t limit; /* bytes from offset 0; 0: the cache is empty */
	uint8_t *local, *remote;
	const uint64_t *grant;
	uint64_t word;	   /* … and its value */
	uint64_t removed;  /* soft_keys.removed at that time */
	uint64_t unmapped; /* shm_conn.unmapped at that time */
};
_Static_assert(sizeof(struct shm_fixed) == sizeof(((struct gn_fixed *)0)->known), "same size");

static force_inline struct shm_fixed *fixed_cache(struct gn_fixed *fixed)
{
	return (struct shm_fixed *)(void *)fixed->known;
}

static inline const uint64_t *fixed_removed_keys(const struct shm_qp *qp)
{
	return &((const struct shm_fabric *)qp->qp.obj.fabric)->keys.removed;
}

/* Called after a successful post: the connection has a view of the peer's region. */
static void fixed_fill_cache(struct gn_fixed *fixed)
{
	const bool reads = fixed->wr.op == GN_OP_READ;
	struct shm_qp *qp = (struct shm_qp *)fixed->qp;
	struct shm_fixed *known = fixed_cache(fixed);
	const uint64_t removed = __atomic_load_n(fixed_removed_keys(qp), __ATOMIC_ACQUIRE);
	const uint64_t index = soft_key_index(fixed->wr.to.remote.key);
	const struct peer_view *view = &qp->conn.views[index % SHM_VIEWS];
	const struct soft_key *k = soft_key_find(qp->keys, fixed->sge.lkey, qp->qp.pd);
	const uint64_t most = view->limit[reads ? VIEW_READ : VIEW_WRITE];
	uint64_t at, here, there;

	known->limit = 0;
	if (!k || (reads && !(k->access & GN_LOCAL_WRITE)) ||
	    (uint32_t)view->word != fixed->wr.to.remote.key ||
	    ((uintptr_t)fixed->addr | fixed->remote) & 7)
		return;
	at = (uint64_t)((uintptr_t)fixed->addr - (uintptr_t)k->addr);
	here = at < k->length ? k->length - at : 0;
	there = fixed->remote < most ? most - fixed->remote : 0;
	*known = (struct shm_fixed){
		.limit = here < there ? here : there,
		.local = fixed->addr,
		.remote = view->addr + fixed->remote,
		.grant = &qp->conn.grants[index].word,
		.word = view->word,
		.removed = removed,
		.unmapped = qp->conn.unmapped,
	};
}

static no_inline int fixed_post_slow(struct gn_fixed *fixed, uint64_t offset, uint32_t len,
				     uint64_t id)
{
	const int rc = post_fixed_any(fixed, offset, len, id);

	if (rc == 1)
		fixed_fill_cache(fixed);
	return rc;
}

/* Is the cache valid, except for the grant, and large enough? */
static force_inline bool fixed_cache_valid(const struct shm_qp *qp, const struct shm_fixed *known,
					   uint64_t offset, uint32_t len)
{
	uint64_t end;

	return likely(qp->qp.state == GN_QP_READY && qp->qp.sq_head == qp->qp.sq_tail &&
		      !__builtin_add_overflow(offset, (uint64_t)len, &end) && end <= known->limit &&
		      __atomic_load_n(fixed_removed_keys(qp), __ATOMIC_ACQUIRE) == known->removed &&
		      qp->conn.unmapped == known->unmapped);
}

/* small: 8 to COPY_SMALL bytes and whole words. See plain_copy() in plain.c. */
static force_inline int fixed_post_cached(struct gn_fixed *fixed, uint64_t offset, uint32_t len,
					  uint64_t id, bool reads, bool small)
{
	struct shm_qp *qp = (struct shm_qp *)fixed->qp;
	const struct shm_fixed *known = fixed_cache(fixed);
	struct area_busy *busy = &qp->conn.own_area->busy;
	uint8_t *local = known->local + offset, *remote = known->remote + offset;

	if (unlikely(!fixed_cache_valid(qp, known, offset, len)))
		return fixed_post_slow(fixed, offset, len, id);
	shm_busy_begin(&busy->posting);
	/* Pairs with the release in grant_publish(). */
	if (unlikely(!shm_peer_open(&qp->conn) ||
		     __atomic_load_n(known->grant, __ATOMIC_ACQUIRE) != known->word)) {
		shm_busy_end(&busy->posting);
		return fixed_post_slow(fixed, offset, len, id);
	}
	if (small && reads)
		copy_fetch_short(local, remote, len);
	else if (small)
		copy_publish_short(remote, local, len);
	else if (reads)
		copy_fetch(local, remote, len);
	else
		copy_publish(remote, local, len);
	shm_busy_end(&busy->posting);
	post_counted(&qp->qp, reads ? GN_OP_READ : GN_OP_WRITE, len);
	return 1;
}

static no_inline int fixed_post_long(struct gn_fixed *fixed, uint64_t offset, uint32_t len,
				     uint64_t id)
{
	if (unlikely(len - 1 >= PLAIN_LEN))
		return post_fixed_any(fixed, offset, len, id);
	return fixed->wr.op == GN_OP_READ ? fixed_post_cached(fixed, offset, len, id, true, false) :
					    fixed_post_cached(fixed, offset, len, id, false, false);
}

int shm_post_fixed_write(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	if (unlikely(len - 1 >= COPY_SMALL || (offset | len) & 7))
		return fixed_post_long(fixed, offset, len, id);
	return fixed_post_cached(fixed, offset, len, id, false, true);
}

int shm_post_fixed_read(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	if (unlikely(len - 1 >= COPY_SMALL || (offset | len) & 7))
		return fixed_post_long(fixed, offset, len, id);
	return fixed_post_cached(fixed, offset, len, id, true, true);
}
