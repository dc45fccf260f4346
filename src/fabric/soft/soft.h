/* SPDX-License-Identifier: MIT */
/*
 * What providers that move bytes by software share: keys, completion rings, queues of requests,
 * gather and scatter. Owned like the objects they serve: keys by any thread, the rest by the qp's
 * or cq's owner.
 */
#ifndef GN_SOFT_SOFT_H
#define GN_SOFT_SOFT_H

#include "fabric/fabric.h"

/*
 * ---- keys (keys.c): 16 bits of index, 16 random bits, never 0. Indices are unique in a fabric.
 * ----
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
	uint32_t fresh;		/* indices from here on were never used */
	uint16_t *free;		/* ring of freed indices: the longest unused comes first */
	uint32_t free_head, free_tail;
	uint64_t removed; /* keys, so far; atomic: while it stays as it is, so do all keys */
};

int soft_keys_init(struct soft_keys *keys);
void soft_keys_fini(struct soft_keys *keys);
/* Reserve a key for mr (sets lkey and rkey) and put it in force. */
int soft_key_add(struct soft_keys *keys, struct gn_mr *mr);
void soft_key_remove(struct soft_keys *keys, const struct gn_mr *mr);

static inline uint32_t soft_key_index(uint32_t key)
{
	return key >> 16;
}

/* The entry in force under key in pd, or NULL. */
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
	/* While a poll looks for work, what it finds goes straight to the poller. */
	struct gn_wc *direct;
	int n_direct, direct_room;
};

int soft_cq_init(struct soft_cq *cq);
void soft_cq_fini(struct soft_cq *cq);
/*
 * False when it is full: the cq is overrun, which has been told; the provider puts its qps in
 * error.
 */
bool soft_cq_push_slow(struct soft_cq *cq, const struct gn_wc *wc, bool solicited);
int soft_cq_poll(struct soft_cq *cq, struct gn_wc *wc, int n);
/* Drop what a qp that is going away left unpolled. */
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
 * Field by field, which volatile insists on: a load wider than the stores before it waits until
 * they have left the core's store buffer, and what is polled has often just been pushed.
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

/* The oldest completion of a ring that has one. */
static inline void soft_cq_pop(struct soft_cq *cq, struct gn_wc *to)
{
	soft_copy_wc(to, &cq->ring[cq->tail++ & cq->mask]);
}

/* There is room; and a poll, if one is looking, has not got all it asked for yet. */
static inline bool soft_cq_wants(const struct soft_cq *cq)
{
	return !soft_cq_full(cq) && (cq->n_direct < cq->direct_room || !cq->direct_room);
}

/* Where the next completion can go straight to a poller, or NULL. */
static inline struct gn_wc *soft_cq_direct(struct soft_cq *cq)
{
	return likely(cq->n_direct < cq->direct_room && soft_cq_empty(cq) &&
		      cq->armed == SOFT_UNARMED) ?
		       &cq->direct[cq->n_direct++] :
		       NULL;
}

/*
 * The next place in the ring, taken: fill it. NULL when the ring is full or somebody has to be
 * told, which is soft_cq_push_slow()'s.
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
	struct gn_sge *sge; /* max_recv_sge to an entry */
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

/* Posted sends that could not be done at once, by position. Inline payload is copied in. */
struct soft_sq {
	struct gn_wr *wr;
	struct gn_sge *sge; /* max_send_sge to an entry */
	uint8_t *inlined;   /* max_inline to an entry */
	uint32_t mask, max_sge, max_inline;
	uint64_t head, tail;
};

int soft_sq_init(struct soft_sq *sq, uint32_t max_wr, uint32_t max_sge, uint32_t max_inline);
void soft_sq_fini(struct soft_sq *sq);
/* Keep a copy of wr, which has this position (positions only grow). */
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

/* The piece lies in a region of pd that has the rights. */
static inline bool soft_piece_ok(const struct soft_key *keys, const struct gn_pd *pd,
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

/* Every piece lies in a region of pd that has the rights. */
static inline bool soft_sge_ok(const struct soft_key *keys, const struct gn_pd *pd,
			       const struct gn_sge *sge, uint32_t n, uint32_t access)
{
	for (uint32_t i = 0; i < n; i++)
		if (unlikely(!soft_piece_ok(keys, pd, &sge[i], access)))
			return false;
	return true;
}

/* len bytes from offset on of the concatenated pieces to dst, and the other way round. */
void soft_gather(uint8_t *dst, const struct gn_sge *sge, uint32_t n, uint64_t offset, uint64_t len);
void soft_scatter(const struct gn_sge *sge, uint32_t n, uint64_t offset, const uint8_t *src,
		  uint64_t len);
/* Like them, as a WRITE or READ promises to: in address order, head first. */
void soft_write(uint8_t *dst, const struct gn_sge *sge, uint32_t n);
void soft_read(const struct gn_sge *sge, uint32_t n, const uint8_t *src);

#endif
