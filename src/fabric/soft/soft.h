/* SPDX-License-Identifier: MIT */
/*
 * Shared by the providers that move bytes in software: keys, completion rings, request queues,
 * gather and scatter. Any thread may use the keys; the owner of the qp or cq uses the rest.
 */
#ifndef GN_SOFT_SOFT_H
#define GN_SOFT_SOFT_H

#include "fabric/fabric.h"

/*
 * ---- keys (keys.c): 16-bit index, 16 random bits, never 0. Indices are unique in a fabric. ----
 */

#define SOFT_KEYS 65536u

struct soft_key {
	uint32_t key; /* 0: free; stored last with release, cleared first */
	uint32_t access;
	const struct gn_pd *pd;
	uint8_t *addr;
	uint64_t length;
};

struct soft_keys {
	struct gn_mutex lock;
	struct soft_key *table; /* SOFT_KEYS */
	uint32_t fresh;		/* indices from here on are unused */
	uint16_t *free;		/* ring of freed indices, longest unused first */
	uint32_t free_head, free_tail;
	/* atomic: number of removed keys; while it is unchanged, all keys are valid */
	uint64_t removed;
};

int soft_keys_init(struct soft_keys *keys);
void soft_keys_fini(struct soft_keys *keys);
/* Allocates and enables a key for mr (sets lkey and rkey). */
int soft_key_add(struct soft_keys *keys, struct gn_mr *mr);
void soft_key_remove(struct soft_keys *keys, const struct gn_mr *mr);

static inline uint32_t soft_key_index(uint32_t key)
{
	return key >> 16;
}

/* Returns the enabled entry of key in pd, or NULL. */
static inline const struct soft_key *soft_key_find(const struct soft_key *table, uint32_t key,
						   const struct gn_pd *pd)
{
	const struct soft_key *k = &table[soft_key_index(key)];

	/* Pairs with the release in soft_key_add(). */
	if (likely(__atomic_load_n(&k->key, __ATOMIC_ACQUIRE) == key && k->pd == pd))
		return k;
	return NULL;
}

/* ---- completion ring (cq.c) ---- */

enum soft_armed { SOFT_UNARMED, SOFT_ARMED, SOFT_ARMED_SOLICITED };

struct soft_cq {
	struct gn_cq cq;
	struct gn_wc *ring;
	uint32_t mask;
	uint64_t head, tail; /* pushed, polled */
	enum soft_armed armed;
	/* While a poll runs, new completions go directly into its array. */
	struct gn_wc *direct;
	int n_direct, direct_room;
};

int soft_cq_init(struct soft_cq *cq);
void soft_cq_fini(struct soft_cq *cq);
/* False: the cq is full and overrun, which was reported; the provider must put its qps in error. */
bool soft_cq_push_slow(struct soft_cq *cq, const struct gn_wc *wc, bool solicited);
int soft_cq_poll(struct soft_cq *cq, struct gn_wc *wc, int n);
/* Drops the unpolled completions of a qp that is being destroyed. */
void soft_cq_purge(struct soft_cq *cq, const struct gn_qp *qp);

static inline bool soft_cq_empty(const struct soft_cq *cq)
{
	return cq->head == cq->tail;
}
static inline bool soft_cq_full(const struct soft_cq *cq)
{
	return cq->head - cq->tail == cq->cq.depth;
}

/*
 * Copies field by field (volatile prevents wider moves): a load wider than the preceding stores
 * stalls until the store buffer has drained, and a polled completion was often pushed just before.
 */
static inline void soft_copy_wc(struct gn_wc *to, const volatile struct gn_wc *from)
{
	to->id = from->id;
	to->qp = from->qp;
	to->status = from->status;
	to->op = from->op;
	to->len_bytes = from->len_bytes;
	to->imm = from->imm;
	to->flags = from->flags;
	to->src_qpn = from->src_qpn;
	to->src_lid = from->src_lid;
	to->vendor = from->vendor;
}

/* Pops the oldest completion; the ring must not be empty. */
static inline void soft_cq_pop(struct soft_cq *cq, struct gn_wc *to)
{
	soft_copy_wc(to, &cq->ring[cq->tail++ & cq->mask]);
}

/* Is there space, in the running poll's array or in the ring? */
static inline bool soft_cq_wants(const struct soft_cq *cq)
{
	return !soft_cq_full(cq) && (cq->n_direct < cq->direct_room || !cq->direct_room);
}

/* Returns the next entry of a running poll's array, or NULL. */
static inline struct gn_wc *soft_cq_direct(struct soft_cq *cq)
{
	return likely(cq->n_direct < cq->direct_room && soft_cq_empty(cq) &&
		      cq->armed == SOFT_UNARMED) ?
		       &cq->direct[cq->n_direct++] :
		       NULL;
}

/*
 * Reserves the next ring entry for the caller to fill. NULL: the ring is full, or an event must be
 * raised; use soft_cq_push_slow().
 */
static inline struct gn_wc *soft_cq_take(struct soft_cq *cq)
{
	if (unlikely(soft_cq_full(cq) || cq->armed != SOFT_UNARMED || cq->cq.source.waiters))
		return NULL;
	return &cq->ring[cq->head++ & cq->mask];
}

static inline bool soft_cq_push(struct soft_cq *cq, const struct gn_wc *wc, bool solicited)
{
	struct gn_wc *direct = soft_cq_direct(cq);

	if (unlikely(!direct))
		return soft_cq_push_slow(cq, wc, solicited);
	*direct = *wc;
	return true;
}

/* ---- requests (queue.c) ---- */

/* Posted receives, by position. */
struct soft_rq {
	struct gn_sge *sge; /* max_recv_sge per entry */
	uint32_t *n_sge, *len_bytes;
	uint32_t mask, max_sge;
	uint64_t head, tail; /* posted, consumed */
};

int soft_rq_init(struct soft_rq *rq, uint32_t max_wr, uint32_t max_sge);
void soft_rq_fini(struct soft_rq *rq);
void soft_rq_post(struct soft_rq *rq, const struct gn_recv_wr *wr);

static inline bool soft_rq_empty(const struct soft_rq *rq)
{
	return rq->head == rq->tail;
}
static inline uint32_t soft_rq_len(const struct soft_rq *rq)
{
	return rq->len_bytes[rq->tail & rq->mask];
}
static inline const struct gn_sge *soft_rq_sge(const struct soft_rq *rq)
{
	return &rq->sge[(rq->tail & rq->mask) * rq->max_sge];
}
static inline uint32_t soft_rq_n_sge(const struct soft_rq *rq)
{
	return rq->n_sge[rq->tail & rq->mask];
}

/* Sends that could not be executed at once, by position. Inline payload is copied. */
struct soft_sq {
	struct gn_wr *wr;
	struct gn_sge *sge; /* max_send_sge per entry */
	uint8_t *inlined;   /* max_inline per entry */
	uint32_t mask, max_sge, max_inline;
	uint64_t head, tail;
};

int soft_sq_init(struct soft_sq *sq, uint32_t max_wr, uint32_t max_sge, uint32_t max_inline);
void soft_sq_fini(struct soft_sq *sq);
/* Queues a copy of wr at this position; positions only grow. */
void soft_sq_push(struct soft_sq *sq, const struct gn_wr *wr, uint64_t position);

static inline bool soft_sq_empty(const struct soft_sq *sq)
{
	return sq->head == sq->tail;
}
static inline const struct gn_wr *soft_sq_first(const struct soft_sq *sq)
{
	return &sq->wr[sq->tail & sq->mask];
}

/* ---- gather and scatter (sge.c) ---- */

static inline uint64_t soft_sge_len(const struct gn_sge *sge, uint32_t n)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < n; i++)
		len += sge[i].len_bytes;
	return len;
}

/* Is the SGE inside a region of pd with these rights? */
static inline bool soft_one_sge_ok(const struct soft_key *keys, const struct gn_pd *pd,
				   const struct gn_sge *sge, uint32_t access)
{
	const uint32_t len = sge->len_bytes;
	const struct soft_key *k = soft_key_find(keys, sge->lkey, pd);
	uint64_t at, end;

	if (unlikely(!k || (k->access & access) != access))
		return !len;
	at = (uint64_t)((uintptr_t)sge->addr - (uintptr_t)k->addr);
	end = at + len;
	return likely(end >= at && end <= k->length) || !len;
}

/* Is every SGE inside a region of pd with these rights? */
static inline bool soft_sge_ok(const struct soft_key *keys, const struct gn_pd *pd,
			       const struct gn_sge *sge, uint32_t n, uint32_t access)
{
	for (uint32_t i = 0; i < n; i++)
		if (unlikely(!soft_one_sge_ok(keys, pd, &sge[i], access)))
			return false;
	return true;
}

/* Copies len bytes, from offset in the SGE list, to dst, or back. */
void soft_gather(uint8_t *dst, const struct gn_sge *sge, uint32_t n, uint64_t offset, uint64_t len);
void soft_scatter(const struct gn_sge *sge, uint32_t n, uint64_t offset, const uint8_t *src,
		  uint64_t len);
/* Gather and scatter in address order, as WRITE and READ guarantee. */
void soft_write(uint8_t *dst, const struct gn_sge *sge, uint32_t n);
void soft_read(const struct gn_sge *sge, uint32_t n, const uint8_t *src);

#endif
