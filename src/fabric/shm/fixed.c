/* SPDX-License-Identifier: MIT */
/*
 * WRITEs and READs that are posted again and again. What plain.c finds out for each is kept: where
 * the bytes are at both ends, and up to which offset both regions reach and may be used so. It is
 * good as long as no key of this fabric was removed, no mapping of the peer's was dropped, and the
 * peer's grant has the same word; all that is looked at each time, the grant while we are busy. A
 * post that it does not hold for goes the way of all others, and what is found there is kept.
 */
#include "fabric/shm/access.h"

struct shm_fixed {
	uint64_t limit; /* bytes from offset 0 on; 0: nothing is known */
	uint8_t *local, *remote;
	const uint64_t *grant;
	uint64_t word;	    /* … that it had */
	uint64_t removed;   /* keys, when it was found out */
	uint64_t forgotten; /* mappings */
};
_Static_assert(sizeof(struct shm_fixed) == sizeof(((struct gn_fixed *)0)->known), "all of it");

static force_inline struct shm_fixed *known_of(struct gn_fixed *fixed)
{
	return (struct shm_fixed *)(void *)fixed->known;
}

static inline const uint64_t *removed_keys(const struct shm_qp *qp)
{
	return &((const struct shm_fabric *)qp->qp.obj.fabric)->keys.removed;
}

/* It was posted, and done: so there is a view of the peer's region. */
static void find_out(struct gn_fixed *fixed)
{
	const bool reads = fixed->wr.op == GN_OP_READ;
	struct shm_qp *qp = (struct shm_qp *)fixed->qp;
	struct shm_fixed *known = known_of(fixed);
	const uint64_t removed = __atomic_load_n(removed_keys(qp), __ATOMIC_ACQUIRE);
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
		.forgotten = qp->conn.forgotten,
	};
}

static no_inline int post_other(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	const int rc = post_fixed_any(fixed, offset, len, id);

	if (rc == 1)
		find_out(fixed);
	return rc;
}

/* What is known still holds, but for the grant; and it reaches that far. */
static force_inline bool is_good(const struct shm_qp *qp, const struct shm_fixed *known,
				 uint64_t offset, uint32_t len)
{
	uint64_t end;

	return likely(qp->qp.state == GN_QP_READY && qp->qp.sq_head == qp->qp.sq_tail &&
		      !__builtin_add_overflow(offset, (uint64_t)len, &end) && end <= known->limit &&
		      __atomic_load_n(removed_keys(qp), __ATOMIC_ACQUIRE) == known->removed &&
		      qp->conn.forgotten == known->forgotten);
}

/* small: of 8 to COPY_SMALL bytes, and whole words. As copy_plain() in plain.c. */
static force_inline int post_known(struct gn_fixed *fixed, uint64_t offset, uint32_t len,
				   uint64_t id, bool reads, bool small)
{
	struct shm_qp *qp = (struct shm_qp *)fixed->qp;
	const struct shm_fixed *known = known_of(fixed);
	struct area_busy *busy = &qp->conn.mine->busy;
	uint8_t *local = known->local + offset, *remote = known->remote + offset;

	if (unlikely(!is_good(qp, known, offset, len)))
		return post_other(fixed, offset, len, id);
	shm_busy_begin(&busy->posting);
	/* Pairs with the release in put_in_force(). */
	if (unlikely(!shm_peer_open(&qp->conn) ||
		     __atomic_load_n(known->grant, __ATOMIC_ACQUIRE) != known->word)) {
		shm_busy_end(&busy->posting);
		return post_other(fixed, offset, len, id);
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

static no_inline int post_long(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	if (unlikely(len - 1 >= PLAIN_LEN))
		return post_fixed_any(fixed, offset, len, id);
	return fixed->wr.op == GN_OP_READ ? post_known(fixed, offset, len, id, true, false) :
					    post_known(fixed, offset, len, id, false, false);
}

int shm_post_fixed_write(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	if (unlikely(len - 1 >= COPY_SMALL || (offset | len) & 7))
		return post_long(fixed, offset, len, id);
	return post_known(fixed, offset, len, id, false, true);
}

int shm_post_fixed_read(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id)
{
	if (unlikely(len - 1 >= COPY_SMALL || (offset | len) & 7))
		return post_long(fixed, offset, len, id);
	return post_known(fixed, offset, len, id, true, true);
}
