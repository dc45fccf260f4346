/* SPDX-License-Identifier: MIT */
/*
 * Posting. A request is executed during the post: one-sided operations are copies to and from the
 * peer's memory after a check of its grants. A blocked request waits in a queue, with all requests
 * behind it, and continues when its cq is polled.
 */
#include "fabric/shm/access.h"

#include "fabric/soft/copy.h"

#define PREFETCH_MIN   1024u /* shorter requests are copied before the prefetch is done */
#define PREFETCH_BYTES 256u
#define PREFETCH_LAST  4096u /* bytes of a long request, copied after the prefetch of the next */

/*
 * Called for the first one-sided request of a post: messages need no grant, and the fence is slow.
 */
static inline void conn_busy_begin(struct shm_conn *c)
{
	if (c->busy)
		return;
	c->busy = true;
	shm_busy_begin(&c->own_area->busy.posting);
}

static inline void conn_busy_end(struct shm_conn *c)
{
	if (!c->busy)
		return;
	c->busy = false;
	shm_busy_end(&c->own_area->busy.posting);
}

/*
 * A grant may refer to a mem that is still in the control socket: read the socket without waiting.
 * A mem that is not there may still arrive only if the peer's area counts more mems than we have.
 */
static const struct peer_mem *peer_mem_fetch(struct shm_qp *qp, uint64_t id)
{
	struct shm_conn *c = &qp->conn;
	const struct peer_mem *mem = shm_peer_mem(c, id);

	if (!mem && !c->peer_ended) {
		const bool more = shm_conn_pump(qp);

		mem = shm_peer_mem(c, id);
		/* Pairs with the release in conn_announce_mems(). */
		c->mem_expected =
			!mem && !c->peer_ended &&
			(more || c->mems_taken < __atomic_load_n(&c->peer->conn_state.mems,
								 __ATOMIC_ACQUIRE));
	}
	if (mem)
		c->mem_wait_since_ns = 0;
	return mem;
}

/*
 * The peer may change its table at any time: every value is loaded once, and the cached range lies
 * within what the peer has sent.
 */
no_inline void shm_view_make(struct shm_qp *qp, uint32_t key)
{
	const struct grant *g = &qp->conn.grants[soft_key_index(key)];
	/* Pairs with the release in grant_publish(). */
	const uint64_t word = __atomic_load_n(&g->word, __ATOMIC_ACQUIRE);
	const uint64_t base = __atomic_load_n(&g->base, __ATOMIC_RELAXED);
	const uint64_t length = __atomic_load_n(&g->length, __ATOMIC_RELAXED);
	const uint64_t mem_id = __atomic_load_n(&g->mem_id, __ATOMIC_RELAXED);
	const uint32_t access = (uint32_t)(word >> 32);
	struct peer_view *view = &qp->conn.views[soft_key_index(key) % SHM_VIEWS];
	const struct peer_mem *mem;
	uint64_t most;

	if (!key || (uint32_t)word != key)
		return;
	mem = access & GRANT_SERVED ? shm_peer_mem(&qp->conn, mem_id) : peer_mem_fetch(qp, mem_id);
	/* Regions start on a page: copies rely on aligned offsets. */
	if (!mem || base > mem->size || base % GN_PAGE)
		return;
	most = length < mem->size - base ? length : mem->size - base;
	*view = (struct peer_view){
		.word = word,
		.addr = mem->map->addr + base,
		.limit = {[VIEW_WRITE] = access & GN_REMOTE_WRITE && mem->writable ? most : 0,
			  [VIEW_READ] = access & GN_REMOTE_READ ? most : 0,
			  [VIEW_ATOMIC] = access & GN_REMOTE_ATOMIC && mem->writable ? most : 0},
	};
}

/* Returns the address of the peer's bytes (at least one), or NULL: not allowed. */
static uint8_t *peer_find_remote(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len,
				 enum view_use use)
{
	const uint32_t key = wr->to.remote.key;
	const uint64_t offset = wr->to.remote.offset;
	uint8_t *remote;

	if (likely(shm_view_find(&qp->conn, key, offset, len, use, &remote)))
		return remote;
	shm_view_make(qp, key);
	return shm_view_find(&qp->conn, key, offset, len, use, &remote) ? remote : NULL;
}

static enum gn_wc_status access_atomic(struct shm_qp *qp, const struct gn_wr *wr)
{
	uint8_t *remote = peer_find_remote(qp, wr, 8, VIEW_ATOMIC);
	uint64_t old;

	if (!remote)
		return GN_WC_REMOTE_ACCESS;
	old = shm_atomic(wr, remote);
	soft_scatter(wr->sge, wr->n_sge, 0, (const uint8_t *)&old, sizeof(old));
	return GN_WC_OK;
}

/*
 * The request needs a mem that has not arrived: false after the timeout. The peer sends its pending
 * mems when it hears that we read the socket.
 */
static bool send_wait_for_mem(struct shm_conn *c)
{
	const uint64_t now = gn_now_ns();

	if (!c->mem_wait_since_ns)
		c->mem_wait_since_ns = now;
	if (c->mem_requested != c->mems_taken + 1) {
		c->mem_requested = c->mems_taken + 1;
		wire_wake(c->sock.fd);
	}
	return now - c->mem_wait_since_ns < SHM_MEM_WAIT_NS;
}

/* WRITE, READ, CAS, FAA, and the payload of WRITE_IMM. */
static enum gn_wc_status access_one_sided(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len)
{
	uint8_t *remote;

	if (wr->op == GN_OP_CAS || wr->op == GN_OP_FAA)
		return access_atomic(qp, wr);
	if (!len)
		return GN_WC_OK;
	remote = peer_find_remote(qp, wr, len, wr->op == GN_OP_READ ? VIEW_READ : VIEW_WRITE);
	if (unlikely(!remote))
		return GN_WC_REMOTE_ACCESS;
	if (wr->op == GN_OP_READ)
		soft_read(wr->sge, wr->n_sge, remote);
	else
		soft_write(remote, wr->sge, wr->n_sge);
	return GN_WC_OK;
}

/* Is the key's region accessible only through requests to its owner? */
static bool peer_serves(const struct shm_qp *qp, uint32_t key)
{
	const uint64_t word =
		__atomic_load_n(&qp->conn.grants[soft_key_index(key)].word, __ATOMIC_RELAXED);

	return key && (uint32_t)word == key && word >> 32 & GRANT_SERVED;
}

/*
 * The request cannot be executed here: the peer may have to execute it, or its mem has not arrived
 * yet.
 */
static no_inline enum send_result access_blocked(struct shm_qp *qp, const struct gn_wr *wr,
						 uint64_t len, enum gn_wc_status *status)
{
	struct shm_conn *c = &qp->conn;

	const bool serves = c->served.active || peer_serves(qp, wr->to.remote.key);

	if (serves && !c->served.result)
		peer_mem_fetch(qp, 0); /* what a request needs comes as mems do */
	if (serves && c->served.result)
		return shm_served_access(qp, wr, len, status);
	return c->mem_expected && send_wait_for_mem(c) ? SEND_BLOCKED : SEND_FAILED;
}

static bool local_sges_ok(const struct shm_qp *qp, const struct gn_wr *wr)
{
	const bool stores = wr->op == GN_OP_READ || wr->op == GN_OP_CAS || wr->op == GN_OP_FAA;

	return wr->flags & GN_INLINE ||
	       soft_sge_ok(qp->keys, qp->qp.pd, wr->sge, wr->n_sge, stores ? GN_LOCAL_WRITE : 0);
}

/* Executes one request: done, failed with *status, or blocked. */
static enum send_result wr_execute(struct shm_qp *qp, const struct gn_wr *wr,
				   enum gn_wc_status *status)
{
	const uint64_t len = soft_sge_len(wr->sge, wr->n_sge);
	const bool message = wr->op == GN_OP_SEND || wr->op == GN_OP_SEND_IMM;
	enum send_result result;

	if (unlikely(!local_sges_ok(qp, wr))) {
		*status = GN_WC_LOCAL_ACCESS;
		return SEND_FAILED;
	}
	if (unlikely(qp->ud)) {
		*status = shm_ud_send(qp, wr);
		return *status == GN_WC_OK ? SEND_DONE : SEND_FAILED;
	}
	if (!message)
		conn_busy_begin(&qp->conn);
	if (!shm_peer_open(&qp->conn)) {
		*status = GN_WC_RETRY;
		return SEND_FAILED;
	}
	/* A WRITE_IMM that waits for a receive has already written its payload. */
	if (!message && !qp->conn.payload_done) {
		qp->conn.mem_expected = false;
		*status = unlikely(qp->conn.served.active) ? GN_WC_REMOTE_ACCESS :
							     access_one_sided(qp, wr, len);
		if (unlikely(*status != GN_WC_OK)) {
			result = access_blocked(qp, wr, len, status);
			if (result != SEND_DONE)
				return result;
		}
	}
	if (message)
		return shm_send(qp, wr, status);
	if (wr->op != GN_OP_WRITE_IMM)
		return SEND_DONE;
	result = shm_send(qp, wr, status);
	qp->conn.payload_done = result == SEND_BLOCKED;
	return result;
}

static void wr_complete(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position,
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

/* Executes and completes a request; false: blocked. A failure puts the qp in error. */
static bool wr_step(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position)
{
	enum gn_wc_status status = GN_WC_OK;

	switch (wr_execute(qp, wr, &status)) {
	case SEND_BLOCKED:
		return false;
	case SEND_FAILED:
		wr_complete(qp, wr, position, status);
		if (!soft_sq_empty(&qp->sq)) /* it was the first blocked one */
			qp->sq.tail = position + 1;
		shm_qp_fail(qp);
		return true;
	default:
		if (wr->flags & GN_SIGNALED)
			wr_complete(qp, wr, position, GN_WC_OK);
		return true;
	}
}

/* Completes an executed WRITE or READ with one SGE. */
static inline void wr_complete_short(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position)
{
	struct gn_wc *wc = soft_cq_take((struct soft_cq *)qp->qp.send_cq);

	if (unlikely(!wc)) {
		wr_complete(qp, wr, position, GN_WC_OK);
		return;
	}
	*wc = (struct gn_wc){.id = position,
			     .qp = &qp->qp,
			     .status = GN_WC_OK,
			     .op = wr->op,
			     .len_bytes = wr->op == GN_OP_READ ? wr->sge->len_bytes : 0};
}

/*
 * While a long request is copied, loads the translation and the first lines of the peer's bytes of
 * the next one, if that is a long READ or WRITE. The processor's prefetcher continues after them. A
 * hint only: the next request may be one that chain_check() refuses, and its view may be outdated.
 */
static force_inline void chain_prefetch(const struct shm_conn *c, const struct gn_wr *next)
{
	const struct peer_view *view;
	bool reads;

	if (next->op > GN_OP_READ || !next->n_sge || !next->sge ||
	    next->sge->len_bytes < PREFETCH_MIN)
		return;
	reads = next->op == GN_OP_READ;
	view = &c->views[soft_key_index(next->to.remote.key) % SHM_VIEWS];
	if (unlikely(next->to.remote.offset >= view->limit[reads ? VIEW_READ : VIEW_WRITE]))
		return;
	if (reads)
		prefetch_lines(view->addr + next->to.remote.offset, PREFETCH_BYTES);
	else
		prefetch_lines_to_write(view->addr + next->to.remote.offset, PREFETCH_BYTES);
}

static force_inline void copy_remote(uint8_t *remote, uint8_t *local, uint32_t len, bool reads)
{
	if (reads)
		copy_fetch(local, remote, len);
	else
		copy_publish(remote, local, len);
}

/* Copies a non-empty WRITE or READ with one SGE while busy, or does nothing and returns false. */
static force_inline bool access_short(struct shm_qp *qp, const struct gn_wr *wr, uint8_t *local,
				      uint32_t len, bool reads)
{
	uint8_t *remote;

	if (unlikely(!shm_peer_open(&qp->conn)))
		return false;
	if (unlikely(!shm_view_find(&qp->conn, wr->to.remote.key, wr->to.remote.offset, len,
				    reads ? VIEW_READ : VIEW_WRITE, &remote)))
		return false;
	if (len >= PREFETCH_MIN && wr->next) {
		if (len > PREFETCH_LAST + GN_CACHELINE) {
			/* Not earlier: the copy would displace prefetched lines. In whole lines. */
			const uint32_t most = len - PREFETCH_LAST -
					      (uint32_t)((uintptr_t)(remote + len) % GN_CACHELINE);

			copy_remote(remote, local, most, reads);
			remote += most;
			local += most;
			len -= most;
		}
		chain_prefetch(&qp->conn, wr->next);
	}
	copy_remote(remote, local, len, reads);
	return true;
}

/* Is the local SGE valid? */
static force_inline bool local_sge_ok(const struct shm_qp *qp, const struct gn_wr *wr, bool reads)
{
	return (!reads && wr->flags & GN_INLINE) ||
	       likely(soft_one_sge_ok(qp->keys, qp->qp.pd, wr->sge, reads ? GN_LOCAL_WRITE : 0));
}

/*
 * Fast path for common requests: a WRITE or READ with one SGE, or a short unsignaled SEND. Executes
 * it and returns true, or leaves it to wr_step() with all its error handling. No fence is needed,
 * because all earlier requests are complete.
 */
static inline bool wr_step_short(struct shm_qp *qp, const struct gn_wr *wr, uint64_t position)
{
	const struct gn_sge *sge = wr->sge;

	if (wr->op == GN_OP_SEND)
		return wr->n_sge == 1 && sge->len_bytes <= SLOT_INLINE &&
		       !(wr->flags & (GN_SOLICITED | GN_SIGNALED)) && shm_peer_open(&qp->conn) &&
		       (wr->flags & GN_INLINE || soft_one_sge_ok(qp->keys, qp->qp.pd, sge, 0)) &&
		       shm_send_short(qp, wr);
	if (unlikely(wr->op > GN_OP_READ || wr->n_sge != 1 || !sge->len_bytes))
		return false;
	if (unlikely(!local_sge_ok(qp, wr, wr->op == GN_OP_READ)))
		return false;
	conn_busy_begin(&qp->conn);
	if (unlikely(!access_short(qp, wr, sge->addr, sge->len_bytes, wr->op == GN_OP_READ)))
		return false;
	if (wr->flags & GN_SIGNALED)
		wr_complete_short(qp, wr, position);
	return true;
}

/* Executes a chain until a request blocks. Returns the number of remaining requests. */
static inline unsigned chain_execute(struct shm_qp *qp, const struct gn_wr **first, unsigned n,
				     uint64_t *position)
{
	const struct gn_wr *wr = *first;
	uint64_t at = *position;

	for (; n; n--, wr = wr->next, at++) {
		/* A failure flushes all later requests. */
		if (unlikely(qp->qp.state == GN_QP_ERROR))
			break;
		if (unlikely(!wr_step_short(qp, wr, at) && !wr_step(qp, wr, at)))
			break;
	}
	conn_busy_end(&qp->conn);
	*first = wr;
	*position = at;
	return n;
}

/* One fence for the chain: it waits until all stores are visible, which takes long. */
static unsigned chain_send_datagrams(struct shm_qp *qp, const struct gn_wr **first, unsigned n,
				     uint64_t *position)
{
	const struct gn_wr *wr = *first;
	unsigned sent = 0;

	while (sent < n && qp->qp.state != GN_QP_ERROR && wr_step(qp, wr, *position)) {
		wr = wr->next;
		++*position;
		sent++;
	}
	shm_ud_wake(*first, sent);
	*first = wr;
	return n - sent;
}

static void chain_flush_rest(struct shm_qp *qp, const struct gn_wr *wr, unsigned n,
			     uint64_t position)
{
	for (; n; n--, wr = wr->next)
		wr_complete(qp, wr, position++, GN_WC_FLUSHED);
}

/* Queues the blocked request and all behind it, or flushes them if the qp is in error. */
static no_inline void chain_queue_rest(struct shm_qp *qp, const struct gn_wr *wr, unsigned n,
				       uint64_t position)
{
	struct shm_cq *cq = (struct shm_cq *)qp->qp.send_cq;

	if (qp->qp.state == GN_QP_ERROR) {
		chain_flush_rest(qp, wr, n, position);
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
		left = likely(!qp->ud) ? chain_execute(qp, &wr, n, &position) :
					 chain_send_datagrams(qp, &wr, n, &position);
	if (unlikely(left))
		chain_queue_rest(qp, wr, left, position);
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

		if (!wr_step(qp, soft_sq_first(&qp->sq), position)) {
			did |= qp->conn.tx_slot != moved;
			break;
		}
		did = true;
		if (qp->qp.state == GN_QP_ERROR)
			break;
		qp->sq.tail = position + 1;
	}
	conn_busy_end(&qp->conn);
	if (soft_sq_empty(&qp->sq)) {
		shm_rx_del(rx);
		if (qp->conn.own_area)
			__atomic_store_n(&qp->conn.own_area->conn_state.tx_waiting, 0,
					 __ATOMIC_RELAXED);
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
		if (c->own_area)
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
	} else if (c->own_area) {
		/* Pairs with the acquire in the sender's tx_has_receive(). */
		__atomic_store_n(&c->own_area->credit.posted, qp->rq.head, __ATOMIC_RELEASE);
		if (c->peer)
			shm_wake_sender(c);
	}
	return n;
}
