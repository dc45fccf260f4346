/* SPDX-License-Identifier: MIT */
/*
 * Posting. A request is done at once, in the caller's time: one-sided operations are copies to and
 * from the peer's memory after a look into its table of grants. What has to wait for the peer waits
 * in a queue, with everything posted behind it, and goes on when its cq is polled.
 */
#include "fabric/shm/shm.h"

#include "fabric/soft/copy.h"

#define FETCH_US 50000 /* for memory that a grant names and that is not here yet */

/*
 * Odd while we may be copying under the peer's keys. Begun by the first one-sided request of a
 * post: messages need no grant, and the fence would hold them up. Pairs with the fences in
 * shm_peers_quiet(): once a teardown has cleared a grant or closed the connection, we
 * either see that or are seen as busy until we are done.
 */
static inline void busy_begin(struct shm_conn *c)
{
	if (c->busy)
		return;
	c->busy = true;
	__atomic_store_n(&c->mine->busy.posting, c->mine->busy.posting + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void busy_end(struct shm_conn *c)
{
	if (!c->busy)
		return;
	c->busy = false;
	__atomic_store_n(&c->mine->busy.posting, c->mine->busy.posting + 1, __ATOMIC_RELEASE);
}

static inline bool peer_open(const struct shm_conn *c)
{
	return likely(__atomic_load_n(&c->peer->mood.state, __ATOMIC_RELAXED) == AREA_OPEN);
}

/*
 * A grant may name memory that is still on its way through the control socket. It was sent before
 * the grant was in force, or is being sent right behind the handshake: wait a moment for it. A peer
 * that never sends it costs us that moment once, for the request fails and the qp with it.
 */
static no_inline void fetch_mem(struct shm_qp *qp, uint64_t id, struct peer_view *view)
{
	const struct shm_map *map = shm_peer_mem(&qp->conn, id);
	const uint64_t deadline_ns = map ? 0 : gn_deadline_us(FETCH_US);

	while (!map && !qp->conn.peer_ended) {
		const bool more = shm_conn_pump(qp);

		map = shm_peer_mem(&qp->conn, id);
		if (!map && gn_now_ns() >= deadline_ns)
			break;
		if (!map && !more)
			gn_yield();
	}
	*view = (struct peer_view){.id = 0};
	if (map)
		*view = (struct peer_view){
			.id = id,
			.addr = map->addr,
			.readable = map->size,
			.writable = map->writable ? map->size : 0,
		};
}

/* Where the peer's bytes are, at least one, or NULL when the peer does not allow it. */
static force_inline uint8_t *find_remote(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len,
					 uint32_t access)
{
	struct peer_view *view;
	const uint32_t key = wr->to.remote.key;
	const struct grant *g = &qp->conn.grants[soft_key_index(key)];
	const uint64_t offset = wr->to.remote.offset, end = offset + len;
	uint64_t base, mem_id, size;

	/* Pairs with the release in put_in_force(). */
	if (unlikely(!key || __atomic_load_n(&g->key, __ATOMIC_ACQUIRE) != key))
		return NULL;
	/*
	 * The table is the peer's to scribble on: each value is read once, and checked against the
	 * mapping.
	 */
	base = __atomic_load_n(&g->base, __ATOMIC_RELAXED);
	if (unlikely((__atomic_load_n(&g->access, __ATOMIC_RELAXED) & access) != access))
		return NULL;
	if (unlikely(end < len || end > __atomic_load_n(&g->length, __ATOMIC_RELAXED)))
		return NULL;
	mem_id = __atomic_load_n(&g->mem_id, __ATOMIC_RELAXED);
	view = &qp->conn.views[mem_id % SHM_VIEWS];
	if (unlikely(mem_id != view->id))
		fetch_mem(qp, mem_id, view);
	size = access == GN_REMOTE_READ ? view->readable : view->writable;
	if (unlikely(base > size || end > size - base))
		return NULL;
	return view->addr + base + offset;
}

static enum gn_wc_status do_atomic(struct shm_qp *qp, const struct gn_wr *wr)
{
	uint8_t *remote = find_remote(qp, wr, 8, GN_REMOTE_ATOMIC);
	uint64_t old = wr->to.remote.compare;

	if (!remote)
		return GN_WC_REMOTE_ACCESS;
	if ((uintptr_t)remote % 8)
		return GN_WC_REMOTE_INVALID;
	if (wr->op == GN_OP_CAS)
		__atomic_compare_exchange_n((copy_u64 *)remote, &old, wr->to.remote.swap, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else
		old = __atomic_fetch_add((copy_u64 *)remote, wr->to.remote.compare,
					 __ATOMIC_SEQ_CST);
	soft_scatter(wr->sge, wr->n_sge, 0, (const uint8_t *)&old, sizeof(old));
	return GN_WC_OK;
}

/* WRITE, READ, CAS, FAA, and the payload of WRITE_IMM. */
static enum gn_wc_status do_one_sided(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	uint8_t *remote;

	if (wr->op == GN_OP_CAS || wr->op == GN_OP_FAA)
		return do_atomic(qp, wr);
	if (!len)
		return GN_WC_OK;
	remote = find_remote(qp, wr, len, wr->op == GN_OP_READ ? GN_REMOTE_READ : GN_REMOTE_WRITE);
	if (unlikely(!remote))
		return GN_WC_REMOTE_ACCESS;
	if (wr->op == GN_OP_READ)
		soft_read(wr->sge, wr->n_sge, remote);
	else
		soft_write(remote, wr->sge, wr->n_sge);
	return GN_WC_OK;
}

static bool local_ok(const struct shm_qp *qp, const struct gn_wr *wr)
{
	const bool stores = wr->op == GN_OP_READ || wr->op == GN_OP_CAS || wr->op == GN_OP_FAA;

	return wr->flags & GN_INLINE || soft_sge_ok(&shm_of(&qp->qp.obj)->keys, qp->qp.pd, wr->sge,
						    wr->n_sge, stores ? GN_LOCAL_WRITE : 0);
}

/* One request: done, failed with *status, or it has to wait. */
static enum send_result execute(struct shm_qp *qp, const struct gn_wr *wr,
				enum gn_wc_status *status)
{
	const uint64_t len = soft_sge_len(wr->sge, wr->n_sge);
	const bool message = wr->op == GN_OP_SEND || wr->op == GN_OP_SEND_IMM;
	enum send_result result;

	if (unlikely(!local_ok(qp, wr))) {
		*status = GN_WC_LOCAL_ACCESS;
		return SEND_FAILED;
	}
	if (unlikely(qp->ud)) {
		*status = shm_ud_send(qp, wr);
		return *status == GN_WC_OK ? SEND_DONE : SEND_FAILED;
	}
	if (!message)
		busy_begin(&qp->conn);
	if (!peer_open(&qp->conn)) {
		*status = GN_WC_RETRY;
		return SEND_FAILED;
	}
	/* A WRITE_IMM that waits for a receive has written its payload already. */
	if (!message && !qp->conn.payload_done) {
		*status = do_one_sided(qp, wr, len);
		if (unlikely(*status != GN_WC_OK))
			return SEND_FAILED;
	}
	if (message)
		return shm_send(qp, wr, status);
	if (wr->op != GN_OP_WRITE_IMM)
		return SEND_DONE;
	result = shm_send(qp, wr, status);
	qp->conn.payload_done = result == SEND_BLOCKED;
	return result;
}

static void complete(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position,
		     enum gn_wc_status status)
{
	const bool reads = wr->op == GN_OP_READ || wr->op == GN_OP_CAS || wr->op == GN_OP_FAA;
	const struct gn_wc wc = {.id = position,
				 .qp = &qp->qp,
				 .status = status,
				 .op = wr->op,
				 .len_bytes = reads ? (uint32_t)soft_sge_len(wr->sge, wr->n_sge) :
						      0};

	shm_complete((struct shm_cq *)qp->qp.send_cq, &wc, false);
}

/* Execute and complete: false when it has to wait. A failure takes the qp along. */
static bool step(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position)
{
	enum gn_wc_status status = GN_WC_OK;

	switch (execute(qp, wr, &status)) {
	case SEND_BLOCKED:
		return false;
	case SEND_FAILED:
		complete(qp, wr, position, status);
		if (!soft_sq_empty(&qp->sq)) /* it was the first of those that wait */
			qp->sq.tail = position + 1;
		shm_qp_fail(qp);
		return true;
	default:
		if (wr->flags & GN_SIGNALED)
			complete(qp, wr, position, GN_WC_OK);
		return true;
	}
}

/* The completion of a WRITE or READ of one piece that was done. */
static inline void complete_short(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position)
{
	struct gn_wc *wc = soft_cq_take((struct soft_cq *)qp->qp.send_cq);

	if (unlikely(!wc)) {
		complete(qp, wr, position, GN_WC_OK);
		return;
	}
	*wc = (struct gn_wc){.id = position,
			     .qp = &qp->qp,
			     .status = GN_WC_OK,
			     .op = wr->op,
			     .len_bytes = wr->op == GN_OP_READ ? wr->sge->len_bytes : 0};
}

/* A WRITE or READ of one piece that is not empty, while we are busy: done, or nothing was. */
static force_inline bool access_short(struct shm_qp *qp, const struct gn_wr *wr, void *local,
				      uint32_t len, bool reads)
{
	uint8_t *remote;

	if (unlikely(!peer_open(&qp->conn)))
		return false;
	remote = find_remote(qp, wr, len, reads ? GN_REMOTE_READ : GN_REMOTE_WRITE);
	if (unlikely(!remote))
		return false;
	if (reads)
		copy_fetch(local, remote, len);
	else
		copy_publish(remote, local, len);
	return true;
}

/* Our own end of it is in order. */
static force_inline bool local_short(const struct shm_qp *qp, const struct soft_keys *keys,
				     const struct gn_wr *wr, bool reads)
{
	return (!reads && wr->flags & GN_INLINE) ||
	       likely(soft_piece_ok(keys, qp->qp.pd, wr->sge, reads ? GN_LOCAL_WRITE : 0));
}

/*
 * The short way for what most requests are: a WRITE or READ of one piece, or a short SEND that
 * nobody wants to hear of. Does it and returns true, or leaves it, with whatever may be wrong with
 * it, to step(). Nothing needs a fence here, where everything before it is done.
 */
static inline bool step_short(struct shm_qp *qp, const struct soft_keys *keys,
			      const struct gn_wr *wr, uint64_t position)
{
	const struct gn_sge *sge = wr->sge;

	if (wr->op == GN_OP_SEND)
		return wr->n_sge == 1 && sge->len_bytes <= SLOT_INLINE &&
		       !(wr->flags & (GN_SOLICITED | GN_SIGNALED)) && peer_open(&qp->conn) &&
		       (wr->flags & GN_INLINE || soft_piece_ok(keys, qp->qp.pd, sge, 0)) &&
		       shm_send_short(qp, wr);
	if (unlikely(wr->op > GN_OP_READ || wr->n_sge != 1 || !sge->len_bytes))
		return false;
	if (unlikely(!local_short(qp, keys, wr, wr->op == GN_OP_READ)))
		return false;
	busy_begin(&qp->conn);
	if (unlikely(!access_short(qp, wr, sge->addr, sge->len_bytes, wr->op == GN_OP_READ)))
		return false;
	if (wr->flags & GN_SIGNALED)
		complete_short(qp, wr, position);
	return true;
}

/* A chain, as far as it goes at once. Returns what is left of it. */
static inline unsigned run_chain(struct shm_qp *qp, const struct gn_wr **first, unsigned n,
				 uint64_t *position)
{
	const struct soft_keys *keys = &shm_of(&qp->qp.obj)->keys;
	const struct gn_wr *wr = *first;
	uint64_t at = *position;

	for (; n; n--, wr = wr->next, at++) {
		/* A failure flushes what comes behind it. */
		if (unlikely(qp->qp.state == GN_QP_ERROR))
			break;
		if (unlikely(!step_short(qp, keys, wr, at) && !step(qp, wr, at)))
			break;
	}
	busy_end(&qp->conn);
	*first = wr;
	*position = at;
	return n;
}

static unsigned run_datagrams(struct shm_qp *qp, const struct gn_wr **wr, unsigned n,
			      uint64_t *position)
{
	while (n && qp->qp.state != GN_QP_ERROR && step(qp, *wr, *position)) {
		*wr = (*wr)->next;
		++*position;
		n--;
	}
	return n;
}

static void flush_rest(struct shm_qp *qp, const struct gn_wr *wr, unsigned n, uint64_t position)
{
	for (; n; n--, wr = wr->next)
		complete(qp, wr, position++, GN_WC_FLUSHED);
}

/* One for WRITEs and one for READs, so that neither asks what it is. */
static force_inline bool post_plain(struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	const struct gn_sge *sge = wr->sge;
	bool did;

	if (unlikely(!local_short(qp, &shm_of(&qp->qp.obj)->keys, wr, reads)))
		return false;
	busy_begin(&qp->conn);
	did = access_short(qp, wr, sge->addr, sge->len_bytes, reads);
	busy_end(&qp->conn);
	if (likely(did) && wr->flags & GN_SIGNALED)
		complete_short(qp, wr, qp->qp.sq_head);
	return did;
}

bool shm_post_plain(struct gn_qp *base, const struct gn_wr *wr)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	if (unlikely(base->state != GN_QP_READY || !soft_sq_empty(&qp->sq)))
		return false;
	return wr->op == GN_OP_READ ? post_plain(qp, wr, true) : post_plain(qp, wr, false);
}

/* What could not be done at once waits in the queue, or is flushed with a qp that is in error. */
static no_inline void post_rest(struct shm_qp *qp, const struct gn_wr *wr, unsigned n,
				uint64_t position)
{
	struct shm_cq *cq = (struct shm_cq *)qp->qp.send_cq;

	if (qp->qp.state == GN_QP_ERROR) {
		flush_rest(qp, wr, n, position);
		return;
	}
	if (soft_sq_empty(&qp->sq))
		shm_rx_add(&qp->rx_send, cq, shm_progress_sends);
	for (; n; n--, wr = wr->next)
		soft_sq_push(&qp->sq, wr, position++);
	if (cq->soft.armed != SOFT_UNARMED)
		shm_cq_blocked(cq, qp);
}

unsigned shm_post_send(struct gn_qp *base, const struct gn_wr *wr, unsigned n)
{
	struct shm_qp *qp = (struct shm_qp *)base;
	uint64_t position = base->sq_head;
	unsigned left = n;

	if (likely(soft_sq_empty(&qp->sq)))
		left = likely(!qp->ud) ? run_chain(qp, &wr, n, &position) :
					 run_datagrams(qp, &wr, n, &position);
	if (unlikely(left))
		post_rest(qp, wr, left, position);
	return n;
}

bool shm_progress_sends(struct shm_rx *rx)
{
	struct shm_qp *qp = container_of(rx, struct shm_qp, rx_send);
	bool did = false;

	if (soft_sq_empty(&qp->sq) || soft_cq_full((struct soft_cq *)qp->qp.send_cq))
		return false;
	while (!soft_sq_empty(&qp->sq) && !soft_cq_full((struct soft_cq *)qp->qp.send_cq)) {
		const uint64_t position = qp->sq.tail;
		const uint64_t moved = qp->conn.tx_slot;

		if (!step(qp, soft_sq_first(&qp->sq), position)) {
			did |= qp->conn.tx_slot != moved;
			break;
		}
		did = true;
		if (qp->qp.state == GN_QP_ERROR)
			break;
		qp->sq.tail = position + 1;
	}
	busy_end(&qp->conn);
	if (soft_sq_empty(&qp->sq)) {
		shm_rx_del(rx);
		if (qp->conn.mine)
			__atomic_store_n(&qp->conn.mine->mood.tx_waiting, 0, __ATOMIC_RELAXED);
	}
	return did;
}

unsigned shm_post_recv(struct gn_qp *base, const struct gn_recv_wr *wr, unsigned n)
{
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_conn *c = &qp->conn;

	if (unlikely(qp->ud && soft_rq_empty(&qp->rq)))
		shm_ud_drop_stale(qp);
	for (unsigned i = 0; i < n; i++, wr = wr->next) {
		if (c->mine)
			shm_conn_publish_recv(c, qp->rq.head,
					      (uint32_t)soft_sge_len(wr->sge, wr->n_sge));
		soft_rq_post(&qp->rq, wr);
	}
	if (unlikely(base->state == GN_QP_ERROR)) {
		struct gn_wc wc = {.qp = base, .status = GN_WC_FLUSHED, .op = GN_OP_RECV};

		for (; !soft_rq_empty(&qp->rq); qp->rq.tail++) {
			wc.id = qp->rq.tail;
			shm_complete((struct shm_cq *)base->recv_cq, &wc, false);
		}
	} else if (c->mine) {
		/* Pairs with the acquire in the sender's has_credit(). */
		__atomic_store_n(&c->mine->credit.posted, qp->rq.head, __ATOMIC_RELEASE);
		if (c->peer)
			shm_wake_sender(c);
	}
	return n;
}
